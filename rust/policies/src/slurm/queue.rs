//! The queue in order of priority. A pass does not have to compute the priority of every job.
//!
//! Jobs that differ only in their age form one *line*. Priority never falls with age, and jobs are numbered in order of
//! arrival. The order within a line is therefore always the order of job numbers. A pass merges the lines according to
//! the priorities of their heads. It costs O(lines + visited jobs x log n).

use super::jobs::{JobKinds, LineKey, Profile};
use gangline_model::{JobId, SimTime};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// A line: jobs with the same key.
#[derive(Clone, Debug)]
struct Line {
    key: LineKey,
    jobs: BTreeSet<JobId>,
    /// Index in the list of lines that contain jobs.
    slot: usize,
}

/// Sort key of a pass: jobs that can preempt others come first; then tier, priority and arrival decide.
type Rank = (bool, Reverse<i64>, Reverse<i64>, JobId);

/// Waiting jobs.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    lines: Vec<Line>,
    by_key: FxHashMap<LineKey, usize>,
    /// Lines that contain jobs.
    busy: Vec<usize>,
    /// Lines that can be reused.
    unused: Vec<usize>,
    /// Jobs whose requeue delay has not ended.
    delayed: BinaryHeap<Reverse<(SimTime, JobId)>>,
    /// For each preempted job, the end of its last requeue delay.
    since: FxHashMap<JobId, SimTime>,
    has_ages: bool,
    /// For each kind, the number of eligible jobs.
    pub(super) of_kind: Vec<u32>,
    /// Number of eligible jobs that can preempt others.
    pub(super) preemptors: u32,
    len: usize,
}

impl Queue {
    /// Creates an empty queue for this number of kinds. `has_ages` tells whether priorities depend on the ages of jobs.
    pub(super) fn new(kinds: usize, has_ages: bool) -> Self {
        Self {
            of_kind: vec![0; kinds],
            has_ages,
            ..Self::default()
        }
    }

    /// Returns the number of waiting jobs, eligible or not.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the order stays the same while priorities change only with age.
    pub(super) fn is_one_line(&self) -> bool {
        self.busy.len() <= 1
    }

    /// Returns the instant at which the next requeue delay ends.
    pub(super) fn next_eligible(&self) -> SimTime {
        self.delayed
            .peek()
            .map_or(SimTime::NEVER, |Reverse(next)| next.0)
    }

    /// Returns the instant from which a preempted job counts as waiting again.
    pub(super) fn since(&self, job: JobId) -> Option<SimTime> {
        self.since.get(&job).copied()
    }

    pub(super) fn join(&mut self, jobs: &JobKinds, job: JobId) {
        self.len += 1;
        self.enter(jobs, job);
    }

    /// Adds a preempted job, which becomes eligible at the given instant.
    pub(super) fn delay(&mut self, job: JobId, until: SimTime) {
        self.len += 1;
        self.since.insert(job, until);
        self.delayed.push(Reverse((until, job)));
    }

    /// Marks the jobs whose requeue delay has ended as eligible.
    pub(super) fn wake(&mut self, jobs: &JobKinds, now: SimTime) -> bool {
        let mut any = false;
        while let Some(&Reverse((until, job))) = self.delayed.peek()
            && until <= now
        {
            self.delayed.pop();
            self.enter(jobs, job);
            any = true;
        }
        any
    }

    fn key(&self, profile: &Profile, job: JobId) -> LineKey {
        LineKey {
            since: self.since(job).filter(|_| self.has_ages),
            ..profile.line
        }
    }

    fn enter(&mut self, jobs: &JobKinds, job: JobId) {
        let profile = jobs.of(job);
        let key = self.key(profile, job);
        let at = *self.by_key.entry(key).or_insert_with(|| {
            let line = Line {
                key,
                jobs: BTreeSet::new(),
                slot: usize::MAX,
            };
            if let Some(at) = self.unused.pop() {
                self.lines[at] = line;
                at
            } else {
                self.lines.push(line);
                self.lines.len() - 1
            }
        });
        let line = &mut self.lines[at];
        if line.jobs.is_empty() {
            line.slot = self.busy.len();
            self.busy.push(at);
        }
        line.jobs.insert(job);
        self.of_kind[profile.kind] += 1;
        self.preemptors += u32::from(profile.can_preempt());
    }

    /// Removes an eligible job.
    pub(super) fn leave(&mut self, jobs: &JobKinds, job: JobId) {
        let profile = jobs.of(job);
        let key = self.key(profile, job);
        let at = self.by_key[&key];
        let line = &mut self.lines[at];
        line.jobs.remove(&job);
        self.len -= 1;
        self.of_kind[profile.kind] -= 1;
        self.preemptors -= u32::from(profile.can_preempt());
        if line.jobs.is_empty() {
            let slot = line.slot;
            self.busy.swap_remove(slot);
            if let Some(&moved) = self.busy.get(slot) {
                self.lines[moved].slot = slot;
            }
            if key.since.is_some() {
                self.by_key.remove(&key);
                self.unused.push(at);
            }
        }
    }

    /// Starts a walk over all eligible jobs in the order of a pass; `priority` returns the priority of a job in a line.
    pub(super) fn walk<P: Fn(&LineKey, JobId) -> i64>(&self, priority: P) -> Walk<P> {
        let mut walk = Walk {
            heads: BinaryHeap::with_capacity(self.busy.len()),
            priority,
        };
        for &at in &self.busy {
            walk.push(self, at, self.lines[at].jobs.first());
        }
        walk
    }
}

/// A pass over the queue. Jobs that the walk has already returned may leave the queue.
#[derive(Debug)]
pub(super) struct Walk<P> {
    heads: BinaryHeap<Reverse<(Rank, usize)>>,
    priority: P,
}

impl<P: Fn(&LineKey, JobId) -> i64> Walk<P> {
    fn push(&mut self, queue: &Queue, at: usize, job: Option<&JobId>) {
        if let Some(&job) = job {
            let key = &queue.lines[at].key;
            let priority = (self.priority)(key, job);
            let rank = (key.is_last, Reverse(key.tier), Reverse(priority), job);
            self.heads.push(Reverse((rank, at)));
        }
    }

    pub(super) fn next(&mut self) -> Option<(JobId, usize)> {
        let Reverse((rank, line)) = self.heads.pop()?;
        Some((rank.3, line))
    }

    /// Moves on to the next job in the line of the given job, which the walk has returned.
    pub(super) fn go_on(&mut self, queue: &Queue, (job, line): (JobId, usize)) {
        let from = JobId(job.0 + 1);
        let next = queue.lines[line].jobs.range(from..).next();
        self.push(queue, line, next);
    }
}
