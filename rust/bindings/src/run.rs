//! A single run. The GIL is released before the first event. The calling thread waits for the run, shows progress and
//! handles Ctrl-C.

use crate::convert::{Cluster, Jobs};
use crate::error::CoreError;
use crate::options::{RunOptions, params};
use crate::output::{RunOutput, Solves};
use crate::py_policy::{PyPolicy, Raised};
use crate::py_solver::PySolver;
use crate::registry;
use gangline_allocation::Outside;
use gangline_engine::{
    Control, Engine, EngineError, Output, Policy, PolicyError, RunConfig, Stopwatch, World,
};
use gangline_policies::Services;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interval at which the waiting thread checks for signals.
pub(crate) const LOOK: Duration = Duration::from_millis(100);
/// Time within which an interrupted run must end its decision; after that, its thread is abandoned. This is our own
/// choice; most decisions take less.
const PATIENCE: Duration = Duration::from_secs(1);

pub(crate) struct Clock(pub(crate) Instant);

impl Clock {
    pub(crate) fn new() -> Self {
        #[allow(clippy::disallowed_methods)] // The bindings provide wall-clock time to the run.
        Self(Instant::now())
    }
}

impl Stopwatch for Clock {
    fn nanos(&mut self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

type Finished = (Output, Vec<(&'static str, u64)>);

fn run_to_end(
    world: &World,
    config: RunConfig,
    policy: &mut dyn Policy,
    control: &Control,
) -> Result<Finished, EngineError> {
    let mut engine = started(world, config, policy)?;
    engine.run(policy, control, &mut Clock::new())?;
    Ok((engine.output()?, policy.counters()))
}

/// Returns a run that is ready to process its first event.
fn started(
    world: &World,
    config: RunConfig,
    policy: &mut dyn Policy,
) -> Result<Engine, EngineError> {
    let mut engine = Engine::new(world, config, policy.traits())?;
    engine.start(policy)?;
    Ok(engine)
}

/// Simulates `jobs` on `cluster` under a policy: a registered name or a policy object.
#[pyfunction]
/// `names` are the names of the jobs, which a policy object may read.
#[pyo3(signature = (cluster, jobs, policy, params, options, progress=None, names=None))]
#[allow(clippy::needless_pass_by_value, clippy::too_many_arguments)]
pub(crate) fn simulate(
    py: Python<'_>,
    cluster: PyRef<'_, Cluster>,
    jobs: PyRef<'_, Jobs>,
    policy: &Bound<'_, PyAny>,
    params: &Bound<'_, PyDict>,
    options: PyRef<'_, RunOptions>,
    progress: Option<Py<PyAny>>,
    names: Option<&Bound<'_, PyAny>>,
) -> PyResult<RunOutput> {
    let world = jobs.world(&cluster)?;
    let config = options.config.clone();
    let Ok(name) = policy.extract::<String>() else {
        return simulate_object(py, &world, config, (policy, names), progress.as_ref());
    };
    let raised = Raised::default();
    let (chosen, solver) = build(&name, params, &raised)?;
    require_durations(&name, params, jobs.missing_durations)?;
    let result = simulate_registered(py, world, config, chosen, progress);
    with_own_error(&raised, result.map(|output| output.with_solves(solver)))
}

/// Raises the errors that [`simulate`] would raise before its first event. A policy object is not started, because its
/// code may expect one start per run.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)]
pub(crate) fn check_start(
    py: Python<'_>,
    cluster: PyRef<'_, Cluster>,
    jobs: PyRef<'_, Jobs>,
    policy: &Bound<'_, PyAny>,
    params: &Bound<'_, PyDict>,
    options: PyRef<'_, RunOptions>,
) -> PyResult<()> {
    let world = jobs.world(&cluster)?;
    let config = options.config.clone();
    let raised = Raised::default();
    let Ok(name) = policy.extract::<String>() else {
        let traits = PyPolicy::new(policy, raised, None)?.traits();
        let result = py.detach(|| Engine::new(&world, config, traits).map(drop));
        return result.map_err(|error| CoreError(error).into());
    };
    let (mut chosen, _) = build(&name, params, &raised)?;
    require_durations(&name, params, jobs.missing_durations)?;
    let result = py.detach(|| started(&world, config, chosen.as_mut()).map(drop));
    with_own_error(&raised, result.map_err(|error| CoreError(error).into()))
}

/// Replaces an error with the exception that a solver raised, if any.
pub(crate) fn with_own_error<T>(raised: &Raised, result: PyResult<T>) -> PyResult<T> {
    let own = raised.lock().unwrap_or_else(PoisonError::into_inner).take();
    match own {
        Some(error) if result.is_err() => Err(error),
        Some(_) | None => result,
    }
}

/// Runs a registered policy on a separate thread.
fn simulate_registered(
    py: Python<'_>,
    world: World,
    config: RunConfig,
    mut chosen: Box<dyn Policy>,
    progress: Option<Py<PyAny>>,
) -> PyResult<RunOutput> {
    let control = Arc::new(Control::default());
    let total = world.jobs.len() as u64;
    let (sender, receiver) = channel();
    let receiver = Mutex::new(receiver);
    let shared = Arc::clone(&control);
    let thread = std::thread::spawn(move || {
        let run = || run_to_end(&world, config, chosen.as_mut(), &shared);
        // The thread attaches to the interpreter once and detaches immediately. It then keeps its thread state, which
        // each solve would otherwise create and free.
        let result = Python::attach(|py| py.detach(run));
        // The receiver is gone only if the waiting thread died.
        let _woken: Result<(), _> = sender.send(());
        result
    });
    let wait = |longest: Duration| {
        receiver
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv_timeout(longest)
    };
    loop {
        match py.detach(|| wait(LOOK)) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                if let Err(error) = look(py, &control, total, progress.as_ref()) {
                    // The run ends after its present decision. A long decision continues in the abandoned thread, which
                    // owns all its data.
                    control.interrupt.store(true, Ordering::Relaxed);
                    if py.detach(|| wait(PATIENCE)) == Ok(()) {
                        let _ended = py.detach(|| thread.join());
                    }
                    return Err(error);
                }
            }
        }
    }
    match py.detach(|| thread.join()) {
        Ok(Ok((output, counters))) => {
            if let Some(progress) = progress {
                let end = control.now_ns.load(Ordering::Relaxed) as f64 / 1e9;
                progress.call1(py, (end, total, total))?;
            }
            Ok(RunOutput::new(output, counters))
        }
        Ok(Err(error)) => Err(CoreError(error).into()),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn look(
    py: Python<'_>,
    control: &Control,
    total: u64,
    progress: Option<&Py<PyAny>>,
) -> PyResult<()> {
    py.check_signals()?;
    if let Some(progress) = progress {
        let now_s = control.now_ns.load(Ordering::Relaxed) as f64 / 1e9;
        progress.call1(py, (now_s, control.done.load(Ordering::Relaxed), total))?;
    }
    Ok(())
}

/// Number of events between two checks of the wall-clock time in a run with a policy object. The number is one, because
/// a decision in Python may take a long time, and a check takes only about 30 ns.
const EVENTS_PER_SLICE: u64 = 1;

/// Runs a policy written in Python on the calling thread. This is where its code expects to run and where an interrupt
/// reaches it. The run proceeds in slices, so that progress is shown and interrupts are handled even in long stretches
/// without a decision.
fn simulate_object(
    py: Python<'_>,
    world: &World,
    config: RunConfig,
    (object, names): (&Bound<'_, PyAny>, Option<&Bound<'_, PyAny>>),
    progress: Option<&Py<PyAny>>,
) -> PyResult<RunOutput> {
    let raised = Raised::default();
    let mut policy = PyPolicy::new(object, Arc::clone(&raised), names)?;
    let total = world.jobs.len() as u64;
    let result = py.detach(|| run_in_slices(world, config, &mut policy, total, progress));
    // An exception of the user's own code is raised unchanged.
    let own = raised.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (result, own) {
        (Err(Stopped::Here(error)), _) | (_, Some(error)) => Err(error),
        (Err(Stopped::Engine(error)), None) => Err(CoreError(error).into()),
        (Ok((output, counters)), None) => {
            Ok(RunOutput::new(output, counters).with_words(policy.words()))
        }
    }
}

/// Reason why a run with a policy object ended early.
enum Stopped {
    /// An interrupt, or an error of the progress callback.
    Here(PyErr),
    /// The run's own error.
    Engine(EngineError),
}

impl<E: Into<EngineError>> From<E> for Stopped {
    fn from(error: E) -> Self {
        Self::Engine(error.into())
    }
}

fn run_in_slices(
    world: &World,
    config: RunConfig,
    policy: &mut PyPolicy,
    total: u64,
    progress: Option<&Py<PyAny>>,
) -> Result<Finished, Stopped> {
    let mut engine = started(world, config, policy)?;
    let control = Control::default();
    let (mut clock, mut last) = (Clock::new(), Clock::new());
    loop {
        let end = engine.run_for(EVENTS_PER_SLICE, policy, &control, &mut clock)?;
        if end.is_some() || last.0.elapsed() >= LOOK {
            last = Clock::new();
            Python::attach(|py| look(py, &control, total, progress)).map_err(Stopped::Here)?;
        }
        if end.is_some() {
            return Ok((engine.output()?, policy.counters()));
        }
    }
}

/// Returns a registered policy with its parameters, and its solver counters.
pub(crate) fn build(
    name: &str,
    given: &Bound<'_, PyDict>,
    raised: &Raised,
) -> PyResult<(Box<dyn Policy>, Solves)> {
    let info = registry::find(name).map_err(CoreError::from)?;
    let solves = Solves::of(name);
    let services = Services {
        outside: Outside {
            solver: Box::new(PySolver::of_run(name, given, raised)),
            clock: Box::new(Clock::new()),
            tally: Arc::clone(&solves.tally),
        },
    };
    let policy = info
        .build(&params(given)?, services)
        .map_err(CoreError::from)?;
    Ok((policy, solves))
}

/// Rejects a policy that needs durations if the trace lacks some of them.
pub(crate) fn require_durations(
    name: &str,
    given: &Bound<'_, PyDict>,
    missing: usize,
) -> PyResult<()> {
    let info = registry::find(name).map_err(CoreError::from)?;
    if missing > 0 && info.needs_durations(&params(given)?) {
        let error = PolicyError::MissingDuration {
            policy: name.to_owned(),
            jobs: missing,
        };
        return Err(CoreError::from(error).into());
    }
    Ok(())
}
