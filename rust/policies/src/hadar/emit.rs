//! From GPUs per server to slots, and from the whole allocation to the actions that differ from the present one.

use super::find::Chosen;
use gangline_engine::{ClusterView, Plan};
use gangline_model::{GpuSet, JobId, ServerId, gpus_in, mask_of_lowest};
use std::collections::BTreeMap;

/// Fills the plan: preemptions, then starts and moves in order of the queue. A job that keeps its number of GPUs on a
/// server keeps its slots there; the others get the lowest free ones.
pub(super) fn emit(view: &ClusterView<'_>, plan: &mut Plan<'_>, chosen: &[Chosen]) {
    let next: BTreeMap<JobId, &Chosen> = chosen.iter().map(|one| (one.rank.job, one)).collect();
    let mut free: BTreeMap<ServerId, u64> = BTreeMap::new();
    for run in view.running().filter_map(|job| view.run(job)) {
        let kept = next.get(&run.job).map(|one| &one.offer.places);
        for one in run.gpus().by_server() {
            let same = (one.server.0, gpus_in(one.mask));
            if !kept.is_some_and(|places| places.contains(&same)) {
                let mask = free.entry(one.server);
                *mask.or_insert_with(|| view.free_mask(one.server)) |= one.mask;
            }
        }
        if kept.is_none() {
            plan.preempt(run.job);
        }
    }
    for one in chosen {
        let held = view.run(one.rank.job).map(gangline_engine::Run::gpus);
        let mut gpus = GpuSet::new();
        for &(server, count) in &one.offer.places {
            let server = ServerId(server);
            let before = held.map_or(0, |held| held.mask_on(server));
            if gpus_in(before) == count {
                gpus.insert(server, before);
                continue;
            }
            let free = free.entry(server).or_insert_with(|| view.free_mask(server));
            let mask = mask_of_lowest(*free, count);
            *free &= !mask;
            gpus.insert(server, mask);
        }
        match held {
            None => plan.start(one.rank.job, gpus),
            Some(held) if *held == gpus => {}
            Some(_) => plan.move_to(one.rank.job, gpus),
        }
    }
}
