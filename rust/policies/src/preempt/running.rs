//! The jobs that the count admits, in order, with their gang sizes.

use super::jobs::{Key, Measure, Rank};
use gangline_model::GpuTypeId;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// The GPU type of a cluster that has only one type.
pub(super) const TYPE: GpuTypeId = GpuTypeId(0);

/// An admitted job at an instant: its rank, key and gang size.
pub(super) type Admitted = (Rank, Key, u32);

/// Admitted jobs. Their keys do not change with time, because a decreasing span is stored as the instant at which it
/// ends. If the measure is the span times the gang size, jobs of different sizes overtake each other, so there is one
/// set per gang size.
#[derive(Debug)]
pub(super) struct RunningSet {
    measure: Measure,
    /// In each set, the gang size of every job, by key.
    sets: Vec<BTreeMap<Key, u32>>,
    /// Gang size for each set, if there are several sets.
    sizes: Vec<u32>,
    gpus: u64,
}

impl RunningSet {
    /// Creates an empty collection; `sizes` are the gang sizes in the trace.
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

    /// Returns the total number of GPUs of all admitted jobs.
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

    /// Returns whether the jobs behind the given rank at `now` hold at least this many GPUs. The cost is O(gpus),
    /// because each job holds at least one GPU.
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

    /// Goes back from the last job in rank order until the visited jobs together hold at least `over` GPUs. Returns the
    /// job at which this happens, and the number of GPUs that the visited jobs hold in excess of `over`. The cost is
    /// O(over).
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
