//! Running jobs in key order with sums of their GPUs, at any instant.
//!
//! Keys are kept in a form that does not change with time: a span that shrinks is kept as the instant at which it
//! ends. Where the measure is span x gang size, jobs of different sizes overtake each other as time goes; then
//! there is one tree per gang size and questions look at each of them.

use crate::order::{Key, Measure, Rank, SumTree};
use gangline_model::JobId;
use smallvec::SmallVec;

/// The running jobs of a preemptive policy.
#[derive(Debug)]
pub struct Running {
    measure: Measure,
    trees: Vec<SumTree>,
    /// Gang size of each tree; 0 = any.
    sizes: Vec<u32>,
    sum: u64,
    /// Where there are several trees: an instant and the last job at it, while known.
    last: Option<(i64, Last)>,
}

/// The last job at an instant.
#[derive(Clone, Copy, Debug)]
struct Last {
    rank: Rank,
    key: Key,
    gpus: u32,
}

/// A job near the end of a tree: `depth` places before its last one. Lead and value are kept with it, as they nearly
/// always settle a comparison.
#[derive(Clone, Copy, Debug)]
struct End {
    value: i128,
    lead: u64,
    tree: u32,
    depth: u32,
}

impl Running {
    /// No running job; `sizes` are the gang sizes of the trace.
    pub fn new(measure: Measure, sizes: impl Iterator<Item = u32>) -> Self {
        let mut sizes: Vec<u32> = if measure.is_by_size() {
            sizes.collect()
        } else {
            vec![0]
        };
        sizes.sort_unstable();
        sizes.dedup();
        let trees = sizes.iter().map(|_| SumTree::default()).collect();
        Self {
            measure,
            trees,
            sizes,
            sum: 0,
            last: None,
        }
    }

    #[inline]
    fn tree(&self, gpus: u32) -> usize {
        if self.trees.len() == 1 {
            0
        } else {
            self.sizes.partition_point(|&size| size < gpus)
        }
    }

    /// GPUs of all running jobs.
    #[inline]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Adds a job.
    #[inline]
    pub fn insert(&mut self, key: Key, gpus: u32) {
        let tree = self.tree(gpus);
        self.trees[tree].insert(key, gpus);
        self.sum += u64::from(gpus);
        if let Some((at, last)) = &mut self.last {
            let rank = self.measure.running(key, gpus, *at);
            if last.rank < rank {
                *last = Last { rank, key, gpus };
            }
        }
    }

    /// Takes a job out.
    #[inline]
    pub fn remove(&mut self, key: Key, gpus: u32) {
        let tree = self.tree(gpus);
        self.trees[tree].remove(key);
        self.sum -= u64::from(gpus);
        if self.last.is_some_and(|(_, last)| last.key == key) {
            self.last = None;
        }
    }

    /// Gives a job another key.
    #[inline]
    pub fn rekey(&mut self, old: Key, key: Key, gpus: u32) {
        let tree = self.tree(gpus);
        self.trees[tree].rekey(old, key, gpus);
        self.last = None;
    }

    /// Rank of the last job at `now`.
    #[inline]
    pub fn last_rank(&mut self, now: i64) -> Option<Rank> {
        self.last(now).map(|last| last.rank)
    }

    #[inline]
    fn last(&mut self, now: i64) -> Option<Last> {
        if let [tree] = self.trees.as_slice() {
            let (key, gpus) = tree.last_entry()?;
            let rank = self.measure.running(key, gpus, now);
            return Some(Last { rank, key, gpus });
        }
        match self.last {
            Some((at, last)) if at == now => Some(last),
            _ => self.find_last(now),
        }
    }

    fn find_last(&mut self, now: i64) -> Option<Last> {
        let mut last: Option<End> = None;
        for tree in 0..self.trees.len() {
            if let Some(end) = self.end(tree, 0, now)
                && last.is_none_or(|last| self.is_after(&end, &last, now))
            {
                last = Some(end);
            }
        }
        let (key, gpus) = self.job_at(&last?)?;
        let rank = self.measure.running(key, gpus, now);
        let last = Last { rank, key, gpus };
        self.last = Some((now, last));
        Some(last)
    }

    /// The job `depth` places before the last one of a tree, if it lies in the last leaf.
    #[inline]
    fn end(&self, tree: usize, depth: usize, now: i64) -> Option<End> {
        let (key, _) = self.trees[tree].near_end(depth)?;
        Some(End {
            value: i128::from(key.main - now) * i128::from(self.sizes[tree]),
            lead: key.lead,
            tree: tree as u32,
            depth: depth as u32,
        })
    }

    #[inline]
    fn job_at(&self, end: &End) -> Option<(Key, u32)> {
        self.trees[end.tree as usize].near_end(end.depth as usize)
    }

    #[inline]
    fn is_after(&self, end: &End, other: &End, now: i64) -> bool {
        if end.lead == other.lead && end.value != other.value {
            return end.value > other.value;
        }
        self.is_after_by_rank(end, other, now)
    }

    #[inline(never)]
    fn is_after_by_rank(&self, end: &End, other: &End, now: i64) -> bool {
        let rank = |end| {
            let (key, gpus) = self.job_at(end)?;
            Some(self.measure.running(key, gpus, now))
        };
        rank(end) > rank(other)
    }

    /// First and last job of the first tree: the one of the smallest gangs, or of all.
    #[inline]
    pub fn ends(&self) -> Option<[JobId; 2]> {
        let tree = self.trees.first()?;
        Some([tree.first()?.job(), tree.last()?.job()])
    }

    /// Whether the running jobs that come after a rank at `now` hold at least so many GPUs.
    #[inline]
    pub fn hold_behind(&mut self, rank: &Rank, gpus: u64, now: i64) -> bool {
        if let (false, [tree]) = (self.measure.is_by_size(), self.trees.as_slice()) {
            // one tree in the order of ranks: the key that the rank would have in it is the bound
            let bound = Key {
                lead: rank.lead,
                main: self.measure.to_running(rank.value as i64, now),
                job: rank.job,
            };
            return tree.sum_behind(gpus, |key, _| bound < key) >= gpus;
        }
        // mostly the last job of all settles it
        match self.last(now) {
            Some(last) if *rank < last.rank => {
                if u64::from(last.gpus) >= gpus {
                    return true;
                }
            }
            _ => return false,
        }
        let is_behind = |key, gpus| *rank < self.measure.running(key, gpus, now);
        let mut sum = 0;
        for tree in &self.trees {
            // mostly the last job of a tree settles it
            if !tree
                .last_entry()
                .is_some_and(|(key, gpus)| is_behind(key, gpus))
            {
                continue;
            }
            sum += tree.sum_behind(gpus - sum, is_behind);
            if sum >= gpus {
                return true;
            }
        }
        false
    }

    /// Going back from the last job in rank order at `now`: the job with which those passed hold at least `over` GPUs,
    /// its gang size, and how many GPUs beyond `over` they hold.
    pub fn first_over(&mut self, over: u64, now: i64) -> Option<(Key, u32, u64)> {
        if let [tree] = self.trees.as_slice() {
            return tree.first_over(over);
        }
        let Last { key, gpus, .. } = self.last(now)?;
        if u64::from(gpus) >= over {
            return Some((key, gpus, u64::from(gpus) - over));
        }
        self.first_over_in_tails(over, now)
            .unwrap_or_else(|| self.first_over_by_merge(over, now))
    }

    /// The same from the last leaves alone; `None` if they are not enough to tell.
    #[expect(clippy::option_option, reason = "not enough to tell, or no such job")]
    fn first_over_in_tails(&self, over: u64, now: i64) -> Option<Option<(Key, u32, u64)>> {
        let trees = 0..self.trees.len();
        let mut ends: SmallVec<[End; 8]> = SmallVec::new();
        ends.extend(trees.filter_map(|tree| self.end(tree, 0, now)));
        let mut behind = 0;
        while let Some(at) = self.last_of(&ends, now) {
            let end = &ends[at];
            let (tree, depth) = (end.tree as usize, end.depth as usize);
            let gpus = self.sizes[tree];
            behind += u64::from(gpus);
            if behind >= over {
                let (key, _) = self.job_at(end)?;
                return Some(Some((key, gpus, behind - over)));
            }
            match self.end(tree, depth + 1, now) {
                Some(next) => ends[at] = next,
                None if self.trees[tree].len() == depth + 1 => _ = ends.swap_remove(at),
                None => return None,
            }
        }
        Some(None)
    }

    /// The last in rank order.
    #[inline]
    fn last_of(&self, ends: &[End], now: i64) -> Option<usize> {
        let mut last = ends.first()?;
        let mut at = 0;
        for (other, end) in ends.iter().enumerate().skip(1) {
            if self.is_after(end, last, now) {
                (at, last) = (other, end);
            }
        }
        Some(at)
    }

    /// The same from whole trees.
    fn first_over_by_merge(&self, over: u64, now: i64) -> Option<(Key, u32, u64)> {
        // merge the trees from their ends; at most `over` steps, as every job holds at least one GPU
        let ranked = |(key, gpus)| (self.measure.running(key, gpus, now), key, gpus);
        let mut rest: SmallVec<[_; 8]> = self.trees.iter().map(SumTree::iter_back).collect();
        let mut ends: SmallVec<[Option<(Rank, Key, u32)>; 8]> = rest
            .iter_mut()
            .map(|rest| rest.next().map(ranked))
            .collect();
        let mut behind = 0;
        loop {
            let mut last: Option<(Rank, usize)> = None;
            for (at, end) in ends.iter().enumerate() {
                if let Some((rank, ..)) = *end
                    && last.is_none_or(|last| last.0 < rank)
                {
                    last = Some((rank, at));
                }
            }
            let at = last?.1;
            let (_, key, gpus) = ends[at].expect("`last` is one of the ends");
            behind += u64::from(gpus);
            if behind >= over {
                return Some((key, gpus, behind - over));
            }
            ends[at] = rest[at].next().map(ranked);
        }
    }

    /// All running jobs with their ranks at `now`, unordered.
    pub fn ranks(&self, now: i64) -> impl Iterator<Item = Rank> + '_ {
        let jobs = self.trees.iter().flat_map(SumTree::iter_back);
        jobs.map(move |(key, gpus)| self.measure.running(key, gpus, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_end_is_that_of_a_sorted_list(
            jobs in prop::collection::vec((100_i64..5000, 0_usize..3, any::<bool>()), 1..400),
            now in 0_i64..100,
            over in prop::collection::vec(1_u64..900, 1..8),
            bound in 0_i128..20000,
        ) {
            let sizes = [1, 4, 8];
            let mut running = Running::new(Measure::ShrinkingArea, sizes.into_iter());
            let mut list: Vec<(Rank, Key, u32)> = Vec::new();
            for (job, (main, size, leaves)) in jobs.into_iter().enumerate() {
                let (key, gpus) = (Key { lead: 0, main, job: job as u32 }, sizes[size]);
                running.insert(key, gpus);
                list.push((Measure::ShrinkingArea.running(key, gpus, now), key, gpus));
                list.sort_unstable_by_key(|entry| entry.0);
                if leaves {
                    let (_, key, gpus) = list.remove(main as usize % list.len());
                    running.remove(key, gpus);
                }
                prop_assert_eq!(running.last_rank(now), list.last().map(|entry| entry.0));
            }
            for over in over {
                let mut behind = 0;
                let first = list.iter().rev().find_map(|&(_, key, gpus)| {
                    behind += u64::from(gpus);
                    (behind >= over).then(|| (key, gpus, behind - over))
                });
                prop_assert_eq!(running.first_over(over, now), first);
                prop_assert_eq!(running.first_over_by_merge(over, now), first);
                let rank = Rank { lead: 0, value: bound, gpus: 4, job: 7 };
                let held: u64 = list.iter().filter(|entry| entry.0 > rank)
                    .map(|entry| u64::from(entry.2)).sum();
                prop_assert_eq!(running.hold_behind(&rank, over, now), held >= over);
            }
        }
    }
}
