//! Queues with quotas and fair shares, as KAI Scheduler has them.

use super::{PolicyInfo, Stops};
use crate::kai::{Kai, KaiParams, Resolve};
use crate::kueue::QueueLabel;
use crate::params::{ParamDefault, ParamKind, ParamSpec, choice, flag, number, spec};

const QUEUE: &[ParamSpec] = &[
    spec("name", ParamKind::Text, ParamDefault::None)
        .doc("the label of its jobs; jobs without one are in the queue `default`"),
    spec("parent", ParamKind::Text, ParamDefault::Str(""))
        .doc("the queue above; only queues with none below have jobs"),
    spec("quota", ParamKind::Whole(-1.0), ParamDefault::Int(0))
        .unit("GPUs")
        .doc("guaranteed; -1 = without limit"),
    spec("limit", ParamKind::MaybeWhole(0.0), ParamDefault::None)
        .unit("GPUs")
        .doc("most that it may hold; none = no limit"),
    spec("weight", ParamKind::Whole(0.0), ParamDefault::Int(1))
        .doc("its part of what quotas leave, among queues of equal priority"),
    spec(
        "priority",
        ParamKind::Whole(-2_147_483_648.0),
        ParamDefault::Int(100),
    )
    .doc("queues of higher priority get what quotas leave first"),
    spec(
        "preempt_min_run_s",
        ParamKind::Maybe(0.0),
        ParamDefault::None,
    )
    .unit("s")
    .doc("how long its jobs run before those of their own queue may preempt them; none = as the queue above"),
    spec(
        "reclaim_min_run_s",
        ParamKind::Maybe(0.0),
        ParamDefault::None,
    )
    .unit("s")
    .doc("how long its jobs run before other queues may reclaim their GPUs; none = as the queue above"),
];

const OWN: &[ParamSpec] = &[
    choice("queue_by", QueueLabel::NAMES, "vc").doc("label of a job that names its queue"),
    spec("queues", ParamKind::Tables(QUEUE), ParamDefault::None)
        .doc("the queues; none = one per label, without quota, of equal weight"),
    spec(
        "fixed_priority",
        ParamKind::Whole(-2_147_483_648.0),
        ParamDefault::Int(100),
    )
    .doc("jobs of at least this priority are never evicted, and run only within the quota of their queue"),
    number("saturation_multiplier", ParamKind::AtLeast(1.0), 1.0)
        .doc("above 1, reclaim is rarer: by it the saturation of the queue that reclaims is multiplied"),
    flag("in_quota_reclaim", false)
        .doc("queues of higher priority may reclaim what lies within the quota of others"),
    number("k_value", ParamKind::AtLeast(0.0), 0.0)
        .doc("how much past usage lowers fair shares; 0 = not at all"),
    number("half_life_s", ParamKind::AtLeast(0.0), 0.0)
        .unit("s")
        .doc("time after which past usage counts half; 0 = it does not fade"),
    number("window_s", ParamKind::Above(0.0), 604_800.0)
        .unit("s")
        .doc("past usage is forgotten at multiples of this time"),
    number("usage_period_s", ParamKind::AtLeast(1.0), 60.0)
        .unit("s")
        .doc("time between two samples of usage"),
    choice("reclaim_resolve", Resolve::NAMES, "lca")
        .doc("whose reclaim_min_run_s counts: that of the job's queue, or of the queue above it that is a sibling of the reclaiming side"),
    number("cycle_s", ParamKind::Above(0.0), 1.0)
        .unit("s")
        .doc("time to the next decision after one that evicted jobs"),
];

pub(super) const POLICIES: &[PolicyInfo] = &[PolicyInfo {
    name: "kai",
    summary: "queues with quotas and fair shares: reclaim between queues, preemption within them",
    family: "queue",
    source: "KAI Scheduler (NVIDIA), by its documentation",
    stops: Stops::Anytime,
    own: OWN,
    make: |params, _| Ok(Box::new(Kai::new(KaiParams::read(params)?)?)),
    ..PolicyInfo::BASE
}];
