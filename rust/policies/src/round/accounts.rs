//! Accounts of the time that each job was promised and has received on each GPU type since the last reset. Our own
//! rounds and the rounds of the public simulator both use these accounts.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | `X[m,k]` | `share` | target share of the job's time |
//! | `t[m,k]` | `held` | time for which the job has held GPUs since the reset, including overhead; it starts at R/2 |
//! | `deficit[m,k]` | `deficit_s` | time promised minus time received, over all resets |
//!
//! Times are kept as integers until they are divided, so skipping rounds does not change the results.

use crate::kit::Total;
use gangline_model::JobId;

/// Tables with one entry for each job and type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accounts {
    types: usize,
    half_round_ns: i64,
    share: Vec<f64>,
    held_ns: Vec<i64>,
    deficit_s: Vec<f64>,
    has_shares: Vec<bool>,
}

/// A job's claim to GPUs of a type. The greatest claim comes first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Claim {
    /// `X / t`, see [`priority`].
    pub priority: f64,
    pub deficit_s: f64,
    pub share: f64,
    pub job: JobId,
}

impl Claim {
    /// Returns the sort key of a claim; claims with equal keys are ordered by job.
    #[inline]
    pub(super) fn worth(&self) -> (Total, Total, Total) {
        (
            Total(self.priority),
            Total(self.deficit_s),
            Total(self.share),
        )
    }
}

impl Eq for Claim {}

impl PartialOrd for Claim {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Claim {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let by_worth = self.worth().cmp(&other.worth());
        by_worth.then(other.job.cmp(&self.job))
    }
}

/// Returns the share divided by the time for which GPUs were held. Shares are on a grid of 1e-8, so the result is a
/// quotient of whole numbers, and equal quotients give the same float.
pub(super) fn priority(share: f64, held_ns: i64) -> f64 {
    // Because the share is not negative, this rounds it to the nearest whole number of units.
    let cells = (share * 1e8 + 0.5) as i64;
    cells as f64 / held_ns as f64
}

impl Accounts {
    pub(crate) fn new(jobs: usize, types: usize, half_round_ns: i64) -> Self {
        Self {
            types,
            half_round_ns,
            share: vec![0.0; jobs * types],
            held_ns: vec![0; jobs * types],
            deficit_s: vec![0.0; jobs * types],
            has_shares: vec![false; jobs],
        }
    }

    fn at(&self, job: JobId, gpu_type: usize) -> usize {
        job.index() * self.types + gpu_type
    }

    /// Adds `span_ns` to the time for which a job has held GPUs of a type.
    pub(crate) fn credit(&mut self, job: JobId, gpu_type: usize, span_ns: i64) {
        let at = self.at(job, gpu_type);
        self.held_ns[at] += span_ns;
    }

    /// Returns the number of types that `can` allows and on which the job has a positive share, and the last of these
    /// types.
    pub(super) fn shared_types(&self, job: JobId, can: impl Fn(usize) -> bool) -> (usize, usize) {
        let mut found = (0, usize::MAX);
        for gpu_type in 0..self.types {
            if self.share[self.at(job, gpu_type)] > 0.0 && can(gpu_type) {
                found = (found.0 + 1, gpu_type);
            }
        }
        found
    }

    /// Returns the time in ns for which a job has held GPUs of a type; it starts at half a round.
    pub(crate) fn held_ns(&self, job: JobId, gpu_type: usize) -> i64 {
        self.half_round_ns + self.held_ns[self.at(job, gpu_type)]
    }

    /// Returns whether a job has ever had an allocation.
    pub(crate) fn has_shares(&self, job: JobId) -> bool {
        self.has_shares[job.index()]
    }

    pub(crate) fn claim(&self, job: JobId, gpu_type: usize) -> Claim {
        let at = self.at(job, gpu_type);
        let share = self.share[at];
        Claim {
            priority: priority(share, self.held_ns(job, gpu_type)),
            deficit_s: self.deficit_s[at],
            share,
            job,
        }
    }

    /// Closes the accounts of the active jobs after `elapsed_s` seconds, and opens new accounts with these shares.
    pub(crate) fn reset(&mut self, elapsed_s: f64, jobs: &[JobId], shares: &[f64]) {
        for (&job, row) in jobs.iter().zip(shares.chunks_exact(self.types)) {
            for (gpu_type, &share) in row.iter().enumerate() {
                let at = self.at(job, gpu_type);
                if self.has_shares[job.index()] {
                    let received_s = self.held_ns[at] as f64 / 1e9;
                    self.deficit_s[at] += self.share[at] * elapsed_s - received_s;
                }
                self.held_ns[at] = 0;
                self.share[at] = share + 0.0; // A share of -0 would affect the order of jobs.
            }
            self.has_shares[job.index()] = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Ordering;

    #[test]
    fn claims_start_at_half_a_round_and_fall_with_time_held() {
        let mut accounts = Accounts::new(2, 1, 180_000_000_000);
        accounts.reset(0.0, &[JobId(0), JobId(1)], &[0.5, 0.25]);
        assert!((accounts.claim(JobId(0), 0).priority - 0.5e8 / 180e9).abs() < 1e-15);
        accounts.credit(JobId(0), 0, 360_000_000_000);
        assert!(accounts.claim(JobId(0), 0) < accounts.claim(JobId(1), 0));
    }

    #[test]
    fn a_reset_books_promised_minus_received() {
        let mut accounts = Accounts::new(1, 1, 5);
        accounts.reset(0.0, &[JobId(0)], &[0.5]);
        accounts.credit(JobId(0), 0, 3_000_000_000);
        accounts.reset(10.0, &[JobId(0)], &[1.0]);
        assert!((accounts.claim(JobId(0), 0).deficit_s - 2.0).abs() < 1e-12);
    }

    /// The quotients are 0.07 / 7 s and 0.01 / 1 s. If they were computed in floats, the two quotients would be
    /// 0.010000000000000002 and 0.01.
    #[test]
    fn equal_quotients_tie() {
        let priority = |share, seconds: i64| priority(share, seconds * 1_000_000_000);
        assert_eq!(
            priority(0.07, 7).total_cmp(&priority(0.01, 1)),
            Ordering::Equal
        );
        assert_eq!(
            priority(0.29, 29).total_cmp(&priority(0.03, 3)),
            Ordering::Equal
        );
        assert!(priority(0.070_000_01, 7) > priority(0.01, 1));
    }

    #[test]
    fn equal_claims_go_by_job() {
        let mut accounts = Accounts::new(2, 1, 5);
        accounts.reset(0.0, &[JobId(0), JobId(1)], &[0.5, 0.5]);
        assert!(accounts.claim(JobId(0), 0) > accounts.claim(JobId(1), 0));
    }
}
