//! Rules that do not keep a gang together: `spread`, `random`, `random_server`, `count`.

use super::{Demand, Pick};
use gangline_engine::{FreeIndex, TypePool};
use gangline_model::{GpuSet, GpuTypeId, mask_of_lowest};
use gangline_rng::Stream;

/// The key for a job's random draws.
pub(super) struct Key<'a> {
    pub(super) draws: Stream,
    pub(super) demand: &'a Demand,
}

impl Key<'_> {
    fn below(&self, n: u32, counter: u32) -> u32 {
        let draw = self
            .draws
            .draw(u64::from(self.demand.job.0), self.demand.starts, counter);
        draw.below(u64::from(n)) as u32
    }
}

/// Takes GPUs in sweeps over the servers, one GPU from each server per sweep. The servers with the most free GPUs come
/// first. The pool must have at least `gpus` free GPUs.
///
/// In sweep `j`, every server that began with at least `j` free GPUs gives one. The servers keep the order of the first
/// sweep, because each of them has given the same number of GPUs so far. A server therefore gives one GPU in each
/// complete sweep in which it takes part. In the last, incomplete sweep, only the first servers give one more.
pub(super) fn spread(pool: &TypePool, gpus: u32, picks: &mut Vec<Pick>) -> bool {
    let mut rest = gpus;
    let mut sweeps = 0;
    loop {
        let joining = pool.count_at_least(sweeps + 1);
        if joining == 0 || rest < joining {
            break;
        }
        rest -= joining;
        sweeps += 1;
    }
    for (at, free) in pool.all_servers().descending() {
        let more = u32::from(rest > 0 && free > sweeps);
        rest -= more;
        let gpus = free.min(sweeps) + more;
        if gpus == 0 {
            break;
        }
        picks.push(Pick { at, gpus });
    }
    true
}

/// Returns random free GPUs. Draw `i` picks one of the GPUs that are still free, in (server, slot) order. The pool must
/// have enough free GPUs.
pub(super) fn random(free: &mut FreeIndex, gpu_type: GpuTypeId, key: &Key<'_>) -> GpuSet {
    let mark = free.mark();
    let mut drawn: Vec<_> = (0..key.demand.gpus)
        .map(|counter| {
            let pool = free.pool_mut(gpu_type);
            let index = key.below(pool.free_total(), counter);
            let (at, before) = pool.nth_free(index).expect("the draw is below the total");
            let (server, slots) = (pool.server(at), pool.mask(at));
            let slot = mask_of_lowest(slots, before + 1) & !mask_of_lowest(slots, before);
            free.set_free_mask(server, slots & !slot);
            (server, slot)
        })
        .collect();
    free.rollback(mark);
    drawn.sort_unstable();
    drawn.into_iter().collect()
}

/// Returns a random server with room for the whole gang.
pub(super) fn random_server(pool: &mut TypePool, key: &Key<'_>) -> Option<usize> {
    let servers = pool.count_at_least(key.demand.gpus);
    if servers == 0 {
        return None;
    }
    pool.nth_at_least(key.demand.gpus, key.below(servers, 0))
}

/// Returns the lowest free GPUs in (server, slot) order. The pool must have enough free GPUs.
pub(super) fn count(pool: &mut TypePool, gpus: u32) -> GpuSet {
    let mut rest = gpus;
    let mut at = pool.next_free(0).expect("enough GPUs are free");
    let mut found = GpuSet::new();
    loop {
        let mask = mask_of_lowest(pool.mask(at), rest);
        found.insert(pool.server(at), mask);
        rest -= mask.count_ones();
        if rest == 0 {
            return found;
        }
        at = pool.next_free(at + 1).expect("enough GPUs are free");
    }
}
