//! Processes one instant of a run: finds the instant, applies its events and ends it (`ARCHITECTURE.md`, the life of an
//! event).
//!
//! All that this module knows about the policy is which events wake it. The cost is O(log running) per event.

use crate::capacity;
use crate::error::EngineError;
use crate::livelock::Outlook;
use crate::queue::{Event, EventClass};
use crate::record::Logged;
use crate::run::{Engine, Outcome};
use crate::segments::EndReason;
use crate::state::jobs::Phase;
use crate::state::running::HORIZON;
use crate::traits::WakeOn;
use crate::view::Change;
use gangline_model::{JobId, ServerId, SimTime};

/// Number of consecutive rounds without an action after which a run counts as stalled, if nothing else can happen. A
/// round-based policy may wait for time to pass, but not for ever. The limit is our own choice.
const IDLE_ROUNDS_MAX: u32 = 1000;
/// The limit that replaces [`IDLE_ROUNDS_MAX`] while timers are set, because timers may be arbitrarily frequent. The
/// limit is our own choice.
const IDLE_TIMERS_MAX: u32 = 100_000;
/// Number of failures and repairs per server, without an action in between, after which a run counts as stalled, if
/// nothing else can happen. The limit is needed because the servers that the waiting gangs need might never be up at
/// the same time. The limit is our own choice.
const IDLE_CHANGES_MAX: usize = 1000;

impl Engine {
    /// Applies the events of the next instant. Returns whether the policy must now be called; if not, the instant is
    /// complete or the run is over.
    #[expect(
        clippy::inline_always,
        reason = "called once per instant, from the run loop or from a caller that steps the engine"
    )]
    #[inline(always)]
    pub(crate) fn gather(&mut self) -> Result<bool, EngineError> {
        self.motion.recorder.check_memory(self.motion.state.now())?;
        if self.motion.state.lives().are_all_done() {
            self.close(Outcome::Finished);
            return Ok(false);
        }
        let Some(time) = self.next_instant() else {
            return Err(self.stalled());
        };
        let is_endless = time > HORIZON || (time > capacity::END && self.capacity.is_endless());
        if is_endless && !self.is_past_limit(time) {
            return Err(self.endless());
        }
        if self.is_hopeless() {
            return Err(self.stalled());
        }
        if self.livelock.is_due() {
            self.look_for_livelock()?;
        }
        if self.is_past_limit(time) {
            self.stop_before(time);
            return Ok(false);
        }
        self.motion.recorder.advance(&self.motion.state, time);
        self.motion.state.begin_instant(time);
        let kinds = self.apply_events(time);
        if kinds.intersects(WakeOn::COMPLETION) {
            self.look_ahead();
        }
        if kinds.intersects(self.traits.wake_on) {
            self.awaiting = true;
            return Ok(true);
        }
        self.end_instant();
        Ok(false)
    }

    /// Prefetches the memory that the next completions need, while there is other work to do. In a long run, this
    /// memory is no longer in any cache.
    #[inline]
    fn look_ahead(&self) {
        let Some((next, others)) = self.motion.queue.soonest().split_first() else {
            return;
        };
        if next.class() == EventClass::Completion {
            self.motion.state.prefetch_end(next.subject);
        }
        // Not every subject is a record, but a useless prefetch does no harm.
        for event in others {
            self.motion.state.prefetch_run(event.subject);
        }
    }

    #[inline]
    pub(crate) fn is_past_limit(&self, time: SimTime) -> bool {
        let config = self.motion.state.config();
        config.until.is_some_and(|until| time > until)
            || config.max_events.is_some_and(|most| self.events >= most)
    }

    /// Ends a run at its limit on time or on events. `time` is the next instant, which is not processed.
    fn stop_before(&mut self, time: SimTime) {
        let state = &mut self.motion.state;
        let until = state.config().until.filter(|_| time > state.now());
        if let Some(until) = until.filter(|&until| until < time) {
            self.motion.recorder.advance(state, until);
            state.begin_instant(until.max(state.now()));
        }
        self.close(Outcome::Limit);
    }

    /// Returns the next instant with an event; `None` if no event is left.
    #[expect(
        clippy::inline_always,
        reason = "called once per instant, from the run loop"
    )]
    #[inline(always)]
    pub(crate) fn next_instant(&mut self) -> Option<SimTime> {
        let arrival = self.motion.state.next_arrival();
        if self.motion.queue.has_stale() {
            self.drop_stale();
        }
        let event = self.motion.queue.peek().map(|event| event.time);
        let next = match (arrival, event) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if self.next_round.is_some() {
            self.next_or_round(next)
        } else {
            next
        }
    }

    /// Returns the next instant in a run whose policy works in rounds.
    fn next_or_round(&mut self, next: Option<SimTime>) -> Option<SimTime> {
        let (Some(round), Some(period)) = (self.next_round, self.traits.round) else {
            return next;
        };
        if !self.is_steady {
            return Some(next.map_or(round, |time| time.min(round)));
        }
        if let Some(time) = next {
            // Rounds were skipped up to this event, so the next boundary is at or after it. If the event is beyond the
            // end of simulated time, the boundary does not matter, because the run ends.
            let periods = time.0.saturating_add(period.0 - 1).div_euclid(period.0);
            self.next_round = Some(round.max(SimTime(periods * period.0)));
            self.is_steady = false;
        }
        next
    }

    /// Returns the next event at an instant, or `None` if there are no more.
    #[inline]
    fn head_at(&mut self, time: SimTime) -> Option<Event> {
        if self.motion.queue.has_stale() {
            self.drop_stale();
        }
        self.motion.queue.peek_at(time)
    }

    /// Returns whether an event in the queue has not been cancelled.
    pub(crate) fn is_live(&self, event: &Event) -> bool {
        match event.class() {
            EventClass::Completion => self.motion.state.is_live(event.subject, event.generation),
            EventClass::Capacity => true,
            EventClass::Timer => self.timers.is_live(event.subject, event.generation),
        }
    }

    /// Removes cancelled events from the head of the queue.
    fn drop_stale(&mut self) {
        while let Some(event) = self.motion.queue.peek()
            && !self.is_live(event)
        {
            self.motion.queue.pop();
            self.motion.queue.note_dropped();
        }
    }

    /// Applies the events of an instant in this order: completions and capacity changes, arrivals, timers, and the
    /// round boundary.
    #[expect(
        clippy::inline_always,
        reason = "called once per instant, from the run loop"
    )]
    #[inline(always)]
    fn apply_events(&mut self, time: SimTime) -> WakeOn {
        let mut kinds = WakeOn::default();
        // Cancelled events before the first live one were dropped when the instant was found.
        let mut next = self.motion.queue.peek_at(time);
        while let Some(event) = next {
            kinds = kinds
                | match event.class() {
                    EventClass::Completion => {
                        self.motion.queue.pop();
                        self.complete(event.subject)
                    }
                    EventClass::Capacity => {
                        self.motion.queue.pop();
                        self.change_capacity(event.subject)
                    }
                    EventClass::Timer => break,
                };
            self.events += 1;
            next = self.head_at(time);
        }
        if self.motion.state.next_arrival() == Some(time) {
            self.arrive(time);
            kinds = kinds | WakeOn::ARRIVAL;
        }
        while let Some(event) = next {
            debug_assert_eq!(
                event.class(),
                EventClass::Timer,
                "events of all other classes come earlier"
            );
            self.motion.queue.pop();
            self.events += 1;
            let tag = self.timers.fire(event.subject);
            self.changes.timers.push(tag);
            kinds = kinds | WakeOn::TIMER;
            next = self.head_at(time);
        }
        if self.next_round == Some(time)
            && let Some(period) = self.traits.round
        {
            self.events += 1;
            self.changes.is_round = true;
            self.next_round = Some(time + period);
            kinds = kinds | WakeOn::ROUND;
        }
        kinds
    }

    /// Records the jobs that arrive at an instant.
    fn arrive(&mut self, time: SimTime) {
        while self.motion.state.next_arrival() == Some(time) {
            let job = self.motion.arrive();
            self.changes.arrived.push(job);
            self.note_order(Change::Arrived(job));
            self.events += 1;
        }
    }

    #[inline]
    fn note_order(&mut self, change: Change) {
        if self.traits.orders_changes {
            self.changes.order.push(change);
        }
    }

    /// Handles the event of a running job. Either the job is done, or it continues at a different rate. In the latter
    /// case, the event does not wake the policy.
    #[inline]
    fn complete(&mut self, record: u32) -> WakeOn {
        let at = record as usize;
        if !self.motion.step(at) {
            if self.motion.state.features().has_knots {
                self.changes.retimed.push(self.motion.state.job_of(at));
            }
            return WakeOn::default();
        }
        let job = self.motion.end_run(at);
        self.changes.finished.push(job);
        self.note_order(Change::Finished(job));
        WakeOn::COMPLETION
    }

    fn change_capacity(&mut self, subject: u32) -> WakeOn {
        let now = self.motion.state.now();
        let (server, up) = self.capacity.take(subject, now, &mut self.motion.queue);
        if self.motion.state.occupancy().is_up(server) == up {
            return WakeOn::default();
        }
        self.idle_changes += 1;
        if let Some(watch) = &mut self.watch {
            watch.note_capacity(now, server, up);
        }
        if up {
            self.motion.state.occupancy_mut().repair(server);
            self.changes.servers_up.push(server);
            self.note_order(Change::Up(server));
            return WakeOn::CAPACITY;
        }
        self.motion.recorder.totals.failures += 1;
        self.evict_residents(server);
        self.motion.state.occupancy_mut().fail(server);
        self.changes.servers_down.push(server);
        self.note_order(Change::Down(server));
        WakeOn::CAPACITY
    }

    /// Ends every part on a failed server. A job that has no parts left is requeued.
    fn evict_residents(&mut self, server: ServerId) {
        for job in self.motion.state.occupancy().residents_of(server) {
            let record = self.motion.state.record_of(job);
            let run = self.motion.state.run(job).expect("residents run");
            let number = run.resident_on(server).number;
            let at = run.position(number).expect("a resident is a part of a run");
            self.motion.log_part(record, at, Logged::Failed);
            self.motion.drop_part(record, at, EndReason::Failed);
            self.livelock.losses += 1;
            if self.motion.state.lives().is_waiting(job) {
                self.changes.requeued.push(job);
            } else {
                self.changes.parts_lost.push((job, number));
            }
        }
    }

    /// Ends an instant after all changes have been made.
    #[expect(
        clippy::inline_always,
        reason = "called once per instant, from the run loop"
    )]
    #[inline(always)]
    pub(crate) fn end_instant(&mut self) {
        if self.motion.state.end_instant() {
            self.retime();
        }
        if self.motion.queue.wants_compaction() {
            let mut queue = std::mem::take(&mut self.motion.queue);
            queue.compact(|event| self.is_live(event));
            self.motion.queue = queue;
        }
        self.motion.recorder.timeline_row(&self.motion.state);
        if self.motion.state.config().check_invariants {
            self.assert_invariants();
        }
    }

    /// Updates the rates of jobs whose co-runners or shared uplinks have changed.
    #[inline(never)]
    fn retime(&mut self) {
        self.motion.retime_touched(&mut self.changes.retimed);
    }

    #[cold]
    fn look_for_livelock(&mut self) -> Result<(), EngineError> {
        let is_endless = self.capacity.is_endless();
        let state = &self.motion.state;
        let outlook = Outlook {
            failures: self.motion.recorder.totals.failures,
            is_endless,
            is_settled: if is_endless {
                state.occupancy().gpus_up() == state.cluster().gpus_total()
            } else {
                // Only timers and events of running jobs are left.
                let running = state.lives().running().iter();
                let runs = running.filter_map(|at| state.run(JobId::new(at)));
                let ends = runs.filter(|run| run.has_event()).count();
                self.motion.queue.live() == self.timers.live() + ends
            },
        };
        self.livelock.look(state, outlook)
    }

    /// Returns whether the only future events are endless failures and repairs, or rounds and timers that change
    /// nothing.
    #[inline]
    fn is_hopeless(&self) -> bool {
        if self.idle_wakes > IDLE_ROUNDS_MAX
            && (self.timers.live() == 0 || self.idle_wakes > IDLE_TIMERS_MAX)
        {
            return true;
        }
        self.capacity.is_endless()
            && self.decisions > 0
            && self.motion.state.lives().running().is_empty()
            && self.motion.state.lives().are_all_here()
            && self.timers.live() == 0
            && (self.next_round.is_none() || self.is_steady)
            && self.are_changes_futile()
    }

    /// Returns whether no job can start as a result of the endless failures and repairs. That is the case if all
    /// servers are up, or if there have been enough failures and repairs without an action in between.
    pub(crate) fn are_changes_futile(&self) -> bool {
        let there = self.motion.state.occupancy();
        self.capacity.is_endless()
            && (there.gpus_up() == self.motion.state.cluster().gpus_total()
                || self.idle_changes > IDLE_CHANGES_MAX * there.servers())
    }

    /// Returns the error of a run that reaches the end of simulated time with unfinished jobs.
    fn endless(&self) -> EngineError {
        let state = &self.motion.state;
        let is_open = |job: &JobId| {
            !matches!(
                state.lives().phase(*job),
                Some(Phase::Finished | Phase::Dropped) | None
            )
        };
        EngineError::Endless {
            time: state.now(),
            open: state.jobs().len() - state.lives().done(),
            jobs: state.jobs().ids().filter(is_open).take(10).collect(),
        }
    }

    fn stalled(&self) -> EngineError {
        // A running job without a future event is paused at its quota.
        let lives = self.motion.state.lives();
        let (waiting, paused) = (lives.waiting(), lives.running());
        EngineError::Stalled {
            time: self.motion.state.now(),
            waiting: waiting.len(),
            paused: paused.len(),
            jobs: (waiting.iter().chain(paused.iter()))
                .take(10)
                .map(JobId::new)
                .collect(),
        }
    }
}
