//! The waiting jobs and the running jobs of one queue.
//!
//! Jobs with equal requests form a *group*. If one job of a group cannot start, the others cannot start in the same
//! action either. In the action *preempt*, where priorities count, this holds only for jobs of equal priority.

use gangline_engine::BitSet;
use gangline_model::{JobId, SimSpan, SimTime};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// The position of a job in its queue, in order of priority, then arrival, then index.
pub(super) type Rank = u32;

/// Position of a running job in the order of eviction: the lowest priority comes first, then the latest job.
pub(super) type Place = (i64, Reverse<JobId>);

/// Jobs of one queue with equal requests.
#[derive(Clone, Debug, Default)]
struct Group {
    waiting: BTreeSet<Rank>,
    /// Jobs with a rank below this one have been tried without success.
    from: Rank,
    /// Whether the last attempt to start a job of the group failed and nothing has changed since.
    is_vain: bool,
}

impl Group {
    fn next(&self) -> Option<Rank> {
        self.waiting.range(self.from..).next().copied()
    }
}

/// The jobs of a queue.
#[derive(Debug)]
pub(super) struct Line {
    /// All jobs in the trace that belong to this queue, sorted by rank.
    pub jobs: Vec<JobId>,
    groups: Vec<Group>,
    /// Groups that have waiting jobs.
    busy: BitSet,
    pub running: BTreeSet<Place>,
    /// Lengths of the possible protection periods after a job's start.
    spans: Vec<SimSpan>,
    /// Start times of the running jobs; recorded only if jobs may be protected.
    starts: BTreeSet<(SimTime, JobId)>,
    /// The waiting job that is tried next; `None` if no job is left to try. The value is valid only if `is_known` is
    /// set.
    next: Option<Rank>,
    is_known: bool,
}

impl Line {
    /// Creates the line of a queue from its jobs (sorted by rank) and the number of groups.
    pub(super) fn new(jobs: Vec<JobId>, groups: usize, spans: Vec<SimSpan>) -> Self {
        Self {
            jobs,
            busy: BitSet::new(groups.max(1)),
            groups: vec![Group::default(); groups],
            running: BTreeSet::new(),
            spans,
            starts: BTreeSet::new(),
            next: None,
            is_known: false,
        }
    }

    /// Adds a job to the waiting jobs of its group.
    pub(super) fn join(&mut self, rank: Rank, group: usize) {
        self.groups[group].waiting.insert(rank);
        self.busy.insert(group);
        self.is_known = false;
    }

    /// Removes a job from the waiting jobs of its group.
    pub(super) fn leave(&mut self, rank: Rank, group: usize) {
        let waiting = &mut self.groups[group].waiting;
        waiting.remove(&rank);
        if waiting.is_empty() {
            self.busy.remove(group);
        }
        self.is_known = false;
    }

    /// Marks all waiting jobs as not yet tried.
    pub(super) fn restart(&mut self) {
        for group in &mut self.groups {
            group.from = 0;
        }
        self.retry();
        self.is_known = false;
    }

    /// Records that something has changed, so that earlier failures no longer count.
    pub(super) fn retry(&mut self) {
        for group in &mut self.groups {
            group.is_vain = false;
        }
    }

    /// Marks those jobs of a group whose rank is below the given one as tried without success.
    pub(super) fn pass(&mut self, group: usize, below: Rank) {
        self.groups[group].from = below;
        self.groups[group].is_vain = true;
        self.is_known = false;
    }

    pub(super) fn is_vain(&self, group: usize) -> bool {
        self.groups[group].is_vain
    }

    /// Returns whether any job is worth trying, that is, whether a group that has not failed since the last change has
    /// a job left to try.
    pub(super) fn has_hope(&self) -> bool {
        let mut groups = self.busy.iter().map(|group| &self.groups[group]);
        groups.any(|group| !group.is_vain && group.next().is_some())
    }

    /// Returns the job to try next.
    pub(super) fn next(&mut self) -> Option<JobId> {
        if !self.is_known {
            let busy = self.busy.iter();
            self.next = busy.filter_map(|group| self.groups[group].next()).min();
            self.is_known = true;
        }
        self.next.map(|rank| self.jobs[rank as usize])
    }

    /// Adds a running job that can be evicted.
    pub(super) fn start(&mut self, place: Place, now: SimTime) {
        self.running.insert(place);
        if !self.spans.is_empty() {
            self.starts.insert((now, place.1.0));
        }
    }

    /// Removes a job that started at `since` and no longer runs.
    pub(super) fn stop(&mut self, place: Place, since: SimTime) {
        self.running.remove(&place);
        self.starts.remove(&(since, place.1.0));
    }

    /// Returns the next instant at which the protection of a running job ends.
    pub(super) fn next_end_of_protection(&self, now: SimTime) -> SimTime {
        let end = |&span: &SimSpan| {
            let first = (SimTime(now.0 - span.0 + 1), JobId(0));
            let first = self.starts.range(first..).next();
            first.map(|&(since, _)| since + span)
        };
        let ends = self.spans.iter().filter_map(end);
        ends.min().unwrap_or(SimTime::NEVER)
    }
}

/// The data that the policy keeps about a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    /// Queue of the job.
    pub leaf: u32,
    pub rank: Rank,
    pub group: u32,
    /// Whether the job cannot be preempted.
    pub is_fixed: bool,
    /// Start of the job's current run; `SimTime::NEVER` if the job does not run.
    pub since: SimTime,
}
