//! A set of keys in order, quick at both ends: jobs that become guests, or are guests no more, mostly stand before or
//! behind nearly all other guests of their class.

use crate::order::Key;
use std::collections::VecDeque;
use std::ops::Range;

/// Most keys of a chunk.
const CHUNK: usize = 128;

/// A set of keys in chunks. A change at an end of a chunk is O(1); one inside moves the keys up to the nearer end.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// Ascending. None is empty, except where there is only one.
    chunks: VecDeque<Chunk>,
}

#[derive(Debug)]
struct Chunk {
    /// Largest key.
    last: Key,
    /// Ascending.
    keys: VecDeque<Key>,
}

impl Ends {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    #[inline]
    pub(super) fn first(&self) -> Option<Key> {
        self.chunks.front()?.keys.front().copied()
    }

    /// Adds a key that is not there; whether it is the first now.
    pub(super) fn insert(&mut self, key: Key) -> bool {
        let at = self.chunk(key);
        let Some(chunk) = self.chunks.get_mut(at) else {
            let keys = VecDeque::from([key]);
            self.chunks.push_back(Chunk { last: key, keys });
            return true;
        };
        let is_first = chunk.insert(key);
        if chunk.keys.len() > CHUNK {
            let behind = chunk.cut();
            self.chunks.insert(at + 1, behind);
        }
        is_first && at == 0
    }

    /// Takes a key out that is there; whether it was the first.
    pub(super) fn remove(&mut self, key: Key) -> bool {
        let at = self.chunk(key);
        let chunk = &mut self.chunks[at];
        let was_first = chunk.remove(key);
        if chunk.keys.len() < CHUNK / 8 && self.chunks.len() > 1 {
            self.join(at);
        }
        was_first && at == 0
    }

    /// Joins a short chunk with a neighbour if both together are short, so that there are never many chunks.
    fn join(&mut self, at: usize) {
        let at = at.min(self.chunks.len() - 2);
        let len = self.chunks[at].keys.len() + self.chunks[at + 1].keys.len();
        let has_empty = self
            .chunks
            .range(at..at + 2)
            .any(|chunk| chunk.keys.is_empty());
        if len > CHUNK / 2 && !has_empty {
            return;
        }
        let mut behind = self.chunks.remove(at + 1).expect("a neighbour");
        let chunk = &mut self.chunks[at];
        chunk.keys.append(&mut behind.keys);
        chunk.last = *chunk.keys.back().expect("one of two is not empty");
    }

    pub(super) fn range(&self, keys: Range<Key>) -> impl Iterator<Item = &Key> {
        let chunks = self.chunks.range(self.chunk(keys.start)..);
        let chunks = chunks.take_while(move |chunk| chunk.keys.front() < Some(&keys.end));
        chunks.flat_map(move |chunk| {
            chunk
                .keys
                .range(chunk.place(keys.start)..chunk.place(keys.end))
        })
    }

    /// The chunk where a key is or belongs.
    #[inline]
    fn chunk(&self, key: Key) -> usize {
        let last = self.chunks.len().saturating_sub(1);
        if last == 0 {
            return 0;
        }
        let before = self.chunks.partition_point(|chunk| chunk.last < key);
        before.min(last)
    }
}

impl Chunk {
    /// Whether the key is the first now.
    fn insert(&mut self, key: Key) -> bool {
        if self.keys.back().is_none_or(|last| *last < key) {
            self.keys.push_back(key);
            self.last = key;
            return self.keys.len() == 1;
        }
        if self.keys.front().is_some_and(|first| key < *first) {
            self.keys.push_front(key);
            return true;
        }
        self.keys.insert(self.place(key), key);
        false
    }

    /// Whether the key was the first.
    fn remove(&mut self, key: Key) -> bool {
        if self.keys.front() == Some(&key) {
            self.keys.pop_front();
            return true;
        }
        if self.last == key {
            self.keys.pop_back();
            self.last = *self.keys.back().expect("one before the last");
        } else {
            let place = self.place(key);
            debug_assert_eq!(self.keys.get(place), Some(&key), "a key that is there");
            self.keys.remove(place);
        }
        false
    }

    /// Takes the second half out.
    fn cut(&mut self) -> Self {
        let keys = self.keys.split_off(CHUNK / 2);
        let behind = Self {
            last: self.last,
            keys,
        };
        self.last = self.keys[CHUNK / 2 - 1];
        behind
    }

    /// How many keys come before this one.
    fn place(&self, key: Key) -> usize {
        self.keys.partition_point(|other| *other < key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn equals_an_ordered_set(
            steps in prop::collection::vec((0_u64..2, -99_i64..99, 0_u32..4), 1..1500),
        ) {
            let (mut ends, mut oracle) = (Ends::default(), BTreeSet::new());
            let mut last = Key::default();
            for (lead, main, job) in steps {
                let key = Key { lead, main, job };
                if oracle.insert(key) {
                    let is_first = oracle.first() == Some(&key);
                    prop_assert_eq!(ends.insert(key), is_first);
                } else {
                    let was_first = oracle.first() == Some(&key);
                    oracle.remove(&key);
                    prop_assert_eq!(ends.remove(key), was_first);
                }
                prop_assert_eq!(ends.first(), oracle.first().copied());
                prop_assert_eq!(ends.is_empty(), oracle.is_empty());
                let range = key.min(last)..key.max(last);
                prop_assert!(ends.range(range.clone()).eq(oracle.range(range)));
                last = key;
            }
        }
    }
}
