//! One decision of a run: ask the policy, check its plan as a whole, carry it out.
//!
//! Knows no policy. A plan that was worked out on the scratch action by action leaves the free-GPU index
//! as the state will be, so the index is adopted as it is; after any other plan it is put right server
//! by server. Cost: O(actions x servers per gang) beside the policy's own.

use crate::error::{EngineError, PlanError};
use crate::plan::{Plan, TimerOrder};
use crate::policy::{Next, Policy};
use crate::record::{EndReason, Logged};
use crate::run::{Engine, Stopwatch};
use crate::view::ClusterView;
use gangline_model::{Action, GpuSet, JobId, SimSpan};

/// One decision in so many is timed: a clock read costs as much as a small decision.
const DECISIONS_PER_SAMPLE: u64 = 16;

/// Whether an action takes GPUs and gives none back.
#[inline]
fn is_plain_start(action: &Action) -> bool {
    matches!(action, Action::Start { .. })
}

impl Engine {
    #[expect(
        clippy::inline_always,
        reason = "a part of the loop, once per instant; steps from outside come here as well"
    )]
    #[inline(always)]
    pub(crate) fn ask(
        &mut self,
        policy: &mut dyn Policy,
        stopwatch: &mut dyn Stopwatch,
    ) -> Result<(), EngineError> {
        let is_timed = self.decisions.is_multiple_of(DECISIONS_PER_SAMPLE);
        let begin = if is_timed { stopwatch.nanos() } else { 0 };
        let view = ClusterView {
            state: &self.state,
            knowledge: self.traits.knowledge,
        };
        let mut plan = Plan {
            state: &self.state,
            free: &mut self.index,
            buffer: &mut self.buffer,
        };
        let next = match policy.decide(&view, &self.changes, &mut plan) {
            Ok(next) => next,
            Err(error) => {
                self.discard();
                return Err(error.into());
            }
        };
        if is_timed {
            let nanos = stopwatch.nanos().saturating_sub(begin);
            self.decision_nanos
                .push(u32::try_from(nanos).unwrap_or(u32::MAX));
        }
        self.commit(next)?;
        Ok(())
    }

    fn discard(&mut self) {
        self.settle_index();
        self.buffer.clear();
    }

    /// Checks the plan, carries it out and ends the instant.
    #[expect(
        clippy::inline_always,
        reason = "a part of the loop, once per instant; steps from outside come here as well"
    )]
    #[inline(always)]
    pub(crate) fn commit(&mut self, next: Next) -> Result<(), PlanError> {
        let acted = !self.buffer.actions.is_empty();
        if acted || !self.buffer.timers.is_empty() || !self.buffer.limits.is_empty() {
            self.check_and_carry_out()?;
        }
        if self.index.has_changes() {
            self.settle_index();
        }
        self.decisions += 1;
        if acted {
            self.idle_changes = 0;
        }
        if self.traits.round.is_some() {
            self.is_steady = next == Next::Steady && self.state.config.skip_rounds;
        }
        let is_idle = !acted && self.is_all_here() && self.is_left_to_the_policy();
        self.idle_wakes = if is_idle { self.idle_wakes + 1 } else { 0 };
        self.changes.clear();
        self.awaiting = false;
        self.end_instant();
        Ok(())
    }

    #[inline(never)]
    fn check_and_carry_out(&mut self) -> Result<(), PlanError> {
        let checked = self
            .overlay
            .check(&self.state, &self.buffer, &self.index, self.decisions);
        match checked {
            Ok(()) => self.carry_out(),
            Err(_) => self.discard(),
        }
        checked
    }

    fn carry_out(&mut self) {
        let is_adopted = self.state.max_share == 1 && self.buffer.is_shown_by(&self.index);
        let mut actions = std::mem::take(&mut self.buffer.actions);
        self.buffer.overheads.sort_unstable();
        if is_adopted {
            self.index.forget_changes();
        } else {
            self.note_touched(&actions);
        }
        // most plans list their preemptions first
        let preempted = actions.iter().map_while(|action| match action {
            Action::Preempt { job } => Some(*job),
            _ => None,
        });
        let mut first = 0;
        for job in preempted {
            self.stop(job, EndReason::Preempted);
            first += 1;
        }
        if !actions[first..].iter().all(is_plain_start) {
            self.commit_releases(&mut actions, first);
        }
        for action in &mut actions[first..] {
            self.commit_take(action);
        }
        actions.clear();
        self.moved_sub_batches.clear();
        self.buffer.actions = actions;
        for order in self.buffer.timers.drain(..) {
            match order {
                TimerOrder::Arm(tag, time) => self.timers.arm(tag, time, &mut self.queue),
                TimerOrder::Cancel(tag) => self.timers.cancel(tag, &mut self.queue),
            }
        }
        self.buffer.overheads.clear();
        if !self.buffer.limits.is_empty() {
            self.set_limits();
        }
        self.buffer.shown = 0;
    }

    #[cold]
    fn set_limits(&mut self) {
        for (job, work) in self.buffer.limits.drain(..) {
            self.state
                .limit(job, work, &mut self.queue, &mut self.recorder);
        }
    }

    /// Notes the servers that a plan changes, for [`Self::settle_index`] to put the index right.
    fn note_touched(&mut self, actions: &[Action]) {
        for action in actions {
            if let Some(run) = self.state.run(action.job()) {
                self.index.note_touched(&run.gpus);
            }
            if let Action::Start { gpus, .. } | Action::Move { gpus, .. } = action {
                self.index.note_touched(gpus);
            }
        }
    }

    /// Preempts, and takes moving jobs off their GPUs, from an action on. A move to the GPUs already held is
    /// dropped: it is free and changes nothing.
    #[inline(never)]
    fn commit_releases(&mut self, actions: &mut Vec<Action>, first: usize) {
        let mut idle_moves = false;
        for action in &actions[first..] {
            match action {
                Action::Preempt { job } => self.stop(*job, EndReason::Preempted),
                Action::Move { job, gpus } => {
                    let run = &self.state.runs[self.state.slot_of(*job)];
                    if run.gpus == *gpus {
                        idle_moves = true;
                        continue;
                    }
                    if run.sub_batch != 0 {
                        self.moved_sub_batches.push((*job, run.sub_batch));
                    }
                    self.stop(*job, EndReason::Moved);
                }
                Action::Start { .. } | Action::SetSubBatch { .. } => {}
            }
        }
        if idle_moves {
            // jobs that really move hold no GPUs at this point
            actions.retain(|action| {
                !matches!(action, Action::Move { job, .. } if self.state.run(*job).is_some())
            });
        }
        self.moved_sub_batches.sort_unstable();
    }

    fn stop(&mut self, job: JobId, reason: EndReason) {
        let slot = self.state.slot_of(job);
        if self.state.has_event(slot) {
            self.queue.note_stale();
        }
        let gpus = self.state.end_run(slot, &mut self.recorder, reason);
        if reason == EndReason::Preempted {
            self.recorder.totals.preemptions += 1;
            self.state.job[job.index()].preemptions += 1;
        } else {
            self.note_migration(job);
        }
        self.state.wait_again(job);
        self.demand.add(&self.state, job);
        self.recorder
            .hash
            .event(Logged::Stop, self.state.now, job, &gpus);
    }

    fn note_migration(&mut self, job: JobId) {
        self.recorder.totals.migrations += 1;
        let column = &mut self.state.out.migrations;
        if column.is_empty() {
            column.resize(self.state.jobs.len(), 0);
        }
        column[job.index()] += 1;
    }

    #[inline]
    fn commit_take(&mut self, action: &mut Action) {
        let job = action.job();
        let (gpus, terms) = if let Action::Start {
            gpus, sub_batch, ..
        } = action
        {
            (gpus, (sub_batch.unwrap_or(0), self.overhead_of(job)))
        } else {
            match self.commit_change(action) {
                Some(moved) => moved,
                None => return,
            }
        };
        let gpus = std::mem::take(gpus);
        self.begin(job, gpus, terms);
    }

    /// Time without progress that a start of the job costs: the plan's, else the run's.
    #[inline]
    fn overhead_of(&self, job: JobId) -> SimSpan {
        let own = &self.buffer.overheads;
        match own.binary_search_by_key(&job, |entry| entry.0) {
            Ok(at) => own[at].1,
            Err(_) => self.state.overhead(job),
        }
    }

    /// Carries out what is no start. Of a move it returns the new GPUs, the sub-batch and the overhead.
    #[inline(never)]
    fn commit_change<'a>(
        &mut self,
        action: &'a mut Action,
    ) -> Option<(&'a mut GpuSet, (u32, SimSpan))> {
        match action {
            Action::Move { job, gpus } => {
                let moved = &self.moved_sub_batches;
                let kept = moved.binary_search_by_key(job, |entry| entry.0);
                let sub_batch = kept.map_or(0, |at| moved[at].1);
                Some((gpus, (sub_batch, self.state.overhead(*job))))
            }
            Action::SetSubBatch { job, sub_batch } => {
                self.state
                    .set_sub_batch(*job, *sub_batch, &mut self.queue, &mut self.recorder);
                None
            }
            Action::Start { .. } | Action::Preempt { .. } => None,
        }
    }

    #[inline]
    fn begin(&mut self, job: JobId, gpus: GpuSet, (sub_batch, overhead): (u32, SimSpan)) {
        self.recorder
            .hash
            .event(Logged::Start, self.state.now, job, &gpus);
        if job.index() < self.newest {
            self.demand.remove(&self.state, job);
        }
        self.state
            .begin(job, gpus, (sub_batch, overhead), &mut self.queue);
    }

    /// Puts the index right for every server that the scratch or the plan touched.
    fn settle_index(&mut self) {
        let Self { index, state, .. } = self;
        index.settle(|server| state.servers[server.index()].free);
    }

    /// Whether nothing will happen any more but what the policy brings about: no job makes progress, and
    /// failures and repairs are over or lead nowhere.
    fn is_left_to_the_policy(&self) -> bool {
        self.queue.live() == self.timers.live()
            || (self.state.running.is_empty() && self.are_changes_futile())
    }
}
