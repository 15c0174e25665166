//! Keys in order, for traffic at both ends: who becomes a guest comes before or behind nearly all others of its
//! class, and so does who is none any more.

use crate::order::Key;
use std::collections::VecDeque;
use std::ops::Range;

/// A set of keys. At an end everything is O(1), inside a change moves the keys of the nearer end: O(n), but
/// a kilobyte at a time.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// Ascending.
    keys: VecDeque<Key>,
}

impl Ends {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    #[inline]
    pub(super) fn first(&self) -> Option<Key> {
        self.keys.front().copied()
    }

    /// Adds a key that is not there; whether it is the first now.
    pub(super) fn insert(&mut self, key: Key) -> bool {
        if self.keys.front().is_none_or(|first| key < *first) {
            self.keys.push_front(key);
            return true;
        }
        if self.keys.back().is_some_and(|last| *last < key) {
            self.keys.push_back(key);
        } else {
            self.keys.insert(self.place(key), key);
        }
        false
    }

    /// Takes a key out that is there; whether it was the first.
    pub(super) fn remove(&mut self, key: Key) -> bool {
        if self.keys.front() == Some(&key) {
            self.keys.pop_front();
            return true;
        }
        if self.keys.back() == Some(&key) {
            self.keys.pop_back();
        } else {
            let place = self.place(key);
            debug_assert_eq!(self.keys.get(place), Some(&key), "a key that is there");
            self.keys.remove(place);
        }
        false
    }

    pub(super) fn range(&self, keys: Range<Key>) -> impl Iterator<Item = &Key> {
        self.keys
            .range(self.place(keys.start)..self.place(keys.end))
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
            steps in prop::collection::vec((0_u64..2, -9_i64..9, 0_u32..4), 1..200),
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
