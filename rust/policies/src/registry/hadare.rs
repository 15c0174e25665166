//! Registry entry of a policy that runs copies of a job on different servers.

use super::{Fact, PolicyInfo, Premise, Preset, Stops};
use crate::hadare::{EstimatorName, FanIn, HadarE, HadarEParams};
use crate::params::{ParamDefault, ParamKind, ParamSpec, choice, flag, number, spec};
use gangline_engine::Knowledge;

const PARAMETERS: &[ParamSpec] = &[
    spec("max_copies", ParamKind::MaybeWhole(1.0), ParamDefault::None)
        .doc("maximum number of copies of a job; none = one per server"),
    spec(
        "gpus_per_copy",
        ParamKind::MaybeWhole(1.0),
        ParamDefault::None,
    )
    .doc("number of GPUs for each copy; smaller servers hold no copies; none = all GPUs of the server"),
    number("round_s", ParamKind::Above(0.0), 360.0)
        .unit("s")
        .doc("length of a round")
        .outlasting_restarts(),
    number("c0_s", ParamKind::AtLeast(0.0), 1.0)
        .unit("s")
        .doc("fixed part of the time that it takes to consolidate copies"),
    number("bandwidth", ParamKind::Above(0.0), 1.25e9)
        .unit("bytes/s")
        .doc("bandwidth for transferring the parameters of copies"),
    choice("fan_in", FanIn::NAMES, "parallel")
        .doc("whether the parameters of the copies are transferred in parallel or one after the other (serial)"),
    choice("utility", HadarEParams::UTILITIES, "normalised")
        .doc("with price_pass: utility of a completion time, as in hadar"),
    number("umin_factor", ParamKind::Above(0.0), 0.25)
        .doc("with price_pass: factor that multiplies the lowest price"),
    flag("fill", true)
        .doc("whether every idle server gets a copy of the job that is fastest there, relative to its best rate"),
    flag("price_pass", false).doc("whether copies are first assigned at prices, as in hadar"),
    number("min_share", ParamKind::Fraction, 0.0)
        .doc("minimum rate of a copy, as a share of the rate of the job's fastest possible copy"),
    spec("min_steps", ParamKind::Whole(0.0), ParamDefault::Int(1))
        .unit("iterations")
        .doc("minimum number of iterations of an additional copy in a round"),
    choice("estimator", EstimatorName::NAMES, "oracle")
        .doc("rates used for planning: true rates (oracle), averages of observed rates (ewma) or noisy rates (noisy)"),
    number("estimator_alpha", ParamKind::Fraction, 0.5)
        .doc("with estimator = ewma: weight of the latest observation, above 0"),
    number("estimator_sigma", ParamKind::AtLeast(0.0), 0.1)
        .doc("with estimator = noisy: sigma of the log-normal factor for each pair of job and server"),
];

const PRESETS: &[Preset] = &[
    Preset {
        name: "hadare-paper",
        params: &[("price_pass", ParamDefault::Bool(true))],
    },
    Preset {
        name: "hadare-lab",
        params: &[("gpus_per_copy", ParamDefault::Int(1))],
    },
    Preset {
        name: "hadare-nofork",
        params: &[("max_copies", ParamDefault::Int(1))],
    },
];

pub(super) const POLICIES: &[PolicyInfo] = &[PolicyInfo {
    name: "hadare",
    summary: "each job trains several copies on different servers, which are consolidated every round",
    family: "copies",
    source: "HadarE (arXiv 2503.10918), our interpretation",
    knowledge: Knowledge::Remaining,
    reads_durations: true,
    stops: Stops::InRounds,
    placement: None,
    premises: &[Premise::of(
        "dividing the work of a job among servers of different speeds",
        Fact::RatesByType,
    )],
    presets: PRESETS,
    own: PARAMETERS,
    make: |params, _| Ok(Box::new(HadarE::new(HadarEParams::read(params)?))),
    ..PolicyInfo::BASE
}];
