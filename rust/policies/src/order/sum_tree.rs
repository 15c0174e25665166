//! An ordered list with sums of GPUs: the running jobs of a policy.
//!
//! Three levels of arrays: leaves of up to 64 entries, groups of up to 64 leaves, a list of groups. Keys lie
//! inline. Most questions and changes concern the end of the order, so the last leaf is kept apart and a search
//! starts there: a question costs the few groups behind its answer plus two short scans. Emptied leaves are
//! kept for reuse.

use crate::order::Key;

const LEAF: usize = 64;
const GROUP: usize = 64;
/// So many entries at the end of a list are compared one by one before it is searched.
const NEAR: usize = 6;

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
    /// All but the last jobs.
    groups: Vec<Group>,
    /// The last ones; empty only if there is no job.
    tail: Vec<Entry>,
    len: usize,
    spare: Vec<Vec<Entry>>,
}

/// How many entries come before a key.
#[inline]
fn count_before(entries: &[Entry], key: &Key) -> usize {
    let mut at = entries.len();
    for _ in 0..NEAR {
        if at == 0 || entries[at - 1].key < *key {
            return at;
        }
        at -= 1;
    }
    entries[..at].partition_point(|entry| entry.key < *key)
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

    /// The first key.
    #[inline]
    pub fn first(&self) -> Option<Key> {
        let leaf = self.groups.first().map(|group| &group.leaves[0].entries);
        Some(leaf.unwrap_or(&self.tail).first()?.key)
    }

    /// The last key.
    #[inline]
    pub fn last(&self) -> Option<Key> {
        Some(self.tail.last()?.key)
    }

    /// The last job.
    #[inline]
    pub fn last_entry(&self) -> Option<(Key, u32)> {
        let last = self.tail.last()?;
        Some((last.key, last.gpus))
    }

    /// The job so many places before the last one, if it lies in the last leaf.
    #[inline]
    pub fn near_end(&self, depth: usize) -> Option<(Key, u32)> {
        let entry = self.tail.iter().nth_back(depth)?;
        Some((entry.key, entry.gpus))
    }

    /// Whether a key belongs to the last leaf.
    #[inline]
    fn is_in_tail(&self, key: &Key) -> bool {
        self.groups.is_empty() || self.tail.first().is_none_or(|first| first.key <= *key)
    }

    /// Group and leaf, other than the tail, where `key` is or belongs: the first leaf that ends at or after it, else
    /// the last. In some orders jobs finish at the front, so the first leaf is tried first.
    #[inline]
    fn find(&self, key: &Key) -> (usize, usize) {
        let groups = self.groups.as_slice();
        if groups[0].leaves[0].last >= *key {
            return (0, 0);
        }
        let last = groups.len() - 1;
        let group = groups.partition_point(|g| g.last < *key).min(last);
        let leaves = &groups[group].leaves;
        let leaf = leaves.partition_point(|l| l.last < *key);
        (group, leaf.min(leaves.len() - 1))
    }

    /// Whether a key is there.
    pub fn contains(&self, key: Key) -> bool {
        let entries = if self.is_in_tail(&key) {
            &self.tail
        } else {
            let (group, leaf) = self.find(&key);
            &self.groups[group].leaves[leaf].entries
        };
        entries
            .binary_search_by(|entry| entry.key.cmp(&key))
            .is_ok()
    }

    /// Adds a job; its key must be new.
    #[inline]
    pub fn insert(&mut self, key: Key, gpus: u32) {
        self.len += 1;
        if !self.is_in_tail(&key) {
            self.insert_inside(key, gpus);
            return;
        }
        let at = count_before(&self.tail, &key);
        self.tail.insert(at, Entry { key, gpus });
        if self.tail.len() == LEAF {
            self.cut_tail();
        }
    }

    fn insert_inside(&mut self, key: Key, gpus: u32) {
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

    /// Makes a leaf of the first half of the tail.
    fn cut_tail(&mut self) {
        let mut entries = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(LEAF));
        entries.extend(self.tail.drain(..LEAF / 2));
        let mut leaf = Leaf {
            entries,
            ..Leaf::default()
        };
        leaf.refresh();
        if self
            .groups
            .last()
            .is_none_or(|group| group.leaves.len() >= GROUP / 2)
        {
            self.groups.push(Group::default());
        }
        let group = self
            .groups
            .last_mut()
            .expect("pushed above if there was none");
        group.last = leaf.last;
        group.sum += leaf.sum;
        group.leaves.push(leaf);
    }

    /// Makes the last leaf the tail, which is empty.
    fn refill_tail(&mut self) {
        let Some(group) = self.groups.last_mut() else {
            return;
        };
        let leaf = group.leaves.pop().expect("a group has leaves");
        group.sum -= leaf.sum;
        match group.leaves.last() {
            Some(last) => group.last = last.last,
            None => _ = self.groups.pop(),
        }
        self.spare
            .push(std::mem::replace(&mut self.tail, leaf.entries));
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
    #[inline]
    pub fn remove(&mut self, key: Key) -> u32 {
        let entry = if self.is_in_tail(&key) {
            let at = match self.tail.last() {
                Some(last) if last.key == key => self.tail.len() - 1,
                _ => count_before(&self.tail, &key),
            };
            let entry = self.tail.remove(at);
            if self.tail.is_empty() {
                self.refill_tail();
            }
            entry
        } else {
            self.remove_inside(&key)
        };
        assert!(entry.key == key, "the key is in the tree");
        self.len -= 1;
        entry.gpus
    }

    fn remove_inside(&mut self, key: &Key) -> Entry {
        let (g, l) = self.find(key);
        let group = &mut self.groups[g];
        let leaf = &mut group.leaves[l];
        let is_last = leaf.last == *key;
        let at = if is_last {
            leaf.entries.len() - 1
        } else {
            leaf.entries.partition_point(|entry| entry.key < *key)
        };
        let entry = leaf.entries.remove(at);
        leaf.sum -= u64::from(entry.gpus);
        group.sum -= u64::from(entry.gpus);
        if is_last {
            self.shorten(g, l);
        }
        entry
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
    }

    /// Gives a job another key; mostly it keeps its place in the order, and only the key is replaced.
    ///
    /// # Panics
    /// If the old key is not there.
    pub fn rekey(&mut self, old: Key, key: Key, gpus: u32) {
        let entries = if self.is_in_tail(&old) {
            &mut self.tail
        } else {
            let (g, l) = self.find(&old);
            &mut self.groups[g].leaves[l].entries
        };
        let at = count_before(entries, &old);
        let is_inside = at > 0 && at + 1 < entries.len();
        if is_inside && entries[at - 1].key < key && key < entries[at + 1].key {
            debug_assert!(entries[at].key == old, "the key is in the tree");
            entries[at].key = key;
            return;
        }
        self.remove(old);
        self.insert(key, gpus);
    }

    /// GPUs of the jobs up to `bound`, counted from the front.
    #[inline]
    pub fn sum_up_to(&self, bound: Key) -> u64 {
        let mut sum = 0;
        let mut last = self.tail.as_slice();
        for group in &self.groups {
            if group.last <= bound {
                sum += group.sum;
                continue;
            }
            for leaf in &group.leaves {
                if leaf.last <= bound {
                    sum += leaf.sum;
                    continue;
                }
                last = &leaf.entries;
                break;
            }
            break;
        }
        for entry in last {
            if entry.key > bound {
                break;
            }
            sum += u64::from(entry.gpus);
        }
        sum
    }

    /// GPUs of the jobs at the end of the order for which `is_behind` holds, counted no further than `enough`.
    #[inline]
    pub fn sum_behind(&self, enough: u64, is_behind: impl Fn(Key, u32) -> bool) -> u64 {
        let mut sum = 0;
        for entry in self.tail.iter().rev() {
            if sum >= enough || !is_behind(entry.key, entry.gpus) {
                return sum;
            }
            sum += u64::from(entry.gpus);
        }
        if sum >= enough {
            return sum;
        }
        self.sum_behind_inside(sum, enough, is_behind)
    }

    /// Goes on before the tail.
    fn sum_behind_inside(
        &self,
        mut sum: u64,
        enough: u64,
        is_behind: impl Fn(Key, u32) -> bool,
    ) -> u64 {
        let is_whole = |leaf: &Leaf| is_behind(leaf.entries[0].key, leaf.entries[0].gpus);
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

    /// Going back from the last job: the job with which those passed hold at least `over` GPUs, its GPUs, and how many
    /// GPUs beyond `over` they hold.
    pub fn first_over(&self, over: u64) -> Option<(Key, u32, u64)> {
        let mut behind = 0;
        for entry in self.tail.iter().rev() {
            behind += u64::from(entry.gpus);
            if behind >= over {
                return Some((entry.key, entry.gpus, behind - over));
            }
        }
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

    /// Going on from the first job: the job with which those passed hold at least `need` GPUs.
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
        for entry in &self.tail {
            before += u64::from(entry.gpus);
            if before >= need {
                return Some(entry.key);
            }
        }
        None
    }

    /// Jobs from the end of the order.
    pub fn iter_back(&self) -> impl Iterator<Item = (Key, u32)> + '_ {
        let leaves = self.groups.iter().rev();
        let inside = leaves
            .flat_map(|group| group.leaves.iter().rev())
            .flat_map(|leaf| leaf.entries.iter().rev());
        self.tail
            .iter()
            .rev()
            .chain(inside)
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
            prop_assert_eq!(tree.len(), oracle.len());
            prop_assert_eq!(tree.sum_behind(u64::MAX, |_, _| true), total);
            prop_assert_eq!(tree.first(), oracle.keys().next().copied());
            prop_assert_eq!(tree.last(), oracle.keys().next_back().copied());
            let bound = key(bound, 3);
            let behind: u64 =
                oracle.iter().filter(|(k, _)| **k > bound).map(|(_, &g)| u64::from(g)).sum();
            prop_assert_eq!(tree.sum_up_to(bound), total - behind);
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
