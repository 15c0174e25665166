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

/// Waiting jobs by class and key. Also keeps every job's present key, waiting or running.
#[derive(Debug, Default)]
pub struct ClassQueues {
    heaps: Vec<BinaryHeap<Reverse<Key>>>,
    /// Classes whose heap is not empty.
    busy: BitSet,
    mains: Vec<i64>,
    /// Empty while every lead is 0.
    leads: Vec<u64>,
    state: Vec<QueueState>,
    waiting: usize,
}

impl ClassQueues {
    /// Empty queues; `has_leads` tells whether keys have a leading part.
    pub fn new(classes: usize, jobs: usize, has_leads: bool) -> Self {
        Self {
            heaps: (0..classes).map(|_| BinaryHeap::new()).collect(),
            busy: BitSet::new(classes.max(1)),
            mains: vec![0; jobs],
            leads: if has_leads { vec![0; jobs] } else { Vec::new() },
            state: vec![QueueState::Absent; jobs],
            waiting: 0,
        }
    }

    /// Whether nobody waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// The state of a job, after all plans so far.
    #[inline]
    pub fn state(&self, job: JobId) -> QueueState {
        self.state[job.index()]
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
        Key {
            lead: self.leads.get(job.index()).copied().unwrap_or(0),
            main: self.mains[job.index()],
            job: job.0,
        }
    }

    #[inline]
    fn set_key(&mut self, key: Key) {
        self.mains[key.job as usize] = key.main;
        if let Some(lead) = self.leads.get_mut(key.job as usize) {
            *lead = key.lead;
        } else {
            debug_assert!(key.lead == 0, "these queues keep no leading part");
        }
    }

    /// Adds a job, or gives a waiting one another key (its old entry becomes stale).
    #[inline]
    pub fn push(&mut self, class: usize, key: Key) {
        self.set_key(key);
        let state = &mut self.state[key.job as usize];
        if *state != QueueState::Waiting {
            *state = QueueState::Waiting;
            self.waiting += 1;
        }
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
        self.set_key(key);
        self.leave(key.job(), state);
    }

    /// Notes that a job is absent.
    #[inline]
    pub fn forget(&mut self, job: JobId) {
        self.leave(job, QueueState::Absent);
    }

    #[inline]
    fn leave(&mut self, job: JobId, state: QueueState) {
        let old = std::mem::replace(&mut self.state[job.index()], state);
        if old == QueueState::Waiting {
            self.waiting -= 1;
        }
    }

    /// The next class, from `class` on, that may have a waiting job.
    #[inline]
    pub fn next_class(&self, class: usize) -> Option<usize> {
        self.busy.next_from(class)
    }
}
