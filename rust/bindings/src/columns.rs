//! The tables that a policy written in Python reads, column by column. An unused column is never filled, and a column
//! that is read twice in a decision is filled only once: [`crate::view`] keeps it.

use crate::error::raise;
use gangline_engine::{ClusterView, Part, Run};
use gangline_model::{
    GpuTypeId, JobColumns, JobId, Label, NANOS_PER_SECOND, ServerId, SimSpan, SimTime,
};
use gangline_policies::kit::Seen;
use numpy::{Element, IntoPyArray, PyArray2, PyArrayMethods};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;

const GIB: f64 = (1_u64 << 30) as f64;

/// The waiting and the running jobs. They are the rows of the tables, and all columns of a decision share them.
#[derive(Default)]
pub(crate) struct JobRows {
    waiting: Option<Vec<JobId>>,
    running: Option<Vec<JobId>>,
}

impl JobRows {
    fn waiting(&mut self, view: &ClusterView<'_>) -> &[JobId] {
        self.waiting.get_or_insert_with(|| {
            let mut rows = Vec::with_capacity(view.waiting_count());
            rows.extend(view.waiting());
            rows
        })
    }

    fn running(&mut self, view: &ClusterView<'_>) -> &[JobId] {
        self.running.get_or_insert_with(|| view.running().collect())
    }
}

/// Returns a column of a table: "waiting", "running", "servers", "parts" or "residents".
pub(crate) fn column<'py>(
    py: Python<'py>,
    view: &ClusterView<'_>,
    knows_work: bool,
    rows: &mut JobRows,
    (table, name): (&str, &str),
) -> PyResult<Bound<'py, PyAny>> {
    match table {
        "waiting" => job_column(py, (view, knows_work), rows.waiting(view), name),
        "running" => job_column(py, (view, knows_work), rows.running(view), name),
        "parts" => part_column(py, view, name),
        "residents" => resident_column(py, view, name),
        "servers" => server_column(py, view, name),
        other => Err(PyKeyError::new_err(format!("no table {other}"))),
    }
}

/// Returns numbers as a read-only array.
pub(crate) fn array<T: Element>(py: Python<'_>, values: Vec<T>) -> Bound<'_, PyAny> {
    let made = values.into_pyarray(py);
    made.readwrite().make_nonwriteable();
    made.into_any()
}

/// Returns the indices of jobs or servers.
pub(crate) fn indices(py: Python<'_>, ids: impl Iterator<Item = usize>) -> Bound<'_, PyAny> {
    array(py, ids.map(|id| id as i64).collect())
}

const JOB_COLUMNS: &str = "job, gpus, arrival_s, attained_gpu_s, batch_size, weight, model, user, vc, account, \
     partition, qos, priority, nice, time_limit_s, memory_gb, deadline_s, gpu_types, rates, min_gpus, max_gpus, start_s, rate, locality, sub_batch, gpu_type, remaining_s, \
     work_remaining";
const PART_COLUMNS: &str = "job, part, server, gpus, gpu_type, sub_batch, rate, locality, xi, \
     progress_start_s";
const RESIDENT_COLUMNS: &str = "server, slot, job";
const SERVER_COLUMNS: &str = "gpus, gpus_free, free_mask, rack, gpu_type, up";

fn no_column(py: Python<'_>, table: &str, name: &str, known: &str) -> PyErr {
    let message = format!("no column `{name}` of {table}; known: {known}");
    let facts = [("field", table), ("value", name)].into_py_dict(py);
    facts
        .and_then(|facts| raise(py, "PolicyError", &message, &facts))
        .unwrap_or_else(|error| error)
}

/// Denies access to the remaining work unless the policy declares that it reads this work.
pub(crate) fn check_knowledge(py: Python<'_>, knows_work: bool) -> PyResult<()> {
    if knows_work {
        return Ok(());
    }
    let message = "this policy declares knowledge \"online\": it may not read how much \
         work is left; set knowledge = \"remaining\"";
    let facts = [("field", "knowledge"), ("value", "online")].into_py_dict(py)?;
    Err(raise(py, "PolicyError", message, &facts)?)
}

/// Returns the GPU-seconds, without overhead, that a job has received so far.
fn gpu_seconds(view: &ClusterView<'_>, job: JobId) -> f64 {
    view.attained_gpu_ns(job) as f64 / NANOS_PER_SECOND
}

/// Returns the minimum and maximum number of GPUs of a job.
fn gpu_range(view: &ClusterView<'_>, job: JobId) -> (u32, u32) {
    let gang = view.jobs().gpus(job);
    view.elastic(job).map_or((gang, gang), |model| {
        (model.class().min_gpus, model.class().max_gpus)
    })
}

/// Returns the jobs' labels of the given kind.
pub(crate) fn label_of<'a>(columns: &'a JobColumns, name: &str) -> Option<&'a Label> {
    let labels = &columns.labels;
    match name {
        "user" => Some(&labels.user),
        "vc" => Some(&labels.vc),
        "account" => Some(&labels.account),
        "partition" => Some(&labels.partition),
        "qos" => Some(&labels.qos),
        _ => None,
    }
}

/// Returns a label as an index; -1 means none.
fn label(column: Option<&Vec<u32>>, job: JobId) -> i64 {
    let code = column.map(|codes| codes[job.index()]);
    code.filter(|&code| code != u32::MAX).map_or(-1, i64::from)
}

/// Returns a column with one number per job.
fn each<'py, T: Element>(
    (py, jobs): (Python<'py>, &[JobId]),
    value: impl Fn(JobId) -> T,
) -> Bound<'py, PyAny> {
    array(py, jobs.iter().map(|&job| value(job)).collect())
}

fn job_column<'py>(
    py: Python<'py>,
    (view, knows_work): (&ClusterView<'_>, bool),
    jobs: &[JobId],
    name: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let of = (py, jobs);
    let columns = view.jobs().columns();
    Ok(match name {
        "job" => each(of, |job| i64::from(job.0)),
        "gpus" => each(of, |job| i64::from(view.jobs().gpus(job))),
        "batch_size" => each(of, |job| i64::from(view.jobs().batch_size(job))),
        "model" => each(of, |job| view.jobs().model(job).map_or(-1, i64::from)),
        "priority" => each(of, |job| view.jobs().priority(job)),
        "nice" => each(of, |job| i64::from(view.jobs().nice(job))),
        "time_limit_s" => each(of, |job| {
            let limit = view.jobs().time_limit(job);
            limit.map_or(f64::INFINITY, SimSpan::seconds)
        }),
        "memory_gb" => each(of, |job| view.jobs().memory_bytes(job) as f64 / GIB),
        "deadline_s" => each(of, |job| {
            let deadline = columns.deadline.as_ref().map(|all| all[job.index()]);
            let known = deadline.filter(|&deadline| deadline != SimTime::NEVER);
            known.map_or(f64::INFINITY, SimTime::seconds)
        }),
        // The masks are signed, like the numbers of types, because numpy shifts only integers of the same kind.
        "gpu_types" => each(of, |job| {
            let types = view.types_of(job);
            types.fold(0, |mask, gpu_type| mask | 1 << gpu_type.index())
        }),
        "rates" => rates(py, view, jobs)?,
        "sub_batch" => each(of, |job| i64::from(view.sub_batch(job))),
        "gpu_type" => each(of, |job| {
            let run = view.run(job);
            run.map_or(-1, |run| run.gpu_type().index() as i64)
        }),
        "min_gpus" => each(of, |job| i64::from(gpu_range(view, job).0)),
        "max_gpus" => each(of, |job| i64::from(gpu_range(view, job).1)),
        "arrival_s" => each(of, |job| view.jobs().arrival(job).seconds()),
        "attained_gpu_s" => each(of, |job| gpu_seconds(view, job)),
        "weight" => each(of, |job| {
            let weight = columns.weight.as_ref();
            weight.map_or(1.0, |weight| weight[job.index()])
        }),
        "start_s" => each(of, |job| {
            view.run(job).map_or(f64::NAN, |run| run.started.seconds())
        }),
        "locality" => each(of, |job| view.locality(job).unwrap_or(f64::NAN)),
        "rate" => each(of, |job| view.run(job).map_or(0.0, |run| run.rate)),
        "remaining_s" | "work_remaining" => {
            check_knowledge(py, knows_work)?;
            if name == "remaining_s" {
                let left = |job| Seen::AS_TOLD.remaining(view, job);
                each(of, |job| left(job).map_or(f64::NAN, SimSpan::seconds))
            } else {
                each(of, |job| view.remaining_work(job).unwrap_or(f64::NAN))
            }
        }
        other => match label_of(columns, other) {
            Some(known) => each(of, |job| label(known.codes.as_ref(), job)),
            None => return Err(no_column(py, "jobs", other, JOB_COLUMNS)),
        },
    })
}

/// Returns the base rates by job and GPU type; a rate is 0 where a job may not run.
fn rates<'py>(
    py: Python<'py>,
    view: &ClusterView<'_>,
    jobs: &[JobId],
) -> PyResult<Bound<'py, PyAny>> {
    let types = view.cluster().gpu_types().len();
    let rate = |job: JobId, at: usize| {
        let usable = view.usable_types(job) >> at & 1 == 1;
        if usable {
            view.base_rate(job, GpuTypeId::new(at))
        } else {
            0.0
        }
    };
    let rows: Vec<Vec<f64>> = jobs
        .iter()
        .map(|&job| (0..types).map(|at| rate(job, at)).collect())
        .collect();
    if rows.is_empty() {
        let none = PyArray2::<f64>::zeros(py, [0, types], false);
        return Ok(none.into_any());
    }
    let made = PyArray2::from_vec2(py, &rows)?;
    made.readwrite().make_nonwriteable();
    Ok(made.into_any())
}

/// Returns a column with one row per part of each running job, ordered by job and server.
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
        array(py, parts.iter().map(|(_, part)| value(part)).collect())
    };
    let ints = |value: &dyn Fn(&Run, &Part) -> i64| -> Bound<'py, PyAny> {
        array(
            py,
            parts.iter().map(|(run, part)| value(run, part)).collect(),
        )
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

/// Returns a column with one row per job on each GPU, ordered by server and slot.
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
        array(py, rows.iter().map(value).collect())
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
    let ids = 0..servers.len();
    let ints = |value: &dyn Fn(usize) -> i64| -> Bound<'py, PyAny> {
        array(py, (0..servers.len()).map(value).collect())
    };
    Ok(match name {
        "gpus" => ints(&|at| i64::from(servers[at].gpus)),
        "gpus_free" => ints(&|at| i64::from(view.free_mask(ServerId::new(at)).count_ones())),
        "rack" => ints(&|at| i64::from(servers[at].rack.0)),
        "gpu_type" => ints(&|at| i64::from(servers[at].gpu_type.0)),
        "up" => array(py, ids.map(|at| view.is_up(ServerId::new(at))).collect()),
        "free_mask" => array::<u64>(
            py,
            ids.map(|at| view.free_mask(ServerId::new(at))).collect(),
        ),
        other => return Err(no_column(py, "servers", other, SERVER_COLUMNS)),
    })
}
