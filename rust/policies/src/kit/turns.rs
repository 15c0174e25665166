//! Checks that turns are long enough for the jobs to make progress.

use super::places::Places;
use crate::params::ParamReader;
use gangline_engine::{ClusterView, PolicyError};
use gangline_model::{JobId, SimSpan};

/// Refuses a turn length with which a restarted job would make no lasting progress, because then two jobs could take
/// turns for ever. `field` is the parameter that sets the length. Jobs that the policy can never place are ignored.
pub(crate) fn check_length(
    view: &ClusterView<'_>,
    policy: &str,
    field: &str,
    length: SimSpan,
    unplaceable: &[JobId],
) -> Result<(), PolicyError> {
    let is_kept = |job: &JobId| !view.is_dropped(*job) && unplaceable.binary_search(job).is_err();
    let kept = view.jobs().ids().filter(is_kept);
    let restart = kept
        .map(|job| view.restart_overhead(job))
        .max()
        .unwrap_or(SimSpan::ZERO);
    let seconds = restart.seconds();
    let expected = match view.checkpoint_interval() {
        Some(interval) if restart.0.saturating_add(interval.0) > length.0 => format!(
            "at least the longest restart overhead, {seconds} s, plus checkpoint_interval_s = {}; \
             otherwise a turn would save no progress",
            interval.seconds()
        ),
        None if restart >= length => format!("more than the longest restart overhead, {seconds} s"),
        _ => return Ok(()),
    };
    Err(PolicyError::Parameter {
        policy: policy.to_owned(),
        field: field.to_owned(),
        value: length.seconds().to_string(),
        expected,
    })
}

/// The parameter that sets the protection time.
const PROTECTION: &str = "preempt_min_run_s";

/// Time after a start or move during which a job may not be preempted.
#[derive(Clone, Debug)]
pub struct Protection {
    policy: String,
    /// Length of the protection; zero means no protection.
    pub span: SimSpan,
}

impl Protection {
    /// Reads `preempt_min_run_s`.
    ///
    /// # Errors
    /// Returns [`PolicyError::Parameter`] for a value out of range.
    pub fn read(params: &ParamReader) -> Result<Self, PolicyError> {
        Ok(Self {
            policy: params.policy().to_owned(),
            span: params.span(PROTECTION)?,
        })
    }

    /// Refuses a protection time that might keep a run from ever ending. The policy must call this method at the start
    /// of a run.
    ///
    /// The policy makes a decision at the end of each protection. Under a placement rule that may refuse a gang, a job
    /// can start on GPUs that jobs before it in the order cannot use. While the job is protected, it keeps the earlier
    /// jobs from running; afterwards, it gives way. If it has to give way before its restart overhead is over, these
    /// jobs might take turns for ever without progress. A rule that never refuses a gang is safe. Under such a rule,
    /// the first job in the order keeps its GPUs, because protected jobs either started before it or fit next to it.
    ///
    /// # Errors
    /// Returns [`PolicyError::Parameter`], which states the longest restart overhead.
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
            field: PROTECTION.to_owned(),
            value: self.span.seconds().to_string(),
            expected: format!(
                "0, or more than the longest restart overhead, {} s, under a placement rule that may \
                 refuse a gang; otherwise jobs could take turns for ever without progress",
                longest.seconds()
            ),
        })
    }
}
