//! Claims of all active jobs, kept between rounds.
//!
//! There is one heap per GPU type and gang size. A round takes claims out, the greatest first, and puts them back at
//! the end. It never examines claims of a gang size that does not fit. A job that held GPUs gets a new claim. A claim
//! is outdated if its job has a new claim or has ended; outdated claims are dropped when a walk reaches them. A round
//! therefore costs O((chosen + skipped) log n), independent of the rest of the queue. A new allocation changes every
//! claim. It costs only O(n), because claims are sorted only when their jobs are tried.

use super::accounts::Claim;
use crate::kit::ByClass;
use gangline_model::JobId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The claims that a walk considers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    /// Claims of jobs with a share.
    WithShare,
    /// Claims of jobs without a share.
    WithoutShare,
    /// All claims, with and without a share, in one order.
    All,
}

impl Filter {
    pub(super) fn lets(self, claim: &Claim) -> bool {
        self == Self::All || (claim.priority > 0.0) == (self == Self::WithShare)
    }
}

/// Claims, grouped by type and gang size.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Gang sizes of the trace, ascending.
    gangs: Vec<u32>,
    /// Gang size of each job, as an index into `gangs`.
    of_job: Vec<u16>,
    /// The `2 x types x gangs` lines: first those of claims with a priority above 0, then those of claims with priority
    /// 0. In each line, the greatest claim comes first.
    lines: ByClass<Reverse<Claim>>,
    /// Half the number of lines.
    half: usize,
    /// Claims that were offered and not yet put back, in the order of the walk, each with its line.
    out: Vec<(Claim, usize)>,
}

impl Queues {
    pub(super) fn new(sizes: &[u32], types: usize) -> Self {
        let mut gangs = sizes.to_vec();
        gangs.sort_unstable();
        gangs.dedup();
        let at = |size| {
            gangs
                .binary_search(size)
                .expect("every gang size occurs in the trace") as u16
        };
        Self {
            of_job: sizes.iter().map(at).collect(),
            lines: ByClass::new(2 * types * gangs.len()),
            half: types * gangs.len(),
            out: Vec::new(),
            gangs,
        }
    }

    fn line(&self, gpu_type: usize, claim: &Claim) -> usize {
        let own = gpu_type * self.gangs.len() + usize::from(self.of_job[claim.job.index()]);
        if claim.priority > 0.0 {
            own
        } else {
            own + self.half
        }
    }

    /// Adds a claim; an earlier claim of the job on the type becomes outdated.
    pub(super) fn insert(&mut self, gpu_type: usize, claim: Claim) {
        let line = self.line(gpu_type, &claim);
        self.lines.push(line, Reverse(claim));
    }

    /// Replaces all claims with the given claims, each of which comes with its type.
    pub(super) fn refill(&mut self, claims: impl Iterator<Item = (usize, Claim)>) {
        let mut lines = std::mem::take(&mut self.lines);
        lines.refill(claims.map(|(gpu_type, claim)| (self.line(gpu_type, &claim), Reverse(claim))));
        self.lines = lines;
    }

    /// Offers, in order, the claims on a type whose gangs fit. `is_old` returns whether a claim is outdated. `take`
    /// gets a job and the position of its claim among those that are out of the queues; it returns whether the claim is
    /// taken. An offered claim stays out of the queues until [`Self::put_back`]. If a walk is repeated with the GPUs
    /// that were free at some claim, it therefore continues after this claim.
    pub(super) fn walk(
        &mut self,
        gpu_type: usize,
        filter: Filter,
        free: &mut u32,
        is_old: impl Fn(&Claim) -> bool,
        mut take: impl FnMut(JobId, usize) -> bool,
    ) {
        let mut heads = BinaryHeap::new();
        let (sizes, rest) = (self.gangs.len(), self.half);
        let parts = [
            (filter != Filter::WithoutShare, 0),
            (filter != Filter::WithShare, rest),
        ];
        for (_, side) in parts.into_iter().filter(|(is_in, _)| *is_in) {
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
                continue; // Later claims of this line do not fit either.
            }
            if take(claim.job, self.out.len()) {
                *free -= gang;
            }
            let offered = self.lines.pop(line);
            self.out.extend(offered.map(|Reverse(claim)| (claim, line)));
            heads.extend(self.head(line, &is_old).map(|claim| (claim, line)));
        }
    }

    /// Puts all but the first `kept` offered claims back into the queues.
    pub(super) fn put_back(&mut self, kept: usize) {
        for (claim, line) in self.out.drain(kept..) {
            self.lines.push(line, Reverse(claim));
        }
    }

    /// Returns the greatest claim of a line; outdated claims above it are dropped.
    fn head(&mut self, line: usize, is_old: &impl Fn(&Claim) -> bool) -> Option<Claim> {
        let first = self.lines.first_if(line, |claim| !is_old(&claim.0));
        first.map(|claim| claim.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(job: usize, priority: u32) -> Claim {
        Claim {
            priority: f64::from(priority),
            deficit_s: 0.0,
            share: f64::from(priority),
            job: JobId::new(job),
        }
    }

    proptest! {
        /// Claims change between walks, and each walk offers the current claims in the order of a sorted list.
        #[test]
        fn a_walk_equals_one_over_a_sorted_list(
            jobs in prop::collection::vec((1_u32..5, 0_u32..6), 1..40),
            walks in prop::collection::vec((0_u32..30, 0_usize..3, any::<u64>(), 0_usize..40, 0_u32..6, any::<usize>()), 1..12),
        ) {
            let gangs: Vec<u32> = jobs.iter().map(|job| job.0).collect();
            let mut queues = Queues::new(&gangs, 1);
            let mut now: Vec<Claim> = jobs.iter().enumerate().map(|(at, job)| claim(at, job.1)).collect();
            queues.refill(now.iter().map(|claim| (0, *claim)));
            for (mut free, filter, takes, changed, priority, again) in walks {
                if let Some(job) = (changed < now.len()).then_some(changed) {
                    now[job] = claim(job, priority);
                    queues.insert(0, now[job]);
                }
                let filter = [Filter::WithShare, Filter::WithoutShare, Filter::All][filter];
                let taken = |job: JobId| takes >> job.0 & 1 == 1;
                let (mut expected, mut left) = (Vec::new(), free);
                let mut sorted: Vec<&Claim> = now.iter().filter(|claim| filter.lets(claim)).collect();
                sorted.sort_by(|a, b| b.cmp(a));
                for job in sorted.iter().map(|claim| claim.job) {
                    if left > 0 && gangs[job.index()] <= left {
                        expected.push(job);
                        left -= if taken(job) { gangs[job.index()] } else { 0 };
                    }
                }
                let mut found = Vec::new();
                let is_old = |known: &Claim| *known != now[known.job.index()];
                let mut steps = Vec::new();
                queues.walk(0, filter, &mut free, is_old, |job, at| {
                    // A claim that was renewed without a change is a duplicate.
                    let is_new = !found.contains(&job);
                    found.extend(is_new.then_some(job));
                    steps.extend((is_new && taken(job)).then_some((job, at)));
                    is_new && taken(job)
                });
                prop_assert_eq!((&found, free), (&expected, left));
                // After giving up a taken claim, the walk continues as if it had never been taken.
                if let Some(&(given_up, at)) = steps.get(again % steps.len().max(1)) {
                    let kept: u32 = steps.iter().filter(|step| step.1 >= at).map(|step| gangs[step.0.index()]).sum();
                    free += kept;
                    let behind = 1 + sorted.iter().position(|claim| claim.job == given_up).expect("a claim");
                    let (mut expected, mut left) = (Vec::new(), free);
                    for job in sorted[behind..].iter().map(|claim| claim.job) {
                        if left > 0 && gangs[job.index()] <= left {
                            expected.push(job);
                            left -= if taken(job) { gangs[job.index()] } else { 0 };
                        }
                    }
                    found.truncate(1 + found.iter().position(|&job| job == given_up).expect("found"));
                    let first = found.len();
                    queues.put_back(at + 1);
                    queues.walk(0, filter, &mut free, is_old, |job, _| {
                        let is_new = !found.contains(&job);
                        found.extend(is_new.then_some(job));
                        is_new && taken(job)
                    });
                    prop_assert_eq!((&found[first..], free), (&expected[..], left));
                }
                queues.put_back(0);
            }
        }
    }
}
