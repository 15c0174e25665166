//! What a policy may ask for. The engine checks it and carries it out (`docs/concepts/simulated-second.md`).

use crate::{GpuSet, JobId};

/// One step of a plan. At most one action per job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Give a waiting job its gang.
    Start {
        /// The job.
        job: JobId,
        /// Its GPUs.
        gpus: GpuSet,
        /// Samples per GPU and pass; `None` = the job's own batch size.
        sub_batch: Option<u32>,
    },
    /// Take all GPUs from a running job; it waits with the progress it has.
    Preempt {
        /// The job.
        job: JobId,
    },
    /// Move a running job to other GPUs. Naming the GPUs it holds is free and does nothing.
    Move {
        /// The job.
        job: JobId,
        /// Its new GPUs.
        gpus: GpuSet,
    },
    /// Change the sub-batch of a running job, at once and free of cost.
    SetSubBatch {
        /// The job.
        job: JobId,
        /// Samples per GPU and pass.
        sub_batch: u32,
    },
}

/// The kind of an [`Action`], for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionKind {
    /// [`Action::Start`]
    Start,
    /// [`Action::Preempt`]
    Preempt,
    /// [`Action::Move`]
    Move,
    /// [`Action::SetSubBatch`]
    SetSubBatch,
    /// A timer order, named by the id of its tag.
    Timer,
    /// A limit of work.
    Limit,
}

impl Action {
    /// The job that the action is about.
    #[inline]
    pub fn job(&self) -> JobId {
        match self {
            Self::Start { job, .. }
            | Self::Preempt { job }
            | Self::Move { job, .. }
            | Self::SetSubBatch { job, .. } => *job,
        }
    }

    /// Its kind.
    pub fn kind(&self) -> ActionKind {
        match self {
            Self::Start { .. } => ActionKind::Start,
            Self::Preempt { .. } => ActionKind::Preempt,
            Self::Move { .. } => ActionKind::Move,
            Self::SetSubBatch { .. } => ActionKind::SetSubBatch,
        }
    }
}

impl std::fmt::Display for ActionKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Start => "start",
            Self::Preempt => "preempt",
            Self::Move => "move",
            Self::SetSubBatch => "set-sub-batch",
            Self::Timer => "timer",
            Self::Limit => "limit",
        })
    }
}

/// Name of a policy's timer: a kind of the policy's own (0 to 7) and an id, usually a job index.
/// Arming a tag again replaces its timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerTag {
    /// What the timer is for; 0 to 7, chosen by the policy.
    pub kind: u8,
    /// Whom it concerns.
    pub id: u32,
}
