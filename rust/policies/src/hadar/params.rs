//! Settings of Hadar, read from parameters.

use crate::params::ParamReader;
use gangline_engine::PolicyError;
use gangline_model::SimSpan;
use gangline_model::words;

words! {
    /// What a completion time is worth: `U = A / d`, and this says what A is.
    pub(crate) enum Utility {
        /// A = work: mean iterations per second.
        EffectiveThroughput = "effective_throughput",
        /// A = the shortest isolated time.
        Normalised = "normalised",
        /// A = 1.
        InverseJct = "inverse_jct",
        /// A = isolated time on a fair share, fixed at the arrival.
        FinishTimeFairness = "ftf",
        /// As `Normalised`, with the longest remaining time first whatever the order.
        Makespan = "makespan",
    }
}

words! {
    /// Which job is looked at first.
    pub(crate) enum Order {
        /// The oldest.
        Arrival = "arrival",
        /// The one with the largest utility per GPU.
        Density = "density",
        /// The one with the shortest remaining time on its fastest type.
        ShortestRemaining = "srtf",
    }
}

words! {
    /// How the dual subroutine searches for the jobs to take.
    pub(crate) enum Tier {
        /// Every choice of jobs.
        Exact = "exact",
        /// The best few states after each job.
        Beam = "beam",
        /// Every job with a payoff above 0.
        Greedy = "greedy",
    }
}

words! {
    /// For how long a job pays.
    pub(crate) enum CostHorizon {
        /// One round.
        Round = "round",
        /// All the rounds that it has left.
        Remaining = "remaining",
    }
}

words! {
    /// Which server with room for a whole gang.
    pub(crate) enum Pick {
        /// The one with the lowest price.
        Cheapest = "cheapest",
        /// The one with the fewest free GPUs.
        BestFit = "best_fit",
    }
}

words! {
    /// Which place of a job is best.
    pub(crate) enum Objective {
        /// The one with the largest payoff.
        MaxPayoff = "max_payoff",
        /// The cheapest.
        MinCost = "min_cost",
    }
}

words! {
    /// When it decides.
    pub(crate) enum Replan {
        /// In every round in which the plan may change.
        Round = "round",
        /// In rounds after an arrival, a completion or a change of capacity.
        Event = "event",
    }
}

/// By what the queue is sorted; then by arrival, index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sorting {
    /// Nothing else.
    Arrival,
    /// Utility per GPU, largest first, then the larger gang.
    Density,
    /// Remaining time on the fastest type, shortest first.
    ShortestRemaining,
    /// Remaining time on the fastest type, longest first.
    LongestRemaining,
}

/// Everything that Hadar can be told.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a parameter of its own"
)]
#[derive(Clone, Debug)]
pub(crate) struct HadarParams {
    /// The name it goes by in messages.
    pub policy: String,
    /// Length of a round.
    pub round: SimSpan,
    /// Utility of a completion time.
    pub utility: Utility,
    /// Order of the queue.
    pub order: Order,
    /// Search of the dual subroutine.
    pub tier: Tier,
    /// States kept by `Tier::Beam`.
    pub beam_width: usize,
    /// Whether jobs without a payoff may use GPUs that would stay idle.
    pub backfill: bool,
    /// For how long a job pays.
    pub cost_horizon: CostHorizon,
    /// Factor of the lowest price.
    pub umin_factor: f64,
    /// Fixed horizon; `None` = epochs.
    pub horizon: Option<SimSpan>,
    /// Share of the cost added when a gang uses several servers.
    pub spread_surcharge: f64,
    /// Whether a gang may lie on several GPU types.
    pub mix_types: bool,
    /// Which server with room for a whole gang.
    pub pick: Pick,
    /// Which place of a job is best.
    pub objective: Objective,
    /// When it decides.
    pub replan: Replan,
    /// Whether one more candidate lies in a single rack.
    pub rack_aware: bool,
    /// Whether a job that would not be faster elsewhere stays.
    pub stay: bool,
    /// Most active jobs with `Tier::Exact`.
    pub exact_max_jobs: usize,
    /// Most gate rejections in a pass.
    pub scan_limit: Option<usize>,
}

/// Parameters of the bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'a> {
    pub(crate) policy: &'a str,
    pub(crate) round: SimSpan,
    pub(crate) umin_factor: f64,
    pub(crate) horizon: Option<SimSpan>,
}

impl HadarParams {
    /// Reads them.
    pub(crate) fn read(params: &ParamReader) -> Result<Self, PolicyError> {
        let limit = params.number("scan_limit");
        Ok(Self {
            policy: params.policy().to_owned(),
            round: params.period("round_s")?,
            utility: params.choice("utility", Utility::named),
            order: params.choice("order", Order::named),
            tier: params.choice("tier", Tier::named),
            beam_width: params.number("beam_width") as usize,
            backfill: params.flag("backfill"),
            cost_horizon: params.choice("cost_horizon", CostHorizon::named),
            umin_factor: params.number("umin_factor"),
            horizon: params.maybe_span("horizon_s")?,
            spread_surcharge: params.number("spread_surcharge"),
            mix_types: params.flag("mix_types"),
            pick: params.choice("pick", Pick::named),
            objective: params.choice("objective", Objective::named),
            replan: params.choice("replan", Replan::named),
            rack_aware: params.flag("rack_aware"),
            stay: params.flag("stay"),
            exact_max_jobs: params.number("exact_max_jobs") as usize,
            scan_limit: (limit > 0.0).then_some(limit as usize),
        })
    }

    pub(super) fn terms(&self) -> Terms<'_> {
        Terms {
            policy: &self.policy,
            round: self.round,
            umin_factor: self.umin_factor,
            horizon: self.horizon,
        }
    }

    /// By what the queue is sorted.
    pub(super) fn sorting(&self) -> Sorting {
        match (self.utility, self.order) {
            (Utility::Makespan, _) => Sorting::LongestRemaining,
            (_, Order::Arrival) => Sorting::Arrival,
            (_, Order::Density) => Sorting::Density,
            (_, Order::ShortestRemaining) => Sorting::ShortestRemaining,
        }
    }
}
