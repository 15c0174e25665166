//! Free GPUs by rack: the part of the index that is built when a placement rule first queries racks.
//!
//! Servers are numbered rack by rack, so a rack is a range of positions. For each number of free GPUs, all racks share
//! one set of servers. Most clusters list their servers rack by rack; in this case, the pool's sets are used at no
//! extra cost.

use super::servers::Servers;
use crate::structures::bits::BitSet;
use crate::structures::trees::MaxTree;
use crate::structures::work::looked;
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Included, Unbounded};

/// If there are at most this many racks, a query scans all racks, because a scan of 1 kB costs less than keeping the
/// racks sorted.
const FEW_RACKS: usize = 256;
/// Largest range of keys that is stored as a bit set (2 MB).
const DENSE_KEYS: usize = 1 << 24;

#[derive(Clone, Debug)]
pub(super) struct Racks {
    /// Number of free GPUs in each rack.
    pub(super) free: Vec<u32>,
    /// First position of each rack, followed by the end position of the last rack.
    starts: Vec<u32>,
    /// Numbering of the servers rack by rack; `None` if the pool already lists them in this order.
    numbering: Option<Numbering>,
    by_free: FreeOrder,
    by_rack: Option<MaxTree>,
    whole: Option<WholeOrder>,
    /// Whether structures other than `free` must be kept up to date.
    has_others: bool,
}

#[derive(Clone, Debug)]
struct Numbering {
    /// For each position in the rack-by-rack numbering, the server's position in the pool.
    order: Vec<u32>,
    /// The inverse of `order`.
    position: Vec<u32>,
    buckets: Vec<BitSet>,
}

/// Key of a rack for placement rules that look for idle servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WholeKey {
    /// Number of completely free servers of the largest size.
    whole: u32,
    /// Maximum number of free GPUs on any other server of the rack.
    other: u32,
    /// Number of free GPUs in the rack.
    free: u32,
    rack: u32,
}

#[derive(Clone, Debug)]
struct WholeOrder {
    size: u32,
    keys: Vec<WholeKey>,
    order: BTreeSet<WholeKey>,
    /// `whole` and `other` of each rack, packed into one number; used to find the leftmost rack with enough of both.
    by_rack: MaxTree,
}

impl Racks {
    pub(super) fn new(racks_of: &[u32], count: usize, sizes: &[u8], buckets: &[BitSet]) -> Self {
        let mut starts = vec![0_u32; count + 1];
        let mut most = vec![0_usize; count];
        for (&rack, &size) in racks_of.iter().zip(sizes) {
            starts[rack as usize + 1] += 1;
            most[rack as usize] += usize::from(size);
        }
        for rack in 0..count {
            starts[rack + 1] += starts[rack];
        }
        let numbering = (!racks_of.is_sorted()).then(|| Numbering::new(racks_of, buckets));
        let most = most.into_iter().max().unwrap_or(0);
        let mut racks = Self {
            free: vec![0; count],
            starts,
            numbering,
            by_free: FreeOrder::new(most, count),
            by_rack: None,
            whole: None,
            has_others: false,
        };
        racks.has_others = racks.numbering.is_some() || !matches!(racks.by_free, FreeOrder::Few);
        for (free, set) in buckets.iter().enumerate().skip(1) {
            for at in set.iter() {
                racks.free[racks_of[at] as usize] += free as u32;
            }
        }
        for (rack, &free) in racks.free.iter().enumerate() {
            racks.by_free.insert(free, rack);
        }
        racks
    }

    /// Records that the number of free GPUs on a server of the rack changed from `old` to `new`; `buckets` are the sets
    /// of the pool, which are already up to date.
    #[inline]
    pub(super) fn change(
        &mut self,
        buckets: &[BitSet],
        (at, rack): (usize, usize),
        (old, new): (u32, u32),
    ) {
        let free = &mut self.free[rack];
        *free = *free + new - old;
        if self.has_others {
            self.change_others(buckets, (at, rack), (old, new));
        }
    }

    #[inline(never)]
    fn change_others(
        &mut self,
        buckets: &[BitSet],
        (at, rack): (usize, usize),
        (old, new): (u32, u32),
    ) {
        if let Some(numbering) = &mut self.numbering {
            let position = numbering.position[at] as usize;
            if new > 0 {
                numbering.buckets[new as usize].insert(position);
            }
            if old > 0 {
                numbering.buckets[old as usize].remove(position);
            }
        }
        let free = self.free[rack];
        self.by_free.change(rack, (free + old - new, free));
        if let Some(tree) = &mut self.by_rack {
            tree.set(rack, free);
        }
        if let Some(whole) = &self.whole {
            let key = &whole.keys[rack];
            let key = WholeKey {
                whole: key.whole + u32::from(new == whole.size) - u32::from(old == whole.size),
                other: self.other(rack, whole.size, buckets),
                free,
                rack: rack as u32,
            };
            self.whole.as_mut().expect("just looked at").set(key);
        }
    }

    /// Returns whether a set of servers contains any of the rack's servers.
    #[inline]
    fn has(&self, rack: usize, set: &BitSet) -> bool {
        let (start, end) = (self.starts[rack] as usize, self.starts[rack + 1] as usize);
        !set.is_empty() && set.next_from(start).is_some_and(|position| position < end)
    }

    /// For each number of free GPUs, returns the set of servers with this number; the servers are numbered rack by
    /// rack.
    #[inline]
    fn buckets<'a>(&'a self, pool: &'a [BitSet]) -> &'a [BitSet] {
        match &self.numbering {
            None => pool,
            Some(numbering) => &numbering.buckets,
        }
    }

    /// Returns a mask with one bit for each number of free GPUs that occurs in the rack; see
    /// [`super::servers::smallest`].
    fn mask(&self, rack: usize, pool: &[BitSet]) -> u64 {
        let sets = self.buckets(pool).iter().enumerate().skip(1);
        sets.filter(|(_, set)| self.has(rack, set))
            .fold(0, |mask, (free, _)| mask | 1 << (free % 64))
    }

    /// Returns the largest number of free GPUs below `size` on any server in the rack.
    fn other(&self, rack: usize, size: u32, pool: &[BitSet]) -> u32 {
        let sets = self.buckets(pool);
        let most = (1..size)
            .rev()
            .find(|&free| self.has(rack, &sets[free as usize]));
        most.unwrap_or(0)
    }

    pub(super) fn servers<'a>(&'a self, rack: usize, buckets: &'a [BitSet]) -> Servers<'a> {
        Servers {
            buckets: self.buckets(buckets),
            mask: self.mask(rack, buckets),
            start: self.starts[rack] as usize,
            end: self.starts[rack + 1] as usize,
            order: self
                .numbering
                .as_ref()
                .map(|numbering| numbering.order.as_slice()),
        }
    }

    /// Returns the rack with the most free GPUs; on a tie, the one with the lowest index.
    pub(super) fn most_free(&self) -> Option<(usize, u32)> {
        let (free, rack) = self.by_free.fullest(&self.free)?;
        Some((rack, free))
    }

    /// Returns the first rack at or after (`free`, `rack`), in ascending order of free GPUs and, on a tie, of index.
    pub(super) fn next_from(&self, free: u32, rack: usize) -> Option<usize> {
        let next = self.by_free.next_from(&self.free, (free, rack));
        next.map(|(_, rack)| rack)
    }

    /// Returns the next rack in descending order of free GPUs; ties are in ascending order of index.
    pub(super) fn emptier(&self, rack: usize) -> Option<usize> {
        let next = self.by_free.emptier(&self.free, (self.free[rack], rack));
        next.map(|(_, rack)| rack)
    }

    /// Returns the leftmost rack at `from` or later with at least `gpus` free.
    pub(super) fn first_from(&mut self, gpus: u32, from: usize) -> Option<usize> {
        let free = &self.free;
        self.has_others = true;
        self.by_rack
            .get_or_insert_with(|| MaxTree::new(free.iter().copied()))
            .next_at_least(gpus, from)
    }

    fn whole_order(&mut self, size: u32, buckets: &[BitSet]) -> &WholeOrder {
        if self.whole.as_ref().is_none_or(|whole| whole.size != size) {
            let keys = (0..self.free.len()).map(|rack| WholeKey {
                whole: self.servers(rack, buckets).with_free(size).count() as u32,
                other: self.other(rack, size, buckets),
                free: self.free[rack],
                rack: rack as u32,
            });
            self.whole = Some(WholeOrder::new(size, keys.collect()));
            self.has_others = true;
        }
        self.whole.as_ref().expect("just built")
    }

    /// Drops the structures that depend on the size of the largest up server.
    pub(super) fn forget_whole(&mut self) {
        self.whole = None;
    }

    /// See [`super::TypePool::rack_whole_first`].
    pub(super) fn whole_first(
        &mut self,
        size: u32,
        buckets: &[BitSet],
        (whole, rest): (u32, u32),
    ) -> Option<usize> {
        self.whole_order(size, buckets)
            .by_rack
            .first_at_least(packed(whole, rest))
    }

    /// See [`super::TypePool::rack_whole_best`].
    pub(super) fn whole_best(
        &mut self,
        size: u32,
        buckets: &[BitSet],
        (whole, rest): (u32, u32),
    ) -> Option<usize> {
        let order = &self.whole_order(size, buckets).order;
        let least = WholeKey {
            whole,
            other: rest,
            free: 0,
            rack: 0,
        };
        let mut next = order.range(least..).next();
        let count = next?.whole;
        let mut best: Option<&WholeKey> = None;
        // For equal `whole`, there is one candidate for each value of `other`, so at most 64.
        while let Some(key) = next.filter(|key| key.whole == count) {
            if best.is_none_or(|best| (key.free, key.rack) < (best.free, best.rack)) {
                best = Some(key);
            }
            let end = WholeKey {
                free: u32::MAX,
                rack: u32::MAX,
                ..*key
            };
            next = order.range((Excluded(end), Unbounded)).next();
        }
        best.map(|key| key.rack as usize)
    }

    /// Compares the structures with newly built ones, for tests and invariant checks.
    pub(super) fn assert_equals(&self, fresh: &mut Self, size: u32, buckets: &[BitSet]) {
        assert_eq!(self.free, fresh.free, "free GPUs by rack");
        assert_eq!(
            self.by_free.keys(&self.free),
            fresh.by_free.keys(&fresh.free),
            "racks by free GPUs"
        );
        if let (Some(kept), Some(fresh)) = (&self.numbering, &fresh.numbering) {
            for (kept, fresh) in kept.buckets.iter().zip(&fresh.buckets) {
                assert!(
                    kept.iter().eq(fresh.iter()),
                    "servers of racks by free GPUs"
                );
            }
        }
        if let Some(tree) = &self.by_rack {
            let equal = self
                .free
                .iter()
                .enumerate()
                .all(|(rack, &free)| tree.get(rack) == free);
            assert!(equal, "racks by index");
        }
        if let Some(kept) = &self.whole {
            assert_eq!(kept.size, size, "size of a whole server");
            let fresh = fresh.whole_order(size, buckets);
            assert_eq!(kept.keys, fresh.keys, "whole servers by rack");
            assert!(
                kept.order.iter().eq(fresh.order.iter()),
                "racks by whole servers"
            );
        }
    }
}

impl Numbering {
    fn new(racks_of: &[u32], buckets: &[BitSet]) -> Self {
        let mut order: Vec<u32> = (0..racks_of.len() as u32).collect();
        order.sort_by_key(|&at| (racks_of[at as usize], at));
        let mut position = vec![0; order.len()];
        for (place, &at) in order.iter().enumerate() {
            position[at as usize] = place as u32;
        }
        let renumbered = |set: &BitSet| {
            let mut fresh = BitSet::new(position.len());
            for at in set.iter() {
                fresh.insert(position[at] as usize);
            }
            fresh
        };
        let buckets = buckets.iter().map(renumbered).collect();
        Self {
            order,
            position,
            buckets,
        }
    }
}

impl WholeOrder {
    fn new(size: u32, keys: Vec<WholeKey>) -> Self {
        let by_rack = MaxTree::new(keys.iter().map(|key| packed(key.whole, key.other)));
        Self {
            size,
            order: keys.iter().copied().collect(),
            keys,
            by_rack,
        }
    }

    fn set(&mut self, key: WholeKey) {
        let old = std::mem::replace(&mut self.keys[key.rack as usize], key);
        self.order.remove(&old);
        self.order.insert(key);
        self.by_rack
            .set(key.rack as usize, packed(key.whole, key.other));
    }
}

/// Packs the two numbers. `other` is below the size of the largest server, and therefore below 64.
fn packed(whole: u32, other: u32) -> u32 {
    whole * 64 + other
}

/// Racks ordered by (free GPUs, index). If there are at most [`FEW_RACKS`] racks, they are not kept in order. If there
/// are more, they are kept in a bit set if the range of keys is small, and otherwise in a tree. The caller of a query
/// passes the number of free GPUs of every rack.
#[derive(Clone, Debug)]
enum FreeOrder {
    /// No structure.
    Few,
    Dense {
        keys: BitSet,
        racks: usize,
    },
    Sparse(BTreeSet<(u32, u32)>),
}

/// Returns the key of a rack in [`FreeOrder::Few`]; keys ascend with the number of free GPUs, then with the index.
#[inline]
fn few(free: u32, rack: usize) -> u32 {
    free << FEW_RACKS.ilog2() | rack as u32
}

/// Returns the key of a rack for the descending order, in which the greatest key comes first.
#[inline]
fn few_down(free: u32, rack: usize) -> u32 {
    few(free, FEW_RACKS - 1 - rack)
}

/// Returns the number of free GPUs and the rack that a descending key stands for.
#[inline]
fn of_few_down(key: u32) -> (u32, usize) {
    let (free, place) = of_few(key);
    (free, FEW_RACKS - 1 - place)
}

/// Returns the keys of all racks in [`FreeOrder::Few`].
#[expect(
    clippy::range_zip_with_len,
    reason = "a bounded range is iterated without checks, several items at a time"
)]
#[inline]
fn all_few(all: &[u32], key: impl Fn(u32, usize) -> u32) -> impl Iterator<Item = u32> {
    let racks = all.iter().zip(0..all.len());
    racks.map(move |(&free, rack)| key(free, rack))
}

/// Returns the number of free GPUs and the rack that a key stands for.
#[inline]
fn of_few(key: u32) -> (u32, usize) {
    (key / FEW_RACKS as u32, key as usize % FEW_RACKS)
}

impl FreeOrder {
    fn new(free_max: usize, racks: usize) -> Self {
        if racks <= FEW_RACKS && free_max < 1 << 23 {
            return Self::Few;
        }
        match (free_max + 1).checked_mul(racks) {
            Some(keys) if keys <= DENSE_KEYS => Self::Dense {
                keys: BitSet::new(keys),
                racks,
            },
            _ => Self::Sparse(BTreeSet::new()),
        }
    }

    fn insert(&mut self, free: u32, rack: usize) {
        match self {
            Self::Few => {}
            Self::Dense { keys, racks } => {
                keys.insert(free as usize * *racks + rack);
            }
            Self::Sparse(keys) => {
                keys.insert((free, rack as u32));
            }
        }
    }

    /// Moves a rack from one number of free GPUs to another.
    #[inline]
    fn change(&mut self, rack: usize, (before, after): (u32, u32)) {
        match self {
            Self::Few => {}
            Self::Dense { keys, racks } => {
                keys.remove(before as usize * *racks + rack);
                keys.insert(after as usize * *racks + rack);
            }
            Self::Sparse(keys) => {
                keys.remove(&(before, rack as u32));
                keys.insert((after, rack as u32));
            }
        }
    }

    fn next_from(&self, all: &[u32], (free, rack): (u32, usize)) -> Option<(u32, usize)> {
        match self {
            Self::Few => {
                looked(all.len());
                // This is not `few(free, rack)`, because `rack` may be 256, one beyond the last rack. Adding this
                // number carries into the number of free GPUs; the `|` in `few` would not.
                let from = few(free, 0) + rack as u32;
                // The loop has no branch, so that the compiler can vectorise it.
                let later = |key| if key >= from { key } else { u32::MAX };
                let least = all_few(all, few).map(later).min()?;
                (least != u32::MAX).then(|| of_few(least))
            }
            Self::Dense { keys, racks } => {
                let key = keys.next_from(free as usize * racks + rack)?;
                Some(((key / racks) as u32, key % racks))
            }
            Self::Sparse(keys) => {
                let from = Included((free, rack as u32));
                keys.range((from, Unbounded))
                    .next()
                    .map(|&(free, rack)| (free, rack as usize))
            }
        }
    }

    /// Returns the first rack in descending order of free GPUs; ties are in ascending order of index.
    fn fullest(&self, all: &[u32]) -> Option<(u32, usize)> {
        let most = match self {
            Self::Few => {
                looked(all.len());
                return all_few(all, few_down).max().map(of_few_down);
            }
            Self::Dense { keys, racks } => (keys.last()? / racks) as u32,
            Self::Sparse(keys) => keys.last()?.0,
        };
        self.next_from(all, (most, 0))
    }

    /// Returns the rack that follows a given rack in descending order of free GPUs; ties are in ascending order of
    /// index.
    fn emptier(&self, all: &[u32], (free, rack): (u32, usize)) -> Option<(u32, usize)> {
        if let Self::Few = self {
            looked(all.len());
            let end = few_down(free, rack);
            // The loop has no branch, so that the compiler can vectorise it.
            let earlier = |key| if key < end { key + 1 } else { 0 };
            let next = all_few(all, few_down).map(earlier).max()?;
            return next.checked_sub(1).map(of_few_down);
        }
        match self.next_from(all, (free, rack + 1)) {
            Some((same, next)) if same == free => Some((free, next)),
            _ => self.next_from(all, (self.most_below(all, free)?, 0)),
        }
    }

    /// Returns the largest number of free GPUs below `free` in any rack.
    fn most_below(&self, all: &[u32], free: u32) -> Option<u32> {
        match self {
            Self::Few => all.iter().copied().filter(|&other| other < free).max(),
            Self::Dense { keys, racks } => {
                let key = keys.last_before(free as usize * racks)?;
                Some((key / racks) as u32)
            }
            Self::Sparse(keys) => keys.range(..(free, 0)).next_back().map(|key| key.0),
        }
    }

    fn keys(&self, all: &[u32]) -> Vec<(u32, usize)> {
        let mut found = Vec::new();
        let mut next = self.next_from(all, (0, 0));
        while let Some((free, rack)) = next {
            found.push((free, rack));
            next = self.next_from(all, (free, rack + 1));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Reverse;

    proptest! {
        #[test]
        fn every_order_of_racks_equals_a_sorted_list(
            mut free in prop_oneof![
                9 => prop::collection::vec(0_u32..30, 1..60),
                1 => prop::collection::vec(0_u32..30, FEW_RACKS),
            ],
            steps in prop::collection::vec((any::<u16>(), 0_u32..30), 0..60),
        ) {
            let racks = free.len();
            let mut orders = [
                FreeOrder::Few,
                FreeOrder::Dense { keys: BitSet::new(30 * racks), racks },
                FreeOrder::Sparse(BTreeSet::new()),
            ];
            for order in &mut orders {
                for (rack, &free) in free.iter().enumerate() {
                    order.insert(free, rack);
                }
            }
            for (raw, after) in steps {
                let rack = usize::from(raw) % racks;
                let before = std::mem::replace(&mut free[rack], after);
                let mut sorted: Vec<(u32, usize)> =
                    free.iter().enumerate().map(|(rack, &free)| (free, rack)).collect();
                sorted.sort_unstable();
                let mut sorted_down = sorted.clone();
                sorted_down.sort_unstable_by_key(|&(free, rack)| (Reverse(free), rack));
                for order in &mut orders {
                    order.change(rack, (before, after));
                    // The first search starts at the rack, the second after all racks with this number of free GPUs.
                    for from in [(before, rack), (before, racks)] {
                        let later = sorted.iter().find(|&&key| key >= from);
                        prop_assert_eq!(order.next_from(&free, from), later.copied());
                    }
                    let mut down = order.fullest(&free);
                    for &rack in &sorted_down {
                        prop_assert_eq!(down, Some(rack));
                        down = order.emptier(&free, rack);
                    }
                    prop_assert_eq!(down, None);
                }
            }
        }
    }
}
