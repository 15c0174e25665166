//! Rounds: shares of time become placements.
//!
//! At each boundary every job has, per GPU type, a priority: its target share over the time it has held
//! GPUs there. Types are served in order, jobs by priority; a job uses one type per round. What has no
//! share is served last. Whoever can keeps its GPUs. A new allocation is asked for when the set of jobs or
//! the capacity changed. Must not know who allocates. Costs O(active x types) per round: one heap per
//! type, of which only what is looked at is sorted.

mod accounts;

use crate::class::Places;
use crate::lp::{Allocator, Ask};
use crate::place::PlacementParams;
use accounts::{Accounts, Claim};
use gangline_engine::{Changes, ClusterView, Knowledge, Next, Plan, Policy, PolicyError, WakeOn};
use gangline_model::{Action, GpuSet, GpuTypeId, JobId, SimSpan, SimTime};
use std::collections::{BTreeSet, BinaryHeap};

/// Parameters of the mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundParams {
    /// Length of a round.
    pub round: SimSpan,
    /// Least time between two allocations.
    pub min_solve_interval: SimSpan,
    /// Whether jobs without a share may use what is left.
    pub serves_all: bool,
    /// Whether GPUs freed inside a round are given away at once.
    pub backfills: bool,
    /// What the allocator may know.
    pub knowledge: Knowledge,
}

/// A job with GPUs, since the last time its use was counted.
#[derive(Clone, Copy, Debug)]
struct Holder {
    job: JobId,
    gpu_type: GpuTypeId,
    since: SimTime,
}

/// A policy in rounds.
pub struct Rounds {
    params: RoundParams,
    places: Places,
    allocator: Box<dyn Allocator>,
    accounts: Accounts,
    active: BTreeSet<JobId>,
    holders: Vec<Holder>,
    is_stale: bool,
    solved_at: Option<SimTime>,
    /// Active jobs and GPUs of each type at the last allocation.
    solved_for: (Vec<JobId>, Vec<u32>),
    type_order: Vec<GpuTypeId>,
    solves: u64,
}

impl std::fmt::Debug for Rounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rounds")
            .field("params", &self.params)
            .finish_non_exhaustive()
    }
}

/// A job and the type it shall use.
type Choice = (JobId, GpuTypeId);

impl Rounds {
    /// A policy with a placement rule and an allocator.
    pub fn new(
        params: RoundParams,
        placement: PlacementParams,
        allocator: Box<dyn Allocator>,
    ) -> Self {
        Self {
            params,
            places: Places::new(placement),
            allocator,
            accounts: Accounts::default(),
            active: BTreeSet::new(),
            holders: Vec::new(),
            is_stale: false,
            solved_at: None,
            solved_for: (Vec::new(), Vec::new()),
            type_order: Vec::new(),
            solves: 0,
        }
    }

    fn note(&mut self, view: &ClusterView<'_>, changes: &Changes) {
        let now = view.now();
        for holder in &mut self.holders {
            let span = now.0 - holder.since.0;
            let gpu_type = holder.gpu_type.index();
            self.accounts.credit(holder.job, gpu_type, span);
            holder.since = now;
        }
        self.active.extend(&changes.arrived);
        for job in &changes.finished {
            self.active.remove(job);
        }
        let active = &self.active;
        self.holders
            .retain(|holder| active.contains(&holder.job) && view.run(holder.job).is_some());
        let jobs = changes.arrived.len() + changes.finished.len();
        if jobs + changes.servers_up.len() + changes.servers_down.len() > 0 {
            let capacity = types(view).map(|t| view.gpus_up(t));
            self.is_stale = !capacity.eq(self.solved_for.1.iter().copied())
                || !self.active.iter().eq(&self.solved_for.0);
        }
    }

    fn is_due(&self, now: SimTime) -> bool {
        let is_late = |solved: SimTime| now.0 - solved.0 >= self.params.min_solve_interval.0;
        self.is_stale && !self.active.is_empty() && self.solved_at.is_none_or(is_late)
    }

    fn ask(&self, view: &ClusterView<'_>) -> Result<Ask, PolicyError> {
        let columns = view.jobs().columns();
        let mut ask = Ask {
            now: view.now(),
            capacity: types(view).map(|t| f64::from(view.gpus_up(t))).collect(),
            ..Ask::default()
        };
        for &job in &self.active {
            ask.jobs.push(job);
            ask.rates.extend(types(view).map(|t| rate(view, job, t)));
            ask.gangs.push(f64::from(view.jobs().gpus(job)));
            let weight = columns.weight.as_ref().map_or(1.0, |all| all[job.index()]);
            ask.weights.push(weight);
            let age = view.now().0 - view.jobs().arrival(job).0;
            ask.age_s.push(age as f64 / 1e9);
            if self.params.knowledge == Knowledge::Remaining {
                ask.remaining.push(view.remaining_work(job)?);
            }
        }
        Ok(ask)
    }

    fn solve(&mut self, view: &ClusterView<'_>) -> Result<(), PolicyError> {
        let ask = self.ask(view)?;
        let shares = self.allocator.allocate(&ask)?;
        if shares.len() != ask.rates.len() || !shares.iter().all(|share| share.is_finite()) {
            let message = "the allocator gave no finite share for each job and type".to_owned();
            return Err(PolicyError::Failed { message });
        }
        self.accounts.reset(view.now(), &ask.jobs, &shares);
        self.type_order = order_of_types(&ask);
        self.solved_at = Some(view.now());
        self.is_stale = false;
        self.solved_for = (ask.jobs, types(view).map(|t| view.gpus_up(t)).collect());
        self.solves += 1;
        Ok(())
    }

    /// Who of the candidates (ascending) runs where: first by priority, then whoever is left.
    /// `banned` choices are left out.
    fn choose(
        &self,
        view: &ClusterView<'_>,
        candidates: &[JobId],
        left: &mut [u32],
        banned: &[Choice],
    ) -> Vec<Choice> {
        let mut chosen: Vec<Choice> = Vec::new();
        let mut taken = vec![false; candidates.len()];
        let place = |job: JobId| candidates.binary_search(&job).expect("a candidate");
        for is_first in [true, false] {
            if !is_first && !self.params.serves_all {
                break;
            }
            for &gpu_type in &self.type_order {
                let wanted = |claim: &Claim| (claim.priority > 0.0) == is_first;
                let can = |job: JobId| rate(view, job, gpu_type) > 0.0;
                let claims = candidates
                    .iter()
                    .zip(&taken)
                    .filter(|&(&job, &is_taken)| !is_taken && can(job))
                    .map(|(&job, _)| self.accounts.claim(job, gpu_type.index()))
                    .filter(wanted);
                let mut queue: BinaryHeap<Claim> = claims.collect();
                let free = &mut left[gpu_type.index()];
                while *free > 0
                    && let Some(Claim { job, .. }) = queue.pop()
                {
                    let gpus = view.jobs().gpus(job);
                    if gpus <= *free && !banned.contains(&(job, gpu_type)) {
                        *free -= gpus;
                        taken[place(job)] = true;
                        chosen.push((job, gpu_type));
                    }
                }
            }
        }
        chosen
    }

    /// Places choices by type, largest gang first; who can keeps its GPUs. The choice without a place,
    /// if there is one.
    fn place(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        chosen: &mut [Choice],
    ) -> Result<Vec<(Choice, GpuSet)>, Choice> {
        chosen.sort_by_key(|&(job, gpu_type)| {
            (gpu_type, std::cmp::Reverse(view.jobs().gpus(job)), job)
        });
        let mut placed = Vec::with_capacity(chosen.len());
        for &(job, gpu_type) in chosen.iter() {
            let kept = view.run(job).map(|run| &run.gpus).filter(|gpus| {
                let server = gpus.parts()[0].server;
                view.cluster().server(server).gpu_type == gpu_type && plan.free().is_free(gpus)
            });
            let gpus = if let Some(gpus) = kept {
                gpus.clone()
            } else {
                let class = self.places.classes().of(job);
                let found = self.places.place_on(plan.free(), class, job, gpu_type);
                found.ok_or((job, gpu_type))?
            };
            plan.take(&gpus);
            placed.push(((job, gpu_type), gpus));
        }
        Ok(placed)
    }

    /// Chooses and places until every choice has a place.
    fn fill(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        candidates: &[JobId],
        left: &[u32],
    ) -> Vec<(Choice, GpuSet)> {
        let mut banned = Vec::new();
        let mark = plan.mark();
        loop {
            let mut chosen = self.choose(view, candidates, &mut left.to_vec(), &banned);
            match self.place(view, plan, &mut chosen) {
                Ok(placed) => return placed,
                Err(choice) => {
                    plan.rollback(mark);
                    banned.push(choice);
                }
            }
        }
    }

    /// Writes the plan of a whole round; whether everybody runs where it ran before.
    fn write(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        placed: Vec<(Choice, GpuSet)>,
    ) -> bool {
        let now = view.now();
        let mut is_same = true;
        let mut stays: Vec<JobId> = placed.iter().map(|((job, _), _)| *job).collect();
        stays.sort_unstable();
        for job in view.running() {
            if stays.binary_search(&job).is_err() {
                is_same = false;
                plan.push(Action::Preempt { job });
            }
        }
        self.holders.clear();
        for ((job, gpu_type), gpus) in placed {
            match view.run(job) {
                Some(run) if run.gpus == gpus => {}
                Some(_) => {
                    is_same = false;
                    plan.push(Action::Move { job, gpus });
                }
                None => {
                    is_same = false;
                    self.places.note_start(job);
                    plan.push(Action::Start {
                        job,
                        gpus,
                        sub_batch: None,
                    });
                }
            }
            self.holders.push(Holder {
                job,
                gpu_type,
                since: now,
            });
        }
        is_same
    }

    fn whole_round(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        if self.is_due(view.now()) {
            self.solve(view)?;
        }
        for job in view.running() {
            plan.release(job);
        }
        let candidates: Vec<JobId> = self.active.iter().copied().collect();
        let left: Vec<u32> = types(view).map(|t| view.gpus_up(t)).collect();
        let placed = self.fill(view, plan, &candidates, &left);
        let everyone = placed.len() == candidates.len();
        let at_home = placed.iter().all(|&((job, gpu_type), _)| {
            let can = |t: usize| rate(view, job, GpuTypeId::new(t)) > 0.0;
            self.accounts.shared_types(job, can) == (1, gpu_type.index())
        });
        let is_same = self.write(view, plan, placed);
        if is_same && everyone && at_home && (candidates.is_empty() || !self.is_stale) {
            return Ok(Next::Steady);
        }
        Ok(Next::Ask)
    }

    /// Gives GPUs that became free inside a round to jobs that wait.
    fn backfill(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) {
        let candidates: Vec<JobId> = view.waiting().collect();
        let left: Vec<u32> = types(view).map(|t| view.gpus_free(t)).collect();
        for ((job, gpu_type), gpus) in self.fill(view, plan, &candidates, &left) {
            self.places.note_start(job);
            self.holders.push(Holder {
                job,
                gpu_type,
                since: view.now(),
            });
            plan.push(Action::Start {
                job,
                gpus,
                sub_batch: None,
            });
        }
    }
}

impl Policy for Rounds {
    fn wake_on(&self) -> WakeOn {
        if self.params.backfills {
            WakeOn::ROUND | WakeOn::COMPLETION
        } else {
            WakeOn::ROUND
        }
    }

    fn round(&self) -> Option<SimSpan> {
        Some(self.params.round)
    }

    fn knowledge(&self) -> Knowledge {
        self.params.knowledge
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        let types = view.cluster().gpu_types().len();
        self.accounts = Accounts::new(view.jobs().len(), types, self.params.round);
        self.type_order = (0..types).map(GpuTypeId::new).collect();
        self.places.start(view, plan)
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        self.note(view, changes);
        if changes.is_round {
            return self.whole_round(view, plan);
        }
        self.backfill(view, plan);
        Ok(Next::Ask)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("solves", self.solves)]
    }
}

fn types(view: &ClusterView<'_>) -> impl Iterator<Item = GpuTypeId> + use<> {
    (0..view.cluster().gpu_types().len()).map(GpuTypeId::new)
}

/// Base rate of the gang on a type, 0 where it may not run.
fn rate(view: &ClusterView<'_>, job: JobId, gpu_type: GpuTypeId) -> f64 {
    if view.usable_types(job) >> gpu_type.index() & 1 == 1 {
        view.base_rate(job, gpu_type)
    } else {
        0.0
    }
}

/// Types by how much better than their average the jobs run there, best first; ties by index.
fn order_of_types(ask: &Ask) -> Vec<GpuTypeId> {
    let types = ask.capacity.len();
    let gpus: f64 = ask.capacity.iter().sum();
    let mut better = vec![0.0; types];
    for row in ask.rates.chunks_exact(types) {
        let mut average = 0.0;
        for (rate, own) in row.iter().zip(&ask.capacity) {
            average += rate * own;
        }
        average = if gpus > 0.0 { average / gpus } else { 0.0 }; // every server may be down
        if average > 0.0 {
            for (sum, rate) in better.iter_mut().zip(row) {
                *sum += rate / average;
            }
        }
    }
    let mut order: Vec<usize> = (0..types).collect();
    order.sort_by(|&a, &b| better[b].total_cmp(&better[a]).then(a.cmp(&b)));
    order.into_iter().map(GpuTypeId::new).collect()
}
