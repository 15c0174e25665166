//! Which guest sits on which server: the question "what would be free for a job at this place in the order"
//! for one server at a time.
//!
//! Along the order a server only loses GPUs, so all answers lie in one key per server and number of GPUs: the
//! last at which so many are free. A question looks at one such key for each server with a guest.

use crate::order::Key;
use gangline_engine::{BitSet, FreeIndex, TypePool};
use gangline_model::{GpuSet, GpuTypeId, ServerId};
use smallvec::SmallVec;

/// Servers of a block, which a question passes over at once: a word of a set.
const BLOCK: usize = 64;
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
    /// GPUs -> none of the keys of any block lies behind this one.
    all_up_to: Vec<Key>,
    /// Servers whose keys are not right, or what is free there.
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
            all_up_to: vec![NEVER; gpus_max as usize + 1],
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
        if self.is_changed.insert(at) {
            self.changed.push(at);
        }
    }

    /// Brings the keys up to date, and what is free where no guest sits.
    fn refresh(&mut self, firm: &TypePool, bare: &mut FreeIndex) {
        for at in self.changed.drain(..) {
            self.is_changed.remove(at);
            let is_taken = self.taken.contains(at);
            if firm.is_up(at) {
                bare.sync(ServerId::new(at), if is_taken { 0 } else { firm.mask(at) });
            }
            if !is_taken {
                continue;
            }
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
                    self.all_up_to[gpus] = key.max(self.all_up_to[gpus]);
                }
                left = rest;
            }
            for gpus in 0..=left {
                self.free_up_to[gpus][at] = ALWAYS;
                self.block_up_to[gpus][at / BLOCK] = ALWAYS;
                self.all_up_to[gpus] = ALWAYS;
            }
        }
    }

    /// The one server where a gang fits best for a job at `key`, or the first in index order if `is_first`, and
    /// what is free there. `firm` is free of guests, `bare` the same on servers without guests as of the last
    /// question.
    pub(super) fn find(
        &mut self,
        (firm, bare): (&FreeIndex, &mut FreeIndex),
        key: Key,
        gpus: u32,
        is_first: bool,
    ) -> Option<(ServerId, u64)> {
        let firm = firm.pool(TYPE);
        self.refresh(firm, bare);
        let servers = bare.pool(TYPE).all_servers();
        let empty = if is_first {
            servers.first_fit(gpus)
        } else {
            servers.best_fit(gpus)
        };
        let empty = empty.map(|(at, free)| (free, at));
        let best = self.with_guest(empty, key, gpus, is_first);
        let (_, at) = best?;
        let mask = if best == empty {
            firm.mask(at)
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
        if self
            .all_up_to
            .get(gpus as usize)
            .is_none_or(|up_to| *up_to < key)
        {
            return best;
        }
        let Some((is_free, is_more_free)) = self
            .free_up_to
            .get(gpus as usize..)
            .and_then(<[_]>::split_first)
        else {
            return best; // wider than every server
        };
        let mut most = NEVER;
        for (block, up_to) in self.block_up_to[gpus as usize].iter_mut().enumerate() {
            if *up_to < key {
                most = most.max(*up_to);
                continue;
            }
            let mut last = NEVER;
            let mut rest = self.taken.word(block);
            while rest != 0 {
                let at = block * BLOCK + rest.trailing_zeros() as usize;
                rest &= rest - 1;
                if best.is_some_and(|(free, first)| first < at && (is_first || free == gpus)) {
                    return best;
                }
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
            most = most.max(last);
        }
        self.all_up_to[gpus as usize] = most;
        best
    }
}
