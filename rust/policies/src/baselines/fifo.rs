//! `fifo`: strict order of arrival. A head that does not fit blocks all jobs behind it. The cost is O(1) per event.

use crate::kit::Places;
use crate::kit::why::{BEHIND, NO_PLACE, at_head};
use crate::place::PlacementParams;
use gangline_engine::{Cause, Changes, ClusterView, Next, Plan, Policy, PolicyError, Reason};
use gangline_model::JobId;

/// Strict FIFO.
#[derive(Debug)]
pub(crate) struct Fifo {
    places: Places,
    /// Whether the head has been tried and no GPUs have become free since then.
    is_blocked: bool,
}

impl Fifo {
    /// Creates a FIFO policy with a placement rule.
    pub(crate) fn new(placement: PlacementParams) -> Self {
        Self {
            places: Places::new(placement),
            is_blocked: false,
        }
    }
}

impl Policy for Fifo {
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
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        if self.is_blocked && !changes.has_room() {
            return Ok(Next::Ask);
        }
        self.is_blocked = false;
        let mut left = view.waiting_count();
        let mut next = view.first_waiting();
        while let Some(job) = next {
            let class = self.places.class_of(job);
            if !self.places.start_job(plan, class, job) {
                self.is_blocked = true;
                break;
            }
            left -= 1;
            if left == 0 {
                break;
            }
            next = view.next_waiting(JobId(job.0 + 1));
        }
        Ok(Next::Ask)
    }

    fn reasons(&self) -> Vec<&'static Reason> {
        vec![&BEHIND, &NO_PLACE]
    }

    fn why(&self, view: &ClusterView<'_>, job: JobId) -> Option<Cause> {
        view.first_waiting().map(|head| at_head(head, job))
    }
}
