//! The minimal policy that forks jobs: strict FIFO, with each gang on one server. A job gets a copy on another server
//! while there are free GPUs. Copies are taken back, the youngest first, when the head of the queue lacks GPUs.
//!
//! A decision costs O(changes). The difference from `floor` is the cost of parts in the engine: a second placement per
//! job, rates that add up, and a new finish time at every start and stop of a copy.

use gangline_engine::{Changes, ClusterView, Next, Plan, Policy, PolicyError, PolicyTraits};
use gangline_model::{Action, GpuSet, GpuTypeId, JobId};

use crate::floor::lowest;

const TYPE: GpuTypeId = GpuTypeId(0);
const COPY: u16 = 1;

/// Strict FIFO on one GPU type, with at most one copy per job.
#[derive(Debug, Default)]
pub struct FloorFork {
    head: u32,
    arrived: u32,
    /// Jobs that got a copy, the youngest last. Some of them have ended since.
    copied: Vec<JobId>,
}

impl FloorFork {
    /// Returns GPUs of a server for the gang. Copies are taken back until a server has room or no copy is left.
    fn room(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>, gpus: u32) -> Option<GpuSet> {
        loop {
            let found = best_fit(plan, gpus);
            if found.is_some() {
                return found;
            }
            let job = self.copied.pop()?;
            if let Some(copy) = view.run(job).and_then(|run| run.part(COPY)) {
                plan.give_back(&copy.gpus);
                plan.push(Action::preempt(job).of_part(COPY));
            }
        }
    }

    /// Starts the job, and a copy on another server if there is room for it.
    fn start_job(&mut self, plan: &mut Plan<'_>, job: JobId, set: GpuSet) {
        let gpus = set.gpus();
        let own = set.by_server()[0].server;
        plan.start(job, set);
        let copy = best_fit(plan, gpus).filter(|copy| copy.by_server()[0].server != own);
        if let Some(copy) = copy {
            plan.take(&copy);
            plan.push(Action::start(job, copy).of_part(COPY));
            self.copied.push(job);
        }
    }
}

/// Returns the lowest free GPUs of the fullest server with room.
fn best_fit(plan: &mut Plan<'_>, gpus: u32) -> Option<GpuSet> {
    let pool = plan.free().pool(TYPE);
    let at = pool.best_fit(gpus)?;
    Some(GpuSet::single(pool.server(at), lowest(pool.mask(at), gpus)))
}

impl Policy for FloorFork {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            forks: true,
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        _view: &ClusterView<'_>,
        _plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        Ok(Vec::new())
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        self.arrived += changes.arrived.len() as u32;
        while self.head < self.arrived {
            let job = JobId(self.head);
            let gpus = view.jobs().gpus(job);
            let Some(set) = self.room(view, plan, gpus) else {
                break;
            };
            self.start_job(plan, job, set);
            self.head += 1;
        }
        Ok(Next::Ask)
    }
}
