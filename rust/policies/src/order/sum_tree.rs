//! An ordered list with sums of GPUs: the running jobs of a policy.
//!
//! Three levels of arrays: leaves of up to 64 entries, groups of up to 64 leaves, a list of groups. Keys lie
//! inline and most questions concern the end of the order, so answers start from there: a question costs
//! the few groups behind its answer plus two short scans. Emptied leaves are kept for reuse.

use crate::order::Key;

const LEAF: usize = 64;
const GROUP: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: Key,
    gpus: u32,
}

#[derive(Debug, Default)]
struct Leaf {
    /// Largest key.
    last: Key,
    sum: u64,
    entries: Vec<Entry>,
}

#[derive(Debug, Default)]
struct Group {
    last: Key,
    sum: u64,
    leaves: Vec<Leaf>,
}

/// Jobs by key, each with its GPUs.
#[derive(Debug, Default)]
pub struct SumTree {
    groups: Vec<Group>,
    /// The last job.
    last: Option<Entry>,
    sum: u64,
    len: usize,
    spare: Vec<Vec<Entry>>,
}

impl Leaf {
    fn refresh(&mut self) {
        self.sum = self.entries.iter().map(|entry| u64::from(entry.gpus)).sum();
        self.last = self.entries.last().expect("a leaf has entries").key;
    }
}

impl Group {
    fn refresh(&mut self) {
        self.sum = self.leaves.iter().map(|leaf| leaf.sum).sum();
        self.last = self.leaves.last().expect("a group has leaves").last;
    }
}

impl SumTree {
    /// Number of jobs.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no job.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// GPUs of all jobs.
    #[inline]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The first key.
    #[inline]
    pub fn first(&self) -> Option<Key> {
        Some(self.groups.first()?.leaves[0].entries[0].key)
    }

    /// The last key.
    #[inline]
    pub fn last(&self) -> Option<Key> {
        self.last.map(|last| last.key)
    }

    /// The last job.
    #[inline]
    pub fn last_entry(&self) -> Option<(Key, u32)> {
        self.last.map(|last| (last.key, last.gpus))
    }

    /// Group and leaf whose range takes `key`: the first that ends at or after it, else the last. Jobs finish
    /// at the one end of the order and are dropped at the other, so these leaves are looked at first.
    #[inline]
    fn find(&self, key: &Key) -> (usize, usize) {
        let groups = self.groups.as_slice();
        if groups[0].leaves[0].last >= *key {
            return (0, 0);
        }
        let last = groups.len() - 1;
        if let [.., before, _] = groups[last].leaves.as_slice()
            && before.last < *key
        {
            return (last, groups[last].leaves.len() - 1);
        }
        let group = groups.partition_point(|g| g.last < *key).min(last);
        let leaves = &groups[group].leaves;
        let leaf = leaves.partition_point(|l| l.last < *key);
        (group, leaf.min(leaves.len() - 1))
    }

    /// Whether a key is there.
    pub fn contains(&self, key: Key) -> bool {
        if self.groups.is_empty() {
            return false;
        }
        let (group, leaf) = self.find(&key);
        let entries = &self.groups[group].leaves[leaf].entries;
        entries
            .binary_search_by(|entry| entry.key.cmp(&key))
            .is_ok()
    }

    /// Adds a job; its key must be new.
    pub fn insert(&mut self, key: Key, gpus: u32) {
        self.sum += u64::from(gpus);
        self.len += 1;
        if self.last.is_none_or(|last| last.key < key) {
            self.last = Some(Entry { key, gpus });
        }
        if self.groups.is_empty() {
            let mut entries = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(LEAF));
            entries.push(Entry { key, gpus });
            let leaf = Leaf {
                last: key,
                sum: u64::from(gpus),
                entries,
            };
            self.groups.push(Group {
                last: key,
                sum: leaf.sum,
                leaves: vec![leaf],
            });
            return;
        }
        let (g, l) = self.find(&key);
        let group = &mut self.groups[g];
        let leaf = &mut group.leaves[l];
        leaf.sum += u64::from(gpus);
        group.sum += u64::from(gpus);
        if leaf.last < key {
            leaf.entries.push(Entry { key, gpus });
            leaf.last = key;
            group.last = group.last.max(key);
        } else {
            let at = leaf.entries.partition_point(|entry| entry.key < key);
            debug_assert!(leaf.entries[at].key != key, "key is there");
            leaf.entries.insert(at, Entry { key, gpus });
        }
        if leaf.entries.len() == LEAF {
            self.split(g, l);
        }
    }

    fn split(&mut self, g: usize, l: usize) {
        let mut upper = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(LEAF));
        let group = &mut self.groups[g];
        upper.extend(group.leaves[l].entries.drain(LEAF / 2..));
        group.leaves[l].refresh();
        let mut leaf = Leaf {
            entries: upper,
            ..Leaf::default()
        };
        leaf.refresh();
        group.leaves.insert(l + 1, leaf);
        if group.leaves.len() == GROUP {
            let mut upper = Group {
                leaves: group.leaves.split_off(GROUP / 2),
                ..Group::default()
            };
            upper.refresh();
            group.refresh();
            self.groups.insert(g + 1, upper);
        }
    }

    /// Takes a job out.
    ///
    /// # Panics
    /// If the key is not there.
    pub fn remove(&mut self, key: Key) -> u32 {
        assert!(!self.groups.is_empty(), "the key is in the tree");
        let (g, l) = self.find(&key);
        let group = &mut self.groups[g];
        let leaf = &mut group.leaves[l];
        let is_last = leaf.last == key;
        let at = if is_last {
            leaf.entries.len() - 1
        } else {
            leaf.entries.partition_point(|entry| entry.key < key)
        };
        let entry = leaf.entries.remove(at);
        assert!(entry.key == key, "the key is in the tree");
        self.sum -= u64::from(entry.gpus);
        self.len -= 1;
        leaf.sum -= u64::from(entry.gpus);
        group.sum -= u64::from(entry.gpus);
        if is_last {
            self.shorten(g, l);
        }
        entry.gpus
    }

    /// Notes that a leaf has lost its last entry.
    fn shorten(&mut self, g: usize, l: usize) {
        let group = &mut self.groups[g];
        if let Some(last) = group.leaves[l].entries.last() {
            group.leaves[l].last = last.key;
        } else {
            let leaf = group.leaves.remove(l);
            self.spare.push(leaf.entries);
        }
        if let Some(last) = group.leaves.last() {
            group.last = last.last;
        } else {
            self.groups.remove(g);
        }
        let leaf = self.groups.last().and_then(|group| group.leaves.last());
        self.last = leaf.and_then(|leaf| leaf.entries.last()).copied();
    }

    /// Gives a job another key; mostly it keeps its place in the order, and only the key is replaced.
    ///
    /// # Panics
    /// If the old key is not there.
    pub fn rekey(&mut self, old: Key, key: Key, gpus: u32) {
        assert!(!self.groups.is_empty(), "the key is in the tree");
        let (g, l) = self.find(&old);
        let leaf = &mut self.groups[g].leaves[l];
        let at = leaf.entries.partition_point(|entry| entry.key < old);
        let is_inside = at > 0 && at + 1 < leaf.entries.len();
        if is_inside && leaf.entries[at - 1].key < key && key < leaf.entries[at + 1].key {
            debug_assert!(leaf.entries[at].key == old, "the key is in the tree");
            leaf.entries[at].key = key;
            return;
        }
        self.remove(old);
        self.insert(key, gpus);
    }

    /// GPUs of the jobs behind `bound`.
    #[inline]
    pub fn sum_after(&self, bound: Key) -> u64 {
        let mut sum = 0;
        for group in self.groups.iter().rev() {
            if group.last <= bound {
                break;
            }
            if group.leaves[0].entries[0].key > bound {
                sum += group.sum;
                continue;
            }
            for leaf in group.leaves.iter().rev() {
                if leaf.last <= bound {
                    break;
                }
                if leaf.entries[0].key > bound {
                    sum += leaf.sum;
                    continue;
                }
                let inside = leaf
                    .entries
                    .iter()
                    .rev()
                    .take_while(|entry| entry.key > bound);
                return sum + inside.map(|entry| u64::from(entry.gpus)).sum::<u64>();
            }
            break;
        }
        sum
    }

    /// GPUs of the jobs at the end of the order for which `is_behind` holds, counted no further than `enough`.
    #[inline]
    pub fn sum_behind(&self, enough: u64, is_behind: impl Fn(Key, u32) -> bool) -> u64 {
        let is_whole = |leaf: &Leaf| is_behind(leaf.entries[0].key, leaf.entries[0].gpus);
        let mut sum = 0;
        for group in self.groups.iter().rev() {
            if is_whole(&group.leaves[0]) {
                sum += group.sum;
                if sum >= enough {
                    return sum;
                }
                continue;
            }
            for leaf in group.leaves.iter().rev() {
                if is_whole(leaf) {
                    sum += leaf.sum;
                    if sum >= enough {
                        return sum;
                    }
                    continue;
                }
                for entry in leaf.entries.iter().rev() {
                    if sum >= enough || !is_behind(entry.key, entry.gpus) {
                        return sum;
                    }
                    sum += u64::from(entry.gpus);
                }
            }
        }
        sum
    }

    /// The first job up to which, itself included, the jobs hold more than `sum() - over` GPUs: seen from
    /// the end, the one that brings those dropped to at least `over`. With it, how many GPUs it and those
    /// behind it hold beyond `over`.
    pub fn first_over(&self, over: u64) -> Option<(Key, u32, u64)> {
        let mut behind = 0;
        for group in self.groups.iter().rev() {
            if behind + group.sum < over {
                behind += group.sum;
                continue;
            }
            for leaf in group.leaves.iter().rev() {
                if behind + leaf.sum < over {
                    behind += leaf.sum;
                    continue;
                }
                for entry in leaf.entries.iter().rev() {
                    behind += u64::from(entry.gpus);
                    if behind >= over {
                        return Some((entry.key, entry.gpus, behind - over));
                    }
                }
            }
        }
        None
    }

    /// The first job up to which, itself included, the jobs hold at least `need` GPUs.
    pub fn first_reaching(&self, need: u64) -> Option<Key> {
        let mut before = 0;
        for group in &self.groups {
            if before + group.sum < need {
                before += group.sum;
                continue;
            }
            for leaf in &group.leaves {
                if before + leaf.sum < need {
                    before += leaf.sum;
                    continue;
                }
                for entry in &leaf.entries {
                    before += u64::from(entry.gpus);
                    if before >= need {
                        return Some(entry.key);
                    }
                }
            }
        }
        None
    }

    /// Jobs from the end of the order.
    pub fn iter_back(&self) -> impl Iterator<Item = (Key, u32)> + '_ {
        self.groups
            .iter()
            .rev()
            .flat_map(|group| group.leaves.iter().rev())
            .flat_map(|leaf| leaf.entries.iter().rev())
            .map(|entry| (entry.key, entry.gpus))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key(main: i64, job: u32) -> Key {
        Key { lead: 1, main, job }
    }

    proptest! {
        #[test]
        fn equals_a_plain_ordered_map(
            steps in prop::collection::vec((0_i64..400, 0_u32..8, 1_u32..9), 1..3000),
            bound in 0_i64..400,
            amount in 1_u64..4000,
        ) {
            let mut tree = SumTree::default();
            let mut oracle = BTreeMap::new();
            for (main, job, gpus) in steps {
                let key = key(main, job);
                let near = Key { main: main + i64::from(gpus) - 4, ..key };
                if let Some(&gpus) = oracle.get(&key)
                    && gpus > 4
                    && !oracle.contains_key(&near)
                {
                    oracle.remove(&key);
                    oracle.insert(near, gpus);
                    tree.rekey(key, near, gpus);
                } else if let Some(gpus) = oracle.remove(&key) {
                    prop_assert_eq!(tree.remove(key), gpus);
                } else {
                    tree.insert(key, gpus);
                    oracle.insert(key, gpus);
                }
            }
            let total: u64 = oracle.values().map(|&g| u64::from(g)).sum();
            prop_assert_eq!((tree.len(), tree.sum()), (oracle.len(), total));
            prop_assert_eq!(tree.first(), oracle.keys().next().copied());
            prop_assert_eq!(tree.last(), oracle.keys().next_back().copied());
            let bound = key(bound, 3);
            let behind: u64 =
                oracle.iter().filter(|(k, _)| **k > bound).map(|(_, &g)| u64::from(g)).sum();
            prop_assert_eq!(tree.sum_after(bound), behind);
            prop_assert_eq!(tree.sum_behind(u64::MAX, |key, _| key > bound), behind);
            let counted = tree.sum_behind(amount, |key, _| key > bound);
            prop_assert!(counted <= behind && (counted == behind || counted >= amount));
            let mut prefix = 0;
            let mut reaches = |gpus: u32| {
                prefix += u64::from(gpus);
                prefix >= amount
            };
            let reaching = oracle.iter().find(|(_, gpus)| reaches(**gpus));
            prop_assert_eq!(tree.first_reaching(amount), reaching.map(|(k, _)| *k));
            if amount <= total {
                let mut prefix = 0;
                let over = oracle.iter()
                    .find(|(_, g)| { prefix += u64::from(**g); prefix > total - amount });
                let slack = over.map(|(_, &g)| total - (prefix - u64::from(g)) - amount);
                let over = over.zip(slack).map(|((k, &g), slack)| (*k, g, slack));
                prop_assert_eq!(tree.first_over(amount), over);
            }
            let back: Vec<Key> = tree.iter_back().map(|(k, _)| k).collect();
            prop_assert!(back.into_iter().eq(oracle.keys().rev().copied()));
        }
    }
}
