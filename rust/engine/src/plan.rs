//! A plan under construction: actions, timers, and a scratch of the free GPUs kept in step with them.

use crate::FreeIndex;
use crate::index::Mark;
use crate::state::State;
use gangline_model::{Action, GpuSet, GpuTypeId, JobId, SimSpan, SimTime, TimerTag};

/// A timer order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerOrder {
    Arm(TimerTag, SimTime),
    Cancel(TimerTag),
}

/// Actions and timer orders of one decision; reused.
#[derive(Debug, Default)]
pub(crate) struct PlanBuffer {
    pub(crate) actions: Vec<Action>,
    pub(crate) timers: Vec<TimerOrder>,
    /// Limits of work for jobs that run after the plan.
    pub(crate) limits: Vec<(JobId, f64)>,
    /// Starts with an overhead of the policy's own.
    pub(crate) overheads: Vec<(JobId, SimSpan)>,
    /// How many of the actions have changed the scratch as well.
    pub(crate) shown: usize,
}

impl PlanBuffer {
    pub(crate) fn clear(&mut self) {
        self.actions.clear();
        self.timers.clear();
        self.limits.clear();
        self.overheads.clear();
        self.shown = 0;
    }

    /// Whether the scratch is the cluster as it will be once the actions are carried out.
    #[inline]
    pub(crate) fn is_shown_by(&self, scratch: &FreeIndex) -> bool {
        self.shown == self.actions.len() && scratch.is_planned()
    }

    #[inline]
    fn push_shown(&mut self, action: Action) {
        self.actions.push(action);
        self.shown += 1;
    }
}

/// What a policy fills. [`Plan::free`] shows the free GPUs *after* the actions so far, so that a policy
/// plans on it without a copy of the cluster; nothing of it lasts if the plan is refused.
#[derive(Debug)]
pub struct Plan<'a> {
    pub(crate) state: &'a State,
    pub(crate) free: &'a mut FreeIndex,
    pub(crate) buffer: &'a mut PlanBuffer,
}

impl Plan<'_> {
    /// Free GPUs after the actions so far (a scratch).
    #[inline]
    pub fn free(&mut self) -> &mut FreeIndex {
        self.free
    }

    /// Free GPUs of a type after the actions so far.
    #[inline]
    pub fn gpus_free(&self, gpu_type: GpuTypeId) -> u32 {
        self.free.pool(gpu_type).free_total()
    }

    /// Starts a waiting job on these GPUs, at full batch, and takes them from the scratch.
    #[inline]
    pub fn start(&mut self, job: JobId, gpus: GpuSet) {
        self.free.plan_take(&gpus);
        self.buffer.push_shown(Action::Start {
            job,
            gpus,
            sub_batch: None,
        });
    }

    /// Stops a running job and gives its GPUs back to the scratch.
    pub fn preempt(&mut self, job: JobId) {
        self.plan_release(job);
        self.buffer.push_shown(Action::Preempt { job });
    }

    /// Puts the preemptions first, in the order of a key.
    pub fn sort_preemptions<K: Ord>(&mut self, mut key: impl FnMut(JobId) -> K) {
        self.buffer
            .actions
            .sort_by_cached_key(|action| match action {
                Action::Preempt { job } => (false, Some(key(*job))),
                _ => (true, None),
            });
    }

    fn plan_release(&mut self, job: JobId) {
        let state = self.state;
        let Some(run) = state.run(job) else { return };
        if state.max_share == 1 {
            self.free.plan_give(&run.gpus);
            return;
        }
        let parts = run.gpus.parts().iter();
        let alone = parts.map(|part| (part.server, state.alone_mask(part.server, part.mask)));
        self.free.plan_give(&alone.collect());
    }

    /// Adds an action without touching the scratch: for plans that were worked out on it before, or beside it.
    #[inline]
    pub fn push(&mut self, action: Action) {
        self.buffer.actions.push(action);
    }

    /// The start of the job in this plan costs `overhead` instead of the run's overhead. Needs
    /// [`crate::Policy::sets_overheads`].
    pub fn set_overhead(&mut self, job: JobId, overhead: SimSpan) {
        self.buffer.overheads.push((job, overhead));
    }

    /// The actions so far, in their order.
    pub fn actions(&self) -> &[Action] {
        &self.buffer.actions
    }

    /// Whether the plan has no action.
    pub fn is_empty(&self) -> bool {
        self.buffer.actions.is_empty()
    }

    /// Scratch only: takes free GPUs. GPUs that are not free stay as they are (a start on them is
    /// refused when the plan is checked, or shares them).
    #[inline]
    pub fn take(&mut self, gpus: &GpuSet) {
        for part in gpus.parts() {
            if self.state.is_up(part.server) {
                let mask = self.free.free_mask(part.server) & !part.mask;
                self.free.set_free_mask(part.server, mask);
            }
        }
    }

    /// Scratch only: gives back GPUs that are known to be held by nobody else.
    #[inline]
    pub fn give_back(&mut self, gpus: &GpuSet) {
        for part in gpus.parts() {
            if self.state.is_up(part.server) {
                let mask = self.free.free_mask(part.server) | part.mask;
                self.free.set_free_mask(part.server, mask);
            }
        }
    }

    /// Scratch only: gives back the GPUs that a running job holds alone.
    pub fn release(&mut self, job: JobId) {
        let state = self.state;
        let Some(run) = state.run(job) else { return };
        for part in run.gpus.parts() {
            let alone = state.alone_mask(part.server, part.mask);
            if alone != 0 && state.is_up(part.server) {
                let mask = self.free.free_mask(part.server) | alone;
                self.free.set_free_mask(part.server, mask);
            }
        }
    }

    /// Remembers the scratch.
    #[inline]
    pub fn mark(&self) -> Mark {
        self.free.mark()
    }

    /// Undoes scratch changes since `mark` (actions stay).
    pub fn rollback(&mut self, mark: Mark) {
        self.free.rollback(mark);
    }

    /// Lets a job that runs after the plan do at most `work` more iterations; then it keeps its GPUs
    /// without progress until it gets another limit, moves or stops. An infinite limit is none.
    #[inline]
    pub fn limit(&mut self, job: JobId, work: f64) {
        self.buffer.limits.push((job, work));
    }

    /// Wakes the policy at `time`; replaces the timer of the same tag.
    #[inline]
    pub fn wake_at(&mut self, time: SimTime, tag: TimerTag) {
        self.buffer.timers.push(TimerOrder::Arm(tag, time));
    }

    /// Cancels the timer of a tag, if there is one.
    #[inline]
    pub fn cancel(&mut self, tag: TimerTag) {
        self.buffer.timers.push(TimerOrder::Cancel(tag));
    }
}
