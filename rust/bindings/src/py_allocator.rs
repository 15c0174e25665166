//! `gangline.lp.rounds.Shares` as an [`Allocator`]. Attaches once per solve.

use crate::py_policy::Raised;
use gangline_engine::PolicyError;
use gangline_policies::lp::{Allocator, Ask};
use numpy::{IntoPyArray, PyArrayMethods, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Arc, PoisonError};

/// Shares computed in Python.
pub(crate) struct PyAllocator {
    object: Py<PyAny>,
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
            object: shares.call1((policy, params))?.unbind(),
            raised: Arc::clone(raised),
        })
    }

    fn call(&self, py: Python<'_>, ask: &Ask) -> PyResult<Vec<f64>> {
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
        let answer = self.object.bind(py).call((), Some(&given))?;
        let shares: PyReadonlyArray2<'_, f64> = answer.extract()?;
        Ok(shares.as_array().iter().copied().collect())
    }
}

impl Allocator for PyAllocator {
    fn allocate(&mut self, ask: &Ask) -> Result<Vec<f64>, PolicyError> {
        let answer = Python::attach(|py| {
            self.call(py, ask).inspect_err(|error| {
                let note = format!("in the round at {} s", ask.now.0 as f64 / 1e9);
                // a note on the solver's own error; the error itself passes untouched
                if let Err(failed) = error.value(py).call_method1("add_note", (note,)) {
                    failed.write_unraisable(py, None);
                }
            })
        });
        answer.map_err(|error| {
            let message = error.to_string();
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            PolicyError::Failed { message }
        })
    }
}
