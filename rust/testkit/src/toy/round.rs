//! `toy-round`: at each round, all active jobs are placed in order of attained service. A job keeps its GPUs if it can.

use gangline_engine::{
    Changes, ClusterView, Next, Plan, Policy, PolicyError, PolicyTraits, WakeOn,
};
use gangline_model::{JobId, SimSpan};
use gangline_policies::kit::Places;
use gangline_policies::place::Level;

/// A round-based policy that serves jobs in order of attained service.
#[derive(Debug)]
pub struct ToyRound {
    round: SimSpan,
    places: Places,
}

impl ToyRound {
    /// Creates the policy with rounds of this length.
    pub fn new(round: SimSpan) -> Self {
        Self {
            round,
            places: super::places::places(Level::Network),
        }
    }
}

impl Policy for ToyRound {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            wake_on: WakeOn::ROUND,
            round: Some(self.round),
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        self.places.start(view, plan)
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        _changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        let mut active: Vec<JobId> = view.waiting().chain(view.running()).collect();
        active.sort_by_key(|&job| (view.attained_gpu_ns(job), job));
        for job in view.running() {
            plan.release(job);
        }
        let mut next = Next::Steady;
        for job in active {
            let run = view.run(job);
            if let Some(run) = run
                && plan.free().is_free(run.gpus())
            {
                plan.take(run.gpus());
                continue;
            }
            let class = self.places.classes().of(job);
            match (self.places.place(plan, class, job), run) {
                (Some(gpus), None) => {
                    plan.start(job, gpus);
                }
                (Some(gpus), Some(_)) => {
                    plan.move_to(job, gpus);
                }
                (None, run) => {
                    next = Next::Ask;
                    if run.is_some() {
                        plan.preempt(job);
                    }
                }
            }
        }
        Ok(next)
    }
}
