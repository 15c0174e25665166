//! Registry entries of delay scheduling.

use super::{Fact, PolicyInfo, Premise, Preset, Stops};
use crate::dally::{Dally, DallyParams, Mode, Renewal};
use crate::params::{ParamDefault, ParamKind, ParamSpec, choice, flag, number};
use crate::place::Fit;

const LEASES: &str = "leases";

const PARAMETERS: &[ParamSpec] = &[
    number("lease_s", ParamKind::Above(0.0), 3600.0)
        .unit("s")
        .doc("length of a lease; longer than every restart overhead")
        .outlasting_restarts(),
    choice("mode", Mode::NAMES, "auto").doc(
        "delays: auto (tuned), manual (rack_delay and network_delay), no_wait (no delays) or \
         fully_consolidated (wait without limit)",
    ),
    number("rack_delay", ParamKind::AtLeast(0.0), 6.0)
        .unit(LEASES)
        .doc("with mode = manual: waiting time before a job accepts several servers of one rack"),
    number("network_delay", ParamKind::AtLeast(0.0), 12.0)
        .unit(LEASES)
        .doc("with mode = manual: waiting time before a job accepts several racks; at least rack_delay"),
    number("history_leases", ParamKind::Above(0.0), 24.0)
        .unit(LEASES)
        .doc("length of the tuner's window, which is also its maximum delay"),
    number("rack_floor", ParamKind::AtLeast(0.0), 6.0)
        .unit(LEASES)
        .doc("minimum tuned delay before a job accepts several servers of one rack"),
    number("network_floor", ParamKind::AtLeast(0.0), 12.0)
        .unit(LEASES)
        .doc("minimum tuned delay before a job accepts several racks"),
    number("rack_cap_share", ParamKind::AtLeast(0.0), 0.8)
        .doc("maximum tuned delay before a job accepts several servers of one rack, as a share of history_leases"),
    number("sd_factor", ParamKind::AtLeast(0.0), 2.0)
        .doc("number of standard deviations that the tuner adds to the mean waiting time"),
    choice("fit", Fit::NAMES, "best").doc("how to choose among places with room: best (tightest) or first (lowest index)"),
    choice("renewal", Renewal::NAMES, "keep").doc(
        "at the end of a lease: keep (the job keeps its GPUs unless a more urgent job takes them) \
         or redecide (it competes like a new job)",
    ),
    flag("upgrade_on_renewal", true)
        .doc("whether a job moves to a narrower place at the end of a lease"),
    flag("align_leases", false).doc("whether all leases end at multiples of lease_s"),
    number("overhead_per_gpu_s", ParamKind::AtLeast(0.0), 0.0)
        .unit("s")
        .doc("overhead that each GPU of a gang adds to every restart and migration"),
    flag("score_includes_overhead", false)
        .doc("whether overhead counts as time without progress in a job's score"),
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
    summary: "delay scheduling with tuned delays and leases; jobs slowed most by communication first",
    stops: Stops::AtLeaseEnds,
    family: "locality",
    source: "Dally (arXiv 2401.16492), our implementation",
    placement: None,
    premises: &[Premise::of(
        "waiting for GPUs that are close together",
        Fact::Network,
    )],
    presets: PRESETS,
    own: PARAMETERS,
    make: |params, _| {
        let own = DallyParams::read(params)?;
        Ok(Box::new(Dally::new(own)))
    },
    ..PolicyInfo::BASE
}];
