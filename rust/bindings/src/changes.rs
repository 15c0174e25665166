//! The effects of the last plan and the changes since then, for a policy in Python. Each array is created when it is
//! first read, because most decisions read only one or two arrays.

use crate::columns::indices;
use gangline_engine::Changes;
use gangline_model::{JobId, ServerId};
use pyo3::prelude::*;

/// The changes of one decision; they stay readable after the decision.
#[pyclass(frozen, module = "gangline._core")]
pub(crate) struct PolicyChanges(Changes);

impl PolicyChanges {
    pub(crate) fn new(changes: &Changes) -> Self {
        Self(changes.clone())
    }
}

fn jobs<'py>(py: Python<'py>, jobs: &[JobId]) -> Bound<'py, PyAny> {
    indices(py, jobs.iter().map(|job| job.index()))
}

fn servers<'py>(py: Python<'py>, servers: &[ServerId]) -> Bound<'py, PyAny> {
    indices(py, servers.iter().map(|server| server.index()))
}

#[pymethods]
impl PolicyChanges {
    #[getter]
    fn started<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        jobs(py, &self.0.started)
    }

    #[getter]
    fn preempted<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        jobs(py, &self.0.preempted)
    }

    #[getter]
    fn moved<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        jobs(py, &self.0.moved)
    }

    #[getter]
    fn retimed<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        jobs(py, &self.0.retimed)
    }

    #[getter]
    fn arrived<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        jobs(py, &self.0.arrived)
    }

    #[getter]
    fn finished<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        jobs(py, &self.0.finished)
    }

    #[getter]
    fn requeued<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        jobs(py, &self.0.requeued)
    }

    #[getter]
    fn parts_lost(&self) -> Vec<(u32, u16)> {
        let lost = self.0.parts_lost.iter();
        lost.map(|&(job, part)| (job.0, part)).collect()
    }

    #[getter]
    fn servers_up<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        servers(py, &self.0.servers_up)
    }

    #[getter]
    fn servers_down<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        servers(py, &self.0.servers_down)
    }

    #[getter]
    fn timers(&self) -> Vec<(Option<u32>, u32)> {
        self.0.timers.iter().map(|tag| (None, tag.id)).collect()
    }

    #[getter]
    fn is_round(&self) -> bool {
        self.0.is_round
    }

    /// Returns whether a gang that did not fit before might fit now.
    #[getter]
    fn has_room(&self) -> bool {
        self.0.has_room()
    }
}
