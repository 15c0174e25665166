//! Parameters that several policies share.

use crate::params::{ParamDefault, ParamKind, ParamSpec};

const RULES: &[&str] = &[
    "consolidate",
    "yarn",
    "whole_servers",
    "spread",
    "random",
    "random_server",
    "count",
    "skew",
    "best_speed",
];

/// One parameter.
pub(super) const fn spec(
    name: &'static str,
    kind: ParamKind,
    default: ParamDefault,
    unit: &'static str,
    doc: &'static str,
) -> ParamSpec {
    ParamSpec {
        name,
        kind,
        default,
        unit,
        doc,
    }
}

/// Parameters of every policy that places by a rule of the library.
pub(super) const PLACEMENT: [ParamSpec; 9] = [
    spec(
        "placement",
        ParamKind::Choice(RULES),
        ParamDefault::Str("consolidate"),
        "",
        "placement rule",
    ),
    spec(
        "fit",
        ParamKind::Choice(&["best", "first"]),
        ParamDefault::Str("best"),
        "",
        "which of several places with room",
    ),
    spec(
        "max_level",
        ParamKind::Choice(&["server", "rack", "network"]),
        ParamDefault::Str("network"),
        "",
        "widest tier of consolidate",
    ),
    spec(
        "slots",
        ParamKind::Choice(&["lowest", "aligned"]),
        ParamDefault::Str("lowest"),
        "",
        "which GPUs of a server",
    ),
    spec(
        "rack_choice",
        ParamKind::Choice(&["best_fit", "fewest_servers"]),
        ParamDefault::Str("best_fit"),
        "",
        "which rack, with best fit",
    ),
    spec(
        "skew",
        ParamKind::Choice(&["flags", "sizes", "oracle"]),
        ParamDefault::Str("flags"),
        "",
        "how models are classed by skew",
    ),
    spec(
        "skew_threshold",
        ParamKind::AtLeast(0.0),
        ParamDefault::Float(0.3),
        "",
        "skew from which a model is highly skewed",
    ),
    spec(
        "skew_eps",
        ParamKind::AtLeast(0.0),
        ParamDefault::Float(0.05),
        "",
        "loss of speed that skew = oracle accepts",
    ),
    spec(
        "yarn_cross_rack",
        ParamKind::Bool,
        ParamDefault::Bool(false),
        "",
        "whether yarn and whole_servers may take several racks",
    ),
];

/// Error of the durations that a policy is told.
pub(super) const ESTIMATE_ERROR: ParamSpec = spec(
    "estimate_error",
    ParamKind::AtLeast(0.0),
    ParamDefault::Float(0.0),
    "",
    "sigma of the log-normal error of the durations it sees",
);
/// Shield of a job that has just started.
pub(super) const MIN_RUN: ParamSpec = spec(
    "preempt_min_run_s",
    ParamKind::AtLeast(0.0),
    ParamDefault::Float(0.0),
    "s",
    "a job is not preempted before it has run so long",
);
