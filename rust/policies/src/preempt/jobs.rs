//! Key and state of every job, and the waiting jobs of each demand class.

use crate::kit::ByClass;
use gangline_model::JobId;

/// Queue state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum QueueState {
    /// The job has not arrived, has ended, or was just stopped.
    #[default]
    Absent,
    /// The job is in the queue of its class.
    Waiting,
    /// A pass with preemption has admitted the job, but the placement rule has not found GPUs for it yet.
    Unplaced,
    /// The job runs.
    Running,
    /// The job runs without admission, on GPUs that unplaced jobs before it cannot use.
    Backfilled,
}

#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    lead: u64,
    main: i64,
    state: QueueState,
}

/// Waiting jobs, sorted by class and key, and the current key of every waiting or running job.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    queues: ByClass<Key>,
    kept: Vec<Kept>,
    waiting: usize,
}

impl Jobs {
    pub(super) fn new(classes: usize, jobs: usize) -> Self {
        Self {
            queues: ByClass::new(classes),
            kept: vec![Kept::default(); jobs],
            waiting: 0,
        }
    }

    /// Returns whether no jobs are waiting.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Returns the state of a job, after all plans so far.
    #[inline]
    pub(super) fn state(&self, job: JobId) -> QueueState {
        self.kept[job.index()].state
    }

    #[inline]
    pub(super) fn is_waiting(&self, job: JobId) -> bool {
        self.state(job) == QueueState::Waiting
    }

    /// Returns whether a job runs, after all plans so far.
    #[inline]
    pub(super) fn is_running(&self, job: JobId) -> bool {
        matches!(
            self.state(job),
            QueueState::Running | QueueState::Backfilled
        )
    }

    #[inline]
    pub(super) fn key(&self, job: JobId) -> Key {
        let kept = self.kept[job.index()];
        Key {
            lead: kept.lead,
            main: kept.main,
            job: job.0,
        }
    }

    /// Adds a job, or changes the key of a waiting job; the old key becomes stale.
    #[inline]
    pub(super) fn push(&mut self, class: usize, key: Key) {
        self.put(key, QueueState::Waiting);
        self.queues.push(class, key);
    }

    #[inline]
    pub(super) fn head(&mut self, class: usize) -> Option<Key> {
        let all = &self.kept;
        self.queues.first_if(class, |key| {
            let kept = all[key.job as usize];
            kept.state == QueueState::Waiting && (kept.lead, kept.main) == (key.lead, key.main)
        })
    }

    /// Removes the first job of a class, which runs from now on.
    #[inline]
    pub(super) fn pop(&mut self, class: usize) -> Option<Key> {
        let key = self.head(class)?;
        self.queues.pop(class);
        self.set(key, QueueState::Running);
        Some(key)
    }

    /// Sets the key and the state of a job; the state must not be "waiting". A key that the job still has in its queue
    /// becomes stale.
    #[inline]
    pub(super) fn set(&mut self, key: Key, state: QueueState) {
        debug_assert!(state != QueueState::Waiting, "a job waits after a push");
        self.put(key, state);
    }

    /// Records that a job has ended or was just stopped, so it neither runs nor waits.
    #[inline]
    pub(super) fn forget(&mut self, job: JobId) {
        self.put(self.key(job), QueueState::Absent);
    }

    #[inline]
    fn put(&mut self, key: Key, state: QueueState) {
        let kept = &mut self.kept[key.job as usize];
        self.waiting += usize::from(state == QueueState::Waiting);
        self.waiting -= usize::from(kept.state == QueueState::Waiting);
        *kept = Kept {
            lead: key.lead,
            main: key.main,
            state,
        };
    }

    /// Returns the first class at or after `class` that may have a waiting job.
    #[inline]
    pub(super) fn next_class(&self, class: usize) -> Option<usize> {
        self.queues.next_busy(class)
    }
}

// The following keys define the order of jobs. The job index stands for the arrival as well, because jobs are numbered
// by arrival.

/// Sort key of a job; smaller keys come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Key {
    /// The part that is compared first. Depending on the policy, it contains the protection of the job, its queue, the
    /// rank of its Gittins index, or several of these.
    pub lead: u64,
    /// Value by which the policy orders jobs: an instant or a span, in ns.
    pub main: i64,
    /// The job; breaks ties by arrival and index.
    pub job: u32,
}

impl Ord for Key {
    #[inline]
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // Searches account for most of the cost of a pass, and the first two fields nearly always decide a comparison.
        if self.lead != other.lead {
            return self.lead.cmp(&other.lead);
        }
        if self.main != other.main {
            return self.main.cmp(&other.main);
        }
        self.job.cmp(&other.job)
    }
}

impl PartialOrd for Key {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }

    #[inline]
    fn lt(&self, other: &Self) -> bool {
        let (a, b) = (self.order(), other.order());
        a < b || a == b && self.job < other.job
    }

    #[inline]
    fn le(&self, other: &Self) -> bool {
        !other.lt(self)
    }

    #[inline]
    fn ge(&self, other: &Self) -> bool {
        !self.lt(other)
    }
}

impl Key {
    /// Returns the lead and the measure combined into one number.
    #[inline]
    fn order(&self) -> u128 {
        u128::from(self.lead) << 64 | u128::from(self.main as u64 ^ 1 << 63)
    }

    #[inline]
    pub(crate) fn job(self) -> JobId {
        JobId(self.job)
    }
}

/// Rank of a job among all waiting and running jobs at one instant. Decisions compare ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// The part that is compared first. Depending on the policy, it contains the protection of the job, its queue, the
    /// rank of its Gittins index, or several of these.
    pub lead: u64,
    /// Current value of the measure in ns, or in GPU-ns if the measure is a span times a gang size.
    pub value: i128,
    /// Gang size if gang sizes are compared before arrivals (`srsf`), otherwise 0.
    pub gpus: u32,
    /// The job.
    pub job: u32,
}

impl Ord for Rank {
    #[inline]
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.lead
            .cmp(&other.lead)
            .then_with(|| self.value.cmp(&other.value))
            .then_with(|| self.tie().cmp(&other.tie()))
    }
}

impl PartialOrd for Rank {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }

    #[inline]
    fn lt(&self, other: &Self) -> bool {
        // The value nearly always decides, and comparing it first avoids a three-way comparison.
        self.lead < other.lead
            || self.lead == other.lead
                && (self.value < other.value
                    || self.value == other.value && self.tie() < other.tie())
    }
}

impl Rank {
    /// Returns the gang size and the job combined into one number.
    #[inline]
    fn tie(&self) -> u64 {
        u64::from(self.gpus) << 32 | u64::from(self.job)
    }
}

/// The kind of measure that determines the order of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// `main` is constant, both while a job waits and while it runs.
    Fixed,
    /// `main` is constant while a job waits, and grows while it runs, at a rate that depends on the job. The policy
    /// sets these keys before each decision.
    Growing,
    /// `main` is the instant of the first start. A job that has not started comes last while it waits. When it starts,
    /// `main` becomes the current instant.
    FirstStart,
    /// A span. For a waiting job, the span is `main`. For a running job, it is `main - now`, which decreases with time.
    Span,
    /// A span times the gang size; for a running job, the span decreases with time. Ties are broken by gang size, then
    /// by arrival.
    ShrinkingArea,
}

impl Measure {
    /// Returns the rank of a waiting job.
    #[inline]
    pub(crate) fn waiting(self, key: Key, gpus: u32) -> Rank {
        let (value, gpus) = match self {
            Self::Fixed | Self::Growing | Self::FirstStart | Self::Span => {
                (i128::from(key.main), 0)
            }
            Self::ShrinkingArea => (i128::from(key.main) * i128::from(gpus), gpus),
        };
        Rank {
            lead: key.lead,
            value,
            gpus,
            job: key.job,
        }
    }

    /// Returns the rank of a running job at `now`.
    #[inline]
    pub(crate) fn running(self, key: Key, gpus: u32, now: i64) -> Rank {
        match self {
            Self::Fixed | Self::Growing | Self::FirstStart => self.waiting(key, gpus),
            Self::Span | Self::ShrinkingArea => self.waiting(
                Key {
                    main: key.main - now,
                    ..key
                },
                gpus,
            ),
        }
    }

    /// Converts the `main` that a job had while it waited to its `main` if it starts now.
    #[inline]
    pub(crate) fn to_running(self, main: i64, now: i64) -> i64 {
        match self {
            Self::Fixed | Self::Growing => main,
            Self::FirstStart => main.min(now),
            Self::Span | Self::ShrinkingArea => main.saturating_add(now),
        }
    }

    /// Returns whether the order of waiting and running jobs never changes merely because time passes.
    #[inline]
    pub(crate) fn is_fixed(self) -> bool {
        matches!(self, Self::Fixed | Self::FirstStart)
    }

    /// Returns whether the order of running jobs of different gang sizes changes as time passes.
    pub(crate) fn is_by_size(self) -> bool {
        self == Self::ShrinkingArea
    }
}
