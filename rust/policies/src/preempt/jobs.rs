//! Key and state of every job, and those that wait by demand class.

use super::key::Key;
use crate::kit::ByClass;
use gangline_model::JobId;

/// Queue state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum QueueState {
    /// It has not arrived, has ended, or was just stopped.
    #[default]
    Absent,
    /// In the queue of its class.
    Waiting,
    /// Admitted by a pass with preemption, but unplaced: the placement rule has no GPUs for it yet.
    Unplaced,
    /// Runs.
    Running,
    /// Runs without admission, on GPUs that the unplaced jobs before it cannot use.
    Backfilled,
}

/// Key and state of a job.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    lead: u64,
    main: i64,
    state: QueueState,
}

/// Waiting jobs by class and key. Also keeps every job's present key, waiting or running.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    queues: ByClass<Key>,
    jobs: Vec<Kept>,
    waiting: usize,
}

impl Jobs {
    /// Empty queues.
    pub(super) fn new(classes: usize, jobs: usize) -> Self {
        Self {
            queues: ByClass::new(classes),
            jobs: vec![Kept::default(); jobs],
            waiting: 0,
        }
    }

    /// Whether no job waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// The state of a job, after all plans so far.
    #[inline]
    pub(super) fn state(&self, job: JobId) -> QueueState {
        self.jobs[job.index()].state
    }

    /// Whether a job waits here.
    #[inline]
    pub(super) fn is_waiting(&self, job: JobId) -> bool {
        self.state(job) == QueueState::Waiting
    }

    /// Whether a job runs, after all plans so far.
    #[inline]
    pub(super) fn is_running(&self, job: JobId) -> bool {
        matches!(
            self.state(job),
            QueueState::Running | QueueState::Backfilled
        )
    }

    /// The present key of a job.
    #[inline]
    pub(super) fn key(&self, job: JobId) -> Key {
        let kept = self.jobs[job.index()];
        Key {
            lead: kept.lead,
            main: kept.main,
            job: job.0,
        }
    }

    /// Adds a job, or gives a waiting one another key (the old one becomes stale).
    #[inline]
    pub(super) fn push(&mut self, class: usize, key: Key) {
        self.put(key, QueueState::Waiting);
        self.queues.push(class, key);
    }

    /// The first waiting job of a class.
    #[inline]
    pub(super) fn head(&mut self, class: usize) -> Option<Key> {
        let jobs = &self.jobs;
        self.queues.first_if(class, |key| {
            let kept = jobs[key.job as usize];
            kept.state == QueueState::Waiting && (kept.lead, kept.main) == (key.lead, key.main)
        })
    }

    /// Takes the head of a class out; it runs from now on.
    #[inline]
    pub(super) fn pop(&mut self, class: usize) -> Option<Key> {
        let key = self.head(class)?;
        self.queues.pop(class);
        self.set(key, QueueState::Running);
        Some(key)
    }

    /// Notes the key of a job and its state, any but waiting; an earlier key in its queue becomes stale.
    #[inline]
    pub(super) fn set(&mut self, key: Key, state: QueueState) {
        debug_assert!(state != QueueState::Waiting, "a job waits after a push");
        self.put(key, state);
    }

    /// Notes that a job is absent.
    #[inline]
    pub(super) fn forget(&mut self, job: JobId) {
        self.put(self.key(job), QueueState::Absent);
    }

    #[inline]
    fn put(&mut self, key: Key, state: QueueState) {
        let kept = &mut self.jobs[key.job as usize];
        self.waiting += usize::from(state == QueueState::Waiting);
        self.waiting -= usize::from(kept.state == QueueState::Waiting);
        *kept = Kept {
            lead: key.lead,
            main: key.main,
            state,
        };
    }

    /// The next class, from `class` on, that may have a waiting job.
    #[inline]
    pub(super) fn next_class(&self, class: usize) -> Option<usize> {
        self.queues.next_busy(class)
    }
}
