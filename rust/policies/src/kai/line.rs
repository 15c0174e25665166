//! The waiting and running jobs of one queue.
//!
//! Jobs that ask for the same are of one *group*: if one of them is looked at in vain, so are the others, for the rest of an
//! action. Where priorities count too, that holds of those of one *kind*.

use gangline_engine::BitSet;
use gangline_model::{JobId, SimTime};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Place of a job in its queue: by priority, then arrival and index.
pub(super) type Rank = u32;

/// A running job that can be evicted: those of low priority first, then the latest.
pub(super) type Place = (i64, Reverse<JobId>);

/// Jobs of one kind.
#[derive(Debug)]
struct Kind {
    group: u32,
    waiting: BTreeSet<Rank>,
    is_vain: bool,
}

/// The jobs of a queue.
#[derive(Debug)]
pub(super) struct Line {
    /// All of the trace, by rank.
    jobs: Vec<JobId>,
    kinds: Vec<Kind>,
    /// Kinds with a waiting job.
    busy: BitSet,
    pub running: BTreeSet<Place>,
    /// The waiting job that is looked at next, if `is_known`; `None` = there is none.
    next: Option<Rank>,
    is_known: bool,
}

impl Line {
    /// The line of these jobs, by rank, and of kinds of these groups.
    pub(super) fn new(jobs: Vec<JobId>, groups: Vec<u32>) -> Self {
        let kind = |group| Kind {
            group,
            waiting: BTreeSet::new(),
            is_vain: false,
        };
        Self {
            jobs,
            busy: BitSet::new(groups.len().max(1)),
            kinds: groups.into_iter().map(kind).collect(),
            running: BTreeSet::new(),
            next: None,
            is_known: false,
        }
    }

    /// A job of a kind waits.
    pub(super) fn join(&mut self, rank: Rank, kind: usize) {
        self.kinds[kind].waiting.insert(rank);
        self.busy.insert(kind);
        self.is_known = false;
    }

    /// A job of a kind waits no longer.
    pub(super) fn leave(&mut self, rank: Rank, kind: usize) {
        let waiting = &mut self.kinds[kind].waiting;
        waiting.remove(&rank);
        if waiting.is_empty() {
            self.busy.remove(kind);
        }
        self.is_known = false;
    }

    /// No job was looked at.
    pub(super) fn restart(&mut self) {
        for kind in &mut self.kinds {
            kind.is_vain = false;
        }
        self.is_known = false;
    }

    /// A job of a kind was looked at in vain: so are those of its group, or of its kind.
    pub(super) fn pass(&mut self, kind: usize, by_priority: bool) {
        if by_priority {
            self.kinds[kind].is_vain = true;
        } else {
            let group = self.kinds[kind].group;
            let alike = self.kinds.iter_mut().filter(|kind| kind.group == group);
            alike.for_each(|kind| kind.is_vain = true);
        }
        self.is_known = false;
    }

    /// The job that is looked at next.
    pub(super) fn next(&mut self) -> Option<JobId> {
        if !self.is_known {
            let open = self.busy.iter().filter(|&kind| !self.kinds[kind].is_vain);
            let firsts = open.filter_map(|kind| self.kinds[kind].waiting.first().copied());
            self.next = firsts.min();
            self.is_known = true;
        }
        self.next.map(|rank| self.jobs[rank as usize])
    }
}

/// What is known of a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    /// Its queue.
    pub leaf: u32,
    pub rank: Rank,
    pub kind: u32,
    /// Whether it cannot be preempted.
    pub is_fixed: bool,
    /// Since when it runs; `SimTime::NEVER` = it does not.
    pub since: SimTime,
}
