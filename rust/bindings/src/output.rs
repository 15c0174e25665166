//! Passes results to Python: vectors become numpy arrays without a copy.

use crate::error::CoreError;
use gangline_allocation::{Programs, Tally};
use gangline_engine::{CopyGpus, Counted, EngineError, Output, Reason, Segments, Timeline, Waited};
use gangline_model::SimTime;
use numpy::{IntoPyArray, PyArray1, PyArrayMethods};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Arc, Mutex, PoisonError};

/// The results of a run. Each table is moved to the caller, so it can be taken only once.
#[pyclass(frozen, module = "gangline._core")]
pub(crate) struct RunOutput {
    rows: usize,
    output: Mutex<Output>,
    summary: Vec<(&'static str, f64)>,
    counters: Vec<(&'static str, u64)>,
    solves: Option<Solves>,
    copy_gpus: CopyGpus,
    log_hash: u64,
    outcome: &'static str,
    /// Texts of the reasons that a policy in Python gave, by index.
    words: Vec<String>,
}

/// Counters of a run's solves.
pub(crate) struct Solves {
    policy: String,
    /// Statistics of the allocations or auctions.
    pub(crate) tally: Arc<Mutex<Tally>>,
}

impl Solves {
    /// Creates the counters for a run of the given policy.
    pub(crate) fn of(policy: &str) -> Self {
        Self {
            policy: policy.to_owned(),
            tally: Arc::default(),
        }
    }

    /// Returns the solver statistics by name; `None` if nothing had to be solved.
    fn told<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        let told = PyDict::new(py);
        let (setting, time_limit_s) = match tally.of {
            None => return Ok(None),
            Some(Programs::OfAuctions { time_limit_s }) => ("mip", time_limit_s),
            Some(Programs::OfAllocations(settings)) => {
                told.set_item("prices_failed", tally.prices_failed)?;
                told.set_item("retried", tally.retried)?;
                (settings.solver.name(), settings.time_limit_s)
            }
        };
        told.set_item("policy", &self.policy)?;
        told.set_item("setting", setting)?;
        told.set_item("time_limit_s", time_limit_s)?;
        told.set_item("allocations", tally.allocations.clone())?;
        told.set_item("programs", tally.programs)?;
        told.set_item("iterations", tally.iterations)?;
        told.set_item("solver_s", tally.nanos as f64 / 1e9)?;
        told.set_item("fallbacks", tally.fallbacks)?;
        told.set_item("missing_deadlines", tally.missing_deadlines)?;
        told.set_item("dropped_deadlines", tally.dropped_deadlines)?;
        Ok(Some(told))
    }
}

/// Keys of the summary whose values are counts.
const COUNTS: &[&str] = &[
    "jobs",
    "finished",
    "dropped",
    "preemptions",
    "migrations",
    "decisions",
    "events",
    "failures",
    "deadlines",
    "deadlines_met",
    "shares_started",
    "shares_refused",
    "sub_batch_starts",
];

impl RunOutput {
    pub(crate) fn new(mut output: Output, counters: Vec<(&'static str, u64)>) -> Self {
        use gangline_engine::Outcome;
        output.note_counters(&counters);
        Self {
            rows: output.status.len(),
            summary: std::mem::take(&mut output.summary),
            counters,
            solves: None,
            copy_gpus: output.copy_gpus,
            log_hash: output.log_hash,
            outcome: match output.outcome {
                Some(Outcome::Finished) => "finished",
                Some(Outcome::Limit) => "limit",
                Some(Outcome::Interrupted) => "interrupted",
                None => "open",
            },
            output: Mutex::new(output),
            words: Vec::new(),
        }
    }

    /// Adds the texts of the reasons that a policy in Python gave.
    pub(crate) fn with_words(self, words: Vec<String>) -> Self {
        Self { words, ..self }
    }

    /// Adds the policy's solver counters.
    pub(crate) fn with_solves(self, solves: Solves) -> Self {
        Self {
            solves: Some(solves),
            ..self
        }
    }

    fn take<T>(&self, part: impl FnOnce(&mut Output) -> T) -> T {
        part(&mut self.output.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn filled<T: numpy::Element + Clone>(
    py: Python<'_>,
    column: Vec<T>,
    zero: T,
    rows: usize,
) -> Bound<'_, PyArray1<T>> {
    // An empty column stands for zeros.
    if column.is_empty() {
        vec![zero; rows].into_pyarray(py)
    } else {
        column.into_pyarray(py)
    }
}

#[pymethods]
impl RunOutput {
    fn jobs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut out = self.take(|output| {
            let (segments, causes) = (output.segments.take(), output.causes.take());
            let timeline = std::mem::take(&mut output.timeline);
            let dropped = std::mem::take(&mut output.dropped);
            std::mem::replace(
                output,
                Output {
                    segments,
                    causes,
                    timeline,
                    dropped,
                    ..Output::default()
                },
            )
        });
        if out.status.len() != self.rows {
            let what = "the jobs table was already taken".to_owned();
            return Err(CoreError(EngineError::Option {
                field: "jobs",
                what,
            })
            .into());
        }
        let (table, rows) = (PyDict::new(py), self.rows);
        for (name, column) in [
            ("first_start_s", &mut out.first_start_s),
            ("finish_s", &mut out.finish_s),
            ("jct_s", &mut out.jct_s),
            ("queue_s", &mut out.queue_s),
            ("wait_s", &mut out.wait_s),
            ("run_s", &mut out.run_s),
        ] {
            table.set_item(name, std::mem::take(column).into_pyarray(py))?;
        }
        if !out.gpu_s.is_empty() {
            let gpu_s = std::mem::take(&mut out.gpu_s);
            table.set_item("gpu_seconds", gpu_s.into_pyarray(py))?;
        }
        table.set_item("overhead_s", filled(py, out.overhead_s, 0.0, rows))?;
        if !out.comm_s.is_empty() {
            let names = ["comm_server_s", "comm_rack_s", "comm_network_s"];
            for (name, column) in names.into_iter().zip(std::mem::take(&mut out.comm_tier_s)) {
                table.set_item(name, column.into_pyarray(py))?;
            }
        }
        table.set_item("comm_s", filled(py, out.comm_s, 0.0, rows))?;
        if !out.lost_s.is_empty() {
            table.set_item("lost_s", out.lost_s.into_pyarray(py))?;
            table.set_item("checkpoint_s", out.checkpoint_s.into_pyarray(py))?;
        }
        table.set_item("share_s", filled(py, out.share_s, 0.0, rows))?;
        table.set_item("slowdown", out.slowdown.into_pyarray(py))?;
        table.set_item("ftf", out.ftf.into_pyarray(py))?;
        table.set_item("preemptions", filled(py, out.preemptions, 0, rows))?;
        table.set_item("migrations", filled(py, out.migrations, 0, rows))?;
        table.set_item("status", out.status.into_pyarray(py))?;
        Ok(table)
    }

    /// Returns the dropped jobs, each with the reason why it can never run.
    fn dropped(&self) -> Vec<(u32, &'static str)> {
        self.take(|output| {
            let dropped = output.dropped.iter();
            dropped
                .map(|entry| (entry.job.0, entry.reason.text()))
                .collect()
        })
    }

    fn segments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let table = PyDict::new(py);
        let Some(rows) = self.take(|output| output.segments.take()) else {
            return Ok(table);
        };
        let Segments {
            job,
            part,
            start_ns,
            end_ns,
            server,
            gpu_mask,
            tier,
            rate,
            sub_batch,
            xi,
            co_offset,
            co_runners,
            end_reason,
        } = rows;
        table.set_item("job", job.into_pyarray(py))?;
        table.set_item("part", part.into_pyarray(py))?;
        table.set_item("start_s", seconds(&start_ns)?.into_pyarray(py))?;
        table.set_item("end_s", seconds(&end_ns)?.into_pyarray(py))?;
        table.set_item("start_ns", start_ns.into_pyarray(py))?;
        table.set_item("end_ns", end_ns.into_pyarray(py))?;
        table.set_item("server", server.into_pyarray(py))?;
        table.set_item("gpu_mask", gpu_mask.into_pyarray(py))?;
        table.set_item("tier", tier.into_pyarray(py))?;
        table.set_item("rate", rate.into_pyarray(py))?;
        table.set_item("sub_batch", sub_batch.into_pyarray(py))?;
        if !xi.is_empty() {
            table.set_item("xi", xi.into_pyarray(py))?;
        }
        table.set_item("co_offset", co_offset.into_pyarray(py))?;
        table.set_item("co_runners", co_runners.into_pyarray(py))?;
        table.set_item("end_reason", end_reason.into_pyarray(py))?;
        Ok(table)
    }

    /// Returns, ordered by time, the reasons why watched jobs waited. The columns are: instant, job, reason, the other
    /// job, its GPUs, a number and an instant that belong to the cause, and the text from a policy in Python. Reasons
    /// and texts are indices into `reasons` and `said`. A missing value is -1, and an instant that never comes is
    /// infinite.
    fn causes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let causes = self.take(|output| output.causes.take());
        let rows = causes.map(|causes| causes.rows).unwrap_or_default();
        let mut reasons: Vec<&'static Reason> = Vec::new();
        let mut number_of = |reason| {
            let known = reasons.iter().position(|&one| one == reason);
            known.unwrap_or_else(|| {
                reasons.push(reason);
                reasons.len() - 1
            }) as i64
        };
        let or_none = |number: Option<u32>| number.map_or(-1, i64::from);
        let number = |row: &Waited, is_words: bool| {
            let cause = row
                .cause
                .filter(|cause| (cause.reason.number == Counted::Words) == is_words);
            or_none(cause.and_then(|cause| cause.number))
        };
        let until = |row: &Waited| match row.cause {
            Some(cause) if cause.until != SimTime::NEVER => cause.until.seconds(),
            _ => f64::INFINITY,
        };
        let table = PyDict::new(py);
        table.set_item("decided_s", column(py, &rows, |row| row.since.seconds()))?;
        table.set_item("row", column(py, &rows, |row| i64::from(row.job.0)))?;
        table.set_item(
            "reason",
            column(py, &rows, |row| {
                row.cause.map_or(-1, |cause| number_of(cause.reason))
            }),
        )?;
        let other = |row: &Waited| or_none(row.cause.and_then(|cause| cause.job).map(|job| job.0));
        table.set_item("job", column(py, &rows, other))?;
        table.set_item("gpus", column(py, &rows, |row| or_none(row.held)))?;
        table.set_item("number", column(py, &rows, |row| number(row, false)))?;
        table.set_item("until_s", column(py, &rows, until))?;
        table.set_item("words", column(py, &rows, |row| number(row, true)))?;
        let reasons = reasons.iter().map(|reason| reason_row(py, reason));
        table.set_item("reasons", reasons.collect::<PyResult<Vec<_>>>()?)?;
        table.set_item("said", &self.words)?;
        Ok(table)
    }

    /// Returns the data of a run in which jobs are watched. The data consists of the failures and repairs of servers as
    /// rows (s, server, up); the usable types and minimum number of GPUs of each watched job as rows (job, mask, GPUs);
    /// whether a gang may use several types; and the length of a round. The caller must take this data before it takes
    /// the reasons for waiting.
    #[allow(clippy::type_complexity)]
    fn watched(
        &self,
    ) -> (
        Vec<(f64, u32, bool)>,
        Vec<(u32, u64, u32)>,
        bool,
        Option<f64>,
    ) {
        let causes = self.take(|output| output.causes.clone().unwrap_or_default());
        let capacity = causes.capacity.iter();
        let capacity = capacity.map(|&(time, server, up)| (time.seconds(), server.0, up));
        let usable = causes.usable.iter();
        let usable = usable.map(|&(job, mask, fewest)| (job.0, mask, fewest));
        let round_s = causes.round.map(gangline_model::SimSpan::seconds);
        (
            capacity.collect(),
            usable.collect(),
            causes.mixes_types,
            round_s,
        )
    }

    fn timeline<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let Timeline {
            t_ns,
            gpus_total,
            gpus_busy,
            jobs_running,
            jobs_waiting,
            busy_by_type,
        } = self.take(|output| std::mem::take(&mut output.timeline));
        let (table, rows) = (PyDict::new(py), t_ns.len());
        let types = busy_by_type.len().checked_div(rows).unwrap_or(0);
        table.set_item("t_s", seconds(&t_ns)?.into_pyarray(py))?;
        table.set_item("gpus_total", gpus_total.into_pyarray(py))?;
        table.set_item("gpus_busy", gpus_busy.into_pyarray(py))?;
        table.set_item("jobs_running", jobs_running.into_pyarray(py))?;
        table.set_item("jobs_waiting", jobs_waiting.into_pyarray(py))?;
        table.set_item(
            "busy_by_type",
            busy_by_type.into_pyarray(py).reshape([rows, types])?,
        )?;
        Ok(table)
    }

    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let table = PyDict::new(py);
        for &(key, value) in &self.summary {
            if COUNTS.contains(&key) {
                table.set_item(key, value as u64)?;
            } else {
                table.set_item(key, value)?;
            }
        }
        Ok(table)
    }

    /// Returns the counters of the policy, such as demotions.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let table = PyDict::new(py);
        for &(key, value) in &self.counters {
            table.set_item(key, value)?;
        }
        Ok(table)
    }

    /// Returns the policy's solver statistics for `gangline.lp.report.Report`; `None` if the policy solves nothing.
    fn solver<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(solves) = &self.solves else {
            return Ok(None);
        };
        let report = py.import("gangline.lp.report")?.getattr("report")?;
        let told = solves.told(py)?;
        told.map(|told| report.call1((told,))).transpose()
    }

    /// Returns how many GPUs each part of a forked job has: "gang" (the gang size), "server" (all GPUs of the
    /// server) or a number.
    fn copy_gpus<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(match self.copy_gpus {
            CopyGpus::Gang => "gang".into_pyobject(py)?.into_any(),
            CopyGpus::Server => "server".into_pyobject(py)?.into_any(),
            CopyGpus::Fixed(gpus) => gpus.into_pyobject(py)?.into_any(),
        })
    }

    /// Returns the hash of the event log.
    fn log_hash(&self) -> String {
        format!("{:016x}", self.log_hash)
    }

    /// Returns how the run ended: finished, limit or interrupted.
    fn outcome(&self) -> &'static str {
        self.outcome
    }
}

/// Returns a reason as a dictionary with the fields of its declaration.
pub(crate) fn reason_row<'py>(py: Python<'py>, reason: &Reason) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("name", reason.name)?;
    row.set_item("meaning", reason.meaning)?;
    row.set_item("sentence", reason.sentence)?;
    row.set_item("otherwise", reason.otherwise)?;
    row.set_item("number", reason.number.name())?;
    row.set_item("ends_when_free", reason.ends_when_free)?;
    Ok(row)
}

fn column<'py, R, T: numpy::Element>(
    py: Python<'py>,
    rows: &[R],
    value: impl FnMut(&R) -> T,
) -> Bound<'py, PyArray1<T>> {
    rows.iter().map(value).collect::<Vec<T>>().into_pyarray(py)
}

fn seconds(nanos: &[i64]) -> PyResult<Vec<f64>> {
    let mut column = Vec::new();
    let room = column.try_reserve_exact(nanos.len());
    room.map_err(|error| PyMemoryError::new_err(error.to_string()))?;
    let seconds = |&nanos: &i64| nanos as f64 / gangline_model::NANOS_PER_SECOND;
    column.extend(nanos.iter().map(seconds));
    Ok(column)
}
