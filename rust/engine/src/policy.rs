//! The port that policies plug into. No concrete policy lives here (`ARCHITECTURE.md`).

use crate::error::PolicyError;
use crate::plan::Plan;
use crate::traits::{Next, PolicyTraits};
use crate::view::{Changes, ClusterView};
use crate::watch::{Cause, Reason};
use gangline_model::JobId;

/// A scheduling policy. It sees a read-only view and fills a plan; only the engine changes state.
pub trait Policy: Send {
    /// What it needs of the engine. Read once, before the run.
    fn traits(&self) -> PolicyTraits {
        PolicyTraits::default()
    }

    /// Called once, before the first event; `plan` may only be used to look at the empty cluster.
    /// Returns the jobs that the policy could never place even there.
    ///
    /// # Errors
    /// [`PolicyError`] if the policy cannot serve this trace or cluster.
    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError>;

    /// Called once per instant that wakes it.
    ///
    /// # Errors
    /// [`PolicyError`] ends the run.
    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError>;

    /// Why a job still waits after the decision just made; `None` where the tables of the run say it all. Asked only
    /// of jobs that the run watches ([`crate::RunConfig::watch`]), and free to cost O(running jobs).
    fn why(&self, _view: &ClusterView<'_>, _job: JobId) -> Option<Cause> {
        None
    }

    /// Every reason that [`Self::why`] gives.
    fn reasons(&self) -> Vec<&'static Reason> {
        Vec::new()
    }

    /// Counters for the result's notes (name, value), such as demotions.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}
