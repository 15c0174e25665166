//! Registry entry of a policy that sizes elastic gangs by their marginal gain in remaining time.

use super::{Fact, PolicyInfo, Premise, Stops};
use crate::optimus::{Optimus, OptimusParams, ServerChoice};
use crate::params::{ParamDefault, ParamKind, ParamSpec, choice, flag, number, spec};
use gangline_engine::Knowledge;

const PARAMETERS: &[ParamSpec] = &[
    number("period_s", ParamKind::Above(0.0), 600.0).unit("s").doc("time between two decisions").outlasting_restarts(),
    spec("max_gpus_per_job", ParamKind::Whole(1.0), ParamDefault::Int(64)).unit("GPUs").doc("maximum number of GPUs of an elastic job"),
    flag("skip_slower", false).doc("whether to skip GPU counts with which a job would be no faster than with fewer GPUs; if false, a job stops growing before the first such count"),
    choice("server_choice", ServerChoice::NAMES, "most_free").doc("servers for a job that gets a new place: most_free (those with the most free GPUs) or best_fit (if possible a single server: the one with the fewest free GPUs among those with enough)"),
];

pub(super) const POLICIES: &[PolicyInfo] = &[PolicyInfo {
    name: "optimus",
    summary: "elastic gangs: each further GPU goes to the job whose remaining time it shortens most",
    family: "elastic",
    source: "Optimus (EuroSys 2018), as in the Pollux paper",
    knowledge: Knowledge::Remaining,
    reads_durations: true,
    stops: Stops::InRounds,
    placement: None,
    premises: &[Premise::of("changing the GPUs of a job", Fact::ElasticJobs)],
    own: PARAMETERS,
    make: |params, _| Ok(Box::new(Optimus::new(OptimusParams::read(params)?))),
    ..PolicyInfo::BASE
}];
