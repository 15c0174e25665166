//! Claims: the GPUs of jobs whose lease has ended and that have had no offer yet.
//!
//! The scratch of the plan shows unclaimed GPUs. Looks that may displace claims put these in, ask, and
//! take them out again; they cost what the claims touch.

use super::queue::Rank;
use gangline_engine::FreeIndex;
use gangline_model::{GpuSet, GpuTypeId, ServerId};
use std::collections::BTreeMap;

/// One up job.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    /// Its place among the candidates.
    pub(super) rank: Rank,
    /// Those of its GPUs that no job has taken.
    pub(super) gpus: GpuSet,
}

/// Claimed slots by server.
pub(super) type Masks = BTreeMap<ServerId, u64>;

/// All claims of a decision, in the order of the candidates.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims {
    pub(super) list: Vec<Claim>,
    /// How many have been asked.
    pub(super) asked: usize,
    /// Union of those that have not.
    open: Masks,
    /// The same by GPU type; emptied whenever it changes.
    by_type: Vec<Option<Claimed>>,
}

impl Claims {
    /// Starts afresh with the jobs that are up.
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

    /// Claims that any job may displace that gets its offer before theirs.
    pub(super) fn open(&self) -> &Masks {
        &self.open
    }

    /// Open claims on one GPU type.
    pub(super) fn open_on(&mut self, free: &FreeIndex, gpu_type: GpuTypeId) -> &Claimed {
        if self.by_type.is_empty() {
            self.by_type.resize_with(free.types(), || None);
        }
        let open = &self.open;
        self.by_type[gpu_type.index()].get_or_insert_with(|| Claimed::of(open, free, gpu_type))
    }

    /// Open claims of a strictly higher score.
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

    /// Closes the next claim, whose job is asked now.
    pub(super) fn ask(&mut self) -> usize {
        let at = self.asked;
        self.asked += 1;
        self.by_type.clear();
        for part in self.list[at].gpus.by_server() {
            clear(&mut self.open, part.server, part.mask);
        }
        at
    }

    /// Slots of a server that open claims hold, from the last claim to the first.
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

/// Claimed GPUs of one type, by server and by rack of its pool.
#[derive(Clone, Debug)]
pub(super) struct Claimed {
    /// Server, its position in the pool, claimed GPUs.
    pub(super) servers: Vec<(ServerId, usize, u32)>,
    /// Rack, claimed GPUs; ascending.
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
