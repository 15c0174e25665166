//! Iteration over the bits of a mask, and a set of small integers that is stored as a pyramid of words. Insertion,
//! removal and successor queries cost O(log64 n).

use crate::structures::work::looked;

/// Returns the positions of the bits that are set in a mask, lowest first.
pub(crate) fn slots(mask: u64) -> impl Iterator<Item = u32> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        if rest == 0 {
            return None;
        }
        let slot = rest.trailing_zeros();
        rest &= rest - 1;
        Some(slot)
    })
}

/// An ordered set of integers in `0..capacity`.
#[derive(Clone, Debug, Default)]
pub struct BitSet {
    /// The members of the set, as bits.
    words: Vec<u64>,
    /// Bit `i` of level 0 is set if word `i` is not 0; bit `i` of level `k + 1` is set if word `i` of level `k` is not
    /// 0. The last level is a single word.
    upper: Vec<Vec<u64>>,
    len: usize,
}

impl BitSet {
    /// Creates an empty set for integers below `capacity`.
    ///
    /// # Examples
    /// ```
    /// use gangline_engine::BitSet;
    /// let mut set = BitSet::new(1000);
    /// set.insert(700);
    /// set.insert(3);
    /// assert_eq!(set.next_from(4), Some(700));
    /// assert_eq!(set.last_before(700), Some(3));
    /// ```
    pub fn new(capacity: usize) -> Self {
        let words = capacity.div_ceil(64).max(1);
        let mut upper = Vec::new();
        let mut bits = words;
        while bits > 1 {
            bits = bits.div_ceil(64);
            upper.push(vec![0; bits]);
        }
        Self {
            words: vec![0; words],
            upper,
            len: 0,
        }
    }

    /// Returns the number of members.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether `value` is a member.
    #[inline]
    pub fn contains(&self, value: usize) -> bool {
        self.words
            .get(value / 64)
            .is_some_and(|word| word >> (value % 64) & 1 == 1)
    }

    /// Adds a member. Returns whether the value was new.
    #[inline]
    pub fn insert(&mut self, value: usize) -> bool {
        let word = &mut self.words[value / 64];
        let bit = 1 << (value % 64);
        if *word & bit != 0 {
            return false;
        }
        let was_empty = *word == 0;
        *word |= bit;
        self.len += 1;
        if was_empty {
            self.raise(value / 64);
        }
        true
    }

    fn raise(&mut self, mut at: usize) {
        for level in &mut self.upper {
            looked(1);
            let word = &mut level[at / 64];
            let was_empty = *word == 0;
            *word |= 1 << (at % 64);
            if !was_empty {
                return;
            }
            at /= 64;
        }
    }

    /// Removes a member. Returns whether the set contained the value.
    #[inline]
    pub fn remove(&mut self, value: usize) -> bool {
        let word = &mut self.words[value / 64];
        let bit = 1 << (value % 64);
        if *word & bit == 0 {
            return false;
        }
        *word &= !bit;
        self.len -= 1;
        if *word == 0 {
            self.lower(value / 64);
        }
        true
    }

    fn lower(&mut self, mut at: usize) {
        for level in &mut self.upper {
            looked(1);
            let word = &mut level[at / 64];
            *word &= !(1 << (at % 64));
            if *word != 0 {
                return;
            }
            at /= 64;
        }
    }

    /// Returns the smallest member.
    #[inline]
    pub fn first(&self) -> Option<usize> {
        (self.len > 0).then(|| self.lowest(self.upper.len(), 0))
    }

    /// Returns the smallest member in the range of integers that bit `at` of level `depth` stands for (see `upper`).
    #[inline]
    fn lowest(&self, depth: usize, mut at: usize) -> usize {
        looked(depth + 1);
        for level in self.upper[..depth].iter().rev() {
            at = at * 64 + level[at].trailing_zeros() as usize;
        }
        at * 64 + self.words[at].trailing_zeros() as usize
    }

    /// Returns the smallest member that is at least `from`.
    #[inline]
    pub fn next_from(&self, from: usize) -> Option<usize> {
        looked(1);
        let word = *self.words.get(from / 64)? & (u64::MAX << (from % 64));
        if word != 0 {
            return Some(from / 64 * 64 + word.trailing_zeros() as usize);
        }
        let mut at = from / 64 + 1;
        for (depth, level) in self.upper.iter().enumerate() {
            looked(1);
            let word = *level.get(at / 64)? & (u64::MAX << (at % 64));
            if word != 0 {
                let found = at / 64 * 64 + word.trailing_zeros() as usize;
                return Some(self.lowest(depth, found));
            }
            at = at / 64 + 1;
        }
        None
    }

    /// Returns the largest member.
    pub fn last(&self) -> Option<usize> {
        self.last_before(usize::MAX)
    }

    /// Returns the largest member below `end`.
    pub fn last_before(&self, end: usize) -> Option<usize> {
        let mut end = end.min(self.words.len() * 64);
        for depth in 0..=self.upper.len() {
            looked(depth + 1);
            let top = end.checked_sub(1)?;
            let word = self.level(depth)[top / 64] & (u64::MAX >> (63 - top % 64));
            if word != 0 {
                let mut found = top / 64 * 64 + 63 - word.leading_zeros() as usize;
                for lower in (0..depth).rev() {
                    found = found * 64 + 63 - self.level(lower)[found].leading_zeros() as usize;
                }
                return Some(found);
            }
            end = top / 64;
        }
        None
    }

    /// Returns the words, or one of the levels above them.
    fn level(&self, depth: usize) -> &[u64] {
        match depth {
            0 => &self.words,
            _ => &self.upper[depth - 1],
        }
    }

    /// Returns the members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let mut from = 0;
        std::iter::from_fn(move || {
            let found = self.next_from(from)?;
            from = found + 1;
            Some(found)
        })
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
            capacity in prop_oneof![1_usize..200, 4000_usize..9000],
            steps in prop::collection::vec((any::<bool>(), any::<u16>()), 0..400),
        ) {
            let mut set = BitSet::new(capacity);
            let mut oracle = BTreeSet::new();
            for (insert, raw) in steps {
                let value = raw as usize % capacity;
                if insert {
                    prop_assert_eq!(set.insert(value), oracle.insert(value));
                } else {
                    prop_assert_eq!(set.remove(value), oracle.remove(&value));
                }
                prop_assert_eq!(set.first(), oracle.first().copied());
                prop_assert_eq!(set.last(), oracle.last().copied());
                prop_assert_eq!(set.next_from(value), oracle.range(value..).next().copied());
                prop_assert_eq!(set.last_before(value), oracle.range(..value).next_back().copied());
                prop_assert_eq!(set.len(), oracle.len());
            }
            prop_assert!(set.iter().eq(oracle.iter().copied()));
        }
    }
}
