//! Which jobs run where in a round: a walk over claims.

use super::accounts::Claim;
use super::{Candidates, Choice, Rounds};
use gangline_engine::ClusterView;
use gangline_model::JobId;

/// The choices of a round while it is made. The walk that made them can be taken up again at any of them, so that a
/// choice without a place costs what lies behind it, not a round.
#[derive(Debug)]
pub(super) struct Walk {
    which: Candidates,
    /// GPUs of each type that no choice has.
    left: Vec<u32>,
    /// Choices in the order of the walk.
    steps: Vec<Step>,
    /// Pass and type that come next; a pass goes over all types.
    stage: usize,
    /// Choices that have no place, sorted.
    refused: Vec<Choice>,
}

#[derive(Debug)]
struct Step {
    choice: Choice,
    gpus: u32,
    stage: usize,
    /// Claims that were offered before it and are out of the queues.
    out: usize,
}

impl Walk {
    pub(super) fn new(which: Candidates, left: Vec<u32>) -> Self {
        Self {
            which,
            left,
            steps: Vec::new(),
            stage: 0,
            refused: Vec::new(),
        }
    }

    pub(super) fn is_refused(&self, choice: Choice) -> bool {
        self.refused.binary_search(&choice).is_ok()
    }
}

impl Rounds {
    /// Which jobs run on the GPUs that are left: by priority, then those without one. Refused choices are left out.
    pub(super) fn choose(&mut self, view: &ClusterView<'_>, walk: &mut Walk) -> Vec<Choice> {
        if let Some(pairs) = &self.pairs {
            return self.choose_packed(view, pairs, walk.which, walk.left.clone(), |choice| {
                walk.is_refused(choice)
            });
        }
        let passes = self.params.zero_pass.passes();
        let types = self.type_order.len();
        while walk.stage < passes.len() * types {
            let (filter, gpu_type) = (
                passes[walk.stage / types],
                self.type_order[walk.stage % types],
            );
            let (accounts, is_active) = (&self.accounts, &self.is_active);
            let is_old = |claim: &Claim| {
                !is_active[claim.job.index()]
                    || *claim != accounts.claim(claim.job, gpu_type.index())
            };
            let mut free = walk.left[gpu_type.index()];
            let queues = &mut self.queues;
            queues.walk(gpu_type.index(), filter, &mut free, is_old, |job, out| {
                let choice = Choice::alone(job, gpu_type);
                let is_open = !self.is_chosen[job.index()]
                    && (walk.which == Candidates::All || view.run(job).is_none())
                    && !walk.is_refused(choice);
                if is_open {
                    self.is_chosen[job.index()] = true;
                    walk.steps.push(Step {
                        choice,
                        gpus: view.jobs().gpus(job),
                        stage: walk.stage,
                        out,
                    });
                }
                is_open
            });
            walk.left[gpu_type.index()] = free;
            walk.stage += 1;
        }
        walk.steps.iter().map(|step| step.choice).collect()
    }

    /// A choice has no place: the walk will go on behind it, as if it had not been made.
    pub(super) fn refuse(&mut self, walk: &mut Walk, choice: Choice) {
        let place = walk.refused.partition_point(|other| *other < choice);
        walk.refused.insert(place, choice);
        // pairs are chosen anew
        let at = walk.steps.iter().position(|step| step.choice == choice);
        if let Some(at) = at {
            let step = &walk.steps[at];
            walk.stage = step.stage;
            self.queues.put_back(step.out + 1);
            self.give_up(walk, at);
        }
    }

    /// The choices stand: the queues get back what they offered.
    pub(super) fn end_walk(&mut self, mut walk: Walk) {
        self.queues.put_back(0);
        self.give_up(&mut walk, 0);
    }

    fn give_up(&mut self, walk: &mut Walk, from: usize) {
        for step in walk.steps.drain(from..) {
            walk.left[step.choice.gpu_type.index()] += step.gpus;
            self.is_chosen[step.choice.job.index()] = false;
        }
    }

    /// The jobs that are asked, in order.
    pub(super) fn candidates(&self, view: &ClusterView<'_>, which: Candidates) -> Vec<JobId> {
        match which {
            Candidates::All => self.active.iter().copied().collect(),
            Candidates::Waiting => view.waiting().collect(),
        }
    }
}
