//! Chooses the jobs and types of a round in a walk over claims.

use super::accounts::Claim;
use super::pairs::{Line, Pairs};
use super::queues::Filter;
use super::{Candidates, Choice, Holder, Rounds, passes};
use crate::kit::GpuPick;
use gangline_engine::{ClusterView, Mark, Plan};
use gangline_model::{GpuSet, GpuTypeId, JobId, SimTime};
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, BinaryHeap};

/// The choices of a round in progress. The walk can be resumed at any choice. A choice that has no place therefore
/// costs only the rest of the walk, not a whole round.
#[derive(Debug)]
pub(super) struct Walk {
    which: Candidates,
    /// Number of GPUs of each type that are not assigned to a choice.
    left: Vec<u32>,
    /// Choices in the order of the walk.
    steps: Vec<Step>,
    /// Index of the next combination of pass and type; each pass goes through all types.
    stage: usize,
    /// Choices that have no place, in sorted order.
    refused: Vec<Choice>,
}

#[derive(Debug)]
struct Step {
    choice: Choice,
    gpus: u32,
    stage: usize,
    /// Number of claims that were offered before this choice and are out of the queues.
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
    /// Chooses jobs for the remaining GPUs: in each of the [`passes`] and on each type, jobs are chosen by priority.
    /// Choices that were refused are left out.
    pub(super) fn choose(&mut self, view: &ClusterView<'_>, walk: &mut Walk) -> Vec<Choice> {
        if let Some(pairs) = &self.pairs {
            return self.choose_packed(view, pairs, walk.which, walk.left.clone(), |choice| {
                walk.is_refused(choice)
            });
        }
        let passes = passes(self.params.zero_pass);
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

    /// Records that a choice has no place; the walk continues as if this choice had not been made.
    pub(super) fn refuse(&mut self, walk: &mut Walk, choice: Choice) {
        let place = walk.refused.partition_point(|other| *other < choice);
        walk.refused.insert(place, choice);
        // Pairs are not among the steps, because they are chosen anew each time.
        let at = walk.steps.iter().position(|step| step.choice == choice);
        if let Some(at) = at {
            let step = &walk.steps[at];
            walk.stage = step.stage;
            self.queues.put_back(step.out + 1);
            self.give_up(walk, at);
        }
    }

    /// Ends the walk: the queues get back the claims that they offered, and no job counts as chosen any longer.
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

    /// Returns the jobs that the walk tries, in order.
    pub(super) fn candidates(&self, view: &ClusterView<'_>, which: Candidates) -> Vec<JobId> {
        match which {
            Candidates::All => self.active.iter().copied().collect(),
            Candidates::Waiting => view.waiting().collect(),
        }
    }
}

// The following code is for policies that let two jobs share GPUs. For each round, it chooses single jobs, pairs of
// jobs, and their types.
//
// All active jobs are considered in each round. The cost of O(active log active) is small compared with the linear
// programs that packing needs.

/// A proposal: one job, or the next two jobs of a line. The greatest proposal comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Proposal {
    claim: Claim,
    first: JobId,
    /// The second job of a pair, and its line.
    second: Option<(JobId, usize)>,
}

impl PartialOrd for Proposal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Proposal {
    fn cmp(&self, other: &Self) -> Ordering {
        // If claims are equal, single jobs come before pairs, and remaining ties are broken by job.
        let ties = |one: &Self| (one.second.is_some(), one.first, one.second);
        let by_worth = self.claim.worth().cmp(&other.claim.worth());
        by_worth.then_with(|| ties(other).cmp(&ties(self)))
    }
}

impl Proposal {
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
    /// Works like `choose`, but may also choose pairs.
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
        for &filter in passes(self.params.zero_pass) {
            for &gpu_type in &self.type_order {
                let open = candidates.iter().copied();
                let open = open.filter(|job| !taken.contains(job)).collect::<Vec<_>>();
                let mut lines = match filter {
                    Filter::WithoutShare => Vec::new(),
                    Filter::WithShare | Filter::All => pairs.lines(open.iter().copied(), gpu_type),
                };
                let mut queue = self.queue_of(&open, filter, gpu_type);
                for (at, line) in lines.iter_mut().enumerate() {
                    queue.extend(Proposal::of_line(line, at, &taken));
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
                    // A line is done for this round if its first two jobs have no room or no place.
                    if let Some((_, at)) = entry.second.filter(|_| goes || is_late) {
                        queue.extend(Proposal::of_line(&mut lines[at], at, &taken));
                    }
                }
            }
        }
        chosen
    }

    fn queue_of(
        &self,
        open: &[JobId],
        filter: Filter,
        gpu_type: GpuTypeId,
    ) -> BinaryHeap<Proposal> {
        let may = |job: &JobId| self.places.has_home(*job, gpu_type);
        let claims = open.iter().copied().filter(may);
        claims
            .map(|job| self.accounts.claim(job, gpu_type.index()))
            .filter(|claim| filter.lets(claim))
            .map(Proposal::alone)
            .collect()
    }

    /// Returns true if every job runs in the only way in which it has a share, and if no two jobs could swap partners.
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

// The following code places the choices and writes the plan.

/// A choice and its GPUs, and the state of the draft before the choice took them.
struct Placed {
    choice: Choice,
    gpus: GpuSet,
    before: Mark,
}

impl Rounds {
    /// Chooses jobs and places them until every choice has a place. The choices and places before a refused choice are
    /// kept.
    pub(super) fn fill(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        which: Candidates,
        left: Vec<u32>,
    ) -> Vec<(Choice, GpuSet)> {
        let mut walk = Walk::new(which, left);
        let mut placed: Vec<Placed> = Vec::new();
        loop {
            let mut chosen = self.choose(view, &mut walk);
            chosen.sort_by_key(|choice| {
                let gpus = view.jobs().gpus(choice.job);
                (choice.gpu_type, Reverse(gpus), choice.job)
            });
            let both = placed.iter().zip(&chosen);
            let same = both.take_while(|(own, choice)| own.choice == **choice);
            let same = same.count();
            if let Some(other) = placed.get(same) {
                plan.rollback(other.before);
                placed.truncate(same);
            }
            match self.place(view, plan, &chosen[same..], &mut placed) {
                Ok(()) => break,
                Err(choice) => self.refuse(&mut walk, choice),
            }
        }
        self.end_walk(walk);
        let placed = placed.into_iter().map(|own| (own.choice, own.gpus));
        placed.collect()
    }

    /// Places choices type by type, with the largest gangs first. A job keeps its GPUs if it can. Returns the first
    /// choice without a place as the error.
    fn place(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        chosen: &[Choice],
        placed: &mut Vec<Placed>,
    ) -> Result<(), Choice> {
        for &choice in chosen {
            let Choice { job, gpu_type, .. } = choice;
            let own = choice.jobs().filter_map(|job| Some(view.run(job)?.gpus()));
            let kept = own.into_iter().find(|gpus| {
                let server = gpus.by_server()[0].server;
                view.cluster().server(server).gpu_type == gpu_type && plan.free().is_free(gpus)
            });
            let gpus = if let Some(gpus) = kept {
                gpus.clone()
            } else {
                let class = self.places.class_of(job);
                let found = self.places.place_on(plan, class, job, gpu_type);
                found.ok_or(choice)?
            };
            let before = plan.mark();
            plan.take(&gpus);
            placed.push(Placed {
                choice,
                gpus,
                before,
            });
        }
        Ok(())
    }

    /// Writes the plan of a whole round. Returns whether all jobs run where they ran before.
    pub(super) fn write(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        placed: Vec<(Choice, GpuSet)>,
    ) -> bool {
        let now = view.now();
        let mut is_same = true;
        let mut stays: Vec<JobId> = placed
            .iter()
            .flat_map(|(choice, _)| choice.jobs())
            .collect();
        stays.sort_unstable();
        for job in view.running() {
            if stays.binary_search(&job).is_err() {
                is_same = false;
                plan.preempt(job);
            }
        }
        self.holders.clear();
        for (choice, gpus) in placed {
            for job in choice.jobs() {
                match view.run(job) {
                    Some(run) if *run.gpus() == gpus => {}
                    Some(_) => {
                        is_same = false;
                        let gpus = gpus.clone();
                        plan.move_to(job, gpus);
                    }
                    None => {
                        is_same = false;
                        plan.start(job, gpus.clone());
                    }
                }
            }
            self.hold(choice, now);
        }
        is_same
    }

    /// Assigns GPUs that became free during a round to waiting jobs.
    pub(super) fn backfill(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) {
        let left: Vec<u32> = super::ask::types(view).map(|t| view.gpus_free(t)).collect();
        for (choice, gpus) in self.fill(view, plan, Candidates::Waiting, left) {
            for job in choice.jobs() {
                plan.start(job, gpus.clone());
            }
            self.hold(choice, view.now());
        }
    }

    /// Starts counting time for the jobs of a choice.
    fn hold(&mut self, choice: Choice, now: SimTime) {
        let group = |job| self.pairs.as_ref().map(|pairs| pairs.group(job));
        let holder = |job, beside| Holder {
            job,
            gpu_type: choice.gpu_type,
            beside,
            since: now,
        };
        let first = holder(choice.job, choice.partner.and_then(group));
        let second = choice.partner.map(|job| holder(job, group(choice.job)));
        self.holders.push(first);
        self.holders.extend(second);
    }

    /// Returns the shares of a policy that never stops a job. A running job gets all of its time on its type. Waiting
    /// jobs, in order of arrival up to the first job without a place, get all of their time on the type chosen for
    /// them.
    pub(super) fn first_come(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        pick: GpuPick,
    ) -> Vec<f64> {
        let types = view.cluster().gpu_types().len();
        let mut shares = vec![0.0; self.active.len() * types];
        let mark = plan.mark();
        let mut is_blocked = false;
        let active: Vec<JobId> = self.active.iter().copied().collect();
        for (job, row) in active.into_iter().zip(shares.chunks_exact_mut(types)) {
            let own = if let Some(run) = view.run(job) {
                Some(run.gpus().clone())
            } else if is_blocked {
                None
            } else {
                let class = self.places.class_of(job);
                let found = pick.place(view, plan, &mut self.places, class, job);
                is_blocked = found.is_none();
                if let Some(gpus) = &found {
                    plan.take(gpus);
                }
                found
            };
            if let Some(gpus) = own {
                let gpu_type = view.cluster().server(gpus.by_server()[0].server).gpu_type;
                row[gpu_type.index()] = 1.0;
            }
        }
        plan.rollback(mark);
        shares
    }
}
