//! One pass over the queue: every job that passes takes its best place at once.

use super::Chosen;
use super::facts::Facts;
use super::find::{Finder, Goal, Live};
use super::queue::Merge;
use super::servers::Servers;
use gangline_engine::PolicyError;
use gangline_model::JobId;
use std::collections::{BTreeMap, BTreeSet};

/// Looks at jobs in order until no GPU is free; what is chosen is taken from the servers. Without a gate in the
/// backfill pass, [`Goal::Utility`], which leaves out the jobs that the first one took.
pub(super) fn pass(
    finder: &Finder<'_>,
    servers: &mut Servers,
    mut queue: Merge<'_>,
    active: &BTreeMap<JobId, Facts>,
    taken: &BTreeSet<JobId>,
    goal: Goal,
) -> Result<Vec<Chosen>, PolicyError> {
    let mut chosen = Vec::new();
    let mut rejected = 0;
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
            rejected += 1;
            if finder
                .params
                .scan_limit
                .is_some_and(|most| rejected >= most)
            {
                break;
            }
            continue;
        }
        servers.take_all(&offer.places);
        chosen.push(Chosen { rank, offer });
    }
    Ok(chosen)
}
