//! Registry entries of the round-based policies that compute shares by linear programs or closed-form expressions
//! (Gavel).

use super::world::{PAIRS, SHARING, TYPES};
use super::{Fact, PolicyInfo, Premise, Preset, Services, Stops};
use crate::gavel_timing::{GavelTiming, GavelTimingParams};
use crate::kit::{GpuPick, QueueBy};
use crate::params::{ParamDefault, ParamKind, ParamReader, ParamSpec, choice, flag, number, spec};
use crate::place::PlacementParams;
use crate::round::{EntityParams, Partners, RoundParams, Rounds, ZeroPass};
use gangline_allocation::{
    Allocations, Allocator, Choice, EqualSplit, FastestFirst, InRuns, Inside, Objective,
    RandomPairs, Seen, Settings,
};
use gangline_engine::{Knowledge, Policy, PolicyError};
use gangline_model::words;

const ROUND: ParamSpec = number("round_s", ParamKind::Above(0.0), 360.0)
    .unit("s")
    .doc("length of a round")
    .outlasting_restarts();
const INTERVAL: ParamSpec = number("min_solve_interval_s", ParamKind::AtLeast(0.0), 0.0)
    .unit("s")
    .doc(
        "minimum time between two allocations; a job that arrives in between has no share until \
     the next allocation",
    );
words! {
    /// Which rate is used to compute the shares of a job whose rate changes with its progress.
    enum PlannedRate {
        /// The mean rate over all of the job's work.
        Mean = "mean",
        /// Steps per second in the current phase.
        Present = "present",
    }
}

const PLANNED: ParamSpec = choice("planned_rate", PlannedRate::NAMES, "mean").doc(
    "rate used to plan a job whose rate changes: mean (over all of its work) or present \
     (steps per second in its current phase; a new phase leads to new shares)",
);
const BACKFILL: ParamSpec = flag("backfill_mid_round", false).doc(
    "whether GPUs that become free during a round are assigned to waiting jobs at once; otherwise they \
     stay idle until the boundary",
);
const SOLVER: ParamSpec = choice("solver", Choice::NAMES, "auto")
    .doc("LP solver: auto (depends on the size of the LP), simplex, ipx or dual");
words! {
    /// Which of several optima is used.
    enum TieBreak {
        /// The optimum with the largest sum of normalised throughputs.
        MaxSum = "max_sum",
        /// The optimum that the solver returns.
        Solver = "none",
    }
}

const TIE_BREAK: ParamSpec = choice("tie_break", TieBreak::NAMES, "max_sum").doc(
    "which of several optima to use: max_sum (the one with the largest sum of normalised \
     throughputs; agnostic variants spread the time of each job evenly) or none (the one that the \
     solver returns)",
);
const TIME_LIMIT: ParamSpec = number("time_limit_s", ParamKind::Above(0.0), 60.0)
    .unit("s")
    .doc("time limit (wall-clock) for each solve; a solve that reaches it counts as failed");
words! {
    /// How rates are scaled in a sum of throughputs.
    enum Normalise {
        /// The rates are unchanged.
        Raw = "none",
        /// Each rate is divided by the job's average rate on the cluster.
        Proportional = "proportional",
    }
}

const NORMALISE: ParamSpec = choice("normalise", Normalise::NAMES, "none").doc(
    "how rates are scaled in the sum: none (not at all, which favours models with short steps) or \
     proportional (each divided by the job's average on the cluster)",
);

const TYPE_ORDER: ParamSpec = spec("type_order", ParamKind::Text, ParamDefault::Str("auto")).doc(
    "comma-separated names of GPU types, in the order in which they are served; auto = the types \
     on which the jobs run best come first",
);
const ZERO_PASS: ParamSpec = choice("zero_priority_pass", ZeroPass::NAMES, "after").doc(
    "when jobs without a share may use the remaining GPUs: after (after all other jobs) or inline (type \
     by type)",
);
words! {
    /// What happens when a solve fails.
    enum OnError {
        /// The run ends.
        Raise = "raise",
        /// An equal split replaces the allocation.
        Isolated = "isolated",
    }
}

const ON_ERROR: ParamSpec = choice("on_solver_error", OnError::NAMES, "raise").doc(
    "what happens when a solve fails: raise (the run ends) or isolated (an equal split takes its \
     place; spec.json counts these cases)",
);
const WRITE_FAILED: ParamSpec = spec("write_failed_to", ParamKind::Text, ParamDefault::Str(""))
    .doc("file that receives the LP of a failed solve, for gl.lp.load_instance; empty = none");
words! {
    /// The single rate that an agnostic policy uses for each job.
    enum AgnosticRate {
        /// The average rate over all GPUs.
        Mean = "mean",
        /// The rate on one GPU type.
        Reference = "reference",
    }
}

const AGNOSTIC_RATE: ParamSpec = choice("agnostic_rate", AgnosticRate::NAMES, "mean").doc(
    "the single rate of each job that the policy uses: mean (the average over all GPUs) or reference \
     (the rate on reference_type)",
);
const REFERENCE_TYPE: ParamSpec =
    spec("reference_type", ParamKind::Text, ParamDefault::Str("v100"))
        .doc("with agnostic_rate = reference: name of a GPU type of the cluster");
const DROP_ALL: ParamSpec = flag("drop_all_infeasible", false).doc(
    "whether an allocation that cannot meet all deadlines ignores them all, as in the public \
     simulator; otherwise it minimises the weight of missed deadlines",
);
const ALPHA: ParamSpec = number("alpha", ParamKind::Above(0.0), 1.0).doc(
    "share of the active jobs (oldest first) that an assignment includes; at least as many jobs as \
     there are free GPUs",
);

const GPU_PICK: ParamSpec = choice("gpu_pick", GpuPick::NAMES, "most_free").doc(
    "how to choose a gang's GPU type among those with a place: most_free, first_fit (type of the \
     first server with a free GPU), fastest, slowest or random",
);
const COMPAT: ParamSpec = flag("compat", false)
    .doc("whether to use the public simulator's timing with all its quirks, for comparisons");

const PARTITIONS: ParamSpec = spec("partitions", ParamKind::Whole(1.0), ParamDefault::Int(1)).doc(
    "number of parts into which the jobs and GPUs of an allocation are split at random; each part is solved \
     separately",
);
const PACKED: ParamSpec = flag("packed", false).doc(
    "whether two jobs of the same gang size may share GPUs if the pair gains; the cluster must state how \
     much co-runners slow each other down",
);
const SLACK_WEIGHT: ParamSpec = number("slack_weight", ParamKind::Fraction, 0.5).doc(
    "weight that rounds give to the share of a job with much slack, where a job that must run \
     without a break until the makespan has weight 1; 1 = equal weights, as published and with \
     compat",
);
const HIERARCHICAL: ParamSpec = flag("hierarchical", false)
    .doc("whether weights belong to entities, each of which splits its weight among its jobs");
const ENTITY_BY: ParamSpec = choice("entity_by", &["user", "vc"], "user").doc(
    "label that defines the entities: user or vc; jobs without the label belong to the entity `default`",
);
const ENTITY_WEIGHT: ParamSpec = spec("entity_weight", ParamKind::NamedWeights, ParamDefault::None)
    .doc(
        "weight of each entity; needs a value for every entity of the trace; none = equal weights",
    );
const ENTITY_POLICY: ParamSpec = choice("entity_policy", Inside::NAMES, "fairness").doc(
    "how an entity's weight is divided: fairness (among all its jobs, in proportion to their \
     weights) or fifo (all of it to the first job whose share can still rise)",
);

const PACKS: [Premise; 2] = [SHARING.with("packed"), PAIRS.with("packed")];
/// The premises of a policy that uses rates and may pack jobs.
const AWARE: &[Premise] = &[TYPES, PACKS[0], PACKS[1]];

/// The parameters of every policy that solves linear programs.
const COMMON: [ParamSpec; 13] = [
    ROUND,
    INTERVAL,
    PLANNED,
    BACKFILL,
    TYPE_ORDER,
    ZERO_PASS,
    SOLVER,
    TIE_BREAK,
    TIME_LIMIT,
    ON_ERROR,
    WRITE_FAILED,
    PARTITIONS,
    COMPAT,
];
const FIFO: &[ParamSpec] = &[ROUND, INTERVAL, TYPE_ORDER, GPU_PICK];
const FIFO_PERF: &[ParamSpec] = &[ROUND, INTERVAL, PLANNED, TYPE_ORDER, COMPAT];
const CLOSED: &[ParamSpec] = &[
    ROUND, INTERVAL, PLANNED, BACKFILL, TYPE_ORDER, ZERO_PASS, COMPAT,
];
const PACKING: &[ParamSpec] = &with::<1, { COMMON.len() + 1 }>([PACKED]);
const MAKESPAN: &[ParamSpec] = &with::<2, { COMMON.len() + 2 }>([PACKED, SLACK_WEIGHT]);
const SUM: &[ParamSpec] = &with::<2, { COMMON.len() + 2 }>([PACKED, NORMALISE]);
const COST: &[ParamSpec] = &with::<1, { COMMON.len() + 1 }>([DROP_ALL]);
const FILLING: &[ParamSpec] = &with::<5, { COMMON.len() + 5 }>([
    PACKED,
    HIERARCHICAL,
    ENTITY_BY,
    ENTITY_WEIGHT,
    ENTITY_POLICY,
]);
const AGNOSTIC: &[ParamSpec] =
    &with::<3, { COMMON.len() + 3 }>([PACKED, AGNOSTIC_RATE, REFERENCE_TYPE]);
const MAKESPAN_AGNOSTIC: &[ParamSpec] =
    &with::<4, { COMMON.len() + 4 }>([PACKED, SLACK_WEIGHT, AGNOSTIC_RATE, REFERENCE_TYPE]);
const GANDIVA: &[ParamSpec] = &[ROUND, INTERVAL, BACKFILL, TYPE_ORDER, ZERO_PASS];
const ALLOX: &[ParamSpec] = &[
    ROUND,
    INTERVAL,
    PLANNED,
    BACKFILL,
    TYPE_ORDER,
    ZERO_PASS,
    TIME_LIMIT,
    ON_ERROR,
    WRITE_FAILED,
    ALPHA,
];

/// Returns the common parameters, followed by the parameters of a single policy.
const fn with<const OWN: usize, const ALL: usize>(own: [ParamSpec; OWN]) -> [ParamSpec; ALL] {
    let mut all = [ROUND; ALL];
    let mut at = 0;
    while at < ALL {
        all[at] = if at < COMMON.len() {
            COMMON[at]
        } else {
            own[at - COMMON.len()]
        };
        at += 1;
    }
    all
}

/// Common part of the declarations of all policies whose shares optimise an objective.
const SOLVED: PolicyInfo = PolicyInfo {
    family: "shares in rounds",
    source: "Gavel (OSDI 2020)",
    stops: Stops::InRounds,
    make: solved,
    ..PolicyInfo::BASE
};
/// Variant of [`SOLVED`] for policies that know the remaining work.
const TOLD: PolicyInfo = PolicyInfo {
    knowledge: Knowledge::Remaining,
    reads_durations: true,
    ..SOLVED
};

pub(super) const POLICIES: &[PolicyInfo] = &[
    PolicyInfo {
        name: "gavel-las",
        presets: &[Preset {
            name: "gavel-compat-las",
            params: &[
                ("compat", ParamDefault::Bool(true)),
                ("tie_break", ParamDefault::Str("none")),
            ],
        }],
        summary: "max-min fairness: maximises the smallest rate relative to fair share and weight",
        premises: AWARE,
        objective: Some(|_| Objective::Las { is_agnostic: false }),
        own: PACKING,
        ..SOLVED
    },
    PolicyInfo {
        name: "gavel-las-agnostic",
        summary: "heterogeneity-agnostic variant of gavel-las, without rates",
        premises: &PACKS,
        objective: Some(|_| Objective::Las { is_agnostic: true }),
        own: PACKING,
        ..SOLVED
    },
    PolicyInfo {
        name: "gavel-ftf",
        summary: "finish-time fairness: minimises the largest rho",
        premises: AWARE,
        objective: Some(|_| Objective::Ftf { seen: Seen::Own }),
        own: PACKING,
        ..TOLD
    },
    PolicyInfo {
        name: "gavel-ftf-agnostic",
        summary: "heterogeneity-agnostic variant of gavel-ftf: one rate per job on all types",
        premises: &PACKS,
        objective: Some(|_| Objective::Ftf { seen: Seen::Mean }),
        own: AGNOSTIC,
        ..TOLD
    },
    PolicyInfo {
        name: "gavel-makespan",
        summary: "minimum makespan under constant shares",
        premises: AWARE,
        objective: Some(|params| makespan(params, Seen::Own)),
        own: MAKESPAN,
        ..TOLD
    },
    PolicyInfo {
        name: "gavel-makespan-agnostic",
        summary: "heterogeneity-agnostic variant of gavel-makespan: one rate per job on all types",
        premises: &PACKS,
        objective: Some(|params| makespan(params, Seen::Mean)),
        own: MAKESPAN_AGNOSTIC,
        ..TOLD
    },
    PolicyInfo {
        name: "gavel-max-sum",
        summary: "maximum total throughput",
        premises: AWARE,
        objective: Some(|params| Objective::MaxSum {
            is_proportional: params.choice("normalise", Normalise::named)
                == Normalise::Proportional,
        }),
        own: SUM,
        ..SOLVED
    },
    PolicyInfo {
        name: "gavel-cost",
        summary: "maximum throughput per dollar, subject to SLOs; needs a price for every GPU type",
        premises: &[
            Premise::required(Fact::Prices),
            TYPES,
            Premise::of("putting deadlines first", Fact::Deadlines),
        ],
        objective: Some(|params| Objective::Cost {
            prices: Vec::new(), // The prices of the cluster replace this value.
            drops_all: params.flag("drop_all_infeasible"),
        }),
        own: COST,
        ..TOLD
    },
    PolicyInfo {
        name: "gavel-water-filling",
        summary: "lexicographic max-min fairness, by water filling",
        premises: AWARE,
        objective: Some(|params| water_filling(params, false)),
        own: FILLING,
        ..SOLVED
    },
    PolicyInfo {
        name: "gavel-water-filling-agnostic",
        summary: "heterogeneity-agnostic variant of gavel-water-filling, without rates",
        premises: &PACKS,
        objective: Some(|params| water_filling(params, true)),
        own: FILLING,
        ..SOLVED
    },
    PolicyInfo {
        name: "gavel-isolated",
        summary: "isolated baseline: each job has an equal share of every GPU type",
        objective: Some(|_| Objective::Isolated),
        own: CLOSED,
        make: |params, _| rounds(params, Box::new(EqualSplit)),
        ..SOLVED
    },
    PolicyInfo {
        name: "gavel-fifo",
        summary: "in order of arrival, regardless of rates; each job runs to completion where it started",
        stops: Stops::Never,
        own: FIFO,
        make: |params, _| rounds(params, Box::new(EqualSplit)), // This policy never uses its allocator.
        ..SOLVED
    },
    PolicyInfo {
        name: "gavel-fifo-perf",
        presets: &[Preset {
            name: "gavel-compat-fifo-perf",
            params: &[("compat", ParamDefault::Bool(true))],
        }],
        summary: "in order of arrival, on the fastest GPU type with room; placed anew at each allocation",
        premises: &[TYPES],
        objective: Some(|_| Objective::FifoPerf {
            by_name: Vec::new(),
        }),
        own: FIFO_PERF,
        make: |params, _| rounds(params, Box::new(FastestFirst::default())),
        ..SOLVED
    },
    PolicyInfo {
        name: "gavel-allox",
        summary: "minimum mean completion time of single-GPU jobs; larger jobs can never run",
        premises: &[Premise::required(Fact::OneGpuJobs), TYPES],
        objective: Some(|params| Objective::Allox {
            alpha: params.number("alpha"),
        }),
        own: ALLOX,
        ..TOLD
    },
    PolicyInfo {
        name: "gavel-gandiva",
        summary: "equal split over single jobs and random pairs; a pair is kept while it gains",
        premises: &[SHARING, PAIRS],
        own: GANDIVA,
        make: |params, _| {
            sharing(
                params,
                Box::new(RandomPairs::default()),
                Some(Partners::Single),
            )
        },
        ..SOLVED
    },
];

fn makespan(params: &ParamReader, seen: Seen) -> Objective {
    let is_public = params.flag("compat"); // The public simulator compares shares without weights.
    Objective::Makespan {
        seen,
        slack_weight: if is_public {
            1.0
        } else {
            params.number("slack_weight")
        },
    }
}

fn water_filling(params: &ParamReader, is_agnostic: bool) -> Objective {
    Objective::WaterFilling {
        is_agnostic,
        inside: vec![params.choice("entity_policy", Inside::named)],
    }
}

/// Returns the settings of a policy's allocations.
pub(super) fn settings(params: &ParamReader) -> Settings {
    Settings {
        // Policies that solve no linear programs do not have this parameter.
        solver: Choice::named(params.word("solver")).unwrap_or_default(),
        chooses: TieBreak::named(params.word("tie_break")) != Some(TieBreak::Solver),
        time_limit_s: params.number("time_limit_s"),
        ..Settings::default()
    }
}

/// Creates a policy whose allocations optimise its objective.
fn solved(params: &ParamReader, services: Services) -> Result<Box<dyn Policy>, PolicyError> {
    let objective = objective(params)?;
    let given = InRuns {
        policy: params.policy().to_owned(),
        objective: objective.expect("declared with one"),
        settings: settings(params),
        falls_back: OnError::named(params.word("on_solver_error")) == Some(OnError::Isolated),
        reference: (AgnosticRate::named(params.word("agnostic_rate"))
            == Some(AgnosticRate::Reference))
        .then(|| params.word("reference_type").to_owned()),
    };
    rounds(params, Box::new(Allocations::new(given, services.outside)))
}

/// Returns the objective of the policy's allocations, if the policy declares one.
fn objective(params: &ParamReader) -> Result<Option<Objective>, PolicyError> {
    let read = super::find(params.policy())?.objective;
    Ok(read.map(|read| read(params)))
}

/// Creates a policy with the given allocator; jobs may share GPUs if the parameters allow it.
pub(super) fn rounds(
    params: &ParamReader,
    allocator: Box<dyn Allocator>,
) -> Result<Box<dyn Policy>, PolicyError> {
    let packs = params.flag("packed").then_some(Partners::OfKind);
    sharing(params, allocator, packs)
}

/// Does the same as [`rounds`], but lets the caller choose which jobs may share GPUs.
fn sharing(
    params: &ParamReader,
    allocator: Box<dyn Allocator>,
    packs: Option<Partners>,
) -> Result<Box<dyn Policy>, PolicyError> {
    if params.flag("compat") {
        return compat(params, allocator);
    }
    let policy = params.policy();
    let order = params.word("type_order");
    if packs.is_some() {
        params.expect_default(&PLANNED, "with packed = true")?;
    }
    let mechanism = RoundParams {
        policy: policy.to_owned(),
        round: params.period("round_s")?,
        min_solve_interval: params.span("min_solve_interval_s")?,
        // Some policies do not have these parameters.
        follows_phases: PlannedRate::named(params.word("planned_rate"))
            == Some(PlannedRate::Present),
        zero_pass: ZeroPass::named(params.word("zero_priority_pass")),
        backfills: params.flag("backfill_mid_round"),
        type_order: (order != "auto").then(|| order.to_owned()),
        keeps: GpuPick::named(params.word("gpu_pick")),
        gang_max: matches!(objective(params)?, Some(Objective::Allox { .. })).then_some(1),
        knowledge: super::find(policy)?.knowledge,
        packs,
        partitions: params.number("partitions").max(1.0) as usize,
        entities: params.flag("hierarchical").then(|| EntityParams {
            by: params.choice("entity_by", QueueBy::named),
            weights: params.named_numbers("entity_weight"),
        }),
    };
    Ok(Box::new(Rounds::new(
        mechanism,
        PlacementParams::read(params),
        allocator,
    )))
}

/// Creates a policy with the public simulator's timing, which does not support some parameters.
fn compat(
    params: &ParamReader,
    allocator: Box<dyn Allocator>,
) -> Result<Box<dyn Policy>, PolicyError> {
    let policy = params.policy();
    let own = [
        INTERVAL,
        PLANNED,
        BACKFILL,
        TYPE_ORDER,
        ZERO_PASS,
        PARTITIONS,
        PACKED,
        HIERARCHICAL,
    ];
    for fixed in own {
        params.expect_default(&fixed, "with compat = true")?;
    }
    let objective = objective(params)?;
    let is_blind = objective.as_ref().is_some_and(Objective::is_agnostic);
    let mechanism = GavelTimingParams {
        policy: policy.to_owned(),
        round_s: params.number("round_s"),
        shuffles: is_blind || matches!(objective, Some(Objective::Isolated)),
        skips_zero: matches!(objective, Some(Objective::FifoPerf { .. })),
        knowledge: super::find(policy)?.knowledge,
    };
    Ok(Box::new(GavelTiming::new(
        mechanism,
        PlacementParams::read(params),
        allocator,
    )))
}
