//! Which guest sits on which server: the question "what would be free for a job at this place in the order"
//! for one server at a time.
//!
//! Along the order a server only loses GPUs: each number of free GPUs that it ever has is a span of keys. A
//! question looks at the spans of one number of GPUs, and where no server has as many any more one bound tells
//! so.

use crate::order::Key;
use gangline_engine::{BitSet, TypePool};
use gangline_model::{GpuSet, ServerId};
use smallvec::SmallVec;

#[cfg(test)]
mod tests;

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
    /// Server -> a bit per number of GPUs that are free at some place in the order, 0 GPUs left out. Only of
    /// servers with a guest.
    counts: Vec<u64>,
    /// GPUs -> servers without a guest that have as many free; nobody asks for those without any.
    bare: Vec<BitSet>,
    /// Server -> its set in `bare`.
    bare_free: Vec<u8>,
    /// Bit per set of `bare` that is not empty, as in `counts`.
    bare_counts: u64,
    /// GPUs -> servers with a guest where as many are free at some place in the order.
    levels: Vec<Level>,
    /// GPUs -> on no server with a guest as many are free, or more, for a job behind this key.
    bounds: Vec<Key>,
    /// Servers whose guests have changed, or what is free there, since the last question.
    changed: Vec<u32>,
    is_changed: Vec<bool>,
    journal: Journal,
}

/// One number of GPUs.
#[derive(Clone, Debug)]
struct Level {
    servers: BitSet,
    /// Server -> the keys for which as many are free. Only of `servers`.
    spans: Vec<Span>,
    /// No span of a block of servers ends behind this key.
    blocks: Vec<Key>,
    /// No span ends behind this key.
    all: Key,
}

/// Keys behind the first up to the last.
#[derive(Clone, Copy, Debug)]
struct Span {
    after: Key,
    up_to: Key,
}

/// The last servers that changed, for those who keep what is free at some place in the order.
#[derive(Debug)]
struct Journal {
    entries: Vec<u32>,
    /// Number of entries before the first one.
    forgotten: u64,
}

/// Those of a set that are in a block, in order.
#[inline]
fn members(set: &BitSet, block: usize) -> impl Iterator<Item = usize> {
    let mut rest = set.word(block);
    std::iter::from_fn(move || {
        let at = block * BLOCK + rest.trailing_zeros() as usize;
        (rest != 0).then(|| {
            rest &= rest - 1;
            at
        })
    })
}

impl Level {
    fn new(servers: usize) -> Self {
        let nothing = Span {
            after: NEVER,
            up_to: NEVER,
        };
        Self {
            servers: BitSet::new(servers.max(1)),
            spans: vec![nothing; servers],
            blocks: vec![NEVER; servers.div_ceil(BLOCK)],
            all: NEVER,
        }
    }

    /// Sets the span of a server; whether it ends behind all others.
    #[inline]
    fn set(&mut self, at: usize, span: Span) -> bool {
        self.spans[at] = span;
        let block = &mut self.blocks[at / BLOCK];
        if *block >= span.up_to {
            return false;
        }
        *block = span.up_to;
        if self.all >= span.up_to {
            return false;
        }
        self.all = span.up_to;
        true
    }

    /// Shows the servers before `end` where as many are free for a job at `key`, in index order, until
    /// `is_enough` of one. Bounds that let it look in vain it sets anew.
    #[inline]
    fn look_through(&mut self, (key, end): (Key, usize), mut is_enough: impl FnMut(usize) -> bool) {
        if self.all < key {
            return;
        }
        let mut is_all_needed = false;
        for (block, bound) in self.blocks.iter_mut().enumerate() {
            if block * BLOCK >= end {
                return;
            }
            if *bound < key {
                continue;
            }
            let mut is_needed = false;
            for at in members(&self.servers, block) {
                let span = &self.spans[at];
                if span.up_to < key {
                    continue;
                }
                is_needed = true;
                if span.after < key && (at >= end || is_enough(at)) {
                    return;
                }
            }
            if !is_needed {
                let spans = members(&self.servers, block).map(|at| self.spans[at].up_to);
                *bound = spans.max().unwrap_or(NEVER);
            }
            is_all_needed |= is_needed;
        }
        if !is_all_needed {
            self.all = self.blocks.iter().copied().max().unwrap_or(NEVER);
        }
    }

    /// The first server before `end` where as many are free for a job at `key`.
    fn first(&mut self, key: Key, end: usize) -> Option<usize> {
        let mut found = None;
        self.look_through((key, end), |at| {
            found = Some(at);
            true
        });
        found
    }
}

impl Seats {
    pub(super) fn new(servers: usize, gpus_max: u32) -> Self {
        Self {
            by_server: vec![SmallVec::new(); servers],
            counts: vec![0; servers],
            bare: vec![BitSet::new(servers.max(1)); gpus_max as usize + 1],
            bare_free: vec![0; servers],
            bare_counts: 0,
            levels: vec![Level::new(servers); gpus_max as usize + 1],
            bounds: vec![NEVER; gpus_max as usize + 1],
            changed: Vec::new(),
            is_changed: vec![false; servers],
            journal: Journal {
                entries: Vec::new(),
                forgotten: 0,
            },
        }
    }

    /// A guest sits down.
    pub(super) fn add(&mut self, key: Key, gpus: &GpuSet) {
        for part in gpus.parts() {
            let at = part.server.index();
            let guests = &mut self.by_server[at];
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
    #[inline]
    pub(super) fn refresh(&mut self, firm: &TypePool) {
        if self.changed.is_empty() {
            return;
        }
        for at in 0..self.changed.len() {
            let at = self.changed[at] as usize;
            self.is_changed[at] = false;
            self.refresh_one(at, firm.free(at));
        }
        self.journal.append(&mut self.changed, self.by_server.len());
    }

    fn refresh_one(&mut self, at: usize, free: u32) {
        let guests = &self.by_server[at];
        let bare = if guests.is_empty() { free as u8 } else { 0 };
        let old = std::mem::replace(&mut self.bare_free[at], bare);
        if old != bare {
            if old > 0 {
                let servers = &mut self.bare[usize::from(old)];
                servers.remove(at);
                if servers.is_empty() {
                    self.bare_counts &= !(1 << (old - 1));
                }
            }
            if bare > 0 {
                self.bare[usize::from(bare)].insert(at);
                self.bare_counts |= 1 << (bare - 1);
            }
        }
        let (mut left, mut after, mut counts) = (free, NEVER, 0_u64);
        let mut put = |left: u32, span: Span| {
            counts |= 1 << (left - 1);
            if self.levels[left as usize].set(at, span) {
                // they fall with the number of GPUs
                let lower = self.bounds[..=left as usize].iter_mut().rev();
                for bound in lower.take_while(|bound| **bound < span.up_to) {
                    *bound = span.up_to;
                }
            }
        };
        for &(up_to, mask) in guests {
            if left == 0 {
                break;
            }
            put(left, Span { after, up_to });
            after = up_to;
            left -= mask.count_ones();
        }
        if left > 0 && !guests.is_empty() {
            let up_to = ALWAYS;
            put(left, Span { after, up_to });
        }
        let old = std::mem::replace(&mut self.counts[at], counts);
        let mut different = old ^ counts;
        while different != 0 {
            let bit = different.trailing_zeros();
            different &= different - 1;
            let servers = &mut self.levels[bit as usize + 1].servers;
            if counts >> bit & 1 == 1 {
                servers.insert(at);
            } else {
                servers.remove(at);
            }
        }
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
    /// `true` for one server may be wrong until a search has found nothing.
    pub(super) fn may_have(
        &mut self,
        firm: &TypePool,
        key: Key,
        (servers, gpus): (u32, u32),
    ) -> bool {
        self.refresh(firm);
        let Some(bound) = self.bounds.get(gpus as usize) else {
            return false; // wider than every server
        };
        if servers == 1 {
            return *bound >= key || self.bare_counts >> (gpus - 1) != 0;
        }
        let (bare, levels) = (
            &self.bare[gpus as usize..],
            &mut self.levels[gpus as usize..],
        );
        let mut found: usize = bare.iter().map(BitSet::len).sum();
        for level in levels {
            if found >= servers as usize {
                break;
            }
            level.look_through((key, usize::MAX), |_| {
                found += 1;
                found >= servers as usize
            });
        }
        found >= servers as usize
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
        let bare = self.bare.get(gpus as usize..).unwrap_or_default();
        let levels = self.levels.get_mut(gpus as usize..).unwrap_or_default();
        let mut best: Option<usize> = None;
        for (set, level) in bare.iter().zip(levels) {
            let end = set.first().into_iter().chain(best).min();
            best = level.first(key, end.unwrap_or(usize::MAX)).or(end);
            if best.is_some() && !is_first {
                break;
            }
        }
        if best.is_none() {
            self.lower_bounds(gpus as usize);
        }
        let at = best?;
        Some((ServerId::new(at), self.mask(firm, at, key)))
    }

    /// After a search through all servers for at least so many GPUs.
    fn lower_bounds(&mut self, gpus: usize) {
        let levels = self.levels.get(gpus..).unwrap_or_default();
        let most = levels.iter().map(|level| level.all).max().unwrap_or(NEVER);
        for bound in self.bounds.get_mut(gpus..).unwrap_or_default() {
            *bound = most.min(*bound);
        }
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
