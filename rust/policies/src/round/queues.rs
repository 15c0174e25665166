//! Claims of all active jobs in order, kept between rounds.
//!
//! One ordered set per GPU type and gang size. A round walks them from the greatest claim down; a size that
//! no longer fits is dropped as a whole, and only a job that held GPUs is put elsewhere. So a round costs
//! O((chosen + passed over) log n) and never looks at the rest of the queue. Only a new allocation, which
//! costs far more, orders everybody again.

use super::accounts::Claim;
use gangline_model::JobId;
use std::collections::{BTreeSet, BinaryHeap};

/// Which claims a walk sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// Those of jobs with a share.
    Shared,
    /// Those of jobs without one.
    Rest,
    /// All in one order.
    All,
}

impl Pass {
    pub(super) fn sees(self, claim: &Claim) -> bool {
        self == Self::All || (claim.priority > 0.0) == (self == Self::Shared)
    }
}

/// Claims by type and gang size.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Gang sizes of the trace, ascending.
    gangs: Vec<u32>,
    /// Size of each job, as a place in `gangs`.
    of_job: Vec<u16>,
    /// `types x gangs`, claims with a priority above 0.
    shared: Vec<BTreeSet<Claim>>,
    /// The same, claims without one.
    rest: Vec<BTreeSet<Claim>>,
}

impl Queues {
    pub(super) fn new(sizes: &[u32], types: usize) -> Self {
        let mut gangs = sizes.to_vec();
        gangs.sort_unstable();
        gangs.dedup();
        let at = |size| gangs.binary_search(size).expect("a size of the trace") as u16;
        let of_job = sizes.iter().map(at).collect();
        let sets = vec![BTreeSet::new(); types * gangs.len()];
        Self {
            of_job,
            shared: sets.clone(),
            rest: sets,
            gangs,
        }
    }

    fn set(&mut self, gpu_type: usize, claim: &Claim) -> &mut BTreeSet<Claim> {
        let at = gpu_type * self.gangs.len() + usize::from(self.of_job[claim.job.index()]);
        if claim.priority > 0.0 {
            &mut self.shared[at]
        } else {
            &mut self.rest[at]
        }
    }

    pub(super) fn insert(&mut self, gpu_type: usize, claim: Claim) {
        self.set(gpu_type, &claim).insert(claim);
    }

    pub(super) fn remove(&mut self, gpu_type: usize, claim: &Claim) {
        let was_there = self.set(gpu_type, claim).remove(claim);
        debug_assert!(was_there, "every claim is kept as it is: {claim:?}");
    }

    /// Starts again from nothing with these claims by type.
    pub(super) fn refill(&mut self, claims: impl Iterator<Item = (usize, Claim)>) {
        let mut lists = [
            vec![Vec::new(); self.shared.len()],
            vec![Vec::new(); self.rest.len()],
        ];
        for (gpu_type, claim) in claims {
            let at = gpu_type * self.gangs.len() + usize::from(self.of_job[claim.job.index()]);
            lists[usize::from(claim.priority <= 0.0)][at].push(claim);
        }
        // a set made of a whole list is built in one go
        let [shared, rest] = lists.map(|sets| sets.into_iter().map(BTreeSet::from_iter).collect());
        (self.shared, self.rest) = (shared, rest);
    }

    /// Offers the claims on a type in order, as long as their gangs fit; `take` says whether one is taken.
    pub(super) fn walk(
        &self,
        gpu_type: usize,
        pass: Pass,
        free: &mut u32,
        mut take: impl FnMut(JobId) -> bool,
    ) {
        let own = gpu_type * self.gangs.len();
        let sets = [
            (pass != Pass::Rest).then_some(&self.shared),
            (pass != Pass::Shared).then_some(&self.rest),
        ];
        let mut lines = Vec::new();
        let mut heads = BinaryHeap::new();
        for sets in sets.into_iter().flatten() {
            for (at, &gang) in self.gangs.iter().enumerate() {
                let mut line = sets[own + at].iter().rev();
                if let Some(&head) = line.next() {
                    heads.push((head, lines.len()));
                    lines.push((gang, line));
                }
            }
        }
        while *free > 0
            && let Some((claim, at)) = heads.pop()
        {
            let (gang, line) = &mut lines[at];
            if *gang > *free {
                continue; // and so are all behind it
            }
            if take(claim.job) {
                *free -= *gang;
            }
            if let Some(&next) = line.next() {
                heads.push((next, at));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(job: u32, priority: f64) -> Claim {
        Claim {
            priority,
            deficit_s: 0.0,
            share: priority,
            job: JobId(job),
        }
    }

    #[test]
    fn a_walk_goes_by_claim_and_passes_over_what_does_not_fit() {
        let mut queues = Queues::new(&[1, 4, 1, 1], 1);
        let claims = [0.1, 0.9, 0.5, 0.0];
        queues.refill((0..4).map(|job| (0, claim(job, claims[job as usize]))));
        let walked = |queues: &Queues, pass, mut free| {
            let mut seen = Vec::new();
            queues.walk(0, pass, &mut free, |job| {
                seen.push(job.0);
                true
            });
            seen
        };
        assert_eq!(walked(&queues, Pass::Shared, 9), [1, 2, 0]);
        assert_eq!(walked(&queues, Pass::Shared, 3), [2, 0]);
        assert_eq!(walked(&queues, Pass::All, 4), [1]);
        assert_eq!(walked(&queues, Pass::Rest, 1), [3]);
        queues.remove(0, &claim(2, 0.5));
        queues.insert(0, claim(2, 0.05));
        assert_eq!(walked(&queues, Pass::All, 3), [0, 2, 3]);
    }
}
