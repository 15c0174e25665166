//! A run that is driven step by step: for tests, environments and debugging.

use crate::actions::parse;
use crate::convert::{Cluster, Jobs};
use crate::error::CoreError;
use crate::options::run_config;
use crate::output::RunOutput;
use crate::py_policy::Raised;
use crate::run::build;
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
            .ok_or_else(|| PyValueError::new_err("the results were taken: the run is over"))
    }
}

#[pymethods]
impl Simulation {
    #[new]
    #[pyo3(signature = (
        cluster, jobs, options, policy=None, params=None, round_s=None, mixes_types=false
    ))]
    #[allow(clippy::needless_pass_by_value)]
    fn new(
        cluster: PyRef<'_, Cluster>,
        jobs: PyRef<'_, Jobs>,
        options: &Bound<'_, PyDict>,
        policy: Option<&str>,
        params: Option<Bound<'_, PyDict>>,
        round_s: Option<f64>,
        mixes_types: bool,
    ) -> PyResult<Self> {
        let world = jobs.world(&cluster)?;
        let config = run_config(options, world.cluster.gpu_types().len())?;
        let py = options.py();
        let params = params.unwrap_or_else(|| PyDict::new(py));
        let mut policy = policy
            .map(|name| Ok::<_, PyErr>(build(py, name, &params, &Raised::default())?.0))
            .transpose()?;
        let round = round_s
            .map(SimSpan::from_seconds)
            .transpose()
            .map_err(CoreError::from)?;
        let traits = policy.as_ref().map_or(
            PolicyTraits {
                restart_per_gpu: SimSpan::ZERO,
                sets_overheads: false,
                watches_locality: false,
                wake_on: if round.is_some() {
                    WakeOn::ROUND
                } else {
                    WakeOn::QUEUE | WakeOn::TIMER
                },
                round,
                knowledge: Knowledge::Remaining,
                max_share: 2,
                mixes_types,
            },
            |policy| PolicyTraits::of(policy.as_ref()),
        );
        // driven from outside, a run shares GPUs only if its options say so
        let config = if policy.is_none() && options.get_item("max_share")?.is_none() {
            gangline_engine::RunConfig {
                max_share: 1,
                ..config
            }
        } else {
            config
        };
        let mut engine = Engine::new(&world, config, traits).map_err(CoreError::from)?;
        if let Some(policy) = &mut policy {
            engine.start(policy.as_mut()).map_err(CoreError::from)?;
        }
        Ok(Self {
            inner: Mutex::new(Inner {
                engine: Some(engine),
                policy,
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

    /// Lets the policy of the registry decide.
    fn decide(&self) -> PyResult<()> {
        let mut inner = self.lock();
        let Inner { engine, policy } = &mut *inner;
        let (Some(engine), Some(policy)) = (engine, policy) else {
            return Err(PyValueError::new_err("this run has no policy: use apply"));
        };
        Ok(engine.decide(policy.as_mut()).map_err(CoreError::from)?)
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
            .apply_with_limits(orders.actions, &orders.timers, &orders.limits, next)
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

    /// The state as plain data: per running job its GPUs, rate and finish; per server its free slots.
    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut inner = self.lock();
        let (view, _) = inner.engine()?.view();
        let running = PyDict::new(py);
        for job in view.running() {
            let Some(run) = view.run(job) else { continue };
            let gpus: Vec<(u32, u64)> = run
                .gpus
                .parts()
                .iter()
                .map(|part| (part.server.0, part.mask))
                .collect();
            running.set_item(job.0, (gpus, run.rate, run.finish.0, run.sub_batch))?;
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
        Ok(RunOutput::new(engine.output(), counters))
    }
}
