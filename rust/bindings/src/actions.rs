//! Converts Python tuples to the engine's actions. Policies in Python and step-by-step runs use the same parser.

use gangline_engine::ClusterView;
use gangline_model::{
    Action, GpuSet, JobId, ServerId, SimSpan, SimTime, Terms, TimerTag, Verb, mask_of_lowest,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rustc_hash::FxHashMap;

/// Kind of the timers that policies in Python set.
const TIMER_KIND: u8 = 0;

/// A plan from Python.
#[derive(Default)]
pub(crate) struct Orders {
    pub(crate) actions: Vec<Action>,
    /// Timers, in the plan's order; a timer without an instant is cancelled.
    pub(crate) timers: Vec<(TimerTag, Option<SimTime>)>,
}

/// Parses the tuples of a plan. If a tuple gives a number of GPUs, the lowest slots that are free after the previous
/// actions are used.
pub(crate) fn parse(view: &ClusterView<'_>, list: &[Bound<'_, PyAny>]) -> PyResult<Orders> {
    let mut parser = Parser::default();
    for item in list {
        parser.push(view, item)?;
    }
    Ok(parser.finish())
}

/// The state of the parser while it reads a plan tuple by tuple.
#[derive(Default)]
pub(crate) struct Parser {
    orders: Orders,
    quotas: Vec<(JobId, f64)>,
    /// Running jobs that have given up their GPUs and have not received others so far.
    released: Vec<JobId>,
    pub(crate) scratch: Scratch,
}

impl Parser {
    /// Reads the next tuple.
    pub(crate) fn push(&mut self, view: &ClusterView<'_>, item: &Bound<'_, PyAny>) -> PyResult<()> {
        let tuple = item.cast::<PyTuple>()?;
        let name = tuple.get_item(0)?;
        match name.extract::<&str>()? {
            "wake_at" => {
                let time = SimTime::from_seconds(tuple.get_item(1)?.extract()?)
                    .map_err(|error| PyValueError::new_err(error.to_string()))?;
                let tag = tag(tuple.get_item(2)?.extract()?);
                self.orders.timers.push((tag, Some(time)));
            }
            "wake_at_ns" => {
                let time = SimTime(tuple.get_item(1)?.extract()?);
                let tag = tag(tuple.get_item(2)?.extract()?);
                self.orders.timers.push((tag, Some(time)));
            }
            "cancel" => {
                let tag = tag(tuple.get_item(1)?.extract()?);
                self.orders.timers.push((tag, None));
            }
            "limit" => {
                let job = JobId(tuple.get_item(1)?.extract()?);
                self.quotas.push((job, tuple.get_item(2)?.extract()?));
            }
            "release" => {
                let job = JobId(tuple.get_item(1)?.extract()?);
                self.scratch.release(view, job, 0);
                if !self.released.contains(&job) {
                    self.released.push(job);
                }
            }
            "restore" => {
                let job = JobId(tuple.get_item(1)?.extract()?);
                self.scratch.restore(view, job);
                self.released.retain(|&one| one != job);
            }
            name => {
                let action = action(&mut self.scratch, view, name, tuple)?;
                self.released.retain(|&one| one != action.job);
                self.orders.actions.push(action);
            }
        }
        Ok(())
    }

    /// Returns whether a running job has given up its GPUs and has not received others so far.
    pub(crate) fn is_released(&self, job: JobId) -> bool {
        self.released.contains(&job)
    }

    /// Returns the actions so far, without quotas.
    pub(crate) fn actions(&self) -> &[Action] {
        &self.orders.actions
    }

    /// Returns the whole plan. A job that gave up its GPUs and received no others is preempted.
    pub(crate) fn finish(mut self) -> Orders {
        let stopped = self.released.into_iter().map(Action::preempt);
        self.orders.actions.extend(stopped);
        set_quotas(&mut self.orders.actions, &self.quotas);
        self.orders
    }
}

/// Converts a tuple to an action. Fields that are missing at the end of the tuple are not set. The tuples are `("start"
/// or "move", job, [(server, mask or count), ...], are_masks, sub_batch, overhead_s, quota, part, accum)`, `("keep",
/// job, sub_batch, overhead_s, quota, part, accum)` and `("preempt", job, part)`.
fn action(
    scratch: &mut Scratch,
    view: &ClusterView<'_>,
    name: &str,
    tuple: &Bound<'_, PyTuple>,
) -> PyResult<Action> {
    let job = JobId(tuple.get_item(1)?.extract()?);
    let (terms_at, part_at) = match name {
        "start" | "move" => (4, 7),
        "keep" | "set_sub_batch" => (2, 5),
        "preempt" => (usize::MAX, 2),
        other => {
            let message = format!(
                "unknown action {other}: expected start, preempt, move, keep, set_sub_batch, \
                 limit, release, restore, wake_at or cancel"
            );
            return Err(PyValueError::new_err(message));
        }
    };
    let part = field(tuple, part_at)?.unwrap_or(0);
    if let "preempt" | "move" = name {
        scratch.release(view, job, part);
    }
    let action = match name {
        "start" => Action::start(job, scratch.places(view, tuple)?),
        "move" => Action::move_to(job, scratch.places(view, tuple)?),
        "preempt" => Action::preempt(job),
        _ => Action::keep(job, Terms::default()),
    };
    let overhead = field::<f64>(tuple, terms_at.saturating_add(1))?.map(overhead);
    let terms = Terms {
        sub_batch: field(tuple, terms_at)?,
        overhead: overhead.transpose()?,
        quota: field(tuple, terms_at.saturating_add(2))?,
        accum: field(tuple, part_at.saturating_add(1))?,
    };
    Ok(action.with(terms).of_part(part))
}

/// Returns a field of a tuple, or `None` if the tuple is shorter or has None there.
fn field<'py, T>(tuple: &Bound<'py, PyTuple>, at: usize) -> PyResult<Option<T>>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    if at >= tuple.len() {
        return Ok(None);
    }
    tuple.get_item(at)?.extract()
}

/// Returns the overhead as a span. The engine rejects a negative value and names the broken rule.
fn overhead(seconds: f64) -> PyResult<SimSpan> {
    let span = SimSpan::from_seconds(seconds.abs())
        .map_err(|error| PyValueError::new_err(format!("overhead_s: {error}")))?;
    Ok(if seconds < 0.0 {
        SimSpan(-span.0.max(1))
    } else {
        span
    })
}

/// Adds each quota to its job's action. If the plan has no action for the job, the quota becomes an action of its own.
fn set_quotas(actions: &mut Vec<Action>, quotas: &[(JobId, f64)]) {
    for &(job, quota) in quotas {
        let is_own = |action: &&mut Action| {
            action.job == job && action.part == 0 && action.verb != Verb::Preempt
        };
        if let Some(action) = actions.iter_mut().find(is_own) {
            action.terms.quota = Some(quota);
            continue;
        }
        let terms = Terms {
            quota: Some(quota),
            ..Terms::default()
        };
        actions.push(Action::keep(job, terms));
    }
}

fn tag(id: u32) -> TimerTag {
    TimerTag {
        kind: TIMER_KIND,
        id,
    }
}

/// The GPUs that are free after the actions read so far.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Free slots of the servers read so far.
    free: FxHashMap<u32, u64>,
    /// Servers whose free slots may have changed since the last call of `changed`.
    touched: Vec<ServerId>,
    /// For each job that releases its GPUs and each of its servers, the slots that become free.
    released: FxHashMap<(JobId, ServerId), u64>,
}

impl Scratch {
    /// Returns the servers whose free slots may have changed since the last call, with their free slots.
    pub(crate) fn changed(&mut self) -> impl Iterator<Item = (ServerId, u64)> {
        let free = &self.free;
        let touched = self.touched.drain(..);
        touched.filter_map(|server| Some((server, *free.get(&server.0)?)))
    }

    fn free_of(&mut self, view: &ClusterView<'_>, server: ServerId) -> &mut u64 {
        self.touched.push(server);
        self.free
            .entry(server.0)
            .or_insert_with(|| view.free_mask(server))
    }

    /// Frees the GPUs of a running part, except those that other jobs share with it. A second call changes nothing.
    pub(crate) fn release(&mut self, view: &ClusterView<'_>, job: JobId, part: u16) {
        let is_known = job.index() < view.jobs().len();
        let run = is_known.then(|| view.run(job)).flatten();
        let Some(part) = run.and_then(|run| run.part(part)) else {
            return;
        };
        for one in part.gpus.by_server() {
            if self.released.contains_key(&(job, one.server)) {
                continue;
            }
            self.released.insert((job, one.server), 0);
            let mut mask = one.mask;
            if view.max_share() > 1 {
                let is_left = |slot: &u32| {
                    let mut residents = view.residents(one.server, *slot);
                    residents.all(|one_of| self.released.contains_key(&(one_of, one.server)))
                };
                let slots = (0..64).filter(|slot| mask >> slot & 1 == 1);
                mask = slots.filter(is_left).fold(0, |left, slot| left | 1 << slot);
            }
            if !view.is_up(one.server) {
                mask = 0;
            }
            self.released.insert((job, one.server), mask);
            *self.free_of(view, one.server) |= mask;
        }
    }

    /// Returns whether all GPUs that a job gave up are still free.
    pub(crate) fn can_restore(&self, view: &ClusterView<'_>, job: JobId) -> bool {
        let part = view.run(job).and_then(|run| run.part(0));
        part.is_some_and(|part| {
            part.gpus.by_server().iter().all(|one| {
                let freed = self.released.get(&(job, one.server));
                let free = self.free.get(&one.server.0).copied().unwrap_or(0);
                freed.is_some_and(|freed| freed & !free == 0)
            })
        })
    }

    /// Gives a job back the GPUs that it gave up.
    pub(crate) fn restore(&mut self, view: &ClusterView<'_>, job: JobId) {
        let Some(part) = view.run(job).and_then(|run| run.part(0)) else {
            return;
        };
        for one in part.gpus.by_server() {
            self.released.remove(&(job, one.server));
            *self.free_of(view, one.server) &= !one.mask;
        }
    }

    fn places(&mut self, view: &ClusterView<'_>, tuple: &Bound<'_, PyTuple>) -> PyResult<GpuSet> {
        let pairs: Vec<(u32, u64)> = tuple.get_item(2)?.extract()?;
        let are_masks: bool = tuple.get_item(3)?.extract()?;
        let mut gpus = GpuSet::new();
        for (server, value) in pairs {
            if server as usize >= view.cluster().servers().len() {
                // The engine reports GPUs that do not exist.
                gpus.insert(ServerId(server), if are_masks { value } else { 1 });
                continue;
            }
            let mask = if are_masks {
                value
            } else {
                self.lowest(view, ServerId(server), value.min(64) as u32)
            };
            *self.free_of(view, ServerId(server)) &= !mask;
            gpus.insert(ServerId(server), mask);
        }
        Ok(gpus)
    }

    /// Returns the `gpus` lowest free slots of a server. If fewer slots are free and GPUs are not shared, occupied
    /// slots are added. The engine then rejects them and names the broken rule.
    fn lowest(&mut self, view: &ClusterView<'_>, server: ServerId, gpus: u32) -> u64 {
        let free = *self.free_of(view, server);
        let missing = gpus.saturating_sub(free.count_ones());
        if missing == 0 || view.max_share() > 1 {
            return mask_of_lowest(free, gpus);
        }
        free | mask_of_lowest(!free, missing)
    }
}
