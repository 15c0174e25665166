//! Which jobs run where in a round: a walk over claims.

use super::accounts::Claim;
use super::{Choice, Rounds};
use gangline_engine::ClusterView;
use gangline_model::JobId;

/// Which jobs are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Candidates {
    /// All active jobs, at a boundary.
    All,
    /// Waiting jobs, inside a round.
    Waiting,
}

impl Rounds {
    /// Which jobs run on the GPUs that are left: by priority, then those without one. `banned` choices (sorted)
    /// are left out.
    pub(super) fn choose(
        &mut self,
        view: &ClusterView<'_>,
        which: Candidates,
        mut left: Vec<u32>,
        banned: &[Choice],
    ) -> Vec<Choice> {
        if let Some(pairs) = &self.pairs {
            return self.choose_packed(view, pairs, which, left, banned);
        }
        let passes = self.params.zero_pass.passes();
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
                            || (which == Candidates::Waiting && view.run(job).is_some())
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
    pub(super) fn candidates(&self, view: &ClusterView<'_>, which: Candidates) -> Vec<JobId> {
        match which {
            Candidates::All => self.active.iter().copied().collect(),
            Candidates::Waiting => view.waiting().collect(),
        }
    }
}
