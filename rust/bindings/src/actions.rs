//! Actions as Python tuples to the engine's actions; one parser for policies in Python and for runs that
//! are driven step by step.

use gangline_engine::ClusterView;
use gangline_model::{Action, GpuSet, JobId, ServerId, SimTime, TimerTag, mask_of_lowest};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rustc_hash::FxHashMap;

/// Kind of the timers of policies in Python.
const TIMER_KIND: u8 = 0;

/// What a plan in Python says.
#[derive(Default)]
pub(crate) struct Orders {
    pub(crate) actions: Vec<Action>,
    pub(crate) arm: Vec<(TimerTag, SimTime)>,
    pub(crate) cancel: Vec<TimerTag>,
}

/// Parses the tuples of a plan. Counts become the lowest slots that are free after the actions before.
pub(crate) fn parse(view: &ClusterView<'_>, list: &[Bound<'_, PyAny>]) -> PyResult<Orders> {
    let mut orders = Orders::default();
    let mut free: FxHashMap<u32, u64> = FxHashMap::default();
    for item in list {
        let tuple = item.cast::<PyTuple>()?;
        let name: String = tuple.get_item(0)?.extract()?;
        if let "preempt" | "move" = name.as_str() {
            release(view, JobId(tuple.get_item(1)?.extract()?), &mut free);
        }
        match name.as_str() {
            "start" | "move" => {
                let job = JobId(tuple.get_item(1)?.extract()?);
                let gpus = places(view, tuple, &mut free)?;
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
            "wake_at" => {
                let time = SimTime::from_seconds(tuple.get_item(1)?.extract()?)
                    .map_err(|error| PyValueError::new_err(error.to_string()))?;
                orders.arm.push((tag(tuple.get_item(2)?.extract()?), time));
            }
            "cancel" => orders.cancel.push(tag(tuple.get_item(1)?.extract()?)),
            other => {
                let message = format!(
                    "unknown action {other}: expected start, preempt, move, \
                     set_sub_batch, wake_at or cancel"
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

fn release(view: &ClusterView<'_>, job: JobId, free: &mut FxHashMap<u32, u64>) {
    let running = job.index() < view.jobs().len();
    let Some(run) = running.then(|| view.run(job)).flatten() else {
        return;
    };
    for part in run.gpus.parts() {
        let mask = free
            .entry(part.server.0)
            .or_insert_with(|| view.free_mask(part.server));
        *mask |= part.mask;
    }
}

fn places(
    view: &ClusterView<'_>,
    tuple: &Bound<'_, PyTuple>,
    free: &mut FxHashMap<u32, u64>,
) -> PyResult<GpuSet> {
    let pairs: Vec<(u32, u64)> = tuple.get_item(2)?.extract()?;
    let are_masks: bool = tuple.get_item(3)?.extract()?;
    let mut gpus = GpuSet::new();
    for (server, value) in pairs {
        if server as usize >= view.cluster().servers().len() {
            // the engine names the rule: no such GPU
            gpus.insert(ServerId(server), if are_masks { value } else { 1 });
            continue;
        }
        let left = free
            .entry(server)
            .or_insert_with(|| view.free_mask(ServerId(server)));
        let mask = if are_masks {
            value
        } else {
            mask_of_lowest(*left, value.min(64) as u32)
        };
        *left &= !mask;
        gpus.insert(ServerId(server), mask);
    }
    Ok(gpus)
}
