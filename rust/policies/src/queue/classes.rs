//! Waiting jobs: one binary heap per demand class, with lazy deletion.

use super::Key;
use gangline_engine::BitSet;
use gangline_model::JobId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Queue state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum QueueState {
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
struct Entry {
    lead: u64,
    main: i64,
    state: QueueState,
}

/// Waiting jobs by class and key. Also keeps every job's present key, waiting or running.
#[derive(Debug, Default)]
pub struct ClassQueues {
    heaps: Vec<BinaryHeap<Reverse<Key>>>,
    /// Classes whose heap is not empty.
    busy: BitSet,
    jobs: Vec<Entry>,
    waiting: usize,
}

impl ClassQueues {
    /// Empty queues.
    pub fn new(classes: usize, jobs: usize) -> Self {
        Self {
            heaps: (0..classes).map(|_| BinaryHeap::new()).collect(),
            busy: BitSet::new(classes.max(1)),
            jobs: vec![Entry::default(); jobs],
            waiting: 0,
        }
    }

    /// Whether no job waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// The state of a job, after all plans so far.
    #[inline]
    pub fn state(&self, job: JobId) -> QueueState {
        self.jobs[job.index()].state
    }

    /// Whether a job waits here.
    #[inline]
    pub fn is_waiting(&self, job: JobId) -> bool {
        self.state(job) == QueueState::Waiting
    }

    /// Whether a job runs, after all plans so far.
    #[inline]
    pub fn is_running(&self, job: JobId) -> bool {
        matches!(
            self.state(job),
            QueueState::Running | QueueState::Backfilled
        )
    }

    /// The present key of a job.
    #[inline]
    pub fn key(&self, job: JobId) -> Key {
        let entry = self.jobs[job.index()];
        Key {
            lead: entry.lead,
            main: entry.main,
            job: job.0,
        }
    }

    /// Adds a job, or gives a waiting one another key (its old entry becomes stale).
    #[inline]
    pub fn push(&mut self, class: usize, key: Key) {
        self.put(key, QueueState::Waiting);
        let heap = &mut self.heaps[class];
        if heap.is_empty() {
            self.busy.insert(class);
        }
        heap.push(Reverse(key));
    }

    /// The first waiting job of a class.
    #[inline]
    pub fn head(&mut self, class: usize) -> Option<Key> {
        while let Some(&Reverse(key)) = self.heaps[class].peek() {
            if self.is_waiting(key.job()) && self.key(key.job()) == key {
                return Some(key);
            }
            self.heaps[class].pop();
            if self.heaps[class].is_empty() {
                self.busy.remove(class);
            }
        }
        None
    }

    /// Takes the head of a class out; it runs from now on.
    #[inline]
    pub fn pop(&mut self, class: usize) -> Option<Key> {
        let key = self.head(class)?;
        self.heaps[class].pop();
        if self.heaps[class].is_empty() {
            self.busy.remove(class);
        }
        self.set_running(key);
        Some(key)
    }

    /// Notes that a job runs, under this key; its entry in a heap, if it has one, becomes stale.
    #[inline]
    pub fn set_running(&mut self, key: Key) {
        self.set(key, QueueState::Running);
    }

    /// Notes the key of a job and its state, any but waiting; its entry in a heap, if it has one, becomes stale.
    #[inline]
    pub fn set(&mut self, key: Key, state: QueueState) {
        debug_assert!(state != QueueState::Waiting, "a job waits after a push");
        self.put(key, state);
    }

    /// Notes that a job is absent.
    #[inline]
    pub fn forget(&mut self, job: JobId) {
        self.put(self.key(job), QueueState::Absent);
    }

    #[inline]
    fn put(&mut self, key: Key, state: QueueState) {
        let entry = &mut self.jobs[key.job as usize];
        self.waiting += usize::from(state == QueueState::Waiting);
        self.waiting -= usize::from(entry.state == QueueState::Waiting);
        *entry = Entry {
            lead: key.lead,
            main: key.main,
            state,
        };
    }

    /// The next class, from `class` on, that may have a waiting job.
    #[inline]
    pub fn next_class(&self, class: usize) -> Option<usize> {
        self.busy.next_from(class)
    }
}
