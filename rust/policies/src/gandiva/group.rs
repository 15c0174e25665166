//! A group: some GPUs and the residents that take turns on them.

use crate::place::Level;
use gangline_engine::ClusterView;
use gangline_model::{GpuSet, JobId, SimTime};
use smallvec::SmallVec;

/// How far a group reaches: tier, then number of servers.
pub(super) type Span = (Level, usize);

/// A job of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resident {
    pub(super) job: JobId,
    pub(super) class: usize,
    /// How many had joined a group before it.
    pub(super) joined: u64,
    /// Turned into run time for the turns by adding what the job has run so far, ns.
    pub(super) offset: i64,
    /// Whether it has run on these GPUs since it joined.
    pub(super) has_run: bool,
}

impl Resident {
    /// Run time by which turns are given, ns: since it joined, from the least of those that were there.
    pub(super) fn run_time(&self, view: &ClusterView<'_>) -> i64 {
        view.executed(self.job).0 + self.offset
    }
}

/// GPUs of one gang size with the jobs that take turns on them.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) kind: usize,
    /// How many groups were made before it.
    pub(super) index: u64,
    pub(super) gpus: GpuSet,
    pub(super) span: Span,
    pub(super) residents: SmallVec<[Resident; 4]>,
    /// The job whose turn it is, then its co-runner.
    pub(super) running: SmallVec<[JobId; 2]>,
    /// `NEVER` while no resident waits for a turn.
    pub(super) turn_end: SimTime,
    /// `NEVER` while no trial goes on.
    pub(super) trial_end: SimTime,
}

/// Where a group is listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    /// Its residents; one without any is listed nowhere.
    pub(super) residents: usize,
    /// Classes of the residents that may migrate, ascending.
    pub(super) classes: SmallVec<[usize; 4]>,
    /// Its span, if it has several servers.
    pub(super) span: Option<Span>,
}

impl Group {
    /// Whether a resident waits for its turn.
    pub(super) fn has_waiting(&self) -> bool {
        self.residents.len() > self.running.len()
    }

    pub(super) fn is_running(&self, job: JobId) -> bool {
        self.running.contains(&job)
    }

    /// Residents that may migrate: those that wait for a turn, else co-runners.
    pub(super) fn movable(&self) -> impl Iterator<Item = &Resident> {
        let (has_waiting, is_alone) = (self.has_waiting(), self.residents.len() == 1);
        self.residents
            .iter()
            .filter(move |one| !(is_alone || has_waiting && self.is_running(one.job)))
    }

    /// What the lists of [`super::groups::Groups`] say of it.
    pub(super) fn listing(&self) -> Listing {
        let mut classes: SmallVec<[usize; 4]> = self.movable().map(|one| one.class).collect();
        classes.sort_unstable();
        classes.dedup();
        Listing {
            residents: self.residents.len(),
            classes,
            span: (self.span.1 > 1 && !self.residents.is_empty()).then_some(self.span),
        }
    }

    /// When its next timer is due.
    pub(super) fn due(&self) -> SimTime {
        self.turn_end.min(self.trial_end)
    }
}
