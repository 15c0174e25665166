//! Parameters of the Pollux-style policy.

use crate::params::ParamReader;
use gangline_engine::PolicyError;
use gangline_model::SimSpan;
use gangline_model::words;

words! {
    /// Which batch a job gets.
    pub(crate) enum Batch {
        /// The one of the largest goodput on its GPUs.
        Best = "best",
        /// That of the trace.
        Traced = "traced",
    }
}

words! {
    /// How placements are searched.
    pub(crate) enum SearchKind {
        /// Counts by gain per GPU, then moves from job to job.
        Greedy = "greedy",
        /// A genetic search over all placements.
        Ga = "ga",
    }
}

/// Sizes of the search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GeneticParams {
    /// Most jobs x servers.
    pub cells_max: usize,
    /// Candidates that live on.
    pub population: usize,
    /// Rounds of children.
    pub generations: usize,
}

/// What can be set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PolluxParams {
    /// Time between two decisions.
    pub period: SimSpan,
    /// What a change of its GPUs is assumed to cost a job.
    pub phi_delay: SimSpan,
    /// Exponent of the mean over jobs.
    pub fairness_p: f64,
    /// Whether a server takes part in one job over several servers at most.
    pub avoid_interference: bool,
    /// Most GPUs of a job.
    pub max_gpus_per_job: u32,
    /// Most GPUs of a job, relative to the most that it ever had.
    pub growth: f64,
    /// Most moves of the local search; `None` = two per job.
    pub ls_moves: Option<usize>,
    /// Which batch a job gets.
    pub batch: Batch,
    /// How placements are searched.
    pub search: SearchKind,
    /// Sizes of the genetic search.
    pub ga: GeneticParams,
}

impl PolluxParams {
    /// Reads them.
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
            search: params.choice("search", SearchKind::named),
            ga: GeneticParams {
                cells_max: params.number("ga_max_cells") as usize,
                population: params.number("ga_population") as usize,
                generations: params.number("ga_generations") as usize,
            },
        })
    }
}
