//! `easy`: FIFO that reserves GPUs for the blocked head of the queue and backfills other jobs.
//!
//! To find the reservation, the policy goes through the running jobs in order of estimated finish. It adds up the GPUs
//! that they will release, until there are enough for the head. The search for jobs to backfill goes class by class.
//! The candidate of a class is its first waiting job that would end before the reserved GPUs are needed. If a gang of
//! the class needs none of the reserved GPUs, the candidate is simply the first waiting job of the class. A decision
//! costs O((starts + classes) log n).

use crate::kit::why::NO_PLACE;
use crate::kit::{Classes, Places, Seen};
use crate::place::PlacementParams;
use gangline_engine::{
    Cause, Changes, ClusterView, Knowledge, Next, Plan, Policy, PolicyError, PolicyTraits, Reason,
};
use gangline_model::{GpuSet, GpuTypeId, JobId, SimSpan, SimTime};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// The job is at the head of the queue but does not fit yet, so GPUs are reserved for it from a later instant on.
pub(crate) static PROMISED: Reason = Reason::new(
    "promised",
    "it comes first but does not fit, so GPUs are reserved for it from a later time on",
    "it was at the head of the queue and did not fit; GPUs were reserved for it from {until} on{meanwhile}",
)
.otherwise("it was at the head of the queue and did not fit; there would never be enough GPUs for it{meanwhile}");

/// If the job started now, it would not finish before its GPUs are reserved for another job.
pub(crate) static RESERVED: Reason = Reason::new(
    "reserved",
    "if it started now, it would not finish before its GPUs are reserved for another job",
    "it would have held GPUs that are reserved for {others} from {until} on{meanwhile}",
);

/// The reservation for the blocked head of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shadow {
    head: JobId,
    /// The reserved GPU type, and the instant at which enough GPUs of this type will be free for the head, on any
    /// servers. The value is `None` if no type will ever have enough.
    reserved: Option<(GpuTypeId, SimTime)>,
    /// The number of GPUs of the reserved type that will be free at that instant and that the head does not need.
    extra: u32,
}

/// EASY backfilling.
#[derive(Debug)]
pub(crate) struct Easy {
    seen: Seen,
    /// Whether estimated finish times are exact, because durations are known exactly and no job is elastic.
    is_exact: bool,
    extend: f64,
    places: Places,
    backlog: Backlog,
    /// For each type, the number of GPUs that each running job holds, sorted by estimated finish.
    ends: Vec<BTreeMap<(SimTime, JobId), u32>>,
    end_of: Vec<SimTime>,
    blocked: Option<Shadow>,
    heads: BinaryHeap<Reverse<(JobId, usize)>>,
    /// For each class, a bit mask of the GPU types on which the placement rule has already found no place in this pass.
    dead: Vec<u64>,
}

impl Easy {
    /// Creates an EASY backfilling policy with a placement rule. When the estimate of a running job expires, it is
    /// replaced by `extend` times the time since the job started.
    pub(crate) fn new(placement: PlacementParams, seen: Seen, extend: f64) -> Self {
        Self {
            seen,
            is_exact: false,
            extend,
            places: Places::new(placement),
            backlog: Backlog::default(),
            ends: Vec::new(),
            end_of: Vec::new(),
            blocked: None,
            heads: BinaryHeap::new(),
            dead: Vec::new(),
        }
    }

    /// Returns the estimated time for which a job would hold its GPUs if it started now on this type, ignoring its
    /// exact place.
    fn estimate(
        &self,
        view: &ClusterView<'_>,
        job: JobId,
        gpu_type: GpuTypeId,
    ) -> Result<SimSpan, PolicyError> {
        let run = view.span_at(job, view.base_rate(job, gpu_type))?;
        let run = self.seen.span(view, job, run)?;
        let span = view.overhead_on(job, gpu_type) + SimSpan(run.0.max(1));
        Ok(span.min(SimSpan(MAX_ESTIMATE)))
    }

    /// Starts a job and records when it is estimated to finish.
    fn start_job(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        job: JobId,
        gpu_type: GpuTypeId,
        gpus: GpuSet,
    ) -> Result<(), PolicyError> {
        let span = if self.is_exact {
            let rate = view.rate_if(job, &gpus);
            view.overhead_at(job, &gpus) + view.span_at(job, rate)?
        } else {
            self.estimate(view, job, gpu_type)?
        };
        let end = (view.now() + span).min(LATEST);
        self.end_of[job.index()] = end;
        self.ends[gpu_type.index()].insert((end, job), gpus.gpus());
        self.backlog.remove(job, &self.places);
        plan.start(job, gpus);
        Ok(())
    }

    /// Starts a job on the first of its types that has room for it. Returns whether the job has started.
    fn start_anywhere(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        job: JobId,
    ) -> Result<bool, PolicyError> {
        let class = self.places.class_of(job);
        for at in 0..self.places.classes().get(class).types.len() {
            let gpu_type = self.places.classes().get(class).types[at];
            if let Some(gpus) = self.places.place_on(plan, class, job, gpu_type) {
                self.start_job(view, plan, job, gpu_type, gpus)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Extends the expired estimates of running jobs.
    fn extend_estimates(&mut self, view: &ClusterView<'_>) {
        if self.is_exact {
            return;
        }
        let now = view.now();
        for tree in &mut self.ends {
            while let Some(entry) = tree.first_entry().filter(|entry| entry.key().0 <= now) {
                let ((_, job), gpus) = entry.remove_entry();
                let started = view.run(job).expect("a running job").started;
                let longer = (self.extend * (now - started).0 as f64).round() as i64;
                let end = (started + SimSpan(longer))
                    .max(now + SimSpan(1))
                    .min(LATEST);
                self.end_of[job.index()] = end;
                tree.insert((end, job), gpus);
            }
        }
    }

    /// Returns the reservation for a head that does not fit now.
    fn reserve(&self, view: &ClusterView<'_>, plan: &Plan<'_>, head: JobId) -> Shadow {
        let class = self.places.class(head);
        let mut best = Shadow {
            head,
            reserved: None,
            extra: 0,
        };
        for &gpu_type in &class.types {
            let (mut free, mut time) = (plan.gpus_free(gpu_type), view.now());
            for (&(end, _), &gpus) in &self.ends[gpu_type.index()] {
                if free >= class.gpus && end > time {
                    break;
                }
                free += gpus;
                time = time.max(end);
            }
            let is_later = |(_, earliest)| earliest <= time;
            if free < class.gpus || best.reserved.is_some_and(is_later) {
                continue;
            }
            best.reserved = Some((gpu_type, time));
            best.extra = free - class.gpus;
        }
        best
    }

    /// Returns whether a job may start on a type while the head waits. If the job needs some of the `extra` GPUs, they
    /// are deducted.
    fn passes(
        &self,
        view: &ClusterView<'_>,
        job: JobId,
        gpu_type: GpuTypeId,
        shadow: &mut Shadow,
    ) -> Result<bool, PolicyError> {
        let Some((_, time)) = shadow
            .reserved
            .filter(|&(reserved, _)| reserved == gpu_type)
        else {
            return Ok(true);
        };
        if view.now() + self.estimate(view, job, gpu_type)? <= time {
            return Ok(true);
        }
        let gpus = view.jobs().gpus(job);
        if gpus <= shadow.extra {
            shadow.extra -= gpus;
            return Ok(true);
        }
        Ok(false)
    }

    /// Starts a job behind the head on the first of its types on which it fits and is allowed to pass the head. Returns
    /// whether the job has started.
    fn backfill(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        job: JobId,
        shadow: &mut Shadow,
    ) -> Result<bool, PolicyError> {
        let class = self.places.class_of(job);
        for at in 0..self.places.classes().get(class).types.len() {
            let gpu_type = self.places.classes().get(class).types[at];
            if self.dead[class] >> gpu_type.index() & 1 == 1 {
                continue;
            }
            let Some(gpus) = self.places.place_on(plan, class, job, gpu_type) else {
                self.dead[class] |= 1 << gpu_type.index();
                continue;
            };
            if self.passes(view, job, gpu_type, shadow)? {
                self.start_job(view, plan, job, gpu_type, gpus)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the first job of a class, at or after the given position, that may pass the head on some type with
    /// enough free GPUs.
    fn candidate(
        &self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        class: usize,
        from: usize,
        shadow: &Shadow,
    ) -> Option<JobId> {
        let of = self.places.classes().get(class);
        let mut best: Option<usize> = None;
        for (at, &gpu_type) in of.types.iter().enumerate() {
            if self.dead[class] >> gpu_type.index() & 1 == 1
                || !self.places.can_on(plan.free(), class, gpu_type)
            {
                continue;
            }
            let bound = match shadow.reserved {
                Some((reserved, time)) if reserved == gpu_type && of.gpus > shadow.extra => {
                    (time - view.now()).0
                }
                _ => MAX_ESTIMATE,
            };
            let found = self.backlog.first_at_most(class, at, from, bound);
            best = match (best, found) {
                (Some(best), Some(found)) => Some(best.min(found)),
                (best, found) => best.or(found),
            };
        }
        best.map(|position| self.backlog.job(class, position))
    }

    /// Backfills jobs of all classes, in order of arrival.
    fn backfill_all(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        shadow: &mut Shadow,
    ) -> Result<(), PolicyError> {
        let head_position = self.backlog.position(shadow.head);
        let head_class = self.places.class_of(shadow.head);
        self.heads.clear();
        for class in 0..self.places.classes().len() {
            let from = if class == head_class {
                head_position + 1
            } else {
                0
            };
            if !self.backlog.is_empty(class)
                && let Some(job) = self.candidate(view, plan, class, from, shadow)
            {
                self.heads.push(Reverse((job, class)));
            }
        }
        while let Some(Reverse((job, class))) = self.heads.pop() {
            // `extra` may have shrunk since the job was found.
            let here = self.backlog.position(job);
            let found = self.candidate(view, plan, class, here, shadow);
            let from = match found {
                Some(found) if found == job => {
                    self.backfill(view, plan, job, shadow)?;
                    here + 1
                }
                Some(found) => self.backlog.position(found),
                None => continue,
            };
            if let Some(next) = self.candidate(view, plan, class, from, shadow) {
                self.heads.push(Reverse((next, class)));
            }
        }
        Ok(())
    }

    /// Removes the jobs that have left, and updates the estimated finish times that have changed.
    fn update(&mut self, view: &ClusterView<'_>, changes: &Changes) -> Result<(), PolicyError> {
        for &job in &changes.finished {
            let end = self.end_of[job.index()];
            debug_assert!(
                !self.is_exact || end == view.now() || Self::is_moved(view, changes, job),
                "exact estimate of {job}"
            );
            self.remove_end(job);
        }
        for &job in &changes.requeued {
            self.remove_end(job);
        }
        if self.is_exact {
            self.move_ends(view, changes)?;
        }
        self.extend_estimates(view);
        Ok(())
    }

    /// Returns whether the current rate of a job might differ from its rate at the start. The rate of a job that has
    /// just started may also differ from the expected rate if the run hides some speeds from policies.
    fn is_moved(view: &ClusterView<'_>, changes: &Changes, job: JobId) -> bool {
        let is_started = view.has_run_time() && changes.started.contains(&job);
        changes.retimed.contains(&job) || is_started
    }

    /// Updates exact estimates in two cases: rates change on shared uplinks, or rates become known only while a job
    /// runs.
    #[inline]
    fn move_ends(&mut self, view: &ClusterView<'_>, changes: &Changes) -> Result<(), PolicyError> {
        for &job in &changes.retimed {
            self.move_end(view, job)?;
        }
        if view.has_run_time() {
            for &job in &changes.started {
                self.move_end(view, job)?;
            }
        }
        Ok(())
    }

    #[cold]
    fn move_end(&mut self, view: &ClusterView<'_>, job: JobId) -> Result<(), PolicyError> {
        if let (Some(run), Some(end)) = (view.run(job), view.finish(job)?) {
            self.remove_end(job);
            self.end_of[job.index()] = end;
            self.ends[run.gpu_type().index()].insert((end, job), view.jobs().gpus(job));
        }
        Ok(())
    }

    /// Adds a new or requeued job to the backlog, unless it has already started.
    fn enqueue(&mut self, view: &ClusterView<'_>, job: JobId) -> Result<(), PolicyError> {
        if self.end_of[job.index()] != SimTime::NEVER {
            return Ok(());
        }
        let class = self.places.class_of(job);
        for at in 0..self.places.classes().get(class).types.len() {
            let gpu_type = self.places.classes().get(class).types[at];
            let estimate = self.estimate(view, job, gpu_type)?;
            self.backlog.insert(job, class, at, estimate.0);
        }
        Ok(())
    }

    fn remove_end(&mut self, job: JobId) {
        let end = std::mem::replace(&mut self.end_of[job.index()], SimTime::NEVER);
        let classes = self.places.classes();
        let mut types = classes.get(classes.of(job)).types.iter();
        let was_there = types.any(|t| self.ends[t.index()].remove(&(end, job)).is_some());
        debug_assert!(was_there, "{job} ran on one of its types");
    }
}

/// The largest possible estimate, in ns. The next larger value is [`MinTree::NONE`].
const MAX_ESTIMATE: i64 = MinTree::NONE - 1;
/// Estimated finish times are capped at this instant, because the next one, [`SimTime::NEVER`], marks jobs that are not
/// running.
const LATEST: SimTime = SimTime(SimTime::NEVER.0 - 1);

impl Policy for Easy {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            knowledge: Knowledge::Remaining,
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        let unplaceable = self.places.start(view, plan)?;
        let mut jobs = (0..view.jobs().len() as u32).map(JobId);
        self.is_exact = self.seen.is_exact(view) && jobs.all(|job| view.elastic(job).is_none());
        self.backlog = Backlog::new(view.jobs().len(), self.places.classes());
        self.ends
            .resize_with(view.cluster().gpu_types().len(), BTreeMap::new);
        self.end_of = vec![SimTime::NEVER; view.jobs().len()];
        self.dead = vec![0; self.places.classes().len()];
        Ok(unplaceable)
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        self.update(view, changes)?;
        let only_arrivals = !changes.has_room();
        let before = self.blocked.filter(|_| only_arrivals);
        let mut next = before.map_or_else(|| view.first_waiting(), |shadow| Some(shadow.head));
        self.blocked = None;
        while let Some(job) = next {
            if before.is_some() || !self.start_anywhere(view, plan, job)? {
                break;
            }
            next = view.next_waiting(JobId(job.0 + 1));
        }
        let Some(head) = next else {
            return Ok(Next::Ask);
        };
        // Jobs that start at once never enter the backlog.
        for &job in changes.requeued.iter().chain(&changes.arrived) {
            self.enqueue(view, job)?;
        }
        let mut shadow = self.reserve(view, plan, head);
        self.dead.fill(0);
        if before == Some(shadow) {
            // The reservation is unchanged and no GPUs have become free, so only jobs that have just arrived might
            // start.
            for &job in &changes.arrived {
                self.backfill(view, plan, job, &mut shadow)?;
            }
        } else {
            self.backfill_all(view, plan, &mut shadow)?;
        }
        self.blocked = Some(shadow);
        Ok(Next::Ask)
    }

    fn reasons(&self) -> Vec<&'static Reason> {
        vec![&NO_PLACE, &PROMISED, &RESERVED]
    }

    fn why(&self, view: &ClusterView<'_>, job: JobId) -> Option<Cause> {
        let shadow = self.blocked?;
        let until = shadow.reserved.map_or(SimTime::NEVER, |(_, time)| time);
        if shadow.head == job {
            return Some(Cause::new(&PROMISED).until(until));
        }
        let class = self.places.class(job);
        let is_held_back = |gpu_type: &GpuTypeId| {
            let passes = self.passes(view, job, *gpu_type, &mut shadow.clone());
            view.gpus_free(*gpu_type) >= class.gpus && !passes.unwrap_or(true)
        };
        let job = shadow.head;
        let reserved = Cause::of(&RESERVED, job).until(until);
        let is_any = class.types.iter().any(is_held_back);
        Some(if is_any {
            reserved
        } else {
            Cause::new(&NO_PLACE)
        })
    }
}

/// The waiting jobs of each class, with their estimated run times in ns on each type of the class.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// All jobs of each class, waiting or not, in order of arrival.
    members: Vec<Vec<JobId>>,
    /// For each class and each of its types, the estimates of the waiting jobs, by position in `members`.
    trees: Vec<Vec<MinTree>>,
    position: Vec<u32>,
    waiting: Vec<u32>,
    is_waiting: Vec<bool>,
}

impl Backlog {
    pub(super) fn new(jobs: usize, classes: &Classes) -> Self {
        let mut members: Vec<Vec<JobId>> = vec![Vec::new(); classes.len()];
        let mut position = Vec::with_capacity(jobs);
        for job in (0..jobs).map(JobId::new) {
            let class = &mut members[classes.of(job)];
            position.push(class.len() as u32);
            class.push(job);
        }
        let trees = classes
            .iter()
            .zip(&members)
            .map(|(class, members)| vec![MinTree::new(members.len()); class.types.len()])
            .collect();
        let waiting = vec![0; classes.len()];
        Self {
            members,
            trees,
            position,
            waiting,
            is_waiting: vec![false; jobs],
        }
    }

    #[inline]
    pub(super) fn position(&self, job: JobId) -> usize {
        self.position[job.index()] as usize
    }

    #[inline]
    pub(super) fn job(&self, class: usize, position: usize) -> JobId {
        self.members[class][position]
    }

    #[inline]
    pub(super) fn is_empty(&self, class: usize) -> bool {
        self.waiting[class] == 0
    }

    /// Records the estimate of a waiting job for the type at position `at` in the type list of its class.
    pub(super) fn insert(&mut self, job: JobId, class: usize, at: usize, estimate: i64) {
        let position = self.position(job);
        self.trees[class][at].set(position, estimate);
        if !self.is_waiting[job.index()] {
            self.is_waiting[job.index()] = true;
            self.waiting[class] += 1;
        }
    }

    pub(super) fn remove(&mut self, job: JobId, places: &Places) {
        let class = places.class_of(job);
        if std::mem::take(&mut self.is_waiting[job.index()]) {
            self.waiting[class] -= 1;
            let position = self.position(job);
            for tree in &mut self.trees[class] {
                tree.set(position, MinTree::NONE);
            }
        }
    }

    /// Returns the first waiting job of a class, at or after the given position, whose estimate for a type is at most
    /// `bound`.
    pub(super) fn first_at_most(
        &self,
        class: usize,
        at: usize,
        from: usize,
        bound: i64,
    ) -> Option<usize> {
        self.trees[class][at].first_at_most(from, bound)
    }
}

const WIDTH: usize = 16;

/// An array of values, all of which are initially [`MinTree::NONE`], with a tree of minima above it. The tree finds the
/// leftmost value that is at most a given bound in O(log n); each node covers sixteen entries of the level below.
#[derive(Clone, Debug)]
pub(super) struct MinTree {
    /// Level 0 contains the values; each higher level contains the minima of groups of sixteen entries of the level
    /// below.
    levels: Vec<Vec<i64>>,
}

impl MinTree {
    /// Marks a position that has no value.
    pub(super) const NONE: i64 = i64::MAX;

    /// Creates a tree of `len` positions without values.
    pub(super) fn new(len: usize) -> Self {
        let mut levels = Vec::new();
        let mut len = len.max(1);
        loop {
            len = len.next_multiple_of(WIDTH);
            levels.push(vec![Self::NONE; len]);
            if len == WIDTH {
                return Self { levels };
            }
            len /= WIDTH;
        }
    }

    pub(super) fn set(&mut self, at: usize, value: i64) {
        self.levels[0][at] = value;
        let mut at = at;
        for level in 1..self.levels.len() {
            let group = at / WIDTH;
            let below = &self.levels[level - 1][group * WIDTH..(group + 1) * WIDTH];
            let least = *below.iter().min().expect("sixteen values");
            if self.levels[level][group] == least {
                return;
            }
            self.levels[level][group] = least;
            at = group;
        }
    }

    /// Returns the leftmost position at or after `from` whose value is at most `bound`.
    pub(super) fn first_at_most(&self, from: usize, bound: i64) -> Option<usize> {
        let mut at = from;
        let mut level = 0;
        loop {
            let values = &self.levels[level];
            let end = (at / WIDTH + 1) * WIDTH;
            if at >= values.len() {
                return None;
            }
            if let Some(found) = values[at..end].iter().position(|&value| value <= bound) {
                at += found;
                break;
            }
            level += 1;
            if level == self.levels.len() {
                return None;
            }
            at = end / WIDTH;
        }
        while level > 0 {
            level -= 1;
            let values = &self.levels[level][at * WIDTH..(at + 1) * WIDTH];
            let found = values.iter().position(|&value| value <= bound);
            at = at * WIDTH + found.expect("the node's minimum is one of its values");
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_a_scan(
            len in 1_usize..600,
            steps in prop::collection::vec((any::<u16>(), 0_i64..50), 0..300),
            asks in prop::collection::vec((0_usize..700, 0_i64..50), 1..40),
        ) {
            let mut tree = MinTree::new(len);
            let mut oracle = vec![MinTree::NONE; len];
            for (at, value) in steps {
                let value = if value == 0 { MinTree::NONE } else { value };
                tree.set(at as usize % len, value);
                oracle[at as usize % len] = value;
            }
            for (from, bound) in asks {
                let scan = (from..len).find(|&at| oracle[at] <= bound);
                prop_assert_eq!(tree.first_at_most(from, bound), scan);
            }
        }
    }
}
