//! `gangline.lp.auction.Auctions` as an [`Auctioneer`]. Attaches once per auction.

use crate::py_policy::Raised;
use gangline_engine::PolicyError;
use gangline_policies::themis::{AuctionAsk, Auctioneer, Award, Offer};
use numpy::{IntoPyArray, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Arc, OnceLock, PoisonError};

/// A bid for what the bidder holds, as a tier.
const OWN: i64 = 3;

/// The object in Python that decides the auctions of a run, from the first one on.
pub(crate) type Auctions = Arc<OnceLock<Py<PyAny>>>;

/// Auctions decided in Python.
pub(crate) struct PyAuctioneer {
    params: Py<PyDict>,
    object: Auctions,
    raised: Raised,
}

impl PyAuctioneer {
    /// The auctioneer of a policy with its parameters.
    pub(crate) fn new(params: &Bound<'_, PyDict>, object: &Auctions, raised: &Raised) -> Self {
        Self {
            params: params.clone().unbind(),
            object: Arc::clone(object),
            raised: Arc::clone(raised),
        }
    }

    fn object(&self, py: Python<'_>) -> PyResult<&Py<PyAny>> {
        if self.object.get().is_none() {
            let auctions = py.import("gangline.lp.auction")?.getattr("Auctions")?;
            let made = auctions.call1((self.params.bind(py),))?.unbind();
            return Ok(self.object.get_or_init(|| made));
        }
        Ok(self.object.get().expect("looked at above"))
    }

    fn call(&self, py: Python<'_>, ask: &AuctionAsk) -> PyResult<Vec<Award>> {
        let given = PyDict::new(py);
        let set = |name: &str, values: Vec<i64>| given.set_item(name, values.into_pyarray(py));
        let (rooms, bids, own) = (ask.rooms.iter(), ask.bids.iter(), ask.own.iter());
        set("gangs", ask.gangs.iter().copied().map(i64::from).collect())?;
        set(
            "room_type",
            rooms
                .clone()
                .map(|room| room.gpu_type.index() as i64)
                .collect(),
        )?;
        set(
            "room_rack",
            rooms.clone().map(|room| i64::from(room.rack)).collect(),
        )?;
        set(
            "room_free",
            rooms.map(|room| i64::from(room.free)).collect(),
        )?;
        let (types, tiers): (Vec<i64>, Vec<i64>) = bids
            .clone()
            .map(|bid| match bid.offer {
                Offer::Anywhere(gpu_type, tier) => (gpu_type.index() as i64, tier as i64),
                Offer::Own(gpu_type, _) => (gpu_type.index() as i64, OWN),
            })
            .unzip();
        set("bid_type", types)?;
        set("bid_tier", tiers)?;
        set(
            "bid_bidder",
            bids.clone().map(|bid| bid.bidder as i64).collect(),
        )?;
        let values: Vec<f64> = bids.map(|bid| bid.value).collect();
        given.set_item("bid_value", values.into_pyarray(py))?;
        set("own_bid", own.clone().map(|own| own.0 as i64).collect())?;
        set("own_room", own.clone().map(|own| own.1 as i64).collect())?;
        set("own_gpus", own.map(|own| i64::from(own.2)).collect())?;
        let answer = self.object(py)?.bind(py).call((), Some(&given))?;
        let awards: PyReadonlyArray2<'_, i64> = answer.extract()?;
        let rows = awards.as_array();
        Ok(rows
            .rows()
            .into_iter()
            .map(|row| Award {
                bid: row[0] as usize,
                room: row[1] as usize,
            })
            .collect())
    }

    /// Keeps what Python raised, so that it passes untouched.
    fn keep(&self, error: PyErr) -> PolicyError {
        let message = error.to_string();
        *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        PolicyError::Failed { message }
    }
}

impl Auctioneer for PyAuctioneer {
    fn award(&mut self, ask: &AuctionAsk) -> Result<Vec<Award>, PolicyError> {
        let answer = Python::attach(|py| {
            self.call(py, ask).inspect_err(|error| {
                let note = format!("in the auction at {} s", ask.now.seconds());
                // a note on the solver's own error; the error itself passes untouched
                if let Err(failed) = error.value(py).call_method1("add_note", (note,)) {
                    failed.write_unraisable(py, None);
                }
            })
        });
        answer.map_err(|error| self.keep(error))
    }
}
