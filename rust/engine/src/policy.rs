//! The trait that policies implement. This module contains no concrete policy (`ARCHITECTURE.md`).

use crate::error::PolicyError;
use crate::plan::Plan;
use crate::traits::{Next, PolicyTraits};
use crate::view::{Changes, ClusterView};
use crate::watch::{Cause, Reason};
use gangline_model::{InfeasibleReason, JobId};

/// A scheduling policy, which reads the state through a view and fills a plan. Only the engine changes the state.
pub trait Policy: Send {
    /// Returns the features that the policy needs from the engine. The engine reads the features once, before the run.
    fn traits(&self) -> PolicyTraits {
        PolicyTraits::default()
    }

    /// Returns the jobs that the policy could never place. The engine calls this method once, before the first event.
    /// `plan` may only be used to read the empty cluster.
    ///
    /// # Errors
    /// Returns [`PolicyError`] if the policy cannot handle this trace or cluster.
    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError>;

    /// Returns why a job that [`Self::start`] returned can never run.
    fn why_never(&self, _view: &ClusterView<'_>, _job: JobId) -> InfeasibleReason {
        InfeasibleReason::Placement
    }

    /// Makes a decision. The engine calls this method once at each instant that wakes the policy.
    ///
    /// # Errors
    /// Returns [`PolicyError`] if the policy cannot continue; the run then ends.
    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError>;

    /// Returns why a job still waits after the last decision, or `None` if the tables of the run already show the
    /// reason. The engine calls this method only for jobs that the run watches ([`crate::RunConfig::watch`]), so it may
    /// cost O(running jobs).
    fn why(&self, _view: &ClusterView<'_>, _job: JobId) -> Option<Cause> {
        None
    }

    /// Returns all reasons that [`Self::why`] can return.
    fn reasons(&self) -> Vec<&'static Reason> {
        Vec::new()
    }

    /// Returns counters, such as the number of demotions, as (name, value) pairs for the notes of the result.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}
