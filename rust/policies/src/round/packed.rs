//! Which jobs run where, alone or in pairs, in a round of a policy that lets two jobs share GPUs.
//!
//! All active jobs are looked at in each round: O(active log active), little compared with the programs that
//! packing needs.

use super::accounts::Claim;
use super::pairs::{Line, Pairs};
use super::queues::Filter;
use super::{Candidates, Choice, Rounds};
use gangline_engine::ClusterView;
use gangline_model::{GpuSet, GpuTypeId, JobId};
use std::cmp::Ordering;
use std::collections::{BTreeSet, BinaryHeap};

/// One job, or the next two jobs of a line; the greatest goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    claim: Claim,
    first: JobId,
    /// The second job and its line.
    second: Option<(JobId, usize)>,
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        let (ours, theirs) = (&self.claim, &other.claim);
        ours.priority
            .total_cmp(&theirs.priority)
            .then(ours.deficit_s.total_cmp(&theirs.deficit_s))
            .then(ours.share.total_cmp(&theirs.share))
            // alone before two, then by job
            .then(other.second.is_some().cmp(&self.second.is_some()))
            .then(other.first.cmp(&self.first))
            .then(other.second.cmp(&self.second))
    }
}

impl Entry {
    fn alone(claim: Claim) -> Self {
        Self {
            claim,
            first: claim.job,
            second: None,
        }
    }

    fn of_line(line: &mut Line, at: usize, taken: &BTreeSet<JobId>) -> Option<Self> {
        let (claim, other) = line.head(taken)?;
        Some(Self {
            claim,
            first: claim.job.min(other),
            second: Some((claim.job.max(other), at)),
        })
    }

    fn jobs(&self) -> impl Iterator<Item = JobId> + use<> {
        let second = self.second.map(|(job, _)| job);
        [Some(self.first), second].into_iter().flatten()
    }
}

impl Rounds {
    /// As `choose`, with pairs among the choices.
    pub(super) fn choose_packed(
        &self,
        view: &ClusterView<'_>,
        pairs: &Pairs,
        which: Candidates,
        mut left: Vec<u32>,
        is_refused: impl Fn(Choice) -> bool,
    ) -> Vec<Choice> {
        let candidates = self.candidates(view, which);
        let (mut chosen, mut taken) = (Vec::new(), BTreeSet::new());
        for &filter in self.params.zero_pass.passes() {
            for &gpu_type in &self.type_order {
                let open = candidates.iter().copied();
                let open = open.filter(|job| !taken.contains(job)).collect::<Vec<_>>();
                let mut lines = match filter {
                    Filter::WithoutShare => Vec::new(),
                    Filter::WithShare | Filter::All => pairs.lines(open.iter().copied(), gpu_type),
                };
                let mut queue = self.queue_of(&open, filter, gpu_type);
                for (at, line) in lines.iter_mut().enumerate() {
                    queue.extend(Entry::of_line(line, at, &taken));
                }
                let free = &mut left[gpu_type.index()];
                while *free > 0
                    && let Some(entry) = queue.pop()
                {
                    let choice = Choice {
                        job: entry.first,
                        partner: entry.second.map(|(job, _)| job),
                        gpu_type,
                    };
                    let gang = view.jobs().gpus(entry.first);
                    let is_late = entry.jobs().any(|job| taken.contains(&job));
                    let goes = !is_late && gang <= *free && !is_refused(choice);
                    if goes {
                        *free -= gang;
                        taken.extend(entry.jobs());
                        chosen.push(choice);
                    }
                    // a line whose first two have no room or no place is left for this round
                    if let Some((_, at)) = entry.second.filter(|_| goes || is_late) {
                        queue.extend(Entry::of_line(&mut lines[at], at, &taken));
                    }
                }
            }
        }
        chosen
    }

    fn queue_of(&self, open: &[JobId], filter: Filter, gpu_type: GpuTypeId) -> BinaryHeap<Entry> {
        let may = |job: &JobId| self.places.has_home(*job, gpu_type);
        let claims = open.iter().copied().filter(may);
        claims
            .map(|job| self.accounts.claim(job, gpu_type.index()))
            .filter(|claim| filter.lets(claim))
            .map(Entry::alone)
            .collect()
    }

    /// Whether every job runs in the only way in which it has a share, and no jobs could swap partners.
    pub(super) fn are_at_home(&self, placed: &[(Choice, GpuSet)]) -> bool {
        let mut lines = BTreeSet::new();
        placed.iter().all(|(choice, _)| {
            let alone = |job: JobId| {
                let can = |at: usize| self.places.has_home(job, GpuTypeId::new(at));
                self.accounts.shared_types(job, can)
            };
            let pairs_of = |job| self.pairs.as_ref().map_or(0, |pairs| pairs.pairs_of(job));
            if let (Some(partner), Some(pairs)) = (choice.partner, &self.pairs) {
                let both = [choice.job, partner];
                let mut groups = both.map(|job| pairs.group(job));
                groups.sort_unstable();
                let is_only = |job| alone(job).0 == 0 && pairs_of(job) == 1;
                both.into_iter().all(is_only) && lines.insert((groups, choice.gpu_type))
            } else {
                let home = (1, choice.gpu_type.index());
                alone(choice.job) == home && pairs_of(choice.job) == 0
            }
        })
    }
}
