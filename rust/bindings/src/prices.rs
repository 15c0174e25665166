//! The prices at one decision for a policy in Python, and an allocation built at these prices.

use crate::columns::array;
use crate::error::CoreError;
use crate::options::params;
use crate::view::{PolicyView, job_of, policy_error};
use gangline_model::ServerId;
use gangline_policies::{Allocation, Goal, HadarParams, ParamReader};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An offer: number of GPUs on each server, utility, cost, payoff, rate, and whether the job stays because no other
/// place is faster.
type Offer = (Vec<(u32, u32)>, f64, f64, f64, f64, bool);

/// The prices, the free GPUs, and the market to which they belong.
#[pyclass(frozen, module = "gangline._core")]
pub(crate) struct PriceList {
    view: Py<PolicyView>,
    market: usize,
    loan: u64,
    allocation: Mutex<Allocation>,
}

impl PriceList {
    fn lock(&self) -> MutexGuard<'_, Allocation> {
        self.allocation
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Rejects counts that exceed the GPUs of a server.
    fn check(
        servers: usize,
        gpus: &[(u32, u32)],
        has: impl Fn(ServerId) -> u32,
        what: &str,
    ) -> PyResult<()> {
        for &(server, count) in gpus {
            if server as usize >= servers {
                let last = servers.saturating_sub(1);
                let message = format!("no server {server}: expected an index from 0 to {last}");
                return Err(policy_error("gpus", &message));
            }
            let there = has(ServerId(server));
            if count > there {
                let message =
                    format!("server {server}: {there} of its GPUs are {what}, not {count}");
                return Err(policy_error("gpus", &message));
            }
        }
        Ok(())
    }
}

fn ids(allocation: &Allocation) -> impl Iterator<Item = ServerId> + use<> {
    (0..allocation.servers()).map(ServerId::new)
}

#[pymethods]
impl PriceList {
    /// Creates the prices at a view's current decision, for given parameters of `hadar`.
    #[new]
    fn new(view: Py<PolicyView>, given: &Bound<'_, PyDict>) -> PyResult<Self> {
        let hadar = gangline_policies::find("hadar").map_err(CoreError::from)?;
        let reader = ParamReader::new("gl.Prices", hadar.parameters(), &params(given)?);
        let params = reader.and_then(|reader| HadarParams::of_market(&reader));
        let (allocation, (market, loan)) =
            view.get().allocation(params.map_err(CoreError::from)?)?;
        Ok(Self {
            view,
            market,
            loan,
            allocation: Mutex::new(allocation),
        })
    }

    /// Returns `U_min`, and `U_max` for each GPU type.
    fn bounds<'py>(&self, py: Python<'py>) -> (f64, Bound<'py, PyAny>) {
        let allocation = self.lock();
        let (floor, ceiling) = allocation.bounds();
        (floor, array(py, ceiling.to_vec()))
    }

    /// Returns the price of a GPU on each server.
    fn prices<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        let allocation = self.lock();
        array(
            py,
            ids(&allocation).map(|one| allocation.price(one)).collect(),
        )
    }

    /// Returns the number of free GPUs on each server.
    fn free<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        let allocation = self.lock();
        let free = ids(&allocation).map(|one| i64::from(allocation.free(one)));
        array(py, free.collect())
    }

    fn take(&self, gpus: Vec<(u32, u32)>) -> PyResult<()> {
        let mut allocation = self.lock();
        Self::check(
            allocation.servers(),
            &gpus,
            |server| allocation.free(server),
            "free",
        )?;
        for (server, count) in gpus {
            allocation.take(ServerId(server), count);
        }
        Ok(())
    }

    fn give(&self, gpus: Vec<(u32, u32)>) -> PyResult<()> {
        let mut allocation = self.lock();
        Self::check(
            allocation.servers(),
            &gpus,
            |server| allocation.taken(server),
            "taken",
        )?;
        for (server, count) in gpus {
            allocation.give(ServerId(server), count);
        }
        Ok(())
    }

    /// Returns a job's utility per GPU at its best rate.
    fn density(&self, job: u32) -> PyResult<f64> {
        let key = (self.market, self.loan);
        self.view.get().market_at(key, |view, market| {
            let density = market.density(view, job_of(view, job)?);
            Ok(density.map_err(CoreError::from)?)
        })
    }

    /// Returns a job's best place according to the objective, or its place with the largest utility.
    fn offer(&self, job: u32, by_utility: bool) -> PyResult<Option<Offer>> {
        let goal = if by_utility {
            Goal::Utility
        } else {
            Goal::Objective
        };
        let key = (self.market, self.loan);
        let quote = self.view.get().market_at(key, |view, market| {
            let job = job_of(view, job)?;
            let quote = self.lock().offer(market, view, job, goal);
            Ok(quote.map_err(CoreError::from)?)
        })?;
        Ok(quote.map(|one| {
            let places = one.places.to_vec();
            let (utility, cost, payoff) = (one.utility, one.cost, one.payoff);
            (places, utility, cost, payoff, one.rate, one.by_stay_rule)
        }))
    }
}
