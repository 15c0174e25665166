//! The actions of a policy, which the engine checks and applies (`docs/concepts/simulated-second.md`).

use crate::{GpuSet, JobId, SimSpan};

/// One step of a plan, for one part of one job. A plan has at most one action per part.
///
/// # Examples
/// ```
/// use gangline_model::{Action, GpuSet, JobId, ServerId, SimSpan, Terms};
/// let gpus = GpuSet::single(ServerId(0), 0b11);
/// let slow_start = Terms { overhead: Some(SimSpan(60_000_000_000)), ..Terms::default() };
/// let action = Action::start(JobId(7), gpus).with(slow_start);
/// assert_eq!((action.job, action.part), (JobId(7), 0));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    /// The job.
    pub job: JobId,
    /// Number of the part; 0 unless the policy forks jobs.
    pub part: u16,
    /// The change.
    pub verb: Verb,
    /// The terms of the change.
    pub terms: Terms,
}

/// The kind of change that an [`Action`] makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Gives these GPUs to a part that holds none.
    Start(GpuSet),
    /// Takes all GPUs from a part. The job keeps the progress of the part.
    Preempt,
    /// Moves a part to these GPUs. A move to the GPUs that the part already holds is the same as [`Verb::Keep`].
    Move(GpuSet),
    /// Leaves a part on its GPUs but gives it new terms.
    Keep,
}

/// Terms on which a part holds its GPUs from now on. `None` means that the term stays unchanged or, for a start, has
/// its default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Terms {
    /// Number of samples per GPU and pass. A start without a sub-batch uses the job's own batch size.
    pub sub_batch: Option<u32>,
    /// Number of passes beyond the first, for an elastic job. Together with `sub_batch` (samples per GPU and pass),
    /// this number determines the batch size, which can be any that the job's model allows.
    pub accum: Option<u32>,
    /// Overhead: the time, from now on, during which the part makes no progress. The default for a start or move is the
    /// overhead of the run.
    pub overhead: Option<SimSpan>,
    /// Number of iterations that the part may do; once they are done, it keeps its GPUs but makes no progress. Infinity
    /// means no quota, which is also the default for a start or move.
    pub quota: Option<f64>,
}

/// The kind of an [`Action`], for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionKind {
    /// [`Verb::Start`]
    Start,
    /// [`Verb::Preempt`]
    Preempt,
    /// [`Verb::Move`]
    Move,
    /// [`Verb::Keep`] with a sub-batch.
    SetSubBatch,
    /// [`Verb::Keep`] with a quota.
    Quota,
    /// [`Verb::Keep`] with an overhead, or without new terms.
    Keep,
    /// A request for a timer; messages show the id of its tag.
    Timer,
}

impl Action {
    #[inline]
    fn new(job: JobId, verb: Verb) -> Self {
        Self {
            job,
            part: 0,
            verb,
            terms: Terms::default(),
        }
    }

    /// Gives a waiting job its gang.
    #[inline]
    pub fn start(job: JobId, gpus: GpuSet) -> Self {
        Self::new(job, Verb::Start(gpus))
    }

    /// Takes all GPUs from a running job. The job then waits and keeps its progress.
    #[inline]
    pub fn preempt(job: JobId) -> Self {
        Self::new(job, Verb::Preempt)
    }

    /// Moves a running job to other GPUs.
    #[inline]
    pub fn move_to(job: JobId, gpus: GpuSet) -> Self {
        Self::new(job, Verb::Move(gpus))
    }

    /// Leaves a running job on its GPUs but gives it new terms.
    #[inline]
    pub fn keep(job: JobId, terms: Terms) -> Self {
        Self::new(job, Verb::Keep).with(terms)
    }

    /// Returns this action with its terms replaced.
    #[inline]
    #[must_use]
    pub fn with(mut self, terms: Terms) -> Self {
        self.terms = terms;
        self
    }

    /// Returns the same action for the given part of the job.
    #[inline]
    #[must_use]
    pub fn of_part(mut self, part: u16) -> Self {
        self.part = part;
        self
    }

    /// Returns the GPUs to which the action starts or moves the part.
    #[inline]
    pub fn gpus(&self) -> Option<&GpuSet> {
        match &self.verb {
            Verb::Start(gpus) | Verb::Move(gpus) => Some(gpus),
            Verb::Preempt | Verb::Keep => None,
        }
    }

    /// Returns whether the action takes away the GPUs that the part holds, that is, whether it is a preemption or
    /// a move.
    #[inline]
    pub fn releases(&self) -> bool {
        matches!(self.verb, Verb::Preempt | Verb::Move(_))
    }

    /// Returns the kind of the action.
    pub fn kind(&self) -> ActionKind {
        match self.verb {
            Verb::Start(_) => ActionKind::Start,
            Verb::Preempt => ActionKind::Preempt,
            Verb::Move(_) => ActionKind::Move,
            Verb::Keep if self.terms.sub_batch.is_some() => ActionKind::SetSubBatch,
            Verb::Keep if self.terms.quota.is_some() => ActionKind::Quota,
            Verb::Keep => ActionKind::Keep,
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
            Self::Quota => "quota",
            Self::Keep => "keep",
            Self::Timer => "timer",
        })
    }
}

/// Name of a policy's timer: a kind (0 to 7) that the policy chooses, and an id, usually a job index. Setting a timer
/// with the same tag replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerTag {
    /// Kind of the timer, 0 to 7, which the policy chooses.
    pub kind: u8,
    /// The job or other object that the timer concerns.
    pub id: u32,
}
