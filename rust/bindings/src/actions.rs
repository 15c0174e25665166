//! Actions as Python tuples to the engine's actions; one parser for policies in Python and for runs that
//! are driven step by step.

use gangline_engine::ClusterView;
use gangline_model::{Action, GpuSet, JobId, ServerId, SimTime, TimerTag, mask_of_lowest};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rustc_hash::{FxHashMap, FxHashSet};

/// Kind of the timers of policies in Python.
const TIMER_KIND: u8 = 0;

/// What a plan in Python says.
#[derive(Default)]
pub(crate) struct Orders {
    pub(crate) actions: Vec<Action>,
    /// In the order of the plan; without a time the timer of the tag is cancelled.
    pub(crate) timers: Vec<(TimerTag, Option<SimTime>)>,
    pub(crate) limits: Vec<(JobId, f64)>,
}

/// Parses the tuples of a plan. Counts become the lowest slots that are free after the actions before.
pub(crate) fn parse(view: &ClusterView<'_>, list: &[Bound<'_, PyAny>]) -> PyResult<Orders> {
    let mut orders = Orders::default();
    let mut scratch = Scratch::new(view);
    for item in list {
        let tuple = item.cast::<PyTuple>()?;
        let name: String = tuple.get_item(0)?.extract()?;
        if let "preempt" | "move" = name.as_str() {
            scratch.release(JobId(tuple.get_item(1)?.extract()?));
        }
        match name.as_str() {
            "start" | "move" => {
                let job = JobId(tuple.get_item(1)?.extract()?);
                let gpus = scratch.places(tuple)?;
                orders.actions.push(if name == "move" {
                    Action::Move { job, gpus }
                } else {
                    let sub_batch = match tuple.len() {
                        5.. => tuple.get_item(4)?.extract()?,
                        _ => None,
                    };
                    Action::Start {
                        job,
                        gpus,
                        sub_batch,
                    }
                });
            }
            "preempt" => {
                orders.actions.push(Action::Preempt {
                    job: JobId(tuple.get_item(1)?.extract()?),
                });
            }
            "set_sub_batch" => orders.actions.push(Action::SetSubBatch {
                job: JobId(tuple.get_item(1)?.extract()?),
                sub_batch: tuple.get_item(2)?.extract()?,
            }),
            "limit" => {
                let job = JobId(tuple.get_item(1)?.extract()?);
                orders.limits.push((job, tuple.get_item(2)?.extract()?));
            }
            "wake_at" => {
                let time = SimTime::from_seconds(tuple.get_item(1)?.extract()?)
                    .map_err(|error| PyValueError::new_err(error.to_string()))?;
                let tag = tag(tuple.get_item(2)?.extract()?);
                orders.timers.push((tag, Some(time)));
            }
            "cancel" => {
                let tag = tag(tuple.get_item(1)?.extract()?);
                orders.timers.push((tag, None));
            }
            other => {
                let message = format!(
                    "unknown action {other}: expected start, preempt, move, \
                     set_sub_batch, limit, wake_at or cancel"
                );
                return Err(PyValueError::new_err(message));
            }
        }
    }
    Ok(orders)
}

fn tag(id: u32) -> TimerTag {
    TimerTag {
        kind: TIMER_KIND,
        id,
    }
}

/// GPUs that are free after the actions read so far.
struct Scratch<'a> {
    view: &'a ClusterView<'a>,
    /// Free slots of the servers that were looked at.
    free: FxHashMap<u32, u64>,
    /// Jobs that leave their GPUs.
    released: FxHashSet<JobId>,
}

impl<'a> Scratch<'a> {
    fn new(view: &'a ClusterView<'a>) -> Self {
        Self {
            view,
            free: FxHashMap::default(),
            released: FxHashSet::default(),
        }
    }

    fn free_of(&mut self, server: ServerId) -> &mut u64 {
        let view = self.view;
        self.free
            .entry(server.0)
            .or_insert_with(|| view.free_mask(server))
    }

    /// Frees the GPUs of a running job, but for those that others share with it.
    fn release(&mut self, job: JobId) {
        let view = self.view;
        let is_known = job.index() < view.jobs().len();
        let Some(run) = is_known.then(|| view.run(job)).flatten() else {
            return;
        };
        self.released.insert(job);
        for part in run.gpus.parts() {
            let mut mask = part.mask;
            if view.max_share() > 1 {
                let is_left = |slot: &u32| {
                    let mut residents = view.residents(part.server, *slot);
                    residents.all(|resident| self.released.contains(&resident))
                };
                let slots = (0..64).filter(|slot| mask >> slot & 1 == 1);
                mask = slots.filter(is_left).fold(0, |left, slot| left | 1 << slot);
            }
            *self.free_of(part.server) |= mask;
        }
    }

    fn places(&mut self, tuple: &Bound<'_, PyTuple>) -> PyResult<GpuSet> {
        let pairs: Vec<(u32, u64)> = tuple.get_item(2)?.extract()?;
        let are_masks: bool = tuple.get_item(3)?.extract()?;
        let mut gpus = GpuSet::new();
        for (server, value) in pairs {
            if server as usize >= self.view.cluster().servers().len() {
                // the engine names the rule: no such GPU
                gpus.insert(ServerId(server), if are_masks { value } else { 1 });
                continue;
            }
            let mask = if are_masks {
                value
            } else {
                self.lowest(ServerId(server), value.min(64) as u32)
            };
            *self.free_of(ServerId(server)) &= !mask;
            gpus.insert(ServerId(server), mask);
        }
        Ok(gpus)
    }

    /// So many of the lowest free slots of a server. Where there are not as many, and none is shared, taken
    /// ones besides: the engine refuses them by the rule that is broken.
    fn lowest(&mut self, server: ServerId, gpus: u32) -> u64 {
        let view = self.view;
        let free = *self.free_of(server);
        let missing = gpus.saturating_sub(free.count_ones());
        if missing == 0 || view.max_share() > 1 {
            return mask_of_lowest(free, gpus);
        }
        free | mask_of_lowest(!free, missing)
    }
}
