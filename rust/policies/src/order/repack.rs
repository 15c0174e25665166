//! The pass with preemption: who runs is decided anew from the whole order of jobs. [`plain`] states the rule, in
//! four steps, and carries it out by a walk over all jobs; here is the same in incremental form.
//!
//! The running jobs are those that step 1, the count, admitted last time, so a decision only mends what changed. A
//! waiting job fits if enough GPUs are free or held by running jobs behind it in the order. The first waiting job
//! that fits is admitted, and so on. If too many GPUs are promised then, the first running job that no longer fits
//! is dropped, which may make room for waiting jobs behind it, and so on. Each step goes forward in key order, so the
//! result is that of the walk. Cost O((changes + classes) log n). On clusters of several GPU types it depends on the
//! whole order who is admitted where; there all running jobs and the heads of the classes are walked.

use crate::class::Places;
use crate::order::{Key, Ledger, Measure, Rank, Running, Stand};
use front::{Front, Head};
use gangline_engine::{Changes, ClusterView, Plan};
use gangline_model::{GpuTypeId, JobId};
use guests::Guests;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A job that the count admits and that has no GPUs yet.
#[derive(Clone, Copy, Debug)]
struct Admission {
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
    key: Key,
    /// Whether it is still in `running`.
    is_counted: bool,
}

/// What the count has left in a pass.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// GPUs not promised to anybody; below 0 while too many are promised.
    free: i64,
    /// Most GPUs that a head may ask for.
    slack: u64,
    /// Whether any class may have a head that fits; else only those in `woken` may.
    is_open: bool,
    /// Heads before this place of `front` do not fit.
    at: usize,
    /// The job that was admitted last.
    newest: Option<JobId>,
    now: i64,
}

/// Queues by class, running jobs in key order, and the pass over both.
#[derive(Debug)]
pub struct Repack {
    measure: Measure,
    mode: Mode,
    ledger: Ledger,
    /// Gang size by class.
    sizes: Vec<u32>,
    /// The jobs that the count admits. Where the placement rule refuses nobody, these are the jobs that run.
    running: Running,
    /// In [`Mode::Guests`] only.
    guests: Option<Box<Guests>>,
    /// Whether any class may have a head that fits now.
    is_stirred: bool,
    /// Whether [`Places::has_fickle`] was asked since the last failure or repair.
    is_checked: bool,
    /// Classes that got a waiting job since the last pass.
    woken: Vec<usize>,
    candidates: Vec<usize>,
    /// The first job of each class that the count does not admit.
    front: Front,
    /// Whether the front has to be made anew: jobs left their lines and it was not told.
    is_front_unknown: bool,
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
    /// The same under a placement rule that may refuse a gang, for keys that stand still.
    Guests,
    /// Several GPU types, or keys that move: walk the running jobs and the heads of the classes.
    Heads,
    /// Walk all jobs: the test oracle, and for runs with a class that may fit in less room where it did not fit in
    /// more ([`Places::has_fickle`]).
    Plain,
}

impl Repack {
    /// A pass in the order of a measure. `keys_move`: running jobs fall back in the order as time goes.
    pub fn new(measure: Measure, keys_move: bool, is_plain: bool) -> Self {
        let mode = match (is_plain, keys_move) {
            (true, _) => Mode::Plain,
            (false, true) => Mode::Heads,
            (false, false) => Mode::Incremental,
        };
        Self {
            measure,
            mode,
            ledger: Ledger::default(),
            sizes: Vec::new(),
            running: Running::new(measure, std::iter::empty()),
            guests: None,
            is_stirred: false,
            is_checked: false,
            woken: Vec::new(),
            candidates: Vec::new(),
            front: Front::default(),
            is_front_unknown: false,
            admitted: Vec::new(),
            dropped: Vec::new(),
            heads: BinaryHeap::new(),
            started: Vec::new(),
            moved: Vec::new(),
            stopped: Vec::new(),
        }
    }

    /// Sizes everything.
    pub fn start(&mut self, view: &ClusterView<'_>, places: &Places) {
        let classes = places.classes();
        self.ledger = Ledger::new(classes.len(), view.jobs().len());
        self.sizes = classes.iter().map(|class| class.gpus).collect();
        if view.cluster().gpu_types().len() > 1 && self.mode == Mode::Incremental {
            self.mode = Mode::Heads;
        }
        if self.mode == Mode::Incremental && self.measure.is_fixed() && places.is_strict() {
            // a promised job may start long after it was admitted, and its key must not change meanwhile
            self.measure = Measure::Fixed;
            self.mode = Mode::Guests;
            self.guests = Some(Box::new(Guests::new(view, places)));
        }
        // after `measure` was settled, which must be the same in both
        self.running = Running::new(self.measure, self.sizes.iter().copied());
    }

    /// Whether a job runs, after all plans so far.
    #[inline]
    pub fn is_running(&self, job: JobId) -> bool {
        self.ledger.is_running(job)
    }

    /// The present key of a job.
    #[inline]
    pub fn key(&self, job: JobId) -> Key {
        self.ledger.key(job)
    }

    /// Gang size of a job that has waited here.
    #[inline]
    fn gpus(&self, job: JobId) -> u32 {
        self.sizes[self.ledger.class(job)]
    }

    /// Takes in failures and repairs. Call after the jobs that they threw back have left.
    pub fn servers_changed(&mut self, view: &ClusterView<'_>, changes: &Changes) {
        if !changes.has_servers() {
            return;
        }
        self.is_stirred = true;
        self.is_checked = false;
        if let Some(guests) = &mut self.guests {
            guests.servers_changed(view, &changes.servers_down);
            guests.servers_changed(view, &changes.servers_up);
        }
    }

    /// Takes out a running job that has finished or was thrown back.
    #[inline]
    pub fn leave(&mut self, job: JobId) {
        let key = self.ledger.key(job);
        let gpus = self.gpus(job);
        match (self.ledger.stand(job), &mut self.guests) {
            (Stand::Running, guests) => {
                self.running.remove(key, gpus);
                self.is_stirred = true;
                if let Some(guests) = guests {
                    guests.leave_admitted(job);
                }
            }
            (Stand::Guest, Some(guests)) => guests.leave_guest(key),
            _ => {}
        }
        self.ledger.set(key, Stand::Nowhere);
    }

    /// Puts a job into its queue, or gives a waiting one another key.
    #[inline]
    pub fn wait(&mut self, class: usize, key: Key) {
        if let Some(guests) = &mut self.guests
            && self.ledger.stand(key.job()) == Stand::Promised
        {
            let old = self.ledger.key(key.job());
            guests.withdraw(class, old);
            self.running.remove(old, guests.gpus(class));
            self.is_stirred = true;
        }
        // a job behind a head that does not fit does not fit either
        if self.ledger.push(class, key) {
            self.woken.push(class);
        }
    }

    /// Gives a running job another key. If it comes forward nothing changes for others.
    #[inline]
    pub fn rekey(&mut self, key: Key) {
        let job = key.job();
        let old = self.ledger.key(job);
        if old == key {
            return;
        }
        if let Some(guests) = &mut self.guests
            && self.ledger.stand(job) == Stand::Guest
        {
            let class = guests.rekey_guest(old, key);
            self.woken.push(class);
            self.ledger.set(key, Stand::Guest);
            return;
        }
        self.is_stirred |= key > old;
        self.running.rekey(old, key, self.gpus(job));
        self.ledger.set(key, Stand::Running);
    }

    /// Decides who runs: fills the plan, `started`, `moved` and `stopped`.
    pub fn decide(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>, places: &mut Places) {
        self.started.clear();
        self.moved.clear();
        self.stopped.clear();
        self.admitted.clear();
        self.dropped.clear();
        if self.mode == Mode::Incremental && !self.is_stirred && self.woken.is_empty() {
            return; // nobody left, and whoever came stands behind a head that does not fit
        }
        let is_checked = std::mem::replace(&mut self.is_checked, true);
        if !is_checked && self.mode != Mode::Guests && places.has_fickle(plan.free()) {
            self.mode = Mode::Plain;
        }
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
            Mode::Guests => {
                self.mend(view, places);
                self.settle_guests(view, plan, places);
                true
            }
        };
        self.woken.clear();
        if !self.measure.is_fixed() {
            self.look_ahead(view);
        }
        // after a refusal by the placement rule the running jobs are not those that the count admitted
        self.is_stirred = !is_settled;
        self.is_front_unknown |= !is_settled;
    }

    /// Asks the memory for the jobs at the two ends of an order by time left: the first is often the next to finish,
    /// the last the next to be stopped.
    #[inline]
    fn look_ahead(&self, view: &ClusterView<'_>) {
        for job in self.running.ends().into_iter().flatten() {
            self.ledger.expect(job);
            view.prefetch(job);
        }
    }

    /// Step 1, from what was admitted before.
    fn mend(&mut self, view: &ClusterView<'_>, places: &Places) {
        self.renew_front();
        let capacity = i64::from(view.gpus_up(GpuTypeId(0)));
        let mut room = Room {
            free: capacity - self.running.sum() as i64,
            slack: u64::MAX,
            is_open: self.is_stirred,
            at: 0,
            newest: None,
            now: view.now().0,
        };
        if let Some(head) = self.front.get(0) {
            view.prefetch(JobId(head.rank.job));
        }
        loop {
            self.admit_fitting(&mut room);
            if room.free >= 0 {
                return;
            }
            let (key, gpus, slack) = self
                .running
                .first_over(room.free.unsigned_abs(), room.now)
                .expect("more GPUs are promised than there are, so some job is promised some");
            let class = self.ledger.class(key.job());
            debug_assert!(
                self.measure.is_by_size()
                    || room
                        .newest
                        .is_none_or(|newest| self.ledger.key(newest) < key),
                "only jobs behind those that were admitted make room for them"
            );
            if let Some(guests) = &mut self.guests {
                guests.wake(view, places);
            }
            self.drop_job(key, class, gpus);
            room.free += i64::from(gpus);
            // only those behind it may use the room it leaves: with what they hold it is no more than `slack`
            room.slack = slack;
            room.is_open = true;
            if slack > 0 {
                self.renew_front();
                let floor = self.measure.running(key, gpus, room.now);
                room.at = self.front.behind(&floor);
            }
        }
    }

    /// Admits, in rank order, the heads that fit. Until a job is dropped the room only shrinks, so no head is asked
    /// twice.
    fn admit_fitting(&mut self, room: &mut Room) {
        if room.slack == 0 {
            return;
        }
        let mut last = None;
        while let Some(Head { rank, class, gpus }) = self.front.get(room.at) {
            let missing = i64::from(gpus) - room.free;
            let is_asked =
                u64::from(gpus) <= room.slack && (room.is_open || self.woken.contains(&class));
            let fits = if missing <= 0 {
                is_asked
            } else {
                let last = last.get_or_insert_with(|| self.running.last_rank(room.now));
                let is_before_some = last.is_some_and(|last| rank < last);
                if room.free <= 0 && !is_before_some {
                    return; // no head behind it fits either
                }
                is_asked
                    && is_before_some
                    && self
                        .running
                        .hold_behind(&rank, missing.unsigned_abs(), room.now)
            };
            if !fits {
                room.at += 1;
                continue;
            }
            self.admit(rank.job, class, gpus, room.now);
            room.newest = Some(JobId(rank.job));
            room.free -= i64::from(gpus);
            let next = self.first_left_out(class);
            let next = next.map(|key| self.measure.waiting(key, gpus));
            self.front.set_at(room.at, next);
        }
    }

    /// Brings `front` up to date for the classes that may have another head or first guest.
    #[inline]
    fn renew_front(&mut self) {
        if std::mem::take(&mut self.is_front_unknown) {
            self.front.clear();
            (0..self.sizes.len()).for_each(|class| self.ledger.note_change(class));
        }
        if let Some(guests) = &mut self.guests {
            let changed = guests.changed.drain(..);
            changed.for_each(|class| self.ledger.note_change(class));
        }
        while let Some(class) = self.ledger.next_changed() {
            let gpus = self.sizes[class];
            let first = self.first_left_out(class);
            let rank = first.map(|key| self.measure.waiting(key, gpus));
            self.front.set(class, gpus, rank);
        }
    }

    /// The first job of a class that the count does not admit.
    #[inline]
    fn first_left_out(&mut self, class: usize) -> Option<Key> {
        let waiting = self.ledger.head(class);
        let guest = self.guests.as_ref().and_then(|guests| guests.first(class));
        match (waiting, guest) {
            (Some(waiting), Some(guest)) => Some(waiting.min(guest)),
            (waiting, guest) => waiting.or(guest),
        }
    }

    #[inline]
    fn admit(&mut self, job: u32, class: usize, gpus: u32, now: i64) {
        if let Some(guests) = &mut self.guests {
            if let Some(key) = guests.first(class).filter(|key| key.job == job) {
                guests.admit_guest(key);
                self.ledger.set(key, Stand::Running);
                self.running.insert(key, gpus);
            } else {
                let key = self.ledger.pop(class).expect("the class has a head");
                guests.promise(class, key);
                self.ledger.set(key, Stand::Promised);
                self.running.insert(key, gpus);
            }
            return;
        }
        self.admit_on(class, GpuTypeId(0), gpus, now);
    }

    /// Admits the head of a class on a type.
    #[inline]
    fn admit_on(&mut self, class: usize, gpu_type: GpuTypeId, gpus: u32, now: i64) {
        let key = self.ledger.pop(class).expect("the class has a head");
        self.count_in(key, gpus, now);
        self.admitted.push(Admission {
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
        self.ledger.set(key, Stand::Running);
        self.running.insert(key, gpus);
    }

    fn drop_job(&mut self, key: Key, class: usize, gpus: u32) {
        self.running.remove(key, gpus);
        if let Some(guests) = &mut self.guests {
            if self.ledger.stand(key.job()) == Stand::Running {
                guests.become_guest(class, key);
                self.ledger.set(key, Stand::Guest);
            } else {
                guests.withdraw(class, key);
                self.ledger.push(class, key);
            }
            return;
        }
        self.ledger.set(key, Stand::Nowhere);
        self.dropped.push(Dropped {
            key,
            is_counted: false,
        });
    }
}

mod ends;
mod front;
mod guests;
mod heads;
mod pictures;
mod plain;
mod seats;
mod settle;
