//! Which guests are on which server, to answer which servers have how many GPUs free for a job at some place in the
//! order.
//!
//! Along the order a server only loses GPUs. So each number of GPUs that it ever has free stands for a span of keys:
//! the places in the order where it has exactly that number free. A question for `n` GPUs looks at the spans of `n`,
//! then of `n + 1` and so on, and one bound per number tells when no server has that many free any more.

use crate::order::Key;
use gangline_engine::{BitSet, TypePool};
use gangline_model::{GpuSet, ServerId, gpus_in};
use smallvec::SmallVec;

#[cfg(test)]
mod tests;

/// Servers of a block, the bits of a word: a question passes over a block at once.
const BLOCK: usize = 64;
/// Before every job. As the end of a span: that many GPUs are never free.
const NEVER: Key = Key {
    lead: 0,
    main: i64::MIN,
    job: 0,
};
/// Behind every job. As the end of a span: that many GPUs are free for all from some key on.
const ALWAYS: Key = Key {
    lead: u64::MAX,
    main: i64::MAX,
    job: u32::MAX,
};

/// Guests by server. Positions in the pool are ids of servers: there is one GPU type.
#[derive(Debug)]
pub(super) struct Seats {
    /// Server -> its guests in key order, each with the slots it holds.
    by_server: Vec<SmallVec<[(Key, u64); 2]>>,
    /// Server -> bit `n - 1` is set if `n` GPUs are free at some place in the order. 0 for servers without a guest.
    counts: Vec<u64>,
    /// Number of GPUs -> servers without a guest that have that many free; the set for 0 stays empty.
    bare: Vec<BitSet>,
    /// Server -> its set in `bare`.
    bare_free: Vec<u8>,
    /// Bit per set of `bare` that is not empty, as in `counts`.
    bare_counts: u64,
    /// Number of GPUs -> servers with a guest where that many are free at some place in the order.
    levels: Vec<Level>,
    /// Number of GPUs -> for a job behind this key no server with a guest has that many free, or more.
    bounds: Vec<Key>,
    /// Bit `n - 1` is set if level `n` has had another bound since `bounds` was put right.
    rebound: u64,
    /// Whether a server is among the new entries of the journal.
    is_changed: Vec<bool>,
    journal: Journal,
}

/// One number of GPUs.
#[derive(Clone, Debug)]
struct Level {
    /// Server -> the keys for which that many are free. Valid for servers that are members of their block.
    spans: Vec<Span>,
    blocks: Vec<Block>,
    last: Last,
}

/// [`BLOCK`] servers in a row.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// Bit per server: whether that many are free there at some place in the order.
    members: u64,
    /// No span of a member ends behind this key; it may be too late.
    bound: Key,
}

/// Where the spans of a level end at the latest. Mostly one server gets GPUs free and they are taken before another
/// gets some. So the server whose span ends last is known apart from the others: it alone is asked while it has room,
/// and then the bound of the others holds again.
#[derive(Clone, Copy, Debug)]
struct Last {
    /// No span ends behind this key: the later one of those below.
    bound: Key,
    /// The server whose span ended last when it was set, and where it ends.
    server: usize,
    key: Key,
    /// No span of the others ends behind this key.
    others: Key,
}

/// Keys behind the first up to the last.
#[derive(Clone, Copy, Debug)]
struct Span {
    after: Key,
    up_to: Key,
}

/// The last servers that changed, for those who keep what is free at some place in the order.
#[derive(Debug, Default)]
struct Journal {
    entries: Vec<u32>,
    /// Number of entries before the first one.
    forgotten: u64,
    /// The entries from here on are not taken in yet.
    new_from: usize,
}

/// The members of a word of a set, in order.
#[inline]
fn members(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = word.trailing_zeros() as usize;
        (word != 0).then(|| {
            word &= word - 1;
            at
        })
    })
}

impl Last {
    /// For a level whose spans all end here or before, on whatever server.
    fn somewhere(bound: Key) -> Self {
        Self {
            bound,
            server: usize::MAX,
            key: NEVER,
            others: bound,
        }
    }

    /// The span of a server ends here now. Whether the bound may be another.
    #[inline]
    fn set(&mut self, server: usize, key: Key) -> bool {
        if self.server == server {
            self.key = key;
            self.bound = key.max(self.others);
            return true;
        }
        if self.key < key {
            self.others = self.bound;
            (self.server, self.key) = (server, key);
            self.bound = key.max(self.others);
            return true;
        }
        if self.others < key {
            self.others = key;
        }
        false
    }

    /// A server has no span any more. Whether the bound may be another.
    #[inline]
    fn leave(&mut self, server: usize) -> bool {
        self.server == server && self.set(server, NEVER)
    }
}

impl Level {
    fn new(servers: usize) -> Self {
        let nothing = Span {
            after: NEVER,
            up_to: NEVER,
        };
        let block = Block {
            members: 0,
            bound: NEVER,
        };
        Self {
            spans: vec![nothing; servers],
            blocks: vec![block; servers.div_ceil(BLOCK)],
            last: Last::somewhere(NEVER),
        }
    }

    /// Sets the span of a server. Whether the bound may be another.
    #[inline]
    fn set(&mut self, at: usize, span: Span) -> bool {
        self.spans[at] = span;
        let block = &mut self.blocks[at / BLOCK];
        block.members |= 1 << (at % BLOCK);
        if block.bound < span.up_to {
            block.bound = span.up_to;
        }
        self.last.set(at, span.up_to)
    }

    /// That many are never free on a server now. Whether the bound may be another.
    #[inline]
    fn leave(&mut self, at: usize) -> bool {
        self.blocks[at / BLOCK].members &= !(1 << (at % BLOCK));
        self.last.leave(at)
    }

    /// Calls `is_enough` with each server before `end` where that many are free for a job at `key`, in index order,
    /// until it says yes.
    #[inline]
    fn look_through(&mut self, (key, end): (Key, usize), mut is_enough: impl FnMut(usize) -> bool) {
        if self.last.bound < key {
            return;
        }
        if self.last.others >= key {
            self.search((key, end), is_enough);
            return;
        }
        let server = self.last.server;
        if server < end && self.spans[server].after < key {
            is_enough(server);
        }
    }

    /// The same, block by block. A bound that made it look in vain is set anew.
    fn search(&mut self, (key, end): (Key, usize), mut is_enough: impl FnMut(usize) -> bool) {
        let mut is_all_needed = false;
        let blocks = self.blocks.iter_mut().zip(self.spans.chunks(BLOCK));
        for (at, (block, spans)) in blocks.enumerate() {
            let first = at * BLOCK;
            if first >= end {
                return;
            }
            if block.bound < key {
                continue;
            }
            let mut is_needed = false;
            for at in members(block.members) {
                let span = &spans[at];
                if span.up_to < key {
                    continue;
                }
                is_needed = true;
                if span.after < key && (first + at >= end || is_enough(first + at)) {
                    return;
                }
            }
            if !is_needed {
                let spans = members(block.members).map(|at| spans[at].up_to);
                block.bound = spans.max().unwrap_or(NEVER);
            }
            is_all_needed |= is_needed;
        }
        if !is_all_needed {
            let bounds = self.blocks.iter().map(|block| block.bound);
            self.last = Last::somewhere(bounds.max().unwrap_or(NEVER));
        }
    }

    /// The first server before `end` where that many are free for a job at `key`.
    #[inline]
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
            rebound: 0,
            is_changed: vec![false; servers],
            journal: Journal::default(),
        }
    }

    /// A job becomes a guest on these GPUs.
    pub(super) fn add(&mut self, key: Key, gpus: &GpuSet) {
        for part in gpus.by_server() {
            let at = part.server.index();
            let guests = &mut self.by_server[at];
            let place = guests.partition_point(|(other, _)| *other < key);
            guests.insert(place, (key, part.mask));
            self.note(at);
        }
    }

    /// A guest is none any more.
    pub(super) fn remove(&mut self, key: Key, gpus: &GpuSet) {
        for part in gpus.by_server() {
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

    /// On the servers of this set, other GPUs than before are free of admitted jobs.
    pub(super) fn firm_changed(&mut self, gpus: &GpuSet) {
        for part in gpus.by_server() {
            self.note(part.server.index());
        }
    }

    /// Notes that a server has changed.
    #[inline]
    pub(super) fn note(&mut self, at: usize) {
        if !std::mem::replace(&mut self.is_changed[at], true) {
            self.journal.entries.push(at as u32);
        }
    }

    /// Notes that all servers have changed.
    pub(super) fn note_all(&mut self) {
        for at in 0..self.by_server.len() {
            self.note(at);
        }
    }

    /// Takes in what has changed. `firm` has free what no admitted job holds.
    #[inline]
    pub(super) fn refresh(&mut self, firm: &TypePool) {
        if self.journal.new_from < self.journal.entries.len() {
            self.take_in(firm);
        }
    }

    fn take_in(&mut self, firm: &TypePool) {
        for at in self.journal.new_from..self.journal.entries.len() {
            let at = self.journal.entries[at] as usize;
            self.is_changed[at] = false;
            self.refresh_one(at, firm.free(at));
        }
        self.journal.close(self.by_server.len());
        self.take_in_bounds();
    }

    /// Puts the bounds right after those of some levels have changed.
    fn take_in_bounds(&mut self) {
        let changed = std::mem::take(&mut self.rebound);
        if changed == 0 {
            return;
        }
        let most = 64 - changed.leading_zeros() as usize;
        let least = changed.trailing_zeros() as usize + 1;
        let mut behind = self.bounds.get(most + 1).copied().unwrap_or(NEVER);
        for gpus in (1..=most).rev() {
            let bound = &self.levels[gpus].last.bound;
            if behind < *bound {
                behind = *bound;
            }
            let old = std::mem::replace(&mut self.bounds[gpus], behind);
            if gpus < least && old == behind {
                return; // for fewer GPUs the bounds stay the same
            }
        }
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
                self.rebound |= 1 << (left - 1);
            }
        };
        for &(up_to, mask) in guests {
            if left == 0 {
                break;
            }
            put(left, Span { after, up_to });
            after = up_to;
            left -= gpus_in(mask);
        }
        if left > 0 && !guests.is_empty() {
            let up_to = ALWAYS;
            put(left, Span { after, up_to });
        }
        let old = std::mem::replace(&mut self.counts[at], counts);
        let mut gone = old & !counts;
        while gone != 0 {
            let bit = gone.trailing_zeros();
            gone &= gone - 1;
            if self.levels[bit as usize + 1].leave(at) {
                self.rebound |= 1 << bit;
            }
        }
    }

    /// The servers that changed since a number of the journal, or `None` if the journal no longer reaches back to it;
    /// and the number to ask with next time.
    pub(super) fn changes_since(&self, number: u64) -> (Option<&[u32]>, u64) {
        let Journal {
            entries, forgotten, ..
        } = &self.journal;
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

    /// Whether a server may have at least so many GPUs free for a job at `key`, after [`Self::refresh`]. `false` is
    /// certain; `true` may be wrong until a search has found nothing.
    #[inline]
    pub(super) fn may_have_one(&self, key: Key, gpus: u32) -> bool {
        let bound = self.bounds.get(gpus as usize); // `None`: more than any server has
        bound.is_some_and(|bound| *bound >= key || self.bare_counts >> (gpus - 1) != 0)
    }

    /// Whether so many servers may have at least so many GPUs free for a job at `key`. `false` is certain;
    /// for one server `true` may be wrong, as [`Self::may_have_one`] says.
    pub(super) fn may_have(
        &mut self,
        firm: &TypePool,
        key: Key,
        (servers, gpus): (u32, u32),
    ) -> bool {
        self.refresh(firm);
        if servers == 1 {
            return self.may_have_one(key, gpus);
        }
        if gpus as usize >= self.levels.len() {
            return false; // more than any server has
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

    /// The server with the fewest free GPUs that has at least `gpus` for a job at `key`, lowest index, or the first one
    /// in index order if `is_first`; and what is free there. `firm` has free what no admitted job holds.
    pub(super) fn find(
        &mut self,
        firm: &TypePool,
        key: Key,
        gpus: u32,
        is_first: bool,
    ) -> Option<(ServerId, u64)> {
        self.refresh(firm);
        let mut best: Option<usize> = None;
        for free in gpus as usize..self.levels.len() {
            let mut end = best;
            if self.bare_counts >> (free - 1) & 1 == 1 {
                end = self.bare[free].first().into_iter().chain(best).min();
            }
            let found = self.levels[free].first(key, end.unwrap_or(usize::MAX));
            best = found.or(end);
            if best.is_some() && !is_first {
                break;
            }
        }
        if best.is_none() {
            // searching in vain has lowered bounds of these levels
            for searched in gpus as usize..self.levels.len() {
                self.rebound |= 1 << (searched - 1);
            }
            self.take_in_bounds();
        }
        let at = best?;
        Some((ServerId::new(at), self.mask(firm, at, key)))
    }
}

impl Journal {
    /// All entries are taken in; forgets the old ones when there are more than servers.
    fn close(&mut self, servers: usize) {
        if self.new_from > servers {
            self.entries.drain(..self.new_from);
            self.forgotten += self.new_from as u64;
        }
        self.new_from = self.entries.len();
    }
}
