//! `slurm`: Slurm's scheduling, as described in its documentation (`docs/policies/slurm.md`).
//!
//! | Slurm | here |
//! |---|---|
//! | priority/multifactor | [`Priority`], [`fairshare`], [`queue`] |
//! | main scheduling loop | [`Slurm::main_pass`] |
//! | sched/backfill | [`Slurm::backfill_pass`], [`planner`] |
//! | preempt/qos | [`preempt`] |
//! | limits on QOS and associations | [`limits`] |
//!
//! A pass examines jobs in order of priority as long as any of the remaining jobs might start ([`Hope`]). A pass is
//! skipped if the last pass found nothing to do and nothing has changed since ([`Quiet`]).

mod fairshare;
mod jobs;
mod limits;
mod params;
mod planner;
mod preempt;
mod queue;

pub(crate) use params::{ShareRule, SlurmParams};

use crate::kit::why::NO_PLACE;
use crate::kit::{Alarm, Places, Seen};
use fairshare::FairShare;
use gangline_engine::{
    Cause, Changes, ClusterView, FreeIndex, Knowledge, Next, Plan, Policy, PolicyError,
    PolicyTraits, Reason, Run, WakeOn,
};
use gangline_model::{
    GpuSet, InfeasibleReason, JobFacts, JobId, SPAN_MAX, ServerId, SimSpan, SimTime,
};
use jobs::{JobKinds, LineKey, Profile, UNLIMITED};
use limits::{Limits, OF_ACCOUNT, OF_QOS, OF_USER, OF_USER_JOBS};
use params::Weights;
use planner::{Ends, OpenGpus, Planner};
use preempt::{Preemption, Seeker};
use queue::Queue;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The job was preempted, and its requeue delay is not over yet.
pub(crate) static REQUEUED: Reason = Reason::new(
    "requeue delay",
    "it was preempted, and its requeue delay has not ended",
    "it was preempted, and {policy} does not start it again before {until}",
);

/// Enough GPUs are free, but jobs with a higher priority come first, or no pass has reached the job yet.
pub(crate) static ORDER: Reason = Reason::new(
    "order",
    "enough GPUs are free, but jobs with a higher priority come first, or no pass has reached it",
    "{free}, but jobs with a higher priority came first or no pass of {policy} had reached it",
);

/// The largest priority that Slurm can store.
const PRIORITY_MAX: f64 = 4_294_967_295.0;

#[derive(Debug)]
pub(crate) struct Slurm {
    params: SlurmParams,
    places: Places,
    jobs: Arc<JobKinds>,
    /// Fair share, if the fair-share factor has a weight.
    fair: Option<FairShare>,
    limits: Limits,
    preemption: Preemption,
    queue: Queue,
    running: Running,
    planner: Planner,
    homes: Homes,
    alarm: Alarm,
    main: Quiet,
    backfill: Quiet,
}

/// The state of the running jobs.
#[derive(Clone, Debug, Default)]
struct Running {
    /// Expected ends of the jobs with a time limit, rounded up to the time grid.
    ends: BTreeSet<(SimTime, JobId)>,
    end_of: FxHashMap<JobId, SimTime>,
    /// Jobs that the current plan starts, with their GPUs.
    started: FxHashMap<JobId, GpuSet>,
    /// Jobs that the current plan stops.
    stopped: Vec<JobId>,
}

impl Running {
    fn start(&mut self, job: JobId, gpus: GpuSet, end: SimTime) {
        if end < SimTime::NEVER {
            self.ends.insert((end, job));
            self.end_of.insert(job, end);
        }
        self.started.insert(job, gpus);
    }

    fn stop(&mut self, job: JobId) {
        if let Some(end) = self.end_of.remove(&job) {
            self.ends.remove(&(end, job));
        }
    }

    /// Returns the GPUs of a running job, or of a job that this plan starts.
    fn gpus<'a>(&'a self, view: &ClusterView<'a>, job: JobId) -> &'a GpuSet {
        let before = || view.run(job).map(Run::gpus);
        self.started
            .get(&job)
            .or_else(before)
            .expect("a running job")
    }
}

/// For each kind, whether its jobs would have a place on the healthy servers if no job ran.
#[derive(Clone, Debug, Default)]
struct Homes {
    /// The state of the cluster without jobs; `None` while all servers are up.
    empty: Option<FreeIndex>,
    of_kind: Vec<Option<bool>>,
}

/// Conditions under which a pass can be skipped.
#[derive(Clone, Copy, Debug)]
struct Quiet {
    /// Instant before which a pass would do nothing if nothing changes.
    until: SimTime,
    /// Number of usage calculations up to the last pass that found nothing to do.
    ticks: i64,
}

impl Quiet {
    const NO: Self = Self {
        until: SimTime::ZERO,
        ticks: 0,
    };
}

/// A job that a backfill pass examines.
#[derive(Clone, Copy, Debug)]
struct Test {
    job: JobId,
    limit: SimSpan,
    /// The earliest end that a later job of the same kind would have if it started now.
    next_end: Option<SimTime>,
}

/// The kinds with at least one job that a backfill pass has not reached yet and that could still start now. Under every
/// placement rule, a job can start only if the servers that are not booked before its end have enough free GPUs. A pass
/// only ever adds bookings, so a kind that has no chance now has none for the rest of the pass.
#[derive(Clone, Debug)]
struct Chances {
    /// For each kind, the earliest end that the remaining jobs would have if they started now.
    end: Vec<Option<SimTime>>,
    /// For each kind, the latest end that a job may have in order to start now.
    open_until: Vec<SimTime>,
}

impl Chances {
    fn ask(&mut self, jobs: &JobKinds, places: &Places, open: &OpenGpus) {
        for (kind, open_until) in jobs.kinds.iter().zip(&mut self.open_until) {
            let gpus = places.classes().get(kind.class).gpus;
            *open_until = open.until(&kind.types, gpus);
        }
    }

    fn are_over(&self, hope: &Hope) -> bool {
        let kinds = hope.fits.iter().zip(self.end.iter().zip(&self.open_until));
        let mut left = kinds.filter(|&(&fits, (end, _))| fits && end.is_some());
        left.all(|(_, (end, open_until))| *end > Some(*open_until))
    }
}

/// Counts, by kind, the jobs that a pass has not reached yet and that could start.
#[derive(Clone, Debug)]
struct Hope {
    left: Vec<u32>,
    fits: Vec<bool>,
    /// Number of jobs not yet reached whose kind fits.
    count: u32,
    /// Number of jobs not yet reached that may preempt others.
    preemptors: u32,
}

impl Hope {
    fn new(queue: &Queue, jobs: &JobKinds, places: &Places, free: &mut FreeIndex) -> Self {
        let mut hope = Self {
            left: queue.of_kind.clone(),
            fits: vec![false; queue.of_kind.len()],
            count: 0,
            preemptors: queue.preemptors,
        };
        hope.ask(jobs, places, free);
        hope
    }

    /// Checks again which kinds fit.
    fn ask(&mut self, jobs: &JobKinds, places: &Places, free: &mut FreeIndex) {
        self.count = 0;
        for (at, kind) in jobs.kinds.iter().enumerate() {
            if self.left[at] > 0 {
                let mut types = kind.types.iter();
                self.fits[at] = types.any(|&id| places.can_on(free, kind.class, id));
                self.count += if self.fits[at] { self.left[at] } else { 0 };
            }
        }
    }

    /// Records that the pass has now reached a job.
    fn see(&mut self, profile: &Profile) {
        self.left[profile.kind] -= 1;
        self.count -= u32::from(self.fits[profile.kind]);
        self.preemptors -= u32::from(profile.can_preempt());
    }

    fn is_over(&self) -> bool {
        self.count == 0 && self.preemptors == 0
    }
}

/// Computes the priority of jobs at one instant.
#[derive(Clone, Debug)]
struct Priority<'a> {
    now: SimTime,
    weights: Weights,
    max_age_s: f64,
    factors: Arc<[f64]>,
    jobs: &'a JobFacts,
}

impl Priority<'_> {
    fn of(&self, key: &LineKey, job: JobId) -> i64 {
        let since = key.since.unwrap_or_else(|| self.jobs.arrival(job));
        let age = ((self.now - since).0 as f64 / 1e9 / self.max_age_s).min(1.0);
        let share = self.factors.get(key.association as usize);
        let mut value = self.weights.age * age;
        value += self.weights.fairshare * share.copied().unwrap_or(0.0);
        for term in key.terms {
            value += f64::from_bits(term);
        }
        (value - f64::from(key.nice))
            .trunc()
            .clamp(0.0, PRIORITY_MAX) as i64
    }
}

impl Slurm {
    pub(crate) fn new(params: SlurmParams) -> Self {
        Self {
            places: Places::new(params.placement.clone()),
            jobs: Arc::default(),
            fair: None,
            limits: Limits::default(),
            preemption: Preemption::default(),
            queue: Queue::default(),
            running: Running::default(),
            planner: Planner::default(),
            homes: Homes::default(),
            alarm: Alarm::OFF,
            main: Quiet::NO,
            backfill: Quiet::NO,
            params,
        }
    }

    /// Returns the time limit of a job.
    fn limit(&self, view: &ClusterView<'_>, job: JobId) -> Result<SimSpan, PolicyError> {
        if let Some(limit) = view.jobs().time_limit(job) {
            return Ok(limit);
        }
        if self.params.limit_factor > 0.0 {
            let duration = Seen::AS_TOLD.duration(view, job)?;
            let limit = self.params.limit_factor * duration.0 as f64;
            let is_long = limit >= SPAN_MAX.0 as f64;
            return Ok(if is_long {
                UNLIMITED
            } else {
                SimSpan((limit.round() as i64).max(1))
            });
        }
        let default = self.params.default_limit;
        Ok(if default > SimSpan::ZERO {
            default
        } else {
            UNLIMITED
        })
    }

    /// Returns the planned end of a job that starts at the given instant.
    fn end(&self, begin: SimTime, limit: SimSpan) -> SimTime {
        self.planner.up(begin + limit)
    }

    fn has_home(&mut self, view: &ClusterView<'_>, job: JobId) -> bool {
        let jobs = Arc::clone(&self.jobs);
        let kind = jobs.of(job).kind;
        let Homes { empty, of_kind } = &mut self.homes;
        let Some(free) = empty else { return true };
        *of_kind[kind].get_or_insert_with(|| {
            let kind = &jobs.kinds[kind];
            let starts = (job, view.starts(job));
            let mut types = kind.types.iter();
            types.any(|&id| self.places.place_in(free, kind.class, starts, id).is_some())
        })
    }

    fn note_servers(&mut self, view: &ClusterView<'_>) {
        let all = 0..view.cluster().servers().len();
        let down: Vec<ServerId> = all
            .map(ServerId::new)
            .filter(|&id| !view.is_up(id))
            .collect();
        let is_any_down = !down.is_empty();
        self.homes = Homes {
            empty: is_any_down.then(|| FreeIndex::with_down(view.cluster(), down.into_iter())),
            of_kind: vec![None; self.jobs.kinds.len()],
        };
    }

    /// Records the changes. Returns whether a pass may have more to do than the previous one.
    fn update(&mut self, view: &ClusterView<'_>, changes: &Changes) -> bool {
        let now = view.now();
        if let Some(fair) = &mut self.fair {
            fair.bring_up(now);
        }
        self.running.started.clear();
        self.running.stopped.clear();
        let jobs = Arc::clone(&self.jobs);
        for &job in changes.finished.iter().chain(&changes.requeued) {
            self.note_stop(&jobs, job, now);
        }
        for &job in changes.requeued.iter().chain(&changes.arrived) {
            self.queue.join(&jobs, job);
        }
        if changes.has_servers() {
            self.note_servers(view);
        }
        let is_any_awake = self.queue.wake(&jobs, now);
        is_any_awake || changes.has_room() || !changes.arrived.is_empty()
    }

    fn note_stop(&mut self, jobs: &JobKinds, job: JobId, now: SimTime) {
        let profile = jobs.of(job);
        self.running.stop(job);
        self.limits.stop(&profile.counts);
        if let Some(fair) = &mut self.fair {
            fair.stop(profile.meter, profile.gpus, now);
        }
    }

    /// Starts a job and preempts other jobs for it.
    fn start(
        &mut self,
        (view, plan): (&ClusterView<'_>, &mut Plan<'_>),
        job: JobId,
        gpus: GpuSet,
        victims: &[JobId],
    ) -> Result<SimTime, PolicyError> {
        let now = view.now();
        let jobs = Arc::clone(&self.jobs);
        for &victim in victims {
            plan.preempt(victim);
            plan.release(victim);
            self.note_stop(&jobs, victim, now);
            self.running.stopped.push(victim);
            self.queue.delay(victim, now + self.params.requeue_delay);
        }
        let profile = jobs.of(job);
        let end = if self.params.backfill.is_some() {
            self.end(now, self.limit(view, job)?)
        } else {
            SimTime::NEVER
        };
        self.queue.leave(&jobs, job);
        self.limits.start(&profile.counts);
        if let Some(fair) = &mut self.fair {
            fair.start(profile.meter, profile.gpus, now);
        }
        self.running.start(job, gpus.clone(), end);
        plan.start(job, gpus);
        (self.main, self.backfill) = (Quiet::NO, Quiet::NO);
        Ok(end)
    }

    /// Returns the jobs to preempt for a job, chosen from the jobs on servers without bookings, and the GPUs that the
    /// job then gets.
    fn way(
        &mut self,
        (view, plan): (&ClusterView<'_>, &mut Plan<'_>),
        seeker: &Seeker<'_>,
    ) -> Option<(Vec<JobId>, GpuSet)> {
        let Self {
            preemption,
            places,
            planner,
            running,
            jobs,
            ..
        } = self;
        let is_meant = |run: &Run| {
            let is_open = |server| !planner.is_shut(server);
            let mut servers = run.gpus().by_server().iter();
            !running.stopped.contains(&run.job) && servers.all(|one| is_open(one.server))
        };
        let qos_of = |job| jobs.of(job).qos;
        let (victims, gpus) = preemption.find((view, places, plan), seeker, qos_of, is_meant)?;
        Some((victims.iter().map(|victim| victim.job).collect(), gpus))
    }

    fn priority<'a>(&mut self, view: &ClusterView<'a>) -> Priority<'a> {
        let factors = self.fair.as_mut().map(FairShare::factors);
        Priority {
            now: view.now(),
            weights: self.params.weights,
            max_age_s: self.params.max_age_s,
            factors: factors.unwrap_or_default(),
            jobs: view.jobs(),
        }
    }

    /// Walks over at most `depth` jobs of the queue in order, and tries to start each of them on free GPUs or by
    /// preemption. If a job cannot start, no later job of its partition starts either.
    fn main_pass(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        depth: usize,
    ) -> Result<(), PolicyError> {
        let jobs = Arc::clone(&self.jobs);
        let mut hope = Hope::new(&self.queue, &jobs, &self.places, plan.free());
        if hope.is_over() {
            return Ok(());
        }
        let priority = self.priority(view);
        let mut walk = self.queue.walk(|key, job| priority.of(key, job));
        let mut blocked = vec![false; jobs.partitions];
        let mut seen = 0;
        while !hope.is_over()
            && let Some(at) = walk.next()
        {
            if seen == depth {
                return Ok(());
            }
            seen += 1;
            let job = at.0;
            let profile = jobs.of(job);
            let kind = &jobs.kinds[profile.kind];
            hope.see(profile);
            let is_blocked = &mut blocked[kind.partition as usize];
            let is_skipped =
                *is_blocked || self.limits.is_held(&profile.counts) || !self.has_home(view, job);
            if !is_skipped {
                let seeker = Seeker {
                    job,
                    qos: profile.qos,
                    kind,
                };
                if let Some(gpus) = seeker.place(&mut self.places, plan) {
                    self.start((view, plan), job, gpus, &[])?;
                    hope.ask(&jobs, &self.places, plan.free());
                } else if profile.can_preempt()
                    && let Some((victims, gpus)) = self.way((view, plan), &seeker)
                {
                    self.start((view, plan), job, gpus, &victims)?;
                    hope.ask(&jobs, &self.places, plan.free());
                } else {
                    *is_blocked = true;
                }
            }
            if *is_blocked && depth == usize::MAX {
                continue; // The rest of this partition is skipped.
            }
            walk.go_on(&self.queue, at);
        }
        if self.queue.preemptors == 0 && plan.is_empty() {
            self.main = self.quiet(self.queue.next_eligible());
        }
        Ok(())
    }

    /// Returns a record that a pass would do nothing before the given instant if nothing changes.
    fn quiet(&self, until: SimTime) -> Quiet {
        let ticks = self.fair.as_ref().map_or(0, FairShare::ticks);
        Quiet { until, ticks }
    }

    /// Returns whether a pass would do nothing. This is certain only if the order of jobs cannot have changed.
    fn is_quiet(&self, pass: Quiet, now: SimTime) -> bool {
        let ticks = self.fair.as_ref().map_or(0, FairShare::ticks);
        let is_fixed = self.params.weights.age == 0.0 && ticks == pass.ticks;
        now < pass.until && (is_fixed || self.queue.is_one_line())
    }

    /// Returns the expected ends of running jobs; overdue jobs are expected to end at the next instant of the grid.
    fn ends(&self, now: SimTime) -> Ends {
        let soon = self.planner.up(now + SimSpan(1));
        let ends = self.running.ends.iter();
        ends.map(|&(end, job)| (end.max(soon), job)).collect()
    }

    /// Plans a start for each job of the queue in order, and starts the jobs that are planned for now.
    fn backfill_pass(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<(), PolicyError> {
        let (Some(params), now) = (self.params.backfill, view.now()) else {
            return Ok(());
        };
        let jobs = Arc::clone(&self.jobs);
        let mut hope = Hope::new(&self.queue, &jobs, &self.places, plan.free());
        if hope.is_over() {
            return Ok(());
        }
        let before = plan.actions().len();
        let is_monotone = !self.places.has_non_monotone(plan.free());
        self.planner.begin(self.ends(now), plan.free());
        let (tests, mut chances) = self.tests(view, params.max_job_test)?;
        let mut tested: FxHashMap<u32, u32> = FxHashMap::default();
        for Test {
            job,
            limit,
            next_end,
        } in tests
        {
            if hope.preemptors == 0 && chances.are_over(&hope) {
                break;
            }
            let profile = jobs.of(job);
            hope.see(profile);
            chances.end[profile.kind] = next_end;
            let of_user = tested.entry(profile.user).or_default();
            *of_user += 1;
            let is_skipped = params.max_job_user > 0 && *of_user > params.max_job_user
                || self.limits.is_held(&profile.counts)
                || !self.has_home(view, job);
            if is_skipped {
                continue;
            }
            let bookings = self.planner.bookings();
            let starts = self.plan_job((view, plan), job, limit, is_monotone)?;
            if starts {
                hope.ask(&jobs, &self.places, plan.free());
                self.planner.note_free(plan.free());
            }
            if starts || self.planner.bookings() > bookings {
                chances.ask(&jobs, &self.places, &self.planner.open_gpus());
            }
        }
        self.planner.rewind(plan.free(), 0);
        if before == plan.actions().len() && self.queue.preemptors == 0 && is_monotone {
            let horizon = now + params.window;
            let beyond = self.planner.first_end_after(horizon);
            let until = SimTime(beyond.0.saturating_sub(params.window.0));
            let first = self.planner.first_end_after(now);
            self.backfill = self.quiet(until.min(first).min(self.queue.next_eligible()));
        }
        Ok(())
    }

    /// Returns the first jobs of the queue, in order, and the chances that they have while nothing is booked yet.
    fn tests(
        &mut self,
        view: &ClusterView<'_>,
        count: usize,
    ) -> Result<(Vec<Test>, Chances), PolicyError> {
        let priority = self.priority(view);
        let mut walk = self.queue.walk(|key, job| priority.of(key, job));
        let mut tests = Vec::with_capacity(count.min(self.queue.len()));
        while tests.len() < count
            && let Some(at) = walk.next()
        {
            let (job, limit) = (at.0, self.limit(view, at.0)?);
            tests.push(Test {
                job,
                limit,
                next_end: None,
            });
            walk.go_on(&self.queue, at);
        }
        let kinds = self.jobs.kinds.len();
        let mut chances = Chances {
            end: vec![None; kinds],
            open_until: vec![SimTime::NEVER; kinds],
        };
        for test in tests.iter_mut().rev() {
            let first_end = &mut chances.end[self.jobs.of(test.job).kind];
            test.next_end = *first_end;
            let end = self.end(view.now(), test.limit);
            *first_end = Some(first_end.map_or(end, |other| end.min(other)));
        }
        Ok((tests, chances))
    }

    /// Plans the start of a job. Returns whether the job starts now.
    fn plan_job(
        &mut self,
        (view, plan): (&ClusterView<'_>, &mut Plan<'_>),
        job: JobId,
        limit: SimSpan,
        is_monotone: bool,
    ) -> Result<bool, PolicyError> {
        let jobs = Arc::clone(&self.jobs);
        let profile = jobs.of(job);
        let seeker = Seeker {
            job,
            qos: profile.qos,
            kind: &jobs.kinds[profile.kind],
        };
        let now = view.now();
        let horizon = now + self.params.backfill.map_or(SimSpan::ZERO, |own| own.window);
        // In a pass without preemption, free GPUs only decrease.
        let is_known = is_monotone && !profile.can_preempt();
        let earliest = self.planner.earliest(profile.kind, limit);
        let mut begin = earliest.filter(|_| is_known).unwrap_or(now);
        if begin > horizon || begin == SimTime::NEVER {
            return Ok(false);
        }
        let running = &self.running;
        self.planner
            .begin_search(plan.free(), begin, |job| running.gpus(view, job));
        let found = loop {
            let span = (begin, self.end(begin, limit));
            let running = &self.running;
            self.planner
                .look_at(plan.free(), span, |job| running.gpus(view, job));
            if let Some(gpus) = seeker.place(&mut self.places, plan) {
                break Some((Vec::new(), gpus));
            }
            if begin == now && profile.can_preempt() {
                let way = self.way((view, plan), &seeker);
                if way.is_some() {
                    break way;
                }
            }
            begin = self.planner.next_start();
            if begin > horizon || begin == SimTime::NEVER {
                break None;
            }
        };
        self.planner.end_search(plan.free());
        if is_known {
            self.planner.note_earliest(profile.kind, limit, begin);
        }
        let Some((victims, gpus)) = found else {
            return Ok(false);
        };
        let end = self.end(begin, limit);
        if begin > now {
            let servers = gpus.by_server().iter().map(|one| one.server);
            self.planner.book(servers, begin, end);
            return Ok(false);
        }
        let emptied: BTreeSet<ServerId> = victims
            .iter()
            .flat_map(|&victim| self.running.gpus(view, victim).by_server())
            .map(|one| one.server)
            .collect();
        self.start((view, plan), job, gpus, &victims)?;
        for &victim in &victims {
            self.planner.remove_end(victim);
        }
        if !victims.is_empty() {
            self.planner.forget_earliest();
            self.planner.book(emptied, now, end);
        }
        self.planner.add_end(end, job);
        Ok(true)
    }

    /// Returns the next instant at which a pass is due.
    fn next_pass(&self, now: SimTime) -> SimTime {
        let next = |every: SimSpan| match every.0 {
            0 => SimTime::NEVER,
            every => SimTime((now.0 / every + 1).saturating_mul(every)),
        };
        let backfill = self
            .params
            .backfill
            .map_or(SimTime::NEVER, |own| next(own.interval));
        backfill.min(next(self.params.sched_interval))
    }
}

/// Returns whether an instant is a multiple of a period; false for a period of 0.
fn is_due(now: SimTime, every: SimSpan) -> bool {
    every > SimSpan::ZERO && now.0 % every.0 == 0
}

impl Policy for Slurm {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            wake_on: WakeOn::QUEUE | WakeOn::TIMER,
            knowledge: if self.params.limit_factor > 0.0 {
                Knowledge::Remaining
            } else {
                Knowledge::Online
            },
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        self.params.check_types(view.cluster())?;
        let mut unplaceable = self.places.start(view, plan)?;
        let resolution = self
            .params
            .backfill
            .map_or(SimSpan(1), |own| own.resolution);
        self.planner = Planner::new(view.cluster().servers().len(), resolution);
        let known = {
            let limit = |job| self.limit(view, job).unwrap_or(UNLIMITED);
            JobKinds::of_trace(view, &self.places, &self.params, limit)
        };
        let jobs = known.jobs;
        let has_place = |job: JobId| {
            let mut types = jobs.kinds[jobs.of(job).kind].types.iter();
            types.any(|&id| self.places.has_home(job, id))
        };
        let is_refused =
            |&job: &JobId| !has_place(job) || known.limits.is_beyond(&jobs.of(job).counts);
        unplaceable.extend(view.jobs().ids().filter(is_refused));
        unplaceable.sort_unstable();
        unplaceable.dedup();
        self.preemption = Preemption::new(&self.params, &known.qos_names);
        self.queue = Queue::new(jobs.kinds.len(), self.params.weights.age > 0.0);
        self.limits = known.limits;
        self.fair = (self.params.weights.fairshare > 0.0).then_some(known.fair);
        self.jobs = Arc::new(jobs);
        Ok(unplaceable)
    }

    fn why_never(&self, _view: &ClusterView<'_>, job: JobId) -> InfeasibleReason {
        if self.limits.is_beyond(&self.jobs.of(job).counts) {
            InfeasibleReason::Policy(
                "asks for more GPUs than a limit of its QOS, its user or its account allows",
            )
        } else {
            InfeasibleReason::Placement
        }
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        let now = view.now();
        if self.update(view, changes) {
            (self.main, self.backfill) = (Quiet::NO, Quiet::NO);
        }
        let is_event =
            changes.has_servers() || !(changes.arrived.is_empty() && changes.finished.is_empty());
        if is_due(now, self.params.sched_interval) {
            if !self.is_quiet(self.main, now) {
                self.main_pass(view, plan, usize::MAX)?;
            }
        } else if is_event {
            self.main_pass(view, plan, self.params.queue_depth)?;
        }
        let interval = self
            .params
            .backfill
            .map_or(SimSpan::ZERO, |own| own.interval);
        if is_due(now, interval) && !self.is_quiet(self.backfill, now) {
            self.backfill_pass(view, plan)?;
        }
        if !self.running.stopped.is_empty() {
            plan.sort_preemptions(|job| job);
        }
        let next = if self.queue.len() > 0 {
            self.next_pass(now)
        } else {
            SimTime::NEVER
        };
        self.alarm.set(now, next, plan);
        Ok(Next::Ask)
    }

    fn reasons(&self) -> Vec<&'static Reason> {
        vec![
            &OF_QOS,
            &OF_USER,
            &OF_USER_JOBS,
            &OF_ACCOUNT,
            &NO_PLACE,
            &ORDER,
            &REQUEUED,
        ]
    }

    fn why(&self, view: &ClusterView<'_>, job: JobId) -> Option<Cause> {
        let profile = self.jobs.of(job);
        let until = self.queue.since(job);
        if let Some(until) = until.filter(|&until| until > view.now()) {
            return Some(Cause::new(&REQUEUED).until(until));
        }
        if let Some(cause) = self.limits.why_held(&profile.counts) {
            return Some(cause);
        }
        let types = &self.jobs.kinds[profile.kind].types;
        let has_place = self.places.has_place(view, job, types);
        Some(Cause::new(if has_place { &ORDER } else { &NO_PLACE }))
    }
}
