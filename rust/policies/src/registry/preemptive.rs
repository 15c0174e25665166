//! Registry entries of preemptive policies: shortest remaining time first, and attained service.

use super::parameters::{ESTIMATE_ERROR, MIN_RUN, PERIOD};
use super::{PolicyInfo, Stops, seen};
use crate::baselines::ShortestRemaining;
use crate::kit::Periodic;
use crate::params::{ParamDefault, ParamKind, ParamReader, ParamSpec, flag, number, spec};
use crate::place::{PlacementParams, Rule};
use crate::preempt::Protection;
use crate::tiresias::{ContinuousLas, QueuedParams, QueuedService};
use gangline_engine::{Knowledge, Policy, PolicyError};

const LIMITS: ParamSpec = spec(
    "limits",
    ParamKind::Increasing,
    ParamDefault::List(&[3250.0, 7200.0]),
)
.unit("GPU-s")
.doc("attained service at which a job moves to the next queue");
const KNOB: ParamSpec = number("promote_knob", ParamKind::AtLeast(0.0), 0.0).doc(
    "a job returns to the first queue when it has waited for this multiple of the time for which it has run since its last promotion; 0 = never",
);
const LAS_TIME: ParamSpec =
    flag("las_time", false).doc("whether attained service counts seconds instead of GPU-seconds");

const REMAINING: &[ParamSpec] = &[ESTIMATE_ERROR, MIN_RUN, PERIOD];
const LAS: &[ParamSpec] = &[
    LIMITS,
    KNOB,
    LAS_TIME,
    flag("running_first", false).doc(
        "whether running jobs come before waiting jobs within a queue, as in the public code; false = by first start",
    ),
    flag("discretised", true).doc("whether jobs are ordered by queues; false = by attained service"),
    number("las_quantum", ParamKind::AtLeast(0.0), 600.0).unit("GPU-s per GPU").doc("with discretised = false: lead in attained service that a waiting job needs in order to preempt"),
    MIN_RUN,
    PERIOD,
];
const GITTINS: &[ParamSpec] = &[
    LIMITS,
    KNOB,
    LAS_TIME,
    number("delta", ParamKind::Above(0.0), 3250.0)
        .unit("GPU-s")
        .doc("service quantum: horizon of the index, which changes only at multiples of the quantum"),
    spec("distribution", ParamKind::Positives, ParamDefault::None)
        .unit("GPU-s")
        .doc(
            "list of the jobs' total service in the distribution that the policy assumes; none = the distribution of the trace, which the policy then knows exactly",
        ),
    MIN_RUN,
    PERIOD,
];

const OF_QUEUES: &str = "classic";
const OF_TIRESIAS: &str = "Tiresias (NSDI 2019)";

pub(super) const POLICIES: &[PolicyInfo] = &[
    PolicyInfo {
        name: "srtf",
        summary: "shortest remaining time first, with preemption",
        stops: Stops::Anytime,
        is_work_conserving: true,
        family: "preemptive",
        source: OF_QUEUES,
        knowledge: Knowledge::Remaining,
        reads_durations: true,
        own: REMAINING,
        make: |params, _| shortest_remaining(false, params),
        ..PolicyInfo::BASE
    },
    PolicyInfo {
        name: "srsf",
        summary: "shortest remaining service (time x GPUs) first, with preemption",
        stops: Stops::Anytime,
        is_work_conserving: true,
        family: "preemptive",
        source: OF_QUEUES,
        knowledge: Knowledge::Remaining,
        reads_durations: true,
        own: REMAINING,
        make: |params, _| shortest_remaining(true, params),
        ..PolicyInfo::BASE
    },
    PolicyInfo {
        name: "las",
        summary: "least attained service, in queues (Tiresias-L without its placement)",
        stops: Stops::Anytime,
        is_work_conserving: true,
        family: "attained service",
        source: OF_TIRESIAS,
        own: LAS,
        make: |params, _| las(params),
        ..PolicyInfo::BASE
    },
    PolicyInfo {
        name: "gittins",
        summary: "queues by attained service, then Gittins index (Tiresias-G without its placement)",
        stops: Stops::Anytime,
        is_work_conserving: true,
        family: "attained service",
        source: OF_TIRESIAS,
        reads_durations: true,
        own: GITTINS,
        make: |params, _| gittins(params),
        ..PolicyInfo::BASE
    },
    PolicyInfo {
        name: "tiresias",
        summary: "Tiresias-L: las with placement by skew",
        stops: Stops::Anytime,
        is_work_conserving: true,
        family: "attained service",
        source: OF_TIRESIAS,
        placement: Some(Rule::Skew),
        own: LAS,
        make: |params, _| las(params),
        ..PolicyInfo::BASE
    },
    PolicyInfo {
        name: "tiresias-gittins",
        summary: "Tiresias-G: gittins with placement by skew",
        stops: Stops::Anytime,
        is_work_conserving: true,
        family: "attained service",
        source: OF_TIRESIAS,
        reads_durations: true,
        placement: Some(Rule::Skew),
        own: GITTINS,
        make: |params, _| gittins(params),
        ..PolicyInfo::BASE
    },
];

fn shortest_remaining(
    by_service: bool,
    params: &ParamReader,
) -> Result<Box<dyn Policy>, PolicyError> {
    let protection = Protection::read(params)?;
    let placement = PlacementParams::read(params);
    let policy = ShortestRemaining::new(by_service, placement, seen(params), protection);
    Ok(Periodic::of(Box::new(policy), params.span("period_s")?))
}

fn las(params: &ParamReader) -> Result<Box<dyn Policy>, PolicyError> {
    let placement = PlacementParams::read(params);
    let queued = QueuedParams::read(params, false)?;
    let period = params.span("period_s")?;
    if params.flag("discretised") {
        let policy = QueuedService::new(queued, placement);
        return Ok(Periodic::of(Box::new(policy), period));
    }
    let quantum = params.gpu_ns("las_quantum", params.number("las_quantum"))?;
    let QueuedParams {
        is_time,
        protection,
        ..
    } = queued;
    let policy = ContinuousLas::new(quantum, is_time, protection, placement);
    Ok(Periodic::of(Box::new(policy), period))
}

fn gittins(params: &ParamReader) -> Result<Box<dyn Policy>, PolicyError> {
    let placement = PlacementParams::read(params);
    let queued = QueuedParams::read(params, true)?;
    let policy = QueuedService::new(queued, placement);
    Ok(Periodic::of(Box::new(policy), params.span("period_s")?))
}
