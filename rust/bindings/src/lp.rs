//! Arrays of an allocation to the core and back: classes of equal jobs, max-min and water filling by prices.

use crate::error::raise;
use gangline_allocation::{Filling, MaxMin, RowPart, SolverError, group_rows};
use numpy::{IntoPyArray, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Adds the functions of this file.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(lp_classes, module)?)?;
    module.add_function(wrap_pyfunction!(lp_prices, module)?)?;
    module.add_function(wrap_pyfunction!(lp_levels, module)?)
}

/// Class of each row, first row and size of each class; rows are compared bit by bit, over all parts.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)]
fn lp_classes<'py>(
    py: Python<'py>,
    parts: Vec<PyReadonlyArray2<'py, u64>>,
) -> PyResult<Bound<'py, PyTuple>> {
    let rows = parts.first().map_or(0, |part| part.as_array().nrows());
    let mut columns = Vec::with_capacity(parts.len());
    for part in &parts {
        if part.as_array().nrows() != rows {
            return Err(PyValueError::new_err(
                "parts differ in their number of rows",
            ));
        }
        columns.push(RowPart {
            words: part.as_slice()?,
            width: part.as_array().ncols(),
        });
    }
    let classes = py.detach(|| group_rows(&columns, rows));
    (
        classes.of.into_pyarray(py),
        classes.first.into_pyarray(py),
        classes.count.into_pyarray(py),
    )
        .into_pyobject(py)
}

/// Max-min by prices: (z, bound, shares row by row, evaluations).
#[pyfunction]
#[pyo3(signature = (rates, gangs, members, capacity, *, gap, evaluations))]
#[allow(clippy::needless_pass_by_value)]
fn lp_prices<'py>(
    py: Python<'py>,
    rates: PyReadonlyArray1<'py, f64>,
    gangs: PyReadonlyArray1<'py, f64>,
    members: PyReadonlyArray1<'py, f64>,
    capacity: PyReadonlyArray1<'py, f64>,
    gap: f64,
    evaluations: u32,
) -> PyResult<Bound<'py, PyTuple>> {
    let problem = MaxMin {
        rates: rates.as_slice()?,
        gangs: gangs.as_slice()?,
        members: members.as_slice()?,
        capacity: capacity.as_slice()?,
    };
    let found = py
        .detach(|| problem.solve(gap, evaluations))
        .map_err(|error| refused(py, &error))?;
    let shares = found.shares.into_pyarray(py);
    (found.z, found.bound, shares, found.evaluations).into_pyobject(py)
}

/// Water filling by prices: (levels, shares row by row, programs, evaluations).
#[pyfunction]
#[pyo3(signature = (rates, gangs, members, capacity, speed, *, evaluations))]
#[allow(clippy::needless_pass_by_value)]
fn lp_levels<'py>(
    py: Python<'py>,
    rates: PyReadonlyArray1<'py, f64>,
    gangs: PyReadonlyArray1<'py, f64>,
    members: PyReadonlyArray1<'py, f64>,
    capacity: PyReadonlyArray1<'py, f64>,
    speed: PyReadonlyArray1<'py, f64>,
    evaluations: u32,
) -> PyResult<Bound<'py, PyTuple>> {
    let problem = Filling {
        rates: rates.as_slice()?,
        gangs: gangs.as_slice()?,
        members: members.as_slice()?,
        capacity: capacity.as_slice()?,
        speed: speed.as_slice()?,
    };
    let found = py
        .detach(|| problem.solve(evaluations))
        .map_err(|error| refused(py, &error))?;
    let levels = found.levels.into_pyarray(py);
    let shares = found.shares.into_pyarray(py);
    (levels, shares, found.programs, found.evaluations).into_pyobject(py)
}

fn refused(py: Python<'_>, error: &SolverError) -> PyErr {
    let facts = PyDict::new(py);
    let status = match error {
        SolverError::Input { .. } => "Input",
        SolverError::Gap { .. } => "Gap",
        SolverError::Stuck { .. } => "Stuck",
    };
    let raised = facts
        .set_item("status", status)
        .and_then(|()| raise(py, "SolverError", &error.to_string(), &facts));
    raised.unwrap_or_else(|broken| broken)
}
