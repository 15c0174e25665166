//! One decision of a run: ask the policy, check its plan as a whole, carry it out.
//!
//! Knows no policy. The free-GPU index is lent to the policy as its draft and put right when it comes back.
//! Cost: O(actions x servers per gang + changes of the draft) beside the policy's own.

use crate::error::{EngineError, PlanError};
use crate::plan::{Plan, TimerOrder};
use crate::policy::{Next, Policy};
use crate::progress::NewPart;
use crate::record::{EndReason, Logged};
use crate::run::{Engine, Stopwatch};
use crate::view::ClusterView;
use gangline_model::{Action, GpuSet, JobId, ServerId, Terms, Verb};
use smallvec::SmallVec;

/// One decision in so many is timed: a clock read costs as much as a small decision.
const DECISIONS_PER_SAMPLE: u64 = 16;

/// Whether an action does more than to renew a quota or a pause: a run of nothing else is a stall.
#[inline]
fn changes_something(action: &Action) -> bool {
    !matches!(action.verb, Verb::Keep) || action.terms.sub_batch.is_some()
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
        let mut index = self.state.occupancy.lend();
        let view = ClusterView {
            state: &self.state,
            knowledge: self.traits.knowledge,
        };
        let mut plan = Plan {
            state: &self.state,
            free: &mut index,
            buffer: &mut self.buffer,
        };
        let next = policy.decide(&view, &self.changes, &mut plan);
        self.state.occupancy.take_back(index);
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
        if self.watch.is_some() {
            self.ask_why(policy);
        }
        Ok(())
    }

    /// Checks the plan, carries it out and ends the instant.
    #[expect(
        clippy::inline_always,
        reason = "a part of the loop, once per instant; steps from outside come here as well"
    )]
    #[inline(always)]
    pub(crate) fn commit(&mut self, next: Next) -> Result<(), PlanError> {
        let acted = self.buffer.actions.iter().any(changes_something);
        if !(self.buffer.actions.is_empty() && self.buffer.timers.is_empty()) {
            self.check_and_carry_out()?;
        }
        self.decisions += 1;
        if acted {
            self.idle_changes = 0;
        }
        if self.traits.round.is_some() {
            self.is_steady = next == Next::Steady && self.state.config.skip_rounds;
        }
        let is_idle = !acted && self.state.lives.are_all_here() && self.is_left_to_the_policy();
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
            .check(&self.state, &self.buffer, self.decisions);
        match checked {
            Ok(()) => self.carry_out(),
            Err(_) => self.buffer.clear(),
        }
        checked
    }

    /// Releases first, then everything else in the order of the plan.
    fn carry_out(&mut self) {
        let mut actions = std::mem::take(&mut self.buffer.actions);
        let before = self.state.forks.then(|| self.servers_of_forked(&actions));
        for action in &mut actions {
            if action.releases() {
                self.release(action);
            }
        }
        for action in &mut actions {
            match &mut action.verb {
                Verb::Start(gpus) | Verb::Move(gpus) => {
                    self.begin((action.job, action.part), gpus, &action.terms);
                }
                Verb::Keep => self.keep(action),
                Verb::Preempt => {}
            }
        }
        if let Some(before) = before {
            self.count_forked(&before);
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
                TimerOrder::Arm(tag, time) => self.timers.arm(tag, time, &mut self.queue),
                TimerOrder::Cancel(tag) => self.timers.cancel(tag, &mut self.queue),
            }
        }
    }

    /// Takes a part off its GPUs. A move to the GPUs that it holds becomes [`Verb::Keep`].
    #[inline(never)]
    fn release(&mut self, action: &mut Action) {
        let job = action.job;
        let slot = self.state.slot_of(job);
        let run = &self.state.runs[slot];
        let at = run.position(action.part).expect("the plan was checked");
        let part = &run.parts[at];
        let reason = match &action.verb {
            Verb::Move(gpus) if *gpus == part.gpus => {
                action.verb = Verb::Keep;
                return;
            }
            Verb::Move(_) => {
                // a part keeps its sub-batch unless it is given another
                let own = part.accum.is_none() && part.sub_batch != 0;
                let own = own.then_some(part.sub_batch);
                action.terms.sub_batch = action.terms.sub_batch.or(own);
                EndReason::Moved
            }
            _ => EndReason::Preempted,
        };
        self.livelock.stops += 1;
        self.state
            .log_part(slot, at, &mut self.recorder, Logged::Stop);
        self.drop_part(slot, at, reason);
        if !self.state.forks {
            self.count_stop(job, reason);
        }
    }

    fn count_stop(&mut self, job: JobId, reason: EndReason) {
        if reason == EndReason::Preempted {
            self.recorder.totals.preemptions += 1;
            self.state.lives.of(job).preemptions += 1;
            return;
        }
        let column = &mut self.state.out.migrations;
        if column.is_empty() {
            column.resize(self.state.jobs.len(), 0);
        }
        column[job.index()] += 1;
    }

    /// The servers of each forked job that the plan names, before it is carried out.
    #[cold]
    fn servers_of_forked(&self, actions: &[Action]) -> Vec<(JobId, SmallVec<[ServerId; 4]>)> {
        let mut jobs: Vec<JobId> = actions.iter().map(|action| action.job).collect();
        jobs.sort_unstable();
        jobs.dedup();
        let all = jobs.into_iter().map(|job| (job, self.servers_of(job)));
        all.collect()
    }

    fn servers_of(&self, job: JobId) -> SmallVec<[ServerId; 4]> {
        let parts = self.state.run(job).map_or(&[][..], |run| run.parts());
        let servers = parts.iter().flat_map(|part| part.gpus.by_server());
        servers.map(|one| one.server).collect()
    }

    /// A forked job is preempted when a plan leaves it without servers, and migrates when it has others afterwards.
    #[cold]
    fn count_forked(&mut self, before: &[(JobId, SmallVec<[ServerId; 4]>)]) {
        for (job, old) in before.iter().filter(|(_, old)| !old.is_empty()) {
            let new = self.servers_of(*job);
            if new.is_empty() {
                self.count_stop(*job, EndReason::Preempted);
            } else if new != *old {
                self.count_stop(*job, EndReason::Moved);
            }
        }
    }

    #[inline]
    fn begin(&mut self, (job, number): (JobId, u16), gpus: &mut GpuSet, terms: &Terms) {
        let now = self.state.now;
        self.recorder.hash.event(Logged::Start, now, job, gpus);
        let new = NewPart {
            number,
            gpus,
            sub_batch: terms.sub_batch.unwrap_or(0),
            accum: terms.accum,
            overhead: match terms.overhead {
                Some(own) => own,
                None => self.state.overhead(job),
            },
            quota: terms.quota.unwrap_or(f64::INFINITY),
        };
        let (queue, recorder) = (&mut self.queue, &mut self.recorder);
        self.state.begin(job, new, queue, recorder);
    }

    #[inline(never)]
    fn keep(&mut self, action: &Action) {
        if action.terms == Terms::default() {
            return;
        }
        let slot = self.state.slot_of(action.job);
        let at = self.state.runs[slot].position(action.part);
        let at = at.expect("the plan was checked");
        let (queue, recorder) = (&mut self.queue, &mut self.recorder);
        self.state.keep(slot, at, &action.terms, queue, recorder);
    }

    /// Whether nothing will happen any more but what the policy brings about: no job makes progress, and
    /// failures and repairs are over or lead nowhere.
    fn is_left_to_the_policy(&self) -> bool {
        self.queue.live() == self.timers.live()
            || (self.state.lives.running().is_empty() && self.are_changes_futile())
    }
}
