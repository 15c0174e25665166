//! Who runs where in a round: walks over claims, and the same as a look at everybody.

use super::accounts::Claim;
use super::ask::can;
use super::queues::Pass;
use super::{Choice, Rounds};
use gangline_engine::ClusterView;
use gangline_model::JobId;
use std::collections::BinaryHeap;

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// Everybody, at a boundary.
    Everyone,
    /// Waiting jobs, inside a round.
    Waiting,
}

impl Rounds {
    /// Who runs where on the GPUs that are left: by priority, then whoever has none. `banned` choices (sorted)
    /// are left out.
    pub(super) fn choose(
        &mut self,
        view: &ClusterView<'_>,
        who: Who,
        mut left: Vec<u32>,
        banned: &[Choice],
    ) -> Vec<Choice> {
        if let Some(pairs) = &self.pairs {
            return self.choose_packed(view, pairs, who, left, banned);
        }
        let passes = self.params.zero_pass.passes();
        if self.is_plain {
            return self.choose_plain(view, who, left, banned, passes);
        }
        let mut chosen: Vec<Choice> = Vec::new();
        self.walks += 1;
        let (walk, chosen_in) = (self.walks, &mut self.chosen_in);
        let (accounts, is_active) = (&self.accounts, &self.is_active);
        for &pass in passes {
            for &gpu_type in &self.type_order {
                let free = &mut left[gpu_type.index()];
                let is_old = |claim: &Claim| {
                    !is_active[claim.job.index()]
                        || *claim != accounts.claim(claim.job, gpu_type.index())
                };
                self.queues
                    .walk(gpu_type.index(), pass, free, is_old, |job| {
                        let choice = Choice::alone(job, gpu_type);
                        let is_out = chosen_in[job.index()] == walk
                            || (who == Who::Waiting && view.run(job).is_some())
                            || banned.binary_search(&choice).is_ok();
                        if !is_out {
                            chosen_in[job.index()] = walk;
                            chosen.push(choice);
                        }
                        !is_out
                    });
            }
        }
        chosen
    }

    /// The jobs that are asked, in order.
    pub(super) fn candidates(&self, view: &ClusterView<'_>, who: Who) -> Vec<JobId> {
        match who {
            Who::Everyone => self.active.iter().copied().collect(),
            Who::Waiting => view.waiting().collect(),
        }
    }

    /// The oracle of [`Self::choose`]: every candidate is looked at for every type.
    fn choose_plain(
        &self,
        view: &ClusterView<'_>,
        who: Who,
        mut left: Vec<u32>,
        banned: &[Choice],
        passes: &[Pass],
    ) -> Vec<Choice> {
        let candidates = self.candidates(view, who);
        let mut chosen: Vec<Choice> = Vec::new();
        let mut taken = vec![false; candidates.len()];
        let place = |job: JobId| candidates.binary_search(&job).expect("a candidate");
        for &pass in passes {
            for &gpu_type in &self.type_order {
                let claims = candidates
                    .iter()
                    .zip(&taken)
                    .filter(|&(&job, &is_taken)| {
                        !is_taken && can(&self.places, job, gpu_type.index())
                    })
                    .map(|(&job, _)| self.accounts.claim(job, gpu_type.index()))
                    .filter(|claim| pass.sees(claim));
                let mut queue: BinaryHeap<Claim> = claims.collect();
                let free = &mut left[gpu_type.index()];
                while *free > 0
                    && let Some(Claim { job, .. }) = queue.pop()
                {
                    let gpus = view.jobs().gpus(job);
                    let choice = Choice::alone(job, gpu_type);
                    if gpus <= *free && banned.binary_search(&choice).is_err() {
                        *free -= gpus;
                        taken[place(job)] = true;
                        chosen.push(choice);
                    }
                }
            }
        }
        chosen
    }
}
