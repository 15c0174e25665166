//! `fifo-skip`, `sjf` and `ssf`: a queue in some order, where jobs that do not fit are skipped.

use super::Seen;
use crate::class::Places;
use crate::place::PlacementParams;
use crate::queue::{Measure, SkipPass};
use gangline_engine::{
    Changes, ClusterView, Knowledge, Next, Plan, Policy, PolicyError, PolicyTraits,
};
use gangline_model::JobId;

/// What the queue is ordered by; then arrival, job index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipOrder {
    /// Arrival.
    Arrival,
    /// Total isolated duration.
    Duration,
    /// Total isolated duration x gang size.
    Area,
}

/// A queue with skipping.
#[derive(Debug)]
pub struct Skip {
    order: SkipOrder,
    seen: Seen,
    places: Places,
    pass: SkipPass,
}

impl Skip {
    /// A queue in an order, with a placement rule. `is_plain` walks the whole queue each time.
    pub fn new(order: SkipOrder, placement: PlacementParams, seen: Seen, is_plain: bool) -> Self {
        let measure = match order {
            SkipOrder::Arrival => Measure::Fixed,
            SkipOrder::Duration => Measure::Span,
            SkipOrder::Area => Measure::Area,
        };
        Self {
            order,
            seen,
            places: Places::new(placement),
            pass: SkipPass::new(measure, is_plain),
        }
    }
}

impl Policy for Skip {
    fn traits(&self) -> PolicyTraits {
        let knowledge = match self.order {
            SkipOrder::Arrival => Knowledge::Online,
            SkipOrder::Duration | SkipOrder::Area => Knowledge::Remaining,
        };
        PolicyTraits {
            knowledge,
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        let unplaceable = self.places.start(view, plan)?;
        self.pass
            .start(self.places.classes().len(), view.jobs().len());
        Ok(unplaceable)
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        let Self {
            order,
            seen,
            places,
            pass,
        } = self;
        match order {
            SkipOrder::Arrival => {
                pass.decide(view, changes, plan, places, |_| Ok::<i64, PolicyError>(0))?;
            }
            SkipOrder::Duration | SkipOrder::Area => {
                let main = |job| Ok::<i64, PolicyError>(seen.duration(view, job)?.0);
                pass.decide(view, changes, plan, places, main)?;
            }
        }
        Ok(Next::Ask)
    }
}
