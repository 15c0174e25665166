//! The timing rules of the public Gavel simulator, for comparisons with it. Rounds may begin at any instant, not only
//! at multiples of a fixed length.
//!
//! In a round, each chosen job gets a micro-task, which is a whole number of steps. The round ends when the last of
//! these tasks ends, and the next round starts at that instant. The simulator's quirks are preserved on purpose. Shares
//! are recomputed at most once every 1,920 s, but a computation at instant 0 does not count. This limit is lifted if no
//! job can be chosen and no job will arrive any more. Idle time before a round counts as run time of that round. A job
//! that arrived after shares were last recomputed may occupy GPUs without running. All of this comes from the public
//! code.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | t | `Accounts::held_ns` | time that a job has spent on a type since the last reset, plus half a round |
//! | S | `booked_ns` | for each type, the sum of t over all jobs; jobs join and leave this sum only at a reset |
//! | `last_reset` | `last_reset` | time at which shares were last recomputed; if it is 0, they may be recomputed at any time |

mod type_order;

use crate::kit::Places;
use crate::kit::why::{NEXT_DECISION, NO_SHARE, OUTRANKED, has_enough, largest};
use crate::place::PlacementParams;
use crate::round::{Accounts, Claim, Planned, ask, types};
use gangline_allocation::Allocator;
use gangline_engine::{
    Cause, Changes, ClusterView, Knowledge, Next, Phase, Plan, Policy, PolicyError, PolicyTraits,
    Reason, Run, WakeOn,
};
use gangline_model::{Action, GpuSet, GpuTypeId, JobId, SimTime, Terms, TimerTag, span_of_work};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use type_order::TypeOrder;

/// Minimum time between two allocations, regardless of rounds. The value comes from the public code.
const SOLVE_INTERVAL_S: f64 = 1920.0;
/// Priority per unit of share on a type on which no time has been counted for the job yet. The value comes from the
/// public code.
const UNTOUCHED: f64 = 1e9;
const END_OF_ROUND: TimerTag = TimerTag { kind: 0, id: 0 };

/// Parameters of the timing mechanism.
#[derive(Clone, Debug)]
pub(crate) struct GavelTimingParams {
    /// Name of the policy, for messages.
    pub policy: String,
    /// Maximum length of a micro-task, in seconds.
    pub round_s: f64,
    /// Whether GPU types are shuffled each time jobs are chosen. This is the case for policies that do not use rates.
    pub shuffles: bool,
    /// Whether jobs without a share are skipped. This is the case for FIFO.
    pub skips_zero: bool,
    /// Knowledge about jobs that the allocator needs.
    pub knowledge: Knowledge,
}

/// The micro-task of a job: its steps in the current round.
#[derive(Clone, Copy, Debug)]
struct Task {
    job: JobId,
    gpu_type: GpuTypeId,
    steps: f64,
    finish: SimTime,
}

/// A Gavel policy with the timing of the public simulator.
pub(crate) struct GavelTiming {
    params: GavelTimingParams,
    places: Places,
    allocator: Box<dyn Allocator>,
    order: TypeOrder,
    accounts: Accounts,
    half_round_ns: i64,
    booked_ns: Vec<i64>,
    /// Number of whole steps left for each job. The public simulator keeps the same count; the allocator sees it only
    /// if the policy may know it.
    left: Vec<f64>,
    arrived: Vec<JobId>,
    active: BTreeSet<JobId>,
    tasks: Vec<Task>,
    previous_end: SimTime,
    last_reset: SimTime,
    is_stale: bool,
    expected: usize,
    rounds: u64,
    solves: u64,
}

impl std::fmt::Debug for GavelTiming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GavelTiming")
            .field("params", &self.params)
            .finish_non_exhaustive()
    }
}

impl GavelTiming {
    /// Creates a policy with a placement rule and an allocator.
    pub(crate) fn new(
        params: GavelTimingParams,
        placement: PlacementParams,
        allocator: Box<dyn Allocator>,
    ) -> Self {
        Self {
            params,
            places: Places::new(placement),
            allocator,
            order: TypeOrder::default(),
            accounts: Accounts::default(),
            half_round_ns: 0,
            booked_ns: Vec::new(),
            left: Vec::new(),
            arrived: Vec::new(),
            active: BTreeSet::new(),
            tasks: Vec::new(),
            previous_end: SimTime(0),
            last_reset: SimTime(0),
            is_stale: false,
            expected: 0,
            rounds: 0,
            solves: 0,
        }
    }

    fn refuse(&self, why: &str) -> PolicyError {
        let policy = &self.params.policy;
        let message = format!("{policy} with compat = true: {why}");
        PolicyError::Failed { message }
    }

    /// Checks the assumptions of the public simulator, such as whole steps, no overhead and no network.
    fn check(&self, view: &ClusterView<'_>) -> Result<(), PolicyError> {
        if view.network().is_some() {
            return Err(self.refuse("the public simulator has no network; leave out [network]"));
        }
        if self.places.rule().may_refuse() {
            return Err(
                self.refuse("placement must be a rule that never refuses a gang: consolidate")
            );
        }
        if view.has_run_time() {
            return Err(self.refuse(
                "jobs keep their given rates in the public simulator; leave out [runtime]",
            ));
        }
        if view.has_any_phases() {
            let why = "the rates of jobs are constant in the public simulator; leave out the column `phases`";
            return Err(self.refuse(why));
        }
        for job in view.jobs().ids() {
            let work = view.work(job)?;
            if work.fract() != 0.0 {
                let why = format!(
                    "job {job} has {work} iterations; the public simulator counts whole iterations"
                );
                return Err(self.refuse(&why));
            }
            if view.overhead(job).0 > 0 || view.restart_overhead(job).0 > 0 {
                return Err(self
                    .refuse("restarts cost nothing in the public simulator; set restart_s to 0"));
            }
            let slow = types(view).find(|&t| {
                let rate = self.places.rate(view, job, t);
                rate > 0.0 && (rate * self.params.round_s).floor() < 1.0
            });
            if let Some(slow) = slow {
                let name = &view.cluster().gpu_types()[slow.index()].name;
                let why = format!("job {job} does less than one iteration per round on {name}");
                return Err(self.refuse(&why));
            }
        }
        Ok(())
    }

    /// Counts the steps and the time of the finished micro-tasks. The time of a task is counted from the end of the
    /// previous round.
    fn land(&mut self, view: &ClusterView<'_>) {
        let tasks = std::mem::take(&mut self.tasks);
        for task in &tasks {
            let spent = task.finish - self.previous_end;
            let gpu_type = task.gpu_type.index();
            self.accounts.credit(task.job, gpu_type, spent.0);
            self.booked_ns[gpu_type] += spent.0;
            let left = &mut self.left[task.job.index()];
            *left -= task.steps;
            let is_done = view.phase(task.job) == Phase::Finished;
            debug_assert_eq!(
                is_done,
                *left <= 0.0,
                "the engine and the policy count the same steps"
            );
            if is_done {
                self.active.remove(&task.job);
                self.is_stale = true;
            }
        }
        if !tasks.is_empty() {
            self.previous_end = view.now();
        }
    }

    fn admit(&mut self) {
        for job in self.arrived.drain(..) {
            self.active.insert(job);
            self.expected -= 1;
            self.is_stale = true;
        }
    }

    fn renew(&mut self, view: &ClusterView<'_>) -> Result<(), PolicyError> {
        let now = view.now();
        let is_open =
            self.last_reset == SimTime(0) || (now - self.last_reset).seconds() >= SOLVE_INTERVAL_S;
        if !self.is_stale || !is_open {
            return Ok(());
        }
        let knows_work = self.params.knowledge == Knowledge::Remaining;
        let ask = ask(
            Planned {
                view,
                places: &self.places,
                follows_phases: false,
            },
            self.active.iter().copied(),
            knows_work,
            |_| None,
        )?;
        let elapsed_s = (now - self.last_reset).seconds();
        let all_half_ns = self.half_round_ns * ask.jobs.len() as i64;
        self.booked_ns.fill(all_half_ns);
        self.last_reset = now;
        self.is_stale = false;
        if ask.jobs.is_empty() {
            return Ok(());
        }
        let shares = self.allocator.allocate(&ask)?;
        if shares.len() != ask.rates.len() || !shares.iter().all(|share| share.is_finite()) {
            return Err(self.refuse("the allocator gave no finite share for each job and type"));
        }
        self.accounts.reset(elapsed_s, &ask.jobs, &shares);
        self.solves += 1;
        Ok(())
    }

    /// Returns the claim of a job on the GPUs of a type. The priority of the claim is the job's share, divided by the
    /// job's fraction of all the time that is counted on the type.
    fn claim(&self, job: JobId, gpu_type: GpuTypeId) -> Claim {
        let gpu_type = gpu_type.index();
        let claim = self.accounts.claim(job, gpu_type);
        let part = self.accounts.held_ns(job, gpu_type) as f64 / self.booked_ns[gpu_type] as f64;
        let priority = match part {
            _ if claim.share <= 0.0 => 0.0,
            part if part > 0.0 => claim.share / part,
            _ => claim.share * UNTOUCHED,
        };
        Claim { priority, ..claim }
    }

    /// Returns the jobs that run in the next round, with their types. A job that has no shares yet may occupy GPUs, but
    /// does not run.
    fn choose(&mut self, view: &ClusterView<'_>) -> Vec<(JobId, GpuTypeId)> {
        let mut taken: BTreeSet<JobId> = BTreeSet::new();
        let mut chosen = Vec::new();
        for gpu_type in self.order.next() {
            let mut left = view.gpus_up(gpu_type);
            let claims = self.active.iter().filter(|job| !taken.contains(job));
            let mut claims: Vec<_> = claims
                .filter(|&&job| self.places.rate(view, job, gpu_type) > 0.0)
                .map(|&job| self.claim(job, gpu_type))
                .filter(|claim| claim.priority > 0.0 || !self.params.skips_zero)
                .collect();
            claims.sort_unstable_by(|a, b| b.cmp(a));
            for claim in claims {
                let gpus = view.jobs().gpus(claim.job);
                if gpus <= left {
                    left -= gpus;
                    taken.insert(claim.job);
                    if self.accounts.has_shares(claim.job) {
                        chosen.push((claim.job, gpu_type));
                    }
                }
                if left == 0 {
                    break;
                }
            }
        }
        chosen
    }

    /// Returns the GPUs of all chosen jobs. Jobs that stay on their type keep their GPUs; then the other jobs are
    /// placed, largest gangs first.
    fn place(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        chosen: &[(JobId, GpuTypeId)],
    ) -> Result<Vec<GpuSet>, PolicyError> {
        for job in view.running() {
            plan.release(job);
        }
        let mut found: Vec<Option<GpuSet>> = vec![None; chosen.len()];
        for (&(job, gpu_type), gpus) in chosen.iter().zip(&mut found) {
            if let Some(run) = view.run(job).filter(|run| run.gpu_type() == gpu_type) {
                plan.take(run.gpus());
                *gpus = Some(run.gpus().clone());
            }
        }
        let mut rest: Vec<usize> = (0..chosen.len())
            .filter(|&at| found[at].is_none())
            .collect();
        rest.sort_by_key(|&at| (Reverse(view.jobs().gpus(chosen[at].0)), chosen[at].0));
        for at in rest {
            let (job, gpu_type) = chosen[at];
            let class = self.places.class_of(job);
            let gpus = self.places.place_on(plan, class, job, gpu_type);
            let gpus = gpus.ok_or_else(|| self.refuse("the placement rule found no GPUs"))?;
            plan.take(&gpus);
            found[at] = Some(gpus);
        }
        Ok(found.into_iter().flatten().collect())
    }

    fn launch(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        chosen: &[(JobId, GpuTypeId)],
    ) -> Result<(), PolicyError> {
        let sets = self.place(view, plan, chosen)?;
        for job in view.running() {
            if !chosen.iter().any(|&(stays, _)| stays == job) {
                plan.preempt(job);
            }
        }
        let mut end = view.now();
        for (&(job, gpu_type), gpus) in chosen.iter().zip(sets) {
            let (rate, left) = (
                self.places.rate(view, job, gpu_type),
                self.left[job.index()],
            );
            let steps = (rate * self.params.round_s).floor().min(left);
            let terms = Terms {
                quota: Some(if steps < left { steps } else { f64::INFINITY }),
                ..Terms::default()
            };
            let action = if view.run(job).is_some() {
                Action::move_to(job, gpus)
            } else {
                Action::start(job, gpus)
            };
            plan.push(action.with(terms));
            let finish = view.now() + span_of_work(steps, rate);
            end = end.max(finish);
            self.tasks.push(Task {
                job,
                gpu_type,
                steps,
                finish,
            });
        }
        plan.wake_at(end, END_OF_ROUND);
        self.rounds += 1;
        Ok(())
    }
}

impl Policy for GavelTiming {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            wake_on: WakeOn::QUEUE | WakeOn::TIMER,
            // The policy counts whole iterations, regardless of the objective.
            knowledge: Knowledge::Remaining,
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        let dropped = self.places.start(view, plan)?;
        self.check(view)?;
        let jobs = view.jobs();
        let gpu_types = view.cluster().gpu_types();
        self.allocator.start(gpu_types)?;
        self.order = TypeOrder::new(gpu_types, self.params.shuffles.then(|| view.seed()));
        self.half_round_ns = (self.params.round_s / 2.0 * 1e9).round() as i64;
        self.accounts = Accounts::new(jobs.len(), gpu_types.len(), self.half_round_ns);
        self.booked_ns = vec![0; gpu_types.len()];
        self.left = jobs
            .ids()
            .map(|job| view.work(job))
            .collect::<Result<_, _>>()?;
        let comes = |job: &JobId| view.phase(*job) != Phase::Dropped && !dropped.contains(job);
        self.expected = jobs.ids().filter(comes).count();
        Ok(dropped)
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        if changes.has_servers() {
            return Err(self.refuse("the public simulator has no failures; leave them out"));
        }
        self.arrived.extend(&changes.arrived);
        if changes.timers.is_empty() && !self.tasks.is_empty() {
            return Ok(Next::Ask);
        }
        self.land(view);
        self.admit();
        self.renew(view)?;
        let mut chosen = self.choose(view);
        if chosen.is_empty() && self.expected == 0 && !self.active.is_empty() {
            // No micro-task is running and no job will arrive, so shares may be recomputed once more.
            self.last_reset = SimTime(0);
            self.renew(view)?;
            chosen = self.choose(view);
        }
        if chosen.is_empty() {
            for job in view.running() {
                plan.preempt(job);
            }
        } else {
            self.launch(view, plan, &chosen)?;
        }
        Ok(Next::Ask)
    }

    fn reasons(&self) -> Vec<&'static Reason> {
        vec![&NO_SHARE, &OUTRANKED, &NEXT_DECISION]
    }

    fn why(&self, view: &ClusterView<'_>, job: JobId) -> Option<Cause> {
        let end = self.tasks.iter().map(|task| task.finish).max();
        let end = end.unwrap_or(SimTime::NEVER);
        if self.arrived.contains(&job) || !self.accounts.has_shares(job) {
            return Some(Cause::new(&NEXT_DECISION).until(end));
        }
        let own = |gpu_type| self.claim(job, gpu_type);
        if view
            .types_of(job)
            .all(|gpu_type| own(gpu_type).share <= 0.0)
        {
            return Some(Cause::new(&NO_SHARE));
        }
        if has_enough(view, job, view.jobs().gpus(job), false) {
            return Some(Cause::new(&NEXT_DECISION).until(end));
        }
        let is_before = |run: &Run| {
            let gpu_type = run.gpu_type();
            self.claim(run.job, gpu_type) > own(gpu_type)
        };
        largest(view, job, is_before).map(|other| Cause::of(&OUTRANKED, other))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("rounds", self.rounds), ("solves", self.solves)]
    }
}
