//! Which mechanisms a run has: decided once, when it is set up.

use crate::config::{RunConfig, World};
use crate::traits::PolicyTraits;
use gangline_model::SimSpan;

/// What can happen in a run.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a mechanism of its own"
)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Features {
    /// Most jobs on one GPU.
    pub(crate) max_share: u32,
    /// GPUs may hold several jobs.
    pub(crate) shares: bool,
    /// Jobs may hold several parts.
    pub(crate) forks: bool,
    /// Gangs may change their size. Where jobs are forked they do not: then they are as the trace has them.
    pub(crate) resizes: bool,
    /// Distance slows gangs down.
    pub(crate) has_distance: bool,
    /// Every start costs time, or some do.
    pub(crate) starts_cost: bool,
    /// A job slows its co-runners down only from the end of its overhead on, so that this end is an event.
    pub(crate) starts_quietly: bool,
    /// Parts have details: co-runners, or the segments table.
    pub(crate) has_details: bool,
    /// Each job goes at its best rate from the instant of its start to its end: nothing slows a job, no start costs
    /// time.
    pub(crate) is_undisturbed: bool,
}

impl Features {
    /// Those of a run.
    pub(crate) fn of(world: &World, config: &RunConfig, traits: &PolicyTraits) -> Self {
        let max_share = config.max_share.min(traits.max_share).max(1);
        let shares = max_share > 1;
        let resizes = world.rates.elastic().is_some() && !traits.forks;
        let has_distance = config.locality.is_some();
        let starts_cost = config.restart != SimSpan::ZERO
            || config.first_start != SimSpan::ZERO
            || config.restart_by_model.is_some()
            || traits.restart_per_gpu != SimSpan::ZERO;
        let has_one_type = world.cluster.gpu_types().len() == 1;
        Self {
            max_share,
            shares,
            forks: traits.forks,
            resizes,
            has_distance,
            starts_cost,
            starts_quietly: shares && !config.overhead_interferes,
            has_details: shares || config.segments,
            is_undisturbed: has_one_type && !(shares || has_distance || resizes || starts_cost),
        }
    }
}
