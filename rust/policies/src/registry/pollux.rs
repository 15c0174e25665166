//! Registry entry of a policy that sizes elastic gangs by goodput.

use super::{Fact, PolicyInfo, Premise, Preset, Stops};
use crate::params::{ParamDefault, ParamKind, ParamSpec, choice, flag, number, spec};
use crate::pollux::{Batch, Models, Pollux, PolluxParams, SearchKind, Share};

const PARAMETERS: &[ParamSpec] = &[
    number("period_s", ParamKind::Above(0.0), 60.0).unit("s").doc("time between two decisions")
    .outlasting_restarts(),
    number("phi_delay_s", ParamKind::AtLeast(0.0), 30.0).unit("s").doc("time that a job is assumed to lose when its GPUs change; the true overhead is an option of the run"),
    number("fairness_p", ParamKind::AtLeast(-100.0), -1.0).doc("exponent of the mean over the jobs' speed-ups; with a lower exponent, the slowest jobs count more; \
         0 = geometric mean"),
    flag("avoid_interference", true).doc("whether a server may hold at most one job that spans several servers"),
    spec("max_gpus_per_job", ParamKind::Whole(1.0), ParamDefault::Int(64)).unit("GPUs").doc("maximum number of GPUs of an elastic job"),
    number("growth", ParamKind::AtLeast(1.0), 2.0).doc("maximum number of GPUs of an elastic job, relative to the largest number that it has had so far"),
    spec("ls_moves", ParamKind::MaybeWhole(1.0), ParamDefault::None).doc("maximum number of times that a decision moves GPUs from one job to another; none = twice the number of jobs"),
    choice("batch", Batch::NAMES, "best").doc("batch of an elastic job: best (the largest goodput \
         on its GPUs) or traced (the total batch from the trace)"),
    choice("models", Models::NAMES, "known").doc("models of elastic jobs: known (the true ones) or learnt (fitted to the sizes at which a job has run)"),
    choice("share", Share::NAMES, "server").doc("equal share of the GPUs: limited by the largest server and by the range of the job (server), or without a limit (cluster)"),
    flag("first_start_counts", true).doc("whether the first start of a job counts as a change of its GPUs"),
    number("floor", ParamKind::Above(0.0), 0.001).doc("number that is added to every speed-up, so that a job without GPUs contributes a finite value"),
    choice("search", SearchKind::NAMES, "greedy").doc("search method: greedy (by gain per GPU, \
         then moves) or ga (a genetic search over all placements, for comparison on small \
         clusters)"),
    spec("ga_max_cells", ParamKind::Whole(1.0), ParamDefault::Int(4096)).doc("with search = ga: maximum value of active jobs x servers; if it is exceeded, the run ends with an error"),
    spec("ga_population", ParamKind::Whole(2.0), ParamDefault::Int(100)).doc("with search = ga: number of placements kept from one generation to the next"),
    spec("ga_generations", ParamKind::Whole(1.0), ParamDefault::Int(100)).doc("with search = ga: number of generations in a decision"),
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
    Preset {
        name: "pollux-public",
        params: &[
            ("models", ParamDefault::Str("learnt")),
            ("share", ParamDefault::Str("cluster")),
            ("first_start_counts", ParamDefault::Bool(false)),
            ("floor", ParamDefault::Float(0.004)),
        ],
    },
];

pub(super) const POLICIES: &[PolicyInfo] = &[PolicyInfo {
    name: "pollux",
    summary: "elastic gangs: a greedy search chooses each job's GPUs and batch by goodput",
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
