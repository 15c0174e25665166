//! The place of a job in the queue.

use super::facts::{Facts, Line};
use super::params::Sorting;
use gangline_model::{JobId, NANOS_PER_SECOND, SimTime};
use std::cmp::Ordering;

/// Place of a job in the queue at one instant; smaller comes first. Exact: no tolerance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rank {
    main: f64,
    narrow: u32,
    pub(super) job: JobId,
}

impl Rank {
    /// The rank of a job with so much work left.
    pub(super) fn new(sorting: Sorting, now: SimTime, facts: &Facts, remaining: f64) -> Self {
        // whole nanoseconds, so that times that are equal in decimals tie
        let left_ns = || (remaining / facts.best_rate * NANOS_PER_SECOND).round();
        let main = match sorting {
            Sorting::Density => return Self::dense(&facts.line(remaining), now),
            Sorting::Arrival => 0.0,
            Sorting::ShortestRemaining => left_ns(),
            Sorting::LongestRemaining => -left_ns(),
        };
        Self {
            main,
            narrow: 0,
            job: facts.job,
        }
    }

    /// Largest utility per GPU first, then the larger gang.
    pub(super) fn dense(line: &Line, now: SimTime) -> Self {
        Self {
            main: -line.density(now),
            narrow: u32::MAX - line.gpus,
            job: line.job,
        }
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        // jobs are numbered by arrival
        let ties = (self.narrow, self.job).cmp(&(other.narrow, other.job));
        self.main.total_cmp(&other.main).then(ties)
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Rank {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Rank {}
