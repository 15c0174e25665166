//! Small policies for tests.

use super::PolicyInfo;
use super::parameters::spec;
use crate::params::{ParamDefault, ParamKind, ParamSpec};
use crate::toy::{ToyRound, ToyShare, ToyTimer};
use gangline_engine::Knowledge;

const TOY_ROUND: &[ParamSpec] = &[spec(
    "round_s",
    ParamKind::Above(0.0),
    ParamDefault::Float(360.0),
    "s",
    "length of a round",
)];
const TOY_TIMER: &[ParamSpec] = &[spec(
    "delay_s",
    ParamKind::AtLeast(0.0),
    ParamDefault::Float(60.0),
    "s",
    "wait for a server",
)];
const TOY_SHARE: &[ParamSpec] = &[spec(
    "halve",
    ParamKind::Bool,
    ParamDefault::Bool(false),
    "",
    "co-runners at half batch",
)];

pub(super) const POLICIES: &[PolicyInfo] = &[
    PolicyInfo {
        name: "toy-round",
        summary: "least attained service in rounds; for tests",
        family: "toy",
        source: "ours",
        knowledge: Knowledge::Online,
        reads_durations: false,
        is_hidden: true,
        placement: "",
        own: TOY_ROUND,
        make: |params, _| {
            let round = params.period("round_s")?;
            Ok(Box::new(ToyRound::new(round)))
        },
    },
    PolicyInfo {
        name: "toy-timer",
        summary: "waits some time for one server; for tests",
        family: "toy",
        source: "ours",
        knowledge: Knowledge::Online,
        reads_durations: false,
        is_hidden: true,
        placement: "",
        own: TOY_TIMER,
        make: |params, _| Ok(Box::new(ToyTimer::new(params.span("delay_s")?))),
    },
    PolicyInfo {
        name: "toy-share",
        summary: "two jobs to a GPU where no GPU is free; for tests",
        family: "toy",
        source: "ours",
        knowledge: Knowledge::Online,
        reads_durations: false,
        is_hidden: true,
        placement: "",
        own: TOY_SHARE,
        make: |params, _| Ok(Box::new(ToyShare::new(params.flag("halve")))),
    },
];
