//! Arrays of an allocation to the core and back: classes of equal jobs, whole programs, and what prices solve.

use crate::convert::Given;
use crate::error::raise;
use gangline_allocation::{
    Fairness, MaxMin, Program, RowPart, SolverError, Spread, Table, group_rows,
};
use numpy::{IntoPyArray, IxDyn, PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Adds the functions of this file.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(lp_classes, module)?)?;
    module.add_function(wrap_pyfunction!(lp_prices, module)?)?;
    module.add_function(wrap_pyfunction!(lp_rho, module)?)?;
    module.add_function(wrap_pyfunction!(lp_program, module)?)?;
    module.add_function(wrap_pyfunction!(lp_even, module)?)
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

/// The least rho by prices: (rho, shares row by row, programs, evaluations).
#[pyfunction]
#[pyo3(signature = (rates, gangs, members, capacity, age_s, remaining, fair_s, *, evaluations))]
#[allow(clippy::needless_pass_by_value, clippy::too_many_arguments)] // the arrays of one program
fn lp_rho<'py>(
    py: Python<'py>,
    rates: PyReadonlyArray1<'py, f64>,
    gangs: PyReadonlyArray1<'py, f64>,
    members: PyReadonlyArray1<'py, f64>,
    capacity: PyReadonlyArray1<'py, f64>,
    age_s: PyReadonlyArray1<'py, f64>,
    remaining: PyReadonlyArray1<'py, f64>,
    fair_s: PyReadonlyArray1<'py, f64>,
    evaluations: u32,
) -> PyResult<Bound<'py, PyTuple>> {
    let problem = Fairness {
        rates: rates.as_slice()?,
        gangs: gangs.as_slice()?,
        members: members.as_slice()?,
        capacity: capacity.as_slice()?,
        age_s: age_s.as_slice()?,
        remaining: remaining.as_slice()?,
        fair_s: fair_s.as_slice()?,
    };
    let found = py
        .detach(|| problem.solve(evaluations))
        .map_err(|error| refused(py, &error))?;
    let shares = found.shares.into_pyarray(py);
    (found.rho, shares, found.programs, found.evaluations).into_pyobject(py)
}

/// A whole program of classes: (objective, shares row by row, levels, programs, iterations, pairs with their type and
/// time); none if the core leaves it to others. Columns by name: those of [`Table`]; where classes may share GPUs, each
/// is its own kind.
#[pyfunction]
#[pyo3(signature = (policy, columns, *, jobs, is_proportional, prices))]
#[allow(clippy::needless_pass_by_value)]
fn lp_program<'py>(
    py: Python<'py>,
    policy: &str,
    columns: &Bound<'py, PyDict>,
    jobs: f64,
    is_proportional: bool,
    prices: Vec<f64>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let Some(program) = Program::named(policy, is_proportional, prices) else {
        return Ok(None);
    };
    let given = Given::new(columns)?;
    let column = |name: &str| -> PyResult<Vec<f64>> {
        let found = given.array::<f64, IxDyn>(name)?;
        Ok(found.map_or_else(Vec::new, |(values, _)| values))
    };
    let mut table = Table {
        rates: column("rates")?,
        gangs: column("gangs")?,
        members: column("members")?,
        weights: column("weights")?,
        remaining: column("remaining")?,
        age_s: column("age_s")?,
        lost_s: column("lost_s")?,
        capacity: column("capacity")?,
        jobs,
        ..Table::default()
    };
    let pair_rates = column("pair_rates")?;
    if !pair_rates.is_empty() {
        table.kind_count = table.gangs.len();
        table.kinds = (0..table.kind_count as u32).collect();
        table.pair_rates = pair_rates;
    }
    let Some(answer) = py.detach(|| program.solve_table(&table)) else {
        return Ok(None);
    };
    let answer = answer.map_err(|error| refused(py, &error))?;
    let shares = answer.shares.into_pyarray(py);
    let levels = answer.levels.into_pyarray(py);
    let pairs = answer.together.iter();
    let pairs = pairs.map(|pair| (pair.classes, pair.gpu_type, pair.time));
    let found = (
        answer.objective,
        shares,
        levels,
        answer.programs,
        answer.iterations,
        pairs.collect::<Vec<_>>(),
    );
    found.into_pyobject(py).map(Some)
}

/// Shares with the time of each class spread evenly over the types that it can use, row by row.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)]
fn lp_even<'py>(
    py: Python<'py>,
    rates: PyReadonlyArray1<'py, f64>,
    gangs: PyReadonlyArray1<'py, f64>,
    members: PyReadonlyArray1<'py, f64>,
    capacity: PyReadonlyArray1<'py, f64>,
    shares: PyReadonlyArray1<'py, f64>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let spread = Spread {
        rates: rates.as_slice()?,
        gangs: gangs.as_slice()?,
        members: members.as_slice()?,
        capacity: capacity.as_slice()?,
    };
    let mut shares = shares.as_slice()?.to_vec();
    spread.even(&mut shares);
    Ok(shares.into_pyarray(py))
}

fn refused(py: Python<'_>, error: &SolverError) -> PyErr {
    let facts = PyDict::new(py);
    let status = match error {
        SolverError::Input { .. } => "Input",
        SolverError::Gap { .. } => "Gap",
        SolverError::Steps { .. } => "Steps",
    };
    let raised = facts
        .set_item("status", status)
        .and_then(|()| raise(py, "SolverError", &error.to_string(), &facts));
    raised.unwrap_or_else(|broken| broken)
}
