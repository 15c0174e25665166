//! Rounds, which turn shares of time into placements of jobs.
//!
//! At each boundary, every job has a priority on each GPU type: its target share divided by the time for which it has
//! held GPUs there. Types are served in order, and on each type, jobs are served by priority; a job uses one type per
//! round. Jobs without a share are served last. A job keeps its GPUs if possible. When the set of jobs or the capacity
//! has changed, a new allocation is requested. This module does not depend on how the allocation is computed.
//!
//! Unless jobs share GPUs, claims stay sorted between rounds, so a round costs O((running + skipped) log n).

mod accounts;
mod ask;
mod pairs;
mod queues;
mod walk;

use crate::kit::GpuPick;
use crate::kit::Places;
use crate::kit::check_length;
use crate::kit::why::{
    BEHIND, NEXT_DECISION, NO_PLACE, NO_SHARE, OUTRANKED, at_head, has_enough, largest,
};
use crate::place::PlacementParams;
pub(crate) use accounts::{Accounts, Claim};
pub(crate) use ask::EntityParams;
use ask::{Entities, order_of_types};
pub(crate) use ask::{Planned, ask, types};
use gangline_allocation::{Allocator, Shares, in_parts};
use gangline_engine::{
    Cause, Changes, ClusterView, Knowledge, Next, Phase, Plan, Policy, PolicyError, PolicyTraits,
    Reason, Run, WakeOn,
};
use gangline_model::{GpuTypeId, JobId, SimSpan, SimTime, words};
use pairs::Pairs;
pub(crate) use pairs::Partners;
use queues::{Filter, Queues};
use std::collections::BTreeSet;

words! {
    /// The order in which jobs without a share are served.
    pub(crate) enum ZeroPass {
        /// After all jobs with a share, on all types.
        After = "after",
        /// On each type, after the jobs with a share on that type.
        Inline = "inline",
    }
}

/// Returns the filters for the passes over the types. If the parameter is not set, jobs without a share are never
/// served.
fn passes(zero_pass: Option<ZeroPass>) -> &'static [Filter] {
    match zero_pass {
        Some(ZeroPass::After) => &[Filter::WithShare, Filter::WithoutShare],
        Some(ZeroPass::Inline) => &[Filter::All],
        None => &[Filter::WithShare],
    }
}

/// Parameters of a round-based policy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RoundParams {
    /// Name of the policy, for messages.
    pub policy: String,
    /// Length of a round.
    pub round: SimSpan,
    /// Minimum time between two allocations.
    pub min_solve_interval: SimSpan,
    /// Whether plans use the rate of the current phase for jobs whose rate changes with their progress.
    pub follows_phases: bool,
    /// The order in which jobs without a share are served; `None` if they are never served.
    pub zero_pass: Option<ZeroPass>,
    /// Whether GPUs that become free during a round are assigned at once.
    pub backfills: bool,
    /// Names of the types in the order in which they are served; if `None`, the order depends on speed.
    pub type_order: Option<String>,
    /// Rule that chooses a job's type if jobs keep their GPUs until they end. If it is set, the allocator is not used.
    pub keeps: Option<GpuPick>,
    /// Maximum gang size that is served.
    pub gang_max: Option<u32>,
    /// Knowledge about jobs that the allocator needs.
    pub knowledge: Knowledge,
    /// Number of parts into which each allocation is split.
    pub partitions: usize,
    /// Parameters of the entities; `None` if the policy does not divide time among entities.
    pub entities: Option<EntityParams>,
    /// Rule that chooses the jobs that may share GPUs, if any may.
    pub packs: Option<Partners>,
}

/// Maximum of `min_solve_interval`, in rounds, if jobs keep their GPUs until they end. The engine treats a longer wait
/// as a stall. The number is our own choice.
const WAITS_MAX: i64 = 900;

/// A job with GPUs, and the instant up to which its time has been counted.
#[derive(Clone, Copy, Debug)]
struct Holder {
    job: JobId,
    gpu_type: GpuTypeId,
    /// Partner group of the co-runner, if the round assigned a co-runner.
    beside: Option<u32>,
    since: SimTime,
}

/// A round-based policy.
pub(crate) struct Rounds {
    params: RoundParams,
    places: Places,
    allocator: Box<dyn Allocator>,
    accounts: Accounts,
    queues: Queues,
    entities: Entities,
    /// Accounts of shared time; used only by policies that pack jobs.
    pairs: Option<Pairs>,
    active: BTreeSet<JobId>,
    /// Whether each job is active; used only by policies that keep queues.
    is_active: Vec<bool>,
    holders: Vec<Holder>,
    is_stale: bool,
    solved_at: Option<SimTime>,
    /// The active jobs and the number of GPUs of each type at the last allocation.
    solved_for: (Vec<JobId>, Vec<u32>),
    /// The phases of these jobs at the last allocation, if plans depend on phases.
    solved_phases: Vec<usize>,
    type_order: Vec<GpuTypeId>,
    /// Whether `type_order` was computed for the jobs and GPUs of the last allocation.
    is_order_solved: bool,
    solves: u64,
    /// Whether each job is chosen in the current round; used only by policies that keep queues.
    is_chosen: Vec<bool>,
}

impl std::fmt::Debug for Rounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rounds")
            .field("params", &self.params)
            .finish_non_exhaustive()
    }
}

/// The jobs that a walk considers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Candidates {
    /// All active jobs; used at a boundary.
    All,
    /// Waiting jobs; used during a round.
    Waiting,
}

/// A job, or two jobs that share GPUs, and the type assigned to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Choice {
    job: JobId,
    /// The second job of a pair, which has the greater index.
    partner: Option<JobId>,
    gpu_type: GpuTypeId,
}

impl Choice {
    fn alone(job: JobId, gpu_type: GpuTypeId) -> Self {
        Self {
            job,
            partner: None,
            gpu_type,
        }
    }

    fn jobs(self) -> impl Iterator<Item = JobId> {
        [Some(self.job), self.partner].into_iter().flatten()
    }
}

impl Rounds {
    /// Creates a policy with a placement rule and an allocator.
    pub(crate) fn new(
        params: RoundParams,
        placement: PlacementParams,
        allocator: Box<dyn Allocator>,
    ) -> Self {
        Self {
            params,
            places: Places::new(placement),
            allocator,
            accounts: Accounts::default(),
            queues: Queues::default(),
            entities: Entities::default(),
            pairs: None,
            active: BTreeSet::new(),
            is_active: Vec::new(),
            holders: Vec::new(),
            is_stale: false,
            solved_at: None,
            solved_for: (Vec::new(), Vec::new()),
            solved_phases: Vec::new(),
            type_order: Vec::new(),
            is_order_solved: false,
            solves: 0,
            is_chosen: Vec::new(),
        }
    }

    /// Returns whether claims stay sorted between rounds; in a policy with pairs, they do not.
    fn keeps_queues(&self) -> bool {
        self.params.packs.is_none()
    }

    fn note(&mut self, view: &ClusterView<'_>, changes: &Changes) {
        self.count(view.now());
        for &job in &changes.arrived {
            self.active.insert(job);
            self.claim_all(view, job);
        }
        for &job in &changes.finished {
            self.active.remove(&job);
            if let Some(is_active) = self.is_active.get_mut(job.index()) {
                *is_active = false;
            }
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

    /// Counts the time for which jobs have held GPUs, and updates their claims.
    fn count(&mut self, now: SimTime) {
        let keeps_queues = self.keeps_queues();
        for holder in &mut self.holders {
            let (job, gpu_type) = (holder.job, holder.gpu_type.index());
            let span = now.0 - holder.since.0;
            holder.since = now;
            if span == 0 {
                continue;
            }
            if let (Some(group), Some(pairs)) = (holder.beside, &mut self.pairs) {
                pairs.credit(job, group, holder.gpu_type, span);
                continue;
            }
            let before = self.accounts.claim(job, gpu_type);
            self.accounts.credit(job, gpu_type, span);
            let after = self.accounts.claim(job, gpu_type);
            if keeps_queues && before != after {
                self.queues.insert(gpu_type, after);
            }
        }
    }

    /// Puts the claims of a newly arrived job into the queues.
    fn claim_all(&mut self, view: &ClusterView<'_>, job: JobId) {
        if !self.keeps_queues() {
            return;
        }
        self.is_active[job.index()] = true;
        for gpu_type in types(view) {
            if self.places.has_home(job, gpu_type) {
                let claim = self.accounts.claim(job, gpu_type.index());
                self.queues.insert(gpu_type.index(), claim);
            }
        }
    }

    /// Returns whether the jobs, the GPUs or the phases have changed since the last allocation.
    fn is_stale(&self, view: &ClusterView<'_>) -> bool {
        let phases = self.planned(view).phases(&self.solved_for.0);
        self.is_stale || !phases.eq(self.solved_phases.iter().copied())
    }

    fn is_due(&self, view: &ClusterView<'_>) -> bool {
        let interval = self.params.min_solve_interval;
        let is_late = |solved: SimTime| view.now() - solved >= interval;
        self.is_stale(view) && !self.active.is_empty() && self.solved_at.is_none_or(is_late)
    }

    fn planned<'a>(&'a self, view: &'a ClusterView<'a>) -> Planned<'a> {
        Planned {
            view,
            places: &self.places,
            follows_phases: self.params.follows_phases && view.has_any_phases(),
        }
    }

    fn solve(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) -> Result<(), PolicyError> {
        let knows_work = self.params.knowledge == Knowledge::Remaining;
        let planned = self.planned(view);
        let mut ask = ask(planned, self.active.iter().copied(), knows_work, |job| {
            let run = view.run(job)?;
            let gpu_type = view
                .cluster()
                .server(run.gpus().by_server()[0].server)
                .gpu_type;
            let claim = self.accounts.claim(job, gpu_type.index());
            (claim.share > 0.0).then_some(gpu_type)
        })?;
        self.entities.tell(&mut ask);
        let tell = |pairs: &Pairs| pairs.tell(view, &self.places, &mut ask);
        let groups = self.pairs.as_ref().map(tell).unwrap_or_default();
        let shares = if let Some(pick) = self.params.keeps {
            Shares {
                alone: self.first_come(view, plan, pick),
                pair_shares: Vec::new(),
            }
        } else {
            let parts = self.params.partitions;
            in_parts(self.allocator.as_mut(), &ask, parts)?
        };
        let finite = shares.alone.iter().all(|share| share.is_finite())
            && shares
                .pair_shares
                .iter()
                .all(|entry| entry.share.is_finite());
        if shares.alone.len() != ask.rates.len() || !finite {
            let message = "the allocator gave no finite share for each job and type".to_owned();
            return Err(PolicyError::Failed { message });
        }
        let elapsed = view.now() - self.solved_at.unwrap_or(SimTime(0));
        self.accounts
            .reset(elapsed.seconds(), &ask.jobs, &shares.alone);
        if let Some(pairs) = &mut self.pairs {
            pairs.reset(elapsed.seconds(), &ask.jobs, &groups, &shares.pair_shares);
        }
        if self.keeps_queues() {
            let (accounts, places) = (&self.accounts, &self.places);
            let claims = ask.jobs.iter().flat_map(|&job| {
                let types = types(view).filter(move |&t| places.has_home(job, t));
                let types = types.map(GpuTypeId::index);
                types.map(move |gpu_type| (gpu_type, accounts.claim(job, gpu_type)))
            });
            self.queues.refill(claims);
        }
        if self.params.type_order.is_none() {
            self.type_order = order_of_types(&ask.capacity, ask.rates.iter().copied());
        }
        self.is_order_solved = true;
        self.solved_at = Some(view.now());
        self.is_stale = false;
        self.solved_phases = self.planned(view).phases(&ask.jobs).collect();
        self.solved_for = (ask.jobs, types(view).map(|t| view.gpus_up(t)).collect());
        self.solves += 1;
        Ok(())
    }

    fn whole_round(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        if self.is_due(view) {
            self.solve(view, plan)?;
        } else if self.solved_at.is_some() && (self.is_stale(view) || !self.is_order_solved) {
            // The set of active jobs now differs from the set at the last allocation, or has become equal to it again.
            let capacity: Vec<f64> = types(view).map(|t| f64::from(view.gpus_up(t))).collect();
            let (places, planned) = (&self.places, self.planned(view));
            if self.params.type_order.is_none() {
                let active = self.active.iter();
                self.type_order = if planned.follows_phases {
                    let rates = |&job| types(view).map(move |t| planned.rate(job, t));
                    order_of_types(&capacity, active.flat_map(rates))
                } else {
                    let rates = |&job| types(view).map(move |t| places.rate(view, job, t));
                    order_of_types(&capacity, active.flat_map(rates))
                };
            }
            self.is_order_solved = !self.is_stale(view);
        }
        // All GPUs are given back first, so that no GPU stays with a job of a former pair.
        for run in view.running().filter_map(|job| view.run(job)) {
            plan.give_back(run.gpus());
        }
        let left: Vec<u32> = types(view).map(|t| view.gpus_up(t)).collect();
        let placed = self.fill(view, plan, Candidates::All, left);
        let jobs = placed.iter().map(|(choice, _)| choice.jobs().count());
        let is_everything_placed = jobs.sum::<usize>() == self.active.len();
        let at_home = self.are_at_home(&placed);
        let is_same = self.write(view, plan, placed);
        let is_settled = !self.is_stale(view);
        if is_same && is_everything_placed && at_home && (self.active.is_empty() || is_settled) {
            return Ok(Next::Steady);
        }
        Ok(Next::Ask)
    }

    /// Returns why a job waits under a policy that starts jobs in order of arrival and only when shares are computed.
    fn why_in_order(&self, view: &ClusterView<'_>, job: JobId) -> Cause {
        let Some(solved) = self.solved_at else {
            return Cause::new(&NO_PLACE);
        };
        let round = self.params.round.0;
        let due = |time: i64| time.div_euclid(round) * round + round * i64::from(time % round > 0);
        let until = due((solved.0 + self.params.min_solve_interval.0).max(view.now().0 + 1));
        let until = SimTime(until);
        let left_out = self.solved_for.0.iter().copied();
        let mut left_out = left_out.filter(|&one| view.phase(one) == Phase::Waiting);
        let head = left_out.next().unwrap_or(job);
        let has_place = has_enough(view, head, view.jobs().gpus(head), false);
        let was_there = self.solved_for.0.binary_search(&job).is_ok();
        if !was_there || view.now() > solved && has_place {
            return Cause::new(&NEXT_DECISION).until(until);
        }
        at_head(head, job)
    }

    /// Returns the types in the order that the parameters set.
    fn order_given(
        &self,
        view: &ClusterView<'_>,
        text: &str,
    ) -> Result<Vec<GpuTypeId>, PolicyError> {
        let names: Vec<&str> = text.split(',').map(str::trim).collect();
        let known = view.cluster().gpu_types();
        let find = |name: &&str| known.iter().position(|own| own.name == *name);
        let order: Vec<usize> = names.iter().filter_map(find).collect();
        let mut each = order.clone();
        each.sort_unstable();
        each.dedup();
        if each.len() == known.len() && names.len() == known.len() {
            return Ok(order.into_iter().map(GpuTypeId::new).collect());
        }
        let all: Vec<&str> = known.iter().map(|own| own.name.as_str()).collect();
        Err(PolicyError::Parameter {
            policy: self.params.policy.clone(),
            field: "type_order".to_owned(),
            value: text.to_owned(),
            expected: format!(
                "auto, or each GPU type of the cluster once: {}",
                all.join(",")
            ),
        })
    }
}

impl Policy for Rounds {
    fn traits(&self) -> PolicyTraits {
        let wake_on = if self.params.backfills {
            WakeOn::ROUND | WakeOn::COMPLETION
        } else {
            WakeOn::ROUND
        };
        PolicyTraits {
            wake_on,
            round: Some(self.params.round),
            knowledge: self.params.knowledge,
            max_share: 1 + u32::from(self.params.packs.is_some()),
            gang_max: self.params.gang_max,
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        let gpu_types = view.cluster().gpu_types();
        let half_round_ns = self.params.round.0 / 2;
        self.accounts = Accounts::new(view.jobs().len(), gpu_types.len(), half_round_ns);
        self.type_order = match &self.params.type_order {
            Some(text) => self.order_given(view, text)?,
            None => types(view).collect(),
        };
        if self.keeps_queues() {
            let sizes = &view.jobs().columns().gpus;
            self.queues = Queues::new(sizes, gpu_types.len());
            self.is_chosen = vec![false; sizes.len()];
            self.is_active = vec![false; sizes.len()];
        }
        if let Some(params) = &self.params.entities {
            self.entities = Entities::new(params, &self.params.policy, view.jobs())?;
        }
        if self.params.keeps.is_some()
            && self.params.min_solve_interval.0 / self.params.round.0 > WAITS_MAX
        {
            return Err(PolicyError::Parameter {
                policy: self.params.policy.clone(),
                field: "min_solve_interval_s".to_owned(),
                value: self.params.min_solve_interval.seconds().to_string(),
                expected: format!(
                    "at most {WAITS_MAX} rounds, because no job starts before the next allocation"
                ),
            });
        }
        if self.params.packs.is_some() && view.max_share() < 2 {
            return Err(PolicyError::Parameter {
                policy: self.params.policy.clone(),
                field: "max_share".to_owned(),
                value: view.max_share().to_string(),
                expected: "at least 2 in [sharing], for two jobs on a GPU".to_owned(),
            });
        }
        self.allocator.start(gpu_types)?;
        let unplaceable = self.places.start(view, plan)?;
        if self.params.keeps.is_none() {
            let (policy, round) = (&self.params.policy, self.params.round);
            let most = self.params.gang_max.unwrap_or(u32::MAX);
            let too_wide = |job: &JobId| view.jobs().gpus(*job) > most;
            let mut left_out = unplaceable.clone();
            left_out.extend(view.jobs().ids().filter(too_wide));
            left_out.sort_unstable();
            check_length(view, policy, "round_s", round, &left_out)?;
        }
        if let Some(partners) = self.params.packs {
            let round = self.params.round;
            self.pairs = Some(Pairs::new(view, &self.places, round, partners));
        }
        Ok(unplaceable)
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

    fn reasons(&self) -> Vec<&'static Reason> {
        if self.params.keeps.is_some() {
            vec![&BEHIND, &NO_PLACE, &NEXT_DECISION]
        } else {
            vec![&NO_SHARE, &NO_PLACE, &OUTRANKED, &NEXT_DECISION]
        }
    }

    fn why(&self, view: &ClusterView<'_>, job: JobId) -> Option<Cause> {
        if self.params.keeps.is_some() {
            return Some(self.why_in_order(view, job));
        }
        let claim = |job, gpu_type: GpuTypeId| self.accounts.claim(job, gpu_type.index());
        let own = |gpu_type| claim(job, gpu_type);
        let usable: Vec<GpuTypeId> = types(view)
            .filter(|&t| self.places.has_home(job, t))
            .collect();
        if self.accounts.has_shares(job) && usable.iter().all(|&t| own(t).share <= 0.0) {
            return Some(Cause::new(&NO_SHARE));
        }
        if has_enough(view, job, view.jobs().gpus(job), false) {
            return Some(Cause::new(&NO_PLACE));
        }
        // If jobs share GPUs, their order depends on two claims. All GPUs in use then belong to jobs that were chosen
        // before this one.
        let is_before = |run: &Run| {
            let gpu_type = run.gpu_type();
            self.pairs.is_some() || claim(run.job, gpu_type) > own(gpu_type)
        };
        largest(view, job, is_before).map(|other| Cause::of(&OUTRANKED, other))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("solves", self.solves)]
    }
}
