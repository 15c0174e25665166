//! The minimal policy that shares GPUs: strict FIFO. If no GPUs are free, the head of the queue joins a job that runs
//! alone.
//!
//! It keeps the running jobs without a co-runner in one stack per gang size, so a decision costs O(changes). With
//! `max_share = 1` it is strict FIFO. The difference between the two runs is the cost of sharing in the engine:
//! residents, memory, and a new rate for the co-runner at every start and end.

use gangline_engine::{Changes, ClusterView, Next, Plan, Policy, PolicyError, PolicyTraits};
use gangline_model::{GpuTypeId, JobId};

use crate::floor::place;

const TYPE: GpuTypeId = GpuTypeId(0);

/// Co-runner of a job, if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CoRunner {
    /// The job waits or has ended.
    NotRunning,
    Alone,
    With(JobId),
}

/// Strict FIFO on one GPU type, with at most two jobs on a GPU.
#[derive(Debug, Default)]
pub struct FloorShare {
    head: u32,
    arrived: u32,
    co_runners: Vec<CoRunner>,
    /// Jobs that ran alone when they were pushed, by gang size. Some of them no longer run alone.
    alone: Vec<Vec<JobId>>,
}

impl FloorShare {
    fn set_alone(&mut self, job: JobId, gpus: u32) {
        self.co_runners[job.index()] = CoRunner::Alone;
        let size = gpus as usize;
        if self.alone.len() <= size {
            self.alone.resize_with(size + 1, Vec::new);
        }
        self.alone[size].push(job);
    }

    fn end(&mut self, view: &ClusterView<'_>, job: JobId) {
        let before = std::mem::replace(&mut self.co_runners[job.index()], CoRunner::NotRunning);
        if let CoRunner::With(left) = before {
            self.set_alone(left, view.jobs().gpus(left));
        }
    }

    /// Starts the job next to the last one of its size that runs alone.
    fn join(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>, job: JobId, gpus: u32) -> bool {
        let co_runners = &self.co_runners;
        let Some(alone) = self.alone.get_mut(gpus as usize) else {
            return false;
        };
        while let Some(other) = alone.pop() {
            if co_runners[other.index()] == CoRunner::Alone {
                let gpus = view.run(other).expect("it runs alone").gpus().clone();
                self.co_runners[job.index()] = CoRunner::With(other);
                self.co_runners[other.index()] = CoRunner::With(job);
                plan.start(job, gpus);
                return true;
            }
        }
        false
    }
}

impl Policy for FloorShare {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            max_share: 2,
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        _plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        self.co_runners = vec![CoRunner::NotRunning; view.jobs().len()];
        Ok(Vec::new())
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        self.arrived += changes.arrived.len() as u32;
        for &job in &changes.finished {
            self.end(view, job);
        }
        // A job that starts now can be joined from the next decision on.
        let first = self.head;
        while self.head < self.arrived {
            let job = JobId(self.head);
            let gpus = view.jobs().gpus(job);
            if gpus <= plan.gpus_free(TYPE) {
                let set = place(plan.free().pool(TYPE), gpus);
                plan.start(job, set);
            } else if view.max_share() == 1 || !self.join(view, plan, job, gpus) {
                break;
            }
            self.head += 1;
        }
        for job in (first..self.head).map(JobId) {
            if self.co_runners[job.index()] == CoRunner::NotRunning {
                self.set_alone(job, view.jobs().gpus(job));
            }
        }
        Ok(Next::Ask)
    }
}
