//! `consolidate`: one server, else one rack, else several racks.

use super::{Fit, Level, Pick, PlacementParams, RackChoice};
use gangline_engine::{FreeIndex, TypePool};
use gangline_model::GpuTypeId;

/// The steps of the rule in order; a wider tier only where no narrower one has room.
pub(super) fn place(
    params: &PlacementParams,
    free: &mut FreeIndex,
    gpu_type: GpuTypeId,
    (gpus, level): (u32, Level),
    picks: &mut Vec<Pick>,
) -> bool {
    let pool = free.pool_mut(gpu_type);
    if let Some(at) = server(params.fit, pool, gpus) {
        picks.push(Pick { at, gpus });
        return true;
    }
    if level == Level::Server {
        return false;
    }
    if let Some(rack) = rack(params, pool, gpus) {
        fill(params.fit, pool, rack, gpus, picks);
        return true;
    }
    if level == Level::Rack || pool.free_total() < gpus {
        return false;
    }
    // whole racks leave the scratch, so that the questions for the rest do not see them
    let mark = free.mark();
    network(params, free, gpu_type, gpus, picks);
    free.rollback(mark);
    true
}

/// The server with room that the fit prefers.
pub(super) fn server(fit: Fit, pool: &mut TypePool, gpus: u32) -> Option<usize> {
    match fit {
        Fit::Best => pool.best_fit(gpus),
        Fit::First => pool.first_fit(gpus),
    }
}

fn rack(params: &PlacementParams, pool: &mut TypePool, gpus: u32) -> Option<usize> {
    match (params.fit, params.rack_choice) {
        (Fit::First, _) => pool.rack_first_fit(gpus, 0),
        (Fit::Best, RackChoice::BestFit) => pool.rack_best_fit(gpus),
        (Fit::Best, RackChoice::FewestServers) => rack_of_fewest_servers(pool, gpus),
    }
}

/// Walks the racks with room, at most all of them, and stops at one where no rack could do better.
fn rack_of_fewest_servers(pool: &mut TypePool, gpus: u32) -> Option<usize> {
    let least = gpus.div_ceil(pool.server_gpus_max().max(1)) as usize;
    let mut best: Option<(usize, usize)> = None;
    let mut next = pool.rack_best_fit(gpus);
    while let Some(rack) = next {
        let limit = best.map_or(usize::MAX, |(servers, _)| servers);
        let servers = servers_of_fill(pool, rack, gpus, limit);
        if servers < limit {
            best = Some((servers, rack));
        }
        if servers <= least {
            break;
        }
        next = pool.rack_after(rack);
    }
    best.map(|(_, rack)| rack)
}

/// How many servers a best-fit fill of the rack takes, or `limit` if that many or more.
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

/// Takes `gpus` inside a rack that has as many free. Best: the fullest shares first, so that the
/// fewest servers are used, the rest on the server where it fits best. First: in index order.
pub(super) fn fill(fit: Fit, pool: &mut TypePool, rack: usize, gpus: u32, picks: &mut Vec<Pick>) {
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
            // a smaller server that is enough has not been taken yet; of equal ones this is the
            // first
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

fn network(
    params: &PlacementParams,
    free: &mut FreeIndex,
    gpu_type: GpuTypeId,
    gpus: u32,
    picks: &mut Vec<Pick>,
) {
    let mut rest = gpus;
    loop {
        let pool = free.pool_mut(gpu_type);
        let next = match params.fit {
            Fit::Best => pool.rack_most_free(),
            Fit::First => {
                let rack = pool.rack_first_fit(1, 0);
                rack.map(|rack| (rack, pool.rack_free(rack)))
            }
        };
        let (rack, rack_free) = next.expect("enough GPUs are free");
        if rest < rack_free {
            break;
        }
        take_rack(free, gpu_type, rack, picks);
        rest -= rack_free;
        if rest == 0 {
            return;
        }
    }
    let pool = free.pool_mut(gpu_type);
    if let Some(at) = server(params.fit, pool, rest) {
        picks.push(Pick { at, gpus: rest });
    } else {
        let rack = rack(params, pool, rest).expect("this rack has more than the rest");
        fill(params.fit, pool, rack, rest, picks);
    }
}

/// Picks all free GPUs of a rack and takes them out of the scratch.
pub(super) fn take_rack(
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
