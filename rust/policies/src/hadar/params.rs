//! Settings of Hadar, read from parameters.

use crate::params::ParamReader;
use gangline_engine::PolicyError;
use gangline_model::SimSpan;
use gangline_model::words;

words! {
    /// Definition of `A` in the utility `U = A / d`, where `d` is the completion time.
    pub(crate) enum Utility {
        /// A is the work: the utility is the mean number of iterations per second.
        EffectiveThroughput = "effective_throughput",
        /// A is the shortest isolated time.
        Normalised = "normalised",
        /// A is 1.
        InverseJct = "inverse_jct",
        /// A is the isolated time on a fair share of the cluster, fixed when the job arrives.
        FinishTimeFairness = "ftf",
        /// A is defined as in `Normalised`, but the job with the longest remaining time always comes first.
        Makespan = "makespan",
    }
}

words! {
    /// Order in which decisions examine jobs.
    pub(crate) enum Order {
        /// The oldest job comes first.
        Arrival = "arrival",
        /// The job with the largest utility per GPU comes first.
        Density = "density",
        /// The job with the shortest remaining time on its fastest type comes first.
        ShortestRemaining = "srtf",
    }
}

words! {
    /// Method by which the dual subroutine chooses the jobs that get GPUs.
    pub(crate) enum Tier {
        /// The search compares every choice of jobs.
        Exact = "exact",
        /// The search keeps the best few states after each job.
        Beam = "beam",
        /// The search takes every job with a payoff above 0.
        Greedy = "greedy",
    }
}

words! {
    /// The number of rounds for which a job pays the price of its GPUs.
    pub(crate) enum CostHorizon {
        /// One round.
        Round = "round",
        /// All rounds that the job still needs.
        Remaining = "remaining",
    }
}

words! {
    /// Rule that chooses among servers with room for a whole gang.
    pub(crate) enum Pick {
        /// The server with the lowest price.
        Cheapest = "cheapest",
        /// The server with the fewest free GPUs.
        BestFit = "best_fit",
    }
}

words! {
    /// Criterion by which the best place of a job is chosen.
    pub(crate) enum Objective {
        /// The place with the largest payoff.
        MaxPayoff = "max_payoff",
        /// The cheapest place.
        MinCost = "min_cost",
    }
}

words! {
    /// The rounds in which the policy decides.
    pub(crate) enum Replan {
        /// Every round in which the plan might change.
        Round = "round",
        /// Every round that follows an arrival, a completion or a change of capacity.
        Event = "event",
    }
}

/// Sort key of the queue; ties go to the earlier arrival, then to the lower index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sorting {
    /// Arrival, earliest first.
    Arrival,
    /// Utility per GPU, largest first, then the larger gang.
    Density,
    /// Remaining time on the fastest type, shortest first.
    ShortestRemaining,
    /// Remaining time on the fastest type, longest first.
    LongestRemaining,
}

/// All settings of Hadar.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a separate parameter"
)]
#[derive(Clone, Debug, PartialEq)]
pub struct HadarParams {
    /// Name of the policy, for messages.
    pub(crate) policy: String,
    /// Length of a round.
    pub(crate) round: SimSpan,
    /// Utility of a completion time.
    pub(crate) utility: Utility,
    /// Order of the queue.
    pub(crate) order: Order,
    /// Search method of the dual subroutine.
    pub(crate) tier: Tier,
    /// Number of states that `Tier::Beam` keeps.
    pub(crate) beam_width: usize,
    /// Whether jobs without a payoff may use GPUs that would stay idle.
    pub(crate) backfill: bool,
    /// The number of rounds for which a job pays the price of its GPUs.
    pub(crate) cost_horizon: CostHorizon,
    /// Factor by which the lowest price is multiplied.
    pub(crate) umin_factor: f64,
    /// Fixed horizon; `None` means that epochs are used instead.
    pub(crate) horizon: Option<SimSpan>,
    /// Share of the cost that is added if a gang uses several servers.
    pub(crate) spread_surcharge: f64,
    /// Whether a gang may use several GPU types.
    pub(crate) mix_types: bool,
    /// Rule that chooses among servers with room for a whole gang.
    pub(crate) pick: Pick,
    /// Criterion by which the best place of a job is chosen.
    pub(crate) objective: Objective,
    /// The rounds in which the policy decides.
    pub(crate) replan: Replan,
    /// Whether a place within a single rack is considered as a further candidate.
    pub(crate) rack_aware: bool,
    /// Whether a job stays in its place if it would not be faster elsewhere.
    pub(crate) stay: bool,
    /// Maximum number of active jobs with `Tier::Exact`.
    pub(crate) exact_max_jobs: usize,
    /// Maximum number of jobs that a pass may reject because of the price.
    pub(crate) scan_limit: Option<usize>,
}

/// Parameters that the price bounds depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'a> {
    pub(crate) policy: &'a str,
    pub(crate) round: SimSpan,
    pub(crate) umin_factor: f64,
    pub(crate) horizon: Option<SimSpan>,
}

impl HadarParams {
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

    pub(super) fn sorting(&self) -> Sorting {
        match (self.utility, self.order) {
            (Utility::Makespan, _) => Sorting::LongestRemaining,
            (_, Order::Arrival) => Sorting::Arrival,
            (_, Order::Density) => Sorting::Density,
            (_, Order::ShortestRemaining) => Sorting::ShortestRemaining,
        }
    }
}
