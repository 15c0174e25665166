//! The search for a place, level by level. At each level, the search first considers only unclaimed GPUs, then claimed
//! GPUs as well.

use super::queue::Rank;
use crate::kit::TypeList;
use crate::place::{Fit, Level, Pick, PlacementParams, consolidate};
use gangline_engine::FreeIndex;
use gangline_model::{GpuSet, GpuTypeId, ServerId, mask_of_lowest};
use std::collections::BTreeMap;

/// The job that needs GPUs.
pub(super) struct Seeker<'a> {
    /// Gang size.
    pub(super) gpus: u32,
    /// Types of the job, in the order in which it tries them.
    pub(super) types: &'a TypeList,
    /// GPUs that the job held before and may get back. For this job, they count as unclaimed.
    pub(super) own: Option<&'a GpuSet>,
    /// Claims of other jobs that the job may displace.
    pub(super) over: &'a Masks,
}

/// Returns whether a gang fits at the given level on unclaimed and claimed GPUs together. The cost is O(types x
/// claims).
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

/// Returns whether a gang fits at the given level on unclaimed GPUs alone. The cost is O(types).
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

/// Finds GPUs for a gang at the given level. The draft of the plan is the same after the call as before it.
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

/// Searches for a place at one level among unclaimed and claimed GPUs. The draft must already contain both.
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

/// Among the servers that have claimed GPUs and enough room, returns the one on which the gang needs the fewest claimed
/// GPUs. Ties are broken by fit.
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

/// Returns the rack in which the gang needs the fewest claimed GPUs; this is the counterpart of [`claimed_server`] for
/// racks.
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

/// Takes all free GPUs of one rack after another, as long as the gang needs all of them. The rest of the gang goes to
/// one server if possible, and otherwise to one rack. In both cases, the place is chosen on which the gang needs the
/// fewest claimed GPUs.
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
    let rack = rack.expect("one rack has more free GPUs than the rest of the gang needs");
    consolidate::fill(params.fit, free.pool_mut(gpu_type), rack, rest, picks);
}

/// Returns a server for the rest of the gang: the best-fitting server on which it needs no claimed GPUs. If there is
/// none, returns the server on which it needs the fewest.
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
        // This cannot return a server of a rack that was taken above, because no GPUs are free there.
        claimed_server(fit, free, claimed, gpu_type, rest)
    })
}

/// Returns a rack for the rest of the gang; this is the counterpart of [`rest_server`] for racks.
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

/// Chooses the slots on the picked servers: the job's own slots first, then unclaimed slots, then claimed slots, from
/// the last claim to the first.
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

// A claim consists of the GPUs of a job whose lease has ended and that has not had its offer yet.
//
// The draft of the plan contains unclaimed GPUs. A search that may displace claims adds the claimed GPUs to the draft,
// searches, and removes them again. The added cost depends only on the number of these claims.

/// The claim of a job whose lease ends.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    /// Rank of the job among the candidates.
    pub(super) rank: Rank,
    /// GPUs of the job that no other job has taken.
    pub(super) gpus: GpuSet,
}

/// Claimed slots by server.
pub(super) type Masks = BTreeMap<ServerId, u64>;

/// All claims of a decision, in order of rank. A claim is open until its job has had its offer.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims {
    pub(super) list: Vec<Claim>,
    /// The number of closed claims; these are the first entries of `list`.
    pub(super) asked: usize,
    /// Union of the slots of all open claims.
    open: Masks,
    /// Open claims by GPU type; cleared whenever they change.
    by_type: Vec<Option<Claimed>>,
}

impl Claims {
    /// Replaces the claims with those of the jobs whose lease ends now.
    pub(super) fn set(&mut self, mut list: Vec<Claim>) {
        list.sort_by_key(|claim| claim.rank);
        self.list = list;
        self.asked = 0;
        self.open.clear();
        self.by_type.clear();
        for claim in &self.list {
            for part in claim.gpus.by_server() {
                *self.open.entry(part.server).or_default() |= part.mask;
            }
        }
    }

    /// Returns the slots of all open claims. The job that gets the next offer may displace them, because they belong to
    /// jobs that come after it.
    pub(super) fn open(&self) -> &Masks {
        &self.open
    }

    /// Returns the open claims on one GPU type.
    pub(super) fn open_on(&mut self, free: &FreeIndex, gpu_type: GpuTypeId) -> &Claimed {
        if self.by_type.is_empty() {
            self.by_type.resize_with(free.types(), || None);
        }
        let open = &self.open;
        self.by_type[gpu_type.index()].get_or_insert_with(|| Claimed::of(open, free, gpu_type))
    }

    /// Returns the slots of the open claims whose jobs have a strictly higher score.
    pub(super) fn above(&self, score: u64) -> Masks {
        let open = &self.list[self.asked..];
        let first = open.partition_point(|claim| claim.rank.score <= score);
        let mut masks = Masks::new();
        for claim in &open[first..] {
            for part in claim.gpus.by_server() {
                *masks.entry(part.server).or_default() |= part.mask;
            }
        }
        masks
    }

    /// Closes the next claim because its job now gets its offer. Returns the position of the claim.
    pub(super) fn ask(&mut self) -> usize {
        let at = self.asked;
        self.asked += 1;
        self.by_type.clear();
        for part in self.list[at].gpus.by_server() {
            clear(&mut self.open, part.server, part.mask);
        }
        at
    }

    /// Returns the slots of a server that open claims hold, from the last claim to the first.
    pub(super) fn last_first(&self, server: ServerId) -> impl Iterator<Item = u64> {
        let open = self.list[self.asked..].iter().rev();
        open.map(move |claim| claim.gpus.mask_on(server))
            .filter(|mask| *mask != 0)
    }

    /// Takes GPUs away from the jobs that claim them.
    pub(super) fn displace(&mut self, gpus: &GpuSet) {
        for part in gpus.by_server() {
            let claimed = self.open.get(&part.server).copied().unwrap_or(0) & part.mask;
            if claimed == 0 {
                continue;
            }
            clear(&mut self.open, part.server, claimed);
            self.by_type.clear();
            for claim in &mut self.list[self.asked..] {
                if claim.gpus.mask_on(part.server) & claimed != 0 {
                    claim.gpus = claim
                        .gpus
                        .by_server()
                        .iter()
                        .map(|own| {
                            let lost = if own.server == part.server {
                                claimed
                            } else {
                                0
                            };
                            (own.server, own.mask & !lost)
                        })
                        .collect();
                }
            }
        }
    }
}

fn clear(masks: &mut Masks, server: ServerId, mask: u64) {
    if let Some(left) = masks.get_mut(&server) {
        *left &= !mask;
        if *left == 0 {
            masks.remove(&server);
        }
    }
}

/// Claimed GPUs of one type, by server and by rack.
#[derive(Clone, Debug)]
pub(super) struct Claimed {
    /// For each server with claimed GPUs: the server, its position in the pool, and its number of claimed GPUs.
    pub(super) servers: Vec<(ServerId, usize, u32)>,
    /// For each rack with claimed GPUs, in ascending order: the rack and its number of claimed GPUs.
    pub(super) racks: Vec<(usize, u32)>,
    pub(super) total: u32,
}

impl Claimed {
    pub(super) fn of(masks: &Masks, free: &FreeIndex, gpu_type: GpuTypeId) -> Self {
        let mut racks: BTreeMap<usize, u32> = BTreeMap::new();
        let mut servers = Vec::new();
        let mut total = 0;
        for (&server, mask) in masks {
            if free.type_of(server) != gpu_type {
                continue;
            }
            let (at, count) = (free.position(server), mask.count_ones());
            servers.push((server, at, count));
            *racks.entry(free.pool(gpu_type).rack_of(at)).or_default() += count;
            total += count;
        }
        Self {
            servers,
            racks: racks.into_iter().collect(),
            total,
        }
    }
}
