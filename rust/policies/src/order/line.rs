//! Waiting jobs of one demand class, in key order, for traffic at the front.
//!
//! A preempted job comes back to the front of its class and is often the next to start, so the first jobs
//! lie in a short sorted list. The next ones are in a heap that a cache holds, and the many behind them, whose
//! turn is far off, in no order. Entries are dropped lazily: the owner knows which are stale.

use crate::order::Key;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Most jobs of the sorted list; half of them go to the heap when there are more.
const FRONT: usize = 64;
/// So many come out of the heap when the list is empty.
const REFILL: usize = 16;
/// So many at the very front are looked at one by one before the list is searched.
const NEAR: usize = 6;
/// When the heap is empty, one in so many of the far jobs get into it, but at least [`LEAST`] of them.
const SHARE: usize = 8;
const LEAST: usize = 256;

/// Waiting jobs in key order.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The first jobs, last first.
    front: Vec<Key>,
    /// The next ones, up to the horizon: none comes before one of `front`.
    near: BinaryHeap<Reverse<Key>>,
    /// Those behind the horizon.
    far: Vec<Key>,
    horizon: Key,
}

impl Line {
    /// Adds a job.
    #[inline]
    pub(super) fn push(&mut self, key: Key) {
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

    /// How many of the front come before a key: the first of all are looked at one by one.
    #[inline]
    fn count_before(&self, key: &Key) -> usize {
        let mut first = self.front.iter().rev().take(NEAR);
        first.position(|other| *key < *other).unwrap_or_else(|| {
            let at = self.front.partition_point(|other| *other > *key);
            self.front.len() - at
        })
    }

    /// The first entry, stale or not.
    #[inline]
    pub(super) fn first(&mut self) -> Option<Key> {
        if self.front.is_empty() {
            self.refill();
        }
        self.front.last().copied()
    }

    fn refill(&mut self) {
        if self.near.is_empty() {
            if self.far.is_empty() {
                return;
            }
            self.advance();
        }
        while self.front.len() < REFILL
            && let Some(Reverse(key)) = self.near.pop()
        {
            self.front.push(key);
        }
        self.front.reverse();
    }

    /// Moves the horizon on when nobody is near. O(far jobs), once per a fixed share of them.
    fn advance(&mut self) {
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

    /// Drops the first entry.
    #[inline]
    pub(super) fn pop(&mut self) {
        self.front.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_a_heap(steps in prop::collection::vec(prop::option::of(0_i64..300), 1..2000)) {
            let (mut line, mut oracle) = (Line::default(), BinaryHeap::new());
            for (job, step) in steps.into_iter().enumerate() {
                // smaller numbers more often at the front: as preempted jobs come
                if let Some(main) = step {
                    let main = main - line.first().map_or(0, |key| 150 - key.main).max(0);
                    let key = Key { lead: 0, main, job: job as u32 };
                    line.push(key);
                    oracle.push(Reverse(key));
                } else {
                    line.pop();
                    oracle.pop();
                }
                prop_assert_eq!(line.first(), oracle.peek().map(|key| key.0));
            }
        }
    }
}
