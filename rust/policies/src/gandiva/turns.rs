//! Which residents of a group run, and until when.
//!
//! Turns and trials are counted in progress, from when all jobs of the turn are past their overhead: a switch
//! that costs more than a turn could last would otherwise stop all work.

use super::group::{Group, Resident};
use super::pairs::{Pairs, Verdict};
use super::params::GandivaParams;
use gangline_engine::ClusterView;
use gangline_model::{GpuTypeId, SimSpan, SimTime};
use smallvec::SmallVec;

/// What is to become of the turn of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is the next one's.
    Next,
    /// It goes on.
    Same,
    /// It begins anew on other GPUs.
    Elsewhere,
}

/// What turns are decided by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns<'a> {
    pub(super) view: &'a ClusterView<'a>,
    pub(super) params: &'a GandivaParams,
    pub(super) pairs: &'a Pairs,
    /// Type of the GPUs of the group.
    pub(super) gpu_type: GpuTypeId,
}

impl Turns<'_> {
    /// Overhead of the next start of a resident on the GPUs of its group, if the policy sets it.
    pub(super) fn own_overhead(&self, resident: &Resident) -> Option<SimSpan> {
        self.params.switch.filter(|_| resident.has_run)
    }

    /// When a resident will make progress, or since when it could: now.
    fn progress_start(&self, group: &Group, resident: &Resident) -> SimTime {
        let now = self.view.now();
        match self.view.run(resident.job) {
            Some(run) if *run.gpus() == group.gpus => now.max(run.only().progress_start),
            Some(_) => now + self.view.overhead(resident.job),
            None => {
                let own = self.own_overhead(resident);
                now + own.unwrap_or_else(|| self.view.overhead(resident.job))
            }
        }
    }

    /// When all running residents make progress.
    fn base(&self, group: &Group) -> SimTime {
        let running = group
            .residents
            .iter()
            .filter(|one| group.is_running(one.job));
        let starts = running.map(|one| self.progress_start(group, one));
        starts.max().expect("a resident of a group runs")
    }

    /// Residents by run time; of equal ones those that wait first, then in the order in which they joined.
    fn order(&self, group: &Group) -> SmallVec<[Resident; 4]> {
        let mut order = group.residents.clone();
        order.sort_by_key(|one| {
            (
                one.run_time(self.view),
                group.is_running(one.job),
                one.joined,
            )
        });
        order
    }

    /// Decides which residents run from now on.
    pub(super) fn take_turn(&self, group: &mut Group, turn: Turn) {
        match turn {
            Turn::Next => self.begin(group),
            Turn::Same => self.go_on(group),
            Turn::Elsewhere => self.restart(group),
        }
    }

    /// Gives the next turn to the resident that has run least, and to a co-runner.
    fn begin(&self, group: &mut Group) {
        let order = self.order(group);
        group.running.clear();
        group.running.push(order[0].job);
        group.trial_end = SimTime::NEVER;
        group.turn_end = SimTime::NEVER;
        self.pair_up(group, &order);
        self.set_turn_end(group);
    }

    /// A co-runner for a resident that runs alone, and the end of the turn.
    fn go_on(&self, group: &mut Group) {
        if self.params.pack && group.running.len() == 1 && group.has_waiting() {
            let order = self.order(group);
            self.pair_up(group, &order);
        }
        self.set_turn_end(group);
    }

    /// Adds the first resident in order that may be a co-runner of the one that runs.
    fn pair_up(&self, group: &mut Group, order: &[Resident]) {
        if !self.params.pack {
            return;
        }
        let lead = group.running[0];
        for other in order.iter().filter(|one| one.job != lead) {
            let verdict = self
                .pairs
                .verdict(self.view, lead, other.job, self.gpu_type);
            if verdict == Verdict::Apart {
                continue;
            }
            group.running.push(other.job);
            if verdict == Verdict::Unknown {
                self.set_trial_end(group);
            }
            return;
        }
    }

    fn set_trial_end(&self, group: &mut Group) {
        group.trial_end = self.base(group) + self.params.trial;
        if group.turn_end != SimTime::NEVER {
            group.turn_end = group.turn_end.max(group.trial_end);
        }
    }

    fn set_turn_end(&self, group: &mut Group) {
        if !group.has_waiting() {
            group.turn_end = SimTime::NEVER;
        } else if group.turn_end == SimTime::NEVER {
            group.turn_end = self.base(group) + self.params.quantum;
            if group.trial_end != SimTime::NEVER {
                group.turn_end = group.turn_end.max(group.trial_end);
            }
        }
    }

    /// The group has other GPUs: all residents start anew there.
    fn restart(&self, group: &mut Group) {
        for resident in &mut group.residents {
            resident.has_run = false;
        }
        group.turn_end = SimTime::NEVER;
        if group.trial_end != SimTime::NEVER {
            self.set_trial_end(group);
        }
        self.set_turn_end(group);
    }
}
