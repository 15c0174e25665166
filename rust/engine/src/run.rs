//! The loop: gather an instant, apply its events, ask the policy, check and commit its plan
//! (architecture sections 3 and 4). To the end, or step by step: both give the same bytes.

use crate::apply::Overlay;
use crate::capacity::CapacityEvents;
use crate::config::{OnInfeasible, RunConfig, World};
use crate::error::{EngineError, PlanError};
use crate::index::FreeIndex;
use crate::plan::{Plan, PlanBuffer, TimerOrder};
use crate::policy::{Knowledge, Next, Policy, WakeOn};
use crate::queue::{EventClass, EventQueue};
use crate::record::{Demand, EndReason, Recorder};
use crate::state::{NO_SLOT, Phase, State};
use crate::timers::Timers;
use crate::view::{Changes, ClusterView};
use gangline_model::{
    Action, GpuTypeId, Infeasible, InfeasibleReason, JobId, ModelError, ServerId, SimSpan, SimTime,
    TimerTag,
};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Looks at the interrupt flag and reports progress once per so many events.
const EVENTS_PER_LOOK: u64 = 4096;
/// Every so many decisions one is timed: a clock read costs as much as a small decision.
const DECISIONS_PER_SAMPLE: u64 = 16;
/// So many rounds without any action, on a cluster where nothing else can happen, are a stall: a round
/// policy may wait for time to pass, but not for ever.
const IDLE_ROUNDS_MAX: u32 = 1000;

/// No run goes on beyond this: about 285 years, just before nanoseconds would overflow.
const HORIZON: SimTime = SimTime(9_000_000_000_000_000_000);

/// Lends wall time to a run; results never depend on it.
pub trait Stopwatch {
    /// Nanoseconds since some fixed moment.
    fn nanos(&mut self) -> u64;
}

/// A stopwatch that stands still, for tests.
#[derive(Debug, Default)]
pub struct Silent;

impl Stopwatch for Silent {
    fn nanos(&mut self) -> u64 {
        0
    }
}

/// Progress of a run and a way to stop it, shared with other threads.
#[derive(Debug, Default)]
pub struct Control {
    /// Set it to stop the run at its next look.
    pub interrupt: AtomicBool,
    /// Simulated time, ns.
    pub now_ns: AtomicI64,
    /// Jobs that are done.
    pub done: AtomicU64,
}

/// Why [`Engine::advance`] came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// The policy has to be asked now.
    Decision,
    /// The run is over.
    Done,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All jobs are done.
    Finished,
    /// A limit of time or events was reached.
    Limit,
    /// The interrupt flag was set.
    Interrupted,
}

/// What a policy declares, fixed for the run.
#[derive(Clone, Copy, Debug)]
pub struct PolicyTraits {
    /// Events that wake it.
    pub wake_on: WakeOn,
    /// Round length, if it works in rounds.
    pub round: Option<SimSpan>,
    /// What it may know.
    pub knowledge: Knowledge,
    /// Most jobs it puts on one GPU.
    pub max_share: u32,
    /// Whether its gangs mix GPU types.
    pub mixes_types: bool,
}

impl PolicyTraits {
    /// What `policy` declares.
    pub fn of(policy: &dyn Policy) -> Self {
        Self {
            wake_on: policy.wake_on(),
            round: policy.round(),
            knowledge: policy.knowledge(),
            max_share: policy.max_share(),
            mixes_types: policy.mixes_types(),
        }
    }
}

/// One run.
#[derive(Debug)]
pub struct Engine {
    pub(crate) state: State,
    pub(crate) index: FreeIndex,
    pub(crate) queue: EventQueue,
    pub(crate) recorder: Recorder,
    pub(crate) changes: Changes,
    pub(crate) timers: Timers,
    pub(crate) capacity: CapacityEvents,
    pub(crate) demand: Demand,
    pub(crate) dropped: Vec<Infeasible>,
    pub(crate) traits: PolicyTraits,
    overlay: Overlay,
    buffer: PlanBuffer,
    /// Sub-batches of the jobs that the present plan moves; full batches are left out.
    moved_sub_batches: Vec<(JobId, u32)>,
    cursor: usize,
    pub(crate) done: usize,
    next_round: Option<SimTime>,
    is_steady: bool,
    idle_rounds: u32,
    awaiting: bool,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) events: u64,
    pub(crate) decisions: u64,
    pub(crate) decision_nanos: Vec<u32>,
}

impl Engine {
    /// Sets a run up. `traits` are those of the policy that will be asked.
    ///
    /// # Errors
    /// [`EngineError::Option`] for bad options, [`EngineError::Infeasible`] for jobs that can never run
    /// (unless the run drops them).
    pub fn new(
        world: &World,
        config: RunConfig,
        traits: PolicyTraits,
    ) -> Result<Self, EngineError> {
        config.validate(&world.cluster, &world.jobs)?;
        let max_share = config.max_share.min(traits.max_share).max(1);
        let capacity = CapacityEvents::new(&config, world.cluster.servers().len());
        let recorder = Recorder::new(config.segments, config.timeline);
        let types = world.cluster.gpu_types().len();
        let gpus_max = world.jobs.columns().gpus.iter().copied().max().unwrap_or(0);
        if traits.round.is_some_and(|round| round.0 <= 0) {
            return Err(EngineError::Option {
                field: "round_s",
                what: "must be > 0".to_owned(),
            });
        }
        let state = State::new(world, config, max_share, traits.mixes_types);
        let mut engine = Self {
            index: FreeIndex::new(&world.cluster),
            overlay: Overlay::new(world.cluster.servers().len()),
            queue: EventQueue::new(),
            recorder,
            changes: Changes::default(),
            timers: Timers::default(),
            capacity,
            demand: Demand::new(types, gpus_max),
            dropped: Vec::new(),
            traits,
            buffer: PlanBuffer::default(),
            moved_sub_batches: Vec::new(),
            cursor: 0,
            done: 0,
            next_round: traits.round.map(|_| SimTime::ZERO),
            is_steady: false,
            idle_rounds: 0,
            awaiting: false,
            outcome: None,
            events: 0,
            decisions: 0,
            decision_nanos: Vec::new(),
            state,
        };
        engine.index.forget_changes();
        let infeasible = engine.state.infeasible();
        engine.drop_or_refuse(infeasible)?;
        engine.capacity.fill(&mut engine.queue);
        if let Some(&first) = world.jobs.columns().arrival.first() {
            engine.recorder.totals.last = first.min(SimTime::ZERO);
        }
        Ok(engine)
    }

    fn drop_or_refuse(&mut self, infeasible: Vec<Infeasible>) -> Result<(), EngineError> {
        if infeasible.is_empty() {
            return Ok(());
        }
        if self.state.config.on_infeasible == OnInfeasible::Error {
            return Err(EngineError::Infeasible { jobs: infeasible });
        }
        for entry in infeasible {
            let phase = &mut self.state.job[entry.job.index()].phase;
            if *phase != Phase::Dropped {
                *phase = Phase::Dropped;
                self.done += 1;
                self.dropped.push(entry);
            }
        }
        self.dropped.sort_by_key(|entry| entry.job);
        Ok(())
    }

    /// Introduces the policy to the empty cluster. Call once, before the first step.
    ///
    /// # Errors
    /// Those of [`Policy::start`], and [`EngineError::Infeasible`] for jobs it could never place.
    pub fn start(&mut self, policy: &mut dyn Policy) -> Result<(), EngineError> {
        let view = ClusterView {
            state: &self.state,
            knowledge: self.traits.knowledge,
        };
        let mut plan = Plan {
            state: &self.state,
            free: &mut self.index,
            buffer: &mut self.buffer,
        };
        let mark = plan.mark();
        let result = policy.start(&view, &mut plan);
        plan.rollback(mark);
        self.buffer.actions.clear();
        self.buffer.timers.clear();
        self.index.forget_changes();
        let mut unplaceable: Vec<Infeasible> = result?
            .into_iter()
            .map(|job| Infeasible {
                job,
                reason: InfeasibleReason::Placement,
            })
            .collect();
        unplaceable.retain(|entry| self.state.job[entry.job.index()].phase != Phase::Dropped);
        unplaceable.sort_by_key(|entry| entry.job);
        self.drop_or_refuse(unplaceable)
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// [`EngineError`]: a refused plan, a failed policy, a stalled run.
    pub fn run(
        &mut self,
        policy: &mut dyn Policy,
        control: &Control,
        stopwatch: &mut dyn Stopwatch,
    ) -> Result<Outcome, EngineError> {
        let mut next_look = 0;
        loop {
            if self.events >= next_look {
                next_look = self.events + EVENTS_PER_LOOK;
                control.now_ns.store(self.state.now.0, Ordering::Relaxed);
                control.done.store(self.done as u64, Ordering::Relaxed);
                if control.interrupt.load(Ordering::Relaxed) {
                    self.close(Outcome::Interrupted);
                    return Ok(Outcome::Interrupted);
                }
            }
            if self.gather()? {
                self.ask(policy, stopwatch)?;
            }
            if let Some(outcome) = self.outcome {
                control.now_ns.store(self.state.now.0, Ordering::Relaxed);
                control.done.store(self.done as u64, Ordering::Relaxed);
                return Ok(outcome);
            }
        }
    }

    /// Goes to the next instant that needs a decision, or to the end.
    ///
    /// # Errors
    /// [`EngineError::Stalled`]; [`EngineError::Step`] if a decision is still due.
    pub fn advance(&mut self) -> Result<Advance, EngineError> {
        if self.awaiting {
            return Err(EngineError::Step {
                what: "a decision is due: decide or apply first",
            });
        }
        loop {
            if self.outcome.is_some() {
                return Ok(Advance::Done);
            }
            if self.gather()? {
                return Ok(Advance::Decision);
            }
        }
    }

    /// Asks the policy for the decision that is due and carries it out.
    ///
    /// # Errors
    /// Those of the policy and of its plan; [`EngineError::Step`] if no decision is due.
    pub fn decide(&mut self, policy: &mut dyn Policy) -> Result<(), EngineError> {
        if !self.awaiting {
            return Err(EngineError::Step {
                what: "no decision is due: advance first",
            });
        }
        self.ask(policy, &mut Silent)
    }

    /// Carries out a plan that was made outside, for the decision that is due.
    ///
    /// # Errors
    /// [`EngineError::Plan`], with the state as before; [`EngineError::Step`] if no decision is due.
    pub fn apply(
        &mut self,
        actions: Vec<Action>,
        timers: &[(TimerTag, SimTime)],
        next: Next,
    ) -> Result<(), EngineError> {
        if !self.awaiting {
            return Err(EngineError::Step {
                what: "no decision is due: advance first",
            });
        }
        self.buffer.actions = actions;
        self.buffer.timers = timers
            .iter()
            .map(|&(tag, time)| TimerOrder::Arm(tag, time))
            .collect();
        self.commit(next)?;
        Ok(())
    }

    /// The decision that is due, as a policy would see it.
    pub fn view(&self) -> (ClusterView<'_>, &Changes) {
        (
            ClusterView {
                state: &self.state,
                knowledge: Knowledge::Remaining,
            },
            &self.changes,
        )
    }

    /// Adds a failure or repair at an instant after now, for step-by-step runs.
    ///
    /// # Errors
    /// [`EngineError::Step`] if the instant does not lie after now or there is no such server.
    pub fn inject_capacity(
        &mut self,
        server: ServerId,
        up: bool,
        at: SimTime,
    ) -> Result<(), EngineError> {
        if at <= self.state.now || server.index() >= self.state.up.len() {
            return Err(EngineError::Step {
                what: "a failure must lie after now and name a server",
            });
        }
        self.capacity.inject(server, up, at, &mut self.queue);
        Ok(())
    }

    /// The present instant.
    pub fn now(&self) -> SimTime {
        self.state.now
    }

    /// Applies the events of the next instant. Returns whether the policy is due; otherwise the instant
    /// is complete, or the run is over.
    fn gather(&mut self) -> Result<bool, EngineError> {
        if self.done == self.state.jobs.len() {
            self.close(Outcome::Finished);
            return Ok(false);
        }
        let Some(time) = self.next_instant() else {
            return Err(self.stalled());
        };
        if time > HORIZON {
            let seconds = time.seconds();
            return Err(EngineError::Model(ModelError::Time { seconds }));
        }
        if self.is_hopeless() {
            return Err(self.stalled());
        }
        let past_limit = self.state.config.until.is_some_and(|until| time > until)
            || self
                .state
                .config
                .max_events
                .is_some_and(|most| self.events >= most);
        if past_limit {
            let until = self.state.config.until.filter(|_| time > self.state.now);
            if let Some(until) = until.filter(|&until| until < time) {
                self.recorder.advance(&self.state, &self.demand, until);
                self.state.now = until.max(self.state.now);
            }
            self.close(Outcome::Limit);
            return Ok(false);
        }
        self.recorder.advance(&self.state, &self.demand, time);
        self.state.now = time;
        let kinds = self.apply_events(time);
        if kinds.intersects(self.traits.wake_on) {
            self.awaiting = true;
            return Ok(true);
        }
        self.end_instant();
        Ok(false)
    }

    /// The next instant with an event; `None` if nothing is left to happen.
    fn next_instant(&mut self) -> Option<SimTime> {
        self.drop_stale();
        let arrivals = &self.state.jobs.columns().arrival;
        while self.cursor < arrivals.len() && self.state.job[self.cursor].phase == Phase::Dropped {
            self.cursor += 1;
        }
        let arrival = arrivals.get(self.cursor).copied();
        let event = self.queue.peek().map(|event| event.time);
        let mut next = match (arrival, event) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if let (Some(round), Some(period)) = (self.next_round, self.traits.round) {
            if !self.is_steady {
                next = Some(next.map_or(round, |time| time.min(round)));
            } else if let Some(time) = next {
                // rounds were skipped up to this event; the next boundary is at or after it
                let periods = (time.0 + period.0 - 1).div_euclid(period.0);
                self.next_round = Some(round.max(SimTime(periods * period.0)));
                self.is_steady = false;
            }
        }
        next
    }

    /// Removes cancelled events from the head of the queue: they are no events.
    #[inline]
    fn drop_stale(&mut self) {
        while let Some(event) = self.queue.peek() {
            let is_live = match event.class() {
                EventClass::Completion => {
                    self.state.runs[event.subject as usize].generation == event.generation
                }
                EventClass::Capacity => true,
                EventClass::Timer => self.timers.is_live(event.subject, event.generation),
            };
            if is_live {
                return;
            }
            self.queue.pop();
            self.queue.note_dropped();
        }
    }

    fn apply_events(&mut self, time: SimTime) -> WakeOn {
        let mut kinds = WakeOn::default();
        let mut arrivals_done = false;
        loop {
            self.drop_stale();
            let event = self
                .queue
                .peek()
                .filter(|event| event.time == time)
                .copied();
            if !arrivals_done && event.is_none_or(|event| event.class() == EventClass::Timer) {
                arrivals_done = true;
                kinds = kinds | self.arrive(time);
                continue;
            }
            let Some(event) = event else { break };
            self.queue.pop();
            self.events += 1;
            kinds = kinds
                | match event.class() {
                    EventClass::Completion => self.complete(event.subject),
                    EventClass::Capacity => self.change_capacity(event.subject),
                    EventClass::Timer => {
                        let tag = self.timers.fire(event.subject);
                        self.changes.timers.push(tag);
                        WakeOn::TIMER
                    }
                };
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

    fn arrive(&mut self, time: SimTime) -> WakeOn {
        let mut kinds = WakeOn::default();
        while self.cursor < self.state.jobs.len() {
            let job = JobId::new(self.cursor);
            if self.state.job[self.cursor].phase == Phase::Dropped {
                self.cursor += 1;
                continue;
            }
            if self.state.jobs.arrival(job) != time {
                break;
            }
            self.cursor += 1;
            self.events += 1;
            self.state.job[job.index()].phase = Phase::Waiting;
            self.state.waiting.insert(job.index());
            self.demand.add(&self.state, job);
            self.state.job[job.index()].active_ns = self.recorder.totals.active_ns;
            self.changes.arrived.push(job);
            kinds = WakeOn::ARRIVAL;
        }
        kinds
    }

    fn complete(&mut self, slot: u32) -> WakeOn {
        let job = self.state.runs[slot as usize].job;
        let gpus = self
            .state
            .end_run(job, &mut self.recorder, EndReason::Finished);
        let at = job.index();
        self.state.job[at].phase = Phase::Finished;
        self.state.job[at].remaining = 0.0;
        self.state.job[at].finish = self.state.now;
        self.recorder.hash.event(2, self.state.now, job, &gpus);
        for part in gpus.parts() {
            self.index
                .sync(part.server, self.state.free[part.server.index()]);
        }
        self.state.job[at].active_ns =
            self.recorder.totals.active_ns - self.state.job[at].active_ns;
        self.done += 1;
        self.changes.finished.push(job);
        WakeOn::COMPLETION
    }

    fn change_capacity(&mut self, subject: u32) -> WakeOn {
        let (server, up) = self.capacity.take(subject, self.state.now, &mut self.queue);
        if self.state.up[server.index()] == up {
            return WakeOn::default();
        }
        let spec = self.state.cluster.server(server);
        if up {
            self.state.up[server.index()] = true;
            self.state.free[server.index()] = self.state.cluster.full_mask(server);
            self.state.up_by_type[spec.gpu_type.index()] += spec.gpus;
            self.index.set_up(server, true);
            self.changes.servers_up.push(server);
            return WakeOn::CAPACITY;
        }
        self.recorder.totals.failures += 1;
        let mut residents: Vec<JobId> = (0..spec.gpus)
            .flat_map(|slot| self.state.residents_of(server, slot))
            .collect();
        residents.sort_unstable();
        residents.dedup();
        for job in residents {
            let gpus = self
                .state
                .end_run(job, &mut self.recorder, EndReason::Failed);
            self.queue.note_stale();
            self.recorder.hash.event(4, self.state.now, job, &gpus);
            self.state.job[job.index()].phase = Phase::Waiting;
            self.state.waiting.insert(job.index());
            self.demand.add(&self.state, job);
            self.changes.thrown_back.push(job);
            for part in gpus.parts() {
                self.index
                    .sync(part.server, self.state.free[part.server.index()]);
            }
        }
        self.state.up[server.index()] = false;
        self.state.free[server.index()] = 0;
        self.state.up_by_type[spec.gpu_type.index()] -= spec.gpus;
        self.index.set_up(server, false);
        self.changes.servers_down.push(server);
        WakeOn::CAPACITY
    }

    fn ask(
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
        let changed: Vec<ServerId> = self.index.changed().iter().map(|change| change.0).collect();
        self.index.forget_changes();
        for server in changed {
            self.index.sync(server, self.state.free[server.index()]);
        }
        self.buffer.actions.clear();
        self.buffer.timers.clear();
    }

    /// Checks the plan, carries it out and ends the instant.
    fn commit(&mut self, next: Next) -> Result<(), PlanError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        if !(buffer.actions.is_empty() && buffer.timers.is_empty())
            && let Err(error) = self.overlay.check(&self.state, &buffer, self.decisions)
        {
            self.discard();
            return Err(error);
        }
        self.decisions += 1;
        let acted = !buffer.actions.is_empty();
        self.commit_releases(&mut buffer.actions);
        let mut kept = std::mem::take(&mut self.moved_sub_batches);
        for action in buffer.actions.drain(..) {
            self.commit_take(action, &kept);
        }
        kept.clear();
        self.moved_sub_batches = kept;
        self.settle_index();
        for order in buffer.timers.drain(..) {
            match order {
                TimerOrder::Arm(tag, time) => self.timers.arm(tag, time, &mut self.queue),
                TimerOrder::Cancel(tag) => self.timers.cancel(tag, &mut self.queue),
            }
        }
        self.buffer = buffer;
        self.note_rounds(next, acted);
        self.changes.clear();
        self.awaiting = false;
        self.end_instant();
        Ok(())
    }

    /// Preempts, and takes moving jobs off their GPUs. A move to the GPUs already held is dropped: it is
    /// free and changes nothing.
    fn commit_releases(&mut self, actions: &mut Vec<Action>) {
        if !actions
            .iter()
            .any(|a| matches!(a, Action::Preempt { .. } | Action::Move { .. }))
        {
            return;
        }
        actions.retain(|action| match action {
            Action::Move { job, gpus } => self.state.run(*job).is_some_and(|run| run.gpus != *gpus),
            _ => true,
        });
        for action in actions.iter() {
            match action {
                Action::Preempt { job } => self.stop(*job, EndReason::Preempted),
                Action::Move { job, .. } => {
                    let sub_batch = self.state.run(*job).map_or(0, |run| run.sub_batch);
                    if sub_batch != 0 {
                        self.moved_sub_batches.push((*job, sub_batch));
                    }
                    self.stop(*job, EndReason::Moved);
                }
                Action::Start { .. } | Action::SetSubBatch { .. } => {}
            }
        }
    }

    fn stop(&mut self, job: JobId, reason: EndReason) {
        let gpus = self.state.end_run(job, &mut self.recorder, reason);
        self.queue.note_stale();
        let count = self.state.jobs.len();
        let column = if reason == EndReason::Preempted {
            self.recorder.totals.preemptions += 1;
            &mut self.state.out.preemptions
        } else {
            self.recorder.totals.migrations += 1;
            &mut self.state.out.migrations
        };
        if column.is_empty() {
            column.resize(count, 0);
        }
        column[job.index()] += 1;
        self.state.job[job.index()].phase = Phase::Waiting;
        self.state.waiting.insert(job.index());
        self.demand.add(&self.state, job);
        self.recorder.hash.event(3, self.state.now, job, &gpus);
        for part in gpus.parts() {
            self.index
                .sync(part.server, self.state.free[part.server.index()]);
        }
    }

    fn commit_take(&mut self, action: Action, moved: &[(JobId, u32)]) {
        let (job, gpus, sub_batch) = match action {
            Action::Start {
                job,
                gpus,
                sub_batch,
            } => (job, gpus, sub_batch.unwrap_or(0)),
            // a move keeps the sub-batch
            Action::Move { job, gpus } => {
                let kept = moved.iter().find(|entry| entry.0 == job);
                (job, gpus, kept.map_or(0, |entry| entry.1))
            }
            Action::Preempt { .. } => return,
            Action::SetSubBatch { job, sub_batch } => {
                self.state
                    .set_sub_batch(job, sub_batch, &mut self.queue, &mut self.recorder);
                return;
            }
        };
        self.recorder.hash.event(1, self.state.now, job, &gpus);
        self.demand.remove(&self.state, job);
        for part in gpus.parts() {
            let at = part.server.index();
            self.index
                .sync(part.server, self.state.free[at] & !part.mask);
        }
        self.state.begin(job, gpus, sub_batch, &mut self.queue);
    }

    /// Puts the index right for every server that the scratch touched; what the plan took is already so.
    #[inline]
    fn settle_index(&mut self) {
        for at in 0..self.index.changed().len() {
            let server = self.index.changed()[at].0;
            self.index.sync(server, self.state.free[server.index()]);
        }
        self.index.forget_changes();
    }

    fn note_rounds(&mut self, next: Next, acted: bool) {
        if self.traits.round.is_none() {
            return;
        }
        self.is_steady = next == Next::Steady && self.state.config.skip_rounds;
        let is_dead = !acted
            && self.state.running.is_empty()
            && self.cursor == self.state.jobs.len()
            && (self.queue.is_empty() || (self.capacity.is_endless() && self.capacity.down() == 0));
        self.idle_rounds = if is_dead { self.idle_rounds + 1 } else { 0 };
    }

    fn end_instant(&mut self) {
        self.state
            .retime_touched(&mut self.queue, &mut self.recorder);
        if self.queue.wants_compaction() {
            let (state, timers) = (&self.state, &self.timers);
            self.queue.compact(|event| match event.class() {
                EventClass::Completion => {
                    state.runs[event.subject as usize].generation == event.generation
                }
                EventClass::Capacity => true,
                EventClass::Timer => timers.is_live(event.subject, event.generation),
            });
        }
        self.recorder.timeline_row(&self.state);
        if self.state.config.check_invariants {
            self.assert_invariants();
        }
    }

    /// Whether only failures without end, or rounds in which nothing happens, are still to come.
    fn is_hopeless(&self) -> bool {
        if self.idle_rounds > IDLE_ROUNDS_MAX {
            return true;
        }
        self.capacity.is_endless()
            && self.decisions > 0
            && self.state.running.is_empty()
            && self.cursor == self.state.jobs.len()
            && self.capacity.down() == 0
            && self.timers.live() == 0
            && (self.next_round.is_none() || self.is_steady)
    }

    fn stalled(&self) -> EngineError {
        EngineError::Stalled {
            time: self.state.now,
            waiting: self.state.waiting.len(),
            jobs: self.state.waiting.iter().take(10).map(JobId::new).collect(),
        }
    }

    /// Ends the run: closes what is open.
    fn close(&mut self, outcome: Outcome) {
        if self.outcome.is_some() {
            return;
        }
        let open: Vec<usize> = self.state.running.iter().collect();
        for at in open {
            self.state
                .close_segment(JobId::new(at), &mut self.recorder, EndReason::Stopped);
            let slot = self.state.job[at].slot;
            debug_assert_ne!(slot, NO_SLOT, "a running job has a record");
            self.state.runs[slot as usize].segment_start = self.state.now;
        }
        self.recorder.finish(&self.state);
        self.outcome = Some(outcome);
    }

    /// Number of GPU types, for results.
    pub fn types(&self) -> usize {
        self.state.cluster.gpu_types().len()
    }

    /// Free GPUs of a type by the index, for tests.
    pub fn index_free(&self, gpu_type: GpuTypeId) -> u32 {
        self.index.pool(gpu_type).free_total()
    }
}
