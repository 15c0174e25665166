//! Waiting jobs of policies that start the first job of a demand class or none of it.

use gangline_engine::BitSet;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Waiting jobs by class, inside each class in the order of a key. The first jobs leave first.
#[derive(Debug)]
pub struct ByClass<K> {
    heaps: Vec<BinaryHeap<Reverse<K>>>,
    /// Classes with a job.
    busy: BitSet,
}

impl<K: Ord + Copy> ByClass<K> {
    /// A queue for each of so many classes.
    pub fn new(classes: usize) -> Self {
        Self {
            heaps: (0..classes).map(|_| BinaryHeap::new()).collect(),
            busy: BitSet::new(classes.max(1)),
        }
    }

    /// Adds a job of a class.
    pub fn push(&mut self, class: usize, key: K) {
        self.heaps[class].push(Reverse(key));
        self.busy.insert(class);
    }

    /// The first job of a class.
    pub fn first(&self, class: usize) -> Option<K> {
        self.heaps[class].peek().map(|first| first.0)
    }

    /// Takes out the first job of a class.
    pub fn pop(&mut self, class: usize) {
        self.heaps[class].pop();
        if self.heaps[class].is_empty() {
            self.busy.remove(class);
        }
    }

    /// Classes with a job, ascending.
    pub fn busy(&self) -> impl Iterator<Item = usize> {
        std::iter::successors(self.busy.next_from(0), |&class| {
            self.busy.next_from(class + 1)
        })
    }
}
