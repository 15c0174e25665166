//! Registry entry of Slurm's scheduler.

use super::{PolicyInfo, Stops};
use crate::params::{ParamDefault, ParamKind, ParamReader, ParamSpec, choice, flag, number, spec};
use crate::slurm::{ShareRule, Slurm, SlurmParams};
use gangline_engine::{Policy, PolicyError};

const WHOLE: ParamKind = ParamKind::Whole(0.0);
const NAMES: ParamKind = ParamKind::Named(&ParamKind::Names);
/// The largest priority that Slurm supports.
const WEIGHT_MAX: f64 = 4_294_967_295.0;

const fn named(name: &'static str, of: &'static ParamKind) -> ParamSpec {
    spec(name, ParamKind::Named(of), ParamDefault::None)
}

const fn weight(name: &'static str) -> ParamSpec {
    spec(name, WHOLE, ParamDefault::Int(0))
}

const OWN: &[ParamSpec] = &[
    weight("weight_age").doc("weight of the age factor in the priority (PriorityWeightAge)"),
    weight("weight_fairshare").doc("weight of the fair-share factor (PriorityWeightFairshare)"),
    weight("weight_job_size").doc("weight of the job-size factor (PriorityWeightJobSize)"),
    weight("weight_partition").doc("weight of the partition factor (PriorityWeightPartition)"),
    weight("weight_qos").doc("weight of the QOS factor (PriorityWeightQOS)"),
    spec(
        "weight_gpu",
        ParamKind::Whole(-WEIGHT_MAX),
        ParamDefault::Int(0),
    )
    .doc(
        "weight of a job's GPUs, relative to all GPUs of its partition (PriorityWeightTRES gres/gpu)",
    ),
    number("max_age_s", ParamKind::Above(0.0), 604_800.0)
        .unit("s")
        .doc("waiting time at which the age factor reaches 1 (PriorityMaxAge)"),
    flag("favor_small", false)
        .doc("whether smaller jobs have larger size factors (PriorityFavorSmall)"),
    flag("small_relative_to_time", false)
        .doc("whether the size of a job is divided by its time limit (SMALL_RELATIVE_TO_TIME)"),
    choice("fairshare", ShareRule::NAMES, "tree")
        .doc("fair-share factor: tree (ranks) or classic (a formula; NO_FAIR_TREE)"),
    number("half_life_s", ParamKind::AtLeast(0.0), 604_800.0)
        .unit("s")
        .doc("half-life of usage; 0 = no decay (PriorityDecayHalfLife)"),
    number("calc_period_s", ParamKind::AtLeast(1.0), 300.0)
        .unit("s")
        .doc("time between two calculations of usage (PriorityCalcPeriod)"),
    number("dampening", ParamKind::Above(0.0), 1.0)
        .doc("with fairshare = classic: divisor of the ratio of usage to shares (FairShareDampeningFactor)"),
    named("account_parents", &ParamKind::Text)
        .doc("parent of each account; absent = the root of the tree"),
    named("account_shares", &WHOLE).doc("shares of each account; absent = 1 (Fairshare)"),
    named("user_shares", &WHOLE)
        .doc("shares of each user, by account/user, or by /user for users directly below the root; absent = 1 (Fairshare)"),
    named("partition_tier", &WHOLE)
        .doc("tier of each partition; the highest tier is served first; absent = 1 (PriorityTier)"),
    named("partition_factor", &WHOLE)
        .doc("factor of each partition, divided by the largest factor; absent = 1 (PriorityJobFactor)"),
    spec("partition_types", NAMES, ParamDefault::None).doc("GPU types of each partition; absent = all"),
    named("qos_priority", &WHOLE).doc("priority of each QOS, divided by the largest priority; absent = 0 (Priority)"),
    named("qos_usage_factor", &ParamKind::AtLeast(0.0))
        .doc("for each QOS, the factor by which the charged GPU time is multiplied; absent = 1 (UsageFactor)"),
    spec("qos_preempt", NAMES, ParamDefault::None)
        .doc("for each QOS, the list of QOS whose jobs its jobs may preempt (Preempt)"),
    number("preempt_exempt_s", ParamKind::AtLeast(0.0), 0.0)
        .unit("s")
        .doc("time after the start of a job during which it is not preempted (PreemptExemptTime)"),
    named("qos_exempt_s", &ParamKind::AtLeast(0.0))
        .unit("s")
        .doc("for each QOS, the time after the start of a job during which it is not preempted; overrides preempt_exempt_s (PreemptExemptTime)"),
    flag("youngest_first", false)
        .doc("whether the job that started last is preempted first, instead of the job with the lowest QOS (youngest_first)"),
    flag("strict_order", false)
        .doc("whether reordering preserves the order of preemption (strict_order)"),
    spec("reorder_count", WHOLE, ParamDefault::Int(1))
        .doc("number of attempts to preempt fewer jobs, after enough were found (reorder_count)"),
    number("requeue_delay_s", ParamKind::AtLeast(0.0), 120.0)
        .unit("s")
        .doc("time after which a preempted job may start again (requeue_delay)"),
    named("qos_grp_gpus", &WHOLE)
        .doc("maximum number of GPUs that all jobs of a QOS may hold together; absent = no limit (GrpTRES)"),
    named("qos_user_gpus", &WHOLE)
        .doc("maximum number of GPUs that a user's jobs may hold in a QOS; absent = no limit (MaxTRESPerUser)"),
    named("qos_user_jobs", &ParamKind::Whole(1.0))
        .doc("maximum number of running jobs of a user in a QOS; absent = no limit (MaxJobsPerUser)"),
    named("account_grp_gpus", &WHOLE).doc(
        "maximum number of GPUs that the jobs of an account and of the accounts below it may hold together; a limit of the same kind on the QOS takes precedence (GrpTRES)",
    ),
    number("default_limit_s", ParamKind::AtLeast(0.0), 0.0)
        .unit("s")
        .doc("time limit for jobs that specify none; 0 = no limit (DefaultTime)"),
    number("limit_factor", ParamKind::AtLeast(0.0), 0.0)
        .doc("time limit for jobs that specify none, as a multiple of their duration; 0 = use default_limit_s"),
    spec("queue_depth", WHOLE, ParamDefault::Int(100))
        .doc("maximum number of jobs that are tried after an event (default_queue_depth)"),
    number("sched_interval_s", ParamKind::AtLeast(0.0), 60.0)
        .unit("s")
        .doc("time between two passes over the whole queue; 0 = none (sched_interval)"),
    flag("backfill", true)
        .doc("whether a job may start before the jobs ahead of it if it delays none of them (sched/backfill)"),
    number("bf_interval_s", ParamKind::AtLeast(1.0), 30.0)
        .unit("s")
        .doc("time between two backfill passes (bf_interval)"),
    number("bf_window_s", ParamKind::Above(0.0), 86_400.0)
        .unit("s")
        .doc("how far into the future starts are planned (bf_window)"),
    number("bf_resolution_s", ParamKind::AtLeast(1.0), 60.0)
        .unit("s")
        .doc("time resolution of the planned starts (bf_resolution)"),
    spec(
        "bf_max_job_test",
        ParamKind::Whole(1.0),
        ParamDefault::Int(500),
    )
    .doc("maximum number of jobs that are tried in a backfill pass (bf_max_job_test)"),
    spec("bf_max_job_user", WHOLE, ParamDefault::Int(0))
        .doc("maximum number of jobs of one user that are tried in a backfill pass; 0 = no limit (bf_max_job_user)"),
];

pub(super) const POLICIES: &[PolicyInfo] = &[PolicyInfo {
    name: "slurm",
    summary: "multifactor priority, backfill with reservations, preemption by QOS, limits",
    family: "production",
    source: "documentation of Slurm",
    reads_durations_with: Some("limit_factor"),
    stops: Stops::Anytime,
    own: OWN,
    make: |params, _| make(params),
    ..PolicyInfo::BASE
}];

fn make(params: &ParamReader) -> Result<Box<dyn Policy>, PolicyError> {
    Ok(Box::new(Slurm::new(SlurmParams::read(params)?)))
}
