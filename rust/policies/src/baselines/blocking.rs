//! `sjf-strict`: shortest job first; a head that does not fit blocks all jobs behind it. One heap.

use crate::kit::Places;
use crate::kit::Seen;
use crate::kit::why::{BEHIND, NO_PLACE, at_head};
use crate::place::PlacementParams;
use gangline_engine::{
    Cause, Changes, ClusterView, Knowledge, Next, Plan, Policy, PolicyError, PolicyTraits, Reason,
};
use gangline_model::{JobId, SimSpan};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Shortest job first, with head-of-line blocking.
#[derive(Debug)]
pub struct Blocking {
    seen: Seen,
    places: Places,
    queue: BinaryHeap<Reverse<(SimSpan, JobId)>>,
}

impl Blocking {
    /// The queue with a placement rule.
    pub fn new(placement: PlacementParams, seen: Seen) -> Self {
        Self {
            seen,
            places: Places::new(placement),
            queue: BinaryHeap::new(),
        }
    }
}

impl Policy for Blocking {
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
        self.places.start(view, plan)
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        for &job in changes.requeued.iter().chain(&changes.arrived) {
            self.queue
                .push(Reverse((self.seen.duration(view, job)?, job)));
        }
        while let Some(&Reverse((_, job))) = self.queue.peek() {
            let class = self.places.class_of(job);
            if !self.places.start_job(plan, class, job) {
                break;
            }
            self.queue.pop();
        }
        Ok(Next::Ask)
    }

    fn reasons(&self) -> Vec<&'static Reason> {
        vec![&BEHIND, &NO_PLACE]
    }

    fn why(&self, _view: &ClusterView<'_>, job: JobId) -> Option<Cause> {
        let head = self.queue.peek();
        head.map(|&Reverse((_, head))| at_head(head, job))
    }
}
