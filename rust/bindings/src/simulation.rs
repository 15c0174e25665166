//! A run that is driven step by step: for tests, environments and debugging.

use crate::actions::parse;
use crate::convert::{Cluster, Jobs};
use crate::error::CoreError;
use crate::options::RunOptions;
use crate::output::RunOutput;
use crate::py_policy::{PyPolicy, Raised};
use crate::run::{build, with_own_error};
use gangline_engine::{Advance, Engine, Knowledge, Next, Policy, PolicyTraits, WakeOn};
use gangline_model::{ServerId, SimSpan, SimTime};
use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Mutex, MutexGuard, PoisonError};

struct Inner {
    engine: Option<Engine>,
    policy: Option<Box<dyn Policy>>,
    raised: Raised,
}

/// A run with the brake on: `advance` to the next decision, then `decide` or `apply`.
#[pyclass(frozen, module = "gangline._core")]
pub(crate) struct Simulation {
    inner: Mutex<Inner>,
}

impl Simulation {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn engine(&mut self) -> PyResult<&mut Engine> {
        self.engine
            .as_mut()
            .ok_or_else(|| PyValueError::new_err("the run is over: its results were already taken"))
    }
}

/// What a run declares that is driven from outside: `round_s`, `mixes_types`, `forks`.
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

/// Makes the policy: of the registry by its name, or of a policy object.
fn chosen(
    policy: &Bound<'_, PyAny>,
    params: &Bound<'_, PyDict>,
    raised: &Raised,
) -> PyResult<Box<dyn Policy>> {
    Ok(match policy.extract::<String>() {
        Ok(name) => build(&name, params, raised)?.0,
        Err(_) => Box::new(PyPolicy::new(policy, Raised::clone(raised), None)?),
    })
}

#[pymethods]
impl Simulation {
    #[new]
    #[pyo3(signature = (cluster, jobs, options, policy=None, params=None, **traits))]
    #[allow(clippy::needless_pass_by_value)]
    fn new(
        py: Python<'_>,
        cluster: PyRef<'_, Cluster>,
        jobs: PyRef<'_, Jobs>,
        options: PyRef<'_, RunOptions>,
        policy: Option<&Bound<'_, PyAny>>,
        params: Option<Bound<'_, PyDict>>,
        traits: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let world = jobs.world(&cluster)?;
        let mut config = options.config.clone();
        let params = params.unwrap_or_else(|| PyDict::new(py));
        let raised = Raised::default();
        let mut policy = policy
            .map(|policy| chosen(policy, &params, &raised))
            .transpose()?;
        let traits = match &policy {
            Some(policy) => policy.traits(),
            None => traits_of(traits)?,
        };
        // driven from outside, a run shares GPUs only if its options say so
        if policy.is_none() && !options.says_max_share {
            config.max_share = 1;
        }
        let mut engine = Engine::new(&world, config, traits).map_err(CoreError::from)?;
        if let Some(policy) = &mut policy {
            let started = engine.start(policy.as_mut());
            with_own_error(&raised, started.map_err(|error| CoreError(error).into()))?;
        }
        Ok(Self {
            inner: Mutex::new(Inner {
                engine: Some(engine),
                policy,
                raised,
            }),
        })
    }

    /// Goes to the next decision: "decision" or "done".
    fn advance(&self) -> PyResult<&'static str> {
        let mut inner = self.lock();
        Ok(match inner.engine()?.advance().map_err(CoreError::from)? {
            Advance::Decision => "decision",
            Advance::Done => "done",
        })
    }

    /// Lets the policy decide.
    fn decide(&self) -> PyResult<()> {
        let mut inner = self.lock();
        let Inner {
            engine,
            policy,
            raised,
        } = &mut *inner;
        let (Some(engine), Some(policy)) = (engine, policy) else {
            return Err(PyValueError::new_err("this run has no policy: use apply"));
        };
        let decided = engine.decide(policy.as_mut());
        with_own_error(raised, decided.map_err(|error| CoreError(error).into()))
    }

    /// Carries out a plan made outside.
    #[pyo3(signature = (actions, steady=false))]
    #[allow(clippy::needless_pass_by_value)]
    fn apply(&self, actions: Vec<Bound<'_, PyAny>>, steady: bool) -> PyResult<()> {
        let mut inner = self.lock();
        let engine = inner.engine()?;
        let orders = parse(&engine.view().0, &actions)?;
        let next = if steady { Next::Steady } else { Next::Ask };
        engine
            .apply(orders.actions, &orders.timers, next)
            .map_err(CoreError::from)?;
        Ok(())
    }

    /// Adds a failure or repair after now.
    fn inject_capacity(&self, server: u32, up: bool, at_ns: i64) -> PyResult<()> {
        let mut inner = self.lock();
        let engine = inner.engine()?;
        engine
            .inject_capacity(ServerId(server), up, SimTime(at_ns))
            .map_err(CoreError::from)?;
        Ok(())
    }

    #[getter]
    fn now_s(&self) -> PyResult<f64> {
        Ok(self.lock().engine()?.now().seconds())
    }

    #[getter]
    fn now_ns(&self) -> PyResult<i64> {
        Ok(self.lock().engine()?.now().0)
    }

    /// Waiting jobs in order of arrival.
    fn waiting<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let mut inner = self.lock();
        let ids: Vec<u32> = inner
            .engine()?
            .view()
            .0
            .waiting()
            .map(|job| job.0)
            .collect();
        Ok(ids.into_pyarray(py))
    }

    /// Running jobs in order of id.
    fn running<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let mut inner = self.lock();
        let ids: Vec<u32> = inner
            .engine()?
            .view()
            .0
            .running()
            .map(|job| job.0)
            .collect();
        Ok(ids.into_pyarray(py))
    }

    /// The state as plain data: per running job its parts (number, GPUs, rate,
    /// sub-batch), rate and finish; per server its free slots.
    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut inner = self.lock();
        let (view, _) = inner.engine()?.view();
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
    }

    /// Takes the results; the run is over.
    fn output(&self) -> PyResult<RunOutput> {
        let mut inner = self.lock();
        let counters = inner
            .policy
            .as_ref()
            .map(|policy| policy.counters())
            .unwrap_or_default();
        inner.engine()?;
        let engine = inner.engine.take().expect("looked at just now");
        let output = engine.output().map_err(CoreError::from)?;
        Ok(RunOutput::new(output, counters))
    }
}
