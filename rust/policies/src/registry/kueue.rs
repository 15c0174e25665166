//! Queues with quotas, as Kueue has them.

use super::{PolicyInfo, Stops};
use crate::kueue::{
    Borrow, Fairness, Kueue, KueueParams, QueueLabel, Reclaim, Strategy, WhenCanBorrow,
    WhenCanPreempt, Within,
};
use crate::params::{ParamDefault, ParamKind, ParamSpec, choice, flag, number, spec};

const NAME: ParamSpec = spec("name", ParamKind::Text, ParamDefault::None);
const WEIGHT: ParamSpec = number("weight", ParamKind::AtLeast(0.0), 1.0)
    .doc("with fair sharing: what its borrowed share is divided by; at most six digits");
const FLAVORS: ParamSpec = spec("flavors", ParamKind::Tables(FLAVOR), ParamDefault::None);

const FLAVOR: &[ParamSpec] = &[
    spec("gpu", ParamKind::Text, ParamDefault::None).doc("GPU type"),
    spec("nominal", ParamKind::Whole(0.0), ParamDefault::Int(0))
        .unit("GPUs")
        .doc("quota of its own"),
    spec(
        "borrowing_limit",
        ParamKind::MaybeWhole(0.0),
        ParamDefault::None,
    )
    .unit("GPUs")
    .doc("most beyond that; none = no limit; a cohort without a parent borrows nothing"),
    spec(
        "lending_limit",
        ParamKind::MaybeWhole(0.0),
        ParamDefault::None,
    )
    .unit("GPUs")
    .doc("most that others may borrow; none = no limit"),
];

const QUEUE: &[ParamSpec] = &[
    NAME.doc("the label of its jobs; jobs without one are in the queue `default`"),
    spec("cohort", ParamKind::Text, ParamDefault::Str(""))
        .doc("queues of one cohort borrow from each other; one that no table describes has no quota of its own"),
    WEIGHT,
    FLAVORS.doc("the GPU types that it may use, in the order in which it tries them"),
    choice("strategy", Strategy::NAMES, "BestEffortFIFO")
        .doc("whether a job without a place lets those behind it pass (BestEffortFIFO) or not (StrictFIFO)"),
    choice("within", Within::NAMES, "Never").doc("which jobs of the queue a job may preempt"),
    choice("reclaim", Reclaim::NAMES, "Never")
        .doc("which jobs of queues that borrow a job may preempt"),
    choice("borrow", Borrow::NAMES, "Never")
        .doc("which of these a job may preempt that borrows itself; no effect with fair sharing"),
    spec(
        "borrow_max_priority",
        ParamKind::MaybeWhole(-2_147_483_648.0),
        ParamDefault::None,
    )
    .doc("highest priority of those; none = no limit"),
    choice("when_can_borrow", WhenCanBorrow::NAMES, "Borrow")
        .doc("what to do where a job fits by borrowing"),
    choice("when_can_preempt", WhenCanPreempt::NAMES, "TryNextFlavor")
        .doc("what to do where it fits by preemption"),
];

const COHORT: &[ParamSpec] = &[
    NAME.doc("what queues and cohorts call it"),
    spec("parent", ParamKind::Text, ParamDefault::Str("")).doc("the cohort above"),
    WEIGHT,
    FLAVORS.doc("quotas that belong to the cohort itself"),
];

const OWN: &[ParamSpec] = &[
    choice("queue_by", QueueLabel::NAMES, "vc").doc("label of a job that names its queue"),
    spec("queues", ParamKind::Tables(QUEUE), ParamDefault::None)
        .doc("the queues; none = one of all jobs with all GPUs"),
    spec("cohorts", ParamKind::Tables(COHORT), ParamDefault::None)
        .doc("cohorts with a quota, a weight or a parent"),
    flag("fair_sharing", false)
        .doc("borrowed shares, not priorities, say who is admitted next and who is preempted"),
    spec(
        "strategies",
        ParamKind::Words(Fairness::NAMES),
        ParamDefault::Words(Fairness::NAMES),
    )
    .doc("with fair sharing: when a job may preempt one of another queue, tried in this order"),
    number("requeue_s", ParamKind::AtLeast(0.0), 1.0)
        .unit("s")
        .doc("a preempted job is not admitted again before this time has passed"),
];

pub(super) const POLICIES: &[PolicyInfo] = &[PolicyInfo {
    name: "kueue",
    summary: "queues with quotas in cohorts: borrowing, reclaim and preemption, fair sharing",
    family: "queue",
    source: "Kueue (kubernetes-sigs), by its documentation",
    stops: Stops::Anytime,
    own: OWN,
    make: |params, _| Ok(Box::new(Kueue::new(KueueParams::read(params)?))),
    ..PolicyInfo::BASE
}];
