//! Registry entry of queues with quotas, modelled on Kueue.

use super::{PolicyInfo, Stops};
use crate::kueue::{
    Borrow, Fairness, Kueue, KueueParams, QueueLabel, Reclaim, Strategy, WhenCanBorrow,
    WhenCanPreempt, Within,
};
use crate::params::{ParamDefault, ParamKind, ParamSpec, choice, flag, number, spec};

const NAME: ParamSpec = spec("name", ParamKind::Text, ParamDefault::None);
const WEIGHT: ParamSpec = number("weight", ParamKind::AtLeast(0.0), 1.0).doc(
    "with fair sharing: weight by which the borrowed share is divided; at most six digits in all",
);
const FLAVORS: ParamSpec = spec("flavors", ParamKind::Tables(FLAVOR), ParamDefault::None);

const FLAVOR: &[ParamSpec] = &[
    spec("gpu", ParamKind::Text, ParamDefault::None).doc("GPU type"),
    spec("nominal", ParamKind::Whole(0.0), ParamDefault::Int(0))
        .unit("GPUs")
        .doc("own quota"),
    spec(
        "borrowing_limit",
        ParamKind::MaybeWhole(0.0),
        ParamDefault::None,
    )
    .unit("GPUs")
    .doc("maximum number of borrowed GPUs; none = no limit; a cohort without a parent borrows nothing"),
    spec(
        "lending_limit",
        ParamKind::MaybeWhole(0.0),
        ParamDefault::None,
    )
    .unit("GPUs")
    .doc("maximum number of GPUs that other queues may borrow; none = no limit"),
];

const QUEUE: &[ParamSpec] = &[
    NAME.doc("name of the queue, which is the label of its jobs; jobs without a label are in the queue `default`"),
    spec("cohort", ParamKind::Text, ParamDefault::Str(""))
        .doc("name of the cohort whose queues borrow from each other; a cohort that `cohorts` does not list has no quota of its own"),
    WEIGHT,
    FLAVORS.doc("quota for each GPU type; jobs of the queue may use these types and try them in this order"),
    choice("strategy", Strategy::NAMES, "BestEffortFIFO")
        .doc("whether jobs may pass a job that does not fit (BestEffortFIFO) or not (StrictFIFO)"),
    choice("within", Within::NAMES, "Never").doc("which jobs of the same queue a job may preempt"),
    choice("reclaim", Reclaim::NAMES, "Never")
        .doc("jobs of borrowing queues that a job may preempt"),
    choice("borrow", Borrow::NAMES, "Never")
        .doc("which jobs of borrowing queues a job may preempt while its queue borrows; no effect with fair sharing"),
    spec(
        "borrow_max_priority",
        ParamKind::MaybeWhole(-2_147_483_648.0),
        ParamDefault::None,
    )
    .doc("maximum priority of jobs that may be preempted under the rule `borrow`; none = no limit"),
    choice("when_can_borrow", WhenCanBorrow::NAMES, "Borrow")
        .doc("what happens if a job fits by borrowing: use that GPU type, or try the next one first"),
    choice("when_can_preempt", WhenCanPreempt::NAMES, "TryNextFlavor")
        .doc("what happens if a job fits by preemption: preempt, or try the next GPU type first"),
];

const COHORT: &[ParamSpec] = &[
    NAME.doc("name that queues and cohorts refer to"),
    spec("parent", ParamKind::Text, ParamDefault::Str("")).doc("parent cohort"),
    WEIGHT,
    FLAVORS.doc("quotas of the cohort itself"),
];

const OWN: &[ParamSpec] = &[
    choice("queue_by", QueueLabel::NAMES, "vc").doc("label that names the queue of a job"),
    spec("queues", ParamKind::Tables(QUEUE), ParamDefault::None)
        .doc("table of queues; none = one queue with all jobs and all GPUs"),
    spec("cohorts", ParamKind::Tables(COHORT), ParamDefault::None)
        .doc("cohorts with a quota, a weight or a parent"),
    flag("fair_sharing", false)
        .doc("whether borrowed shares, instead of priorities, decide admission and preemption between queues"),
    spec(
        "strategies",
        ParamKind::Words(Fairness::NAMES),
        ParamDefault::Words(Fairness::NAMES),
    )
    .doc("with fair sharing: conditions under which a job of another queue may be preempted, tried in this order"),
    number("requeue_s", ParamKind::AtLeast(0.0), 1.0)
        .unit("s")
        .doc("time after which a preempted job can be admitted again"),
];

pub(super) const POLICIES: &[PolicyInfo] = &[PolicyInfo {
    name: "kueue",
    summary: "queues with quotas in cohorts: borrowing, reclaim and preemption, fair sharing",
    family: "queue",
    source: "documentation of Kueue (kubernetes-sigs)",
    stops: Stops::Anytime,
    own: OWN,
    make: |params, _| Ok(Box::new(Kueue::new(KueueParams::read(params)?))),
    ..PolicyInfo::BASE
}];
