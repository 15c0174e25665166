//! A run that is driven from outside, and the mutex that lets only one step use the run at a time.

use gangline_engine::{
    Changes, ClusterView, Engine, EngineError, FreeIndex, Next, Plan, Policy, RunConfig, World,
};
use gangline_model::{Action, SimTime, TimerTag};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Record of one decision.
#[derive(Clone)]
pub(crate) enum Step {
    /// The policy decided.
    Decided,
    /// A plan that was applied from outside.
    Planned {
        actions: Vec<Action>,
        timers: Vec<(TimerTag, Option<SimTime>)>,
        next: Next,
    },
}

/// Record of all steps of a run, from which the history of the run can be repeated.
pub(crate) struct Way {
    steps: Vec<Step>,
    is_due: bool,
    now: SimTime,
}

/// Everything needed to recreate a run.
pub(crate) struct Ground {
    pub(crate) world: World,
    pub(crate) config: RunConfig,
}

/// A run between two steps.
pub(crate) struct Driven {
    pub(crate) ground: Arc<Ground>,
    pub(crate) engine: Engine,
    /// The draft of a plan between two steps, if it was requested.
    draft: Option<Box<FreeIndex>>,
    pub(crate) policy: Option<Box<dyn Policy>>,
    pub(crate) steps: Vec<Step>,
    /// Index of the last step. Data that was read before this step is out of date.
    stamp: u64,
}

/// Read access to a run.
pub(crate) struct Look<'a, 'v, 'p> {
    pub(crate) view: &'a ClusterView<'v>,
    pub(crate) changes: &'a Changes,
    /// The plan, if a decision is due.
    pub(crate) plan: Option<&'a mut Plan<'p>>,
    pub(crate) stamp: u64,
    pub(crate) decision: u64,
}

impl Driven {
    pub(crate) fn new(
        ground: Arc<Ground>,
        engine: Engine,
        policy: Option<Box<dyn Policy>>,
    ) -> Self {
        Self {
            ground,
            engine,
            draft: None,
            policy,
            steps: Vec::new(),
            stamp: 0,
        }
    }

    pub(crate) fn way(&self) -> Way {
        Way {
            steps: self.steps.clone(),
            is_due: self.engine.is_due(),
            now: self.engine.now(),
        }
    }

    /// Repeats the history of another run from the first event.
    pub(crate) fn follow(&mut self, way: Way) -> Result<(), EngineError> {
        for step in &way.steps {
            self.engine.advance()?;
            match step {
                Step::Decided => {
                    let policy = self
                        .policy
                        .as_mut()
                        .expect("the run had a policy when the step was recorded");
                    self.engine.decide(policy.as_mut())?;
                }
                Step::Planned {
                    actions,
                    timers,
                    next,
                } => self.engine.apply(actions.clone(), timers, *next)?,
            }
        }
        self.steps = way.steps;
        if way.is_due {
            self.engine.advance()?;
        } else if way.now > self.engine.now() {
            self.engine.advance_for(u64::MAX, Some(way.now))?;
        }
        Ok(())
    }

    /// Returns a copy without the policy; the copy continues independently.
    pub(crate) fn fork(&mut self) -> Self {
        self.begin_step();
        Self {
            ground: Arc::clone(&self.ground),
            engine: self.engine.clone(),
            draft: None,
            policy: None,
            steps: self.steps.clone(),
            stamp: 0,
        }
    }

    /// Begins a step: data from earlier steps becomes out of date, and the draft that was lent is taken back.
    pub(crate) fn begin_step(&mut self) {
        self.stamp += 1;
        if let Some(draft) = self.draft.take() {
            self.engine.take_back_draft(draft);
        }
    }

    fn look<R>(&mut self, look: impl FnOnce(Look<'_, '_, '_>) -> R) -> R {
        let (stamp, is_due) = (self.stamp, self.engine.is_due());
        let decision = self.engine.decisions();
        let engine = &mut self.engine;
        let draft = self.draft.get_or_insert_with(|| engine.lend_draft());
        engine.draft(draft, |view, changes, plan| {
            look(Look {
                view,
                changes,
                plan: is_due.then_some(plan),
                stamp,
                decision,
            })
        })
    }
}

/// State of a shared run.
enum Place {
    Here(Box<Driven>),
    /// The run is executing a step.
    InStep,
    /// The run's results have been taken.
    Over,
}

/// A run that several Python objects can read.
pub(crate) struct Shared(Mutex<Place>);

impl Shared {
    pub(crate) fn new(run: Driven) -> Self {
        Self(Mutex::new(Place::Here(Box::new(run))))
    }

    fn lock(&self) -> MutexGuard<'_, Place> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands out the run for a step; it cannot be read until the step ends.
    pub(crate) fn take(&self) -> PyResult<Held<'_>> {
        let mut place = self.lock();
        match std::mem::replace(&mut *place, Place::InStep) {
            Place::Here(mut run) => {
                run.begin_step();
                Ok(Held {
                    from: self,
                    run: Some(run),
                })
            }
            other => {
                let error = refusal(&other);
                *place = other;
                Err(error)
            }
        }
    }

    pub(crate) fn read<R>(&self, read: impl FnOnce(&Driven) -> PyResult<R>) -> PyResult<R> {
        match &*self.lock() {
            Place::Here(run) => read(run),
            other => Err(refusal(other)),
        }
    }

    /// Calls `look` with the run and the draft of its plan.
    pub(crate) fn look<R>(
        &self,
        look: impl FnOnce(Look<'_, '_, '_>) -> PyResult<R>,
    ) -> PyResult<R> {
        match &mut *self.lock() {
            Place::Here(run) => run.look(look),
            other => Err(refusal(other)),
        }
    }
}

fn refusal(place: &Place) -> PyErr {
    PyValueError::new_err(match place {
        Place::Over => "the run is over: its results were already taken",
        _ => "the run is in a step of another thread or of its own policy",
    })
}

/// A run during a step. Dropping this value gives the run back.
pub(crate) struct Held<'a> {
    from: &'a Shared,
    run: Option<Box<Driven>>,
}

impl Held<'_> {
    pub(crate) fn run(&mut self) -> &mut Driven {
        self.run.as_mut().expect("until it ends")
    }

    pub(crate) fn end(mut self) -> Box<Driven> {
        let run = self.run.take().expect("until it ends");
        *self.from.lock() = Place::Over;
        run
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            *self.from.lock() = Place::Here(run);
        }
    }
}
