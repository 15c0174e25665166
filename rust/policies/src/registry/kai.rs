//! Registry entry of queues with quotas and fair shares, modelled on KAI Scheduler.

use super::{PolicyInfo, Stops};
use crate::kai::{Kai, KaiParams, Resolve};
use crate::kueue::QueueLabel;
use crate::params::{ParamDefault, ParamKind, ParamSpec, choice, flag, number, spec};

const QUEUE: &[ParamSpec] = &[
    spec("name", ParamKind::Text, ParamDefault::None)
        .doc("name of the queue, which is the label of its jobs; jobs without a label are in the queue `default`"),
    spec("parent", ParamKind::Text, ParamDefault::Str(""))
        .doc("name of the parent queue; only queues without child queues can have jobs"),
    spec("quota", ParamKind::Whole(-1.0), ParamDefault::Int(0))
        .unit("GPUs")
        .doc("guaranteed GPUs; -1 = without limit"),
    spec("limit", ParamKind::MaybeWhole(0.0), ParamDefault::None)
        .unit("GPUs")
        .doc("maximum number of GPUs that the queue may hold; none = no limit"),
    spec("weight", ParamKind::Whole(0.0), ParamDefault::Int(1))
        .doc("weight of the queue among queues of equal priority, used when GPUs beyond the quotas are divided"),
    spec(
        "priority",
        ParamKind::Whole(-2_147_483_648.0),
        ParamDefault::Int(100),
    )
    .doc("priority used when GPUs beyond the quotas are divided; queues of higher priority come first"),
    spec(
        "preempt_min_run_s",
        ParamKind::Maybe(0.0),
        ParamDefault::None,
    )
    .unit("s")
    .doc("minimum run time of a job before jobs of its own queue may preempt it; none = the parent queue's value"),
    spec(
        "reclaim_min_run_s",
        ParamKind::Maybe(0.0),
        ParamDefault::None,
    )
    .unit("s")
    .doc("minimum run time of a job before other queues may reclaim its GPUs; none = the parent queue's value"),
];

const OWN: &[ParamSpec] = &[
    choice("queue_by", QueueLabel::NAMES, "vc").doc("label that names the queue of a job"),
    spec("queues", ParamKind::Tables(QUEUE), ParamDefault::None)
        .doc("table of queues; none = one queue per label, without quotas and with equal weights"),
    spec(
        "fixed_priority",
        ParamKind::Whole(-2_147_483_648.0),
        ParamDefault::Int(100),
    )
    .doc("jobs of at least this priority are never evicted and run only within their queue's quota"),
    number("saturation_multiplier", ParamKind::AtLeast(1.0), 1.0)
        .doc("factor that multiplies the saturation of the reclaiming queue; a factor above 1 makes reclaiming rarer"),
    flag("in_quota_reclaim", false)
        .doc("whether queues of higher priority may reclaim GPUs that other queues hold within their quotas"),
    number("k_value", ParamKind::AtLeast(0.0), 0.0)
        .doc("strength with which past usage lowers fair shares; 0 = no effect"),
    number("half_life_s", ParamKind::AtLeast(0.0), 0.0)
        .unit("s")
        .doc("half-life of past usage; 0 = past usage does not decay"),
    number("window_s", ParamKind::Above(0.0), 604_800.0)
        .unit("s")
        .doc("past usage is forgotten at multiples of this time"),
    number("usage_period_s", ParamKind::AtLeast(1.0), 60.0)
        .unit("s")
        .doc("time between two samples of usage"),
    choice("reclaim_resolve", Resolve::NAMES, "lca")
        .doc("queue whose reclaim_min_run_s applies: the job's queue (queue), or the queue on its path to the root that is directly below the lowest common ancestor with the reclaiming queue (lca)"),
    number("cycle_s", ParamKind::Above(0.0), 1.0)
        .unit("s")
        .doc("time from a decision that evicted jobs to the next decision"),
];

pub(super) const POLICIES: &[PolicyInfo] = &[PolicyInfo {
    name: "kai",
    summary: "queues with quotas and fair shares: reclaim between queues, preemption within them",
    family: "queue",
    source: "documentation of KAI Scheduler (NVIDIA)",
    stops: Stops::Anytime,
    own: OWN,
    make: |params, _| Ok(Box::new(Kai::new(KaiParams::read(params)?)?)),
    ..PolicyInfo::BASE
}];
