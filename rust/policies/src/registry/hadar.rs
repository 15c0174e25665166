//! Registry entry of a policy that puts prices on heterogeneous GPUs.

use super::world::TYPES;
use super::{PolicyInfo, Preset, Stops};
use crate::hadar::{
    CostHorizon, Hadar, HadarParams, Objective, Order, Pick, Replan, Tier, Utility,
};
use crate::params::{ParamDefault, ParamKind, ParamSpec, choice, flag, number, spec};
use gangline_engine::Knowledge;

const PARAMETERS: &[ParamSpec] = &[
    choice("utility", Utility::NAMES, "normalised").doc("utility A / d of a completion time d: \
         effective_throughput (A = work), normalised (A = shortest isolated time), inverse_jct (A \
         = 1), ftf (A = isolated time on a fair share) or makespan (normalised, longest remaining \
         time first)"),
    choice("order", Order::NAMES, "density").doc("order of the queue: arrival, density (utility per GPU, largest first) or srtf (shortest \
         remaining time first); ignored with utility = makespan"),
    choice("tier", Tier::NAMES, "greedy").doc("how to search for the jobs to run: exact, beam or greedy"),
    spec("beam_width", ParamKind::Whole(1.0), ParamDefault::Int(16)).doc("with tier = beam: number of states that are kept after each job"),
    flag("backfill", true).doc("whether jobs that cost more than their utility may use GPUs that would otherwise stay idle"),
    number("round_s", ParamKind::Above(0.0), 360.0).unit("s").doc("length of a round")
    .outlasting_restarts(),
    choice("cost_horizon", CostHorizon::NAMES, "round").doc("number of rounds that a job pays for: round (one) or remaining (all that it still needs)"),
    number("umin_factor", ParamKind::Above(0.0), 0.25).doc("factor that multiplies the lowest \
         price; above 1 / (1 + spread_surcharge), prices can prevent jobs from starting on an \
         empty cluster"),
    spec("horizon_s", ParamKind::Maybe(1e-9), ParamDefault::None).unit("s").doc("latest completion \
         time that is considered, counted from the oldest arrival; none = estimated from the work \
         of the active jobs"),
    number("spread_surcharge", ParamKind::AtLeast(0.0), 0.1).doc("surcharge for a gang on several servers, as a share of its cost"),
    flag("mix_types", true).doc("whether a gang may span several GPU types"),
    choice("pick", Pick::NAMES, "cheapest").doc("how to choose the server for a gang that fits on one: cheapest or best_fit (fewest free GPUs)"),
    choice("objective", Objective::NAMES, "max_payoff").doc("criterion for the best placement of a job: max_payoff (utility minus cost) or min_cost"),
    choice("replan", Replan::NAMES, "round").doc("when the policy decides: in every round (round), \
         or only in rounds after arrivals, completions and changes of capacity (event)"),
    flag("rack_aware", false).doc("whether placements within a single rack are considered as well"),
    flag("stay", true).doc("whether a running job keeps its GPUs when no other placement is faster"),
    spec("exact_max_jobs", ParamKind::Whole(1.0), ParamDefault::Int(20)).doc("with tier = exact: maximum number of active jobs that is allowed"),
    spec("scan_limit", ParamKind::MaybeWhole(1.0), ParamDefault::None).doc("with tier = greedy: a \
         decision stops after this many jobs with a cost above their utility; none = no limit"),
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
    premises: &[TYPES],
    presets: PRESETS,
    own: PARAMETERS,
    make: |params, _| {
        let params = HadarParams::read(params)?;
        Ok(Box::new(Hadar::new(params)))
    },
    ..PolicyInfo::BASE
}];
