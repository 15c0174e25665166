//! Policies that let jobs take turns: whether a turn is long enough for a job to get anywhere.

use gangline_engine::{ClusterView, PolicyError};
use gangline_model::{JobId, SimSpan};

/// Refuses turns of a length in which a job that restarts keeps no progress: two jobs could take turns for ever.
/// `field` is the parameter that sets the length; jobs that the policy has no place for do not count.
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
            "at least the longest restart overhead, {seconds} s, and checkpoint_interval_s = {} \
             together, or a turn would keep no progress",
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
