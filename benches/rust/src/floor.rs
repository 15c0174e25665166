//! The minimal policy: strict FIFO with the smallest policy that the interface allows.
//!
//! It supports one GPU type, and places gangs by best fit on one server or otherwise on the fullest servers. It has no
//! parameters. A run's cost in excess of this one is due to its policy. The cost of this run in excess of the bare loop
//! is due to the engine: checks, index, records.

use gangline_engine::{Changes, ClusterView, Next, Plan, Policy, PolicyError, TypePool};
use gangline_model::{GpuSet, GpuTypeId, JobId};

const TYPE: GpuTypeId = GpuTypeId(0);

/// Strict FIFO on one GPU type.
#[derive(Debug, Default)]
pub struct Floor {
    head: u32,
    arrived: u32,
}

impl Policy for Floor {
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
            if gpus > plan.gpus_free(TYPE) {
                break;
            }
            let set = place(plan.free().pool(TYPE), gpus);
            plan.start(job, set);
            self.head += 1;
        }
        Ok(Next::Ask)
    }
}

pub(crate) fn place(pool: &TypePool, gpus: u32) -> GpuSet {
    if let Some(at) = pool.best_fit(gpus) {
        return GpuSet::single(pool.server(at), lowest(pool.mask(at), gpus));
    }
    let mut set = GpuSet::new();
    let mut rest = gpus;
    for (at, free) in pool.all_servers().descending() {
        let part = free.min(rest);
        set.insert(pool.server(at), lowest(pool.mask(at), part));
        rest -= part;
        if rest == 0 {
            break;
        }
    }
    set
}

/// Returns the lowest `count` bits of a mask.
pub(crate) fn lowest(mask: u64, count: u32) -> u64 {
    let mut rest = mask;
    for _ in 0..count {
        rest &= rest - 1;
    }
    mask & !rest
}
