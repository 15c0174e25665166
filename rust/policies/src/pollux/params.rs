//! Parameters of the Pollux-style policy.

use crate::params::ParamReader;
use gangline_engine::PolicyError;
use gangline_model::SimSpan;
use gangline_model::words;

words! {
    /// Rule that chooses a job's batch.
    pub(crate) enum Batch {
        /// The batch with the largest goodput on its GPUs.
        Best = "best",
        /// The batch from the trace.
        Traced = "traced",
    }
}

words! {
    /// Search method.
    pub(crate) enum SearchKind {
        /// GPUs are assigned by gain per GPU, then moved from job to job.
        Greedy = "greedy",
        /// A genetic search over all placements.
        Ga = "ga",
    }
}

words! {
    /// Source of the policy's models of elastic jobs.
    pub(crate) enum Models {
        /// The true models of the jobs.
        Known = "known",
        /// Models that are fitted to the configurations with which the jobs have run.
        Learnt = "learnt",
    }
}

words! {
    /// Limit on an equal share.
    pub(crate) enum Share {
        /// An equal share is limited by the largest server and by the range of the job.
        Server = "server",
        /// There is no limit on an equal share.
        Cluster = "cluster",
    }
}

/// Size limits of the genetic search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GeneticParams {
    /// Maximum of the number of jobs times the number of servers.
    pub cells_max: usize,
    /// Number of candidates that survive each generation.
    pub population: usize,
    /// Number of generations in a decision.
    pub generations: usize,
}

/// All settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PolluxParams {
    /// Time between two decisions.
    pub period: SimSpan,
    /// Assumed cost of changing a job's GPUs.
    pub phi_delay: SimSpan,
    /// Exponent of the power mean over jobs.
    pub fairness_p: f64,
    /// Whether a server may hold at most one job that spans several servers.
    pub avoid_interference: bool,
    /// Maximum number of GPUs of a job.
    pub max_gpus_per_job: u32,
    /// Maximum number of GPUs of a job, relative to the largest number that it has had so far.
    pub growth: f64,
    /// Maximum number of moves of the local search; `None` means two per job.
    pub ls_moves: Option<usize>,
    /// Rule that chooses a job's batch.
    pub batch: Batch,
    /// Source of the policy's models of elastic jobs.
    pub models: Models,
    /// Limit on an equal share.
    pub share: Share,
    /// Whether the first start of a job counts as a change of its GPUs.
    pub first_start_counts: bool,
    /// Number that is added to every speed-up, so that a job without GPUs contributes a finite
    /// value.
    pub floor: f64,
    /// Search method.
    pub search: SearchKind,
    /// Size limits of the genetic search.
    pub ga: GeneticParams,
}

impl PolluxParams {
    pub(crate) fn read(params: &ParamReader) -> Result<Self, PolicyError> {
        let moves = params.number("ls_moves");
        Ok(Self {
            period: params.period("period_s")?,
            phi_delay: params.span("phi_delay_s")?,
            fairness_p: params.number("fairness_p"),
            avoid_interference: params.flag("avoid_interference"),
            max_gpus_per_job: params.number("max_gpus_per_job") as u32,
            growth: params.number("growth"),
            ls_moves: (moves > 0.0).then_some(moves as usize),
            batch: params.choice("batch", Batch::named),
            models: params.choice("models", Models::named),
            share: params.choice("share", Share::named),
            first_start_counts: params.flag("first_start_counts"),
            floor: params.number("floor"),
            search: params.choice("search", SearchKind::named),
            ga: GeneticParams {
                cells_max: params.number("ga_max_cells") as usize,
                population: params.number("ga_population") as usize,
                generations: params.number("ga_generations") as usize,
            },
        })
    }
}
