//! The incremental version of the pass, for clusters with one GPU type. The pass starts from the running jobs that the
//! last count admitted, and makes only the necessary changes.
//!
//! A waiting job fits if enough GPUs are free or held by admitted jobs behind it in the order. The first waiting job
//! that fits is admitted, and so on. If the counted jobs then need more GPUs than exist, the first running job that no
//! longer fits is dropped. Dropping it may make room for waiting jobs behind it, and so on. Each step moves forward in
//! the order, so the result is the same as that of the walk. If the placement rule may refuse a gang,
//! [`super::backfilling`] then supports steps 3 and 4.

use super::Pass;
use super::jobs::{Key, QueueState, Rank};
use super::profile::Hold;
use super::running::TYPE;
use gangline_engine::{ClusterView, Plan};
use gangline_model::{GpuSet, JobId};
use std::cmp::Reverse;
use std::mem::take;

impl Pass {
    /// Performs all four steps for a placement rule that never refuses a gang: stops the dropped jobs and starts the
    /// admitted jobs.
    pub(super) fn incremental(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) {
        // If there is no room and no class was woken, every new job is behind a job of its class that does not fit.
        if self.queues.is_empty() || !self.has_room && self.woken.is_empty() {
            return;
        }
        let now = view.now().0;
        self.count(view);
        let (mut dropped, mut admitted) = (take(&mut self.dropped), take(&mut self.admitted));
        for key in dropped.drain(..) {
            plan.release(key.job());
            self.stop_job(plan, key.job());
        }
        for (key, class) in admitted.drain(..) {
            let found = self.places.place_on(plan, class, key.job(), TYPE);
            let gpus = found.expect("enough GPUs are free, and the rule asks for no more");
            self.start_job(plan, self.running_key(key, now), gpus, QueueState::Running);
        }
        (self.dropped, self.admitted) = (dropped, admitted);
    }

    /// Performs step 1, starting from the jobs that have been admitted so far.
    pub(super) fn count(&mut self, view: &ClusterView<'_>) {
        let now = view.now().0;
        let mut count = Count {
            free: i64::from(view.gpus_up(TYPE)) - self.running.gpus() as i64,
            now,
        };
        self.heads.clear();
        let woken = take(&mut self.woken);
        for class in 0..self.places.classes().len() {
            if self.has_room || woken.contains(&class) {
                self.push_left_out(class, &count);
            }
        }
        self.woken = woken;
        loop {
            self.admit_fitting(&mut count);
            if count.free >= 0 {
                return;
            }
            let over = count.free.unsigned_abs();
            let ((rank, key, gpus), rest) = self
                .running
                .first_over(over, now)
                .expect("more GPUs are counted than exist, so some job holds GPUs");
            self.running.remove(key, gpus);
            count.free += i64::from(gpus);
            self.drop_job(view, key);
            if rest > 0 {
                self.list_behind(&rank, rest, &count);
            }
        }
    }

    /// Refills `heads` after a job was dropped, because waiting jobs behind it may now fit. `rest` is the number of
    /// GPUs that are left for them.
    fn list_behind(&mut self, rank: &Rank, rest: u64, count: &Count) {
        for class in 0..self.places.classes().len() {
            if u64::from(self.gpus(class)) <= rest {
                self.push_left_out(class, count);
            }
        }
        self.heads.retain(|Reverse((head, _))| head > rank);
    }

    /// Adds to `heads` the first job of a class that is not yet admitted, unless this job certainly does not fit.
    fn push_left_out(&mut self, class: usize, count: &Count) {
        if let Some(key) = self.left_out(class) {
            let gpus = self.gpus(class);
            let rank = self.measure.waiting(key, gpus);
            // Jobs that come before this job in the order can only leave it fewer GPUs.
            if self.fits(&rank, gpus, count) {
                self.heads.push(Reverse((rank, class)));
            }
        }
    }

    /// Returns whether enough GPUs for a gang are either free or held by admitted jobs behind its rank.
    fn fits(&self, rank: &Rank, gpus: u32, count: &Count) -> bool {
        let missing = i64::from(gpus) - count.free;
        let now = count.now;
        missing <= 0 || self.running.hold_behind(rank, missing.unsigned_abs(), now)
    }

    /// Admits, in order, the jobs in `heads` that fit; after each of them, the next job of its class is tried.
    fn admit_fitting(&mut self, count: &mut Count) {
        while let Some(Reverse((rank, class))) = self.heads.pop() {
            let gpus = self.gpus(class);
            if !self.fits(&rank, gpus, count) {
                continue;
            }
            self.admit(self.queues.key(JobId(rank.job)), class, count.now);
            count.free -= i64::from(gpus);
            self.push_left_out(class, count);
        }
    }

    fn admit(&mut self, key: Key, class: usize, now: i64) {
        let gpus = self.gpus(class);
        if self.queues.state(key.job()) == QueueState::Backfilled {
            self.backfilling.admit_backfilled(class, key);
            self.queues.set(key, QueueState::Running);
            self.running.insert(key, gpus);
            return;
        }
        self.queues.pop(class);
        if self.backfilling.is_used() {
            self.backfilling.add_unplaced(class, key);
            self.queues.set(key, QueueState::Unplaced);
            self.running.insert(key, gpus);
        } else {
            self.admitted.push((key, class));
            self.running.insert(self.running_key(key, now), gpus);
        }
    }

    /// Handles a job that is no longer admitted. With backfilling, a running job becomes backfilled, and an unplaced
    /// job goes back to its queue; otherwise, the job is stopped.
    fn drop_job(&mut self, view: &ClusterView<'_>, key: Key) {
        if !self.backfilling.is_used() {
            self.dropped.push(key);
            return;
        }
        let class = self.places.class_of(key.job());
        if self.queues.state(key.job()) == QueueState::Running {
            self.backfilling.backfill(view, class, key);
            self.queues.set(key, QueueState::Backfilled);
        } else {
            self.backfilling.remove_unplaced(class, key);
            self.queues.push(class, key);
        }
    }
}

impl Pass {
    /// Performs steps 3 and 4 after the count.
    pub(super) fn place_and_backfill(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) {
        let mut stopped = Vec::new();
        self.place_unplaced(view, plan, &mut stopped);
        let has_waiting = !self.queues.is_empty();
        if has_waiting {
            self.backfilling.make_profile(view, Some(plan));
            self.place_waiting(plan, &mut stopped);
        }
        if stopped.len() > 1 {
            stopped.sort_unstable();
            plan.sort_preemptions(|job| self.queues.key(job));
        }
        let mut classes = self.backfilling.classes.iter();
        let is_idle = classes.all(|class| class.unplaced.is_empty() && class.backfilled.is_empty());
        self.backfilling.drop_idle_profile(has_waiting || !is_idle);
    }

    /// Performs step 3.
    fn place_unplaced(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        stopped: &mut Vec<Key>,
    ) {
        while let Some((key, class)) = self.backfilling.next_unplaced() {
            let profile = self.backfilling.profile.as_mut();
            let free = profile.map_or(plan.free(), |profile| &mut profile.start);
            let Some(gpus) = self.places.place_in(free, class, (key.job(), 0), TYPE) else {
                self.backfilling.classes[class].is_unplaced_refused = true;
                self.backfilling.make_profile(view, Some(plan));
                continue;
            };
            self.backfilling.remove_unplaced(class, key);
            self.stop_holders(plan, &gpus, stopped);
            if let Some(profile) = &mut self.backfilling.profile {
                profile.take(key.job(), gpus.clone(), Hold::Admitted);
            }
            self.start_job(plan, key, gpus, QueueState::Running);
        }
    }

    /// Performs step 4: repeatedly tries to place the first waiting job that might have a place.
    fn place_waiting(&mut self, plan: &mut Plan<'_>, stopped: &mut Vec<Key>) {
        while let Some((key, class)) = self.next_waiting() {
            let Some(gpus) = self.backfilling.place(&mut self.places, class, key) else {
                continue;
            };
            self.queues.pop(class);
            self.stop_holders(plan, &gpus, stopped);
            self.backfilling.classes[class].backfilled.insert(key);
            let profile = self.backfilling.profile.as_mut().expect("jobs wait");
            profile.take(key.job(), gpus.clone(), Hold::Backfilled(key));
            self.start_job(plan, key, gpus, QueueState::Backfilled);
        }
    }

    /// Returns the first waiting job that might have a place, and its class. No job of a class has a place behind an
    /// unplaced job of the same class.
    fn next_waiting(&mut self) -> Option<(Key, usize)> {
        let profile = self.backfilling.profile.as_ref().expect("jobs wait");
        let mut first = None;
        let mut from = 0;
        while let Some(class) = self.queues.next_class(from) {
            from = class + 1;
            let Some(key) = self.queues.head(class) else {
                continue;
            };
            let is_first = first.is_none_or(|first| (key, class) < first);
            let is_open = self.backfilling.classes[class].unplaced.is_empty();
            if is_first && is_open && self.backfilling.may_fit(profile, class, key) {
                first = Some((key, class));
            }
        }
        first
    }

    /// Stops the backfilled jobs that hold some of these GPUs.
    fn stop_holders(&mut self, plan: &mut Plan<'_>, gpus: &GpuSet, stopped: &mut Vec<Key>) {
        while let Some(key) = self
            .backfilling
            .profile
            .as_ref()
            .and_then(|p| p.holder(gpus))
        {
            let class = self.places.class_of(key.job());
            self.backfilling.leave_backfilled(class, key);
            self.queues.forget(key.job());
            plan.release(key.job());
            plan.preempt(key.job());
            stopped.push(key);
        }
    }
}

/// The state of a count in progress.
#[derive(Debug)]
struct Count {
    /// Number of GPUs that are not counted for any job; it is negative while too many are counted.
    free: i64,
    now: i64,
}
