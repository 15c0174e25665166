//! The main loop: it finds the next instant, applies its events, calls the policy, and checks and applies the plan
//! (`ARCHITECTURE.md`). A run in one call and a step-by-step run give identical results.

use crate::accounts::Accounts;
use crate::apply::Overlay;
use crate::capacity::CapacityEvents;
use crate::config::{OnInfeasible, RunConfig, World};
use crate::error::EngineError;
use crate::features::Features;
use crate::livelock::Livelock;
use crate::memory::{BYTES_PER_JOB, is_available};
use crate::occupancy::FreeIndex;
use crate::plan::{Plan, PlanBuffer, TimerOrder};
use crate::policy::Policy;
use crate::queue::EventQueue;
use crate::record::Recorder;
use crate::state::State;
use crate::state::motion::Motion;
use crate::timers::Timers;
use crate::traits::{Knowledge, Next, PolicyTraits};
use crate::view::{Changes, ClusterView};
use crate::watch::Watch;
use gangline_model::{Action, Infeasible, InfeasibleReason, JobId, ServerId, SimTime, TimerTag};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Number of events after which the interrupt flag is checked and progress is reported.
const EVENTS_PER_LOOK: u64 = 4096;
/// Number of decisions after which progress is reported, because some decisions take a long time.
const DECISIONS_PER_REPORT: u64 = 16;

/// A source of wall-clock time. Results never depend on wall-clock time.
pub trait Stopwatch {
    /// Returns the time in nanoseconds since a fixed point in time.
    fn nanos(&mut self) -> u64;
}

/// A stopwatch that always reads 0, for tests.
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
    /// If this flag is set, the run stops at its next check of the flag.
    pub interrupt: AtomicBool,
    /// Simulated time in nanoseconds.
    pub now_ns: AtomicI64,
    /// Number of jobs that are done.
    pub done: AtomicU64,
}

/// The reason why [`Engine::advance`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// The policy must now make a decision.
    Decision,
    /// The run has reached the requested time, and no decision is due.
    Time,
    /// The requested number of events has been processed.
    Slice,
    /// The run is over.
    Done,
}

/// Outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All jobs are done.
    Finished,
    /// The limit on time or on events was reached.
    Limit,
    /// The interrupt flag was set.
    Interrupted,
}

/// One run. A clone continues independently from the same state; it shares only the cluster, the jobs and the network
/// with the original.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) motion: Motion,
    pub(crate) changes: Changes,
    pub(crate) timers: Timers,
    pub(crate) capacity: CapacityEvents,
    pub(crate) traits: PolicyTraits,
    pub(crate) overlay: Overlay,
    pub(crate) buffer: PlanBuffer,
    pub(crate) next_round: Option<SimTime>,
    pub(crate) is_steady: bool,
    /// Number of consecutive decisions without an action while only rounds and timers were left.
    pub(crate) idle_wakes: u32,
    /// Number of failures and repairs since the last action.
    pub(crate) idle_changes: usize,
    pub(crate) livelock: Livelock,
    pub(crate) awaiting: bool,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) events: u64,
    pub(crate) decisions: u64,
    pub(crate) decision_nanos: Vec<u32>,
    /// Reasons why jobs wait; present only in runs that watch jobs.
    pub(crate) watch: Option<Box<Watch>>,
}

impl Engine {
    /// Sets up a run. `traits` are the traits of the run's policy.
    ///
    /// # Errors
    /// Returns [`EngineError::Option`] for invalid options, [`EngineError::Infeasible`] for jobs that can never run
    /// (unless the run drops them), or [`EngineError::OutOfMemory`] if there is not enough memory for all jobs.
    pub fn new(
        world: &World,
        config: RunConfig,
        traits: PolicyTraits,
    ) -> Result<Self, EngineError> {
        config.validate(&world.cluster, &world.jobs)?;
        let features = Features::of(world, &config, &traits);
        if features.shares {
            config.require_pairs()?;
        }
        let capacity = CapacityEvents::new(&config, world.cluster.servers().len());
        let mut recorder = Recorder::new(config.segments, config.timeline);
        let types = world.cluster.gpu_types().len();
        let mut prices = world.cluster.gpu_types().iter().map(|t| t.price_per_hour);
        if prices.any(|price| price > 0.0) {
            recorder.totals.busy_by_type_ns = vec![0; types];
        }
        if traits.round.is_some_and(|round| round.0 <= 0) {
            return Err(EngineError::Option {
                field: "round_s",
                what: "must be > 0".to_owned(),
            });
        }
        let watched = &config.watch;
        let watch = (!watched.is_empty()).then(|| Box::new(Watch::new(watched)));
        if !is_available(world.jobs.len() * BYTES_PER_JOB) {
            return Err(EngineError::OutOfMemory {
                time: SimTime::ZERO,
                segments: 0,
            });
        }
        let size = (world.jobs.len(), world.cluster.gpus_total() as usize);
        let motion = Motion {
            accounts: Accounts::new(&config, &traits, features, size),
            state: State::new(world, config, &traits, features),
            queue: EventQueue::new(),
            recorder,
        };
        let mut engine = Self {
            motion,
            overlay: Overlay::new(world.cluster.servers().len()),
            changes: Changes::default(),
            timers: Timers::default(),
            capacity,
            traits,
            buffer: PlanBuffer::default(),
            next_round: traits.round.map(|_| SimTime::ZERO),
            is_steady: false,
            idle_wakes: 0,
            idle_changes: 0,
            livelock: Livelock::default(),
            awaiting: false,
            outcome: None,
            events: 0,
            decisions: 0,
            decision_nanos: Vec::new(),
            watch,
        };
        let infeasible = engine.motion.state.types().infeasible();
        engine.drop_or_refuse(infeasible)?;
        engine.motion.state.check_checkpoints()?;
        engine.capacity.fill(&mut engine.motion.queue);
        if let Some(&first) = world.jobs.columns().arrival.first() {
            engine.motion.recorder.totals.last = first.min(SimTime::ZERO);
        }
        Ok(engine)
    }

    fn drop_or_refuse(&mut self, infeasible: Vec<Infeasible>) -> Result<(), EngineError> {
        if infeasible.is_empty() {
            return Ok(());
        }
        if self.motion.state.config().on_infeasible == OnInfeasible::Error {
            return Err(EngineError::Infeasible { jobs: infeasible });
        }
        self.motion.state.drop_all(infeasible);
        Ok(())
    }

    /// Lets the policy examine the empty cluster. The caller must call this method once, before the first step.
    ///
    /// # Errors
    /// Returns the errors of [`Policy::start`], and [`EngineError::Infeasible`] for jobs that the policy could never
    /// place.
    pub fn start(&mut self, policy: &mut dyn Policy) -> Result<(), EngineError> {
        let mut index = self.motion.state.occupancy_mut().lend();
        let view = self.motion.view(self.traits.knowledge);
        let mut plan = Plan {
            state: &self.motion.state,
            free: &mut index,
            buffer: &mut self.buffer,
        };
        let result = policy.start(&view, &mut plan);
        self.buffer.clear();
        self.motion.state.occupancy_mut().take_back(index);
        let view = self.motion.view(self.traits.knowledge);
        let mut unplaceable: Vec<Infeasible> = result?
            .into_iter()
            .map(|job| Infeasible {
                job,
                reason: policy.why_never(&view, job),
            })
            .collect();
        if let Some(most) = self.traits.gang_max {
            let jobs = self.motion.state.jobs();
            unplaceable.retain(|entry| jobs.gpus(entry.job) <= most);
            let wide = jobs.ids().filter(|&job| jobs.gpus(job) > most);
            unplaceable.extend(wide.map(|job| Infeasible {
                job,
                reason: InfeasibleReason::Gang,
            }));
        }
        unplaceable.retain(|entry| !self.motion.state.lives().is_dropped(entry.job));
        unplaceable.sort_by_key(|entry| entry.job);
        self.drop_or_refuse(unplaceable)
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// Returns [`EngineError`] if a plan is rejected, the policy fails, the run stalls, or no memory is left.
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

    /// Processes a slice of about this number of events, for callers that do other work between slices. The length of a
    /// slice does not affect the results. Returns `None` if the run is not over. The interrupt flag is checked at the
    /// beginning and after every decision, because a decision may take a long time.
    ///
    /// # Errors
    /// Returns the errors of [`Engine::run`].
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
        self.motion.recorder.check_memory(self.motion.state.now())?;
        Ok(self.outcome)
    }

    #[inline]
    fn report(&self, control: &Control) {
        control
            .now_ns
            .store(self.motion.state.now().0, Ordering::Relaxed);
        control
            .done
            .store(self.motion.state.lives().done() as u64, Ordering::Relaxed);
    }

    /// Advances to the next instant that needs a decision, or to the end of the run.
    ///
    /// # Errors
    /// Returns [`EngineError::Stalled`] if the run has stalled, or [`EngineError::Step`] if a decision is still due.
    pub fn advance(&mut self) -> Result<Advance, EngineError> {
        self.advance_for(u64::MAX, None)
    }

    /// Advances to the next instant that needs a decision, but processes only about this number of events and does not
    /// go beyond the instant `to`. The events at `to` are still applied. If no decision is then due, the run stops at
    /// `to`.
    ///
    /// # Errors
    /// Returns the errors of [`Engine::advance`].
    pub fn advance_for(
        &mut self,
        events: u64,
        to: Option<SimTime>,
    ) -> Result<Advance, EngineError> {
        if self.awaiting {
            return Err(EngineError::Step {
                what: "a decision is due: decide or apply first",
            });
        }
        let end = self.events.saturating_add(events);
        loop {
            if self.outcome.is_some() {
                return Ok(Advance::Done);
            }
            if let Some(to) = to
                && self.skip_to(to)
            {
                return Ok(Advance::Time);
            }
            if self.gather()? {
                return Ok(Advance::Decision);
            }
            if self.events >= end && self.outcome.is_none() {
                return Ok(Advance::Slice);
            }
        }
    }

    /// Advances time to an instant if nothing happens up to and including this instant. Returns whether time has
    /// advanced.
    fn skip_to(&mut self, to: SimTime) -> bool {
        if self.motion.state.lives().are_all_done() || self.is_past_limit(to) {
            return false;
        }
        // The search for the next instant may skip rounds. They are restored, because an external event might still
        // need them.
        let rounds = (self.next_round, self.is_steady);
        let next = self.next_instant();
        (self.next_round, self.is_steady) = rounds;
        if next.is_some_and(|next| next <= to) {
            return false;
        }
        if to > self.motion.state.now() {
            self.motion.recorder.advance(&self.motion.state, to);
            self.motion.state.begin_instant(to);
        }
        true
    }

    /// Calls `work` with the view and with a plan that uses the draft from [`Engine::lend_draft`]. Actions in that plan
    /// are ignored; to apply actions, pass them to [`Engine::apply`].
    pub fn draft<R>(
        &mut self,
        draft: &mut FreeIndex,
        work: impl FnOnce(&ClusterView<'_>, &Changes, &mut Plan<'_>) -> R,
    ) -> R {
        let view = self.motion.view(self.traits.knowledge);
        let mut plan = Plan {
            state: &self.motion.state,
            free: draft,
            buffer: &mut self.buffer,
        };
        let result = work(&view, &self.changes, &mut plan);
        self.buffer.clear();
        result
    }

    /// Lends the draft of a plan; until the draft is returned, only [`Engine::draft`] may be called.
    pub fn lend_draft(&mut self) -> Box<FreeIndex> {
        self.motion.state.occupancy_mut().lend()
    }

    /// Takes the draft back.
    pub fn take_back_draft(&mut self, draft: Box<FreeIndex>) {
        self.motion.state.occupancy_mut().take_back(draft);
    }

    /// Returns whether a decision is due.
    pub fn is_due(&self) -> bool {
        self.awaiting
    }

    /// Returns the traits of the policy.
    pub fn traits(&self) -> PolicyTraits {
        self.traits
    }

    /// Returns the number of decisions so far.
    pub fn decisions(&self) -> u64 {
        self.decisions
    }

    /// Returns a fingerprint of the history: the time, the number of decisions, and a hash of all job events. The
    /// fingerprints of two runs differ if their histories differ, even if their progress is equal.
    pub fn trail(&self) -> (SimTime, u64, u64) {
        let state = &self.motion.state;
        let hash = self.motion.recorder.hash.0;
        (state.now(), self.decisions, hash)
    }

    /// Calls the policy for the decision that is due, and applies its plan.
    ///
    /// # Errors
    /// Returns the errors of the policy and of its plan, or [`EngineError::Step`] if no decision is due.
    pub fn decide(&mut self, policy: &mut dyn Policy) -> Result<(), EngineError> {
        if !self.awaiting {
            return Err(EngineError::Step {
                what: "no decision is due: advance first",
            });
        }
        self.ask(policy, &mut Silent)
    }

    /// Applies a caller's plan for the decision that is due. A timer request without an instant cancels the timer.
    ///
    /// # Errors
    /// Returns [`EngineError::Plan`] if the plan is rejected, which leaves the state unchanged, or
    /// [`EngineError::Step`] if no decision is due.
    pub fn apply(
        &mut self,
        actions: Vec<Action>,
        timers: &[(TimerTag, Option<SimTime>)],
        next: Next,
    ) -> Result<(), EngineError> {
        if !self.awaiting {
            return Err(EngineError::Step {
                what: "no decision is due: advance first",
            });
        }
        self.buffer.clear();
        self.buffer.actions = actions;
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

    /// Returns the state as a policy with full knowledge would see it now: the cluster, and the changes since the last
    /// decision.
    pub fn view(&self) -> (ClusterView<'_>, &Changes) {
        (self.motion.view(Knowledge::Remaining), &self.changes)
    }

    /// Adds a failure (`up` = false) or repair at a later instant, for step-by-step runs.
    ///
    /// # Errors
    /// Returns [`EngineError::Step`] if the instant is not later than now or the server does not exist.
    pub fn inject_capacity(
        &mut self,
        server: ServerId,
        up: bool,
        at: SimTime,
    ) -> Result<(), EngineError> {
        if at <= self.motion.state.now()
            || server.index() >= self.motion.state.occupancy().servers()
        {
            return Err(EngineError::Step {
                what: "a failure or repair must be after the current instant, on a server that exists",
            });
        }
        self.capacity.inject(server, up, at, &mut self.motion.queue);
        Ok(())
    }

    /// Returns the current instant.
    pub fn now(&self) -> SimTime {
        self.motion.state.now()
    }

    /// Ends the run and closes all open segments.
    pub(crate) fn close(&mut self, outcome: Outcome) {
        if self.outcome.is_some() {
            return;
        }
        let open: Vec<usize> = self.motion.state.lives().running().iter().collect();
        for at in open {
            self.motion.close_run(JobId::new(at));
        }
        self.motion.recorder.finish(&self.motion.state);
        self.outcome = Some(outcome);
    }

    /// Returns the number of GPU types, which results need.
    pub fn types(&self) -> usize {
        self.motion.state.cluster().gpu_types().len()
    }
}
