//! Delay scheduling.

use super::parameters::spec;
use super::{PolicyInfo, Preset, Stops};
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
        "length of a lease; longer than every restart overhead",
    )
    .outlasting_restarts(),
    spec(
        "mode",
        ParamKind::Choice(MODES),
        ParamDefault::Str("auto"),
        "",
        "delays: auto (tuned), manual (the fixed pair), no_wait or fully_consolidated (wait \
         without limit)",
    ),
    spec(
        "rack_delay",
        ParamKind::AtLeast(0.0),
        ParamDefault::Float(6.0),
        LEASES,
        "with mode = manual: wait before several servers of one rack are accepted",
    ),
    spec(
        "network_delay",
        ParamKind::AtLeast(0.0),
        ParamDefault::Float(12.0),
        LEASES,
        "with mode = manual: wait before several racks are accepted; at least rack_delay",
    ),
    spec(
        "history_leases",
        ParamKind::Above(0.0),
        ParamDefault::Float(24.0),
        LEASES,
        "window of the tuner, and the longest wait that it sets",
    ),
    spec(
        "rack_floor",
        ParamKind::AtLeast(0.0),
        ParamDefault::Float(6.0),
        LEASES,
        "shortest tuned wait before several servers of one rack",
    ),
    spec(
        "network_floor",
        ParamKind::AtLeast(0.0),
        ParamDefault::Float(12.0),
        LEASES,
        "shortest tuned wait before several racks",
    ),
    spec(
        "rack_cap_share",
        ParamKind::AtLeast(0.0),
        ParamDefault::Float(0.8),
        "",
        "longest tuned wait before several servers of one rack, as a share of history_leases",
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
        "which of several places with room: best or first",
    ),
    spec(
        "renewal",
        ParamKind::Choice(&["keep", "redecide"]),
        ParamDefault::Str("keep"),
        "",
        "at the end of a lease: keep (the job keeps its GPUs unless a more urgent job takes them) \
         or redecide (it competes like a new job)",
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
        "overhead per GPU that is added to every restart and migration",
    ),
    spec(
        "score_includes_overhead",
        ParamKind::Bool,
        ParamDefault::Bool(false),
        "",
        "whether overhead counts as time without progress in the score",
    ),
];

const PRESETS: &[Preset] = &[
    Preset {
        name: "dally-manual",
        params: &[("mode", ParamDefault::Str("manual"))],
    },
    Preset {
        name: "dally-no-wait",
        params: &[("mode", ParamDefault::Str("no_wait"))],
    },
    Preset {
        name: "dally-fully-consolidated",
        params: &[("mode", ParamDefault::Str("fully_consolidated"))],
    },
    Preset {
        name: "dally-public",
        params: &[
            ("fit", ParamDefault::Str("first")),
            ("renewal", ParamDefault::Str("redecide")),
            ("overhead_per_gpu_s", ParamDefault::Float(6.0)),
        ],
    },
];

pub(super) const POLICIES: &[PolicyInfo] = &[PolicyInfo {
    name: "dally",
    summary: "delay scheduling with tuned delays, and leases; jobs most slowed by the network \
              first",
    stops: Stops::AtLeaseEnds,
    family: "locality",
    source: "Dally (arXiv 2401.16492), our implementation",
    placement: None,
    presets: PRESETS,
    own: PARAMETERS,
    make: |params, _| {
        let own = DallyParams::read(params)?;
        Ok(Box::new(Dally::new(own)))
    },
    ..PolicyInfo::BASE
}];
