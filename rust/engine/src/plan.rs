//! A plan under construction: actions, timers, and a draft of the free GPUs, in which policies search for placements.
//!
//! Starting or moving a job removes its new GPUs from the draft, so no other job in the same plan finds them free. No
//! other action changes the draft. At the end of the decision, the policy's changes to the draft are undone.

use crate::occupancy::{FreeIndex, Mark};
use crate::state::State;
use gangline_model::{Action, GpuSet, GpuTypeId, JobId, SimTime, Terms, TimerTag, Verb};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerOrder {
    Arm(TimerTag, SimTime),
    Cancel(TimerTag),
}

/// Actions and timer requests of one decision. The buffer is reused.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlanBuffer {
    pub(crate) actions: Vec<Action>,
    pub(crate) timers: Vec<TimerOrder>,
}

impl PlanBuffer {
    pub(crate) fn clear(&mut self) {
        self.actions.clear();
        self.timers.clear();
    }
}

/// The plan that a policy fills.
#[derive(Debug)]
pub struct Plan<'a> {
    pub(crate) state: &'a State,
    pub(crate) free: &'a mut FreeIndex,
    pub(crate) buffer: &'a mut PlanBuffer,
}

// These methods add and read actions.
impl Plan<'_> {
    /// Adds an action; a plan has at most one action for each part of a job. The engine checks the action together with
    /// the whole plan after the decision. The draft does not change.
    #[inline]
    pub fn push(&mut self, action: Action) {
        self.buffer.actions.push(action);
    }

    /// Starts a waiting job on these GPUs at its full batch size, and removes the GPUs from the draft.
    #[inline]
    pub fn start(&mut self, job: JobId, gpus: GpuSet) {
        self.take(&gpus);
        self.push(Action::start(job, gpus));
    }

    /// Starts a waiting job on these GPUs with explicit terms, and removes the GPUs from the draft.
    #[inline]
    pub fn start_on(&mut self, job: JobId, gpus: GpuSet, terms: Terms) {
        self.take(&gpus);
        self.push(Action::start(job, gpus).with(terms));
    }

    /// Stops a running job.
    #[inline]
    pub fn preempt(&mut self, job: JobId) {
        self.push(Action::preempt(job));
    }

    /// Moves a running job to other GPUs, and removes these GPUs from the draft; [`Self::release`] returns the GPUs
    /// that the job leaves. Moving a job to the GPUs that it already holds costs nothing and changes nothing.
    #[inline]
    pub fn move_to(&mut self, job: JobId, gpus: GpuSet) {
        self.take(&gpus);
        self.push(Action::move_to(job, gpus));
    }

    /// Leaves a running job on its GPUs but gives it new terms.
    #[inline]
    pub fn keep(&mut self, job: JobId, terms: Terms) {
        self.push(Action::keep(job, terms));
    }

    /// Returns how often a job has started so far, not counting this plan. A move is not a start.
    #[inline]
    pub fn starts(&self, job: JobId) -> u32 {
        self.state.lives().starts(job)
    }

    /// Returns the jobs that this plan starts, in the order of its actions.
    pub fn started(&self) -> impl Iterator<Item = JobId> {
        let starts = self.buffer.actions.iter();
        let starts = starts.filter(|action| matches!(action.verb, Verb::Start(_)));
        starts.map(|action| action.job)
    }

    /// Returns the actions so far, in order.
    pub fn actions(&self) -> &[Action] {
        &self.buffer.actions
    }

    /// Returns whether the plan has no actions.
    pub fn is_empty(&self) -> bool {
        self.buffer.actions.is_empty()
    }

    /// Moves the preemptions to the front and sorts them by a key.
    pub fn sort_preemptions<K: Ord>(&mut self, mut key: impl FnMut(JobId) -> K) {
        self.buffer
            .actions
            .sort_by_cached_key(|action| match action.verb {
                Verb::Preempt => (false, Some(key(action.job))),
                _ => (true, None),
            });
    }

    /// Sets a timer that wakes the policy at `time`. It replaces any timer with the same tag.
    #[inline]
    pub fn wake_at(&mut self, time: SimTime, tag: TimerTag) {
        self.buffer.timers.push(TimerOrder::Arm(tag, time));
    }

    /// Cancels the timer with this tag, if it is set.
    #[inline]
    pub fn cancel(&mut self, tag: TimerTag) {
        self.buffer.timers.push(TimerOrder::Cancel(tag));
    }
}

// These methods use the draft.
impl Plan<'_> {
    /// Returns the draft: the free GPUs after the policy's changes.
    #[inline]
    pub fn free(&mut self) -> &mut FreeIndex {
        self.free
    }

    /// Returns the number of free GPUs of the given type in the draft.
    #[inline]
    pub fn gpus_free(&self, gpu_type: GpuTypeId) -> u32 {
        self.free.pool(gpu_type).free_total()
    }

    /// Removes GPUs from the draft; see [`FreeIndex::take`].
    #[inline]
    pub fn take(&mut self, gpus: &GpuSet) {
        self.free.take(gpus);
    }

    /// Puts GPUs back into the draft. No other job may hold these GPUs; see [`FreeIndex::give`].
    #[inline]
    pub fn give_back(&mut self, gpus: &GpuSet) {
        self.free.give(gpus);
    }

    /// Puts back into the draft the GPUs that a running job holds alone.
    #[inline]
    pub fn release(&mut self, job: JobId) {
        let state = self.state;
        let Some(run) = state.run(job) else { return };
        for part in run.parts() {
            if !state.features().shares {
                self.free.give(&part.gpus);
                continue;
            }
            let alone = part.gpus.by_server().iter().map(|one| {
                let mask = state.occupancy().alone_mask(one.server, one.mask);
                (one.server, mask)
            });
            self.free.give(&alone.collect());
        }
    }

    /// Marks the current state of the draft, to which [`Self::rollback`] can return.
    #[inline]
    pub fn mark(&self) -> Mark {
        self.free.mark()
    }

    /// Undoes all changes to the draft since `mark`; the actions remain.
    pub fn rollback(&mut self, mark: Mark) {
        self.free.rollback(mark);
    }
}
