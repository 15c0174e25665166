//! `las` in its discretised form and `gittins`: queues by attained service, with preemption.
//!
//! A job's key is (protection, queue, rank of its index, first start or position). The key changes only at known
//! instants: when the job reaches the limit of its queue, when its index changes, when its protection ends, and when it
//! is promoted. If keys contain positions, the key also changes when the job starts or stops. Each job has one timer,
//! set to the earliest of these instants (apart from starts and stops).

use super::GittinsIndex;
use super::line::Line;
use crate::kit::JobTimers;
use crate::params::ParamReader;
use crate::place::PlacementParams;
use crate::preempt::{Key, Measure, Pass, Protection};
use gangline_engine::{
    Cause, Changes, ClusterView, Next, Plan, Policy, PolicyError, PolicyTraits, Reason, WakeOn,
};
use gangline_model::{JobId, SimSpan, SimTime, Verb};

/// Bit that is set in the leading part of a job's key if the job may be preempted, so that protected jobs come first.
const OPEN: u64 = 1 << 63;
/// Value that stands for the first start of a job that has not started yet.
const NEVER_STARTED: i64 = i64::MAX;

/// Parameters of [`QueuedService`]. Attained service is in GPU-ns, or in ns if `is_time` is set.
#[derive(Clone, Debug)]
pub(crate) struct QueuedParams {
    /// Name of the policy, for messages.
    pub policy: String,
    /// For each queue except the last, the attained service at which a job leaves it.
    pub limits: Vec<i128>,
    /// A waiting job is promoted after this multiple of the time that it has executed since its last promotion; 0 means
    /// never.
    pub promote_knob: f64,
    /// Whether service is measured as time, independent of the gang size.
    pub is_time: bool,
    /// Time after a start or move during which a job may not be preempted.
    pub protection: Protection,
    /// Whether the running jobs of a queue come before its waiting jobs.
    pub running_first: bool,
    /// Quantum of the Gittins index; `None` means that there is no index (LAS).
    pub delta: Option<i128>,
    /// Total service of each job, from which the index is computed; `None` means that the jobs of the trace are used.
    pub distribution: Option<Vec<i128>>,
}

impl QueuedParams {
    pub(crate) fn read(params: &ParamReader, has_index: bool) -> Result<Self, PolicyError> {
        let services = |name: &str| -> Result<Option<Vec<i128>>, PolicyError> {
            let Some(list) = params.list(name) else {
                return Ok(None);
            };
            let all: Result<Vec<i128>, _> = list.iter().map(|&x| params.gpu_ns(name, x)).collect();
            all.map(Some)
        };
        let mut distribution = if has_index {
            services("distribution")?
        } else {
            None
        };
        if let Some(list) = &mut distribution {
            list.sort_unstable();
        }
        let delta = has_index.then(|| params.gpu_ns("delta", params.number("delta")));
        Ok(Self {
            policy: params.policy().to_owned(),
            limits: services("limits")?.unwrap_or_default(),
            promote_knob: params.number("promote_knob"),
            is_time: params.flag("las_time"),
            protection: Protection::read(params)?,
            running_first: !has_index && params.flag("running_first"),
            delta: delta.transpose()?.map(|delta| delta.max(1)),
            distribution,
        })
    }
}

/// The policies `las` (with queues) and `gittins`.
#[derive(Debug)]
pub(crate) struct QueuedService {
    params: QueuedParams,
    index: Option<GittinsIndex>,
    pass: Pass,
    timers: JobTimers,
    queue: Vec<u16>,
    /// For each job, the time in ns that it had executed at its last promotion; empty if jobs are never promoted.
    promoted_at: Vec<i64>,
    /// Instant at which each waiting job last stopped; empty if jobs are never promoted.
    last_stop: Vec<SimTime>,
    /// Positions within the queues; `None` means that jobs are ordered by first start.
    line: Option<Line>,
    demotions: u64,
    promotions: u64,
}

impl QueuedService {
    /// Creates the policy with its parameters and a placement rule.
    pub(crate) fn new(params: QueuedParams, placement: PlacementParams) -> Self {
        let measure = if params.running_first {
            Measure::Fixed
        } else {
            Measure::FirstStart
        };
        Self {
            params,
            index: None,
            pass: Pass::new(placement, measure),
            timers: JobTimers::new(0),
            queue: Vec::new(),
            promoted_at: Vec::new(),
            last_stop: Vec::new(),
            line: None,
            demotions: 0,
            promotions: 0,
        }
    }

    fn promotes(&self) -> bool {
        self.params.promote_knob > 0.0
    }

    /// Returns the service that a job attains per unit of time with GPUs.
    fn scale(&self, view: &ClusterView<'_>, job: JobId) -> i128 {
        if self.params.is_time {
            1
        } else {
            i128::from(view.jobs().gpus(job))
        }
    }

    /// Returns the run time in ns since the last promotion, without overhead.
    fn executed(&self, view: &ClusterView<'_>, job: JobId) -> i64 {
        view.executed(job).0 - self.promoted_at.get(job.index()).copied().unwrap_or(0)
    }

    fn attained(&self, view: &ClusterView<'_>, job: JobId) -> i128 {
        i128::from(self.executed(view, job)) * self.scale(view, job)
    }

    /// Returns the rank of a job's index; 0 if the policy has no index.
    #[inline]
    fn rank(&self, view: &ClusterView<'_>, job: JobId) -> u32 {
        let index = self.index.as_ref();
        index.map_or(0, |index| index.rank(self.attained(view, job)))
    }

    fn key(&self, job: JobId, rank: u32, first_start: i64, is_open: bool) -> Key {
        let queue = u64::from(self.queue[job.index()]);
        let open = if is_open { OPEN } else { 0 };
        let line = self.line.as_ref();
        Key {
            lead: open | queue << 32 | u64::from(rank),
            main: line.map_or(first_start, |line| line.position(job)),
            job: job.0,
        }
    }

    fn first_start(view: &ClusterView<'_>, job: JobId) -> i64 {
        view.first_start(job).map_or(NEVER_STARTED, |time| time.0)
    }

    /// Moves a job down, queue by queue, until its attained service is below the limit of its queue.
    fn demote(&mut self, job: JobId, attained: i128) {
        let queue = &mut self.queue[job.index()];
        let before = *queue;
        while self
            .params
            .limits
            .get(usize::from(*queue))
            .is_some_and(|&limit| attained >= limit)
        {
            *queue += 1;
            self.demotions += 1;
        }
        if *queue != before
            && let Some(line) = &mut self.line
        {
            line.changed.push(job);
        }
    }

    /// Puts a waiting job into its queue and sets the timer for its promotion.
    fn wait(&mut self, view: &ClusterView<'_>, job: JobId) {
        let rank = self.rank(view, job);
        let key = self.key(job, rank, Self::first_start(view, job), true);
        self.pass.wait(key);
        if self.promotes() {
            self.timers.set(job, self.promotion_at(view, job));
        }
    }

    /// Returns the instant at which a waiting job returns to the first queue; it is at least one nanosecond from now.
    fn promotion_at(&self, view: &ClusterView<'_>, job: JobId) -> SimTime {
        if self.queue[job.index()] == 0 {
            return SimTime::NEVER;
        }
        let patience = self.params.promote_knob * self.executed(view, job) as f64;
        let at = self.last_stop[job.index()] + SimSpan(patience.round() as i64);
        at.max(SimTime(view.now().0 + 1))
    }

    /// Sets the timer of a running job to the first change of its key; `since` is the instant from which it makes
    /// progress.
    fn arm(&mut self, view: &ClusterView<'_>, job: JobId, started: SimTime, since: SimTime) {
        let limit = self.params.limits.get(usize::from(self.queue[job.index()]));
        let mut service = i128::MAX;
        if limit.is_some() || self.index.is_some() {
            let attained = self.attained(view, job);
            if let Some(limit) = limit {
                service = limit - attained;
            }
            if let Some(index) = &self.index {
                service = service.min(index.to_next_point(attained));
            }
        }
        let mut at = SimTime::NEVER;
        if service != i128::MAX {
            at = since + SimSpan(time_to(service, self.scale(view, job)));
        }
        let protected_until = started + self.params.protection.span;
        if protected_until > view.now() {
            at = at.min(protected_until);
        }
        self.timers.set(job, at);
    }

    /// Handles the timer of a running job, whose key may change, and sets the next timer.
    fn refresh_running(&mut self, view: &ClusterView<'_>, job: JobId) {
        let run = view.run(job).expect("a running job");
        let attained = self.attained(view, job);
        self.demote(job, attained);
        self.rekey(view, job, run.started);
        let since = view.now().max(run.only().progress_start);
        self.arm(view, job, run.started, since);
    }

    /// Reports the current key of a running job to the preemption pass.
    fn rekey(&mut self, view: &ClusterView<'_>, job: JobId, started: SimTime) {
        let is_open = started + self.params.protection.span <= view.now();
        let rank = self.rank(view, job);
        let key = self.key(job, rank, Self::first_start(view, job), is_open);
        self.pass.rekey(key);
    }

    /// Handles the timer of a waiting job, which returns to the first queue.
    fn promote(&mut self, view: &ClusterView<'_>, job: JobId) {
        self.queue[job.index()] = 0;
        self.promoted_at[job.index()] = view.executed(job).0;
        self.promotions += 1;
        if let Some(line) = &mut self.line {
            line.changed.push(job);
        }
        self.wait(view, job);
    }

    fn update(&mut self, view: &ClusterView<'_>, changes: &Changes) {
        for &job in &changes.finished {
            self.pass.leave(job);
            self.timers.clear(job);
        }
        if let Some(line) = &mut self.line {
            line.stop(changes.requeued.clone());
        }
        for &job in &changes.requeued {
            self.pass.leave(job);
            self.timers.clear(job);
            self.demote(job, self.attained(view, job));
            self.note_stop(view, job);
            self.wait(view, job);
        }
        self.pass.servers_changed(view, changes);
        for &job in &changes.arrived {
            if let Some(line) = &mut self.line {
                line.join(job);
            }
            let rank = self.rank(view, job);
            let key = self.key(job, rank, NEVER_STARTED, true);
            self.pass.wait(key);
        }
        while let Some(job) = self.timers.due(view.now()) {
            if self.pass.is_running(job) {
                self.refresh_running(view, job);
            } else {
                self.promote(view, job);
            }
        }
        if self.line.is_some() {
            self.join_queues(view);
        }
    }

    /// Puts the jobs that have changed queues behind all other jobs of their new queues.
    fn join_queues(&mut self, view: &ClusterView<'_>) {
        let line = self.line.as_mut().expect("positions");
        let changed = line.join_changed();
        for job in changed {
            if let Some(run) = view.run(job) {
                self.rekey(view, job, run.started);
            } else {
                self.wait(view, job);
            }
        }
    }

    /// In each queue, moves jobs that will run after the plan is applied ahead of the waiting jobs.
    fn settle(&mut self, view: &ClusterView<'_>, plan: &Plan<'_>) {
        let line = self.line.as_mut().expect("positions");
        let (mut stopped, mut running) = (Vec::new(), Vec::new());
        for action in plan.actions() {
            if action.verb == Verb::Preempt {
                stopped.push(action.job);
            } else {
                running.push(action.job);
            }
        }
        let mut kept = std::mem::take(&mut line.changed);
        kept.retain(|job| self.pass.is_running(*job) && !running.contains(job));
        running.extend(&kept);
        line.run(running);
        line.stop(stopped);
        for job in kept {
            let run = view.run(job).expect("a running job");
            self.rekey(view, job, run.started);
        }
    }

    fn note_stop(&mut self, view: &ClusterView<'_>, job: JobId) {
        if let Some(last) = self.last_stop.get_mut(job.index()) {
            *last = view.now();
        }
    }

    /// Updates keys and timers of the jobs that the plan starts, moves and stops.
    fn follow_up(&mut self, view: &ClusterView<'_>, plan: &Plan<'_>) {
        if self.line.is_some() {
            self.settle(view, plan);
        }
        let now = view.now();
        let is_open = self.params.protection.span == SimSpan::ZERO;
        for action in plan.actions() {
            let job = action.job;
            if action.verb == Verb::Preempt {
                self.timers.clear(job);
                self.note_stop(view, job);
                self.wait(view, job);
            } else {
                let first_start = view.first_start(job).unwrap_or(now).0;
                let key = self.key(job, self.rank(view, job), first_start, is_open);
                self.pass.rekey(key);
                let overhead = action
                    .gpus()
                    .map_or(SimSpan::ZERO, |gpus| view.overhead_at(job, gpus));
                self.arm(view, job, now, now + overhead);
            }
        }
    }
}

/// Returns the number of nanoseconds (rounded up) until a service is reached, if service grows by `scale` per
/// nanosecond.
#[inline]
fn time_to(service: i128, scale: i128) -> i64 {
    // If the numbers fit, as they nearly always do, a 64-bit division is used, which is one instruction.
    if let (Ok(service), Ok(scale)) = (i64::try_from(service), i64::try_from(scale)) {
        return (service - 1).div_euclid(scale) + 1;
    }
    i64::try_from((service - 1).div_euclid(scale) + 1).unwrap_or(i64::MAX)
}

impl Policy for QueuedService {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            wake_on: WakeOn::QUEUE | WakeOn::TIMER,
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        let unplaceable = self.pass.start(view, plan)?;
        self.params.protection.check(view, &self.pass.places)?;
        let jobs = view.jobs().len();
        self.timers = JobTimers::new(jobs);
        self.queue = vec![0; jobs];
        self.line = self.params.running_first.then(|| Line::new(jobs));
        if self.promotes() {
            self.promoted_at = vec![0; jobs];
            self.last_stop = vec![SimTime::ZERO; jobs];
        }
        if let Some(delta) = self.params.delta {
            let index = if let Some(services) = &self.params.distribution {
                GittinsIndex::new(services, delta)
            } else if view.tells_by_history() {
                return Err(PolicyError::Parameter {
                    policy: self.params.policy.clone(),
                    field: "estimates".to_owned(),
                    value: "a history of finished jobs".to_owned(),
                    expected:
                        "durations that are known before the run, or the parameter `distribution`"
                            .to_owned(),
                });
            } else {
                let is_time = self.params.is_time;
                GittinsIndex::new(&view.service_distribution(is_time, &unplaceable), delta)
            };
            self.index = Some(index.ok_or_else(|| PolicyError::Parameter {
                policy: self.params.policy.clone(),
                field: "delta".to_owned(),
                value: (delta as f64 / 1e9).to_string(),
                expected: "at least 2^-24 of the largest service".to_owned(),
            })?);
        }
        Ok(unplaceable)
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        self.update(view, changes);
        self.pass.decide(view, plan);
        self.follow_up(view, plan);
        self.timers.flush(view.now(), plan);
        Ok(Next::Ask)
    }

    fn reasons(&self) -> Vec<&'static Reason> {
        Pass::reasons()
    }

    fn why(&self, view: &ClusterView<'_>, job: JobId) -> Option<Cause> {
        Some(self.pass.why(view, job))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("demotions", self.demotions),
            ("promotions", self.promotions),
        ]
    }
}
