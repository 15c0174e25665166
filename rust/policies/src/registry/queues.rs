//! Registry entries of queues without preemption.

use super::parameters::ESTIMATE_ERROR;
use super::{PolicyInfo, seen};
use crate::baselines::{Easy, Fifo, Skip, SkipOrder};
use crate::params::{ParamKind, ParamReader, ParamSpec, number};
use crate::place::PlacementParams;
use gangline_engine::Knowledge;

const SIZED: &[ParamSpec] = &[ESTIMATE_ERROR];
const EASY: &[ParamSpec] = &[
    ESTIMATE_ERROR,
    number("estimate_extend", ParamKind::AtLeast(1.0), 1.1)
        .doc("when an estimate expires, it is extended to this multiple of the elapsed time"),
];

const OF_QUEUES: &str = "classic";

pub(super) const POLICIES: &[PolicyInfo] = &[
    PolicyInfo {
        name: "fifo",
        summary: "first in, first out; a gang that does not fit blocks the queue (head-of-line \
                  blocking)",
        family: "queue",
        source: OF_QUEUES,
        make: |params, _| Ok(Box::new(Fifo::new(PlacementParams::read(params)))),
        ..PolicyInfo::BASE
    },
    PolicyInfo {
        name: "fifo-skip",
        summary: "backfilling in order of arrival: jobs that do not fit are skipped",
        is_work_conserving: true,
        family: "queue",
        source: OF_QUEUES,
        make: |params, _| Ok(Box::new(skip(SkipOrder::Arrival, false, params))),
        ..PolicyInfo::BASE
    },
    PolicyInfo {
        name: "easy",
        summary: "EASY backfilling: order of arrival, and a reservation for the head of the queue",
        family: "backfill",
        source: "Lifka 1995, by count",
        knowledge: Knowledge::Remaining,
        reads_durations: true,
        own: EASY,
        make: |params, _| {
            let extend = params.number("estimate_extend");
            Ok(Box::new(Easy::new(
                PlacementParams::read(params),
                seen(params),
                extend,
            )))
        },
        ..PolicyInfo::BASE
    },
    PolicyInfo {
        name: "sjf",
        summary: "shortest job first; jobs that do not fit are skipped",
        is_work_conserving: true,
        family: "queue",
        source: OF_QUEUES,
        knowledge: Knowledge::Remaining,
        reads_durations: true,
        own: SIZED,
        make: |params, _| Ok(Box::new(skip(SkipOrder::Duration, false, params))),
        ..PolicyInfo::BASE
    },
    PolicyInfo {
        name: "sjf-strict",
        summary: "shortest job first, with head-of-line blocking",
        family: "queue",
        source: OF_QUEUES,
        knowledge: Knowledge::Remaining,
        reads_durations: true,
        own: SIZED,
        make: |params, _| Ok(Box::new(skip(SkipOrder::Duration, true, params))),
        ..PolicyInfo::BASE
    },
    PolicyInfo {
        name: "ssf",
        summary: "smallest service (duration x GPUs) first; jobs that do not fit are skipped",
        is_work_conserving: true,
        family: "queue",
        source: OF_QUEUES,
        knowledge: Knowledge::Remaining,
        reads_durations: true,
        own: SIZED,
        make: |params, _| Ok(Box::new(skip(SkipOrder::Area, false, params))),
        ..PolicyInfo::BASE
    },
];

fn skip(order: SkipOrder, is_strict: bool, params: &ParamReader) -> Skip {
    let placement = PlacementParams::read(params);
    Skip::new(order, is_strict, placement, seen(params))
}
