//! Makes one decision of a run: calls the policy, checks its plan as a whole and applies it.
//!
//! This module works with any policy. It gives the policy the free-GPU index as a draft, and undoes the policy's
//! changes to the draft afterwards. The cost is O(actions x servers per gang + changes to the draft), in addition to
//! the cost of the policy itself.

use crate::error::{EngineError, PlanError};
use crate::plan::{Plan, TimerOrder};
use crate::policy::Policy;
use crate::record::Logged;
use crate::run::{Engine, Stopwatch};
use crate::segments::EndReason;
use crate::state::running::NewPart;
use crate::traits::Next;
use gangline_model::{Action, GpuSet, JobId, ServerId, Terms, Verb};
use smallvec::SmallVec;

/// One in this many decisions is timed, because reading the clock costs as much as a small decision.
const DECISIONS_PER_SAMPLE: u64 = 16;

/// Returns whether an action changes more than a part's quota or overhead. If the plans of a run change nothing else,
/// the run has stalled.
#[inline]
fn changes_something(action: &Action) -> bool {
    !matches!(action.verb, Verb::Keep) || action.terms.sub_batch.is_some()
}

impl Engine {
    #[expect(
        clippy::inline_always,
        reason = "called once per instant, from the run loop or from a caller that steps the engine"
    )]
    #[inline(always)]
    pub(crate) fn ask(
        &mut self,
        policy: &mut dyn Policy,
        stopwatch: &mut dyn Stopwatch,
    ) -> Result<(), EngineError> {
        let is_timed = self.decisions.is_multiple_of(DECISIONS_PER_SAMPLE);
        let begin = if is_timed { stopwatch.nanos() } else { 0 };
        let mut index = self.motion.state.occupancy_mut().lend();
        let view = self.motion.view(self.traits.knowledge);
        let mut plan = Plan {
            state: &self.motion.state,
            free: &mut index,
            buffer: &mut self.buffer,
        };
        let next = policy.decide(&view, &self.changes, &mut plan);
        self.motion.state.occupancy_mut().take_back(index);
        let next = match next {
            Ok(next) => next,
            Err(error) => {
                self.buffer.clear();
                return Err(error.into());
            }
        };
        if is_timed {
            let nanos = stopwatch.nanos().saturating_sub(begin);
            self.decision_nanos
                .push(u32::try_from(nanos).unwrap_or(u32::MAX));
        }
        self.commit(next)?;
        if let Some(watch) = &mut self.watch {
            let view = self.motion.view(self.traits.knowledge);
            watch.ask(&self.motion.state, |job| {
                let cause = policy.why(&view, job);
                debug_assert!(cause.is_none_or(|cause| policy.reasons().contains(&cause.reason)));
                cause
            });
        }
        Ok(())
    }

    /// Checks the plan, applies it and ends the instant.
    #[expect(
        clippy::inline_always,
        reason = "called once per instant, from the run loop or from a caller that steps the engine"
    )]
    #[inline(always)]
    pub(crate) fn commit(&mut self, next: Next) -> Result<(), PlanError> {
        let acted = self.buffer.actions.iter().any(changes_something);
        if self.buffer.actions.is_empty() && self.buffer.timers.is_empty() {
            self.changes.clear();
        } else {
            self.check_and_carry_out()?;
        }
        self.decisions += 1;
        if acted {
            self.idle_changes = 0;
        }
        if self.traits.round.is_some() {
            self.is_steady = next == Next::Steady && self.motion.state.config().skip_rounds;
        }
        let lives = self.motion.state.lives();
        let is_idle = !acted && lives.are_all_here() && self.is_left_to_the_policy();
        self.idle_wakes = if is_idle { self.idle_wakes + 1 } else { 0 };
        self.awaiting = false;
        self.end_instant();
        Ok(())
    }

    #[inline(never)]
    fn check_and_carry_out(&mut self) -> Result<(), PlanError> {
        let checked = self
            .overlay
            .check(&self.motion.state, &self.buffer, self.decisions);
        match checked {
            Ok(()) => {
                self.changes.clear();
                self.carry_out();
            }
            Err(_) => self.buffer.clear(),
        }
        checked
    }

    /// Applies releases first, then all other actions in the order of the plan.
    fn carry_out(&mut self) {
        let mut actions = std::mem::take(&mut self.buffer.actions);
        let forks = self.motion.state.features().forks;
        let before = forks.then(|| self.servers_of_forked(&actions));
        for action in &mut actions {
            if action.releases() {
                self.release(action);
            }
        }
        for action in &mut actions {
            match &mut action.verb {
                Verb::Start(gpus) => {
                    self.begin((action.job, action.part), gpus, &action.terms);
                    self.changes.started.push(action.job);
                }
                Verb::Move(gpus) => {
                    self.begin((action.job, action.part), gpus, &action.terms);
                    self.changes.moved.push(action.job);
                }
                Verb::Keep => self.keep(action),
                Verb::Preempt => {}
            }
        }
        if let Some(before) = before {
            self.note_forked(&before);
        }
        actions.clear();
        self.buffer.actions = actions;
        if !self.buffer.timers.is_empty() {
            self.order_timers();
        }
    }

    #[inline(never)]
    fn order_timers(&mut self) {
        for order in self.buffer.timers.drain(..) {
            match order {
                TimerOrder::Arm(tag, time) => self.timers.arm(tag, time, &mut self.motion.queue),
                TimerOrder::Cancel(tag) => self.timers.cancel(tag, &mut self.motion.queue),
            }
        }
    }

    /// Releases the GPUs of a part that is preempted or moved. An action that moves a part to the GPUs that it already
    /// holds becomes [`Verb::Keep`].
    #[inline(never)]
    fn release(&mut self, action: &mut Action) {
        let job = action.job;
        let record = self.motion.state.record_of(job);
        let run = self.motion.state.run(job).expect("a running job");
        let at = run.position(action.part).expect("the plan was checked");
        let part = &run.parts[at];
        let reason = match &action.verb {
            Verb::Move(gpus) if *gpus == part.gpus => {
                action.verb = Verb::Keep;
                return;
            }
            Verb::Move(_) => {
                // A part keeps its sub-batch unless the action sets a different one.
                let own = part.accum.is_none() && part.sub_batch != 0;
                let own = own.then_some(part.sub_batch);
                action.terms.sub_batch = action.terms.sub_batch.or(own);
                EndReason::Moved
            }
            _ => EndReason::Preempted,
        };
        self.livelock.stops += 1;
        self.motion.log_part(record, at, Logged::Stop);
        self.motion.drop_part(record, at, reason);
        if !self.motion.state.features().forks {
            self.motion.count_stop(job, reason);
            if reason == EndReason::Preempted {
                self.changes.preempted.push(job);
            }
        }
    }

    /// Returns the servers that each forked job in the plan uses before the plan is applied.
    #[cold]
    fn servers_of_forked(&self, actions: &[Action]) -> Vec<(JobId, SmallVec<[ServerId; 4]>)> {
        let mut jobs: Vec<JobId> = actions.iter().map(|action| action.job).collect();
        jobs.sort_unstable();
        jobs.dedup();
        let all = jobs.into_iter().map(|job| (job, self.servers_of(job)));
        all.collect()
    }

    fn servers_of(&self, job: JobId) -> SmallVec<[ServerId; 4]> {
        let run = self.motion.state.run(job);
        let parts = run.map_or(&[][..], |run| run.parts());
        let servers = parts.iter().flat_map(|part| part.gpus.by_server());
        servers.map(|one| one.server).collect()
    }

    /// Records what a plan did to forked jobs. A job starts when it gets its first servers, is preempted when it
    /// loses all of them, and migrates when its servers change.
    #[cold]
    fn note_forked(&mut self, before: &[(JobId, SmallVec<[ServerId; 4]>)]) {
        self.changes.started.clear();
        self.changes.moved.clear();
        for (job, old) in before {
            if old.is_empty() {
                // The job held no GPUs before, so the plan can only have started it.
                self.changes.started.push(*job);
                continue;
            }
            let new = self.servers_of(*job);
            if new.is_empty() {
                self.motion.count_stop(*job, EndReason::Preempted);
                self.changes.preempted.push(*job);
            } else if new != *old {
                self.motion.count_stop(*job, EndReason::Moved);
                self.changes.moved.push(*job);
            }
        }
    }

    #[inline]
    fn begin(&mut self, (job, number): (JobId, u16), gpus: &mut GpuSet, terms: &Terms) {
        let (now, hash) = (self.motion.state.now(), &mut self.motion.recorder.hash);
        hash.event(Logged::Start, now, job, gpus);
        let overhead = match terms.overhead {
            Some(own) => own,
            None => self.motion.state.overhead_at(job, gpus),
        };
        let new = NewPart {
            number,
            gpus,
            sub_batch: terms.sub_batch.unwrap_or(0),
            accum: terms.accum,
            overhead,
            quota: terms.quota.unwrap_or(f64::INFINITY),
        };
        self.motion.begin(job, new);
    }

    #[inline(never)]
    fn keep(&mut self, action: &Action) {
        if action.terms == Terms::default() {
            return;
        }
        let record = self.motion.state.record_of(action.job);
        let run = self.motion.state.run(action.job);
        let at = run.and_then(|run| run.position(action.part));
        let at = at.expect("the plan was checked");
        self.changes.retimed.push(action.job);
        self.motion.keep(record, at, &action.terms);
    }

    /// Returns whether only the policy can still cause events. That is the case if no job makes progress, and either
    /// there are no future failures and repairs or they cannot let a job start.
    fn is_left_to_the_policy(&self) -> bool {
        self.motion.queue.live() == self.timers.live()
            || (self.motion.state.lives().running().is_empty() && self.are_changes_futile())
    }
}
