//! Arrays of an allocation to the core and back: classes of equal jobs, max-min and water filling by prices.

use crate::error::raise;
use gangline_allocation::{
    Choose, Filling, MaxMin, RowPart, SolverError, TwoStages, group_rows, within,
};
use numpy::{IntoPyArray, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Adds the functions of this file.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(lp_classes, module)?)?;
    module.add_function(wrap_pyfunction!(lp_prices, module)?)?;
    module.add_function(wrap_pyfunction!(lp_levels, module)?)?;
    module.add_function(wrap_pyfunction!(lp_stages, module)?)?;
    module.add_function(wrap_pyfunction!(lp_choose, module)?)
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

/// Max-min in two stages: (z, shares row by row, iterations).
#[pyfunction]
#[pyo3(signature = (rates, measure, worth, gangs, members, capacity, *, evaluations))]
#[allow(clippy::needless_pass_by_value, clippy::too_many_arguments)] // the arrays of one program
fn lp_stages<'py>(
    py: Python<'py>,
    rates: PyReadonlyArray1<'py, f64>,
    measure: PyReadonlyArray1<'py, f64>,
    worth: PyReadonlyArray1<'py, f64>,
    gangs: PyReadonlyArray1<'py, f64>,
    members: PyReadonlyArray1<'py, f64>,
    capacity: PyReadonlyArray1<'py, f64>,
    evaluations: u32,
) -> PyResult<Bound<'py, PyTuple>> {
    let problem = TwoStages {
        rates: rates.as_slice()?,
        measure: measure.as_slice()?,
        worth: worth.as_slice()?,
        gangs: gangs.as_slice()?,
        members: members.as_slice()?,
        capacity: capacity.as_slice()?,
    };
    let found = py
        .detach(|| problem.solve(evaluations))
        .map_err(|error| refused(py, &error))?;
    (found.z, found.shares.into_pyarray(py), found.iterations).into_pyobject(py)
}

/// The best plan above floors: (first objective, shares row by row, iterations).
#[pyfunction]
#[pyo3(signature = (rates, gains, gangs, members, capacity, floors, then=None))]
#[allow(clippy::needless_pass_by_value, clippy::too_many_arguments)] // the arrays of one program
fn lp_choose<'py>(
    py: Python<'py>,
    rates: PyReadonlyArray1<'py, f64>,
    gains: PyReadonlyArray1<'py, f64>,
    gangs: PyReadonlyArray1<'py, f64>,
    members: PyReadonlyArray1<'py, f64>,
    capacity: PyReadonlyArray1<'py, f64>,
    floors: PyReadonlyArray1<'py, f64>,
    then: Option<PyReadonlyArray1<'py, f64>>,
) -> PyResult<Bound<'py, PyTuple>> {
    let problem = Choose {
        rates: rates.as_slice()?,
        gains: gains.as_slice()?,
        then: then.as_ref().map(|own| own.as_slice()).transpose()?,
        gangs: gangs.as_slice()?,
        members: members.as_slice()?,
        capacity: capacity.as_slice()?,
        floors: floors.as_slice()?,
        prices: &[],
    };
    let found = py.detach(|| {
        problem.solve().map(|mut found| {
            within(
                &mut found.shares,
                problem.gangs,
                problem.members,
                problem.capacity,
            );
            found
        })
    });
    let found = found.map_err(|error| refused(py, &error))?;
    (found.value, found.shares.into_pyarray(py), found.steps).into_pyobject(py)
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
        SolverError::Steps { .. } => "Steps",
        SolverError::Stuck { .. } => "Stuck",
    };
    let raised = facts
        .set_item("status", status)
        .and_then(|()| raise(py, "SolverError", &error.to_string(), &facts));
    raised.unwrap_or_else(|broken| broken)
}
