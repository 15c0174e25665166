//! Delay scheduling.

use super::PolicyInfo;
use super::parameters::spec;
use crate::dally::{Dally, DallyParams};
use crate::params::{ParamDefault, ParamKind, ParamSpec};

const LEASES: &str = "leases";
const MODES: &[&str] = &["auto", "manual", "no_wait", "fully_consolidated"];

const PARAMETERS: &[ParamSpec] = &[
    spec(
        "lease_s",
        ParamKind::Above(0.0),
        ParamDefault::Float(3600.0),
        "s",
        "a job holds its GPUs for so long at a time",
    ),
    spec(
        "mode",
        ParamKind::Choice(MODES),
        ParamDefault::Str("auto"),
        "",
        "delays tuned, fixed, none, or for ever",
    ),
    spec(
        "rack_delay",
        ParamKind::AtLeast(0.0),
        ParamDefault::Float(6.0),
        LEASES,
        "wait before several servers of a rack are accepted; mode manual",
    ),
    spec(
        "network_delay",
        ParamKind::AtLeast(0.0),
        ParamDefault::Float(12.0),
        LEASES,
        "wait before several racks are accepted; mode manual",
    ),
    spec(
        "history_leases",
        ParamKind::Above(0.0),
        ParamDefault::Float(24.0),
        LEASES,
        "window of the tuner, and the longest wait it sets",
    ),
    spec(
        "rack_floor",
        ParamKind::AtLeast(0.0),
        ParamDefault::Float(6.0),
        LEASES,
        "shortest tuned wait before a rack",
    ),
    spec(
        "network_floor",
        ParamKind::AtLeast(0.0),
        ParamDefault::Float(12.0),
        LEASES,
        "shortest tuned wait before the network",
    ),
    spec(
        "rack_cap_share",
        ParamKind::AtLeast(0.0),
        ParamDefault::Float(0.8),
        "",
        "longest tuned wait before a rack, as a share of history_leases",
    ),
    spec(
        "sd_factor",
        ParamKind::AtLeast(0.0),
        ParamDefault::Float(2.0),
        "",
        "standard deviations that the tuner adds to the mean wait",
    ),
    spec(
        "fit",
        ParamKind::Choice(&["best", "first"]),
        ParamDefault::Str("best"),
        "",
        "which of several places with room",
    ),
    spec(
        "renewal",
        ParamKind::Choice(&["keep", "redecide"]),
        ParamDefault::Str("keep"),
        "",
        "at the end of a lease: keep the GPUs if nobody takes them, or ask like a newcomer",
    ),
    spec(
        "upgrade_on_renewal",
        ParamKind::Bool,
        ParamDefault::Bool(true),
        "",
        "whether a job moves to a narrower place at the end of a lease",
    ),
    spec(
        "align_leases",
        ParamKind::Bool,
        ParamDefault::Bool(false),
        "",
        "whether all leases end at multiples of lease_s",
    ),
    spec(
        "overhead_per_gpu_s",
        ParamKind::AtLeast(0.0),
        ParamDefault::Float(0.0),
        "s",
        "added per GPU to the overhead of every restart and move",
    ),
    spec(
        "score_includes_overhead",
        ParamKind::Bool,
        ParamDefault::Bool(false),
        "",
        "whether overhead counts as time without progress in the score",
    ),
];

pub(super) const POLICIES: &[PolicyInfo] = &[PolicyInfo {
    name: "dally",
    summary: "waits for a narrow place by tuned delays; leases, most damaged by the network first",
    family: "locality",
    source: "Dally (arXiv 2401.16492), our implementation",
    placement: None,
    own: PARAMETERS,
    make: |params, services| {
        let own = DallyParams::read(params)?;
        Ok(Box::new(Dally::new(own, services.is_plain)))
    },
    ..PolicyInfo::BASE
}];
