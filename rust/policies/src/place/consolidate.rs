//! `consolidate`: one server, otherwise one rack, otherwise several racks. With `fewest_servers`, the rule checks racks
//! one by one.

use super::{Fit, Level, Pick, PlacementParams, RackChoice};
use gangline_engine::{FreeIndex, TypePool};
use gangline_model::GpuTypeId;
use smallvec::SmallVec;

/// Applies the steps of the rule in order. A wider tier is used only if no narrower tier has room.
pub(super) fn place(
    params: &PlacementParams,
    free: &mut FreeIndex,
    gpu_type: GpuTypeId,
    (gpus, level): (u32, Level),
    picks: &mut Vec<Pick>,
) -> bool {
    if at_level(params, free, gpu_type, (gpus, Level::Server), picks) {
        return true;
    }
    if level == Level::Network && free.pool(gpu_type).free_total() == gpus {
        // The gang needs all free GPUs, so there is no choice.
        picks.extend(all_free(free.pool(gpu_type)));
        return true;
    }
    let mut wider = [Level::Rack, Level::Network].into_iter();
    wider.any(|tier| tier <= level && at_level(params, free, gpu_type, (gpus, tier), picks))
}

/// Returns all free GPUs.
fn all_free(pool: &TypePool) -> impl Iterator<Item = Pick> {
    let servers = pool.all_servers().descending();
    servers.map(|(at, gpus)| Pick { at, gpus })
}

/// Applies a single step of the rule, independently of the other steps.
pub(crate) fn at_level(
    params: &PlacementParams,
    free: &mut FreeIndex,
    gpu_type: GpuTypeId,
    (gpus, level): (u32, Level),
    picks: &mut Vec<Pick>,
) -> bool {
    let pool = free.pool_mut(gpu_type);
    match level {
        Level::Server => {
            let found = server(params.fit, pool, gpus);
            picks.extend(found.map(|at| Pick { at, gpus }));
            found.is_some()
        }
        Level::Rack => {
            let found = rack(params, pool, gpus, &[]);
            if let Some(rack) = found {
                fill(params.fit, pool, rack, gpus, picks);
            }
            found.is_some()
        }
        Level::Network if pool.free_total() < gpus => false,
        Level::Network => {
            network(params, pool, gpus, picks);
            true
        }
    }
}

/// Returns the server that the fit rule prefers among those with room.
pub(crate) fn server(fit: Fit, pool: &mut TypePool, gpus: u32) -> Option<usize> {
    match fit {
        Fit::Best => pool.best_fit(gpus),
        Fit::First => pool.first_fit(gpus),
    }
}

/// Returns the rack that the parameters prefer, among those that have room and are not in `taken`.
pub(crate) fn rack(
    params: &PlacementParams,
    pool: &mut TypePool,
    gpus: u32,
    taken: &[usize],
) -> Option<usize> {
    match (params.fit, params.rack_choice) {
        (Fit::First, _) => {
            let mut next = pool.rack_first_fit(gpus, 0);
            while let Some(rack) = next.filter(|rack| taken.contains(rack)) {
                next = pool.rack_first_fit(gpus, rack + 1);
            }
            next
        }
        (Fit::Best, RackChoice::BestFit) => fuller_rack(pool, gpus, None, taken),
        (Fit::Best, RackChoice::FewestServers) => rack_of_fewest_servers(pool, gpus, taken),
    }
}

/// Returns the first rack after `previous` that has room and is not in `taken`, in order of free GPUs, then index. If
/// `previous` is `None`, the search starts with the first rack.
fn fuller_rack(
    pool: &mut TypePool,
    gpus: u32,
    previous: Option<usize>,
    taken: &[usize],
) -> Option<usize> {
    let mut next = match previous {
        None => pool.rack_best_fit(gpus),
        Some(rack) => pool.rack_after(rack),
    };
    while let Some(rack) = next.filter(|rack| taken.contains(rack)) {
        next = pool.rack_after(rack);
    }
    next
}

/// Checks racks with room until it finds one that no other rack can beat; in the worst case, it checks all of them.
fn rack_of_fewest_servers(pool: &mut TypePool, gpus: u32, taken: &[usize]) -> Option<usize> {
    let least = gpus.div_ceil(pool.server_gpus_max().max(1)) as usize;
    let mut best: Option<(usize, usize)> = None;
    let mut next = fuller_rack(pool, gpus, None, taken);
    while let Some(rack) = next {
        let limit = best.map_or(usize::MAX, |(servers, _)| servers);
        let servers = servers_of_fill(pool, rack, gpus, limit);
        if servers < limit {
            best = Some((servers, rack));
        }
        if servers <= least {
            break;
        }
        next = fuller_rack(pool, gpus, Some(rack), taken);
    }
    best.map(|(_, rack)| rack)
}

/// Returns the number of servers that the gang would use if it filled the rack by best fit, capped at `limit`.
pub(super) fn servers_of_fill(pool: &mut TypePool, rack: usize, gpus: u32, limit: usize) -> usize {
    let mut rest = gpus;
    let mut servers = 0;
    for (_, free) in pool.rack_servers(rack).descending() {
        servers += 1;
        if servers >= limit {
            return limit;
        }
        if rest <= free {
            return servers;
        }
        rest -= free;
    }
    limit
}

/// Takes `gpus` GPUs in a rack that has at least that many free GPUs. With best fit, the servers with the most free
/// GPUs come first, so that the gang uses the fewest servers. The rest goes to the server where it fits best. With
/// first fit, servers are taken in index order.
pub(crate) fn fill(fit: Fit, pool: &mut TypePool, rack: usize, gpus: u32, picks: &mut Vec<Pick>) {
    let servers = pool.rack_servers(rack);
    let mut rest = gpus;
    if fit == Fit::First {
        for (at, free) in servers.at_least(1) {
            picks.push(Pick {
                at,
                gpus: rest.min(free),
            });
            rest -= rest.min(free);
            if rest == 0 {
                return;
            }
        }
    }
    for (at, free) in servers.descending() {
        if rest >= free {
            picks.push(Pick { at, gpus: free });
            rest -= free;
        } else {
            // Servers are taken in descending order of free GPUs, so those with fewer than `free` are all available.
            // Among equal servers, the first one is chosen.
            let best = servers
                .best_fit(rest)
                .filter(|&(_, smaller)| smaller < free);
            picks.push(Pick {
                at: best.map_or(at, |(at, _)| at),
                gpus: rest,
            });
            rest = 0;
        }
        if rest == 0 {
            return;
        }
    }
    unreachable!("the rack has {gpus} free GPUs");
}

/// Takes whole racks, starting with the most free GPUs, as long as the gang needs all free GPUs of a rack. The rest of
/// the gang is placed as if the cluster did not have these racks.
fn network(params: &PlacementParams, pool: &mut TypePool, gpus: u32, picks: &mut Vec<Pick>) {
    let mut rest = gpus;
    let mut taken: SmallVec<[usize; 16]> = SmallVec::new();
    let mut next = match params.fit {
        Fit::Best => pool.rack_most_free().map(|(rack, _)| rack),
        Fit::First => pool.rack_first_fit(1, 0),
    };
    loop {
        let rack = next.expect("enough GPUs are free");
        let rack_free = pool.rack_free(rack);
        if rest < rack_free {
            break;
        }
        taken.push(rack);
        rest -= rack_free;
        if rest == 0 {
            break;
        }
        next = match params.fit {
            Fit::Best => pool.rack_emptier(rack),
            Fit::First => pool.rack_first_fit(1, rack + 1),
        };
    }
    taken.sort_unstable();
    pick_racks(pool, gpus, &taken, picks);
    if rest == 0 {
        return;
    }
    if let Some(at) = server_outside(params.fit, pool, rest, &taken) {
        picks.push(Pick { at, gpus: rest });
    } else {
        let rack = rack(params, pool, rest, &taken)
            .expect("this rack has more free GPUs than the rest of the gang needs");
        fill(params.fit, pool, rack, rest, picks);
    }
}

/// Picks all free GPUs of the given racks, which must be sorted. The picks may be in any order, because they are sorted
/// later.
fn pick_racks(pool: &mut TypePool, gpus: u32, racks: &[usize], picks: &mut Vec<Pick>) {
    if pool.free_total() <= 2 * gpus {
        // Few servers have free GPUs, so scanning all of them costs less than one query per rack.
        picks.extend(
            all_free(pool).filter(|pick| racks.binary_search(&pool.rack_of(pick.at)).is_ok()),
        );
        return;
    }
    for &rack in racks {
        let servers = pool.rack_servers(rack).descending();
        picks.extend(servers.map(|(at, gpus)| Pick { at, gpus }));
    }
}

/// Works like [`server`], but ignores the servers in the given racks, which must be sorted. The search only has to skip
/// servers that the gang already uses.
fn server_outside(fit: Fit, pool: &TypePool, gpus: u32, taken: &[usize]) -> Option<usize> {
    let servers = pool.all_servers();
    let is_outside = |at: &usize| taken.binary_search(&pool.rack_of(*at)).is_err();
    match fit {
        Fit::Best => {
            (gpus..=servers.free_max()).find_map(|free| servers.with_free(free).find(is_outside))
        }
        Fit::First => servers.at_least(gpus).map(|(at, _)| at).find(is_outside),
    }
}

/// Picks all free GPUs of a rack and removes them from the free index.
pub(crate) fn take_rack(
    free: &mut FreeIndex,
    gpu_type: GpuTypeId,
    rack: usize,
    picks: &mut Vec<Pick>,
) {
    let first = picks.len();
    let taken = free.pool_mut(gpu_type).rack_servers(rack).at_least(1);
    picks.extend(taken.map(|(at, gpus)| Pick { at, gpus }));
    for pick in &picks[first..] {
        free.set_free_mask(free.pool(gpu_type).server(pick.at), 0);
    }
}
