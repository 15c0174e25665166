//! Running jobs in key order with sums of their GPUs, at any instant.
//!
//! Keys are kept in a form that stands still: `finish`-like instants for spans that shrink. Where the measure
//! is span x gang size, jobs of different sizes overtake each other as time goes; then there is one
//! tree per gang size and questions look at each of them.

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
    }

    /// Takes a job out.
    #[inline]
    pub fn remove(&mut self, key: Key, gpus: u32) {
        let tree = self.tree(gpus);
        self.trees[tree].remove(key);
        self.sum -= u64::from(gpus);
    }

    /// Gives a job another key.
    #[inline]
    pub fn rekey(&mut self, old: Key, key: Key, gpus: u32) {
        let tree = self.tree(gpus);
        self.trees[tree].rekey(old, key, gpus);
    }

    /// Rank of the last job at `now`.
    #[inline]
    pub fn last_rank(&self, now: i64) -> Option<Rank> {
        self.last(now).map(|(rank, ..)| rank)
    }

    /// The last job at `now`.
    #[inline]
    fn last(&self, now: i64) -> Option<(Rank, Key, u32)> {
        let mut last: Option<(Rank, Key, u32)> = None;
        for (key, gpus) in self.trees.iter().filter_map(SumTree::last_entry) {
            let rank = self.measure.running(key, gpus, now);
            if last.is_none_or(|last| last.0 < rank) {
                last = Some((rank, key, gpus));
            }
        }
        last
    }

    /// First and last job of the smallest gangs; of all, where one tree holds them.
    #[inline]
    pub fn ends(&self) -> Option<[JobId; 2]> {
        let tree = self.trees.first()?;
        Some([tree.first()?.job(), tree.last()?.job()])
    }

    /// Whether the running jobs that come after a rank at `now` hold at least so many GPUs.
    #[inline]
    pub fn hold_behind(&self, rank: &Rank, gpus: u64, now: i64) -> bool {
        if let (false, [tree]) = (self.measure.is_by_size(), self.trees.as_slice()) {
            // one order for all: behind the key that the rank would have in it
            let bound = Key {
                lead: rank.lead,
                main: self.measure.to_running(rank.value as i64, now),
                job: rank.job,
            };
            return tree.sum_behind(gpus, |key, _| bound < key) >= gpus;
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

    /// The first job, in rank order at `now`, up to which the jobs hold more than `sum() - over` GPUs, and
    /// how many GPUs it and those behind it hold beyond `over`.
    pub fn first_over(&self, over: u64, now: i64) -> Option<(Key, u32, u64)> {
        if let [tree] = self.trees.as_slice() {
            return tree.first_over(over);
        }
        let (_, key, gpus) = self.last(now)?;
        if u64::from(gpus) >= over {
            return Some((key, gpus, u64::from(gpus) - over));
        }
        // merge the trees from their ends; at most `over` steps, as every job has a GPU
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
            let (_, key, gpus) = ends[at].expect("just seen");
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
