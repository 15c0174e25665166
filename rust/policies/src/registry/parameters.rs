//! Parameters that several policies share.

use crate::params::{ParamKind, ParamSpec, number};

pub(super) const ESTIMATE_ERROR: ParamSpec = number("estimate_error", ParamKind::AtLeast(0.0), 0.0)
    .doc("sigma of the log-normal error in the durations that the policy sees; 0 = exact");
pub(super) const MIN_RUN: ParamSpec = number("preempt_min_run_s", ParamKind::AtLeast(0.0), 0.0).unit("s").doc("minimum run time after each start before a job may be preempted; under a placement rule that may refuse a gang, it must be 0 or longer than every restart overhead")
.outlasting_restarts();
pub(super) const PERIOD: ParamSpec = number("period_s", ParamKind::AtLeast(0.0), 0.0)
    .unit("s")
    .doc("time between two decisions, which take place at multiples of this time; 0 = a decision at every event");
