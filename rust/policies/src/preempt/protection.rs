//! Protection of a job that has just started: for a time it is admitted before all others.

use crate::class::Places;
use crate::params::ParamReader;
use gangline_engine::{ClusterView, PolicyError};
use gangline_model::SimSpan;

/// Name of the parameter.
const FIELD: &str = "preempt_min_run_s";

/// For how long a job may not be preempted after a start or move.
#[derive(Clone, Debug)]
pub struct Protection {
    policy: String,
    /// The time; zero = no protection.
    pub span: SimSpan,
}

impl Protection {
    /// Reads `preempt_min_run_s`.
    ///
    /// # Errors
    /// [`PolicyError::Parameter`] for a value out of range.
    pub fn read(params: &ParamReader) -> Result<Self, PolicyError> {
        Ok(Self {
            policy: params.policy().to_owned(),
            span: params.span(FIELD)?,
        })
    }

    /// Refuses a protection under which a run may never end. Call at the start of a run.
    ///
    /// The end of each protection is a decision. Under a placement rule that may refuse a gang, jobs may run on GPUs
    /// that those before them in the order cannot use. While protected they keep these others out, and afterwards make
    /// way. If they make way before their restart is over, all may take turns for ever without progress. A rule that
    /// refuses no gang is safe: the first job in the order keeps its GPUs, as protected jobs were there before it or
    /// fit beside it.
    ///
    /// # Errors
    /// [`PolicyError::Parameter`] naming the longest restart.
    pub fn check(&self, view: &ClusterView<'_>, places: &Places) -> Result<(), PolicyError> {
        if self.span == SimSpan::ZERO || !places.rule().may_refuse() {
            return Ok(());
        }
        let restarts = view.jobs().ids().map(|job| view.restart_overhead(job));
        let longest = restarts.max().unwrap_or(SimSpan::ZERO);
        if longest < self.span || longest == SimSpan::ZERO {
            return Ok(());
        }
        Err(PolicyError::Parameter {
            policy: self.policy.clone(),
            field: FIELD.to_owned(),
            value: self.span.seconds().to_string(),
            expected: format!(
                "0, or more than the longest restart overhead, {} s, under a placement rule that may \
                 refuse a gang: else jobs could take turns for ever without progress",
                longest.seconds()
            ),
        })
    }
}
