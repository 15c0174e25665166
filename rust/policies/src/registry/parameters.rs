//! Parameters that several policies share.

pub(super) use crate::params::spec;
use crate::params::{ParamDefault, ParamKind, ParamSpec};

/// Error of the durations that a policy sees.
pub(super) const ESTIMATE_ERROR: ParamSpec = spec(
    "estimate_error",
    ParamKind::AtLeast(0.0),
    ParamDefault::Float(0.0),
    "",
    "sigma of the log-normal error of the durations that the policy sees; 0 = exact",
);
/// Shield of a job that has just started.
pub(super) const MIN_RUN: ParamSpec = spec(
    "preempt_min_run_s",
    ParamKind::AtLeast(0.0),
    ParamDefault::Float(0.0),
    "s",
    "a job is not preempted before it has run this long since its last start; under a placement \
     rule that may refuse a gang, 0 or longer than every restart overhead",
)
.outlasting_restarts();
