//! `toy-mixed`: first come, first served; a gang that no GPU type holds lies on several.

use crate::class::Places;
use crate::place::{Level, place_mixed};
use gangline_engine::{Changes, ClusterView, Next, Plan, Policy, PolicyError, PolicyTraits};
use gangline_model::{GpuSet, GpuTypeId, JobId};

/// A queue whose gangs mix GPU types.
#[derive(Debug)]
pub struct ToyMixed {
    places: Places,
}

impl ToyMixed {
    /// The policy.
    pub fn new() -> Self {
        Self {
            places: super::places(Level::Network),
        }
    }

    fn place(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>, job: JobId) -> Option<GpuSet> {
        let class = self.places.classes().of(job);
        let types: Vec<GpuTypeId> = view.types_of(job).collect();
        for &gpu_type in &types {
            if let Some(gpus) = self.places.place_on(plan.free(), class, job, gpu_type) {
                return Some(gpus);
            }
        }
        place_mixed(plan.free(), &types, view.jobs().gpus(job))
    }
}

impl Default for ToyMixed {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for ToyMixed {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            mixes_types: true,
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        // a gang without a place on one type may have one on several
        self.places.start(view, plan).map(|_| Vec::new())
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        _changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        for job in view.waiting() {
            let Some(gpus) = self.place(view, plan, job) else {
                break;
            };
            plan.take(&gpus);
            plan.start(job, gpus);
        }
        Ok(Next::Ask)
    }
}
