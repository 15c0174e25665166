//! An agent's observation in a step-by-step run: the first waiting jobs and the cluster, written as numbers into
//! existing arrays. `gangline.rl` names the columns. An observation costs O(window), plus a walk over the waiting and
//! running jobs for the totals.

use crate::draft::{Draft, Placers};
use crate::error::CoreError;
use gangline_engine::{ClusterView, Phase, Plan};
use gangline_model::{GpuTypeId, JobId, NANOS_PER_SECOND, SimSpan};
use gangline_policies::kit::Seen;
use numpy::ndarray::{ArrayViewMut1, ArrayViewMut2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Number of a job's columns before its speeds on each GPU type.
const JOB_COLUMNS: usize = 5;
/// Number of cluster columns for each GPU type; the next constant counts the columns after these.
const TYPE_COLUMNS: usize = 3;
const CLUSTER_COLUMNS: usize = 3;

/// The arrays of a window.
pub(crate) struct Arrays<'a> {
    /// One row per position of the window. The first columns are: whether the row contains a job, whether GPUs are
    /// available on which the job could start now, seconds since its arrival, its GPUs, and its attained GPU-seconds.
    /// The next columns are the job's speed on each GPU type; it is 1 on the fastest type. If durations are shown, the
    /// last column is the remaining time in seconds.
    pub(crate) jobs: ArrayViewMut2<'a, f64>,
    /// The first columns are, for each GPU type: free GPUs, the maximum number of free GPUs on one server, and GPUs of
    /// servers that are up. The next columns are the number of waiting jobs, the GPUs that they ask for, and the number
    /// of running jobs. If durations are shown, the last column is the time in seconds until the first running job
    /// ends.
    pub(crate) cluster: ArrayViewMut1<'a, f64>,
    /// The job at each position; -1 means none.
    pub(crate) ids: ArrayViewMut1<'a, i64>,
    /// Whether each job may start; the last entry says whether the agent may wait. It may wait if a job is running
    /// or more jobs will arrive.
    pub(crate) mask: ArrayViewMut1<'a, i8>,
}

/// Values that are constant until the next event, in this order: the current instant in ns; the numbers of waiting
/// jobs, running jobs and busy GPUs; the sum, over the waiting and running jobs, of 1 / (run time in seconds alone on
/// the fastest GPUs); whether more jobs will arrive; and the number of jobs in the window that could start now.
pub(crate) type Standing = (i64, usize, usize, u32, f64, bool, usize);

/// Fills the arrays with the state after a plan's actions so far. `seen` defines the times that the agent sees, if
/// it sees any.
pub(crate) fn fill(
    (draft, placers, rule): (&Draft, &mut Placers, usize),
    view: &ClusterView<'_>,
    plan: &mut Plan<'_>,
    arrays: &mut Arrays<'_>,
    seen: Option<Seen>,
) -> PyResult<Standing> {
    arrays.check(view, seen)?;
    arrays.jobs.fill(0.0);
    arrays.ids.fill(-1);
    arrays.mask.fill(0);
    let rows = arrays.ids.len();
    let started = draft.parser().actions();
    let (mut waiting, mut gpus, mut inverse, mut with_place) = (0, 0_u64, 0.0, 0);
    for job in view.waiting() {
        inverse += inverse_duration(view, job)?;
        if started.iter().any(|action| action.job == job) {
            continue;
        }
        gpus += u64::from(view.jobs().gpus(job));
        if waiting < rows {
            let place = placers.place(rule, view, plan, (job, None, u64::MAX));
            with_place += usize::from(place.is_some());
            arrays.ids[waiting] = i64::from(job.0);
            arrays.mask[waiting] = i8::from(place.is_some());
            arrays.show_job(waiting, view, job, seen)?;
        }
        waiting += 1;
    }
    let mut running = started.len();
    let mut next_end: Option<SimSpan> = None;
    for job in view.running() {
        inverse += inverse_duration(view, job)?;
        running += 1;
        if let Some(seen) = seen
            && let Some(finish) = view.finish(job).map_err(CoreError::from)?
        {
            let end = seen.span(view, job, finish - view.now());
            let end = end.map_err(CoreError::from)?;
            next_end = Some(next_end.map_or(end, |next| next.min(end)));
        }
    }
    let busy = arrays.show_gpus(view, plan);
    let totals = view.cluster().gpu_types().len() * TYPE_COLUMNS;
    arrays.cluster[totals] = waiting as f64;
    arrays.cluster[totals + 1] = gpus as f64;
    arrays.cluster[totals + 2] = running as f64;
    if seen.is_some() {
        arrays.cluster[totals + 3] = next_end.map_or(0.0, SimSpan::seconds);
    }
    // Jobs are numbered in order of arrival.
    let jobs = (0..view.jobs().len()).rev();
    let mut phases = jobs.map(|job| view.phase(JobId::new(job)));
    let last = phases.find(|&phase| phase != Phase::Dropped);
    let is_more_to_come = last == Some(Phase::Pending);
    arrays.mask[rows] = i8::from(running > 0 || is_more_to_come);
    let now = view.now().0;
    Ok((
        now,
        waiting,
        running,
        busy,
        inverse,
        is_more_to_come,
        with_place,
    ))
}

impl Arrays<'_> {
    fn check(&self, view: &ClusterView<'_>, seen: Option<Seen>) -> PyResult<()> {
        let types = view.cluster().gpu_types().len();
        let (rows, known) = (self.ids.len(), usize::from(seen.is_some()));
        let is_fitting = self.jobs.dim() == (rows, JOB_COLUMNS + types + known)
            && self.mask.len() == rows + 1
            && self.cluster.len() == types * TYPE_COLUMNS + CLUSTER_COLUMNS + known;
        if is_fitting {
            return Ok(());
        }
        Err(PyValueError::new_err("the arrays have the wrong shapes"))
    }

    /// Fills the row of a job whose mask entry is known.
    fn show_job(
        &mut self,
        at: usize,
        view: &ClusterView<'_>,
        job: JobId,
        seen: Option<Seen>,
    ) -> PyResult<()> {
        let numbers = [
            1.0,
            f64::from(self.mask[at]),
            (view.now() - view.jobs().arrival(job)).seconds(),
            f64::from(view.jobs().gpus(job)),
            view.attained_gpu_ns(job) as f64 / NANOS_PER_SECOND,
        ];
        let mut row = self.jobs.row_mut(at);
        for (column, number) in numbers.into_iter().enumerate() {
            row[column] = number;
        }
        let best = view.types_of(job).next();
        let best = best.map_or(1.0, |gpu_type| view.base_rate(job, gpu_type));
        for gpu_type in view.types_of(job) {
            row[JOB_COLUMNS + gpu_type.index()] = view.base_rate(job, gpu_type) / best;
        }
        if let Some(seen) = seen {
            let left = seen.remaining(view, job).map_err(CoreError::from)?;
            let last = row.len() - 1;
            row[last] = left.seconds();
        }
        Ok(())
    }

    /// Fills the columns of each GPU type; returns the number of busy GPUs.
    fn show_gpus(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) -> u32 {
        let mut busy = 0;
        for at in 0..view.cluster().gpu_types().len() {
            let pool = plan.free().pool(GpuTypeId::new(at));
            let (free, up) = (pool.free_total(), pool.up_total());
            let numbers = [free, pool.server_free_max(), up];
            for (column, number) in numbers.into_iter().enumerate() {
                self.cluster[at * TYPE_COLUMNS + column] = f64::from(number);
            }
            busy += up - free;
        }
        busy
    }
}

fn inverse_duration(view: &ClusterView<'_>, job: JobId) -> PyResult<f64> {
    let duration = view.duration(job).map_err(CoreError::from)?;
    Ok(1.0 / duration.seconds())
}
