//! Which guest sits on which server: the question "what would be free for a job at this place in the order"
//! for one server at a time.
//!
//! Along the order a server only loses GPUs, so all answers lie in one key per server and number of GPUs: the
//! last at which so many are free. A question looks at one such key for each server with a guest.

use crate::order::Key;
use gangline_engine::{BitSet, FreeIndex, TypePool};
use gangline_model::{GpuSet, GpuTypeId, ServerId};
use smallvec::SmallVec;

/// Servers of a block, which a question passes over at once.
const BLOCK: usize = 32;
const TYPE: GpuTypeId = GpuTypeId(0);
/// Before every job: so many GPUs are never free.
const NEVER: Key = Key {
    lead: 0,
    main: i64::MIN,
    job: 0,
};
/// Behind every job: so many GPUs are free for all.
const ALWAYS: Key = Key {
    lead: u64::MAX,
    main: i64::MAX,
    job: u32::MAX,
};

/// Guests by server. Positions in the pool are ids of servers: there is one GPU type.
#[derive(Debug)]
pub(super) struct Seats {
    /// In key order.
    by_server: Vec<SmallVec<[(Key, u64); 2]>>,
    /// Servers with a guest.
    taken: BitSet,
    /// GPUs -> the last key, by server, for which as many are free. Only of servers with a guest.
    free_up_to: Vec<Vec<Key>>,
    /// GPUs -> none of the keys of a block of servers lies behind this one.
    block_up_to: Vec<Vec<Key>>,
    /// Servers whose keys are not right.
    changed: Vec<usize>,
    is_changed: BitSet,
}

impl Seats {
    pub(super) fn new(servers: usize, gpus_max: u32) -> Self {
        Self {
            by_server: vec![SmallVec::new(); servers],
            taken: BitSet::new(servers.max(1)),
            free_up_to: vec![vec![NEVER; servers]; gpus_max as usize + 1],
            block_up_to: vec![vec![NEVER; servers.div_ceil(BLOCK)]; gpus_max as usize + 1],
            changed: Vec::new(),
            is_changed: BitSet::new(servers.max(1)),
        }
    }

    /// A guest sits down.
    pub(super) fn add(&mut self, key: Key, gpus: &GpuSet) {
        for part in gpus.parts() {
            let at = part.server.index();
            let guests = &mut self.by_server[at];
            let place = guests.partition_point(|(other, _)| *other < key);
            guests.insert(place, (key, part.mask));
            self.taken.insert(at);
            self.note(at);
        }
    }

    /// A guest gets up.
    pub(super) fn remove(&mut self, key: Key, gpus: &GpuSet) {
        for part in gpus.parts() {
            let at = part.server.index();
            self.by_server[at].retain(|(guest, _)| *guest != key);
            if self.by_server[at].is_empty() {
                self.taken.remove(at);
            }
            self.note(at);
        }
    }

    /// What is free of guests on some servers has changed.
    pub(super) fn firm_changed(&mut self, gpus: &GpuSet) {
        for part in gpus.parts() {
            self.note(part.server.index());
        }
    }

    /// The same for a server that has failed or come back.
    pub(super) fn note(&mut self, at: usize) {
        if self.taken.contains(at) && self.is_changed.insert(at) {
            self.changed.push(at);
        }
    }

    /// Brings the keys up to date.
    fn refresh(&mut self, firm: &TypePool) {
        for at in self.changed.drain(..) {
            self.is_changed.remove(at);
            let mut left = firm.free(at) as usize;
            for keys in &mut self.free_up_to[left + 1..] {
                keys[at] = NEVER;
            }
            for &(key, mask) in &self.by_server[at] {
                let rest = left - mask.count_ones() as usize;
                for gpus in rest + 1..=left {
                    self.free_up_to[gpus][at] = key;
                    let block = &mut self.block_up_to[gpus][at / BLOCK];
                    *block = key.max(*block);
                }
                left = rest;
            }
            for gpus in 0..=left {
                self.free_up_to[gpus][at] = ALWAYS;
                self.block_up_to[gpus][at / BLOCK] = ALWAYS;
            }
        }
    }

    /// The one server where a gang fits best for a job at `key`, or the first in index order if `is_first`, and
    /// what is free there. `firm` is free of guests, `later` is what is free for a job behind `key`.
    pub(super) fn find(
        &mut self,
        (firm, later): (&FreeIndex, &TypePool),
        key: Key,
        gpus: u32,
        is_first: bool,
    ) -> Option<(ServerId, u64)> {
        let firm = firm.pool(TYPE);
        self.refresh(firm);
        // a server without a guest is as it is later
        let empty = self.without_guest(later, gpus, is_first);
        let best = self.with_guest(empty, key, gpus, is_first);
        let (_, at) = best?;
        let mask = if best == empty {
            later.mask(at)
        } else {
            let before = self.by_server[at].iter().filter(|(guest, _)| *guest < key);
            before.fold(firm.mask(at), |mask, (_, held)| mask & !held)
        };
        Some((ServerId::new(at), mask))
    }

    /// The better of a server without a guest and all those with one.
    fn with_guest(
        &mut self,
        empty: Option<(u32, usize)>,
        key: Key,
        gpus: u32,
        is_first: bool,
    ) -> Option<(u32, usize)> {
        let mut best = empty;
        let Some((is_free, is_more_free)) = self
            .free_up_to
            .get(gpus as usize..)
            .and_then(<[_]>::split_first)
        else {
            return best; // wider than every server
        };
        for (block, up_to) in self.block_up_to[gpus as usize].iter_mut().enumerate() {
            if *up_to < key {
                continue;
            }
            let mut last = NEVER;
            let mut next = self.taken.next_from(block * BLOCK);
            while let Some(at) = next.filter(|at| at / BLOCK == block) {
                if best.is_some_and(|(free, first)| first < at && (is_first || free == gpus)) {
                    return best;
                }
                next = self.taken.next_from(at + 1);
                last = last.max(is_free[at]);
                if is_free[at] < key {
                    continue;
                }
                let more = is_more_free.iter().take_while(|keys| key <= keys[at]);
                let free = gpus + more.count() as u32;
                let is_better = best.is_none_or(|(least, first)| {
                    if is_first {
                        at < first
                    } else {
                        (free, at) < (least, first)
                    }
                });
                if is_better {
                    best = Some((free, at));
                }
            }
            *up_to = last;
        }
        best
    }

    /// The best of the servers without a guest: how many GPUs are free there, and where.
    fn without_guest(&self, later: &TypePool, gpus: u32, is_first: bool) -> Option<(u32, usize)> {
        let servers = later.all_servers();
        let is_empty = |at: &usize| !self.taken.contains(*at);
        if is_first {
            let mut fitting = servers.at_least(gpus);
            return fitting
                .find(|(at, _)| is_empty(at))
                .map(|(at, free)| (free, at));
        }
        (gpus..=servers.free_max())
            .find_map(|free| servers.with_free(free).find(is_empty).map(|at| (free, at)))
    }
}
