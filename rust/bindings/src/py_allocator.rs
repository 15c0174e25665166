//! `gangline.lp.rounds.Shares` as an [`Allocator`]. Programs that the core solves by itself never come to Python;
//! any other ask takes the interpreter once.

use crate::py_policy::Raised;
use gangline_allocation::{Allocator, Ask, PairShare, Program, Service, Shares};
use gangline_engine::PolicyError;
use gangline_model::{GpuType, GpuTypeId};
use numpy::{IntoPyArray, PyArrayMethods, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// Time alone, `jobs x types`; then row, kind of the other, type and share.
type Packed<'py> = (PyReadonlyArray2<'py, f64>, Vec<(usize, u32, usize, f64)>);

/// Shares computed in Python.
pub(crate) struct PyAllocator {
    object: Arc<Py<PyAny>>,
    raised: Raised,
    program: Option<Program>,
    /// Of finish-time fairness.
    service: Option<Service>,
    counts: Arc<Counts>,
}

/// What the core solved by itself, and how often the interpreter was taken.
#[derive(Debug, Default)]
struct Counts {
    allocations: AtomicU64,
    programs: AtomicU64,
    iterations: AtomicU64,
    nanos: AtomicU64,
    attached: AtomicU64,
}

/// The counts of a run, for its report.
#[pyclass(frozen, module = "gangline._core")]
pub(crate) struct SolveCounts(Arc<Counts>);

#[pymethods]
impl SolveCounts {
    /// Allocations, programs, iterations, nanoseconds; and how often the interpreter was taken.
    fn read(&self) -> (u64, u64, u64, u64, u64) {
        let counts = &self.0;
        let load = |own: &AtomicU64| own.load(Ordering::Relaxed);
        (
            load(&counts.allocations),
            load(&counts.programs),
            load(&counts.iterations),
            load(&counts.nanos),
            load(&counts.attached),
        )
    }
}

/// The program of a policy if the core solves it by itself with these parameters.
fn program(policy: &str, params: &Bound<'_, PyDict>) -> PyResult<Option<Program>> {
    let word = |name: &str| -> PyResult<Option<String>> {
        params.get_item(name)?.map(|own| own.extract()).transpose()
    };
    let is = |given: Option<String>, wanted: &str| given.is_none_or(|own| own == wanted);
    if !is(word("solver")?, "auto") || !is(word("tie_break")?, "max_sum") {
        return Ok(None);
    }
    if !is(word("agnostic_rate")?, "mean") {
        return Ok(None);
    }
    let is_proportional = !is(word("normalise")?, "none");
    let mut program = Program::named(policy, is_proportional, Vec::new());
    if let Some(Program::Makespan { slack_weight, .. }) = &mut program {
        let given = params.get_item("slack_weight")?;
        // the public simulator compares shares as they are
        let compat = params.get_item("compat")?;
        let is_public = compat.map_or(Ok(false), |own| own.is_truthy())?;
        if let (Some(given), false) = (given, is_public) {
            *slack_weight = given.extract()?;
        }
    }
    Ok(program)
}

impl PyAllocator {
    /// The allocator of a policy with its parameters.
    pub(crate) fn new(
        py: Python<'_>,
        policy: &str,
        params: &Bound<'_, PyDict>,
        raised: &Raised,
    ) -> PyResult<Self> {
        let shares = py.import("gangline.lp.rounds")?.getattr("Shares")?;
        let object = shares.call1((policy, params))?;
        let counts = Arc::new(Counts::default());
        object.setattr("counts", Py::new(py, SolveCounts(Arc::clone(&counts)))?)?;
        Ok(Self {
            object: Arc::new(object.unbind()),
            raised: Arc::clone(raised),
            program: program(policy, params)?,
            service: policy.starts_with("gavel-ftf").then(Service::default),
            counts,
        })
    }

    /// The object in Python, which knows what its solves were like.
    pub(crate) fn object(&self) -> Arc<Py<PyAny>> {
        Arc::clone(&self.object)
    }

    /// The arrays of an ask, by name.
    fn given<'py>(py: Python<'py>, ask: &Ask, lost_s: &[f64]) -> PyResult<Bound<'py, PyDict>> {
        let types = ask.capacity.len();
        let column = |values: &[f64]| values.to_vec().into_pyarray(py);
        let given = PyDict::new(py);
        let jobs: Vec<i64> = ask.jobs.iter().map(|job| i64::from(job.0)).collect();
        given.set_item("jobs", jobs.into_pyarray(py))?;
        let rates = column(&ask.rates).reshape([ask.jobs.len(), types])?;
        given.set_item("rates", rates)?;
        given.set_item("scale", column(&ask.gangs))?;
        given.set_item("weight", column(&ask.weights))?;
        given.set_item("age_s", column(&ask.age_s))?;
        given.set_item("capacity", column(&ask.capacity))?;
        if !ask.remaining.is_empty() {
            given.set_item("steps_remaining", column(&ask.remaining))?;
        }
        if !lost_s.is_empty() {
            given.set_item("service_lost_s", column(lost_s))?;
        }
        if !ask.time_left_s.is_empty() {
            given.set_item("time_left_s", column(&ask.time_left_s))?;
        }
        let own = |gpu_type: &Option<GpuTypeId>| gpu_type.map_or(-1.0, |own| own.index() as f64);
        let running: Vec<f64> = ask.running.iter().map(own).collect();
        given.set_item("running_type", running.into_pyarray(py))?;
        if !ask.entities.is_empty() {
            let entities = ask.entities.iter().copied().map(f64::from);
            given.set_item("entity", entities.collect::<Vec<f64>>().into_pyarray(py))?;
            given.set_item("entity_weight", column(&ask.entity_weights))?;
        }
        if !ask.kinds.is_empty() {
            let kinds: Vec<i64> = ask.kinds.iter().copied().map(i64::from).collect();
            given.set_item("kind", kinds.into_pyarray(py))?;
            let shape = [ask.kind_count, ask.kind_count, types];
            given.set_item("pair_rates", column(&ask.pair_rates).reshape(shape)?)?;
        }
        Ok(given)
    }

    fn call(&self, py: Python<'_>, ask: &Ask, lost_s: &[f64]) -> PyResult<Vec<f64>> {
        let given = Self::given(py, ask, lost_s)?;
        let answer = self.object.bind(py).call((), Some(&given))?;
        let shares: PyReadonlyArray2<'_, f64> = answer.extract()?;
        Ok(shares.as_array().iter().copied().collect())
    }

    fn call_packed(&self, py: Python<'_>, ask: &Ask, lost_s: &[f64]) -> PyResult<Shares> {
        let given = Self::given(py, ask, lost_s)?;
        let object = self.object.bind(py);
        let answer = object.call_method("packed", (), Some(&given))?;
        let (alone, pair_shares): Packed<'_> = answer.extract()?;
        let pair_shares = pair_shares
            .into_iter()
            .map(|(row, beside, gpu_type, share)| PairShare {
                row,
                beside,
                gpu_type: GpuTypeId::new(gpu_type),
                share,
            });
        Ok(Shares {
            alone: alone.as_array().iter().copied().collect(),
            pair_shares: pair_shares.collect(),
        })
    }

    /// What finish-time fairness remembers of each job; nothing for other policies.
    fn lost_s(&mut self, ask: &Ask) -> Vec<f64> {
        let service = self.service.as_mut();
        service.map(|own| own.count(ask)).unwrap_or_default()
    }

    /// Shares that the core finds by itself; where it finds none, Python is asked, which has other ways.
    fn solved(&self, ask: &Ask, lost_s: &[f64]) -> Option<Shares> {
        #[allow(clippy::disallowed_methods)] // the binding measures the time of solvers
        let began = Instant::now();
        let found = self.program.as_ref()?.solve(ask, lost_s)?.ok()?;
        let counts = &self.counts;
        counts.allocations.fetch_add(1, Ordering::Relaxed);
        let add = |own: &AtomicU64, more: u32| own.fetch_add(u64::from(more), Ordering::Relaxed);
        add(&counts.programs, found.programs);
        add(&counts.iterations, found.iterations);
        let nanos = began.elapsed().as_nanos() as u64;
        counts.nanos.fetch_add(nanos, Ordering::Relaxed);
        Some(Shares {
            alone: found.shares,
            pair_shares: found.pair_shares,
        })
    }

    /// Takes the interpreter, which is counted.
    fn attach<T>(&self, call: impl FnOnce(Python<'_>) -> T) -> T {
        self.counts.attached.fetch_add(1, Ordering::Relaxed);
        Python::attach(call)
    }

    /// An ask whose error says which round it was.
    fn ask<T>(
        &self,
        ask: &Ask,
        lost_s: &[f64],
        call: impl FnOnce(&Self, Python<'_>, &Ask, &[f64]) -> PyResult<T>,
    ) -> Result<T, PolicyError> {
        let answer = self.attach(|py| {
            call(self, py, ask, lost_s).inspect_err(|error| {
                let note = format!("in the round at {} s", ask.now.0 as f64 / 1e9);
                // a note on the solver's own error; the error itself passes untouched
                if let Err(failed) = error.value(py).call_method1("add_note", (note,)) {
                    failed.write_unraisable(py, None);
                }
            })
        });
        answer.map_err(|error| self.keep(error))
    }

    /// Keeps what Python raised, so that it passes untouched.
    fn keep(&self, error: PyErr) -> PolicyError {
        let message = error.to_string();
        *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        PolicyError::Failed { message }
    }
}

impl Allocator for PyAllocator {
    fn start(&mut self, types: &[GpuType]) -> Result<(), PolicyError> {
        let names: Vec<&str> = types.iter().map(|own| own.name.as_str()).collect();
        let prices: Vec<f64> = types.iter().map(|own| own.price_per_hour).collect();
        if let Some(Program::Cost { prices: own }) = &mut self.program {
            own.clone_from(&prices);
        }
        self.attach(|py| {
            let object = self.object.bind(py);
            object.call_method1("begin", (names, prices)).map(|_| ())
        })
        .map_err(|error| self.keep(error))
    }

    fn allocate(&mut self, ask: &Ask) -> Result<Vec<f64>, PolicyError> {
        let lost_s = self.lost_s(ask);
        match self.solved(ask, &lost_s) {
            Some(shares) => Ok(shares.alone),
            None => self.ask(ask, &lost_s, Self::call),
        }
    }

    fn allocate_packed(&mut self, ask: &Ask) -> Result<Shares, PolicyError> {
        let lost_s = self.lost_s(ask);
        match self.solved(ask, &lost_s) {
            Some(shares) => Ok(shares),
            None => self.ask(ask, &lost_s, Self::call_packed),
        }
    }
}
