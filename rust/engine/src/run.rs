//! The loop: gather an instant, apply its events, ask the policy, check and commit its plan (`ARCHITECTURE.md`).
//! To the end, or step by step: both give the same bytes.

use crate::apply::Overlay;
use crate::capacity::CapacityEvents;
use crate::config::{OnInfeasible, RunConfig, World};
use crate::error::EngineError;
use crate::index::FreeIndex;
use crate::plan::{Plan, PlanBuffer, TimerOrder};
use crate::policy::{Knowledge, Next, Policy, WakeOn};
use crate::queue::EventQueue;
use crate::record::{Demand, EndReason, Recorder};
use crate::state::State;
use crate::timers::Timers;
use crate::view::{Changes, ClusterView};
use gangline_model::{
    Action, Infeasible, InfeasibleReason, JobId, ServerId, SimSpan, SimTime, TimerTag,
};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Looks at the interrupt flag and reports progress at least once per so many events.
const EVENTS_PER_LOOK: u64 = 4096;
/// Reports progress at least once per so many decisions: some take long.
const DECISIONS_PER_REPORT: u64 = 16;

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
    /// Overhead of a restart beyond the run's, per GPU.
    pub restart_per_gpu: SimSpan,
    /// Whether some of its starts cost another time than the run's.
    pub sets_overheads: bool,
    /// Whether it asks how much of their speed jobs kept.
    pub watches_locality: bool,
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
            restart_per_gpu: policy.restart_per_gpu(),
            sets_overheads: policy.sets_overheads(),
            watches_locality: policy.watches_locality(),
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
    /// How many of the dropped jobs have had their turn to arrive.
    pub(crate) dropped_seen: usize,
    /// The first job that arrived at the present instant.
    pub(crate) newest: usize,
    pub(crate) traits: PolicyTraits,
    pub(crate) overlay: Overlay,
    pub(crate) buffer: PlanBuffer,
    /// Sub-batches of the jobs that the present plan moves; full batches are left out.
    pub(crate) moved_sub_batches: Vec<(JobId, u32)>,
    pub(crate) done: usize,
    pub(crate) next_round: Option<SimTime>,
    pub(crate) is_steady: bool,
    /// Decisions without any action in a row, where nothing but rounds and timers was to come.
    pub(crate) idle_wakes: u32,
    /// Failures and repairs since the last action.
    pub(crate) idle_changes: usize,
    pub(crate) awaiting: bool,
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
        if max_share > 1 {
            config.require_pairs(&world.jobs)?;
        }
        let capacity = CapacityEvents::new(&config, world.cluster.servers().len());
        let mut recorder = Recorder::new(config.segments, config.timeline);
        let types = world.cluster.gpu_types().len();
        let mut prices = world.cluster.gpu_types().iter().map(|t| t.price_per_hour);
        if prices.any(|price| price > 0.0) {
            recorder.totals.busy_by_type_ns = vec![0; types];
        }
        let gpus_max = world.jobs.columns().gpus.iter().copied().max().unwrap_or(0);
        if traits.round.is_some_and(|round| round.0 <= 0) {
            return Err(EngineError::Option {
                field: "round_s",
                what: "must be > 0".to_owned(),
            });
        }
        let mut state = State::new(world, config, max_share, traits.mixes_types);
        state.serve(&traits);
        let mut engine = Self {
            index: FreeIndex::new(&world.cluster),
            overlay: Overlay::new(world.cluster.servers().len()),
            queue: EventQueue::new(),
            recorder,
            changes: Changes::default(),
            timers: Timers::default(),
            capacity,
            demand: Demand::new(types, gpus_max),
            dropped_seen: 0,
            newest: 0,
            traits,
            buffer: PlanBuffer::default(),
            moved_sub_batches: Vec::new(),
            done: 0,
            next_round: traits.round.map(|_| SimTime::ZERO),
            is_steady: false,
            idle_wakes: 0,
            idle_changes: 0,
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
        let fresh: Vec<Infeasible> = infeasible
            .into_iter()
            .filter(|entry| !self.state.is_dropped(entry.job))
            .collect();
        self.done += fresh.len();
        self.state.dropped.extend(fresh);
        self.state.dropped.sort_by_key(|entry| entry.job);
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
        self.buffer.clear();
        self.index.forget_changes();
        let mut unplaceable: Vec<Infeasible> = result?
            .into_iter()
            .map(|job| Infeasible {
                job,
                reason: InfeasibleReason::Placement,
            })
            .collect();
        if let Some(most) = policy.gang_max() {
            let jobs = &self.state.jobs;
            unplaceable.retain(|entry| jobs.gpus(entry.job) <= most);
            let wide = jobs.ids().filter(|&job| jobs.gpus(job) > most);
            unplaceable.extend(wide.map(|job| Infeasible {
                job,
                reason: InfeasibleReason::Gang,
            }));
        }
        unplaceable.retain(|entry| !self.state.is_dropped(entry.job));
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
        loop {
            if let Some(outcome) = self.run_for(EVENTS_PER_LOOK, policy, control, stopwatch)? {
                return Ok(outcome);
            }
        }
    }

    /// Runs through about so many events, for callers that look around between slices. Slices of any
    /// length give the same run; `None` = it goes on. Looks at the interrupt flag when it begins and after every
    /// decision, for a decision may take long.
    ///
    /// # Errors
    /// Those of [`Engine::run`].
    pub fn run_for(
        &mut self,
        events: u64,
        policy: &mut dyn Policy,
        control: &Control,
        stopwatch: &mut dyn Stopwatch,
    ) -> Result<Option<Outcome>, EngineError> {
        let end = self.events.saturating_add(events);
        if control.interrupt.load(Ordering::Relaxed) {
            self.close(Outcome::Interrupted);
        }
        while self.outcome.is_none() && self.events < end {
            if self.gather()? {
                self.ask(policy, stopwatch)?;
                if self.decisions.is_multiple_of(DECISIONS_PER_REPORT) {
                    self.report(control);
                }
                if control.interrupt.load(Ordering::Relaxed) {
                    self.close(Outcome::Interrupted);
                }
            }
        }
        self.report(control);
        Ok(self.outcome)
    }

    #[inline]
    fn report(&self, control: &Control) {
        control.now_ns.store(self.state.now.0, Ordering::Relaxed);
        control.done.store(self.done as u64, Ordering::Relaxed);
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
        let timers: Vec<_> = timers.iter().map(|&(tag, at)| (tag, Some(at))).collect();
        self.apply_with_limits(actions, &timers, &[], next)
    }

    /// As [`Self::apply`], with limits of work (iterations) for jobs that run after the plan. A timer without an
    /// instant is cancelled.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub fn apply_with_limits(
        &mut self,
        actions: Vec<Action>,
        timers: &[(TimerTag, Option<SimTime>)],
        limits: &[(JobId, f64)],
        next: Next,
    ) -> Result<(), EngineError> {
        if !self.awaiting {
            return Err(EngineError::Step {
                what: "no decision is due: advance first",
            });
        }
        self.buffer.clear();
        self.buffer.actions = actions;
        self.buffer.limits.extend_from_slice(limits);
        self.buffer.timers = timers
            .iter()
            .map(|&(tag, time)| match time {
                Some(time) => TimerOrder::Arm(tag, time),
                None => TimerOrder::Cancel(tag),
            })
            .collect();
        self.commit(next)?;
        Ok(())
    }

    /// What a policy that may know all would see now: the cluster, and the changes since the last decision.
    pub fn view(&self) -> (ClusterView<'_>, &Changes) {
        (
            ClusterView {
                state: &self.state,
                knowledge: Knowledge::Remaining,
            },
            &self.changes,
        )
    }

    /// Adds a failure (`up` = false) or repair at an instant after now, for step-by-step runs.
    ///
    /// # Errors
    /// [`EngineError::Step`] if the instant does not lie after now or there is no such server.
    pub fn inject_capacity(
        &mut self,
        server: ServerId,
        up: bool,
        at: SimTime,
    ) -> Result<(), EngineError> {
        if at <= self.state.now || server.index() >= self.state.servers.len() {
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

    /// Ends the run: closes what is open.
    pub(crate) fn close(&mut self, outcome: Outcome) {
        if self.outcome.is_some() {
            return;
        }
        let open: Vec<usize> = self.state.running.iter().collect();
        for at in open {
            let slot = self.state.slot_of(JobId::new(at));
            self.state
                .close_segment(slot, &mut self.recorder, EndReason::Stopped);
            self.state.runs[slot].segment_start = self.state.now;
            self.state.note_sharing(slot, false);
        }
        self.recorder.finish(&self.state);
        self.outcome = Some(outcome);
    }

    /// Number of GPU types, for results.
    pub fn types(&self) -> usize {
        self.state.cluster.gpu_types().len()
    }
}
