//! Lease boundaries. The leases of a job end at start + k L, where L is the length of a lease. It is therefore enough
//! to store their phase, which is the start modulo L.

use gangline_model::{JobId, SimTime};
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

/// Running jobs, grouped by the phase of their leases.
#[derive(Clone, Debug)]
pub(super) struct Leases {
    length: i64,
    /// The lease phase of every job. It is kept after the job ends.
    phase: Vec<i64>,
    /// All running jobs, as pairs of phase and job index.
    all: BTreeSet<(i64, u32)>,
    /// The running jobs whose place is wider than necessary, as pairs of phase and job index.
    loose: BTreeSet<(i64, u32)>,
}

impl Leases {
    pub(super) fn new(length: i64, jobs: usize) -> Self {
        Self {
            length,
            phase: vec![0; jobs],
            all: BTreeSet::new(),
            loose: BTreeSet::new(),
        }
    }

    /// Records that a job gets GPUs and starts its first lease; if `is_aligned`, this lease ends at the next multiple
    /// of L.
    pub(super) fn start(&mut self, job: JobId, now: SimTime, is_aligned: bool) {
        let phase = if is_aligned {
            0
        } else {
            now.0.rem_euclid(self.length)
        };
        self.phase[job.index()] = phase;
        self.all.insert((phase, job.0));
    }

    /// Records that a job has lost its GPUs.
    pub(super) fn end(&mut self, job: JobId) {
        let entry = (self.phase[job.index()], job.0);
        self.all.remove(&entry);
        self.loose.remove(&entry);
    }

    /// Records whether the place of a running job is wider than necessary.
    pub(super) fn set_loose(&mut self, job: JobId, is_loose: bool) {
        let entry = (self.phase[job.index()], job.0);
        if is_loose {
            self.loose.insert(entry);
        } else {
            self.loose.remove(&entry);
        }
    }

    fn set(&self, all_leases: bool) -> &BTreeSet<(i64, u32)> {
        if all_leases { &self.all } else { &self.loose }
    }

    /// Returns the running jobs whose lease ends at an instant: either all of them, or only those whose place is wider
    /// than necessary.
    pub(super) fn ending(&self, now: SimTime, all_leases: bool) -> impl Iterator<Item = JobId> {
        let phase = now.0.rem_euclid(self.length);
        self.set(all_leases)
            .range((phase, 0)..=(phase, u32::MAX))
            .map(|&(_, job)| JobId(job))
    }

    /// Returns the next instant after `now` at which a lease ends.
    pub(super) fn next(&self, now: SimTime, all_leases: bool) -> Option<SimTime> {
        let phase = now.0.rem_euclid(self.length);
        let set = self.set(all_leases);
        let later = set
            .range((Excluded((phase, u32::MAX)), Unbounded))
            .next()
            .map(|&(next, _)| next - phase);
        let around = || set.first().map(|&(next, _)| next - phase + self.length);
        later.or_else(around).map(|wait| SimTime(now.0 + wait))
    }

    /// Returns the running jobs in unspecified order.
    pub(super) fn running(&self) -> impl Iterator<Item = JobId> {
        self.all.iter().map(|&(_, job)| JobId(job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_boundary_goes_round_the_circle() {
        let mut leases = Leases::new(10, 4);
        assert_eq!(leases.next(SimTime(5), true), None);
        leases.start(JobId(0), SimTime(3), false);
        leases.start(JobId(1), SimTime(17), false);
        assert_eq!(leases.next(SimTime(17), true), Some(SimTime(23)));
        assert_eq!(leases.next(SimTime(23), true), Some(SimTime(27)));
        assert_eq!(
            leases.ending(SimTime(43), true).collect::<Vec<_>>(),
            [JobId(0)]
        );
        assert_eq!(leases.next(SimTime(23), false), None);
        leases.set_loose(JobId(0), true);
        assert_eq!(leases.next(SimTime(23), false), Some(SimTime(33)));
        leases.end(JobId(0));
        assert_eq!(leases.next(SimTime(23), false), None);
        leases.start(JobId(2), SimTime(14), true);
        assert_eq!(leases.next(SimTime(17), true), Some(SimTime(20)));
        assert_eq!(leases.next(SimTime(20), true), Some(SimTime(27)));
    }
}
