//! Where a candidate finds room: level by level, first among unclaimed GPUs, then with claims.

use super::claims::{Claimed, Claims, Masks};
use crate::kit::TypeList;
use crate::place::{Fit, Level, PlacementParams};
use crate::place::{Pick, consolidate};
use gangline_engine::FreeIndex;
use gangline_model::{GpuSet, GpuTypeId, mask_of_lowest};

/// The job that looks for GPUs.
pub(super) struct Seeker<'a> {
    /// Gang size.
    pub(super) gpus: u32,
    /// Its types, in the order it tries them.
    pub(super) types: &'a TypeList,
    /// GPUs it had and may have again: they count as unclaimed for it.
    pub(super) own: Option<&'a GpuSet>,
    /// Claims it may displace.
    pub(super) over: &'a Masks,
}

/// Whether a gang has room at a level among unclaimed and claimed GPUs; O(types x claims).
pub(super) fn can(
    free: &mut FreeIndex,
    claims: &mut Claims,
    (gpus, types): (u32, &TypeList),
    level: Level,
) -> bool {
    if can_unclaimed(free, (gpus, types), level) {
        return true;
    }
    !claims.open().is_empty()
        && types.iter().any(|&gpu_type| {
            let claimed = claims.open_on(free, gpu_type);
            can_with(free, claimed, gpu_type, gpus, level)
        })
}

/// Whether a gang has room at a level among unclaimed GPUs; O(types).
pub(super) fn can_unclaimed(
    free: &mut FreeIndex,
    (gpus, types): (u32, &TypeList),
    level: Level,
) -> bool {
    types.iter().any(|&gpu_type| {
        let pool = free.pool_mut(gpu_type);
        let most = match level {
            Level::Server => pool.server_free_max(),
            Level::Rack => pool.rack_most_free().map_or(0, |(_, most)| most),
            Level::Network => pool.free_total(),
        };
        most >= gpus
    })
}

fn can_with(
    free: &mut FreeIndex,
    claimed: &Claimed,
    gpu_type: GpuTypeId,
    gpus: u32,
    level: Level,
) -> bool {
    let pool = free.pool_mut(gpu_type);
    match level {
        Level::Server => claimed
            .servers
            .iter()
            .any(|&(_, at, count)| pool.free(at) + count >= gpus),
        Level::Rack => claimed
            .racks
            .iter()
            .any(|&(rack, count)| pool.rack_free(rack) + count >= gpus),
        Level::Network => pool.free_total() + claimed.total >= gpus,
    }
}

/// The gang's GPUs at a level, if it has room there. The scratch is the same before and after.
pub(super) fn find(
    params: &PlacementParams,
    free: &mut FreeIndex,
    claims: &Claims,
    seeker: &Seeker<'_>,
    level: Level,
) -> Option<GpuSet> {
    let before = free.mark();
    for part in seeker.own.iter().flat_map(|own| own.by_server()) {
        let mask = free.free_mask(part.server) | part.mask;
        free.set_free_mask(part.server, mask);
    }
    let asked = (seeker.gpus, level);
    let mut picks = Vec::new();
    let mut found = seeker.types.iter().copied().find(|&gpu_type| {
        picks.clear();
        consolidate::at_level(params, free, gpu_type, asked, &mut picks)
    });
    if found.is_none() && !seeker.over.is_empty() {
        for (&server, &mask) in seeker.over {
            let mask = free.free_mask(server) | mask;
            free.set_free_mask(server, mask);
        }
        found = seeker.types.iter().copied().find(|&gpu_type| {
            picks.clear();
            let claimed = Claimed::of(seeker.over, free, gpu_type);
            with_claims(params, free, &claimed, (gpu_type, asked), &mut picks)
        });
    }
    free.rollback(before);
    let gpu_type = found?;
    Some(slots(free, claims, seeker, gpu_type, &picks))
}

/// One level over unclaimed and claimed GPUs together; the scratch shows both.
fn with_claims(
    params: &PlacementParams,
    free: &mut FreeIndex,
    claimed: &Claimed,
    (gpu_type, (gpus, level)): (GpuTypeId, (u32, Level)),
    picks: &mut Vec<Pick>,
) -> bool {
    match level {
        Level::Server => {
            let at = claimed_server(params.fit, free, claimed, gpu_type, gpus);
            picks.extend(at.map(|at| Pick { at, gpus }));
            at.is_some()
        }
        Level::Rack => {
            let rack = claimed_rack(params.fit, free, claimed, gpu_type, gpus);
            if let Some(rack) = rack {
                consolidate::fill(params.fit, free.pool_mut(gpu_type), rack, gpus, picks);
            }
            rack.is_some()
        }
        Level::Network if free.pool(gpu_type).free_total() < gpus => false,
        Level::Network => {
            let before = free.mark();
            over_racks(params, free, claimed, (gpu_type, gpus), picks);
            free.rollback(before);
            true
        }
    }
}

/// Of the servers with claims and room, the one that needs the fewest claimed GPUs, then by fit.
fn claimed_server(
    fit: Fit,
    free: &FreeIndex,
    claimed: &Claimed,
    gpu_type: GpuTypeId,
    gpus: u32,
) -> Option<usize> {
    let pool = free.pool(gpu_type);
    let roomy = claimed.servers.iter().filter_map(|&(_, at, count)| {
        let all = pool.free(at);
        let tight = if fit == Fit::Best { all } else { 0 };
        (all >= gpus).then(|| ((gpus + count).saturating_sub(all), tight, at))
    });
    roomy.min().map(|(_, _, at)| at)
}

/// The same for racks.
fn claimed_rack(
    fit: Fit,
    free: &mut FreeIndex,
    claimed: &Claimed,
    gpu_type: GpuTypeId,
    gpus: u32,
) -> Option<usize> {
    let pool = free.pool_mut(gpu_type);
    let roomy = claimed.racks.iter().filter_map(|&(rack, count)| {
        let all = pool.rack_free(rack);
        let tight = if fit == Fit::Best { all } else { 0 };
        (all >= gpus).then(|| ((gpus + count).saturating_sub(all), tight, rack))
    });
    roomy.min().map(|(_, _, rack)| rack)
}

/// Whole racks while they are needed whole, then the rest where it needs the fewest claims.
fn over_racks(
    params: &PlacementParams,
    free: &mut FreeIndex,
    claimed: &Claimed,
    (gpu_type, gpus): (GpuTypeId, u32),
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
        let (rack, all) = next.expect("enough GPUs are free");
        if rest < all {
            break;
        }
        consolidate::take_rack(free, gpu_type, rack, picks);
        rest -= all;
        if rest == 0 {
            return;
        }
    }
    if let Some(at) = rest_server(params.fit, free, claimed, gpu_type, rest) {
        picks.push(Pick { at, gpus: rest });
        return;
    }
    let rack = rest_rack(params, free, claimed, gpu_type, rest);
    let rack = rack.expect("one rack has more than the rest");
    consolidate::fill(params.fit, free.pool_mut(gpu_type), rack, rest, picks);
}

/// A server that needs no claim, by fit; else the one that needs the fewest.
fn rest_server(
    fit: Fit,
    free: &mut FreeIndex,
    claimed: &Claimed,
    gpu_type: GpuTypeId,
    rest: u32,
) -> Option<usize> {
    let before = free.mark();
    for &(server, at, count) in &claimed.servers {
        if free.pool(gpu_type).free(at) < rest + count {
            free.set_free_mask(server, 0);
        }
    }
    let unclaimed = consolidate::server(fit, free.pool_mut(gpu_type), rest);
    free.rollback(before);
    unclaimed.or_else(|| {
        // servers of racks that are taken whole show nothing any more
        claimed_server(fit, free, claimed, gpu_type, rest)
    })
}

/// The same for racks.
fn rest_rack(
    params: &PlacementParams,
    free: &mut FreeIndex,
    claimed: &Claimed,
    gpu_type: GpuTypeId,
    rest: u32,
) -> Option<usize> {
    let before = free.mark();
    for &(rack, count) in &claimed.racks {
        let pool = free.pool_mut(gpu_type);
        if pool.rack_free(rack) < rest + count {
            let hidden: Vec<usize> = pool.rack_servers(rack).at_least(1).map(|s| s.0).collect();
            for at in hidden {
                free.set_free_mask(free.pool(gpu_type).server(at), 0);
            }
        }
    }
    let unclaimed = consolidate::rack(params, free.pool_mut(gpu_type), rest, &[]);
    free.rollback(before);
    unclaimed.or_else(|| claimed_rack(params.fit, free, claimed, gpu_type, rest))
}

/// Slots of the picks: own ones, then unclaimed ones, then those of the last claim and so on.
fn slots(
    free: &FreeIndex,
    claims: &Claims,
    seeker: &Seeker<'_>,
    gpu_type: GpuTypeId,
    picks: &[Pick],
) -> GpuSet {
    let mut set = GpuSet::new();
    for pick in picks {
        let server = free.pool(gpu_type).server(pick.at);
        let own = seeker.own.map_or(0, |own| own.mask_on(server));
        let over = seeker.over.get(&server).copied().unwrap_or(0);
        let unclaimed = free.free_mask(server) & !own;
        let mut taken = 0_u64;
        let sources = [own, unclaimed].into_iter();
        for mask in sources.chain(claims.last_first(server).map(|mask| mask & over)) {
            let left = pick.gpus - taken.count_ones();
            taken |= mask_of_lowest(mask, left);
        }
        debug_assert_eq!(taken.count_ones(), pick.gpus, "the server has room");
        set.insert(server, taken);
    }
    set
}
