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
    /// Who joined a group before whom.
    pub(super) joined: u64,
    /// Turned into run time for the turns by adding what the job has run so far, ns.
    pub(super) offset: i64,
    /// Whether it has run on these GPUs since it joined.
    pub(super) has_run: bool,
}

impl Resident {
    /// Run time by which turns are given, ns: since it joined, from the least of those it met.
    #[inline]
    pub(super) fn run_time(&self, view: &ClusterView<'_>) -> i64 {
        view.executed(self.job).0 + self.offset
    }
}

/// GPUs of one gang size with the jobs that take turns on them.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) kind: usize,
    /// Which group was made before which: its index.
    pub(super) born: u64,
    pub(super) gpus: GpuSet,
    pub(super) span: Span,
    pub(super) residents: SmallVec<[Resident; 4]>,
    /// Who runs: the one whose turn it is, then who runs beside it.
    pub(super) running: SmallVec<[JobId; 2]>,
    /// `NEVER` while nobody waits for a turn.
    pub(super) turn_end: SimTime,
    /// `NEVER` while no trial goes on.
    pub(super) trial_end: SimTime,
    pub(super) is_touched: bool,
    pub(super) listed: Listed,
}

/// Where a group is listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listed {
    /// Its residents when it was listed; 0 = not listed.
    pub(super) residents: usize,
    /// Classes of the residents that may migrate, ascending.
    pub(super) classes: SmallVec<[usize; 4]>,
    /// Its span, if it has several servers.
    pub(super) span: Option<Span>,
}

impl Group {
    /// Whether a resident waits for its turn.
    #[inline]
    pub(super) fn has_waiting(&self) -> bool {
        self.residents.len() > self.running.len()
    }

    #[inline]
    pub(super) fn is_running(&self, job: JobId) -> bool {
        self.running.contains(&job)
    }

    /// Residents that may migrate: those that wait for a turn, else those that run beside another.
    pub(super) fn movable(&self) -> impl Iterator<Item = &Resident> {
        let (has_waiting, is_alone) = (self.has_waiting(), self.residents.len() == 1);
        self.residents
            .iter()
            .filter(move |one| !(is_alone || has_waiting && self.is_running(one.job)))
    }

    /// What the lists of [`super::crowd::Crowd`] should say of it.
    pub(super) fn listing(&self) -> Listed {
        let mut classes: SmallVec<[usize; 4]> = self.movable().map(|one| one.class).collect();
        classes.sort_unstable();
        classes.dedup();
        Listed {
            residents: self.residents.len(),
            classes,
            span: (self.span.1 > 1).then_some(self.span),
        }
    }

    /// When its next timer is due.
    pub(super) fn due(&self) -> SimTime {
        self.turn_end.min(self.trial_end)
    }
}
