//! Copies of jobs on unlike servers.

use super::parameters::spec;
use super::{PolicyInfo, Preset, Stops};
use crate::hadare::{EstimatorName, FanIn, HadarE, HadarEParams};
use crate::params::{ParamDefault, ParamKind, ParamSpec};
use gangline_engine::Knowledge;

const PARAMETERS: &[ParamSpec] = &[
    spec(
        "max_copies",
        ParamKind::MaybeWhole(1.0),
        ParamDefault::None,
        "",
        "most copies of a job; none = one per server",
    ),
    spec(
        "gpus_per_copy",
        ParamKind::MaybeWhole(1.0),
        ParamDefault::None,
        "",
        "GPUs of a copy; smaller servers hold none; none = all GPUs of the server",
    ),
    spec(
        "round_s",
        ParamKind::Above(0.0),
        ParamDefault::Float(360.0),
        "s",
        "length of a round",
    )
    .outlasting_restarts(),
    spec(
        "c0_s",
        ParamKind::AtLeast(0.0),
        ParamDefault::Float(1.0),
        "s",
        "fixed part of the time that a consolidation of copies takes",
    ),
    spec(
        "bandwidth",
        ParamKind::Above(0.0),
        ParamDefault::Float(1.25e9),
        "bytes/s",
        "bandwidth at which the parameters of copies travel",
    ),
    spec(
        "fan_in",
        ParamKind::Choice(FanIn::NAMES),
        ParamDefault::Str("parallel"),
        "",
        "parameters of the copies travel in parallel, or one after the other (serial)",
    ),
    spec(
        "utility",
        ParamKind::Choice(HadarEParams::UTILITIES),
        ParamDefault::Str("normalised"),
        "",
        "with price_pass: value of a completion time, as in hadar",
    ),
    spec(
        "umin_factor",
        ParamKind::Above(0.0),
        ParamDefault::Float(0.25),
        "",
        "with price_pass: factor of the lowest price",
    ),
    spec(
        "fill",
        ParamKind::Bool,
        ParamDefault::Bool(true),
        "",
        "whether every idle server gets a copy of the job that is relatively fastest there",
    ),
    spec(
        "price_pass",
        ParamKind::Bool,
        ParamDefault::Bool(false),
        "",
        "whether copies are first given out at prices, as in hadar",
    ),
    spec(
        "min_share",
        ParamKind::Fraction,
        ParamDefault::Float(0.0),
        "",
        "slowest copy of a job, as a share of its fastest possible one",
    ),
    spec(
        "min_steps",
        ParamKind::Whole(0.0),
        ParamDefault::Int(1),
        "iterations",
        "fewest iterations of a further copy in a round",
    ),
    spec(
        "estimator",
        ParamKind::Choice(EstimatorName::NAMES),
        ParamDefault::Str("oracle"),
        "",
        "rates that are planned with: true ones (oracle), averages of those seen (ewma), noisy ones",
    ),
    spec(
        "estimator_alpha",
        ParamKind::Fraction,
        ParamDefault::Float(0.5),
        "",
        "with estimator=ewma: weight of the latest observation, above 0",
    ),
    spec(
        "estimator_sigma",
        ParamKind::AtLeast(0.0),
        ParamDefault::Float(0.1),
        "",
        "with estimator=noisy: sigma of the log-normal factor per job and server",
    ),
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
    summary: "each job trains as several copies on unlike servers, consolidated every round",
    family: "copies",
    source: "HadarE (arXiv 2503.10918), our interpretation",
    knowledge: Knowledge::Remaining,
    reads_durations: true,
    stops: Stops::InRounds,
    placement: None,
    presets: PRESETS,
    own: PARAMETERS,
    make: |params, _| Ok(Box::new(HadarE::new(HadarEParams::read(params)?))),
    ..PolicyInfo::BASE
}];
