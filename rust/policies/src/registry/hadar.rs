//! Prices on heterogeneous GPUs.

use super::parameters::spec;
use super::{PolicyInfo, Preset, Stops};
use crate::hadar::{
    CostHorizon, Hadar, HadarParams, Objective, Order, Pick, Replan, Tier, Utility,
};
use crate::params::{ParamDefault, ParamKind, ParamSpec};
use gangline_engine::Knowledge;

const PARAMETERS: &[ParamSpec] = &[
    spec(
        "utility",
        ParamKind::Choice(Utility::NAMES),
        ParamDefault::Str("normalised"),
        "",
        "value of a completion time d (A / d): effective_throughput (A = work), normalised (A = shortest \
         isolated time), inverse_jct (A = 1), ftf (A = isolated time on a fair share) or makespan \
         (normalised, longest remaining time first)",
    ),
    spec(
        "order",
        ParamKind::Choice(Order::NAMES),
        ParamDefault::Str("density"),
        "",
        "order of the queue: arrival, density (utility per GPU, largest first) or srtf (shortest \
         remaining time first); ignored with utility = makespan",
    ),
    spec(
        "tier",
        ParamKind::Choice(Tier::NAMES),
        ParamDefault::Str("greedy"),
        "",
        "search for the jobs to run: exact, beam or greedy",
    ),
    spec(
        "beam_width",
        ParamKind::Whole(1.0),
        ParamDefault::Int(16),
        "",
        "with tier = beam: states kept after each job",
    ),
    spec(
        "backfill",
        ParamKind::Bool,
        ParamDefault::Bool(true),
        "",
        "whether jobs that cost more than their utility may use GPUs that would stay idle",
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
        "cost_horizon",
        ParamKind::Choice(CostHorizon::NAMES),
        ParamDefault::Str("round"),
        "",
        "rounds that a job pays for: round (one) or remaining (all that it has left)",
    ),
    spec(
        "umin_factor",
        ParamKind::Above(0.0),
        ParamDefault::Float(0.25),
        "",
        "factor of the lowest price; above 1 / (1 + spread_surcharge) prices can keep jobs off an \
         empty cluster",
    ),
    spec(
        "horizon_s",
        ParamKind::Maybe(1e-9),
        ParamDefault::None,
        "s",
        "latest completion considered, from the oldest arrival; none = estimated from the work of \
         the active jobs",
    ),
    spec(
        "spread_surcharge",
        ParamKind::AtLeast(0.0),
        ParamDefault::Float(0.1),
        "",
        "surcharge on the cost of a gang on several servers, as a share of it",
    ),
    spec(
        "mix_types",
        ParamKind::Bool,
        ParamDefault::Bool(true),
        "",
        "whether a gang may lie on several GPU types",
    ),
    spec(
        "pick",
        ParamKind::Choice(Pick::NAMES),
        ParamDefault::Str("cheapest"),
        "",
        "server for a gang that fits on one: cheapest or best_fit (fewest free GPUs)",
    ),
    spec(
        "objective",
        ParamKind::Choice(Objective::NAMES),
        ParamDefault::Str("max_payoff"),
        "",
        "best placement of a job: max_payoff (utility less cost) or min_cost",
    ),
    spec(
        "replan",
        ParamKind::Choice(Replan::NAMES),
        ParamDefault::Str("round"),
        "",
        "decide in every round (round), or only after arrivals, completions and changes of capacity \
         (event)",
    ),
    spec(
        "rack_aware",
        ParamKind::Bool,
        ParamDefault::Bool(false),
        "",
        "whether placements inside one rack are considered as well",
    ),
    spec(
        "stay",
        ParamKind::Bool,
        ParamDefault::Bool(true),
        "",
        "whether a running job keeps its GPUs when no other placement is faster",
    ),
    spec(
        "exact_max_jobs",
        ParamKind::Whole(1.0),
        ParamDefault::Int(20),
        "",
        "with tier = exact: most active jobs",
    ),
    spec(
        "scan_limit",
        ParamKind::MaybeWhole(1.0),
        ParamDefault::None,
        "",
        "with tier = greedy: a decision stops after so many jobs with a cost above their utility; \
         none = no limit",
    ),
];

const PRESETS: &[Preset] = &[
    Preset {
        name: "hadar-paper",
        params: &[
            ("utility", ParamDefault::Str("effective_throughput")),
            ("order", ParamDefault::Str("arrival")),
            ("tier", ParamDefault::Str("beam")),
            ("backfill", ParamDefault::Bool(false)),
        ],
    },
    Preset {
        name: "hadar-ttd",
        params: &[],
    },
    Preset {
        name: "hadar-jct",
        params: &[("utility", ParamDefault::Str("inverse_jct"))],
    },
];

pub(super) const POLICIES: &[PolicyInfo] = &[PolicyInfo {
    name: "hadar",
    summary: "task-level heterogeneity-aware scheduling: GPUs at prices that rise with occupancy",
    family: "heterogeneity",
    source: "Hadar (arXiv 2503.10918), our interpretation",
    knowledge: Knowledge::Remaining,
    reads_durations: true,
    stops: Stops::InRounds,
    placement: None,
    presets: PRESETS,
    own: PARAMETERS,
    make: |params, services| {
        let params = HadarParams::read(params)?;
        Ok(Box::new(Hadar::new(params, services.is_plain)))
    },
    ..PolicyInfo::BASE
}];
