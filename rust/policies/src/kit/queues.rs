//! Waiting jobs by class, for queues in which only the first job of each class can leave.

use gangline_engine::BitSet;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// One heap for each class, with the smallest key first. To change a key, the caller pushes the new key. The test that
/// it passes to [`Self::first_if`] tells which keys are current. Outdated keys are dropped when they reach the top.
#[derive(Debug)]
pub struct ByClass<K> {
    heaps: Vec<BinaryHeap<Reverse<K>>>,
    /// Classes whose heap is not empty.
    busy: BitSet,
}

impl<K: Ord + Copy> Default for ByClass<K> {
    /// Creates a queue without classes.
    fn default() -> Self {
        Self::new(0)
    }
}

impl<K: Ord + Copy> ByClass<K> {
    /// Creates an empty queue for each of `classes` classes.
    pub fn new(classes: usize) -> Self {
        Self {
            heaps: (0..classes).map(|_| BinaryHeap::new()).collect(),
            busy: BitSet::new(classes.max(1)),
        }
    }

    /// Adds a job of a class.
    #[inline]
    pub fn push(&mut self, class: usize, key: K) {
        let heap = &mut self.heaps[class];
        if heap.is_empty() {
            self.busy.insert(class);
        }
        heap.push(Reverse(key));
    }

    /// Returns the first job of a class.
    #[inline]
    pub fn first(&self, class: usize) -> Option<K> {
        self.heaps[class].peek().map(|first| first.0)
    }

    /// Returns the first job of a class whose key is current, and drops the entries before it.
    #[inline]
    pub fn first_if(&mut self, class: usize, is_current: impl Fn(&K) -> bool) -> Option<K> {
        while let Some(Reverse(key)) = self.heaps[class].peek() {
            if is_current(key) {
                return Some(*key);
            }
            self.pop(class);
        }
        None
    }

    /// Removes the first job of a class.
    #[inline]
    pub fn pop(&mut self, class: usize) -> Option<K> {
        let first = self.heaps[class].pop();
        if self.heaps[class].is_empty() {
            self.busy.remove(class);
        }
        first.map(|key| key.0)
    }

    /// Returns the first class at or after `class` that has a job.
    #[inline]
    pub fn next_busy(&self, class: usize) -> Option<usize> {
        self.busy.next_from(class)
    }

    /// Returns the classes with a job, ascending.
    pub fn busy(&self) -> impl Iterator<Item = usize> {
        std::iter::successors(self.next_busy(0), |&class| self.next_busy(class + 1))
    }

    /// Replaces all jobs with the given jobs, each of which comes with its class. The cost is O(jobs), because a heap
    /// is built from a whole list at once.
    pub fn refill(&mut self, jobs: impl Iterator<Item = (usize, K)>) {
        let emptied = self.heaps.iter_mut().map(std::mem::take);
        let mut lists: Vec<Vec<Reverse<K>>> = emptied.map(BinaryHeap::into_vec).collect();
        lists.iter_mut().for_each(Vec::clear);
        self.busy = BitSet::new(lists.len().max(1));
        for (class, key) in jobs {
            lists[class].push(Reverse(key));
            self.busy.insert(class);
        }
        for (heap, list) in self.heaps.iter_mut().zip(lists) {
            *heap = BinaryHeap::from(list);
        }
    }
}
