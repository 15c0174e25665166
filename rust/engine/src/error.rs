//! Errors of a run.

use gangline_model::{ActionKind, Infeasible, JobId, ModelError, ServerId, SimTime};
use thiserror::Error;

/// A rule that a plan can break (`docs/concepts/simulated-second.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The job is not in the trace.
    UnknownJob,
    /// The job has not arrived yet.
    NotArrived,
    /// The job has finished or was dropped.
    FinishedJob,
    /// The plan starts a running job.
    AlreadyRunning,
    /// The plan stops, moves or changes a job that is not running.
    NotRunning,
    /// The plan has two actions for one job.
    TwoActions,
    /// The number of GPUs in the action differs from the size of the gang.
    GangSize,
    /// The plan names a server or slot that does not exist.
    NoSuchGpu,
    /// The plan uses a server that is down.
    ServerDown,
    /// The plan uses a GPU type that the job may not use.
    TypeNotAllowed,
    /// A gang has GPUs of several types, but the policy does not mix types.
    MixedTypes,
    /// The plan uses a GPU that is already taken, in a run that does not share GPUs.
    Capacity,
    /// A GPU would hold more jobs than the run allows.
    SharingLimit,
    /// The jobs on a GPU would need more memory than it has.
    Memory,
    /// Two jobs that may not share GPUs would be on the same GPU.
    InfeasiblePair,
    /// The sub-batch is below 1 or above the job's batch size.
    SubBatch,
    /// The timer is not later than now.
    TimerNotAfterNow,
    /// The quota is not a positive number.
    WorkLimit,
    /// The overhead is below 0 or above 4e9 s.
    Overhead,
    /// The action names a part other than part 0, but the policy does not fork jobs.
    NotForked,
    /// One part of a forked job would be on several servers.
    PartSpansServers,
    /// Two parts of a job would be on one server.
    PartsShareServer,
}

impl Rule {
    /// Returns the stable name of the rule, which programs can use.
    pub fn name(self) -> &'static str {
        match self {
            Self::UnknownJob => "unknown_job",
            Self::NotArrived => "not_arrived",
            Self::FinishedJob => "finished_job",
            Self::AlreadyRunning => "already_running",
            Self::NotRunning => "not_running",
            Self::TwoActions => "two_actions",
            Self::GangSize => "gang_size",
            Self::NoSuchGpu => "no_such_gpu",
            Self::ServerDown => "server_down",
            Self::TypeNotAllowed => "type_not_allowed",
            Self::MixedTypes => "mixed_types",
            Self::Capacity => "capacity",
            Self::SharingLimit => "sharing_limit",
            Self::Memory => "memory",
            Self::InfeasiblePair => "infeasible_pair",
            Self::SubBatch => "sub_batch",
            Self::TimerNotAfterNow => "timer_not_after_now",
            Self::WorkLimit => "work_limit",
            Self::Overhead => "overhead",
            Self::NotForked => "not_forked",
            Self::PartSpansServers => "part_spans_servers",
            Self::PartsShareServer => "parts_share_server",
        }
    }

    /// Returns a description of how a plan breaks the rule.
    pub fn text(self) -> &'static str {
        match self {
            Self::UnknownJob => "the job is not in the trace",
            Self::NotArrived => "the job has not arrived",
            Self::FinishedJob => "the job has already ended",
            Self::AlreadyRunning => "the job is running",
            Self::NotRunning => "the job is not running",
            Self::TwoActions => "the plan has two actions for the job (or for one part of it)",
            Self::GangSize => "the number of GPUs differs from the size of the gang",
            Self::NoSuchGpu => "the server or slot does not exist",
            Self::ServerDown => "the server is down",
            Self::TypeNotAllowed => "the job may not use this GPU type",
            Self::MixedTypes => {
                "the gang mixes GPU types and the policy does not declare `mixes_types`"
            }
            Self::Capacity => "a GPU is already taken",
            Self::SharingLimit => "a GPU would hold more jobs than the run allows",
            Self::Memory => "the jobs on a GPU would need more memory than it has",
            Self::InfeasiblePair => {
                "two jobs on a GPU cannot share this GPU, because their pair is infeasible"
            }
            Self::SubBatch => {
                "the sub-batch is below 1 or above the job's batch size, or is not a batch of an elastic job's model"
            }
            Self::TimerNotAfterNow => "the timer is not later than the current time",
            Self::WorkLimit => "the iteration quota is not above 0",
            Self::Overhead => "the overhead is below 0 or above 4e9 s",
            Self::NotForked => "the policy does not declare `forks`, so a job has part 0 only",
            Self::PartSpansServers => "a part of a forked job spans several servers",
            Self::PartsShareServer => "two parts of the job are on one server",
        }
    }
}

/// A plan that the engine rejected; the state of the run has not changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "decision {decision} at {} s: {}{}: {}",
    time.seconds(), subject(*kind, *job), on_server(*server), rule.text()
)]
pub struct PlanError {
    /// The job; for a timer, the id of its tag.
    pub job: JobId,
    /// The action.
    pub kind: ActionKind,
    /// The server on which the rule is broken, if the rule concerns a server.
    pub server: Option<ServerId>,
    /// The rule that is broken.
    pub rule: Rule,
    /// Instant of the decision.
    pub time: SimTime,
    /// Number of the decision, counted from 0.
    pub decision: u64,
}

fn subject(kind: ActionKind, job: JobId) -> String {
    match kind {
        ActionKind::Timer => format!("timer {job}"),
        ActionKind::Start
        | ActionKind::Preempt
        | ActionKind::Move
        | ActionKind::SetSubBatch
        | ActionKind::Quota
        | ActionKind::Keep => format!("{kind} of job {job}"),
    }
}

fn on_server(server: Option<ServerId>) -> String {
    server.map_or_else(String::new, |server| format!(" on server {server}"))
}

/// Errors that a policy can return instead of a plan.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PolicyError {
    /// A parameter with an invalid value.
    #[error("{policy}: {field} = {value}: expected {expected}")]
    Parameter {
        /// Policy name.
        policy: String,
        /// Parameter name.
        field: String,
        /// The value, as a string.
        value: String,
        /// The values that the parameter accepts.
        expected: String,
    },
    /// There is no policy with this name.
    #[error("unknown policy {name}; did you mean {nearest}?")]
    UnknownPolicy {
        /// The name that was looked up.
        name: String,
        /// The most similar known name.
        nearest: String,
    },
    /// A policy without access to the remaining work asked for it.
    #[error("the policy asked for the remaining work of job {job}, but declares Knowledge::Online")]
    NotAllowedToKnow {
        /// The job.
        job: JobId,
    },
    /// The policy needs durations that the trace does not have.
    #[error(
        "{policy} needs durations, but {jobs} jobs have none; give a throughput table or use a policy that does not need them"
    )]
    MissingDuration {
        /// Policy name.
        policy: String,
        /// Number of jobs without a duration.
        jobs: usize,
    },
    /// The policy itself failed, for example because the user's code or a solver failed.
    #[error("{message}")]
    Failed {
        /// Error message of the policy.
        message: String,
    },
}

/// The reason why a run ended early.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum EngineError {
    /// The description of the cluster, the jobs or the network is invalid.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The engine rejected a plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The policy failed.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// Some jobs can never run on this cluster.
    #[error(
        "{} can never run here; job {}: {}; leave such jobs out with `on_infeasible=\"drop\"`",
        count(jobs.len()), jobs[0].job, jobs[0].reason.text()
    )]
    Infeasible {
        /// The jobs, each with its reason; never empty.
        jobs: Vec<Infeasible>,
    },
    /// Jobs are waiting, and no future event can start them.
    #[error("{}", stall(*time, *waiting, *paused, jobs))]
    Stalled {
        /// Instant at which the run stopped.
        time: SimTime,
        /// Number of waiting jobs.
        waiting: usize,
        /// Number of jobs that hold GPUs without progress, paused at their iteration quotas.
        paused: usize,
        /// The first ten of these jobs, waiting jobs first.
        jobs: Vec<JobId>,
    },
    /// The policy repeatedly stops jobs before they save any progress.
    #[error(
        "{} had not ended at {} s, and the policy stops jobs again and again before they save any progress: no job has \
         saved any for at least 1000 preemptions and moves per job; first: {}; let a job run for longer than \
         its restart overhead and `checkpoint_interval_s` together before it is stopped",
        count(*open), time.seconds(), list(jobs)
    )]
    Livelock {
        /// Instant at which the run stopped.
        time: SimTime,
        /// Number of unfinished jobs.
        open: usize,
        /// The first ten of these jobs, waiting jobs first.
        jobs: Vec<JobId>,
    },
    /// Failures repeatedly undo the work of jobs.
    #[error(
        "{} had not ended at {} s, and failures undo the work of jobs again and again: no job has saved any progress \
         for at least 10000 lost placements per job; first: {}; set `checkpoint_interval_s`, or stop the run with \
         `until_s` or `max_events`",
        count(*open), time.seconds(), list(jobs)
    )]
    Undone {
        /// Instant at which the run stopped.
        time: SimTime,
        /// Number of unfinished jobs.
        open: usize,
        /// The first ten of these jobs, waiting jobs first.
        jobs: Vec<JobId>,
    },
    /// Some jobs are unfinished, and the next event is beyond the end of simulated time.
    #[error(
        "{} had not ended at {} s, and the next event is beyond the end of simulated time; first: {}; \
         a job may take at most 4e9 s; if failures or preemptions undo work again and again, set a \
         checkpoint interval, or stop the run with `until_s` or `max_events`",
        count(*open), time.seconds(), list(jobs)
    )]
    Endless {
        /// The last instant with an event.
        time: SimTime,
        /// Number of unfinished jobs.
        open: usize,
        /// The first ten of these jobs.
        jobs: Vec<JobId>,
    },
    /// A source of slowdown factors lacks a pair that occurs in the trace, although it must contain every pair.
    #[error(
        "sharing: no slowdown factor for {}; \
         add these pairs to its source, or set `sharing.missing` to what such a pair means (`infeasible`: the two never share GPUs)",
        list_pairs(pairs)
    )]
    MissingPairs {
        /// The first missing pairs: the label of the slowed job and the label of its co-runner; never empty.
        pairs: Vec<(String, String)>,
    },
    /// The process cannot allocate the memory that the run needs.
    #[error(
        "out of memory at {} s of simulated time, with {segments} rows of segments recorded; a run without segments \
         or with fewer jobs needs less memory, and `until_s` or `max_events` ends a run sooner",
        time.seconds()
    )]
    OutOfMemory {
        /// Instant at which the run stopped.
        time: SimTime,
        /// Number of rows in the segments table at that instant.
        segments: usize,
    },
    /// An option has an invalid value.
    #[error("{field}: {what}")]
    Option {
        /// Option name.
        field: &'static str,
        /// Description of the problem.
        what: String,
    },
    /// A step was called out of order.
    #[error("{what}")]
    Step {
        /// Description of the problem.
        what: &'static str,
    },
}

fn count(jobs: usize) -> String {
    format!("{jobs} {}", if jobs == 1 { "job" } else { "jobs" })
}

fn stall(time: SimTime, waiting: usize, paused: usize, jobs: &[JobId]) -> String {
    let (at, first) = (time.seconds(), list(jobs));
    if paused == 0 {
        let all = count(waiting);
        return format!(
            "{all} waiting at {at} s, and no future event can start them; first: {first}"
        );
    }
    let all = count(waiting + paused);
    format!(
        "{all} had not ended at {at} s ({waiting} waiting and {paused} paused at their iteration quotas), \
         and no future event can let them proceed; first: {first}"
    )
}

fn list(jobs: &[JobId]) -> String {
    let names: Vec<String> = jobs.iter().map(ToString::to_string).collect();
    names.join(", ")
}

const PAIRS_SHOWN: usize = 20;

fn list_pairs(pairs: &[(String, String)]) -> String {
    let mut shown: Vec<String> = pairs
        .iter()
        .take(PAIRS_SHOWN)
        .map(|(slowed, other)| format!("{slowed} with co-runner {other}"))
        .collect();
    if pairs.len() > shown.len() {
        shown.push("and more".to_owned());
    }
    shown.join("; ")
}
