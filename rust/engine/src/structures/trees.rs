//! Two small trees over an array of counts. One finds the leftmost count that is at least `x`; the other finds the
//! entry that contains the `i`-th unit.

use crate::structures::work::looked;

/// A tree of maxima over ranges. It finds the leftmost entry that is at least a given value, in O(log n).
#[derive(Clone, Debug)]
pub struct MaxTree {
    nodes: Vec<u32>,
    leaves: usize,
    len: usize,
}

impl MaxTree {
    /// Creates the tree over the values.
    pub fn new(values: impl ExactSizeIterator<Item = u32>) -> Self {
        let len = values.len();
        let leaves = len.next_power_of_two().max(1);
        let mut nodes = vec![0; 2 * leaves];
        for (at, value) in values.enumerate() {
            nodes[leaves + at] = value;
        }
        for at in (1..leaves).rev() {
            nodes[at] = nodes[2 * at].max(nodes[2 * at + 1]);
        }
        Self { nodes, leaves, len }
    }

    /// Returns the value of an entry.
    pub fn get(&self, at: usize) -> u32 {
        self.nodes[self.leaves + at]
    }

    /// Changes an entry.
    #[inline]
    pub fn set(&mut self, at: usize, value: u32) {
        debug_assert!(at < self.len, "entry {at} of {}", self.len);
        let mut node = self.leaves + at;
        self.nodes[node] = value;
        while node > 1 {
            looked(1);
            node /= 2;
            let most = self.nodes[2 * node].max(self.nodes[2 * node + 1]);
            if self.nodes[node] == most {
                return;
            }
            self.nodes[node] = most;
        }
    }

    /// Returns the leftmost entry that is at least `value`.
    ///
    /// # Examples
    /// ```
    /// use gangline_engine::MaxTree;
    /// let tree = MaxTree::new([1, 4, 2, 8].into_iter());
    /// assert_eq!(tree.first_at_least(3), Some(1));
    /// assert_eq!(tree.first_at_least(9), None);
    /// ```
    pub fn first_at_least(&self, value: u32) -> Option<usize> {
        if self.len == 0 || self.nodes[1] < value {
            return None;
        }
        self.descend(1, value)
    }

    /// Returns the leftmost entry at `from` or later that is at least `value`.
    ///
    /// # Examples
    /// ```
    /// use gangline_engine::MaxTree;
    /// let tree = MaxTree::new([1, 4, 2, 8].into_iter());
    /// assert_eq!(tree.next_at_least(3, 2), Some(3));
    /// assert_eq!(tree.next_at_least(3, 4), None);
    /// ```
    pub fn next_at_least(&self, value: u32, from: usize) -> Option<usize> {
        if from >= self.len {
            return None;
        }
        let mut node = self.leaves + from;
        while self.nodes[node] < value {
            // The walk goes up while the node is a right child, and then to the sibling on the right.
            looked(1);
            while node % 2 == 1 {
                looked(1);
                if (node + 1).is_power_of_two() {
                    return None;
                }
                node /= 2;
            }
            node += 1;
        }
        self.descend(node, value)
    }

    fn descend(&self, mut node: usize, value: u32) -> Option<usize> {
        while node < self.leaves {
            looked(1);
            node *= 2;
            if self.nodes[node] < value {
                node += 1;
            }
        }
        Some(node - self.leaves).filter(|&at| at < self.len)
    }
}

/// Prefix sums of counts. The structure finds the entry that contains the `i`-th unit, in O(log n).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fenwick {
    sums: Vec<u32>,
}

impl Fenwick {
    /// Creates the tree over the counts.
    pub fn new(counts: impl ExactSizeIterator<Item = u32>) -> Self {
        let mut sums = vec![0; counts.len() + 1];
        for (at, count) in counts.enumerate() {
            sums[at + 1] = count;
        }
        for at in 1..sums.len() {
            let parent = at + (at & at.wrapping_neg());
            if parent < sums.len() {
                sums[parent] += sums[at];
            }
        }
        Self { sums }
    }

    /// Changes one count.
    #[inline]
    pub fn add(&mut self, at: usize, by: i64) {
        let mut at = at + 1;
        while at < self.sums.len() {
            looked(1);
            self.sums[at] = (i64::from(self.sums[at]) + by) as u32;
            at += at & at.wrapping_neg();
        }
    }

    /// Returns the number of units in the entries before `at`.
    ///
    /// # Examples
    /// ```
    /// use gangline_engine::Fenwick;
    /// let tree = Fenwick::new([2, 0, 3].into_iter());
    /// assert_eq!((tree.before(0), tree.before(2), tree.before(3)), (0, 2, 5));
    /// ```
    pub fn before(&self, at: usize) -> u32 {
        let mut at = at.min(self.sums.len() - 1);
        let mut sum = 0;
        while at > 0 {
            looked(1);
            sum += self.sums[at];
            at &= at - 1;
        }
        sum
    }

    /// Returns the entry that contains unit `index` (counted from 0), and how many units of this entry come before it.
    ///
    /// # Examples
    /// ```
    /// use gangline_engine::Fenwick;
    /// let tree = Fenwick::new([2, 0, 3].into_iter());
    /// assert_eq!(tree.find(1), (0, 1));
    /// assert_eq!(tree.find(2), (2, 0));
    /// ```
    pub fn find(&self, index: u32) -> (usize, u32) {
        let mut rest = index;
        let mut at = 0;
        let mut step = self.sums.len().next_power_of_two();
        while step > 0 {
            looked(1);
            if at + step < self.sums.len() && self.sums[at + step] <= rest {
                at += step;
                rest -= self.sums[at];
            }
            step /= 2;
        }
        (at, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn max_tree_equals_a_scan(
            start in prop::collection::vec(0_u32..20, 1..70),
            steps in prop::collection::vec((any::<u16>(), 0_u32..20), 0..60),
        ) {
            let mut values = start;
            let mut tree = MaxTree::new(values.iter().copied());
            for (raw, value) in steps {
                let at = raw as usize % values.len();
                values[at] = value;
                tree.set(at, value);
                for least in [1, 2, 7, 19, 20] {
                    let scan = values.iter().position(|&v| v >= least);
                    prop_assert_eq!(tree.first_at_least(least), scan);
                    for from in 0..=values.len() {
                        let scan = values[from..].iter().position(|&v| v >= least);
                        prop_assert_eq!(tree.next_at_least(least, from), scan.map(|p| p + from));
                    }
                }
            }
        }

        #[test]
        fn fenwick_finds_every_unit(
            start in prop::collection::vec(0_u32..9, 1..70),
            steps in prop::collection::vec((any::<u16>(), 0_u32..9), 0..60),
        ) {
            let mut counts = start;
            let mut tree = Fenwick::new(counts.iter().copied());
            for (raw, count) in steps {
                let at = raw as usize % counts.len();
                tree.add(at, i64::from(count) - i64::from(counts[at]));
                counts[at] = count;
            }
            let units: Vec<(usize, u32)> = counts
                .iter()
                .enumerate()
                .flat_map(|(at, &count)| (0..count).map(move |unit| (at, unit)))
                .collect();
            prop_assert_eq!(&tree, &Fenwick::new(counts.iter().copied()));
            for at in 0..=counts.len() {
                prop_assert_eq!(tree.before(at), counts[..at].iter().sum::<u32>());
            }
            for (index, &unit) in units.iter().enumerate() {
                prop_assert_eq!(tree.find(index as u32), unit);
            }
        }
    }
}
