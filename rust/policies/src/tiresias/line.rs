//! A queue order that puts running jobs first, as in the public code of Tiresias.

use gangline_model::JobId;

/// The position that separates running jobs from the jobs that do not run.
const BEHIND: i64 = i64::MIN / 2;

/// Positions of jobs; only positions within the same queue are compared. Running jobs come first, then jobs that have
/// stopped (the last to stop comes first), then jobs that have not run since they joined the queue.
#[derive(Debug)]
pub(super) struct Line {
    positions: Vec<i64>,
    /// The position after all running jobs.
    running: i64,
    /// The position before all jobs that have stopped.
    head: i64,
    /// The position after all jobs.
    tail: i64,
    /// Jobs that have changed queues since the last decision.
    pub(super) changed: Vec<JobId>,
}

impl Line {
    pub(super) fn new(jobs: usize) -> Self {
        Self {
            positions: vec![0; jobs],
            running: i64::MIN,
            head: -1,
            tail: 0,
            changed: Vec::new(),
        }
    }

    pub(super) fn position(&self, job: JobId) -> i64 {
        self.positions[job.index()]
    }

    fn is_behind(&self, job: JobId) -> bool {
        self.position(job) >= BEHIND
    }

    /// Puts a job behind all other jobs of its queue.
    pub(super) fn join(&mut self, job: JobId) {
        self.positions[job.index()] = self.tail;
        self.tail += 1;
    }

    /// Puts each job that has changed queues behind all other jobs of its new queue, in order of arrival. Returns these
    /// jobs.
    pub(super) fn join_changed(&mut self) -> Vec<JobId> {
        self.changed.sort_unstable();
        let changed = self.changed.clone();
        for &job in &changed {
            self.join(job);
        }
        changed
    }

    /// Puts the given jobs, which have started, behind all running jobs and ahead of all other jobs. They keep their
    /// order.
    pub(super) fn run(&mut self, mut jobs: Vec<JobId>) {
        jobs.retain(|&job| self.is_behind(job));
        jobs.sort_unstable_by_key(|&job| self.position(job));
        for job in jobs {
            self.positions[job.index()] = self.running;
            self.running += 1;
        }
    }

    /// Puts the given jobs, which have stopped, ahead of all other jobs that do not run. They keep their order.
    pub(super) fn stop(&mut self, mut jobs: Vec<JobId>) {
        jobs.retain(|&job| !self.is_behind(job));
        jobs.sort_unstable_by_key(|&job| std::cmp::Reverse(self.position(job)));
        for job in jobs {
            self.positions[job.index()] = self.head;
            self.head -= 1;
        }
    }
}
