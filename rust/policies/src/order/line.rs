//! A queue for traffic at the front: waiting jobs of one demand class in key order, timers by time.
//!
//! A preempted job comes back to the front of its class and is often the next to start, so the first entries
//! lie in a short sorted list. The next ones are in a heap small enough for a cache, and the many behind them,
//! whose turn is far off, in no order. Entries are dropped lazily: the owner knows which are stale.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Most entries of the sorted list; the last half of them goes to the heap when there are more.
const FRONT: usize = 64;
/// So many come out of the heap when the list is empty. While list, heap and the rest hold fewer, all are listed.
const REFILL: usize = 16;
/// So many entries at the very front are compared one by one before the list is searched.
const NEAR: usize = 6;
/// When the heap is empty, one in so many of the far entries goes there, but at least [`LEAST`] of them.
const SHARE: usize = 8;
const LEAST: usize = 256;

/// Entries in order.
#[derive(Debug, Default)]
pub(crate) struct Line<K> {
    /// The first entries, in descending order.
    front: Vec<K>,
    /// The next ones, up to `horizon`; none comes before one of `front`.
    near: BinaryHeap<Reverse<K>>,
    /// Those behind `horizon`, in no order.
    far: Vec<K>,
    horizon: K,
}

impl<K: Copy + Default + Ord> Line<K> {
    /// Number of entries, stale or not.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.front.len() + self.near.len() + self.far.len()
    }

    /// Adds an entry.
    #[inline]
    pub(crate) fn push(&mut self, key: K) {
        let is_front = match self.front.first() {
            Some(last) => key < *last,
            None => false,
        };
        let is_short = self.near.is_empty() && self.far.is_empty() && self.front.len() < REFILL;
        if !is_front && !is_short {
            if key <= self.horizon {
                self.near.push(Reverse(key));
            } else {
                self.far.push(key);
            }
            return;
        }
        let at = self.front.len() - self.count_before(&key);
        self.front.insert(at, key);
        if self.front.len() > FRONT {
            self.horizon = self.horizon.max(self.front[0]);
            self.near.extend(self.front.drain(..FRONT / 2).map(Reverse));
        }
    }

    /// How many entries of the front come before a key.
    #[inline]
    fn count_before(&self, key: &K) -> usize {
        let mut first = self.front.iter().rev().take(NEAR);
        first.position(|other| *key < *other).unwrap_or_else(|| {
            let at = self.front.partition_point(|other| *other > *key);
            self.front.len() - at
        })
    }

    /// The first live entry; stale ones before it are dropped.
    #[inline]
    pub(crate) fn first(&mut self, is_live: impl Fn(K) -> bool) -> Option<K> {
        loop {
            match self.front.last() {
                Some(&first) if is_live(first) => return Some(first),
                Some(_) => _ = self.front.pop(),
                None if self.near.is_empty() && self.far.is_empty() => return None,
                None => self.refill(&is_live),
            }
        }
    }

    fn refill(&mut self, is_live: impl Fn(K) -> bool) {
        if self.near.is_empty() {
            self.advance(&is_live);
        }
        while self.front.len() < REFILL
            && let Some(Reverse(key)) = self.near.pop()
        {
            if is_live(key) {
                self.front.push(key);
            }
        }
        self.front.reverse();
    }

    /// Moves the horizon when `near` is empty. O(far entries), for a fixed share of them at a time.
    fn advance(&mut self, is_live: impl Fn(K) -> bool) {
        self.far.retain(|&key| is_live(key));
        let count = self.far.len();
        let taken = (count / SHARE).max(count.min(LEAST));
        if taken < count {
            self.far
                .select_nth_unstable_by(count - taken, |a, b| b.cmp(a));
        }
        let next = self.far.drain(count - taken..);
        self.near = next.map(Reverse).collect();
        if let Some(Reverse(horizon)) = self.near.iter().min() {
            self.horizon = *horizon;
        }
    }

    /// Drops all stale entries.
    pub(crate) fn retain(&mut self, is_live: impl Fn(K) -> bool) {
        self.front.retain(|&key| is_live(key));
        self.near.retain(|&Reverse(key)| is_live(key));
        self.far.retain(|&key| is_live(key));
    }

    /// Drops the first entry.
    #[inline]
    pub(crate) fn pop(&mut self) {
        self.front.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Key;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn equals_a_heap(steps in prop::collection::vec(prop::option::of(0_i64..300), 1..2000)) {
            let (mut line, mut oracle) = (Line::default(), BinaryHeap::new());
            let all = |_| true;
            for (job, step) in steps.into_iter().enumerate() {
                // smaller numbers more often at the front: as preempted jobs come
                if let Some(main) = step {
                    let main = main - line.first(all).map_or(0, |key: Key| 150 - key.main).max(0);
                    let key = Key { lead: 0, main, job: job as u32 };
                    line.push(key);
                    oracle.push(Reverse(key));
                } else {
                    line.pop();
                    oracle.pop();
                }
                prop_assert_eq!(line.first(all), oracle.peek().map(|key| key.0));
                prop_assert_eq!(line.len(), oracle.len());
            }
        }

        #[test]
        fn stale_entries_are_passed_over(
            steps in prop::collection::vec((0_i64..5000, any::<bool>(), 0_usize..40), 1..1500),
        ) {
            let (mut line, mut live) = (Line::default(), BTreeSet::new());
            for (at, (main, is_new, step)) in steps.into_iter().enumerate() {
                if is_new || live.is_empty() {
                    line.push((main, at));
                    live.insert((main, at));
                } else {
                    let stale = *live.iter().nth(step % live.len()).expect("not empty");
                    live.remove(&stale);
                }
                if step == 0 {
                    line.retain(|key| live.contains(&key));
                    prop_assert_eq!(line.len(), live.len());
                }
                prop_assert_eq!(line.first(|key| live.contains(&key)), live.first().copied());
            }
            prop_assert!(line.len() >= live.len());
        }
    }
}
