//! The jobs that the count admits, in their order, with their gang sizes.

use super::key::{Key, Measure, Rank};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// An admitted job at an instant: rank, key, gang size.
pub(super) type Admitted = (Rank, Key, u32);

/// Admitted jobs. Their keys do not change with time: a span that shrinks is kept as the instant at which it ends.
/// Where the measure is span x gang size, jobs of different sizes overtake each other as time goes, so there is one
/// set per gang size.
#[derive(Debug)]
pub(super) struct RunningSet {
    measure: Measure,
    /// Gang sizes by key.
    sets: Vec<BTreeMap<Key, u32>>,
    /// Gang size of each set where there are several.
    sizes: Vec<u32>,
    gpus: u64,
}

impl RunningSet {
    /// No job; `sizes` are the gang sizes of the trace.
    pub(super) fn new(measure: Measure, sizes: &[u32]) -> Self {
        let mut sizes = if measure.is_by_size() {
            sizes.to_vec()
        } else {
            vec![0]
        };
        sizes.sort_unstable();
        sizes.dedup();
        Self {
            measure,
            sets: vec![BTreeMap::new(); sizes.len()],
            sizes,
            gpus: 0,
        }
    }

    fn set(&mut self, gpus: u32) -> &mut BTreeMap<Key, u32> {
        let at = if self.sets.len() == 1 {
            0
        } else {
            self.sizes.partition_point(|&size| size < gpus)
        };
        &mut self.sets[at]
    }

    /// GPUs of all jobs.
    pub(super) fn gpus(&self) -> u64 {
        self.gpus
    }

    pub(super) fn insert(&mut self, key: Key, gpus: u32) {
        self.set(gpus).insert(key, gpus);
        self.gpus += u64::from(gpus);
    }

    pub(super) fn remove(&mut self, key: Key, gpus: u32) {
        let removed = self.set(gpus).remove(&key);
        debug_assert!(removed.is_some(), "the job is admitted under this key");
        self.gpus -= u64::from(gpus);
    }

    /// Whether the jobs behind a rank at `now` hold at least so many GPUs. O(gpus), as each holds one at least.
    pub(super) fn hold_behind(&self, rank: &Rank, gpus: u64, now: i64) -> bool {
        let mut sum = 0;
        for set in &self.sets {
            for (&key, &size) in set.iter().rev() {
                if self.measure.running(key, size, now) < *rank {
                    break;
                }
                sum += u64::from(size);
                if sum >= gpus {
                    return true;
                }
            }
        }
        false
    }

    /// Going back from the last job in rank order: the job with which those passed hold at least `over` GPUs, and how many
    /// they hold beyond `over`. O(over).
    pub(super) fn first_over(&self, over: u64, now: i64) -> Option<(Admitted, u64)> {
        let mut sum = 0;
        if let [set] = &self.sets[..] {
            return set.iter().rev().find_map(|(&key, &gpus)| {
                sum += u64::from(gpus);
                let job = (self.measure.running(key, gpus, now), key, gpus);
                (sum >= over).then(|| (job, sum - over))
            });
        }
        let mut tails: SmallVec<[_; 8]> = SmallVec::new();
        tails.extend(self.sets.iter().map(|set| set.iter().rev().peekable()));
        loop {
            let mut last: Option<(Admitted, usize)> = None;
            for (at, tail) in tails.iter_mut().enumerate() {
                let Some(&(&key, &gpus)) = tail.peek() else {
                    continue;
                };
                let rank = self.measure.running(key, gpus, now);
                if last.is_none_or(|(last, _)| last.0 < rank) {
                    last = Some(((rank, key, gpus), at));
                }
            }
            let (job, at) = last?;
            sum += u64::from(job.2);
            if sum >= over {
                return Some((job, sum - over));
            }
            tails[at].next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_a_sorted_list(
            jobs in prop::collection::vec((100_i64..5000, 0_usize..3, any::<bool>()), 1..200),
            now in 0_i64..100,
            over in prop::collection::vec(1_u64..900, 1..8),
            bound in 0_i128..20000,
            is_by_size in any::<bool>(),
        ) {
            let sizes = [1, 4, 8];
            let measure = if is_by_size { Measure::ShrinkingArea } else { Measure::Span };
            let mut running = RunningSet::new(measure, &sizes);
            let mut list: Vec<Admitted> = Vec::new();
            for (job, (main, size, leaves)) in jobs.into_iter().enumerate() {
                let (key, gpus) = (Key { lead: 0, main, job: job as u32 }, sizes[size]);
                running.insert(key, gpus);
                list.push((measure.running(key, gpus, now), key, gpus));
                list.sort_unstable_by_key(|entry| entry.0);
                if leaves {
                    let (_, key, gpus) = list.remove(main as usize % list.len());
                    running.remove(key, gpus);
                }
            }
            prop_assert_eq!(running.gpus(), list.iter().map(|entry| u64::from(entry.2)).sum::<u64>());
            for over in over {
                let mut behind = 0;
                let first = list.iter().rev().find_map(|&job| {
                    behind += u64::from(job.2);
                    (behind >= over).then(|| (job, behind - over))
                });
                prop_assert_eq!(running.first_over(over, now), first);
                let rank = Rank { lead: 0, value: bound, gpus: 0, job: 7 };
                let held: u64 = list.iter().filter(|entry| entry.0 > rank)
                    .map(|entry| u64::from(entry.2)).sum();
                prop_assert_eq!(running.hold_behind(&rank, over, now), held >= over);
            }
        }
    }
}
