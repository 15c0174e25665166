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
    /// Only a chunk that is alone may be empty.
    chunks: VecDeque<Chunk>,
}

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
        self.chunks.front()?.live().first().copied()
    }

    pub(super) fn last(&self) -> Option<u128> {
        self.chunks.back()?.live().last().copied()
    }

    /// From the greatest key down.
    pub(super) fn backwards(&self) -> impl Iterator<Item = u128> {
        let chunks = self.chunks.iter().rev();
        chunks.flat_map(|chunk| chunk.live().iter().rev().copied())
    }

    pub(super) fn insert(&mut self, key: u128) {
        let at = self.chunk_of(key);
        let Some(chunk) = self.chunks.get_mut(at) else {
            self.open(at, key);
            return self.insert(key);
        };
        if !chunk.insert(key) {
            self.split(at, key);
            self.insert(key);
        }
    }

    pub(super) fn pop_first(&mut self) -> Option<u128> {
        let chunk = self.chunks.front_mut()?;
        let key = chunk.live().first().copied()?;
        chunk.from += 1;
        if chunk.live().is_empty() && self.chunks.len() > 1 {
            self.chunks.pop_front();
        }
        Some(key)
    }

    pub(super) fn pop_last(&mut self) -> Option<u128> {
        let chunk = self.chunks.back_mut()?;
        let key = chunk.live().last().copied()?;
        chunk.keys.pop();
        if chunk.live().is_empty() && self.chunks.len() > 1 {
            self.chunks.pop_back();
        }
        Some(key)
    }

    /// Keeps some of the keys.
    pub(super) fn retain(&mut self, keeps: impl Fn(u128) -> bool) {
        for chunk in &mut self.chunks {
            chunk.keys.drain(..chunk.from);
            chunk.from = 0;
            chunk.keys.retain(|&key| keeps(key));
        }
        self.chunks.retain(|chunk| !chunk.keys.is_empty());
    }

    /// Where a key belongs: the last chunk whose bound it reaches, else the first one.
    fn chunk_of(&self, key: u128) -> usize {
        let last = self.chunks.len().saturating_sub(1);
        if self.chunks.get(last).is_none_or(|chunk| chunk.bound <= key) {
            return last;
        }
        let beyond = self.chunks.partition_point(|chunk| chunk.bound <= key);
        beyond.saturating_sub(1)
    }

    fn open(&mut self, at: usize, bound: u128) {
        let keys = Vec::with_capacity(CHUNK);
        self.chunks.insert(
            at,
            Chunk {
                bound,
                keys,
                from: 0,
            },
        );
    }

    /// Makes room beside a full chunk: an empty one where keys come in order, else half of it.
    fn split(&mut self, at: usize, key: u128) {
        let chunk = &mut self.chunks[at];
        if key < chunk.keys[0] {
            chunk.bound = chunk.keys[0];
            self.open(at, key);
        } else if key > chunk.keys[CHUNK - 1] {
            self.open(at + 1, key);
        } else {
            self.open(at + 1, self.chunks[at].keys[CHUNK / 2]);
            let (lower, upper) = (at, at + 1);
            let moved = self.chunks[lower].keys.split_off(CHUNK / 2);
            self.chunks[upper].keys.extend(moved);
        }
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
        assert!(ours.backwards().eq(set.iter().rev().copied()));
        while let Some(first) = set.pop_first() {
            assert_eq!(ours.pop_first(), Some(first));
        }
        assert_eq!((ours.pop_first(), ours.pop_last()), (None, None));
        ours.insert(3);
        assert_eq!(ours.last(), Some(3));
    }
}
