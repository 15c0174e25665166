//! The waiting jobs of one demand class: by priority, with the least waiting instant of every subtree, and
//! by age.
//!
//! "Who comes first of those that have waited long enough?" is one descent; "who will have waited long
//! enough next?" one look into the second order. Both O(log n).

use gangline_model::JobId;
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

/// Place of a job among the candidates of a decision: lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// Mean locality so far, in 2^-40; 0 before the first run.
    pub(super) score: u64,
    /// Since when it waits, ns.
    pub(super) since: i64,
    /// The job.
    pub(super) job: u32,
}

impl Rank {
    pub(super) fn job(self) -> JobId {
        JobId(self.job)
    }
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Node {
    rank: Rank,
    /// Least `since` of the subtree.
    least: i64,
    left: u32,
    right: u32,
    priority: u32,
}

/// Waiting jobs of a class: a treap whose shape depends on the jobs in it alone.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    nodes: Vec<Node>,
    spare: Vec<u32>,
    root: u32,
    ages: BTreeSet<(i64, u32)>,
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            spare: Vec::new(),
            root: NONE,
            ages: BTreeSet::new(),
        }
    }
}

/// A number that looks random and is the same for the same job.
fn priority(job: u32) -> u32 {
    let mut mixed = job.wrapping_add(0x9e37_79b9);
    mixed = (mixed ^ mixed >> 16).wrapping_mul(0x85eb_ca6b);
    mixed = (mixed ^ mixed >> 13).wrapping_mul(0xc2b2_ae35);
    mixed ^ mixed >> 16
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.root == NONE
    }

    /// Adds a job.
    pub(super) fn insert(&mut self, rank: Rank) {
        let node = Node {
            rank,
            least: rank.since,
            left: NONE,
            right: NONE,
            priority: priority(rank.job),
        };
        let fresh = if let Some(at) = self.spare.pop() {
            self.nodes[at as usize] = node;
            at
        } else {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        };
        let (left, right) = self.split(self.root, rank);
        let left = self.merge(left, fresh);
        self.root = self.merge(left, right);
        self.ages.insert((rank.since, rank.job));
    }

    /// Takes a job out that is in.
    pub(super) fn remove(&mut self, rank: Rank) {
        self.ages.remove(&(rank.since, rank.job));
        self.root = self.without(self.root, rank);
    }

    /// The first job in order of rank that waits since `bound` or longer.
    pub(super) fn first_since(&self, bound: i64) -> Option<Rank> {
        let mut at = self.root;
        if at == NONE || self.nodes[at as usize].least > bound {
            return None;
        }
        loop {
            let node = &self.nodes[at as usize];
            if node.left != NONE && self.nodes[node.left as usize].least <= bound {
                at = node.left;
            } else if node.rank.since <= bound {
                return Some(node.rank);
            } else {
                at = node.right;
            }
        }
    }

    /// The earliest waiting instant after `bound`.
    pub(super) fn next_since(&self, bound: i64) -> Option<i64> {
        let after = Excluded((bound, u32::MAX));
        self.ages
            .range((after, Unbounded))
            .next()
            .map(|&(since, _)| since)
    }

    /// All jobs in order of rank.
    pub(super) fn ranks(&self) -> Vec<Rank> {
        let mut found = Vec::with_capacity(self.ages.len());
        self.collect(self.root, &mut found);
        found
    }

    fn collect(&self, at: u32, found: &mut Vec<Rank>) {
        if at != NONE {
            let node = &self.nodes[at as usize];
            self.collect(node.left, found);
            found.push(node.rank);
            self.collect(node.right, found);
        }
    }

    fn refresh(&mut self, at: u32) {
        let node = &self.nodes[at as usize];
        let below = |child: u32| {
            if child == NONE {
                i64::MAX
            } else {
                self.nodes[child as usize].least
            }
        };
        let least = node.rank.since.min(below(node.left)).min(below(node.right));
        self.nodes[at as usize].least = least;
    }

    /// Splits a subtree into what comes before `rank` and the rest.
    fn split(&mut self, at: u32, rank: Rank) -> (u32, u32) {
        if at == NONE {
            return (NONE, NONE);
        }
        if self.nodes[at as usize].rank < rank {
            let (low, high) = self.split(self.nodes[at as usize].right, rank);
            self.nodes[at as usize].right = low;
            self.refresh(at);
            (at, high)
        } else {
            let (low, high) = self.split(self.nodes[at as usize].left, rank);
            self.nodes[at as usize].left = high;
            self.refresh(at);
            (low, at)
        }
    }

    /// Joins two subtrees, all of `left` before all of `right`.
    fn merge(&mut self, left: u32, right: u32) -> u32 {
        if left == NONE || right == NONE {
            return if left == NONE { right } else { left };
        }
        if self.nodes[left as usize].priority >= self.nodes[right as usize].priority {
            let joined = self.merge(self.nodes[left as usize].right, right);
            self.nodes[left as usize].right = joined;
            self.refresh(left);
            left
        } else {
            let joined = self.merge(left, self.nodes[right as usize].left);
            self.nodes[right as usize].left = joined;
            self.refresh(right);
            right
        }
    }

    fn without(&mut self, at: u32, rank: Rank) -> u32 {
        if at == NONE {
            return NONE;
        }
        let node = &self.nodes[at as usize];
        let (own, left, right) = (node.rank, node.left, node.right);
        if own == rank {
            self.spare.push(at);
            return self.merge(left, right);
        }
        if rank < own {
            let kept = self.without(left, rank);
            self.nodes[at as usize].left = kept;
        } else {
            let kept = self.without(right, rank);
            self.nodes[at as usize].right = kept;
        }
        self.refresh(at);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_a_sorted_list(
            steps in prop::collection::vec((any::<bool>(), 0_u64..4, 0_i64..20, 0_u32..60), 0..200),
            bounds in prop::collection::vec(-1_i64..22, 1..20),
        ) {
            let mut tree = Waiting::default();
            let mut list: Vec<Rank> = Vec::new();
            for (adds, score, since, job) in steps {
                if let Some(at) = list.iter().position(|rank| rank.job == job) {
                    tree.remove(list.swap_remove(at));
                }
                if adds {
                    let rank = Rank { score, since, job };
                    tree.insert(rank);
                    list.push(rank);
                }
            }
            list.sort_unstable();
            prop_assert_eq!(tree.is_empty(), list.is_empty());
            for bound in bounds.into_iter().chain([i64::MAX]) {
                let first = list.iter().find(|rank| rank.since <= bound);
                prop_assert_eq!(tree.first_since(bound), first.copied());
                let next = list.iter().map(|rank| rank.since).filter(|since| *since > bound).min();
                prop_assert_eq!(tree.next_since(bound), next);
            }
        }
    }
}
