//! One pass over the queue: every job that passes takes its best place at once.

use super::facts::Facts;
use super::find::{Chosen, Finder, Goal, Live};
use super::queue::Merge;
use super::rank::Rank;
use crate::kit::Servers;
use gangline_engine::PolicyError;
use gangline_model::JobId;
use std::collections::{BTreeMap, BTreeSet};

/// The jobs that a pass looked at and found worth no more than their GPUs cost.
#[derive(Debug, Default)]
pub(super) struct Rejected {
    /// With their utility in percent of the cost.
    pub(super) jobs: Vec<(JobId, u32)>,
    /// The job at which it gave up, if it looks at so many only.
    pub(super) last: Option<Rank>,
}

/// Looks at jobs in order until no GPU is free; what is chosen is taken from the servers. Without a gate in the
/// backfill pass, [`Goal::Utility`], which leaves out the jobs that the first one took.
pub(super) fn pass(
    finder: &Finder<'_>,
    servers: &mut Servers,
    mut queue: Merge<'_>,
    active: &BTreeMap<JobId, Facts>,
    taken: &BTreeSet<JobId>,
    goal: Goal,
    rejected: &mut Rejected,
) -> Result<Vec<Chosen>, PolicyError> {
    let mut chosen = Vec::new();
    while servers.free_total() > 0 {
        let Some(rank) = queue.next(|types, gpus| finder.fits(servers.free_by_type(), types, gpus))
        else {
            break;
        };
        let facts = &active[&rank.job];
        if taken.contains(&rank.job)
            || !finder.fits(servers.free_by_type(), facts.type_mask(), facts.gpus)
        {
            continue;
        }
        let live = Live::new(finder.view, rank.job)?;
        let Some(offer) = finder.find(servers, facts, &live, goal) else {
            continue;
        };
        if goal == Goal::Objective && offer.payoff <= 0.0 {
            rejected.jobs.push((rank.job, offer.percent()));
            let limit = finder.params.scan_limit;
            if limit.is_some_and(|most| rejected.jobs.len() >= most) {
                rejected.last = Some(rank);
                break;
            }
            continue;
        }
        servers.take_all(&offer.places);
        chosen.push(Chosen { rank, offer });
    }
    Ok(chosen)
}
