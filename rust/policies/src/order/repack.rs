//! The pass with preemption (spec baselines section 1): greedy re-pack by count, in incremental form.
//!
//! The running jobs are what the greedy walk admitted last time, so a decision only mends what changed. While
//! some waiting head fits before its place in the order, the first such head is admitted; else, if
//! too many GPUs are promised, the first running job that no longer fits is dropped, which may
//! open a gap for heads behind it. Each step goes forward in key order, so the result is that of the full
//! walk. Cost O((changes + classes) log n). Clusters of several GPU types, where who is admitted where
//! depends on the whole order, walk the running jobs and the heads of the classes instead.

use crate::class::Places;
use crate::order::{ClassQueues, Key, Measure, Rank, Running};
use gangline_engine::{ClusterView, Plan};
use gangline_model::{Action, GpuTypeId, JobId};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A job that the count admits and that has no GPUs yet.
#[derive(Clone, Copy, Debug)]
struct Admission {
    rank: Rank,
    class: usize,
    /// The type that admitted it.
    gpu_type: GpuTypeId,
    /// Its key before.
    key: Key,
    /// Whether it runs on another type: a move.
    is_running: bool,
}

/// A running job that gave up its GPUs in the scratch.
#[derive(Clone, Copy, Debug)]
struct Dropped {
    rank: Rank,
    key: Key,
    /// Whether it still counts among the running.
    is_counted: bool,
}

/// Queues by class, running jobs in key order, and the pass over both.
#[derive(Debug)]
pub struct Repack {
    measure: Measure,
    mode: Mode,
    queues: ClassQueues,
    running: Running,
    /// Any class may have a head that fits now.
    is_stirred: bool,
    /// Classes that got a waiting job since the last pass.
    woken: Vec<usize>,
    candidates: Vec<usize>,
    admitted: Vec<Admission>,
    dropped: Vec<Dropped>,
    heads: BinaryHeap<Reverse<(Rank, usize)>>,
    /// Jobs that the last pass started.
    pub started: Vec<JobId>,
    /// Jobs that the last pass moved.
    pub moved: Vec<JobId>,
    /// Jobs that the last pass preempted; the policy puts them back with [`Repack::wait`].
    pub stopped: Vec<JobId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Incremental,
    /// Several GPU types, or keys that move: walk the running jobs and the heads of the classes.
    Heads,
    /// The oracle: walk everything.
    Plain,
}

impl Repack {
    /// A pass in the order of a measure. `keys_move` tells that running jobs fall back as time goes.
    pub fn new(measure: Measure, keys_move: bool, is_plain: bool) -> Self {
        let mode = match (is_plain, keys_move) {
            (true, _) => Mode::Plain,
            (false, true) => Mode::Heads,
            (false, false) => Mode::Incremental,
        };
        Self {
            measure,
            mode,
            queues: ClassQueues::default(),
            running: Running::new(measure, std::iter::empty()),
            is_stirred: false,
            woken: Vec::new(),
            candidates: Vec::new(),
            admitted: Vec::new(),
            dropped: Vec::new(),
            heads: BinaryHeap::new(),
            started: Vec::new(),
            moved: Vec::new(),
            stopped: Vec::new(),
        }
    }

    /// Sizes everything; `has_leads` tells whether keys have a leading part.
    pub fn start(&mut self, view: &ClusterView<'_>, places: &Places, has_leads: bool) {
        let classes = places.classes();
        self.queues = ClassQueues::new(classes.len(), view.jobs().len(), has_leads);
        self.running = Running::new(self.measure, classes.iter().map(|class| class.gpus));
        if view.cluster().gpu_types().len() > 1 && self.mode == Mode::Incremental {
            self.mode = Mode::Heads;
        }
    }

    /// Whether a job runs, after all plans so far.
    #[inline]
    pub fn is_running(&self, job: JobId) -> bool {
        self.queues.is_running(job)
    }

    /// Whether a job waits in a queue.
    #[inline]
    pub fn is_waiting(&self, job: JobId) -> bool {
        self.queues.is_waiting(job)
    }

    /// The present key of a job.
    #[inline]
    pub fn key(&self, job: JobId) -> Key {
        self.queues.key(job)
    }

    /// Whether nobody waits.
    pub fn nobody_waits(&self) -> bool {
        self.queues.is_empty()
    }

    /// The capacity has changed.
    pub fn stir(&mut self) {
        self.is_stirred = true;
    }

    /// Takes out a running job that has finished or was thrown back.
    #[inline]
    pub fn leave(&mut self, job: JobId, gpus: u32) {
        if self.queues.is_running(job) {
            self.running.remove(self.queues.key(job), gpus);
            self.is_stirred = true;
        }
        self.queues.forget(job);
    }

    /// Puts a job into its queue, or gives a waiting one another key.
    #[inline]
    pub fn wait(&mut self, class: usize, key: Key) {
        self.queues.push(class, key);
        self.woken.push(class);
    }

    /// Gives a running job another key. To come forward changes nothing for others.
    #[inline]
    pub fn rekey(&mut self, key: Key, gpus: u32) {
        let old = self.queues.key(key.job());
        if old == key {
            return;
        }
        self.is_stirred |= key > old;
        self.running.remove(old, gpus);
        self.running.insert(key, gpus);
        self.queues.set_running(key);
    }

    /// Decides who runs: fills the plan, `started`, `moved` and `stopped`.
    pub fn decide(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>, places: &mut Places) {
        self.started.clear();
        self.moved.clear();
        self.stopped.clear();
        self.admitted.clear();
        self.dropped.clear();
        let is_settled = match self.mode {
            Mode::Plain => {
                self.walk_all(view, plan, places);
                true
            }
            Mode::Heads => {
                self.walk_heads(view, places);
                self.settle(view, plan, places)
            }
            Mode::Incremental => {
                self.mend(view, places);
                self.settle(view, plan, places)
            }
        };
        self.woken.clear();
        // after a refusal by the placement rule the running jobs are not those of the greedy walk
        self.is_stirred = !is_settled;
    }

    /// The greedy admission by count, from what was admitted before.
    fn mend(&mut self, view: &ClusterView<'_>, places: &Places) {
        let capacity = i64::from(view.gpus_up(GpuTypeId(0)));
        let now = view.now().0;
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        if self.is_stirred {
            self.all_classes(&mut candidates);
        } else {
            candidates.append(&mut self.woken);
            candidates.sort_unstable();
            candidates.dedup();
        }
        loop {
            let free = capacity - self.running.sum() as i64;
            if let Some((rank, class)) = self.first_fitting(&mut candidates, places, free, now) {
                self.admit(
                    rank,
                    class,
                    GpuTypeId(0),
                    places.classes().get(class).gpus,
                    now,
                );
            } else if free < 0 {
                let (key, gpus) = self
                    .running
                    .first_over(free.unsigned_abs(), now)
                    .expect("jobs hold GPUs");
                self.drop_job(key, gpus, now);
                candidates.clear();
                self.all_classes(&mut candidates);
            } else {
                break;
            }
        }
        self.candidates = candidates;
    }

    fn all_classes(&self, into: &mut Vec<usize>) {
        let mut from = 0;
        while let Some(class) = self.queues.next_class(from) {
            into.push(class);
            from = class + 1;
        }
    }

    /// The first head in rank order that fits before its place. Classes whose head does not fit leave the
    /// candidates: until a job is dropped there is only ever less room.
    #[inline]
    fn first_fitting(
        &mut self,
        candidates: &mut Vec<usize>,
        places: &Places,
        free: i64,
        now: i64,
    ) -> Option<(Rank, usize)> {
        let mut best: Option<(Rank, usize)> = None;
        let mut at = 0;
        while let Some(&class) = candidates.get(at) {
            let Some(head) = self.queues.head(class) else {
                candidates.swap_remove(at);
                continue;
            };
            let gpus = places.classes().get(class).gpus;
            let rank = self.measure.waiting(head, gpus);
            if best.is_some_and(|(best, _)| best < rank) {
                at += 1;
                continue;
            }
            let gpus = i64::from(gpus);
            if free >= gpus || free + self.running.sum_after(&rank, now) as i64 >= gpus {
                best = Some((rank, class));
                at += 1;
            } else {
                candidates.swap_remove(at);
            }
        }
        best
    }

    #[inline]
    fn admit(&mut self, rank: Rank, class: usize, gpu_type: GpuTypeId, gpus: u32, now: i64) {
        let key = self.queues.pop(class).expect("the class has a head");
        self.count_in(key, gpus, now);
        self.admitted.push(Admission {
            rank,
            class,
            gpu_type,
            key,
            is_running: false,
        });
    }

    /// Counts a waiting job among the running.
    #[inline]
    fn count_in(&mut self, waiting: Key, gpus: u32, now: i64) {
        let key = Key {
            main: self.measure.to_running(waiting.main, now),
            ..waiting
        };
        self.queues.set_running(key);
        self.running.insert(key, gpus);
    }

    fn drop_job(&mut self, key: Key, gpus: u32, now: i64) {
        self.running.remove(key, gpus);
        self.queues.forget(key.job());
        let rank = self.measure.running(key, gpus, now);
        self.dropped.push(Dropped {
            rank,
            key,
            is_counted: false,
        });
    }

    /// The greedy admission by count over running jobs and heads, type by type. O(running).
    fn walk_heads(&mut self, view: &ClusterView<'_>, places: &Places) {
        let now = view.now().0;
        let types = view.cluster().gpu_types().len();
        let mut left: Vec<u32> = (0..types)
            .map(|at| view.gpus_up(GpuTypeId::new(at)))
            .collect();
        let mut running: Vec<Rank> = self.running.ranks(now).collect();
        running.sort_unstable();
        self.collect_heads(places, |_| true);
        let mut running = running.into_iter().peekable();
        loop {
            let head = self.heads.peek().map(|&Reverse(head)| head);
            match (running.peek().copied(), head) {
                (None, None) => break,
                (Some(rank), head) if head.is_none_or(|(head, _)| rank < head) => {
                    running.next();
                    self.pass_running(view, places, rank, &mut left);
                }
                (_, Some((rank, class))) => {
                    self.heads.pop();
                    let of = places.classes().get(class);
                    let fits = |t: &&GpuTypeId| left[t.index()] >= of.gpus;
                    if let Some(&gpu_type) = of.types.iter().find(fits) {
                        left[gpu_type.index()] -= of.gpus;
                        self.admit(rank, class, gpu_type, of.gpus, now);
                        self.push_head(class, places);
                    }
                }
                (Some(_), None) => unreachable!("without a head the running job comes first"),
            }
        }
    }

    fn pass_running(
        &mut self,
        view: &ClusterView<'_>,
        places: &Places,
        rank: Rank,
        left: &mut [u32],
    ) {
        let job = JobId(rank.job);
        let class = places.classes().of(job);
        let of = places.classes().get(class);
        let key = self.queues.key(job);
        let own = view.run(job).expect("a running job").gpu_type;
        let others = of.types.iter().copied().filter(|&t| t != own);
        match std::iter::once(own)
            .chain(others)
            .find(|t| left[t.index()] >= of.gpus)
        {
            Some(gpu_type) => {
                left[gpu_type.index()] -= of.gpus;
                if gpu_type != own {
                    self.admitted.push(Admission {
                        rank,
                        class,
                        gpu_type,
                        key,
                        is_running: true,
                    });
                }
            }
            None => self.drop_job(key, of.gpus, view.now().0),
        }
    }

    /// Fills `heads` with the heads of the classes that pass a test.
    fn collect_heads(&mut self, places: &Places, mut test: impl FnMut(usize) -> bool) {
        self.heads.clear();
        let mut from = 0;
        while let Some(class) = self.queues.next_class(from) {
            from = class + 1;
            if test(class) {
                self.push_head(class, places);
            }
        }
    }

    fn push_head(&mut self, class: usize, places: &Places) {
        if let Some(key) = self.queues.head(class) {
            let rank = self.measure.waiting(key, places.classes().get(class).gpus);
            self.heads.push(Reverse((rank, class)));
        }
    }

    /// Gives the admitted their GPUs; whether each got some.
    fn settle(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>, places: &mut Places) -> bool {
        let admitted = std::mem::take(&mut self.admitted);
        for job in self.dropped.iter().map(|dropped| dropped.key.job()) {
            plan.release(job);
        }
        for admission in admitted.iter().filter(|admission| admission.is_running) {
            plan.release(admission.key.job());
        }
        let mut is_settled = true;
        for admission in &admitted {
            let Admission {
                class,
                gpu_type,
                key,
                ..
            } = *admission;
            let job = key.job();
            match places.place_on(plan.free(), class, job, gpu_type) {
                Some(gpus) if admission.is_running => {
                    plan.take(&gpus);
                    plan.push(Action::Move { job, gpus });
                    self.moved.push(job);
                }
                Some(gpus) => {
                    places.note_start(job);
                    plan.start(job, gpus);
                    self.started.push(job);
                }
                None => {
                    is_settled = false;
                    self.refuse(admission, view);
                }
            }
        }
        self.admitted = admitted;
        if is_settled {
            for dropped in &self.dropped {
                plan.push(Action::Preempt {
                    job: dropped.key.job(),
                });
                self.stopped.push(dropped.key.job());
            }
        } else {
            self.rehome(view, plan, places);
        }
        is_settled
    }

    /// The placement rule has no place for an admitted job: it is without GPUs, as before or from now on.
    fn refuse(&mut self, admission: &Admission, view: &ClusterView<'_>) {
        let &Admission {
            rank,
            class,
            key,
            is_running,
            ..
        } = admission;
        if is_running {
            self.dropped.push(Dropped {
                rank,
                key,
                is_counted: true,
            });
            return;
        }
        let gpus = view.jobs().gpus(key.job());
        self.running.remove(self.queues.key(key.job()), gpus);
        self.queues.push(class, key);
    }

    /// Step 4: all without GPUs once more in rank order. Who ran may keep its old GPUs, who waits takes any
    /// place the rule finds.
    fn rehome(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>, places: &mut Places) {
        let mut dropped = std::mem::take(&mut self.dropped);
        dropped.sort_unstable_by_key(|dropped| dropped.rank);
        let free = plan.free();
        self.collect_heads(places, |class| places.can(free, class));
        let now = view.now().0;
        let mut homeless = dropped.iter().peekable();
        loop {
            let head = self.heads.peek().map(|&Reverse(head)| head);
            match (homeless.peek().copied(), head) {
                (None, None) => break,
                (Some(&next), head) if head.is_none_or(|(head, _)| next.rank < head) => {
                    homeless.next();
                    self.keep_or_stop(view, plan, next);
                }
                (_, Some((rank, class))) => {
                    self.heads.pop();
                    let job = JobId(rank.job);
                    if places.start_job(plan, class, job) {
                        let key = self.queues.pop(class).expect("the head");
                        self.count_in(key, places.classes().get(class).gpus, now);
                        self.started.push(job);
                        self.push_head(class, places);
                    }
                }
                (Some(_), None) => unreachable!("without a head the dropped job comes first"),
            }
        }
        self.dropped = dropped;
    }

    fn keep_or_stop(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>, dropped: Dropped) {
        let job = dropped.key.job();
        let gpus = view.jobs().gpus(job);
        let old = &view.run(job).expect("a running job").gpus;
        if plan.free().is_free(old) {
            plan.take(old);
            if !dropped.is_counted {
                self.queues.set_running(dropped.key);
                self.running.insert(dropped.key, gpus);
            }
            return;
        }
        if dropped.is_counted {
            self.running.remove(dropped.key, gpus);
            self.queues.forget(job);
        }
        plan.push(Action::Preempt { job });
        self.stopped.push(job);
    }
}

mod plain;
