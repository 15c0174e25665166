//! The pass in incremental form, for one GPU type: the running jobs are those that the count admitted last time, so a
//! decision only changes what has to change.
//!
//! A waiting job fits if enough GPUs are free or held by admitted jobs behind it in the order. The first one that fits is
//! admitted, and so on. If more GPUs are counted then than there are, the first running job that no longer fits is
//! dropped, which may make room for waiting jobs behind it, and so on. Each step goes forward in the order, so the
//! result is that of the walk.

use super::Pass;
use super::jobs::QueueState;
use super::jobs::{Key, Measure, Rank};
use gangline_engine::{ClusterView, Plan};
use gangline_model::{GpuTypeId, JobId};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::mem::take;

pub(super) const TYPE: GpuTypeId = GpuTypeId(0);

impl Pass {
    /// All four steps for a placement rule that refuses no gang: the dropped stop, the admitted start.
    pub(super) fn incremental(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) {
        // where nothing else changed, a new job stands behind one of its class that does not fit
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

    /// Step 1, from what was admitted before.
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
                .expect("more GPUs are counted than there are, so some job holds some");
            self.running.remove(key, gpus);
            count.free += i64::from(gpus);
            self.drop_job(view, key);
            if rest > 0 {
                self.list_behind(&rank, rest, &count);
            }
        }
    }

    /// Fills `heads` again: after a job was dropped, those behind it may use what it leaves, `rest` GPUs at most.
    fn list_behind(&mut self, rank: &Rank, rest: u64, count: &Count) {
        for class in 0..self.places.classes().len() {
            if u64::from(self.gpus(class)) <= rest {
                self.push_left_out(class, count);
            }
        }
        self.heads.retain(|Reverse((head, _))| head > rank);
    }

    /// Adds the first job of a class that the count does not admit to `heads`, unless it is clear that it does not fit.
    fn push_left_out(&mut self, class: usize, count: &Count) {
        if let Some(key) = self.left_out(class) {
            let gpus = self.gpus(class);
            let rank = self.measure.waiting(key, gpus);
            // those before it in the order only leave it fewer GPUs
            if self.fits(&rank, gpus, count) {
                self.heads.push(Reverse((rank, class)));
            }
        }
    }

    /// Whether enough GPUs for a gang are free or held by admitted jobs behind its rank.
    fn fits(&self, rank: &Rank, gpus: u32, count: &Count) -> bool {
        let missing = i64::from(gpus) - count.free;
        let now = count.now;
        missing <= 0 || self.running.hold_behind(rank, missing.unsigned_abs(), now)
    }

    /// Admits, in order, the jobs of `heads` that fit, and the next ones of their classes.
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

    /// A job of the running set is not admitted any more.
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

/// A count under way.
#[derive(Debug)]
struct Count {
    /// GPUs not counted as those of any job; below 0 while too many are counted.
    free: i64,
    now: i64,
}

// The jobs that the count admits, in their order, with their gang sizes.

/// An admitted job at an instant: rank, key, gang size.
pub(super) type Admitted = (Rank, Key, u32);

/// Admitted jobs. Their keys do not change with time: a span that shrinks is kept as the instant at which it ends.
/// Where the measure is span x gang size, jobs of different sizes overtake each other as time goes, so there is one
/// set per gang size.
#[derive(Debug)]
pub(super) struct RunningSet {
    measure: Measure,
    /// Gang sizes by key.
    sets: Vec<BTreeMap<Key, u32>>,
    /// Gang size of each set where there are several.
    sizes: Vec<u32>,
    gpus: u64,
}

impl RunningSet {
    /// No job; `sizes` are the gang sizes of the trace.
    pub(super) fn new(measure: Measure, sizes: &[u32]) -> Self {
        let mut sizes = if measure.is_by_size() {
            sizes.to_vec()
        } else {
            vec![0]
        };
        sizes.sort_unstable();
        sizes.dedup();
        Self {
            measure,
            sets: vec![BTreeMap::new(); sizes.len()],
            sizes,
            gpus: 0,
        }
    }

    fn set(&mut self, gpus: u32) -> &mut BTreeMap<Key, u32> {
        let at = if self.sets.len() == 1 {
            0
        } else {
            self.sizes.partition_point(|&size| size < gpus)
        };
        &mut self.sets[at]
    }

    /// GPUs of all jobs.
    pub(super) fn gpus(&self) -> u64 {
        self.gpus
    }

    pub(super) fn insert(&mut self, key: Key, gpus: u32) {
        self.set(gpus).insert(key, gpus);
        self.gpus += u64::from(gpus);
    }

    pub(super) fn remove(&mut self, key: Key, gpus: u32) {
        let removed = self.set(gpus).remove(&key);
        debug_assert!(removed.is_some(), "the job is admitted under this key");
        self.gpus -= u64::from(gpus);
    }

    /// Whether the jobs behind a rank at `now` hold at least so many GPUs. O(gpus), as each holds one at least.
    pub(super) fn hold_behind(&self, rank: &Rank, gpus: u64, now: i64) -> bool {
        let mut sum = 0;
        for set in &self.sets {
            for (&key, &size) in set.iter().rev() {
                if self.measure.running(key, size, now) < *rank {
                    break;
                }
                sum += u64::from(size);
                if sum >= gpus {
                    return true;
                }
            }
        }
        false
    }

    /// Going back from the last job in rank order: the job with which those passed hold at least `over` GPUs, and how many
    /// they hold beyond `over`. O(over).
    pub(super) fn first_over(&self, over: u64, now: i64) -> Option<(Admitted, u64)> {
        let mut sum = 0;
        if let [set] = &self.sets[..] {
            return set.iter().rev().find_map(|(&key, &gpus)| {
                sum += u64::from(gpus);
                let job = (self.measure.running(key, gpus, now), key, gpus);
                (sum >= over).then(|| (job, sum - over))
            });
        }
        let mut tails: SmallVec<[_; 8]> = SmallVec::new();
        tails.extend(self.sets.iter().map(|set| set.iter().rev().peekable()));
        loop {
            let mut last: Option<(Admitted, usize)> = None;
            for (at, tail) in tails.iter_mut().enumerate() {
                let Some(&(&key, &gpus)) = tail.peek() else {
                    continue;
                };
                let rank = self.measure.running(key, gpus, now);
                if last.is_none_or(|(last, _)| last.0 < rank) {
                    last = Some(((rank, key, gpus), at));
                }
            }
            let (job, at) = last?;
            sum += u64::from(job.2);
            if sum >= over {
                return Some((job, sum - over));
            }
            tails[at].next();
        }
    }
}
