//! `las` without queues: the key is the attained service, with a head start for running jobs.
//!
//! The key of a running job grows in proportion to its gang size. Every decision therefore recomputes the keys of all
//! running jobs, and walks over the running jobs and the first job of each class. The cost is O(running log running).
//! Between decisions, a timer waits until the key of a running job exceeds the key of a waiting job.

use crate::kit::JobTimers;
use crate::place::PlacementParams;
use crate::preempt::{Key, Measure, Pass, Protection};
use gangline_engine::{
    Cause, Changes, ClusterView, Next, Plan, Policy, PolicyError, PolicyTraits, Reason, WakeOn,
};
use gangline_model::{JobId, SimSpan, SimTime, Verb};
use std::collections::BTreeSet;

/// Bit that is set in the leading part of a job's key if the job may be preempted, so that protected jobs come first.
const OPEN: u64 = 1 << 63;
/// Offset that is added to the value of each key so that no value is negative; it is larger than every head start.
const BIAS: i128 = 1 << 110;
/// Number of low bits of the value that are stored in the `main` part of a key; the `lead` part contains the others.
const LOW: u32 = 62;

/// The policy `las` without queues.
#[derive(Debug)]
pub(crate) struct ContinuousLas {
    /// Head start of a running job, in GPU-ns for each GPU of its gang.
    quantum: i128,
    is_time: bool,
    protection: Protection,
    pass: Pass,
    timers: Option<JobTimers>,
    /// All waiting jobs, ordered by attained service.
    waiting: BTreeSet<(i128, JobId)>,
    running: Vec<JobId>,
}

impl ContinuousLas {
    /// Creates the policy with its settings and a placement rule.
    pub(crate) fn new(
        quantum: i128,
        is_time: bool,
        protection: Protection,
        placement: PlacementParams,
    ) -> Self {
        Self {
            quantum,
            is_time,
            protection,
            pass: Pass::new(placement, Measure::Growing),
            timers: None,
            waiting: BTreeSet::new(),
            running: Vec::new(),
        }
    }

    fn scale(&self, view: &ClusterView<'_>, job: JobId) -> i128 {
        if self.is_time {
            1
        } else {
            i128::from(view.jobs().gpus(job))
        }
    }

    fn attained(&self, view: &ClusterView<'_>, job: JobId) -> i128 {
        i128::from(view.executed(job).0) * self.scale(view, job)
    }

    fn key(job: JobId, value: i128, is_open: bool) -> Key {
        let value = value + BIAS;
        let open = if is_open { OPEN } else { 0 };
        let main = (value & ((1 << LOW) - 1)) as i64;
        Key {
            lead: open | (value >> LOW) as u64,
            main,
            job: job.0,
        }
    }

    fn wait(&mut self, view: &ClusterView<'_>, job: JobId) {
        let attained = self.attained(view, job);
        self.waiting.insert((attained, job));
        self.pass.wait(Self::key(job, attained, true));
    }

    /// Returns the current value of a running job's key.
    fn value(&self, view: &ClusterView<'_>, job: JobId) -> i128 {
        self.attained(view, job) - self.quantum * self.scale(view, job)
    }

    fn update(&mut self, view: &ClusterView<'_>, changes: &Changes) {
        for &job in changes.finished.iter().chain(&changes.requeued) {
            self.pass.leave(job);
        }
        self.pass.servers_changed(view, changes);
        for &job in changes.requeued.iter().chain(&changes.arrived) {
            self.wait(view, job);
        }
        self.running.clear();
        self.running.extend(view.running());
        let running = std::mem::take(&mut self.running);
        for &job in &running {
            let run = view.run(job).expect("a running job");
            let is_open = run.started + self.protection.span <= view.now();
            let key = Self::key(job, self.value(view, job), is_open);
            self.pass.rekey(key);
        }
        self.running = running;
    }

    /// Sets the timer of a running job. The timer is due when the job's protection ends, or when its key exceeds that
    /// of the next waiting job. This is the job with the smallest attained service that is at least the current key.
    fn arm(&mut self, job: JobId, value: i128, scale: i128, since: SimTime, open_at: SimTime) {
        let next = self.waiting.range((value, JobId(0))..).next();
        let mut at = next.map_or(SimTime::NEVER, |&(service, _)| {
            let time = (service - value).div_euclid(scale) + 1;
            since + SimSpan(i64::try_from(time).unwrap_or(i64::MAX))
        });
        at = at.min(open_at);
        if let Some(timers) = &mut self.timers {
            timers.set(job, at);
        }
    }

    fn follow_up(&mut self, view: &ClusterView<'_>, plan: &Plan<'_>) {
        let now = view.now();
        let mut begun = Vec::new();
        for action in plan.actions() {
            let job = action.job;
            if action.verb == Verb::Preempt {
                self.wait(view, job);
                continue;
            }
            if let Verb::Start(_) = action.verb {
                let attained = self.attained(view, job);
                self.waiting.remove(&(attained, job));
            }
            let place = action.gpus();
            let overhead = place.map_or(SimSpan::ZERO, |gpus| view.overhead_at(job, gpus));
            begun.push((job, now + overhead));
        }
        // The waiting jobs have changed, so all timers are set again.
        if let Some(timers) = &mut self.timers {
            while timers.due(SimTime::NEVER).is_some() {}
        }
        let span = self.protection.span;
        let protected = |started: SimTime| {
            let until = started + span;
            if until > now { until } else { SimTime::NEVER }
        };
        let open_at = protected(now);
        let running = std::mem::take(&mut self.running);
        for &job in running
            .iter()
            .filter(|&&job| !begun.iter().any(|one| one.0 == job))
        {
            if !self.pass.is_running(job) {
                continue;
            }
            let run = view.run(job).expect("a running job");
            let open_at = protected(run.started);
            let (value, scale) = (self.value(view, job), self.scale(view, job));
            self.arm(
                job,
                value,
                scale,
                now.max(run.only().progress_start),
                open_at,
            );
        }
        self.running = running;
        for (job, since) in begun {
            let (value, scale) = (self.value(view, job), self.scale(view, job));
            self.arm(job, value, scale, since, open_at);
        }
    }
}

impl Policy for ContinuousLas {
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
        self.protection.check(view, &self.pass.places)?;
        self.timers = Some(JobTimers::new(view.jobs().len()));
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
        if let Some(timers) = &mut self.timers {
            timers.flush(view.now(), plan);
        }
        Ok(Next::Ask)
    }

    fn reasons(&self) -> Vec<&'static Reason> {
        Pass::reasons()
    }

    fn why(&self, view: &ClusterView<'_>, job: JobId) -> Option<Cause> {
        Some(self.pass.why(view, job))
    }
}
