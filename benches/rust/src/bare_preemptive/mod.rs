//! The limit for policies that preempt: the work of `srtf`, `srsf` and `las`, as bare as `bare.rs`; that of
//! `tiresias`, whose jobs may find no place, is in `skewed`.
//!
//! One cluster of one GPU type, jobs known by arrival, gang size and duration. The same schedule as the policy's, to
//! the nanosecond, and nothing else: no policy port, no checks, no plan, no records but start and finish times. The
//! loops are tuned for these three orders; what a policy that preempts costs beyond them is the engine's. Time is
//! whole nanoseconds, so what a job has left is a subtraction. The engine keeps seconds in floating point, and on the
//! benchmark's workloads, where the benchmark asserts it, both come to the same nanosecond. Servers and who sits on them
//! are those of `bare.rs`.
//!
//! A decision is what a walk along the order of all jobs, skipping those that do not fit, would find, without the
//! walk: per gang size only the first waiting job can be next, and it fits if enough GPUs are free or held behind
//! it. How many are held there at most is kept beside each head, so an event that lets nobody start costs one
//! comparison per gang size. Jobs that run and jobs that wait lie in lists whose ends are cheap (`sorted.rs`):
//! there lies who starts and stops next.
//!
//! Cost: O(gang sizes + changes log jobs) per event.

mod attained;
mod remaining;
mod skewed;
mod sorted;
#[cfg(test)]
mod tests;
mod wheel;

use crate::bare::{FreeGpus, Times};
use crate::workload::{Cluster, Jobs};
use crate::worlds::SERVERS_PER_RACK;
use attained::Attained;
use remaining::{Remaining, Service, Time};
use sorted::Sorted;

/// Shortest remaining time first.
pub fn srtf(jobs: &Jobs, cluster: Cluster) -> Times {
    Loop::<Remaining<Time>>::run(jobs, cluster)
}

/// Shortest remaining service first.
pub fn srsf(jobs: &Jobs, cluster: Cluster) -> Times {
    Loop::<Remaining<Service>>::run(jobs, cluster)
}

/// Least attained service in queues.
pub fn las(jobs: &Jobs, cluster: Cluster) -> Times {
    Loop::<Attained>::run(jobs, cluster)
}

/// Least attained service in queues, each gang on the fewest servers possible or waiting for them.
pub fn tiresias(jobs: &Jobs, cluster: Cluster) -> Times {
    skewed::run(jobs, cluster, SERVERS_PER_RACK)
}

/// A job in a list: what the list is ordered by; job; gang size, whether it was stopped before, class.
/// Ordered as a number.
type Entry = u128;

const STOPPED: Entry = 1 << 8;

fn entry(key: i64, job: u32, gpus: u32, class: u8) -> Entry {
    let gang = u128::from(gpus) << 9 | u128::from(class);
    (key as u128) << 64 | u128::from(job) << 32 | gang
}

fn key(entry: Entry) -> i64 {
    (entry >> 64) as i64
}

fn job(entry: Entry) -> usize {
    (entry >> 32) as u32 as usize
}

fn gpus(entry: Entry) -> i64 {
    i64::from(entry as u32 >> 9)
}

fn class(entry: Entry) -> usize {
    usize::from(entry as u8)
}

/// The running jobs of a policy, in its order.
trait Running {
    /// Lists of waiting jobs per class, one behind the other.
    const LISTS: usize;

    /// `sizes` are the gang sizes, ascending.
    fn new(jobs: &Jobs, sizes: &[u32]) -> Self;
    /// The entry of a new job.
    fn arrive(&mut self, job: u32, gpus: u32, class: u8, duration_ns: i64) -> Entry;
    /// Which list a waiting job lies in.
    fn list_of(waiting: Entry) -> usize;
    /// Place of a waiting job in the order.
    fn rank(waiting: Entry) -> u128;
    /// The next instant at which something happens, if before the limit.
    fn next_ns(&mut self, limit_ns: i64) -> i64;
    /// The next job that ends now. Before that it tells the classes whose running jobs fell back in the order.
    fn next_end(&mut self, now_ns: i64, classes: &mut [Class]) -> Option<Entry>;
    /// A job starts.
    fn start(&mut self, waiting: Entry, now_ns: i64);
    /// GPUs that run behind a rank, or as many of them as are enough.
    fn behind(&self, rank: u128, enough: i64, now_ns: i64) -> i64;
    /// Takes out the last job in the order.
    fn pop_last(&mut self, now_ns: i64) -> Entry;
    /// Puts it back.
    fn put_back(&mut self, running: Entry);
    /// The entry under which a job that was taken out waits.
    fn stop(&mut self, running: Entry, now_ns: i64) -> Entry;
}

/// The jobs of one gang size that wait.
struct Class {
    gpus: i64,
    /// The first of them; `NONE` if nobody waits.
    head: Entry,
    rank: u128,
    /// With less room it does not fit, as no more than the rest of its GPUs run behind it. What starts or falls
    /// behind it lowers this; a job that gets ahead of it leaves this too low, which costs a count and no more.
    needs_room: i64,
    others: Vec<Sorted>,
}

const NONE: Entry = Entry::MAX;
/// Room that there always is, until it is counted; less this, room that there never is.
const ANY_ROOM: i64 = i64::MIN / 2;

impl Class {
    fn new(gpus: u32, lists: usize) -> Self {
        Self {
            gpus: i64::from(gpus),
            head: NONE,
            rank: NONE,
            needs_room: -ANY_ROOM,
            others: (0..lists).map(|_| Sorted::default()).collect(),
        }
    }

    fn wait<R: Running>(&mut self, entry: Entry) {
        if entry > self.head {
            self.others[R::list_of(entry)].insert(entry);
            return;
        }
        if self.head != NONE {
            self.others[R::list_of(self.head)].push_first(self.head);
        }
        self.lead::<R>(entry);
        self.needs_room = ANY_ROOM;
    }

    fn lead<R: Running>(&mut self, entry: Entry) {
        self.head = entry;
        self.rank = R::rank(entry);
    }

    /// The next head needs no less room: no more run behind it.
    fn pop_head<R: Running>(&mut self) -> Entry {
        let head = self.head;
        if let Some(next) = self.others.iter_mut().find_map(Sorted::pop_first) {
            self.lead::<R>(next);
        } else {
            (self.head, self.rank, self.needs_room) = (NONE, NONE, -ANY_ROOM);
        }
        head
    }
}

struct Loop<'a, R> {
    jobs: &'a Jobs,
    now_ns: i64,
    arrived: usize,
    free: FreeGpus,
    /// GPUs that the count has left; below 0 while too many run.
    room: i64,
    class_of: Vec<u8>,
    classes: Vec<Class>,
    running: R,
    /// Placed once those who stop have given their GPUs back.
    started: Vec<Entry>,
    /// Taken off the end of the order to find who stops.
    back: Vec<Entry>,
    times: Times,
}

impl<'a, R: Running> Loop<'a, R> {
    fn run(jobs: &'a Jobs, cluster: Cluster) -> Times {
        let mut bare = Self::new(jobs, cluster);
        while bare.next_instant() {
            bare.decide();
        }
        bare.times
    }

    fn new(jobs: &'a Jobs, cluster: Cluster) -> Self {
        let mut sizes = jobs.gpus.clone();
        sizes.sort_unstable();
        sizes.dedup();
        let mut class_of = vec![0; sizes.last().map_or(0, |&widest| widest as usize + 1)];
        for (class, &size) in sizes.iter().enumerate() {
            class_of[size as usize] = u8::try_from(class).expect("at most 256 gang sizes");
        }
        Self {
            now_ns: 0,
            arrived: 0,
            free: FreeGpus::new(cluster, jobs.len()),
            room: i64::from(cluster.gpus()),
            class_of,
            classes: sizes
                .iter()
                .map(|&size| Class::new(size, R::LISTS))
                .collect(),
            running: R::new(jobs, &sizes),
            started: Vec::new(),
            back: Vec::new(),
            times: Times::new(jobs.len()),
            jobs,
        }
    }

    /// Applies all that happens at the next instant; false at the end.
    fn next_instant(&mut self) -> bool {
        let arrivals = &self.jobs.arrival_ns;
        let arrival = arrivals.get(self.arrived).copied().unwrap_or(i64::MAX);
        self.now_ns = self.running.next_ns(arrival).min(arrival);
        if self.now_ns == i64::MAX {
            return false;
        }
        while let Some(entry) = self.running.next_end(self.now_ns, &mut self.classes) {
            self.times.finish_ns[job(entry)] = self.now_ns;
            self.room += gpus(entry);
            self.free.give(job(entry) as u32, gpus(entry) as u32);
        }
        while self.jobs.arrival_ns.get(self.arrived) == Some(&self.now_ns) {
            let (at, gpus) = (self.arrived, self.jobs.gpus[self.arrived]);
            let class = self.class_of[gpus as usize];
            let duration_ns = self.jobs.duration_ns[at];
            let entry = self.running.arrive(at as u32, gpus, class, duration_ns);
            self.classes[usize::from(class)].wait::<R>(entry);
            self.arrived += 1;
        }
        true
    }

    /// Starts and stops jobs until a walk along the order, skipping what does not fit, would find these running.
    fn decide(&mut self) {
        loop {
            self.start_fitting();
            if self.room >= 0 {
                break;
            }
            self.stop_last();
        }
        self.times.starts += self.started.len() as u64;
        for entry in self.started.drain(..) {
            self.free.take(job(entry) as u32, gpus(entry) as u32);
        }
    }

    /// Starts in rank order the heads that fit before their places.
    fn start_fitting(&mut self) {
        while let Some(at) = self.first_that_may_fit() {
            let class = &mut self.classes[at];
            let lacking = class.gpus - self.room;
            let behind = self.running.behind(class.rank, lacking, self.now_ns);
            if behind >= lacking {
                self.start(at);
            } else {
                class.needs_room = class.gpus - behind;
            }
        }
    }

    fn first_that_may_fit(&self) -> Option<usize> {
        let mut first = (NONE, None);
        for (at, class) in self.classes.iter().enumerate() {
            if class.needs_room <= self.room && class.rank < first.0 {
                first = (class.rank, Some(at));
            }
        }
        first.1
    }

    fn start(&mut self, class: usize) {
        let rank = self.classes[class].rank;
        let head = self.classes[class].pop_head::<R>();
        for class in &mut self.classes {
            if class.rank < rank {
                class.needs_room -= gpus(head);
            }
        }
        self.room -= gpus(head);
        self.running.start(head, self.now_ns);
        if head & STOPPED == 0 {
            self.times.start_ns[job(head)] = self.now_ns;
        }
        self.started.push(head);
    }

    /// Stops the first job in rank order that is one too many.
    fn stop_last(&mut self) {
        let mut room = self.room;
        while room < 0 {
            let last = self.running.pop_last(self.now_ns);
            room += gpus(last);
            self.back.push(last);
        }
        // where nothing is left at its place, those behind it have to go as well
        let kept = if room == 0 { 0 } else { self.back.len() - 1 };
        let mut behind = room - self.room;
        while self.back.len() > kept
            && let Some(entry) = self.back.pop()
        {
            behind -= gpus(entry);
            self.stop(entry, behind);
        }
        while let Some(entry) = self.back.pop() {
            self.running.put_back(entry);
        }
    }

    /// Stops a job that is out of the lists; `behind` is how many GPUs still run behind it.
    fn stop(&mut self, entry: Entry, behind: i64) {
        let entry = self.running.stop(entry, self.now_ns) | STOPPED;
        let rank = R::rank(entry);
        for class in &mut self.classes {
            if class.rank < rank {
                class.needs_room += gpus(entry);
            }
        }
        self.room += gpus(entry);
        self.free.give(job(entry) as u32, gpus(entry) as u32);
        let class = &mut self.classes[class(entry)];
        class.wait::<R>(entry);
        if class.head == entry {
            class.needs_room = class.gpus - behind;
        }
    }
}
