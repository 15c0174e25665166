//! Policies in rounds: shares by linear programs or closed forms (Gavel).

use super::parameters::spec;
use super::{Needs, PolicyInfo};
use crate::compat::{Compat, CompatParams};
use crate::lp::{Allocator, EqualSplit, FastestFirst, NoSolver, RandomPairs};
use crate::params::{ParamDefault, ParamKind, ParamReader, ParamSpec};
use crate::place::PlacementParams;
use crate::round::{EntityParams, Partners, RoundParams, Rounds, ZeroPass};
use crate::yarn::{GpuPick, QueueBy};
use gangline_engine::{Knowledge, Policy, PolicyError};

const ROUND: ParamSpec = spec(
    "round_s",
    ParamKind::Above(0.0),
    ParamDefault::Float(360.0),
    "s",
    "length of a round",
);
const INTERVAL: ParamSpec = spec(
    "min_solve_interval_s",
    ParamKind::AtLeast(0.0),
    ParamDefault::Float(0.0),
    "s",
    "least time between two allocations",
);
const BACKFILL: ParamSpec = spec(
    "backfill_mid_round",
    ParamKind::Bool,
    ParamDefault::Bool(false),
    "",
    "GPUs freed inside a round go to waiting jobs at once",
);
const SOLVER: ParamSpec = spec(
    "solver",
    ParamKind::Choice(&["auto", "simplex", "ipx", "dual"]),
    ParamDefault::Str("auto"),
    "",
    "how programs are solved; auto = by their size",
);
const TIE_BREAK: ParamSpec = spec(
    "tie_break",
    ParamKind::Choice(&["max_sum", "none"]),
    ParamDefault::Str("max_sum"),
    "",
    "which of several optima: one of most normalised throughput, or whichever comes",
);
const TIME_LIMIT: ParamSpec = spec(
    "time_limit_s",
    ParamKind::Above(0.0),
    ParamDefault::Float(60.0),
    "s",
    "of each solve; wall time",
);
const NORMALISE: ParamSpec = spec(
    "normalise",
    ParamKind::Choice(&["none", "proportional"]),
    ParamDefault::Str("none"),
    "",
    "sum of raw rates, or of rates over their average on the cluster",
);

const TYPE_ORDER: ParamSpec = spec(
    "type_order",
    ParamKind::Text,
    ParamDefault::Str("auto"),
    "",
    "names of GPU types with commas, in the order they are served; auto = best first",
);
const ZERO_PASS: ParamSpec = spec(
    "zero_priority_pass",
    ParamKind::Choice(&["after", "inline"]),
    ParamDefault::Str("after"),
    "",
    "when jobs without a share use what is left: after all others, or type by type",
);
const ON_ERROR: ParamSpec = spec(
    "on_solver_error",
    ParamKind::Choice(&["raise", "isolated"]),
    ParamDefault::Str("raise"),
    "",
    "what a solve that fails does: end the run, or be replaced by an equal split",
);
const WRITE_FAILED: ParamSpec = spec(
    "write_failed_to",
    ParamKind::Text,
    ParamDefault::Str(""),
    "",
    "file that receives the program of a solve that fails",
);
const AGNOSTIC_RATE: ParamSpec = spec(
    "agnostic_rate",
    ParamKind::Choice(&["mean", "reference"]),
    ParamDefault::Str("mean"),
    "",
    "the one rate it sees of a job: the average over all GPUs, or that on reference_type",
);
const REFERENCE_TYPE: ParamSpec = spec(
    "reference_type",
    ParamKind::Text,
    ParamDefault::Str("v100"),
    "",
    "name of a GPU type, for agnostic_rate = reference",
);
const DROP_ALL: ParamSpec = spec(
    "drop_all_infeasible",
    ParamKind::Bool,
    ParamDefault::Bool(false),
    "",
    "forget all deadlines in an allocation that cannot meet each of them",
);
const ALPHA: ParamSpec = spec(
    "alpha",
    ParamKind::Above(0.0),
    ParamDefault::Float(1.0),
    "",
    "share of the active jobs, oldest first, that an assignment looks at",
);

const GPU_PICK: ParamSpec = spec(
    "gpu_pick",
    ParamKind::Choice(GpuPick::NAMES),
    ParamDefault::Str("most_free"),
    "",
    "which GPU type, of those with a place",
);
const COMPAT: ParamSpec = spec(
    "compat",
    ParamKind::Bool,
    ParamDefault::Bool(false),
    "",
    "the timing of the public simulator with all its quirks, for comparisons with it",
);

const PARTITIONS: ParamSpec = spec(
    "partitions",
    ParamKind::Whole(1.0),
    ParamDefault::Float(1.0),
    "",
    "parts into which the jobs and GPUs of an allocation are split at random, each solved alone",
);
const PACKED: ParamSpec = spec(
    "packed",
    ParamKind::Bool,
    ParamDefault::Bool(false),
    "",
    "two jobs of one gang size may share GPUs where both together gain",
);
const HIERARCHICAL: ParamSpec = spec(
    "hierarchical",
    ParamKind::Bool,
    ParamDefault::Bool(false),
    "",
    "weights belong to entities and are split among the jobs of each",
);
const ENTITY_BY: ParamSpec = spec(
    "entity_by",
    ParamKind::Choice(&["user", "vc"]),
    ParamDefault::Str("user"),
    "",
    "what makes an entity: the user or the virtual cluster",
);
const ENTITY_WEIGHT: ParamSpec = spec(
    "entity_weight",
    ParamKind::NamedWeights,
    ParamDefault::None,
    "",
    "weight by entity, {name = weight}; none = all alike",
);
const ENTITY_POLICY: ParamSpec = spec(
    "entity_policy",
    ParamKind::Choice(&["fairness", "fifo"]),
    ParamDefault::Str("fairness"),
    "",
    "who gets an entity's weight: all its jobs by theirs, or the first that can still rise",
);

/// Parameters of every program.
const COMMON: [ParamSpec; 12] = [
    ROUND,
    INTERVAL,
    COMPAT,
    BACKFILL,
    TYPE_ORDER,
    ZERO_PASS,
    SOLVER,
    TIE_BREAK,
    TIME_LIMIT,
    ON_ERROR,
    WRITE_FAILED,
    PARTITIONS,
];
const FIFO: &[ParamSpec] = &[ROUND, INTERVAL, TYPE_ORDER, GPU_PICK];
const FIFO_PERF: &[ParamSpec] = &[ROUND, INTERVAL, COMPAT, TYPE_ORDER];
const CLOSED: &[ParamSpec] = &[ROUND, INTERVAL, COMPAT, BACKFILL, TYPE_ORDER, ZERO_PASS];
const PACKING: &[ParamSpec] = &with::<1, { COMMON.len() + 1 }>([PACKED]);
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
const GANDIVA: &[ParamSpec] = &[ROUND, INTERVAL, BACKFILL, TYPE_ORDER, ZERO_PASS];
const ALLOX: &[ParamSpec] = &[
    ROUND,
    INTERVAL,
    BACKFILL,
    TYPE_ORDER,
    ZERO_PASS,
    TIME_LIMIT,
    ON_ERROR,
    WRITE_FAILED,
    ALPHA,
];

/// Those, and some of its own.
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

/// A policy whose shares come from an allocator.
const SOLVED: PolicyInfo = PolicyInfo {
    family: "shares in rounds",
    source: "Gavel (OSDI 2020)",
    needs: Needs::Allocator,
    make: |params, services| {
        let is_plain = services.is_plain;
        rounds(params, services.allocator(), is_plain)
    },
    ..PolicyInfo::BASE
};
/// The same for a policy that is told how much work is left.
const TOLD: PolicyInfo = PolicyInfo {
    knowledge: Knowledge::Remaining,
    reads_durations: true,
    ..SOLVED
};
/// A policy whose shares have a closed form.
const CLOSED_FORM: PolicyInfo = PolicyInfo {
    needs: Needs::Nothing,
    ..SOLVED
};

pub(super) const POLICIES: &[PolicyInfo] = &[
    PolicyInfo {
        name: "gavel-las",
        summary: "largest smallest rate per fair share and weight",
        own: PACKING,
        ..SOLVED
    },
    PolicyInfo {
        name: "gavel-las-agnostic",
        summary: "gavel-las without knowing how fast jobs run",
        own: PACKING,
        ..SOLVED
    },
    PolicyInfo {
        name: "gavel-ftf",
        summary: "smallest largest finish time over that of an equal split",
        own: PACKING,
        ..TOLD
    },
    PolicyInfo {
        name: "gavel-ftf-agnostic",
        summary: "gavel-ftf with one rate per job on all types",
        own: AGNOSTIC,
        ..TOLD
    },
    PolicyInfo {
        name: "gavel-makespan",
        summary: "earliest last finish",
        own: PACKING,
        ..TOLD
    },
    PolicyInfo {
        name: "gavel-makespan-agnostic",
        summary: "gavel-makespan with one rate per job on all types",
        own: AGNOSTIC,
        ..TOLD
    },
    PolicyInfo {
        name: "gavel-max-sum",
        summary: "most total throughput",
        own: SUM,
        ..SOLVED
    },
    PolicyInfo {
        name: "gavel-cost",
        summary: "most throughput per price, deadlines first",
        own: COST,
        ..TOLD
    },
    PolicyInfo {
        name: "gavel-water-filling",
        summary: "max-min again and again for those who can still rise",
        own: FILLING,
        ..SOLVED
    },
    PolicyInfo {
        name: "gavel-water-filling-agnostic",
        summary: "gavel-water-filling without knowing how fast jobs run",
        own: FILLING,
        ..SOLVED
    },
    PolicyInfo {
        name: "gavel-isolated",
        summary: "an equal split of every GPU type",
        own: CLOSED,
        make: |params, services| rounds(params, Box::new(EqualSplit), services.is_plain),
        ..CLOSED_FORM
    },
    PolicyInfo {
        name: "gavel-fifo",
        summary: "arrival order, without a look at rates, each job to its end where it started",
        own: FIFO,
        make: |params, services| rounds(params, Box::new(NoSolver), services.is_plain),
        ..CLOSED_FORM
    },
    PolicyInfo {
        name: "gavel-fifo-perf",
        summary: "arrival order, each job on the fastest type with room",
        own: FIFO_PERF,
        make: |params, services| {
            rounds(params, Box::new(FastestFirst::default()), services.is_plain)
        },
        ..CLOSED_FORM
    },
    PolicyInfo {
        name: "gavel-allox",
        summary: "smallest mean completion time of single-GPU jobs",
        own: ALLOX,
        ..TOLD
    },
    PolicyInfo {
        name: "gavel-gandiva",
        summary: "an equal split over jobs and random pairs of them, kept while they are good",
        own: GANDIVA,
        make: |params, services| {
            rounds(params, Box::new(RandomPairs::default()), services.is_plain)
        },
        ..CLOSED_FORM
    },
];

/// The policy with an allocator.
fn rounds(
    params: &ParamReader,
    allocator: Box<dyn Allocator>,
    plain: bool,
) -> Result<Box<dyn Policy>, PolicyError> {
    if params.flag("compat") {
        return compat(params, allocator);
    }
    let policy = params.policy();
    let order = params.word("type_order");
    let mechanism = RoundParams {
        policy: policy.to_owned(),
        round: params.period("round_s")?,
        min_solve_interval: params.span("min_solve_interval_s")?,
        zero_pass: match params.word("zero_priority_pass") {
            "after" => ZeroPass::After,
            "inline" => ZeroPass::Inline,
            _ => ZeroPass::Never, // the fifo forms have no such parameter
        },
        backfills: params.flag("backfill_mid_round"),
        type_order: (order != "auto").then(|| order.to_owned()),
        keeps: GpuPick::named(params.word("gpu_pick")),
        gang_max: (policy == "gavel-allox").then_some(1),
        knowledge: super::find(policy)?.knowledge,
        packs: partners(params),
        partitions: params.number("partitions").max(1.0) as usize,
        entities: params.flag("hierarchical").then(|| EntityParams {
            by: params.choice("entity_by", QueueBy::named),
            weights: params.table("entity_weight").cloned(),
        }),
    };
    Ok(Box::new(Rounds::new(
        mechanism,
        PlacementParams::read(params),
        allocator,
        plain,
    )))
}

/// Who meets whom on shared GPUs; nobody unless asked for.
fn partners(params: &ParamReader) -> Option<Partners> {
    if params.policy() == "gavel-gandiva" {
        return Some(Partners::Single);
    }
    params.flag("packed").then_some(Partners::OfKind)
}

/// The policy with the timing of the public simulator, which has no place for some parameters.
fn compat(
    params: &ParamReader,
    allocator: Box<dyn Allocator>,
) -> Result<Box<dyn Policy>, PolicyError> {
    let policy = params.policy();
    let own = [
        INTERVAL,
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
    let mechanism = CompatParams {
        policy: policy.to_owned(),
        round_s: params.number("round_s"),
        shuffles: policy == "gavel-isolated" || policy.ends_with("-agnostic"),
        skips_zero: policy == "gavel-fifo-perf",
        knowledge: super::find(policy)?.knowledge,
    };
    Ok(Box::new(Compat::new(
        mechanism,
        PlacementParams::read(params),
        allocator,
    )))
}
