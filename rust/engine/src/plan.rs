//! A plan under construction: actions, timers, and a draft of the free GPUs to work places out on.
//!
//! A job that is started or moved takes its GPUs off the draft, so that no job of the same plan finds them free; nothing
//! else done to the one changes the other. What a policy takes and gives back on the draft ends with the decision.

use crate::occupancy::{FreeIndex, Mark};
use crate::state::State;
use gangline_model::{Action, GpuSet, GpuTypeId, JobId, SimTime, Terms, TimerTag, Verb};

/// A timer order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerOrder {
    Arm(TimerTag, SimTime),
    Cancel(TimerTag),
}

/// Actions and timer orders of one decision; reused.
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

/// What a policy fills.
#[derive(Debug)]
pub struct Plan<'a> {
    pub(crate) state: &'a State,
    pub(crate) free: &'a mut FreeIndex,
    pub(crate) buffer: &'a mut PlanBuffer,
}

// Actions
impl Plan<'_> {
    /// Adds an action, checked with the whole plan when the policy has answered. At most one per part of a job. The draft
    /// stays as it is.
    #[inline]
    pub fn push(&mut self, action: Action) {
        self.buffer.actions.push(action);
    }

    /// Starts a waiting job on these GPUs, at full batch; takes them on the draft.
    #[inline]
    pub fn start(&mut self, job: JobId, gpus: GpuSet) {
        self.take(&gpus);
        self.push(Action::start(job, gpus));
    }

    /// The same on terms of its own.
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

    /// Moves a running job to other GPUs, which it takes on the draft; those that it leaves are given back there by
    /// [`Self::release`]. To the GPUs it holds is free and changes nothing.
    #[inline]
    pub fn move_to(&mut self, job: JobId, gpus: GpuSet) {
        self.take(&gpus);
        self.push(Action::move_to(job, gpus));
    }

    /// Leaves a running job where it is, on new terms.
    #[inline]
    pub fn keep(&mut self, job: JobId, terms: Terms) {
        self.push(Action::keep(job, terms));
    }

    /// How often a job was started so far, without this plan. A move is no start.
    #[inline]
    pub fn starts(&self, job: JobId) -> u32 {
        self.state.lives().starts(job)
    }

    /// Jobs that this plan starts, in their order.
    pub fn started(&self) -> impl Iterator<Item = JobId> {
        let starts = self.buffer.actions.iter();
        let starts = starts.filter(|action| matches!(action.verb, Verb::Start(_)));
        starts.map(|action| action.job)
    }

    /// The actions so far, in their order.
    pub fn actions(&self) -> &[Action] {
        &self.buffer.actions
    }

    /// Whether the plan has no action.
    pub fn is_empty(&self) -> bool {
        self.buffer.actions.is_empty()
    }

    /// Puts the preemptions first, in the order of a key.
    pub fn sort_preemptions<K: Ord>(&mut self, mut key: impl FnMut(JobId) -> K) {
        self.buffer
            .actions
            .sort_by_cached_key(|action| match action.verb {
                Verb::Preempt => (false, Some(key(action.job))),
                _ => (true, None),
            });
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

// The draft
impl Plan<'_> {
    /// The draft: free GPUs as the policy left them.
    #[inline]
    pub fn free(&mut self) -> &mut FreeIndex {
        self.free
    }

    /// Free GPUs of a type on the draft.
    #[inline]
    pub fn gpus_free(&self, gpu_type: GpuTypeId) -> u32 {
        self.free.pool(gpu_type).free_total()
    }

    /// Draft: takes GPUs; see [`FreeIndex::take`].
    #[inline]
    pub fn take(&mut self, gpus: &GpuSet) {
        self.free.take(gpus);
    }

    /// Draft: gives back GPUs that are known to be held by no other job; see [`FreeIndex::give`].
    #[inline]
    pub fn give_back(&mut self, gpus: &GpuSet) {
        self.free.give(gpus);
    }

    /// Draft: gives back the GPUs that a running job holds alone.
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

    /// Remembers the draft.
    #[inline]
    pub fn mark(&self) -> Mark {
        self.free.mark()
    }

    /// Undoes changes of the draft since `mark` (actions stay).
    pub fn rollback(&mut self, mark: Mark) {
        self.free.rollback(mark);
    }
}
