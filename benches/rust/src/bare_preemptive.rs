//! The limit for policies that preempt: the work of `srtf`, `srsf` and `las`, as bare as `bare.rs`.
//!
//! Arrays, one binary heap of completions and timers, servers in buckets by free GPUs, a heap of waiting and
//! a tree of running jobs per gang size. The same schedule as the policy's, to the nanosecond, and nothing
//! else: no policy port, no checks, no plan, no records but start and finish times. What a policy that
//! preempts costs beyond this is the engine's; that it stops and starts a job several times is its own.
//!
//! Cost: O((changes + gang sizes) log running) per event.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use crate::bare::{FreeGpus, Times};
use crate::workload::{Cluster, Jobs};

/// Who goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Least time left, ties by job.
    Time,
    /// Least time left x gang size, ties by gang size, job.
    Service,
    /// Queue by GPU time attained, then first start, job.
    Attained,
}

/// GPU-nanoseconds at which a job leaves each queue but the last.
const LIMITS_GPU_NS: [i64; 2] = [3_250_000_000_000, 7_200_000_000_000];

/// Shortest remaining time first.
pub fn srtf(jobs: &Jobs, cluster: Cluster) -> Times {
    run(jobs, cluster, Order::Time)
}

/// Shortest remaining service first.
pub fn srsf(jobs: &Jobs, cluster: Cluster) -> Times {
    run(jobs, cluster, Order::Service)
}

/// Least attained service in queues.
pub fn las(jobs: &Jobs, cluster: Cluster) -> Times {
    run(jobs, cluster, Order::Attained)
}

fn run(jobs: &Jobs, cluster: Cluster, order: Order) -> Times {
    let mut bare = Loop::new(jobs, cluster, order);
    while bare.next_instant() {
        bare.decide();
    }
    bare.times
}

/// Place in the order now.
type Rank = (i128, u32);

#[derive(Clone, Copy)]
struct State {
    left_s: f64,
    /// Finish instant of a running job.
    finish_ns: i64,
    /// Last start.
    start_ns: i64,
    attained_gpu_ns: i64,
    /// Of the running entry; tells live events from cancelled ones.
    generation: u32,
    queue: u8,
    is_running: bool,
}

struct Loop<'a> {
    jobs: &'a Jobs,
    order: Order,
    now_ns: i64,
    arrived: usize,
    /// Completions (even) and timers (odd): instant, generation x 2 + kind, job.
    events: BinaryHeap<Reverse<(i64, u32, u32)>>,
    free: FreeGpus,
    /// GPUs that the count has left; below 0 while too many are admitted.
    room: i64,
    sizes: Vec<u32>,
    class_of: Vec<u8>,
    waiting: Vec<BinaryHeap<Reverse<Rank>>>,
    /// By standing key: the finish instant, or the rank itself.
    running: Vec<BTreeSet<Rank>>,
    state: Vec<State>,
    admitted: Vec<u32>,
    dropped: Vec<u32>,
    times: Times,
}

/// Nearest nanosecond of so much work at rate 1, at least 1.
fn span_ns(left_s: f64) -> i64 {
    (libm::round(left_s * 1e9) as i64).max(1)
}

impl<'a> Loop<'a> {
    fn new(jobs: &'a Jobs, cluster: Cluster, order: Order) -> Self {
        let mut sizes = jobs.gpus.clone();
        sizes.sort_unstable();
        sizes.dedup();
        let mut class_of = vec![0; sizes.last().map_or(0, |&widest| widest as usize + 1)];
        for (class, &size) in sizes.iter().enumerate() {
            class_of[size as usize] = class as u8;
        }
        let state = |&duration_ns: &i64| State {
            left_s: duration_ns as f64 / 1e9,
            finish_ns: 0,
            start_ns: 0,
            attained_gpu_ns: 0,
            generation: 0,
            queue: 0,
            is_running: false,
        };
        Self {
            order,
            now_ns: 0,
            arrived: 0,
            events: BinaryHeap::new(),
            free: FreeGpus::new(cluster, jobs.len()),
            room: i64::from(cluster.gpus()),
            waiting: sizes.iter().map(|_| BinaryHeap::new()).collect(),
            running: sizes.iter().map(|_| BTreeSet::new()).collect(),
            sizes,
            class_of,
            state: jobs.duration_ns.iter().map(state).collect(),
            admitted: Vec::new(),
            dropped: Vec::new(),
            times: Times {
                start_ns: vec![-1; jobs.len()],
                finish_ns: vec![-1; jobs.len()],
            },
            jobs,
        }
    }

    fn class(&self, job: u32) -> usize {
        usize::from(self.class_of[self.jobs.gpus[job as usize] as usize])
    }

    /// Rank of a job by the time it has left; of `las`, by its queue.
    fn rank(&self, job: u32, left_ns: i64) -> Rank {
        let gpus = i128::from(self.jobs.gpus[job as usize]);
        let value = match self.order {
            Order::Time => i128::from(left_ns),
            Order::Service => (i128::from(left_ns) * gpus) << 32 | gpus,
            Order::Attained => {
                let first = self.times.start_ns[job as usize];
                let first = if first < 0 { i64::MAX } else { first };
                i128::from(self.state[job as usize].queue) << 64 | i128::from(first)
            }
        };
        (value, job)
    }

    /// Rank now of a running job, from its standing key.
    fn rank_now(&self, standing: Rank) -> Rank {
        if self.order == Order::Attained {
            return standing;
        }
        self.rank(standing.1, (standing.0 - i128::from(self.now_ns)) as i64)
    }

    fn standing(&self, job: u32) -> Rank {
        match self.order {
            Order::Attained => self.rank(job, 0),
            Order::Time | Order::Service => (i128::from(self.state[job as usize].finish_ns), job),
        }
    }

    fn wait(&mut self, job: u32) {
        let rank = self.rank(job, span_ns(self.state[job as usize].left_s));
        let class = self.class(job);
        self.waiting[class].push(Reverse(rank));
    }

    /// Applies completions, arrivals and timers of the next instant; false at the end.
    fn next_instant(&mut self) -> bool {
        while let Some(&Reverse((_, tag, job))) = self.events.peek()
            && !self.is_live(tag, job)
        {
            self.events.pop();
        }
        let event = self.events.peek().map_or(i64::MAX, |next| next.0.0);
        let arrivals = &self.jobs.arrival_ns;
        let arrival = arrivals.get(self.arrived).copied().unwrap_or(i64::MAX);
        self.now_ns = event.min(arrival);
        if self.now_ns == i64::MAX {
            return false;
        }
        while let Some(&Reverse((at, tag, job))) = self.events.peek()
            && at == self.now_ns
        {
            self.events.pop();
            if !self.is_live(tag, job) {
                continue;
            }
            if tag & 1 == 1 {
                self.demote(job);
            } else {
                self.complete(job);
            }
        }
        while self.jobs.arrival_ns.get(self.arrived) == Some(&self.now_ns) {
            self.wait(self.arrived as u32);
            self.arrived += 1;
        }
        true
    }

    fn is_live(&self, tag: u32, job: u32) -> bool {
        let state = &self.state[job as usize];
        state.is_running && state.generation == tag >> 1
    }

    fn complete(&mut self, job: u32) {
        let class = self.class(job);
        let standing = self.standing(job);
        self.running[class].remove(&standing);
        self.state[job as usize].is_running = false;
        self.times.finish_ns[job as usize] = self.now_ns;
        self.room += i64::from(self.sizes[class]);
        self.free.give(job, self.sizes[class]);
    }

    fn demote(&mut self, job: u32) {
        let class = self.class(job);
        let standing = self.standing(job);
        self.running[class].remove(&standing);
        self.state[job as usize].queue += 1;
        let standing = self.standing(job);
        self.running[class].insert(standing);
        self.arm(job);
    }

    /// The timer of a running job's queue.
    fn arm(&mut self, job: u32) {
        let state = &self.state[job as usize];
        let Some(limit) = LIMITS_GPU_NS.get(usize::from(state.queue)) else {
            return;
        };
        let gpus = i64::from(self.jobs.gpus[job as usize]);
        let rest = limit - state.attained_gpu_ns - (self.now_ns - state.start_ns) * gpus;
        let at = self.now_ns + (rest - 1).div_euclid(gpus) + 1;
        self.events
            .push(Reverse((at, state.generation << 1 | 1, job)));
    }

    /// Admits by count in the order, then takes and gives GPUs.
    fn decide(&mut self) {
        loop {
            if let Some(class) = self.first_fitting() {
                let Some(Reverse((_, job))) = self.waiting[class].pop() else {
                    unreachable!("the class has a head");
                };
                self.admit(class, job);
            } else if self.room < 0 {
                self.drop_last();
            } else {
                break;
            }
        }
        for at in 0..self.dropped.len() {
            let job = self.dropped[at];
            self.free.give(job, self.jobs.gpus[job as usize]);
            self.wait(job);
        }
        self.dropped.clear();
        for at in 0..self.admitted.len() {
            let job = self.admitted[at];
            self.free.take(job, self.jobs.gpus[job as usize]);
        }
        self.admitted.clear();
    }

    /// The class of the first waiting job, in rank order, that fits before its place.
    fn first_fitting(&self) -> Option<usize> {
        let heads = self.waiting.iter().enumerate();
        let heads = heads.filter_map(|(class, heap)| Some((heap.peek()?.0, class)));
        let fitting = heads.filter(|&(rank, class)| self.fits(rank, i64::from(self.sizes[class])));
        fitting.min().map(|(_, class)| class)
    }

    fn fits(&self, rank: Rank, gpus: i64) -> bool {
        let mut room = self.room;
        for (class, running) in self.running.iter().enumerate() {
            let mut behind = running.iter().rev();
            while room < gpus
                && let Some(&standing) = behind.next()
                && self.rank_now(standing) > rank
            {
                room += i64::from(self.sizes[class]);
            }
        }
        room >= gpus
    }

    fn admit(&mut self, class: usize, job: u32) {
        let at = job as usize;
        self.room -= i64::from(self.sizes[class]);
        let finish_ns = self.now_ns + span_ns(self.state[at].left_s);
        let state = &mut self.state[at];
        state.start_ns = self.now_ns;
        state.finish_ns = finish_ns;
        state.is_running = true;
        state.generation += 1;
        self.events
            .push(Reverse((finish_ns, state.generation << 1, job)));
        if self.times.start_ns[at] < 0 {
            self.times.start_ns[at] = self.now_ns;
        }
        if self.order == Order::Attained {
            self.arm(job);
        }
        let standing = self.standing(job);
        self.running[class].insert(standing);
        self.admitted.push(job);
    }

    /// Stops the first job that no longer fits: from the end, the one that brings the room to 0.
    fn drop_last(&mut self) {
        let mut ends: Vec<_> = self
            .running
            .iter()
            .map(|running| running.iter().rev().peekable())
            .collect();
        let mut room = self.room;
        let (mut class, mut standing) = (0, (0, 0));
        while room < 0 {
            let last = ends.iter_mut().enumerate().filter_map(|(class, end)| {
                let standing = **end.peek()?;
                Some((self.rank_now(standing), class))
            });
            class = last.max().expect("running jobs hold the GPUs").1;
            standing = *ends[class].next().expect("just seen");
            room += i64::from(self.sizes[class]);
        }
        self.running[class].remove(&standing);
        self.room += i64::from(self.sizes[class]);
        let state = &mut self.state[standing.1 as usize];
        let ran_ns = self.now_ns - state.start_ns;
        state.left_s = (state.left_s - ran_ns as f64 / 1e9).max(0.0);
        state.attained_gpu_ns += ran_ns * i64::from(self.sizes[class]);
        state.is_running = false;
        self.dropped.push(standing.1);
    }
}
