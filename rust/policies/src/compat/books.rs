//! What the public simulator books per job and type: shares, time, deficits. Integers until divided.

use gangline_model::{GpuTypeId, JobId, SimSpan};
use std::cmp::Ordering;

/// Priority of a job whose type has no time booked yet, per unit of share [code].
const UNTOUCHED: f64 = 1e9;

/// Tables by job and type.
#[derive(Clone, Debug, Default)]
pub(super) struct Books {
    types: usize,
    half_ns: i64,
    share: Vec<f64>,
    held_ns: Vec<i64>,
    deficit_s: Vec<f64>,
    has_shares: Vec<bool>,
    booked_ns: Vec<i64>,
}

/// Claim of a job to a type; the greatest goes first, equal ones in order of admission.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub job: JobId,
    pub priority: f64,
    deficit_s: f64,
    share: f64,
}

impl Claim {
    pub(super) fn cmp(&self, other: &Self) -> Ordering {
        self.priority
            .total_cmp(&other.priority)
            .then(self.deficit_s.total_cmp(&other.deficit_s))
            .then(self.share.total_cmp(&other.share))
    }
}

impl Books {
    pub(super) fn new(jobs: usize, types: usize, round_s: f64) -> Self {
        Self {
            types,
            half_ns: (round_s / 2.0 * 1e9).round() as i64,
            share: vec![0.0; jobs * types],
            held_ns: vec![0; jobs * types],
            deficit_s: vec![0.0; jobs * types],
            has_shares: vec![false; jobs],
            booked_ns: vec![0; types],
        }
    }

    fn row(&self, job: JobId) -> std::ops::Range<usize> {
        job.index() * self.types..(job.index() + 1) * self.types
    }

    /// A new job; the sums of the types do not know it before the next reset.
    pub(super) fn admit(&mut self, job: JobId) {
        let row = self.row(job);
        self.held_ns[row].fill(self.half_ns);
    }

    pub(super) fn credit(&mut self, job: JobId, gpu_type: GpuTypeId, span: SimSpan) {
        let at = self.row(job).start + gpu_type.index();
        self.held_ns[at] += span.0;
        self.booked_ns[gpu_type.index()] += span.0;
    }

    /// Closes the books: deficits grow by what was promised and not received.
    pub(super) fn reset(&mut self, active: &[JobId], elapsed_s: f64) {
        for &job in active {
            for at in self.row(job) {
                if self.has_shares[job.index()] {
                    let received_s = (self.held_ns[at] - self.half_ns) as f64 / 1e9;
                    self.deficit_s[at] += self.share[at] * elapsed_s - received_s;
                }
                self.held_ns[at] = self.half_ns;
            }
        }
        self.booked_ns.fill(self.half_ns * active.len() as i64);
    }

    /// New shares.
    pub(super) fn promise(&mut self, jobs: &[JobId], shares: &[f64]) {
        for (&job, own) in jobs.iter().zip(shares.chunks_exact(self.types)) {
            let row = self.row(job);
            self.share[row].copy_from_slice(own);
            self.has_shares[job.index()] = true;
        }
    }

    pub(super) fn has_shares(&self, job: JobId) -> bool {
        self.has_shares[job.index()]
    }

    pub(super) fn claim(&self, job: JobId, gpu_type: GpuTypeId) -> Claim {
        let at = self.row(job).start + gpu_type.index();
        let share = self.share[at];
        let part = self.held_ns[at] as f64 / self.booked_ns[gpu_type.index()] as f64;
        // a job before the first reset has shares of 0
        let priority = match part {
            _ if share <= 0.0 => 0.0,
            part if part > 0.0 => share / part,
            _ => share * UNTOUCHED,
        };
        Claim {
            job,
            priority,
            deficit_s: self.deficit_s[at],
            share,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_share_over_part_of_the_time_of_its_type() {
        let (one, other) = (JobId(0), JobId(1));
        let mut books = Books::new(2, 1, 360.0);
        books.admit(one);
        books.admit(other);
        assert!(
            books.claim(one, GpuTypeId(0)).priority <= 0.0,
            "no shares yet"
        );
        books.reset(&[one, other], 0.0);
        books.promise(&[one, other], &[0.5, 0.25]);
        // 180 s of 360 each
        assert!((books.claim(one, GpuTypeId(0)).priority - 1.0).abs() < 1e-12);
        books.credit(one, GpuTypeId(0), SimSpan(360_000_000_000));
        // 540 of 720, and 180 of 720
        assert!((books.claim(one, GpuTypeId(0)).priority - 2.0 / 3.0).abs() < 1e-12);
        assert!((books.claim(other, GpuTypeId(0)).priority - 1.0).abs() < 1e-12);
        // promised 0.5 x 360 s, received 360 s
        books.reset(&[one, other], 360.0);
        books.promise(&[one, other], &[0.5, 0.5]);
        let claim = books.claim(one, GpuTypeId(0));
        assert!((claim.deficit_s + 180.0).abs() < 1e-9);
        assert_eq!(claim.cmp(&books.claim(other, GpuTypeId(0))), Ordering::Less);
    }
}
