//! `gangline.lp.rounds.Shares` as an [`Allocator`]. Attaches once per solve.

use crate::py_policy::Raised;
use gangline_allocation::{Allocator, Ask, PairShare, Shares};
use gangline_engine::PolicyError;
use gangline_model::{GpuType, GpuTypeId};
use numpy::{IntoPyArray, PyArrayMethods, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Arc, PoisonError};

/// Time alone, `jobs x types`; then row, kind of the other, type and share.
type Packed<'py> = (PyReadonlyArray2<'py, f64>, Vec<(usize, u32, usize, f64)>);

/// Shares computed in Python.
pub(crate) struct PyAllocator {
    object: Arc<Py<PyAny>>,
    raised: Raised,
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
        Ok(Self {
            object: Arc::new(shares.call1((policy, params))?.unbind()),
            raised: Arc::clone(raised),
        })
    }

    /// The object in Python, which knows what its solves were like.
    pub(crate) fn object(&self) -> Arc<Py<PyAny>> {
        Arc::clone(&self.object)
    }

    /// The arrays of an ask, by name.
    fn given<'py>(py: Python<'py>, ask: &Ask) -> PyResult<Bound<'py, PyDict>> {
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

    fn call(&self, py: Python<'_>, ask: &Ask) -> PyResult<Vec<f64>> {
        let given = Self::given(py, ask)?;
        let answer = self.object.bind(py).call((), Some(&given))?;
        let shares: PyReadonlyArray2<'_, f64> = answer.extract()?;
        Ok(shares.as_array().iter().copied().collect())
    }

    fn call_packed(&self, py: Python<'_>, ask: &Ask) -> PyResult<Shares> {
        let given = Self::given(py, ask)?;
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

    /// An ask whose error says which round it was.
    fn ask<T>(
        &self,
        ask: &Ask,
        call: impl FnOnce(&Self, Python<'_>, &Ask) -> PyResult<T>,
    ) -> Result<T, PolicyError> {
        let answer = Python::attach(|py| {
            call(self, py, ask).inspect_err(|error| {
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
        Python::attach(|py| {
            let object = self.object.bind(py);
            object.call_method1("begin", (names, prices)).map(|_| ())
        })
        .map_err(|error| self.keep(error))
    }

    fn allocate(&mut self, ask: &Ask) -> Result<Vec<f64>, PolicyError> {
        self.ask(ask, Self::call)
    }

    fn allocate_packed(&mut self, ask: &Ask) -> Result<Shares, PolicyError> {
        self.ask(ask, Self::call_packed)
    }
}
