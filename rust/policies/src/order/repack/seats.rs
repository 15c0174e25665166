//! Which guest sits on which server: the question "what would be free for a job at this place in the order"
//! for one server at a time.
//!
//! Along the order a server only loses GPUs, so all answers lie in one key per server and number of GPUs: the
//! last at which so many are free. A question looks at one such key for each server with a guest, and where
//! no server has room any more one bound tells so.

use crate::order::Key;
use gangline_engine::{BitSet, TypePool};
use gangline_model::{GpuSet, ServerId};
use smallvec::SmallVec;

/// Servers of a block, which a question passes over at once: a word of a set.
const BLOCK: usize = 64;
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
    bare: Bare,
    /// The numbers of GPUs that are asked about, ascending.
    levels: Vec<Level>,
    /// Servers whose guests have changed, or what is free there, since the last question.
    changed: Vec<u32>,
    is_changed: Vec<bool>,
    journal: Journal,
}

/// One number of GPUs.
#[derive(Debug)]
struct Level {
    gpus: u32,
    /// Server -> the last key for which as many are free. Only of servers with a guest.
    up_to: Vec<Key>,
    /// None of the keys of a block of servers lies behind this one.
    blocks: Vec<Key>,
    /// None of the keys of any block lies behind this one.
    all: Key,
}

/// Servers without a guest by free GPUs.
#[derive(Debug)]
struct Bare {
    /// Free GPUs -> the servers; nobody asks for those without any.
    buckets: Vec<BitSet>,
    free: Vec<u8>,
}

/// The last servers that changed, for those who keep what is free at some place in the order.
#[derive(Debug)]
struct Journal {
    entries: Vec<u32>,
    /// Number of entries before the first one.
    forgotten: u64,
}

impl Level {
    #[inline]
    fn set(&mut self, at: usize, key: Key) {
        self.up_to[at] = key;
        let block = &mut self.blocks[at / BLOCK];
        if *block < key {
            *block = key;
            self.all = key.max(self.all);
        }
    }

    /// Shows the servers of `taken` that have room for a job at `key`, in index order, until `is_enough` of
    /// one; no block from `end` on. What it has looked through to the end it bounds anew.
    #[inline]
    fn look_through(
        &mut self,
        taken: &BitSet,
        (key, end): (Key, usize),
        mut is_enough: impl FnMut(usize) -> bool,
    ) {
        if self.all < key {
            return;
        }
        let mut most = NEVER;
        for (block, bound) in self.blocks.iter_mut().enumerate() {
            if block * BLOCK >= end {
                return;
            }
            if *bound >= key {
                let mut last = NEVER;
                let mut rest = taken.word(block);
                while rest != 0 {
                    let at = block * BLOCK + rest.trailing_zeros() as usize;
                    rest &= rest - 1;
                    let up_to = self.up_to[at];
                    last = last.max(up_to);
                    if up_to >= key && is_enough(at) {
                        return;
                    }
                }
                *bound = last;
            }
            most = most.max(*bound);
        }
        self.all = most;
    }
}

impl Bare {
    fn set(&mut self, at: usize, free: u32) {
        let old = usize::from(std::mem::replace(&mut self.free[at], free as u8));
        if old == free as usize {
            return;
        }
        if old > 0 {
            self.buckets[old].remove(at);
        }
        if free > 0 {
            self.buckets[free as usize].insert(at);
        }
    }

    /// The servers with at least so many free, by how many.
    #[inline]
    fn at_least(&self, gpus: u32) -> impl Iterator<Item = (u32, &BitSet)> {
        let buckets = self.buckets.get(gpus as usize..).unwrap_or_default();
        (gpus..).zip(buckets)
    }

    fn count_at_least(&self, gpus: u32) -> usize {
        self.at_least(gpus).map(|(_, set)| set.len()).sum()
    }

    /// Where a gang fits best, or the first one if `is_first`, after how many are free there.
    fn fit(&self, gpus: u32, is_first: bool) -> Option<(u32, usize)> {
        let mut firsts = self
            .at_least(gpus)
            .filter_map(|(free, set)| Some((free, set.first()?)));
        if is_first {
            firsts.min_by_key(|&(_, at)| at)
        } else {
            firsts.next()
        }
    }
}

impl Seats {
    pub(super) fn new(servers: usize, gpus_max: u32) -> Self {
        Self {
            by_server: vec![SmallVec::new(); servers],
            taken: BitSet::new(servers.max(1)),
            bare: Bare {
                buckets: vec![BitSet::new(servers.max(1)); gpus_max as usize + 1],
                free: vec![0; servers],
            },
            levels: Vec::new(),
            changed: Vec::new(),
            is_changed: vec![false; servers],
            journal: Journal {
                entries: Vec::new(),
                forgotten: 0,
            },
        }
    }

    /// The numbers of GPUs that will be asked about; some may be more than any server has.
    pub(super) fn expect(&mut self, mut sizes: Vec<u32>) {
        let servers = self.by_server.len();
        sizes.retain(|&gpus| (gpus as usize) < self.bare.buckets.len());
        sizes.sort_unstable();
        sizes.dedup();
        if self.levels.iter().map(|level| &level.gpus).eq(&sizes) {
            return;
        }
        let level = |gpus| Level {
            gpus,
            up_to: vec![NEVER; servers],
            blocks: vec![NEVER; servers.div_ceil(BLOCK)],
            all: NEVER,
        };
        self.levels = sizes.into_iter().map(level).collect();
        self.note_all();
    }

    /// A guest sits down.
    pub(super) fn add(&mut self, key: Key, gpus: &GpuSet) {
        for part in gpus.parts() {
            let at = part.server.index();
            let guests = &mut self.by_server[at];
            if guests.is_empty() {
                self.taken.insert(at);
            }
            let place = guests.partition_point(|(other, _)| *other < key);
            guests.insert(place, (key, part.mask));
            self.note(at);
        }
    }

    /// A guest gets up.
    pub(super) fn remove(&mut self, key: Key, gpus: &GpuSet) {
        for part in gpus.parts() {
            let at = part.server.index();
            let guests = &mut self.by_server[at];
            let place = guests.iter().position(|(guest, _)| *guest == key);
            guests.remove(place.expect("a guest has a seat on each of its servers"));
            if guests.is_empty() {
                self.taken.remove(at);
            }
            self.note(at);
        }
    }

    /// The first guest that holds some of these GPUs.
    pub(super) fn met(&self, server: ServerId, mask: u64) -> Option<Key> {
        let mut guests = self.by_server[server.index()].iter();
        let met = guests.find(|(_, held)| held & mask != 0);
        met.map(|&(key, _)| key)
    }

    /// What is free of guests on some servers has changed.
    pub(super) fn firm_changed(&mut self, gpus: &GpuSet) {
        for part in gpus.parts() {
            self.note(part.server.index());
        }
    }

    /// The same for a server that has failed or come back.
    #[inline]
    pub(super) fn note(&mut self, at: usize) {
        if !std::mem::replace(&mut self.is_changed[at], true) {
            self.changed.push(at as u32);
        }
    }

    /// The same for all servers.
    pub(super) fn note_all(&mut self) {
        for at in 0..self.by_server.len() {
            self.note(at);
        }
    }

    /// Takes in what has changed. `firm` is free of guests.
    pub(super) fn refresh(&mut self, firm: &TypePool) {
        if self.changed.is_empty() {
            return;
        }
        let Self {
            by_server,
            bare,
            levels,
            is_changed,
            ..
        } = self;
        for at in self.changed.iter().map(|&at| at as usize) {
            is_changed[at] = false;
            let mut left = firm.free(at);
            let guests = &by_server[at];
            bare.set(at, if guests.is_empty() { left } else { 0 });
            if guests.is_empty() {
                continue;
            }
            let mut guests = guests.iter();
            let mut up_to = NEVER;
            for level in levels.iter_mut().rev() {
                while left >= level.gpus {
                    let Some((key, mask)) = guests.next() else {
                        up_to = ALWAYS;
                        break;
                    };
                    left -= mask.count_ones();
                    up_to = *key;
                }
                level.set(at, up_to);
            }
        }
        self.journal.append(&mut self.changed, by_server.len());
    }

    /// The servers that changed since a number of the journal, or `None` if it does not know any more; and the
    /// number to ask with next.
    pub(super) fn changes_since(&self, number: u64) -> (Option<&[u32]>, u64) {
        let Journal { entries, forgotten } = &self.journal;
        let from = number.checked_sub(*forgotten);
        let since = from.and_then(|from| entries.get(from as usize..));
        (since, forgotten + entries.len() as u64)
    }

    /// What is free on a server for a job at `key`.
    #[inline]
    pub(super) fn mask(&self, firm: &TypePool, at: usize, key: Key) -> u64 {
        let guests = self.by_server[at].iter();
        let before = guests.take_while(|(guest, _)| *guest < key);
        before.fold(firm.mask(at), |mask, (_, held)| mask & !held)
    }

    /// Whether so many servers may have at least so many GPUs free for a job at `key`. `false` is certain;
    /// `true` for one server may be wrong until a search finds nothing.
    pub(super) fn may_have(
        &mut self,
        firm: &TypePool,
        key: Key,
        (servers, gpus): (u32, u32),
    ) -> bool {
        self.refresh(firm);
        let mut missing = (servers as usize).saturating_sub(self.bare.count_at_least(gpus));
        if missing == 0 {
            return true;
        }
        let mut levels = self.levels.iter_mut();
        let Some(level) = levels.find(|level| level.gpus == gpus) else {
            return false; // wider than every server
        };
        if servers == 1 {
            return level.all >= key;
        }
        level.look_through(&self.taken, (key, usize::MAX), |_| {
            missing -= 1;
            missing == 0
        });
        missing == 0
    }

    /// The one server where a gang fits best for a job at `key`, or the first in index order if `is_first`, and
    /// what is free there. `firm` is free of guests.
    pub(super) fn find(
        &mut self,
        firm: &TypePool,
        key: Key,
        gpus: u32,
        is_first: bool,
    ) -> Option<(ServerId, u64)> {
        self.refresh(firm);
        let mut best = self.bare.fit(gpus, is_first);
        let by_server = &self.by_server;
        let mut levels = self.levels.iter_mut();
        let level = levels.find(|level| level.gpus == gpus)?;
        // in index order no later server can be better than one like this
        let is_best = |free| is_first || free == gpus;
        let end = best.filter(|&(free, _)| is_best(free));
        let end = end.map_or(usize::MAX, |(_, at)| at);
        level.look_through(&self.taken, (key, end), |at| {
            if at >= end {
                return true;
            }
            let guests = by_server[at].iter();
            let before = guests.take_while(|(guest, _)| *guest < key);
            let held: u32 = before.map(|(_, mask)| mask.count_ones()).sum();
            let free = firm.free(at) - held;
            if is_best(free) || best.is_none_or(|best| (free, at) < best) {
                best = Some((free, at));
            }
            is_best(free)
        });
        let (_, at) = best?;
        Some((ServerId::new(at), self.mask(firm, at, key)))
    }
}

impl Journal {
    /// Moves entries in; forgets the old ones when there are more than servers.
    fn append(&mut self, changed: &mut Vec<u32>, servers: usize) {
        if self.entries.len() > servers {
            self.forgotten += self.entries.len() as u64;
            self.entries.clear();
        }
        self.entries.append(changed);
    }
}
