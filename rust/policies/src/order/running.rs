//! Running jobs in key order with sums of their GPUs, at any instant.
//!
//! Keys are kept in a form that stands still: `finish`-like instants for spans that shrink. Where the measure
//! is span x gang size, jobs of different sizes overtake each other as time goes; then there is one
//! tree per gang size and questions look at each of them.

use crate::order::{Key, Measure, Rank, SumTree};

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
        let lasts = self.trees.iter().filter_map(SumTree::last_entry);
        lasts
            .map(|(key, gpus)| self.measure.running(key, gpus, now))
            .max()
    }

    /// GPUs of the running jobs that come after a rank at `now`.
    #[inline]
    pub fn sum_after(&self, rank: &Rank, now: i64) -> u64 {
        let sums = self.trees.iter().zip(&self.sizes);
        sums.map(|(tree, &size)| match tree.last_entry() {
            // mostly the question concerns the end of the order: a look at the last jobs settles it
            // without a division
            Some((last, gpus)) if self.measure.running(last, gpus, now) > *rank => {
                tree.sum_after(self.bound(rank, size, now))
            }
            _ => 0,
        })
        .sum()
    }

    /// The key in the tree of a size behind which exactly the jobs of larger rank lie.
    #[inline]
    fn bound(&self, rank: &Rank, size: u32, now: i64) -> Key {
        match self.measure {
            Measure::Fixed => Key {
                lead: rank.lead,
                main: rank.value as i64,
                job: rank.job,
            },
            Measure::Span => Key {
                lead: rank.lead,
                main: instant(rank.value, now),
                job: rank.job,
            },
            Measure::Area | Measure::ShrinkingArea => {
                let (span, is_exact) = divide(rank.value, size);
                let by_size = if self.measure == Measure::Area {
                    std::cmp::Ordering::Equal
                } else {
                    size.cmp(&rank.gpus)
                };
                let main = instant(span, now);
                match (is_exact, by_size) {
                    // a tree of larger gangs: those of equal measure come after
                    (true, std::cmp::Ordering::Greater) => Key {
                        lead: rank.lead,
                        main: main - 1,
                        job: u32::MAX,
                    },
                    (true, std::cmp::Ordering::Equal) => Key {
                        lead: rank.lead,
                        main,
                        job: rank.job,
                    },
                    (true, std::cmp::Ordering::Less) | (false, _) => Key {
                        lead: rank.lead,
                        main,
                        job: u32::MAX,
                    },
                }
            }
        }
    }

    /// The first job, in rank order at `now`, up to which the jobs hold more than `sum() - over` GPUs, and
    /// how many GPUs it and those behind it hold beyond `over`.
    pub fn first_over(&self, over: u64, now: i64) -> Option<(Key, u32, u64)> {
        if let [tree] = self.trees.as_slice() {
            return tree.first_over(over);
        }
        let lasts = self.trees.iter().filter_map(SumTree::last_entry);
        let last = lasts.max_by_key(|&(key, gpus)| self.measure.running(key, gpus, now))?;
        if u64::from(last.1) >= over {
            return Some((last.0, last.1, u64::from(last.1) - over));
        }
        // merge the trees from their ends; at most `over` steps, as every job has a GPU
        let mut ends: Vec<_> = self
            .trees
            .iter()
            .map(|tree| tree.iter_back().peekable())
            .collect();
        let mut behind = 0;
        loop {
            let last = ends.iter_mut().enumerate().filter_map(|(at, end)| {
                let &(key, gpus) = end.peek()?;
                Some((self.measure.running(key, gpus, now), at))
            });
            let (_, at) = last.max()?;
            let (key, gpus) = ends[at].next().expect("just seen");
            behind += u64::from(gpus);
            if behind >= over {
                return Some((key, gpus, behind - over));
            }
        }
    }

    /// All running jobs with their ranks at `now`, unordered.
    pub fn ranks(&self, now: i64) -> impl Iterator<Item = Rank> + '_ {
        let jobs = self.trees.iter().flat_map(SumTree::iter_back);
        jobs.map(move |(key, gpus)| self.measure.running(key, gpus, now))
    }
}

/// Quotient rounded down, and whether nothing is left. Measures are rarely too large for the machine's own
/// division, which is several times as fast.
#[inline]
fn divide(value: i128, by: u32) -> (i128, bool) {
    if let Ok(value) = i64::try_from(value) {
        let by = i64::from(by);
        return (i128::from(value.div_euclid(by)), value.rem_euclid(by) == 0);
    }
    let by = i128::from(by);
    (value.div_euclid(by), value.rem_euclid(by) == 0)
}

/// A span from now, as the standing key of a running job.
#[inline]
fn instant(span: i128, now: i64) -> i64 {
    i64::try_from(span + i128::from(now)).unwrap_or(i64::MAX)
}
