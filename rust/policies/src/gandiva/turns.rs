//! Decides which residents of a group run and when their turn ends.
//!
//! Only time with progress counts towards turns and trials: they start when all jobs of the turn have finished their
//! overhead. If overhead counted as well, a switch that takes longer than a turn would stop all work.

use super::groups::{Group, Resident};
use super::params::GandivaParams;
use gangline_engine::ClusterView;
use gangline_model::{GpuTypeId, JobId, SimSpan, SimTime};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// A decision about the next turn of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The next resident gets the turn.
    Next,
    /// The current turn continues.
    Same,
    /// The group has moved to other GPUs, and its turn starts again there.
    Elsewhere,
}

/// The data on which decisions about turns are based.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns<'a> {
    pub(super) view: &'a ClusterView<'a>,
    pub(super) params: &'a GandivaParams,
    pub(super) pairs: &'a Pairs,
    /// GPU type of the group.
    pub(super) gpu_type: GpuTypeId,
}

impl Turns<'_> {
    /// Returns the overhead that the policy sets for a resident's next start on its group's GPUs; `None` means the
    /// run's overhead.
    pub(super) fn own_overhead(&self, resident: &Resident) -> Option<SimSpan> {
        self.params.switch.filter(|_| resident.has_run)
    }

    /// Returns the instant at which a resident begins to make progress, or the current instant if it can already make
    /// progress.
    fn progress_start(&self, group: &Group, resident: &Resident) -> SimTime {
        let now = self.view.now();
        match self.view.run(resident.job) {
            Some(run) if *run.gpus() == group.gpus => now.max(run.only().progress_start),
            Some(_) => now + self.view.overhead_at(resident.job, &group.gpus),
            None => {
                let own = self.own_overhead(resident);
                now + own.unwrap_or_else(|| self.view.overhead_at(resident.job, &group.gpus))
            }
        }
    }

    /// Returns the first instant at which all running residents make progress.
    fn base(&self, group: &Group) -> SimTime {
        let running = group
            .residents
            .iter()
            .filter(|one| group.is_running(one.job));
        let starts = running.map(|one| self.progress_start(group, one));
        starts.max().expect("a resident of a group runs")
    }

    /// Returns the residents, sorted by run time. Ties go to waiting residents, then to residents that joined earlier.
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

    /// Gives the next turn to the resident with the least run time and, if possible, to a co-runner.
    fn begin(&self, group: &mut Group) {
        let order = self.order(group);
        group.running.clear();
        group.running.push(order[0].job);
        group.trial_end = SimTime::NEVER;
        group.turn_end = SimTime::NEVER;
        self.pair_up(group, &order);
        self.set_turn_end(group);
    }

    /// Finds a co-runner for a resident that runs alone, and sets the end of the turn.
    fn go_on(&self, group: &mut Group) {
        if self.params.pack && group.running.len() == 1 && group.has_waiting() {
            let order = self.order(group);
            self.pair_up(group, &order);
        }
        self.set_turn_end(group);
    }

    /// Adds the first resident in the order that may run together with the current resident.
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

    /// Restarts all residents after the group has moved to other GPUs.
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

// The following code uses trials to find out which models make good co-runners, and stores the results for each pair of
// models.

/// A pair gains by sharing only if the sum of its relative speeds exceeds `pack_gain` by more than this.
const ROUNDING: f64 = 1e-12; // This is our own choice; it is thousands of times larger than the rounding errors.

/// Whether two jobs should run together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The pair may not share a GPU, or gains nothing by sharing.
    Apart,
    /// The pair gains by sharing.
    Together,
    /// A trial is needed to find out.
    Unknown,
}

/// GPU type, gang size and the two model labels (the smaller one first); jobs without a label share one label.
type PairKey = (GpuTypeId, u32, u32, u32);

/// The results of all trials so far.
#[derive(Debug)]
pub(super) struct Pairs {
    /// For each pair of models, the sum of the relative speeds of two jobs that run together. It is 2 if they do not
    /// slow each other down.
    sums: FxHashMap<PairKey, f64>,
    gain: f64,
    /// Number of trials whose pair gains by sharing.
    pub(super) kept: u64,
    /// Number of trials whose pair gains nothing.
    pub(super) undone: u64,
}

impl Pairs {
    pub(super) fn new(gain: f64) -> Self {
        Self {
            sums: FxHashMap::default(),
            gain,
            kept: 0,
            undone: 0,
        }
    }

    fn key(view: &ClusterView<'_>, a: JobId, b: JobId, gpu_type: GpuTypeId) -> PairKey {
        let label = |job| view.jobs().model(job).unwrap_or(u32::MAX);
        let (a_label, b_label) = (label(a), label(b));
        let gpus = view.jobs().gpus(a);
        (gpu_type, gpus, a_label.min(b_label), a_label.max(b_label))
    }

    /// Returns whether two jobs of the same gang size should run together on a type.
    pub(super) fn verdict(
        &self,
        view: &ClusterView<'_>,
        a: JobId,
        b: JobId,
        gpu_type: GpuTypeId,
    ) -> Verdict {
        let memory = view
            .memory_bytes(a, 0)
            .saturating_add(view.memory_bytes(b, 0));
        let room = view.cluster().gpu_types()[gpu_type.index()].memory_bytes;
        let is_allowed = view.xi(a, b, gpu_type).is_some() && view.xi(b, a, gpu_type).is_some();
        if memory > room || !is_allowed {
            return Verdict::Apart;
        }
        match self.sums.get(&Self::key(view, a, b, gpu_type)) {
            None => Verdict::Unknown,
            Some(&sum) if self.is_worth(sum) => Verdict::Together,
            Some(_) => Verdict::Apart,
        }
    }

    fn is_worth(&self, sum: f64) -> bool {
        sum - self.gain > ROUNDING
    }

    /// Records the speeds of a pair of jobs that run together. Returns whether the pair gains by sharing. Only the
    /// first measurement of a pair is stored.
    pub(super) fn measure(
        &mut self,
        view: &ClusterView<'_>,
        a: JobId,
        b: JobId,
        gpu_type: GpuTypeId,
    ) -> bool {
        let speed = |job| {
            let run = view
                .run(job)
                .expect("both residents run until the trial ends");
            run.rate / view.rate_alone_now(job, run.gpus())
        };
        let (first, second) = (a.min(b), a.max(b));
        let sum = speed(first) + speed(second);
        let known = self.sums.entry(Self::key(view, a, b, gpu_type));
        let sum = *known.or_insert(sum);
        let is_worth = self.is_worth(sum);
        if is_worth {
            self.kept += 1;
        } else {
            self.undone += 1;
        }
        is_worth
    }
}
