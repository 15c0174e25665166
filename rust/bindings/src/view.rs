//! What a policy written in Python sees. Columns are copied when asked for; an unused column is never
//! filled. The view is valid only during `decide`.

use crate::error::raise;
use gangline_engine::{Changes, ClusterView, Part, Run};
use gangline_model::{JobId, ServerId, SimSpan};
use numpy::IntoPyArray;
use pyo3::exceptions::{PyKeyError, PyRuntimeError};
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// The state at one decision.
#[pyclass(frozen, module = "gangline._core")]
pub(crate) struct PolicyView {
    /// `None` once the decision is over.
    view: Mutex<Option<ClusterView<'static>>>,
    knows_work: bool,
}

impl PolicyView {
    /// Lends a view to Python for the length of `body`.
    pub(crate) fn lend<R>(
        py: Python<'_>,
        view: &ClusterView<'_>,
        knows_work: bool,
        body: impl FnOnce(&Bound<'_, Self>) -> PyResult<R>,
    ) -> PyResult<R> {
        // SAFETY: the lifetime is only erased while this call is on the stack. The guard below takes the
        // view out of the object before the call returns or unwinds; every read goes through the mutex.
        let erased: ClusterView<'static> = unsafe { std::mem::transmute(*view) };
        let object = Bound::new(
            py,
            Self {
                view: Mutex::new(Some(erased)),
                knows_work,
            },
        )?;
        let _guard = Guard(&object);
        body(&object)
    }

    fn look<R>(&self, read: impl FnOnce(&ClusterView<'_>) -> PyResult<R>) -> PyResult<R> {
        match self
            .view
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
        {
            Some(view) => read(view),
            None => Err(PyRuntimeError::new_err(
                "a view is valid only during `decide`",
            )),
        }
    }
}

struct Guard<'a, 'py>(&'a Bound<'py, PolicyView>);

impl Drop for Guard<'_, '_> {
    fn drop(&mut self) {
        *self
            .0
            .get()
            .view
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn gpu_seconds(view: &ClusterView<'_>, job: JobId) -> f64 {
    view.attained_gpu_ns(job) as f64 / gangline_model::NANOS_PER_SECOND
}

#[pymethods]
impl PolicyView {
    #[getter]
    fn now_s(&self) -> PyResult<f64> {
        self.look(|view| Ok(view.now().seconds()))
    }

    #[getter]
    fn now_ns(&self) -> PyResult<i64> {
        self.look(|view| Ok(view.now().0))
    }

    /// GPUs that a running job holds, or one of its parts: (server, slot mask).
    #[pyo3(signature = (job, part=None))]
    fn gpus_of(&self, job: u32, part: Option<u16>) -> PyResult<Vec<(u32, u64)>> {
        self.look(|view| {
            let known = (job as usize) < view.jobs().len();
            let run = known.then(|| view.run(JobId(job))).flatten();
            let parts = run.map_or(&[][..], |run| run.parts()).iter();
            let chosen = parts.filter(|one| part.is_none_or(|number| one.number == number));
            let gpus = chosen.flat_map(|one| one.gpus.by_server());
            Ok(gpus.map(|one| (one.server.0, one.mask)).collect())
        })
    }

    /// The batch of most progress of an elastic job on so many GPUs: (samples per GPU and pass, passes beyond the
    /// first, iterations of the initial batch per second at speed 1).
    fn best_batch(&self, job: u32, gpus: u32, spans: bool) -> PyResult<Option<(u32, u32, f64)>> {
        self.look(|view| {
            let known = (job as usize) < view.jobs().len();
            let model = known.then(|| view.elastic(JobId(job))).flatten();
            let model = model.filter(|model| (1..=model.class().max_gpus).contains(&gpus));
            let best = model.map(|model| model.best(view.noise_phase(JobId(job)), gpus, spans));
            let best = best.filter(|best| best.rate > 0.0);
            Ok(best.map(|best| (best.pass_batch, best.accum, best.rate)))
        })
    }

    /// One column of `waiting`, `running`, `parts`, `residents` or `servers`.
    fn column<'py>(&self, py: Python<'py>, table: &str, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.look(|view| match table {
            "waiting" => self.job_column(py, view, &view.waiting().collect::<Vec<_>>(), name),
            "running" => self.job_column(py, view, &view.running().collect::<Vec<_>>(), name),
            "parts" => part_column(py, view, name),
            "residents" => resident_column(py, view, name),
            "servers" => server_column(py, view, name),
            other => Err(PyKeyError::new_err(format!("no table {other}"))),
        })
    }
}

impl PolicyView {
    fn job_column<'py>(
        &self,
        py: Python<'py>,
        view: &ClusterView<'_>,
        jobs: &[JobId],
        name: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let floats = |value: &dyn Fn(JobId) -> f64| -> Bound<'py, PyAny> {
            jobs.iter()
                .map(|&job| value(job))
                .collect::<Vec<_>>()
                .into_pyarray(py)
                .into_any()
        };
        let ints = |value: &dyn Fn(JobId) -> i64| -> Bound<'py, PyAny> {
            jobs.iter()
                .map(|&job| value(job))
                .collect::<Vec<_>>()
                .into_pyarray(py)
                .into_any()
        };
        let columns = view.jobs().columns();
        Ok(match name {
            "job" => ints(&|job| i64::from(job.0)),
            "gpus" => ints(&|job| i64::from(view.jobs().gpus(job))),
            "batch_size" => ints(&|job| i64::from(view.jobs().batch_size(job))),
            "model" => ints(&|job| view.jobs().model(job).map_or(-1, i64::from)),
            "user" => ints(&|job| {
                let user = columns.user.as_ref().map(|user| user[job.index()]);
                user.filter(|&code| code != u32::MAX).map_or(-1, i64::from)
            }),
            // signed, as the numbers of types are: numpy shifts only like by like
            "gpu_types" => ints(&|job| {
                let types = view.types_of(job);
                types.fold(0, |mask, gpu_type| mask | 1 << gpu_type.index())
            }),
            "sub_batch" => ints(&|job| i64::from(view.sub_batch(job))),
            "min_gpus" => ints(&|job| i64::from(gpu_range(view, job).0)),
            "max_gpus" => ints(&|job| i64::from(gpu_range(view, job).1)),
            "arrival_s" => floats(&|job| view.jobs().arrival(job).seconds()),
            "attained_gpu_s" => floats(&|job| gpu_seconds(view, job)),
            "weight" => floats(&|job| {
                columns
                    .weight
                    .as_ref()
                    .map_or(1.0, |weight| weight[job.index()])
            }),
            "start_s" => floats(&|job| view.run(job).map_or(f64::NAN, |run| run.started.seconds())),
            "locality" => floats(&|job| view.locality(job).unwrap_or(f64::NAN)),
            "rate" => floats(&|job| view.run(job).map_or(0.0, |run| run.rate)),
            "remaining_s" | "work_remaining" if !self.knows_work => {
                let message = "this policy declares knowledge \"online\": it may not read how much \
                     work is left; set knowledge = \"remaining\"";
                let facts = pyo3::types::PyDict::new(py);
                return Err(raise(py, "PolicyError", message, &facts)?);
            }
            "remaining_s" => floats(&|job| view.remaining(job).map_or(f64::NAN, SimSpan::seconds)),
            "work_remaining" => floats(&|job| view.remaining_work(job).unwrap_or(f64::NAN)),
            other => return Err(no_column(py, "jobs", other, JOB_COLUMNS)),
        })
    }
}

const JOB_COLUMNS: &str = "job, gpus, arrival_s, attained_gpu_s, batch_size, weight, model, user, \
     gpu_types, min_gpus, max_gpus, start_s, rate, locality, sub_batch, remaining_s, work_remaining";
const PART_COLUMNS: &str = "job, part, server, gpus, gpu_type, sub_batch, rate, locality, xi, \
     progress_start_s";
const RESIDENT_COLUMNS: &str = "server, slot, job";
const SERVER_COLUMNS: &str = "gpus, gpus_free, free_mask, rack, gpu_type, up";

/// Fewest and most GPUs that a job may have.
fn gpu_range(view: &ClusterView<'_>, job: JobId) -> (u32, u32) {
    let gang = view.jobs().gpus(job);
    view.elastic(job).map_or((gang, gang), |model| {
        (model.class().min_gpus, model.class().max_gpus)
    })
}

fn no_column(py: Python<'_>, table: &str, name: &str, known: &str) -> PyErr {
    let message = format!("no column `{name}` of {table}; known: {known}");
    let facts = pyo3::types::PyDict::new(py);
    raise(py, "PolicyError", &message, &facts).unwrap_or_else(|error| error)
}

/// A column with a row per part of every running job, in the order of jobs and servers.
fn part_column<'py>(
    py: Python<'py>,
    view: &ClusterView<'_>,
    name: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let runs = view.running().filter_map(|job| view.run(job));
    let parts: Vec<(&Run, &Part)> = runs
        .flat_map(|run| run.parts().iter().map(move |part| (run, part)))
        .collect();
    let floats = |value: &dyn Fn(&Part) -> f64| -> Bound<'py, PyAny> {
        let column: Vec<f64> = parts.iter().map(|(_, part)| value(part)).collect();
        column.into_pyarray(py).into_any()
    };
    let ints = |value: &dyn Fn(&Run, &Part) -> i64| -> Bound<'py, PyAny> {
        let column: Vec<i64> = parts.iter().map(|(run, part)| value(run, part)).collect();
        column.into_pyarray(py).into_any()
    };
    Ok(match name {
        "job" => ints(&|run, _| i64::from(run.job.0)),
        "part" => ints(&|_, part| i64::from(part.number)),
        "server" => ints(&|_, part| i64::from(part.gpus.by_server()[0].server.0)),
        "gpus" => ints(&|_, part| i64::from(part.gpus.gpus())),
        "gpu_type" => ints(&|_, part| i64::from(part.gpu_type.0)),
        "sub_batch" => ints(&|_, part| i64::from(part.sub_batch)),
        "rate" => floats(&|part| part.rate),
        "locality" => floats(&|part| part.locality),
        "xi" => floats(&|part| part.xi),
        "progress_start_s" => floats(&|part| part.progress_start.seconds()),
        other => return Err(no_column(py, "parts", other, PART_COLUMNS)),
    })
}

/// A column with a row per job on each GPU, in the order of servers and slots.
fn resident_column<'py>(
    py: Python<'py>,
    view: &ClusterView<'_>,
    name: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let mut rows: Vec<(usize, u32, JobId)> = Vec::new();
    for (at, server) in view.cluster().servers().iter().enumerate() {
        for slot in 0..server.gpus {
            let residents = view.residents(ServerId::new(at), slot);
            rows.extend(residents.map(|job| (at, slot, job)));
        }
    }
    let ints = |value: &dyn Fn(&(usize, u32, JobId)) -> i64| -> Bound<'py, PyAny> {
        let column: Vec<i64> = rows.iter().map(value).collect();
        column.into_pyarray(py).into_any()
    };
    Ok(match name {
        "server" => ints(&|row| row.0 as i64),
        "slot" => ints(&|row| i64::from(row.1)),
        "job" => ints(&|row| i64::from(row.2.0)),
        other => return Err(no_column(py, "residents", other, RESIDENT_COLUMNS)),
    })
}

fn server_column<'py>(
    py: Python<'py>,
    view: &ClusterView<'_>,
    name: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let servers = view.cluster().servers();
    let ints = |value: &dyn Fn(usize) -> i64| -> Bound<'py, PyAny> {
        (0..servers.len())
            .map(value)
            .collect::<Vec<_>>()
            .into_pyarray(py)
            .into_any()
    };
    Ok(match name {
        "gpus" => ints(&|at| i64::from(servers[at].gpus)),
        "gpus_free" => ints(&|at| i64::from(view.free_mask(ServerId::new(at)).count_ones())),
        "rack" => ints(&|at| i64::from(servers[at].rack.0)),
        "gpu_type" => ints(&|at| i64::from(servers[at].gpu_type.0)),
        "up" => (0..servers.len())
            .map(|at| view.is_up(ServerId::new(at)))
            .collect::<Vec<_>>()
            .into_pyarray(py)
            .into_any(),
        "free_mask" => (0..servers.len())
            .map(|at| view.free_mask(ServerId::new(at)))
            .collect::<Vec<u64>>()
            .into_pyarray(py)
            .into_any(),
        other => return Err(no_column(py, "servers", other, SERVER_COLUMNS)),
    })
}

/// What became of the last plan, and what happened since.
#[pyclass(frozen, get_all, module = "gangline._core")]
pub(crate) struct PolicyChanges {
    started: Py<PyAny>,
    preempted: Py<PyAny>,
    moved: Py<PyAny>,
    retimed: Py<PyAny>,
    arrived: Py<PyAny>,
    finished: Py<PyAny>,
    requeued: Py<PyAny>,
    parts_lost: Vec<(u32, u16)>,
    servers_up: Py<PyAny>,
    servers_down: Py<PyAny>,
    timers: Vec<(Option<u32>, u32)>,
    is_round: bool,
}

impl PolicyChanges {
    pub(crate) fn new(py: Python<'_>, changes: &Changes) -> Self {
        let jobs = |jobs: &[JobId]| -> Py<PyAny> {
            let ids: Vec<i64> = jobs.iter().map(|job| i64::from(job.0)).collect();
            ids.into_pyarray(py).into_any().unbind()
        };
        let servers = |servers: &[ServerId]| -> Py<PyAny> {
            let ids: Vec<i64> = servers.iter().map(|server| i64::from(server.0)).collect();
            ids.into_pyarray(py).into_any().unbind()
        };
        Self {
            started: jobs(&changes.started),
            preempted: jobs(&changes.preempted),
            moved: jobs(&changes.moved),
            retimed: jobs(&changes.retimed),
            arrived: jobs(&changes.arrived),
            finished: jobs(&changes.finished),
            requeued: jobs(&changes.requeued),
            parts_lost: changes
                .parts_lost
                .iter()
                .map(|&(job, part)| (job.0, part))
                .collect(),
            servers_up: servers(&changes.servers_up),
            servers_down: servers(&changes.servers_down),
            timers: changes.timers.iter().map(|tag| (None, tag.id)).collect(),
            is_round: changes.is_round,
        }
    }
}
