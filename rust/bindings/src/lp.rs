//! Computes a single allocation from columns of jobs, and returns the jobs' shares.

use crate::convert::Given;
use crate::error::CoreError;
use crate::options::params;
use crate::py_policy::Raised;
use crate::py_solver::{PySolver, refused};
use crate::registry;
use gangline_allocation::{Answer, Ask, Facts, Inside, Settings, SolverError, Table, even_loads};
use gangline_model::{GpuTypeId, JobId, ServerId, Tier};
use gangline_policies::themis::{AuctionAsk, Bid, Offer, Room, award};
use numpy::{IntoPyArray, IxDyn, PyArray1, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::PoisonError;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(lp_solve, module)?)?;
    module.add_function(wrap_pyfunction!(lp_award, module)?)?;
    module.add_function(wrap_pyfunction!(lp_even_loads, module)?)
}

/// Returns the jobs' shares under the policy with the given name. `columns` are the arrays of `gangline.lp.solve`, and
/// `given` contains the parameters of the policy, as in a run. The other arguments come from the cluster of a run. If
/// no job can run, all shares and the objective are 0.
#[pyfunction]
#[pyo3(signature = (policy, columns, given, *, seed, prices, reference, in_order, by_name))]
#[allow(clippy::too_many_arguments)] // Only `gangline.lp` calls this function.
fn lp_solve<'py>(
    py: Python<'py>,
    policy: &str,
    columns: &Bound<'py, PyDict>,
    given: &Bound<'py, PyDict>,
    seed: u32,
    prices: Vec<f64>,
    reference: Option<usize>,
    in_order: Vec<bool>,
    by_name: Vec<usize>,
) -> PyResult<Bound<'py, PyDict>> {
    let info = registry::find(policy).map_err(CoreError::from)?;
    let found = info.allocation(&params(given)?).map_err(CoreError::from)?;
    let Some((objective, mut settings)) = found else {
        return Err(PyValueError::new_err(format!(
            "{policy} makes no allocations"
        )));
    };
    settings.seed = seed;
    let inside = |own: bool| if own { Inside::Fifo } else { Inside::Fairness };
    let objective = objective.with(&Facts {
        prices,
        reference,
        inside: in_order.into_iter().map(inside).collect(),
        by_name,
    });
    let (ask, lost_s) = ask_of(columns)?;
    let raised = Raised::default();
    let mut solver = PySolver::new(policy, &raised);
    let (table, row_of, answer) = py.detach(|| {
        let (table, row_of) = objective.classes(&ask, &ask.remaining, &lost_s);
        let answer = if table.gangs.is_empty() {
            Ok(Answer::default())
        } else {
            objective.solve(&table, settings, &mut solver)
        };
        (table, row_of, answer)
    });
    match answer {
        Ok(answer) => told(py, &table, &row_of, &answer),
        Err(error) => Err(own_or_refused(py, policy, &raised, &error)),
    }
}

/// Returns the exception that was raised in Python, if any; otherwise, returns the exception for a failed allocation.
fn own_or_refused(py: Python<'_>, policy: &str, raised: &Raised, error: &SolverError) -> PyErr {
    let own = raised.lock().unwrap_or_else(PoisonError::into_inner).take();
    own.unwrap_or_else(|| refused(py, policy, error))
}

/// Returns the winning bids of an exact auction, each with the index of a server in `rooms`, for comparison with the
/// engine. Tiers are 0 for a server, 1 for a rack, 2 for the network and 3 for the GPUs that the bidder holds. `rooms`
/// contains the GPU type, the rack and the number of free GPUs of each server with free GPUs. `own` contains the GPUs
/// that bidders hold, as tuples (index of the bid, index in `rooms`, number of GPUs).
#[pyfunction]
#[pyo3(signature = (gangs, bids, rooms, own, *, choices_max))]
fn lp_award(
    py: Python<'_>,
    gangs: Vec<u32>,
    bids: Vec<(usize, usize, u8, f64)>,
    rooms: Vec<(usize, u32, u32)>,
    own: Vec<(usize, usize, u32)>,
    choices_max: u64,
) -> PyResult<Vec<(usize, usize)>> {
    let bids = bids.into_iter().map(|(bidder, gpu_type, tier, value)| {
        let gpu_type = GpuTypeId::new(gpu_type);
        let offer = match tier {
            0 => Offer::Anywhere(gpu_type, Tier::Server),
            1 => Offer::Anywhere(gpu_type, Tier::Rack),
            2 => Offer::Anywhere(gpu_type, Tier::Network),
            _ => Offer::Own(gpu_type, Tier::Network),
        };
        Bid {
            bidder,
            offer,
            value,
        }
    });
    let rooms = rooms.into_iter().enumerate();
    let rooms = rooms.map(|(at, (gpu_type, rack, free))| Room {
        server: ServerId::new(at),
        gpu_type: GpuTypeId::new(gpu_type),
        rack,
        free,
    });
    let ask = AuctionAsk {
        gangs,
        bids: bids.collect(),
        rooms: rooms.collect(),
        own,
        ..AuctionAsk::default()
    };
    let raised = Raised::default();
    let mut solver = PySolver::new("themis", &raised);
    let how = Settings::default().how();
    match py.detach(|| award(&ask, &mut solver, how, choices_max)) {
        Ok((awards, _)) => Ok(awards.iter().map(|own| (own.bid, own.room)).collect()),
        Err(error) => Err(own_or_refused(py, "themis", &raised, &error)),
    }
}

/// Returns the load of each GPU type if work is divided as evenly as possible; `None` if some work cannot run on any
/// type. `need` holds the GPU-seconds of each job on each type, infinite where the job cannot run; `work` holds each
/// job's minimum over the types.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // PyO3 passes arrays by value.
fn lp_even_loads<'py>(
    py: Python<'py>,
    need: PyReadonlyArray2<'py, f64>,
    work: PyReadonlyArray1<'py, f64>,
    capacity: PyReadonlyArray1<'py, f64>,
) -> PyResult<Option<Bound<'py, PyArray1<f64>>>> {
    let need: Vec<f64> = need.as_array().iter().copied().collect();
    let [work, capacity] = [work, capacity].map(|own| own.as_array().to_vec());
    let raised = Raised::default();
    let who = "offered load";
    let mut solver = PySolver::new(who, &raised);
    match py.detach(|| even_loads(&need, &work, &capacity, &mut solver)) {
        Ok(loads) => Ok(loads.map(|own| own.into_pyarray(py))),
        Err(error) => Err(own_or_refused(py, who, &raised, &error)),
    }
}

/// Returns the allocation as a Python dictionary, with one row of shares for each job.
fn told<'py>(
    py: Python<'py>,
    table: &Table,
    row_of: &[Option<usize>],
    answer: &Answer,
) -> PyResult<Bound<'py, PyDict>> {
    let types = table.capacity.len();
    let mut shares = vec![0.0; row_of.len() * types];
    let mut levels = vec![0.0; row_of.len()];
    for (job, class) in row_of.iter().enumerate() {
        if let Some(class) = *class {
            let own = &answer.shares[class * types..(class + 1) * types];
            shares[job * types..(job + 1) * types].copy_from_slice(own);
            levels[job] = answer.levels.get(class).copied().unwrap_or(0.0);
        }
    }
    let told = PyDict::new(py);
    told.set_item(
        "shares",
        shares.into_pyarray(py).reshape([row_of.len(), types])?,
    )?;
    told.set_item("objective", answer.objective)?;
    told.set_item("method", &answer.method)?;
    told.set_item("programs", answer.programs)?;
    told.set_item("iterations", answer.iterations)?;
    if !answer.levels.is_empty() {
        told.set_item("levels", levels.into_pyarray(py))?;
    }
    let pairs = answer.together.iter();
    let pairs: Vec<_> = pairs
        .map(|pair| (pair.classes, pair.gpu_type, pair.time))
        .collect();
    told.set_item("pairs", pairs)?;
    let classes = row_of
        .iter()
        .map(|own| own.map_or(-1, |class| class as i64));
    told.set_item("classes", classes.collect::<Vec<i64>>().into_pyarray(py))?;
    let stranded = row_of.iter().filter(|own| own.is_none()).count();
    told.set_item("stranded", stranded)?;
    told.set_item("passed", answer.notes.passed)?;
    told.set_item("missed", answer.notes.missed)?;
    told.set_item("prices_failed", answer.notes.prices_failed)?;
    told.set_item("is_retry", answer.notes.is_retry)?;
    Ok(told)
}

/// Returns the columns of the jobs, and the time that each job has lost so far.
fn ask_of(columns: &Bound<'_, PyDict>) -> PyResult<(Ask, Vec<f64>)> {
    let given = Given::new(columns)?;
    let column = |name: &str| -> PyResult<Vec<f64>> {
        let found = given.array::<f64, IxDyn>(name)?;
        Ok(found.map_or_else(Vec::new, |(values, _)| values))
    };
    let whole = |values: Vec<f64>| {
        values
            .into_iter()
            .map(|own| own as u32)
            .collect::<Vec<u32>>()
    };
    let (gangs, pair_rates) = (column("scale")?, column("pair_rates")?);
    let capacity = column("capacity")?;
    let running = column("running_type")?.into_iter();
    let running = running.map(|own| (own >= 0.0).then(|| GpuTypeId::new(own as usize)));
    let ask = Ask {
        jobs: (0..gangs.len()).map(JobId::new).collect(),
        rates: column("rates")?,
        gangs,
        weights: column("weight")?,
        remaining: column("steps_remaining")?,
        age_s: column("age_s")?,
        time_left_s: column("time_left_s")?,
        running: running.collect(),
        entities: whole(column("entity")?),
        entity_weights: column("entity_weight")?,
        kinds: whole(column("kind")?),
        kind_count: (pair_rates.len() / capacity.len().max(1)).isqrt(),
        pair_rates,
        capacity,
        ..Ask::default()
    };
    Ok((ask, column("service_lost_s")?))
}
