//! `skew`: the fewest possible servers for models with one dominant tensor.

use super::consolidate::{fill, server, servers_of_fill, take_rack};
use super::{Fit, Pick};
use gangline_engine::{FreeIndex, TypePool};
use gangline_model::GpuTypeId;
use std::cmp::Reverse;

/// Model families that, according to the public simulator, have no dominant tensor; all other models count as highly
/// skewed.
const LOW: [&str; 2] = ["resnet", "bert"];

/// Returns whether a model with this name counts as highly skewed.
pub(super) fn is_high(model: &str) -> bool {
    !LOW.iter().any(|low| {
        model
            .as_bytes()
            .get(..low.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(low.as_bytes()))
    })
}

/// Applies the rule for a highly skewed gang to a pool with at least `gpus` free GPUs.
pub(super) fn place_high(
    fit: Fit,
    free: &mut FreeIndex,
    gpu_type: GpuTypeId,
    gpus: u32,
    picks: &mut Vec<Pick>,
) -> bool {
    if gpus <= free.pool(gpu_type).rack_up_max() {
        return inside_a_rack(fit, free, gpu_type, gpus, picks);
    }
    let pool = free.pool(gpu_type);
    // Takes completely free racks, largest first, as long as the gang needs a whole rack. Gangs of this size are rare,
    // so the racks may be sorted each time.
    let mut racks: Vec<usize> = (0..pool.racks()).collect();
    racks.sort_by_key(|&rack| (Reverse(pool.rack_up(rack)), rack));
    let mark = free.mark();
    let mut rest = gpus;
    for rack in racks {
        let pool = free.pool_mut(gpu_type);
        let size = pool.rack_up(rack);
        if size == 0 || pool.rack_free(rack) < size {
            continue;
        }
        if size > rest {
            break;
        }
        take_rack(free, gpu_type, rack, picks);
        rest -= size;
    }
    let found = rest == 0 || inside_a_rack(fit, free, gpu_type, rest, picks);
    free.rollback(mark);
    found
}

/// Returns GPUs on one server if the gang is no larger than the largest server, otherwise on the fewest servers in one
/// rack. In the worst case, the search checks all racks with room.
fn inside_a_rack(
    fit: Fit,
    free: &mut FreeIndex,
    gpu_type: GpuTypeId,
    gpus: u32,
    picks: &mut Vec<Pick>,
) -> bool {
    let pool = free.pool_mut(gpu_type);
    let size = pool.server_gpus_max();
    if gpus <= size {
        let found = server(fit, pool, gpus);
        picks.extend(found.map(|at| Pick { at, gpus }));
        return found.is_some();
    }
    let servers = gpus.div_ceil(size) as usize;
    let following = |pool: &mut TypePool, rack: Option<usize>| match (fit, rack) {
        (Fit::Best, None) => pool.rack_best_fit(gpus),
        (Fit::Best, Some(rack)) => pool.rack_after(rack),
        (Fit::First, rack) => pool.rack_first_fit(gpus, rack.map_or(0, |rack| rack + 1)),
    };
    let mut next = following(pool, None);
    while let Some(rack) = next {
        if servers_of_fill(pool, rack, gpus, servers + 1) == servers {
            fill(Fit::Best, pool, rack, gpus, picks);
            return true;
        }
        next = following(pool, Some(rack));
    }
    false
}
