//! Queues without preemption.

use super::parameters::{ESTIMATE_ERROR, spec};
use super::{PolicyInfo, placement, seen};
use crate::baselines::{Easy, Fifo, Skip, SkipOrder, Strict};
use crate::params::{ParamDefault, ParamKind, ParamReader, ParamSpec};
use gangline_engine::{Knowledge, Policy, PolicyError};

const SIZED: &[ParamSpec] = &[ESTIMATE_ERROR];
const EASY: &[ParamSpec] = &[
    ESTIMATE_ERROR,
    spec(
        "estimate_extend",
        ParamKind::AtLeast(1.0),
        ParamDefault::Float(1.1),
        "",
        "an estimate that runs out becomes so many times the time run",
    ),
];

const OF_QUEUES: &str = "classic";

pub(super) const POLICIES: &[PolicyInfo] = &[
    PolicyInfo {
        name: "fifo",
        summary: "order of arrival; a head that does not fit blocks everyone",
        family: "queue",
        source: OF_QUEUES,
        knowledge: Knowledge::Online,
        reads_durations: false,
        is_hidden: false,
        placement: "consolidate",
        own: &[],
        make: |params, _| Ok(Box::new(Fifo::new(placement(params)?))),
    },
    PolicyInfo {
        name: "fifo-skip",
        summary: "order of arrival; jobs that do not fit are skipped",
        family: "queue",
        source: OF_QUEUES,
        knowledge: Knowledge::Online,
        reads_durations: false,
        is_hidden: false,
        placement: "consolidate",
        own: &[],
        make: |params, plain| skip(SkipOrder::Arrival, params, plain),
    },
    PolicyInfo {
        name: "easy",
        summary: "order of arrival with a reservation for the head and backfill behind it",
        family: "backfill",
        source: "Lifka 1995, by count",
        knowledge: Knowledge::Remaining,
        reads_durations: true,
        is_hidden: false,
        placement: "consolidate",
        own: EASY,
        make: |params, plain| {
            let extend = params.number("estimate_extend");
            Ok(Box::new(Easy::new(
                placement(params)?,
                seen(params),
                extend,
                plain,
            )))
        },
    },
    PolicyInfo {
        name: "sjf",
        summary: "shortest job first; jobs that do not fit are skipped",
        family: "queue",
        source: OF_QUEUES,
        knowledge: Knowledge::Remaining,
        reads_durations: true,
        is_hidden: false,
        placement: "consolidate",
        own: SIZED,
        make: |params, plain| skip(SkipOrder::Duration, params, plain),
    },
    PolicyInfo {
        name: "sjf-strict",
        summary: "shortest job first; a head that does not fit blocks everyone",
        family: "queue",
        source: OF_QUEUES,
        knowledge: Knowledge::Remaining,
        reads_durations: true,
        is_hidden: false,
        placement: "consolidate",
        own: SIZED,
        make: |params, _| Ok(Box::new(Strict::new(placement(params)?, seen(params)))),
    },
    PolicyInfo {
        name: "ssf",
        summary: "smallest service (duration x GPUs) first; jobs that do not fit are skipped",
        family: "queue",
        source: OF_QUEUES,
        knowledge: Knowledge::Remaining,
        reads_durations: true,
        is_hidden: false,
        placement: "consolidate",
        own: SIZED,
        make: |params, plain| skip(SkipOrder::Area, params, plain),
    },
];

fn skip(
    order: SkipOrder,
    params: &ParamReader,
    plain: bool,
) -> Result<Box<dyn Policy>, PolicyError> {
    Ok(Box::new(Skip::new(
        order,
        placement(params)?,
        seen(params),
        plain,
    )))
}
