//! A [`Solver`] that calls `gangline.lp.highs.solve`: it passes the arrays of a linear program to Python and returns
//! the optimum. The solver attaches to the Python interpreter once per program.

use crate::error::raise;
use crate::py_policy::Raised;
use gangline_allocation::{
    Algorithm, Ask, Facts, Failed, How, Keeps, Model, Next, Solution, Solved, Solver, SolverError,
};
use gangline_model::GpuTypeId;
use numpy::{IntoPyArray, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Arc, PoisonError};

/// For each objective: the variables' values, the multipliers, the objective value and the steps; also the method's
/// name, and whether the solve was a second attempt.
type Answer<'py> = (
    Vec<(
        PyReadonlyArray1<'py, f64>,
        PyReadonlyArray1<'py, f64>,
        f64,
        u32,
    )>,
    String,
    bool,
);

/// A solver that passes linear programs to Python.
pub(crate) struct PySolver {
    /// Policy name, for messages.
    policy: String,
    /// The policy's parameters in a run, which are saved with failed requests; `None` for a single call.
    params: Option<Py<PyDict>>,
    raised: Raised,
}

impl PySolver {
    /// Creates the solver for a single call.
    pub(crate) fn new(policy: &str, raised: &Raised) -> Self {
        Self {
            policy: policy.to_owned(),
            params: None,
            raised: Arc::clone(raised),
        }
    }

    /// Creates the solver for a run.
    pub(crate) fn of_run(policy: &str, params: &Bound<'_, PyDict>, raised: &Raised) -> Self {
        Self {
            params: Some(params.clone().unbind()),
            ..Self::new(policy, raised)
        }
    }

    fn call(&self, py: Python<'_>, model: &Model, then: &[Next], how: How) -> PyResult<Solved> {
        let given = PyDict::new(py);
        let column = |values: &[f64]| values.to_vec().into_pyarray(py);
        let (start, index, value) = model.rows.compressed();
        given.set_item("cost", column(&model.cost))?;
        given.set_item("lower", column(&model.lower))?;
        given.set_item("upper", column(&model.upper))?;
        given.set_item("row_lower", column(&model.rows.lower))?;
        given.set_item("row_upper", column(&model.rows.upper))?;
        given.set_item("start", start.into_pyarray(py))?;
        given.set_item("index", index.into_pyarray(py))?;
        given.set_item("value", value.into_pyarray(py))?;
        given.set_item("maximise", model.maximise)?;
        given.set_item("is_integer", model.is_integer)?;
        let then = then.iter().map(|next| {
            let kept = match next.keeps {
                Keeps::LastColumn(part) => Some(part),
                Keeps::Bounds => None,
            };
            (column(&next.cost), kept)
        });
        given.set_item("then", then.collect::<Vec<_>>())?;
        let solver = match how.algorithm {
            Algorithm::Auto => "auto",
            Algorithm::Simplex => "simplex",
            Algorithm::InteriorPoint => "ipx",
        };
        given.set_item("solver", solver)?;
        given.set_item("time_limit_s", how.time_limit_s)?;
        given.set_item("seed", how.seed)?;
        let solve = py.import("gangline.lp.highs")?.getattr("solve")?;
        let answer = solve.call((&self.policy,), Some(&given))?;
        let (solutions, method, is_retry): Answer<'_> = answer.extract()?;
        let numbers =
            |array: &PyReadonlyArray1<'_, f64>| array.as_array().iter().copied().collect();
        let solutions = solutions
            .iter()
            .map(|(x, row_dual, objective, steps)| Solution {
                x: numbers(x),
                row_dual: numbers(row_dual),
                objective: *objective,
                iterations: *steps,
            });
        Ok(Solved {
            solutions: solutions.collect(),
            method,
            is_retry,
        })
    }

    /// Records that a solve failed, so that Python can write the request to a file.
    fn tell(&self, py: Python<'_>, failed: &Failed<'_>, error: &PyErr) -> PyResult<()> {
        let note = match *failed {
            Failed::Auction { now } => format!("in the auction at {} s", now.seconds()),
            Failed::Allocation { ask, lost_s, facts } => {
                if let Some(params) = &self.params {
                    let arrays = arrays_of(py, ask, lost_s, facts)?;
                    let keep = py.import("gangline.lp.instance")?.getattr("keep_failed")?;
                    keep.call1((&self.policy, arrays, params.bind(py), error.value(py)))?;
                }
                format!("in the round at {} s", ask.now.seconds())
            }
        };
        error.value(py).call_method1("add_note", (note,)).map(drop)
    }

    fn keep(&self, error: Option<PyErr>) {
        *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }
}

impl Solver for PySolver {
    fn solve(&mut self, model: &Model, then: &[Next], how: How) -> Result<Solved, SolverError> {
        self.keep(None);
        Python::attach(|py| self.call(py, model, then, how)).map_err(|error| {
            let message = error.to_string();
            self.keep(Some(error)); // The exception is stored so that it is raised unchanged.
            SolverError::Outside(message)
        })
    }

    fn failed(&mut self, failed: &Failed<'_>, error: &SolverError) {
        Python::attach(|py| {
            let raised = self
                .raised
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            let raised = raised.unwrap_or_else(|| refused(py, &self.policy, error));
            if let Err(broken) = self.tell(py, failed, &raised) {
                broken.write_unraisable(py, None);
            }
            self.keep(Some(raised));
        });
    }
}

/// Returns the arguments of `gangline.lp.solve` for a request.
fn arrays_of<'py>(
    py: Python<'py>,
    ask: &Ask,
    lost_s: &[f64],
    facts: &Facts,
) -> PyResult<Bound<'py, PyDict>> {
    let given = PyDict::new(py);
    let set = |name: &str, values: &[f64]| -> PyResult<()> {
        if values.is_empty() {
            return Ok(());
        }
        given.set_item(name, values.to_vec().into_pyarray(py))
    };
    let types = ask.capacity.len();
    let rates = ask.rates.clone().into_pyarray(py);
    given.set_item("rates", rates.reshape([ask.jobs.len(), types])?)?;
    set("scale", &ask.gangs)?;
    set("weight", &ask.weights)?;
    set("age_s", &ask.age_s)?;
    set("capacity", &ask.capacity)?;
    set("steps_remaining", &ask.remaining)?;
    set("service_lost_s", lost_s)?;
    set("prices", &facts.prices)?;
    if let Some(kind) = facts.reference {
        given.set_item("reference_type", kind)?;
    }
    set("time_left_s", &ask.time_left_s)?;
    let own = |gpu_type: &Option<GpuTypeId>| gpu_type.map_or(-1.0, |own| own.index() as f64);
    set(
        "running_type",
        &ask.running.iter().map(own).collect::<Vec<f64>>(),
    )?;
    let numbers = |column: &[u32]| column.iter().copied().map(f64::from).collect::<Vec<f64>>();
    set("entity", &numbers(&ask.entities))?;
    set("entity_weight", &ask.entity_weights)?;
    set("kind", &numbers(&ask.kinds))?;
    if !ask.kinds.is_empty() {
        let shape = [ask.kind_count, ask.kind_count, types];
        let pair_rates = ask.pair_rates.clone().into_pyarray(py);
        given.set_item("pair_rates", pair_rates.reshape(shape)?)?;
    }
    Ok(given)
}

/// Returns the exception for an allocation that failed.
pub(crate) fn refused(py: Python<'_>, policy: &str, error: &SolverError) -> PyErr {
    let facts = PyDict::new(py);
    let message = format!("{policy}: {error}");
    let raised = || -> PyResult<PyErr> {
        let status = match error {
            SolverError::Gang { row, .. } => {
                facts.set_item("job", row)?;
                facts.set_item("reason", "gang larger than 1")?;
                return raise(py, "InfeasibleJobError", &message, &facts);
            }
            SolverError::Input { .. } => "Input",
            SolverError::Gap { .. } => "Gap",
            SolverError::Steps { .. } => "Steps",
            SolverError::Bottleneck { .. } => "no bottleneck",
            SolverError::Outside(_) => "Outside",
        };
        facts.set_item("policy", policy)?;
        facts.set_item("status", status)?;
        raise(py, "SolverError", &message, &facts)
    };
    raised().unwrap_or_else(|broken| broken)
}
