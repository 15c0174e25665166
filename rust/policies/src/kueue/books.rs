//! Running jobs, grouped by queue, and the remaining quotas.

use super::params::Rules;
use super::quota::Tree;
use crate::kit::Places;
use gangline_model::{GpuTypeId, JobFacts, JobId, SimTime};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Position of a running job in the order of preemption: by priority (lowest first), then by admission (latest first),
/// then by index.
pub(super) type Place = (i64, Reverse<SimTime>, u32);

#[derive(Debug)]
pub(super) struct Queue {
    pub rules: Rules,
    /// GPU types that the queue may use, in the order in which they are tried.
    pub types: Vec<GpuTypeId>,
    /// Running jobs of the queue, grouped by GPU type.
    pub running: Vec<BTreeSet<Place>>,
}

/// Queues, quotas and running jobs, including the changes that the current plan has made so far.
#[derive(Debug)]
pub(super) struct Books {
    pub tree: Tree,
    pub queues: Vec<Queue>,
    pub places: Places,
    /// Queue of each job.
    pub of: Vec<u32>,
    /// GPU type and start of each job; the start is `NEVER` if the job does not run.
    held: Vec<(GpuTypeId, SimTime)>,
}

/// A running job that may be preempted. In the order of preemption, candidates from other queues come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    pub is_own: bool,
    pub place: Place,
    pub queue: usize,
}

impl Candidate {
    pub(super) fn job(&self) -> JobId {
        JobId(self.place.2)
    }

    pub(super) fn priority(&self) -> i64 {
        self.place.0
    }
}

/// Returns the priority of a job as a whole number.
pub(super) fn priority(jobs: &JobFacts, job: JobId) -> i64 {
    jobs.priority(job) as i64
}

impl Books {
    /// Creates the books for a run in which no job runs yet.
    pub(super) fn new(tree: Tree, queues: Vec<Queue>, places: Places, of: Vec<u32>) -> Self {
        Self {
            held: vec![(GpuTypeId::new(0), SimTime::NEVER); of.len()],
            tree,
            queues,
            places,
            of,
        }
    }

    pub(super) fn queue(&self, job: JobId) -> usize {
        self.of[job.index()] as usize
    }

    pub(super) fn runs(&self, job: JobId) -> bool {
        self.held[job.index()].1 != SimTime::NEVER
    }

    /// Records that a job holds GPUs of a type.
    pub(super) fn hold(&mut self, jobs: &JobFacts, job: JobId, t: GpuTypeId, now: SimTime) {
        let queue = self.queue(job);
        self.held[job.index()] = (t, now);
        let place = (priority(jobs, job), Reverse(now), job.0);
        self.queues[queue].running[t.index()].insert(place);
        self.tree.take(queue, t, i64::from(jobs.gpus(job)));
    }

    /// Records that a job has released its GPUs. Returns the instant at which the job started.
    pub(super) fn release(&mut self, jobs: &JobFacts, job: JobId) -> SimTime {
        let queue = self.queue(job);
        let (t, since) = self.held[job.index()];
        self.held[job.index()].1 = SimTime::NEVER;
        let place = (priority(jobs, job), Reverse(since), job.0);
        self.queues[queue].running[t.index()].remove(&place);
        self.tree.take(queue, t, -i64::from(jobs.gpus(job)));
        since
    }

    /// Returns the running jobs of a queue that have a given priority.
    pub(super) fn equals(&self, queue: usize, priority: i64) -> impl Iterator<Item = JobId> {
        let first = (priority, Reverse(SimTime(i64::MAX)), 0);
        let last = (priority, Reverse(SimTime(i64::MIN)), u32::MAX);
        let lists = self.queues[queue].running.iter();
        let places = lists.flat_map(move |list| list.range(first..=last));
        places.map(|place| JobId(place.2))
    }
}
