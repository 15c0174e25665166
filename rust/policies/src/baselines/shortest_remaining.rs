//! `srtf` and `srsf`: shortest remaining time or service first, with preemption.
//!
//! While a job runs at its best rate, its key is its finish time, which does not change. Only a few jobs get a new key
//! at each decision: jobs in overhead, jobs that are slowed down by their place or a co-runner, and jobs with an
//! inexact estimate.

use crate::kit::JobTimers;
use crate::kit::Seen;
use crate::place::PlacementParams;
use crate::preempt::{Key, Measure, Pass, Protection};
use gangline_engine::{
    Cause, Changes, ClusterView, Knowledge, Next, Plan, Policy, PolicyError, PolicyTraits, Reason,
    WakeOn,
};
use gangline_model::{JobId, SimSpan, SimTime, Tier, Verb};

/// The first part of a sort key. If the policy protects jobs, protected jobs have `PROTECTED` and all others have
/// `OPEN`; otherwise, every job has `PROTECTED`.
const PROTECTED: u64 = 0;
const OPEN: u64 = 1;

/// Shortest remaining time or service first.
#[derive(Debug)]
pub(crate) struct ShortestRemaining {
    seen: Seen,
    /// Time after a start or move during which a job may not be preempted.
    protection: Protection,
    pass: Pass,
    timers: Option<JobTimers>,
    /// Whether the key of every job stays constant while the job runs.
    is_steady: bool,
    /// Running jobs whose key changes as time passes.
    drifting: Vec<JobId>,
}

impl ShortestRemaining {
    /// Creates `srsf` if `by_service` is true, and `srtf` otherwise.
    pub(crate) fn new(
        by_service: bool,
        placement: PlacementParams,
        seen: Seen,
        protection: Protection,
    ) -> Self {
        let measure = if by_service {
            Measure::ShrinkingArea
        } else {
            Measure::Span
        };
        Self {
            seen,
            protection,
            pass: Pass::new(placement, measure),
            timers: None,
            is_steady: false,
            drifting: Vec::new(),
        }
    }

    fn lead(&self, is_protected: bool) -> u64 {
        if self.timers.is_none() || is_protected {
            PROTECTED
        } else {
            OPEN
        }
    }

    fn wait(&mut self, view: &ClusterView<'_>, job: JobId) -> Result<(), PolicyError> {
        let main = self.seen.remaining(view, job)?.0;
        let key = Key {
            lead: self.lead(false),
            main,
            job: job.0,
        };
        self.pass.wait(key);
        Ok(())
    }

    /// Updates the sort key of a running job. Returns whether the key will change again as time passes.
    fn rekey(&mut self, view: &ClusterView<'_>, job: JobId) -> Result<bool, PolicyError> {
        let now = view.now();
        let run = view.run(job).expect("a running job");
        let main = self.seen.remaining(view, job)?.0.saturating_add(now.0);
        let lead = self.lead(run.started + self.protection.span > now);
        self.pass.rekey(Key {
            lead,
            main,
            job: job.0,
        });
        // Other jobs can at any time slow down a gang that spans several racks, because they share its uplinks.
        let is_exposed = run.only().tier == Tier::Network && view.shares_uplinks();
        // The remaining work of an elastic job is rounded again whenever its noise changes.
        let is_elastic = view.elastic(job).is_some();
        let is_steady = view.is_at_best_rate(job) && !is_exposed && !is_elastic;
        Ok(now < run.only().progress_start || !is_steady || !self.seen.is_exact(view))
    }

    /// Records the effects of the last plan and the changes since then.
    fn update(&mut self, view: &ClusterView<'_>, changes: &Changes) -> Result<(), PolicyError> {
        for &job in changes.finished.iter().chain(&changes.requeued) {
            self.pass.leave(job);
            if let Some(timers) = &mut self.timers {
                timers.clear(job);
            }
        }
        self.pass.servers_changed(view, changes);
        let stopped = changes.preempted.iter().chain(&changes.requeued);
        for &job in stopped.chain(&changes.arrived) {
            self.wait(view, job)?;
        }
        let mut drifting = std::mem::take(&mut self.drifting);
        if !self.is_steady {
            drifting.extend(&changes.started);
            for job in &changes.moved {
                if !drifting.contains(job) {
                    drifting.push(*job);
                }
            }
        }
        let mut kept = 0;
        for at in 0..drifting.len() {
            let job = drifting[at];
            if self.pass.is_running(job) && self.rekey(view, job)? {
                drifting[kept] = job;
                kept += 1;
            }
        }
        drifting.truncate(kept);
        self.drifting = drifting;
        while let Some(job) = self
            .timers
            .as_mut()
            .and_then(|timers| timers.due(view.now()))
        {
            self.rekey(view, job)?;
        }
        Ok(())
    }
}

impl Policy for ShortestRemaining {
    fn traits(&self) -> PolicyTraits {
        let wake_on = if self.protection.span == SimSpan::ZERO {
            WakeOn::QUEUE
        } else {
            WakeOn::QUEUE | WakeOn::TIMER
        };
        PolicyTraits {
            wake_on,
            knowledge: Knowledge::Remaining,
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
        let is_protecting = self.protection.span != SimSpan::ZERO;
        self.timers = is_protecting.then(|| JobTimers::new(view.jobs().len()));
        self.is_steady = !is_protecting && self.seen.is_exact(view) && view.is_undisturbed();
        Ok(unplaceable)
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        self.update(view, changes)?;
        self.pass.decide(view, plan);
        if let Some(timers) = &mut self.timers {
            for action in plan.actions() {
                let is_stopped = action.verb == Verb::Preempt;
                let protected_until = view.now() + self.protection.span;
                timers.set(
                    action.job,
                    if is_stopped {
                        SimTime::NEVER
                    } else {
                        protected_until
                    },
                );
            }
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
