//! A step-by-step run, for tests, environments, debugging and `gangline.Simulation`.

use crate::actions::parse;
use crate::changes::PolicyChanges;
use crate::convert::{Cluster, Jobs};
use crate::driven::{Driven, Ground, Shared, Step, Way};
use crate::error::CoreError;
use crate::options::RunOptions;
use crate::output::RunOutput;
use crate::py_policy::{PyPolicy, Raised};
use crate::run::{Clock, LOOK, build, require_durations, with_own_error};
use crate::view::PolicyView;
use gangline_engine::{
    Advance, Engine, EngineError, Knowledge, Next, Policy, PolicyTraits, WakeOn,
};
use gangline_model::{ServerId, SimSpan, SimTime};
use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;

/// Number of events between two checks of the wall-clock time while no decision is due. This is our own choice;
/// processing that many events takes about 100 us.
const EVENTS_PER_SLICE: u64 = 1024;

/// Source of the decisions.
enum Decider {
    Outside(PolicyTraits),
    /// A registered policy by name or a policy object, with its parameters.
    Policy(Py<PyAny>, Py<PyDict>),
}

/// A run under external control: `advance` to the next decision, then `decide` or `apply`.
#[pyclass(frozen, module = "gangline._core")]
pub(crate) struct Simulation {
    run: Arc<Shared>,
    view: Py<PolicyView>,
    decider: Decider,
    names: Option<Py<PyAny>>,
    raised: Raised,
}

/// Returns the traits of a run driven from outside: `round_s`, `mixes_types`, `forks`.
fn traits_of(given: Option<&Bound<'_, PyDict>>) -> PyResult<PolicyTraits> {
    let mut traits = PolicyTraits {
        wake_on: WakeOn::QUEUE | WakeOn::TIMER,
        knowledge: Knowledge::Remaining,
        max_share: 2,
        ..PolicyTraits::default()
    };
    for (key, value) in given.into_iter().flatten() {
        match key.extract::<String>()?.as_str() {
            "round_s" => {
                let seconds: Option<f64> = value.extract()?;
                let round = seconds.map(SimSpan::from_seconds).transpose();
                traits.round = round.map_err(CoreError::from)?;
                if traits.round.is_some() {
                    traits.wake_on = WakeOn::ROUND;
                }
            }
            "mixes_types" => traits.mixes_types = value.extract()?,
            "forks" => traits.forks = value.extract()?,
            other => {
                let message =
                    format!("unknown trait {other}: expected round_s, mixes_types or forks");
                return Err(PyValueError::new_err(message));
            }
        }
    }
    Ok(traits)
}

impl Decider {
    /// Creates the policy, if the run has one. `missing` is the number of jobs without a duration.
    fn make(
        &self,
        py: Python<'_>,
        names: Option<&Bound<'_, PyAny>>,
        raised: &Raised,
        missing: usize,
    ) -> PyResult<Option<Box<dyn Policy>>> {
        let Self::Policy(policy, params) = self else {
            return Ok(None);
        };
        let (policy, params) = (policy.bind(py), params.bind(py));
        Ok(Some(match policy.extract::<String>() {
            Ok(name) => {
                let made = build(&name, params, raised)?.0;
                require_durations(&name, params, missing)?;
                made
            }
            Err(_) => Box::new(PyPolicy::new(policy, Arc::clone(raised), names)?),
        }))
    }

    fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Outside(traits) => Self::Outside(*traits),
            Self::Policy(policy, params) => {
                Self::Policy(policy.clone_ref(py), params.clone_ref(py))
            }
        }
    }
}

fn refused(error: EngineError) -> PyErr {
    CoreError(error).into()
}

impl Simulation {
    /// Creates a run that has not processed any event, or a run that repeats another run's history.
    fn begin(
        py: Python<'_>,
        ground: Arc<Ground>,
        (decider, names): (Decider, Option<Py<PyAny>>),
        missing: usize,
        way: Option<Way>,
    ) -> PyResult<Self> {
        let raised = Raised::default();
        let own = names.as_ref().map(|names| names.bind(py));
        let policy = decider.make(py, own, &raised, missing)?;
        let traits = match (&policy, &decider) {
            (Some(policy), _) => policy.traits(),
            (None, Decider::Outside(traits)) => *traits,
            (None, Decider::Policy(..)) => unreachable!("the policy was just created"),
        };
        let begun = py.detach(|| {
            let mut engine = Engine::new(&ground.world, ground.config.clone(), traits)?;
            let mut policy = policy;
            if let Some(policy) = &mut policy {
                engine.start(policy.as_mut())?;
            }
            let mut run = Driven::new(ground, engine, policy);
            if let Some(way) = way {
                run.follow(way)?;
            }
            Ok(run)
        });
        let run = with_own_error(&raised, begun.map_err(refused))?;
        Self::of(py, run, traits, (decider, names), raised)
    }

    fn of(
        py: Python<'_>,
        run: Driven,
        traits: PolicyTraits,
        (decider, names): (Decider, Option<Py<PyAny>>),
        raised: Raised,
    ) -> PyResult<Self> {
        let run = Arc::new(Shared::new(run));
        let knows_work = traits.knowledge == Knowledge::Remaining;
        let view = PolicyView::of_run(knows_work, Arc::clone(&run));
        Ok(Self {
            run,
            view: Py::new(py, view)?,
            decider,
            names,
            raised,
        })
    }

    /// Creates the policy of a fork if it does not exist yet; the policy replays the history in a second engine.
    fn wake_policy(&self, py: Python<'_>, run: &mut Driven) -> PyResult<()> {
        if run.policy.is_some() || matches!(self.decider, Decider::Outside(_)) {
            return Ok(());
        }
        let own = self.names.as_ref().map(|names| names.bind(py));
        let Some(mut policy) = self.decider.make(py, own, &self.raised, 0)? else {
            return Ok(());
        };
        let (ground, way) = (Arc::clone(&run.ground), run.way());
        let made = py.detach(|| {
            let (config, traits) = (ground.config.clone(), policy.traits());
            let mut engine = Engine::new(&ground.world, config, traits)?;
            engine.start(policy.as_mut())?;
            let mut other = Driven::new(ground, engine, Some(policy));
            other.follow(way)?;
            Ok((other.engine.trail(), other.policy))
        });
        let (trail, policy) = with_own_error(&self.raised, made.map_err(refused))?;
        if trail != run.engine.trail() {
            return Err(PyValueError::new_err(
                "the policy decided differently when the same history was replayed",
            ));
        }
        run.policy = policy;
        Ok(())
    }
}

#[pymethods]
impl Simulation {
    #[new]
    #[pyo3(signature = (cluster, jobs, options, policy=None, params=None, names=None, **traits))]
    #[allow(clippy::needless_pass_by_value, clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        cluster: PyRef<'_, Cluster>,
        jobs: PyRef<'_, Jobs>,
        options: PyRef<'_, RunOptions>,
        policy: Option<Py<PyAny>>,
        params: Option<Py<PyDict>>,
        names: Option<Py<PyAny>>,
        traits: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut config = options.config.clone();
        let decider = match policy {
            Some(policy) => {
                Decider::Policy(policy, params.unwrap_or_else(|| PyDict::new(py).unbind()))
            }
            None => Decider::Outside(traits_of(traits)?),
        };
        // A run that is driven from outside shares GPUs only if its options say so.
        if matches!(decider, Decider::Outside(_)) && !options.says_max_share {
            config.max_share = 1;
        }
        let ground = Arc::new(Ground {
            world: jobs.world(&cluster)?,
            config,
        });
        Self::begin(py, ground, (decider, names), jobs.missing_durations, None)
    }

    /// Returns a run that repeats the same history in a world with more jobs; `policy` replaces a policy object.
    #[pyo3(signature = (cluster, jobs, options, policy=None, names=None))]
    #[allow(clippy::needless_pass_by_value)]
    fn again(
        &self,
        py: Python<'_>,
        cluster: PyRef<'_, Cluster>,
        jobs: PyRef<'_, Jobs>,
        options: PyRef<'_, RunOptions>,
        policy: Option<Py<PyAny>>,
        names: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let mut config = options.config.clone();
        let decider = match (self.decider.clone_ref(py), policy) {
            (Decider::Policy(_, params), Some(policy)) => Decider::Policy(policy, params),
            (decider, _) => decider,
        };
        if matches!(decider, Decider::Outside(_)) && !options.says_max_share {
            config.max_share = 1;
        }
        let ground = Arc::new(Ground {
            world: jobs.world(&cluster)?,
            config,
        });
        let mut held = self.run.take()?;
        let way = held.run().way();
        Self::begin(
            py,
            ground,
            (decider, names),
            jobs.missing_durations,
            Some(way),
        )
    }

    /// Returns a copy that continues independently; `policy` replaces a policy object, if the run has one. A registered
    /// policy is created only when it is needed.
    #[pyo3(signature = (policy=None))]
    fn fork(&self, py: Python<'_>, policy: Option<Py<PyAny>>) -> PyResult<Self> {
        let mut run = self.run.take()?.run().fork();
        let (raised, mut decider) = (Raised::default(), self.decider.clone_ref(py));
        if let (Decider::Policy(_, params), Some(policy)) = (&decider, policy) {
            decider = Decider::Policy(policy, params.clone_ref(py));
            let own = self.names.as_ref().map(|names| names.bind(py));
            run.policy = decider.make(py, own, &raised, 0)?;
        }
        let names = self.names.as_ref().map(|names| names.clone_ref(py));
        let traits = run.engine.traits();
        Self::of(py, run, traits, (decider, names), raised)
    }

    /// Advances to the next decision or to the given instant. Returns "decision", "time" or "done".
    #[pyo3(signature = (until_ns=None))]
    fn advance(&self, py: Python<'_>, until_ns: Option<i64>) -> PyResult<&'static str> {
        let mut held = self.run.take()?;
        let run = held.run();
        let mut last = Clock::new();
        loop {
            let gone = py.detach(|| {
                run.engine
                    .advance_for(EVENTS_PER_SLICE, until_ns.map(SimTime))
            });
            match gone.map_err(refused)? {
                Advance::Decision => return Ok("decision"),
                Advance::Time => return Ok("time"),
                Advance::Done => return Ok("done"),
                Advance::Slice => {}
            }
            if last.0.elapsed() >= LOOK {
                py.check_signals()?;
                last = Clock::new();
            }
        }
    }

    /// Lets the policy decide.
    fn decide(&self, py: Python<'_>) -> PyResult<()> {
        let mut held = self.run.take()?;
        let run = held.run();
        self.wake_policy(py, run)?;
        let Driven { engine, policy, .. } = run;
        let Some(policy) = policy else {
            return Err(PyValueError::new_err("this run has no policy: use apply"));
        };
        let decided = py.detach(|| engine.decide(policy.as_mut()));
        with_own_error(&self.raised, decided.map_err(refused))?;
        run.steps.push(Step::Decided);
        Ok(())
    }

    /// Applies an external plan.
    #[pyo3(signature = (actions, steady=false))]
    #[allow(clippy::needless_pass_by_value)]
    fn apply(&self, actions: Vec<Bound<'_, PyAny>>, steady: bool) -> PyResult<()> {
        let mut held = self.run.take()?;
        let run = held.run();
        let orders = parse(&run.engine.view().0, &actions)?;
        let next = if steady { Next::Steady } else { Next::Ask };
        let (actions, timers) = (orders.actions, orders.timers);
        let applied = run.engine.apply(actions.clone(), &timers, next);
        applied.map_err(refused)?;
        run.steps.push(Step::Planned {
            actions,
            timers,
            next,
        });
        Ok(())
    }

    /// Adds a failure or repair that happens later than the current instant.
    fn inject_capacity(&self, server: u32, up: bool, at_ns: i64) -> PyResult<()> {
        let mut held = self.run.take()?;
        let engine = &mut held.run().engine;
        let injected = engine.inject_capacity(ServerId(server), up, SimTime(at_ns));
        injected.map_err(refused)
    }

    #[getter]
    fn now_s(&self) -> PyResult<f64> {
        self.run.read(|run| Ok(run.engine.now().seconds()))
    }

    #[getter]
    fn now_ns(&self) -> PyResult<i64> {
        self.run.read(|run| Ok(run.engine.now().0))
    }

    /// Returns whether a decision is due.
    #[getter]
    fn is_due(&self) -> PyResult<bool> {
        self.run.read(|run| Ok(run.engine.is_due()))
    }

    /// Returns the time, the number of decisions and a hash of the log so far.
    #[getter]
    fn trail(&self) -> PyResult<(i64, u64, u64)> {
        self.run.read(|run| {
            let (now, decisions, hash) = run.engine.trail();
            Ok((now.0, decisions, hash))
        })
    }

    /// Returns the state, which is readable between steps.
    #[getter]
    fn view(&self, py: Python<'_>) -> Py<PolicyView> {
        self.view.clone_ref(py)
    }

    /// Returns the changes since the last decision.
    fn changes(&self) -> PyResult<PolicyChanges> {
        self.run
            .read(|run| Ok(PolicyChanges::new(run.engine.view().1)))
    }

    /// Returns the waiting jobs in order of arrival.
    fn waiting<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<u32>>> {
        self.run.read(|run| {
            let ids: Vec<u32> = run.engine.view().0.waiting().map(|job| job.0).collect();
            Ok(ids.into_pyarray(py))
        })
    }

    /// Returns the running jobs in order of id.
    fn running<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<u32>>> {
        self.run.read(|run| {
            let ids: Vec<u32> = run.engine.view().0.running().map(|job| job.0).collect();
            Ok(ids.into_pyarray(py))
        })
    }

    /// Returns the state as plain data. For each running job, the data contains the parts (number, GPUs, rate,
    /// sub-batch), the rate and the finish; for each server, it contains the free slots.
    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.run.read(|run| {
            let (view, _) = run.engine.view();
            let running = PyDict::new(py);
            for job in view.running() {
                let Some(run) = view.run(job) else { continue };
                let parts = run.parts().iter().map(|part| {
                    let gpus = part.gpus.by_server().iter();
                    let gpus: Vec<(u32, u64)> = gpus.map(|one| (one.server.0, one.mask)).collect();
                    (part.number, gpus, part.rate, part.sub_batch)
                });
                let parts: Vec<_> = parts.collect();
                running.set_item(job.0, (parts, run.rate, run.finish.0))?;
            }
            let servers = 0..view.cluster().servers().len();
            let free: Vec<u64> = servers
                .map(|at| view.free_mask(ServerId::new(at)))
                .collect();
            let table = PyDict::new(py);
            table.set_item("now_ns", view.now().0)?;
            table.set_item(
                "waiting",
                view.waiting().map(|job| job.0).collect::<Vec<_>>(),
            )?;
            table.set_item("running", running)?;
            table.set_item("free_mask", free)?;
            Ok(table)
        })
    }

    /// Takes the results. Afterwards, the run is over unless `goes_on` is set.
    #[pyo3(signature = (goes_on=false))]
    fn output(&self, py: Python<'_>, goes_on: bool) -> PyResult<RunOutput> {
        let mut held = self.run.take()?;
        let run = held.run();
        self.wake_policy(py, run)?;
        let counters = run.policy.as_ref().map(|policy| policy.counters());
        let counters = counters.unwrap_or_default();
        let engine = if goes_on {
            run.engine.clone()
        } else {
            held.end().engine
        };
        let output = py.detach(|| engine.output()).map_err(refused)?;
        Ok(RunOutput::new(output, counters))
    }
}
