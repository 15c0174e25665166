//! Keys in order, in chunks: what the loops keep running and waiting jobs in.
//!
//! Nearly all that happens to them happens at the ends, where it costs a comparison and a move within one
//! chunk. Elsewhere a key is inserted by two binary searches.
//!
//! Cost: O(1) at the ends, O(log n + chunk) elsewhere, O(n / chunk) each time a chunk in the middle is full.

use std::collections::VecDeque;

/// Most keys of a chunk: 1 KiB, of which an insertion moves a quarter.
const CHUNK: usize = 64;

/// Ascending keys, each at most once.
#[derive(Default)]
pub(super) struct Sorted {
    /// All but the last chunk; none is empty.
    before: VecDeque<Chunk>,
    last: Chunk,
}

#[derive(Default)]
struct Chunk {
    /// No key of the chunk lies below, except in the first one.
    bound: u128,
    keys: Vec<u128>,
    /// Keys before this one are gone.
    from: usize,
}

impl Chunk {
    fn live(&self) -> &[u128] {
        &self.keys[self.from..]
    }

    fn new(bound: u128) -> Self {
        Self {
            bound,
            keys: Vec::with_capacity(CHUNK),
            from: 0,
        }
    }

    /// A full chunk as two, with room for the key: halves, or an empty one for it where keys come in order.
    fn split(mut self, key: u128) -> (Self, Self) {
        let (first, last) = (self.keys[0], self.keys[CHUNK - 1]);
        if key > last {
            return (self, Self::new(key));
        }
        if key < first {
            self.bound = first;
            return (Self::new(key), self);
        }
        let mut upper = Self::new(self.keys[CHUNK / 2]);
        upper.keys.extend(self.keys.drain(CHUNK / 2..));
        (self, upper)
    }

    /// Moves the keys on one side of the place; false if there is no room.
    fn insert(&mut self, key: u128) -> bool {
        if self.keys.len() == CHUNK {
            if self.from == 0 {
                return false;
            }
            self.keys.drain(..self.from);
            self.from = 0;
        }
        if self.live().last().is_none_or(|&last| last < key) {
            self.keys.push(key);
            return true;
        }
        let place = self.from + self.live().partition_point(|&other| other < key);
        if self.from > 0 && place - self.from < self.keys.len() - place {
            self.keys.copy_within(self.from..place, self.from - 1);
            self.from -= 1;
            self.keys[place - 1] = key;
        } else {
            self.keys.insert(place, key);
        }
        true
    }
}

impl Sorted {
    pub(super) fn first(&self) -> Option<u128> {
        let chunk = self.before.front().unwrap_or(&self.last);
        chunk.live().first().copied()
    }

    pub(super) fn last(&self) -> Option<u128> {
        self.last.live().last().copied()
    }

    /// Shows the keys from the greatest down until one is not wanted; true if all were.
    pub(super) fn walk_back(&self, mut goes_on: impl FnMut(u128) -> bool) -> bool {
        let last = self.last.live().iter().rev();
        let before = self.before.iter().rev();
        last.copied().all(&mut goes_on)
            && before
                .flat_map(|chunk| chunk.live().iter().rev().copied())
                .all(goes_on)
    }

    pub(super) fn insert(&mut self, key: u128) {
        if self.before.is_empty() || self.last.bound <= key {
            if !self.last.insert(key) {
                let (lower, upper) = std::mem::take(&mut self.last).split(key);
                self.before.push_back(lower);
                self.last = upper;
                self.insert(key);
            }
            return;
        }
        let beyond = self.before.partition_point(|chunk| chunk.bound <= key);
        let at = beyond.saturating_sub(1);
        if !self.before[at].insert(key) {
            let (lower, upper) = std::mem::take(&mut self.before[at]).split(key);
            self.before[at] = lower;
            self.before.insert(at + 1, upper);
            self.insert(key);
        }
    }

    /// Inserts a key that is less than all others.
    pub(super) fn push_first(&mut self, key: u128) {
        let chunk = self.before.front_mut().unwrap_or(&mut self.last);
        if chunk.from > 0 {
            chunk.from -= 1;
            chunk.keys[chunk.from] = key;
        } else {
            self.insert(key);
        }
    }

    pub(super) fn pop_first(&mut self) -> Option<u128> {
        let chunk = self.before.front_mut().unwrap_or(&mut self.last);
        let key = chunk.live().first().copied()?;
        chunk.from += 1;
        if chunk.live().is_empty() {
            self.before.pop_front();
        }
        Some(key)
    }

    pub(super) fn pop_last(&mut self) -> Option<u128> {
        let key = self.last.live().last().copied()?;
        self.last.keys.pop();
        if self.last.live().is_empty()
            && let Some(chunk) = self.before.pop_back()
        {
            self.last = chunk;
        }
        Some(key)
    }

    /// Keeps some of the keys.
    pub(super) fn retain(&mut self, keeps: impl Fn(u128) -> bool) {
        for mut chunk in std::mem::take(self).into_chunks() {
            chunk.keys.drain(..chunk.from);
            chunk.from = 0;
            chunk.keys.retain(|&key| keeps(key));
            if chunk.keys.is_empty() {
                continue;
            }
            let last = std::mem::replace(&mut self.last, chunk);
            if !last.keys.is_empty() {
                self.before.push_back(last);
            }
        }
    }

    fn into_chunks(self) -> impl Iterator<Item = Chunk> {
        self.before.into_iter().chain(std::iter::once(self.last))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Sorted;
    use crate::workload::{Cluster, philly_like};

    /// Like a set of the standard library, when keys come at random, in order, in turned order, at the ends.
    #[test]
    fn keeps_the_order_of_a_set() {
        let drawn = philly_like(4_000, Cluster::PUBLISHED, 1.0, 9).duration_ns;
        let (mut ours, mut set) = (Sorted::default(), BTreeSet::new());
        for (at, &draw) in drawn.iter().enumerate() {
            let key = match at % 4 {
                0 => draw as u128,
                1 => u128::MAX / 2 + at as u128,
                2 => u128::MAX / 2 - at as u128,
                _ => (draw as u128) << 40,
            };
            assert!(set.insert(key));
            ours.insert(key);
            match draw % 7 {
                0 | 1 => assert_eq!(ours.pop_first(), set.pop_first()),
                2 | 3 => assert_eq!(ours.pop_last(), set.pop_last()),
                _ => {}
            }
            assert_eq!(ours.first(), set.first().copied());
            assert_eq!(ours.last(), set.last().copied());
        }
        assert!(set.len() > 1_000);
        let mut all = Vec::new();
        assert!(ours.walk_back(|key| {
            all.push(key);
            true
        }));
        assert!(all.iter().eq(set.iter().rev()));
        ours.retain(|key| key % 3 != 0);
        set.retain(|key| key % 3 != 0);
        while let Some(first) = set.pop_first() {
            assert_eq!(ours.pop_first(), Some(first));
        }
        assert_eq!((ours.pop_first(), ours.pop_last()), (None, None));
        ours.insert(3);
        assert_eq!(ours.last(), Some(3));
    }
}
