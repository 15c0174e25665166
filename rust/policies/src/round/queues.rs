//! Claims of all active jobs, kept between rounds.
//!
//! One heap per GPU type and gang size. A round takes claims from the greatest down and puts them back; a
//! size that does not fit is never looked at, and a job that held GPUs gets a new claim. Old claims, of
//! jobs that got a new one or ended, are dropped when they come up. So a round costs O((chosen + passed
//! over) log n) and never looks at the rest of the queue, and a new allocation, which changes every claim,
//! costs O(n): nobody is put in order who is not asked.

use super::accounts::Claim;
use gangline_model::JobId;
use std::collections::BinaryHeap;

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
    /// `2 x types x gangs`: claims with a priority above 0, then those without one.
    lines: Vec<BinaryHeap<Claim>>,
    /// Claims that a walk has taken out, with their lines.
    out: Vec<(Claim, usize)>,
}

impl Queues {
    pub(super) fn new(sizes: &[u32], types: usize) -> Self {
        let mut gangs = sizes.to_vec();
        gangs.sort_unstable();
        gangs.dedup();
        let at = |size| gangs.binary_search(size).expect("a size of the trace") as u16;
        Self {
            of_job: sizes.iter().map(at).collect(),
            lines: vec![BinaryHeap::new(); 2 * types * gangs.len()],
            out: Vec::new(),
            gangs,
        }
    }

    fn line(&self, gpu_type: usize, claim: &Claim) -> usize {
        let own = gpu_type * self.gangs.len() + usize::from(self.of_job[claim.job.index()]);
        if claim.priority > 0.0 {
            own
        } else {
            own + self.lines.len() / 2
        }
    }

    /// Adds a claim; an earlier one of the job on the type is an old one from now on.
    pub(super) fn insert(&mut self, gpu_type: usize, claim: Claim) {
        let line = self.line(gpu_type, &claim);
        self.lines[line].push(claim);
    }

    /// Starts again from nothing with these claims by type.
    pub(super) fn refill(&mut self, claims: impl Iterator<Item = (usize, Claim)>) {
        // a heap made of a whole list is built in one go
        let emptied = self.lines.iter_mut().map(std::mem::take);
        let mut lists: Vec<Vec<Claim>> = emptied.map(BinaryHeap::into_vec).collect();
        lists.iter_mut().for_each(Vec::clear);
        for (gpu_type, claim) in claims {
            lists[self.line(gpu_type, &claim)].push(claim);
        }
        for (line, list) in self.lines.iter_mut().zip(lists) {
            *line = BinaryHeap::from(list);
        }
    }

    /// Offers the claims on a type in order, as long as their gangs fit; `take` says whether one is taken,
    /// `is_old` which claims are none any more.
    pub(super) fn walk(
        &mut self,
        gpu_type: usize,
        pass: Pass,
        free: &mut u32,
        is_old: impl Fn(&Claim) -> bool,
        mut take: impl FnMut(JobId) -> bool,
    ) {
        let mut heads = BinaryHeap::new();
        let (sizes, rest) = (self.gangs.len(), self.lines.len() / 2);
        let parts = [(pass != Pass::Rest, 0), (pass != Pass::Shared, rest)];
        for (_, side) in parts.into_iter().filter(|(is_seen, _)| *is_seen) {
            let own = side + gpu_type * sizes;
            let fits = self.gangs.iter().take_while(|&gang| gang <= free).count();
            for line in own..own + fits {
                heads.extend(self.head(line, &is_old).map(|claim| (claim, line)));
            }
        }
        while *free > 0
            && let Some((claim, line)) = heads.pop()
        {
            let gang = self.gangs[line % sizes];
            if gang > *free {
                continue; // and so are all behind it
            }
            if take(claim.job) {
                *free -= gang;
            }
            self.out
                .extend(self.lines[line].pop().map(|claim| (claim, line)));
            heads.extend(self.head(line, &is_old).map(|claim| (claim, line)));
        }
        for (claim, line) in self.out.drain(..) {
            self.lines[line].push(claim);
        }
    }

    /// The greatest claim of a line; old ones above it are dropped.
    fn head(&mut self, line: usize, is_old: &impl Fn(&Claim) -> bool) -> Option<Claim> {
        let line = &mut self.lines[line];
        while let Some(claim) = line.peek() {
            if !is_old(claim) {
                return Some(*claim);
            }
            line.pop();
        }
        None
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
        let mut now = [0.1, 0.9, 0.5, 0.0];
        queues.refill((0..4).map(|job| (0, claim(job, now[job as usize]))));
        let walked = |queues: &mut Queues, now: [f64; 4], pass, mut free| {
            let mut seen = Vec::new();
            let is_old = |known: &Claim| *known != claim(known.job.0, now[known.job.index()]);
            queues.walk(0, pass, &mut free, is_old, |job| {
                seen.push(job.0);
                true
            });
            seen
        };
        // twice: what a walk takes out it puts back
        for _ in 0..2 {
            assert_eq!(walked(&mut queues, now, Pass::Shared, 9), [1, 2, 0]);
        }
        assert_eq!(walked(&mut queues, now, Pass::Shared, 3), [2, 0]);
        assert_eq!(walked(&mut queues, now, Pass::All, 4), [1]);
        assert_eq!(walked(&mut queues, now, Pass::Rest, 1), [3]);
        now[2] = 0.05;
        queues.insert(0, claim(2, now[2]));
        assert_eq!(walked(&mut queues, now, Pass::All, 3), [0, 2, 3]);
    }
}
