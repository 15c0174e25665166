//! Minima over an array, sixteen to a node: the leftmost value that is at most a bound.

const WIDTH: usize = 16;

/// Values by position, all [`MinTree::NONE`] at first.
#[derive(Clone, Debug)]
pub(super) struct MinTree {
    /// Level 0 holds the values, each level above the minima of groups of sixteen.
    levels: Vec<Vec<i64>>,
}

impl MinTree {
    /// No value.
    pub(super) const NONE: i64 = i64::MAX;

    /// So many positions without a value.
    pub(super) fn new(len: usize) -> Self {
        let mut levels = Vec::new();
        let mut len = len.max(1);
        loop {
            len = len.next_multiple_of(WIDTH);
            levels.push(vec![Self::NONE; len]);
            if len == WIDTH {
                return Self { levels };
            }
            len /= WIDTH;
        }
    }

    /// Sets a value.
    pub(super) fn set(&mut self, at: usize, value: i64) {
        self.levels[0][at] = value;
        let mut at = at;
        for level in 1..self.levels.len() {
            let group = at / WIDTH;
            let below = &self.levels[level - 1][group * WIDTH..(group + 1) * WIDTH];
            let least = *below.iter().min().expect("sixteen values");
            if self.levels[level][group] == least {
                return;
            }
            self.levels[level][group] = least;
            at = group;
        }
    }

    /// The leftmost position from `from` on whose value is at most `bound`.
    pub(super) fn first_at_most(&self, from: usize, bound: i64) -> Option<usize> {
        let mut at = from;
        let mut level = 0;
        loop {
            let values = &self.levels[level];
            let end = (at / WIDTH + 1) * WIDTH;
            if at >= values.len() {
                return None;
            }
            if let Some(found) = values[at..end].iter().position(|&value| value <= bound) {
                at += found;
                break;
            }
            level += 1;
            if level == self.levels.len() {
                return None;
            }
            at = end / WIDTH;
        }
        while level > 0 {
            level -= 1;
            let values = &self.levels[level][at * WIDTH..(at + 1) * WIDTH];
            let found = values.iter().position(|&value| value <= bound);
            at = at * WIDTH + found.expect("the node's minimum is one of them");
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_a_scan(
            len in 1_usize..600,
            steps in prop::collection::vec((any::<u16>(), 0_i64..50), 0..300),
            asks in prop::collection::vec((0_usize..700, 0_i64..50), 1..40),
        ) {
            let mut tree = MinTree::new(len);
            let mut oracle = vec![MinTree::NONE; len];
            for (at, value) in steps {
                let value = if value == 0 { MinTree::NONE } else { value };
                tree.set(at as usize % len, value);
                oracle[at as usize % len] = value;
            }
            for (from, bound) in asks {
                let scan = (from..len).find(|&at| oracle[at] <= bound);
                prop_assert_eq!(tree.first_at_most(from, bound), scan);
            }
        }
    }
}
