//! Orders of jobs for policies in Python. An order keeps its waiting jobs from decision to decision. The cost of an
//! update is therefore proportional to the number of changes, and the cost of a walk to the number of jobs visited.
//! Running jobs are few, so they are sorted on request. The price markets are stored here, too.

use gangline_engine::{Changes, ClusterView, PolicyError};
use gangline_model::{GpuTypeId, JobId, SimSpan, SimTime};
use gangline_policies::kit::Seen;
use gangline_policies::{HadarParams, Market, Rank};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Bound::{Excluded, Unbounded};

/// Stands for the first start of a job that has not started; it sorts after all real first starts.
const NEVER_STARTED: i64 = i64::MAX;

/// The key of an order; ties are broken by arrival, then by job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    Arrival,
    /// Isolated duration, multiplied by the gang size if `by_gpus` is set.
    Duration,
    /// Remaining isolated time. If `by_gpus` is set, the time is multiplied by the gang size, and ties are broken by
    /// gang size.
    Remaining,
    /// Attained service. With limits, jobs are sorted by queue, and within a queue by first start. Without limits, jobs
    /// are sorted by the attained service itself.
    Attained,
    Deadline,
}

/// An order with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Spec {
    pub(crate) measure: Measure,
    pub(crate) by_gpus: bool,
    /// Attained service, in GPU-ns, at which a job moves to the next queue.
    pub(crate) limits: Vec<i128>,
    /// Head start of running jobs, in GPU-ns per GPU, if there are no limits.
    pub(crate) lead: i128,
    pub(crate) estimate_error: f64,
}

impl Spec {
    fn rank(&self, view: &ClusterView<'_>, job: JobId) -> Result<Rank, PolicyError> {
        let gpus = view.jobs().gpus(job);
        let scale = if self.by_gpus { i128::from(gpus) } else { 1 };
        let seen = Seen::new(self.estimate_error);
        let (lead, value, tie) = match self.measure {
            Measure::Arrival => (0, 0, 0),
            Measure::Duration => (0, i128::from(seen.duration(view, job)?.0) * scale, 0),
            Measure::Remaining => {
                let tie = if self.by_gpus { gpus } else { 0 };
                (0, i128::from(seen.remaining(view, job)?.0) * scale, tie)
            }
            Measure::Attained if self.limits.is_empty() => {
                let head_start = if view.run(job).is_some() {
                    self.lead * scale
                } else {
                    0
                };
                (0, self.attained(view, job) - head_start, 0)
            }
            Measure::Attained => {
                let first = view.first_start(job).map_or(NEVER_STARTED, |time| time.0);
                (self.queue(view, job) as u64, i128::from(first), 0)
            }
            Measure::Deadline => {
                let deadline = view.jobs().columns().deadline.as_ref();
                let deadline = deadline.map_or(SimTime::NEVER, |all| all[job.index()]);
                (0, i128::from(deadline.0), 0)
            }
        };
        Ok(Rank {
            lead,
            value,
            gpus: tie,
            job: job.0,
        })
    }

    fn attained(&self, view: &ClusterView<'_>, job: JobId) -> i128 {
        i128::from(view.executed(job).0) * self.scale(view, job)
    }

    fn scale(&self, view: &ClusterView<'_>, job: JobId) -> i128 {
        if self.by_gpus {
            i128::from(view.jobs().gpus(job))
        } else {
            1
        }
    }

    /// Returns the queue of a job: the number of limits that it has reached.
    fn queue(&self, view: &ClusterView<'_>, job: JobId) -> usize {
        let attained = self.attained(view, job);
        self.limits.partition_point(|&limit| limit <= attained)
    }

    /// Returns the instant at which a job that has made progress since `since` reaches its next limit.
    pub(crate) fn next_limit(
        &self,
        view: &ClusterView<'_>,
        job: JobId,
        since: SimTime,
    ) -> Option<SimTime> {
        if self.measure != Measure::Attained {
            return None;
        }
        let limit = self.limits.get(self.queue(view, job))?;
        let missing = limit - self.attained(view, job);
        let span = (missing - 1).div_euclid(self.scale(view, job)) + 1;
        i64::try_from(span).ok().map(|span| since + SimSpan(span))
    }
}

/// All properties of a job that might affect its placement, as numbers.
type Likeness = SmallVec<[u64; 10]>;

/// Classes of jobs that are equivalent for placement.
#[derive(Debug, Default)]
pub(crate) struct Alike {
    numbers: FxHashMap<Likeness, u32>,
    of: FxHashMap<JobId, u32>,
}

impl Alike {
    pub(crate) fn class(&mut self, view: &ClusterView<'_>, job: JobId) -> u32 {
        if let Some(&class) = self.of.get(&job) {
            return class;
        }
        let jobs = view.jobs();
        let model = jobs.model(job).map_or(u64::MAX, u64::from);
        let mut key = Likeness::from_slice(&[
            u64::from(jobs.gpus(job)),
            u64::from(jobs.batch_size(job)),
            jobs.memory_bytes(job),
            model,
            u64::from(view.pair_class(job)),
            u64::from(view.elastic(job).is_some()),
        ]);
        for gpu_type in view.types_of(job) {
            key.push(gpu_type.index() as u64);
        }
        let next = self.numbers.len() as u32;
        let class = *self.numbers.entry(key).or_insert(next);
        self.of.insert(job, class);
        class
    }
}

/// The waiting jobs of one order.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) spec: Spec,
    /// Ranks of the waiting jobs, by class.
    sets: Vec<BTreeSet<Rank>>,
    known: FxHashMap<JobId, (u32, Rank)>,
}

impl Queue {
    fn add(
        &mut self,
        alike: &mut Alike,
        view: &ClusterView<'_>,
        job: JobId,
    ) -> Result<(), PolicyError> {
        self.remove(job);
        let class = alike.class(view, job);
        let rank = self.spec.rank(view, job)?;
        if self.sets.len() <= class as usize {
            self.sets.resize_with(class as usize + 1, BTreeSet::new);
        }
        self.sets[class as usize].insert(rank);
        self.known.insert(job, (class, rank));
        Ok(())
    }

    fn remove(&mut self, job: JobId) {
        if let Some((class, rank)) = self.known.remove(&job) {
            self.sets[class as usize].remove(&rank);
        }
    }

    pub(crate) fn first(&self) -> Option<JobId> {
        let heads = self.sets.iter().filter_map(BTreeSet::first);
        heads.min().map(|rank| JobId(rank.job))
    }

    /// Returns the rank of a waiting or running job.
    pub(crate) fn rank(&self, view: &ClusterView<'_>, job: JobId) -> Result<Rank, PolicyError> {
        match self.known.get(&job) {
            Some(&(_, rank)) => Ok(rank),
            None => self.spec.rank(view, job),
        }
    }

    /// Returns the running jobs with their ranks, in order.
    pub(crate) fn running(&self, view: &ClusterView<'_>) -> Result<Vec<Rank>, PolicyError> {
        let ranks = view.running().map(|job| self.spec.rank(view, job));
        let mut ranks = ranks.collect::<Result<Vec<_>, _>>()?;
        ranks.sort_unstable();
        Ok(ranks)
    }

    pub(crate) fn walk(&self) -> Walk {
        let heads = self.sets.iter().enumerate();
        let heads = heads.filter_map(|(class, set)| Some(Reverse((*set.first()?, class as u32))));
        Walk {
            heads: heads.collect(),
            last: None,
        }
    }

    /// Admits jobs by number of GPUs. In rank order, a job is admitted if enough GPUs of one of its types are left; the
    /// type on which it runs is tried first. Returns, in order, the running jobs that are not admitted on their type
    /// and the waiting jobs that are admitted. Each comes with the type on which it is admitted, if any. The cost is
    /// O(running log running + classes log classes).
    pub(crate) fn admit(
        &self,
        view: &ClusterView<'_>,
    ) -> Result<Vec<(JobId, Option<GpuTypeId>)>, PolicyError> {
        let types = (0..view.cluster().gpu_types().len()).map(GpuTypeId::new);
        let mut left: Vec<u32> = types.map(|gpu_type| view.gpus_up(gpu_type)).collect();
        let mut admit = |job: JobId, own: Option<GpuTypeId>| {
            let gpus = view.jobs().gpus(job);
            let others = view.types_of(job).filter(|&gpu_type| Some(gpu_type) != own);
            let found = own
                .into_iter()
                .chain(others)
                .find(|gpu_type| left[gpu_type.index()] >= gpus)?;
            left[found.index()] -= gpus;
            Some(found)
        };
        let mut running = self.running(view)?.into_iter().peekable();
        let mut walk = self.walk();
        let mut refused = FxHashSet::default();
        let mut changed = Vec::new();
        let mut head = walk.next(self, &refused);
        loop {
            let is_before = |rank: &Rank| head.is_none_or(|(head, _)| *rank < head);
            if let Some(rank) = running.next_if(is_before) {
                let job = JobId(rank.job);
                let own = view.run(job).map(gangline_engine::Run::gpu_type);
                let found = admit(job, own);
                if found != own {
                    changed.push((job, found));
                }
                continue;
            }
            let Some((rank, class)) = head else {
                return Ok(changed);
            };
            let job = JobId(rank.job);
            match admit(job, None) {
                Some(found) => changed.push((job, Some(found))),
                None => _ = refused.insert(class),
            }
            head = walk.next(self, &refused);
        }
    }
}

/// A walk over waiting jobs in order, class by class.
#[derive(Debug)]
pub(crate) struct Walk {
    heads: BinaryHeap<Reverse<(Rank, u32)>>,
    /// The last job that was returned; its class has not advanced yet.
    last: Option<(Rank, u32)>,
}

impl Walk {
    /// Returns the next job whose class is not skipped.
    pub(crate) fn next(&mut self, queue: &Queue, skipped: &FxHashSet<u32>) -> Option<(Rank, u32)> {
        if let Some((rank, class)) = self.last.take()
            && !skipped.contains(&class)
            && let Some(&next) = queue.sets[class as usize]
                .range((Excluded(rank), Unbounded))
                .next()
        {
            self.heads.push(Reverse((next, class)));
        }
        loop {
            let Reverse((rank, class)) = self.heads.pop()?;
            if !skipped.contains(&class) {
                self.last = Some((rank, class));
                return self.last;
            }
        }
    }
}

/// The orders and markets of a run.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) alike: Alike,
    pub(crate) queues: Vec<Queue>,
    pub(crate) markets: Vec<Market>,
}

impl Kept {
    /// Returns the index of an order. If there is no such order yet, it is created.
    pub(crate) fn find(
        &mut self,
        view: &ClusterView<'_>,
        spec: Spec,
    ) -> Result<usize, PolicyError> {
        let known = self.queues.iter().position(|queue| queue.spec == spec);
        if let Some(at) = known {
            return Ok(at);
        }
        let mut queue = Queue {
            spec,
            sets: Vec::new(),
            known: FxHashMap::default(),
        };
        for job in view.waiting() {
            queue.add(&mut self.alike, view, job)?;
        }
        self.queues.push(queue);
        Ok(self.queues.len() - 1)
    }

    /// Returns the index of a market. If there is no such market yet, it is built.
    pub(crate) fn market(
        &mut self,
        view: &ClusterView<'_>,
        params: HadarParams,
    ) -> Result<usize, PolicyError> {
        let known = self.markets.iter().position(|one| *one.params() == params);
        if let Some(at) = known {
            return Ok(at);
        }
        self.markets.push(Market::of(view, params)?);
        Ok(self.markets.len() - 1)
    }

    /// Updates the orders and markets with the effects of the last plan and the events since then.
    pub(crate) fn update(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
    ) -> Result<(), PolicyError> {
        let Self {
            alike,
            queues,
            markets,
        } = self;
        for market in markets {
            market.update(view, changes)?;
        }
        for queue in queues {
            for &job in changes.started.iter().chain(&changes.finished) {
                queue.remove(job);
            }
            let come = changes.preempted.iter().chain(&changes.requeued);
            for &job in come.chain(&changes.arrived) {
                queue.add(alike, view, job)?;
            }
        }
        for job in &changes.finished {
            alike.of.remove(job);
        }
        Ok(())
    }
}
