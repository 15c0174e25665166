//! The registry entries of the toy policies.

use super::{ForkParams, ToyFork, ToyMixed, ToyRound, ToyShare, ToyTimer};
use gangline_policies::params::{flag, number, spec};
use gangline_policies::{ParamDefault, ParamKind, ParamSpec, PolicyInfo, Stops};

const TOY_ROUND: &[ParamSpec] = &[number("round_s", ParamKind::Above(0.0), 360.0)
    .unit("s")
    .doc("length of a round")
    .outlasting_restarts()];
const TOY_TIMER: &[ParamSpec] = &[number("delay_s", ParamKind::AtLeast(0.0), 60.0)
    .unit("s")
    .doc("wait for a server")];
const TOY_SHARE: &[ParamSpec] =
    &[flag("halve", false).doc("whether co-runners run at half of their batch")];

const TOY_FORK: &[ParamSpec] = &[
    number("copies", ParamKind::Whole(1.0), 2.0).doc("maximum number of parts of a job"),
    spec("quota", ParamKind::Maybe(0.001), ParamDefault::None)
        .doc("iteration quota of a further copy, and of each copy after a merge"),
    number("merge_s", ParamKind::AtLeast(0.0), 0.0)
        .unit("s")
        .doc("pause of every copy at a merge"),
    number("period_s", ParamKind::Above(0.0), 100.0)
        .unit("s")
        .doc("time between two merges")
        .outlasting_restarts(),
    flag("whole", false).doc("whether a part takes all GPUs of its server"),
];

/// The toys. A release does not contain the toy policies.
pub const TOYS: &[PolicyInfo] = &[
    PolicyInfo {
        name: "toy-fork",
        summary: "jobs train as several copies while no job waits; for tests",
        family: "toy",
        source: "ours",
        placement: None,
        own: TOY_FORK,
        make: |params, _| {
            let quota = params.number("quota");
            Ok(Box::new(ToyFork::new(ForkParams {
                copies: params.number("copies") as usize,
                quota: (quota > 0.0).then_some(quota),
                merge: params.span("merge_s")?,
                period: params.period("period_s")?,
                whole: params.flag("whole"),
            })))
        },
        ..PolicyInfo::BASE
    },
    PolicyInfo {
        name: "toy-mixed",
        summary: "first come, first served, over several GPU types; for tests",
        family: "toy",
        source: "ours",
        placement: None,
        make: |_, _| Ok(Box::new(ToyMixed::new())),
        ..PolicyInfo::BASE
    },
    PolicyInfo {
        name: "toy-round",
        stops: Stops::InRounds,
        summary: "least attained service in rounds; for tests",
        family: "toy",
        source: "ours",
        placement: None,
        own: TOY_ROUND,
        make: |params, _| {
            let round = params.period("round_s")?;
            Ok(Box::new(ToyRound::new(round)))
        },
        ..PolicyInfo::BASE
    },
    PolicyInfo {
        name: "toy-timer",
        summary: "waits for some time for a single server; for tests",
        family: "toy",
        source: "ours",
        placement: None,
        own: TOY_TIMER,
        make: |params, _| Ok(Box::new(ToyTimer::new(params.span("delay_s")?))),
        ..PolicyInfo::BASE
    },
    PolicyInfo {
        name: "toy-share",
        summary: "puts two jobs on a GPU if no GPU is free; for tests",
        family: "toy",
        source: "ours",
        placement: None,
        own: TOY_SHARE,
        make: |params, _| Ok(Box::new(ToyShare::new(params.flag("halve")))),
        ..PolicyInfo::BASE
    },
];
