//! The waiting jobs of one demand class, ordered both by priority and by age.
//!
//! To find the first job that has waited long enough, a query walks over the jobs in order of priority. The order by
//! age shows at once whether any job has waited long enough; if none has, there is no walk.

use gangline_model::JobId;
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

/// Rank of a job among the candidates of a decision; the lowest comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// Mean locality factor so far, in units of 10^-12; 0 before the first run.
    pub(super) score: u64,
    /// Instant at which the job began to wait, in ns.
    pub(super) since: i64,
    pub(super) job: u32,
}

impl Rank {
    pub(super) fn job(self) -> JobId {
        JobId(self.job)
    }
}

/// The waiting jobs of a class.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    ranks: BTreeSet<Rank>,
    ages: BTreeSet<(i64, u32)>,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    pub(super) fn insert(&mut self, rank: Rank) {
        self.ranks.insert(rank);
        self.ages.insert((rank.since, rank.job));
    }

    pub(super) fn remove(&mut self, rank: Rank) {
        self.ranks.remove(&rank);
        self.ages.remove(&(rank.since, rank.job));
    }

    /// Returns the highest-ranked job that has been waiting since `bound` or earlier.
    pub(super) fn first_since(&self, bound: i64) -> Option<Rank> {
        let &(oldest, _) = self.ages.first()?;
        if oldest > bound {
            return None;
        }
        self.ranks.iter().find(|rank| rank.since <= bound).copied()
    }

    /// Returns the earliest instant after `bound` at which a job in the queue began to wait.
    pub(super) fn next_since(&self, bound: i64) -> Option<i64> {
        let after = Excluded((bound, u32::MAX));
        self.ages
            .range((after, Unbounded))
            .next()
            .map(|&(since, _)| since)
    }
}
