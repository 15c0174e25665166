//! The mechanisms that a run uses; they are determined once at its start.

use crate::config::{RunConfig, World};
use crate::traits::PolicyTraits;
use gangline_model::SimSpan;

#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a separate mechanism"
)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Features {
    /// Maximum number of jobs on one GPU.
    pub(crate) max_share: u32,
    /// Whether GPUs may hold several jobs.
    pub(crate) shares: bool,
    /// Whether jobs may have several parts.
    pub(crate) forks: bool,
    /// Whether gangs may change their size. If jobs can be forked, gangs keep the size that the trace gives.
    pub(crate) resizes: bool,
    /// Whether the rates of jobs change with their progress, as they do for elastic jobs and for jobs with phases. If
    /// jobs can be forked, no rate changes in this way.
    pub(crate) has_knots: bool,
    /// Whether distance slows gangs down.
    pub(crate) has_distance: bool,
    /// Whether starts can cost time.
    pub(crate) starts_cost: bool,
    /// Whether a job slows its co-runners down only after its overhead. If so, the end of the overhead is an event.
    pub(crate) starts_quietly: bool,
    /// Whether the run has a `[runtime]` table. Gangs then deviate from the rates that policies know, and the costs of
    /// starts, stops and checkpoints depend on the kind of job.
    pub(crate) has_run_time: bool,
    /// Whether parts have details. Details are needed for co-runners, for rates that policies do not know, and for the
    /// segments table.
    pub(crate) has_details: bool,
    /// Whether each job runs at its best rate from its start to its end: nothing slows a job, and starts cost no
    /// time.
    pub(crate) is_undisturbed: bool,
}

impl Features {
    pub(crate) fn of(world: &World, config: &RunConfig, traits: &PolicyTraits) -> Self {
        let max_share = config.max_share.min(traits.max_share).max(1);
        let shares = max_share > 1;
        let resizes = world.rates.elastic().is_some() && !traits.forks;
        let has_knots = resizes || (world.rates.phases().is_some() && !traits.forks);
        let has_distance = config.locality.is_some();
        let has_run_time = config.run_time.is_some();
        let starts_cost = has_run_time
            || config.restart != SimSpan::ZERO
            || config.first_start != SimSpan::ZERO
            || config.restart_by_model.is_some()
            || traits.restart_per_gpu != SimSpan::ZERO;
        let has_one_type = world.cluster.gpu_types().len() == 1;
        Self {
            max_share,
            shares,
            forks: traits.forks,
            resizes,
            has_knots,
            has_distance,
            starts_cost,
            starts_quietly: shares && !config.overhead_interferes,
            has_run_time,
            has_details: shares || config.segments || has_run_time,
            is_undisturbed: has_one_type && !(shares || has_distance || has_knots || starts_cost),
        }
    }
}
