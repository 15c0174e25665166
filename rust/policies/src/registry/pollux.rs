//! Elastic gangs by goodput.

use super::{Fact, PolicyInfo, Premise, Preset, Stops};
use crate::params::{ParamDefault, ParamKind, ParamSpec, choice, flag, number, spec};
use crate::pollux::{Batch, Pollux, PolluxParams, SearchKind};

const PARAMETERS: &[ParamSpec] = &[
    number("period_s", ParamKind::Above(0.0), 60.0).unit("s").doc("time between two decisions")
    .outlasting_restarts(),
    number("phi_delay_s", ParamKind::AtLeast(0.0), 30.0).unit("s").doc("what the policy assumes that a change of its GPUs costs a job; what it really costs is an \
         option of the run"),
    number("fairness_p", ParamKind::AtLeast(-100.0), -1.0).doc("exponent of the mean over the jobs' speed-ups: the lower, the more the slowest jobs count; 0 = \
         geometric mean"),
    flag("avoid_interference", true).doc("whether a server takes part in at most one job over several servers"),
    spec("max_gpus_per_job", ParamKind::Whole(1.0), ParamDefault::Int(64)).unit("GPUs").doc("most GPUs of an elastic job"),
    number("growth", ParamKind::AtLeast(1.0), 2.0).doc("most GPUs of an elastic job, relative to the most that it ever had"),
    spec("ls_moves", ParamKind::MaybeWhole(1.0), ParamDefault::None).doc("most moves of one rung from job to job in a decision; none = twice the number of jobs"),
    choice("batch", Batch::NAMES, "best").doc("batch of an elastic job: best (largest goodput on its GPUs) or traced (the total batch of the \
         trace)"),
    choice("search", SearchKind::NAMES, "greedy").doc("greedy (by gain per GPU, then moves) or ga (genetic, over all placements; for small clusters, to compare)"),
    spec("ga_max_cells", ParamKind::Whole(1.0), ParamDefault::Int(4096)).doc("with search = ga: most active jobs x servers; more is an error"),
    spec("ga_population", ParamKind::Whole(2.0), ParamDefault::Int(100)).doc("with search = ga: placements that live on from one generation to the next"),
    spec("ga_generations", ParamKind::Whole(1.0), ParamDefault::Int(100)).doc("with search = ga: generations in a decision"),
];

const PRESETS: &[Preset] = &[
    Preset {
        name: "pollux-fixed",
        params: &[("batch", ParamDefault::Str("traced"))],
    },
    Preset {
        name: "pollux-no-avoid",
        params: &[("avoid_interference", ParamDefault::Bool(false))],
    },
];

pub(super) const POLICIES: &[PolicyInfo] = &[PolicyInfo {
    name: "pollux",
    summary: "elastic gangs: GPUs and batch of each job by goodput, searched greedily",
    family: "elastic",
    source: "Pollux (OSDI 2021), with a search of our own",
    stops: Stops::InRounds,
    placement: None,
    premises: &[Premise::of(
        "changing the GPUs and the batch of a job",
        Fact::ElasticJobs,
    )],
    presets: PRESETS,
    own: PARAMETERS,
    make: |params, _| Ok(Box::new(Pollux::new(PolluxParams::read(params)?))),
    ..PolicyInfo::BASE
}];
