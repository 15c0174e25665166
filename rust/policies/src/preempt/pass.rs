//! The interface of preemption: a policy reports changes to its jobs, and then requests a plan.

use super::backfilling::Backfilling;
use super::jobs::{Jobs, Key, Measure, QueueState, Rank};
use super::running::RunningSet;
use crate::kit::Places;
use crate::kit::why::{NO_PLACE, OUTRANKED, STOPPED};
use crate::place::PlacementParams;
use gangline_engine::{Cause, Changes, ClusterView, Plan, PolicyError, Reason};
use gangline_model::{GpuSet, GpuTypeId, JobId, Verb};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Algorithm that applies the rule; see [`super`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Incremental,
    Backfilling,
    Walk,
}

/// The waiting and running jobs of a policy, and the algorithm that decides which of them run.
#[derive(Debug)]
pub(crate) struct Pass {
    pub(super) measure: Measure,
    algorithm: Algorithm,
    /// Demand classes and the placement rule.
    pub places: Places,
    /// Waiting jobs of each class, and the keys and queue states of all jobs.
    pub(super) queues: Jobs,
    /// For each class, whether the refusal of one job says nothing about the other jobs of the class; see
    /// [`Places::is_non_monotone`].
    pub(super) non_monotone: Vec<bool>,
    is_rule_known: bool,
    /// The admitted jobs; [`Algorithm::Walk`] does not maintain this set.
    pub(super) running: RunningSet,
    pub(super) backfilling: Backfilling,
    /// Whether there might be enough GPUs for the first job of any class. If this is false, there might be enough GPUs
    /// only for the classes in `woken`.
    pub(super) has_room: bool,
    /// Classes whose first job might have changed since the last pass.
    pub(super) woken: Vec<usize>,
    /// The first job of each class that is still to be tried. The buffer is reused.
    pub(super) heads: BinaryHeap<Reverse<(Rank, usize)>>,
    /// Waiting jobs that the count admits, each with its class. This buffer and `dropped` are reused; they are needed
    /// only if the placement rule never refuses a gang.
    pub(super) admitted: Vec<(Key, usize)>,
    /// Running jobs that the count no longer admits.
    pub(super) dropped: Vec<Key>,
    /// Jobs that the last plan stopped. They are recorded only if the placement rule may refuse a gang, because under
    /// any other rule, a job is stopped only if too few GPUs are left for it.
    stopped: Vec<JobId>,
}

impl Pass {
    /// Creates a pass that orders jobs by a measure.
    pub(crate) fn new(placement: PlacementParams, measure: Measure) -> Self {
        Self {
            measure,
            algorithm: if measure == Measure::Growing {
                Algorithm::Walk
            } else {
                Algorithm::Incremental
            },
            places: Places::new(placement),
            queues: Jobs::default(),
            non_monotone: Vec::new(),
            is_rule_known: false,
            running: RunningSet::new(measure, &[]),
            backfilling: Backfilling::default(),
            has_room: false,
            woken: Vec::new(),
            heads: BinaryHeap::new(),
            admitted: Vec::new(),
            dropped: Vec::new(),
            stopped: Vec::new(),
        }
    }

    /// Creates all data structures at their final size. Returns the jobs that have no place even on the empty cluster.
    pub(crate) fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        let unplaceable = self.places.start(view, plan)?;
        let classes = self.places.classes();
        self.queues = Jobs::new(classes.len(), view.jobs().len());
        if self.algorithm == Algorithm::Incremental {
            let is_fixed = self.measure.is_fixed();
            self.algorithm = match (
                view.cluster().gpu_types().len(),
                self.places.rule().may_refuse(),
            ) {
                (1, false) => Algorithm::Incremental,
                (1, true) if is_fixed => Algorithm::Backfilling,
                _ => Algorithm::Walk,
            };
        }
        if self.algorithm == Algorithm::Backfilling {
            // An admitted job might start much later, and its key must not change until then.
            self.measure = Measure::Fixed;
            self.backfilling = Backfilling::new(classes);
        }
        self.non_monotone = vec![false; classes.len()];
        let sizes: Vec<u32> = classes.iter().map(|class| class.gpus).collect();
        self.running = RunningSet::new(self.measure, &sizes);
        Ok(unplaceable)
    }

    /// Returns whether a job runs, after all plans so far.
    pub(crate) fn is_running(&self, job: JobId) -> bool {
        self.queues.is_running(job)
    }

    /// Returns why a job still waits after a plan. Running jobs that rank before it may leave too few GPUs; the reason
    /// then names the largest of these jobs. Otherwise, the plan stopped the job, or the placement rule found no GPUs
    /// for it. The cost is O(running jobs).
    pub(crate) fn why(&self, view: &ClusterView<'_>, job: JobId) -> Cause {
        let (now, jobs) = (view.now().0, view.jobs());
        let key = self.queues.key(job);
        let own = match self.queues.state(job) {
            QueueState::Waiting | QueueState::Unplaced => self.measure.waiting(key, jobs.gpus(job)),
            // The job was just stopped, so its key is still the key of a running job.
            _ => self.measure.running(key, jobs.gpus(job), now),
        };
        let mut left: SmallVec<[i64; 8]> = (0..view.cluster().gpu_types().len())
            .map(|at| i64::from(view.gpus_up(GpuTypeId::new(at))))
            .collect();
        let usable = view.usable_types(job);
        let mut largest: Option<(u32, JobId)> = None;
        for other in view.running() {
            let gpus = jobs.gpus(other);
            let rank = self.measure.running(self.queues.key(other), gpus, now);
            let gpu_type = view.run(other).expect("a running job").gpu_type();
            if rank < own && usable >> gpu_type.index() & 1 == 1 {
                left[gpu_type.index()] -= i64::from(gpus);
                if largest.is_none_or(|(most, _)| most < gpus) {
                    largest = Some((gpus, other));
                }
            }
        }
        let gang = i64::from(jobs.gpus(job));
        let has_enough = (0..left.len()).any(|at| usable >> at & 1 == 1 && left[at] >= gang);
        match largest {
            Some((_, other)) if !has_enough => Cause::of(&OUTRANKED, other),
            _ if self.stopped.contains(&job) => Cause::new(&STOPPED),
            _ => Cause::new(&NO_PLACE),
        }
    }

    /// Returns the reasons that [`Self::why`] can give.
    pub(crate) fn reasons() -> Vec<&'static Reason> {
        vec![&NO_PLACE, &OUTRANKED, &STOPPED]
    }

    pub(super) fn gpus(&self, class: usize) -> u32 {
        self.places.classes().get(class).gpus
    }

    /// Returns whether the placement rule may refuse a gang although enough GPUs are free.
    pub(super) fn may_refuse(&self) -> bool {
        self.places.rule().may_refuse()
    }

    /// Returns whether `running` is maintained.
    fn is_kept(&self) -> bool {
        matches!(
            self.algorithm,
            Algorithm::Incremental | Algorithm::Backfilling
        )
    }

    /// Records failures and repairs. The policy must call this method after the requeued jobs have left.
    pub(crate) fn servers_changed(&mut self, view: &ClusterView<'_>, changes: &Changes) {
        if changes.has_servers() {
            self.has_room = true;
            self.is_rule_known = false;
            let servers = changes.servers_down.iter().chain(&changes.servers_up);
            self.backfilling.servers_changed(view, servers);
        }
    }

    /// Removes a running job that has finished or was requeued by a failure.
    pub(crate) fn leave(&mut self, job: JobId) {
        let class = self.places.class_of(job);
        let key = self.queues.key(job);
        match self.queues.state(job) {
            QueueState::Running => {
                if self.is_kept() {
                    self.running.remove(key, self.gpus(class));
                }
                self.has_room = true;
                self.backfilling.leave_admitted(job);
            }
            QueueState::Backfilled => self.backfilling.leave_backfilled(class, key),
            _ => {}
        }
        self.queues.forget(job);
    }

    /// Puts a job into its queue, or changes the key of a waiting job.
    pub(crate) fn wait(&mut self, key: Key) {
        let class = self.places.class_of(key.job());
        if self.queues.state(key.job()) == QueueState::Unplaced {
            let old = self.queues.key(key.job());
            self.backfilling.remove_unplaced(class, old);
            self.running.remove(old, self.gpus(class));
            self.has_room = true;
        }
        let is_behind = |head: Key| head < key && head.job != key.job;
        // If the first job of a class does not fit, the jobs of the class behind it do not fit either.
        if !self.queues.head(class).is_some_and(is_behind) && !self.woken.contains(&class) {
            self.woken.push(class);
        }
        self.queues.push(class, key);
    }

    /// Changes the key of a running job. If the job moves forward in the order, no other job gains GPUs.
    pub(crate) fn rekey(&mut self, key: Key) {
        let job = key.job();
        let old = self.queues.key(job);
        if old == key {
            return;
        }
        let class = self.places.class_of(job);
        let state = self.queues.state(job);
        self.queues.set(key, state);
        if state == QueueState::Backfilled {
            self.backfilling.rekey_backfilled(class, old, key);
            self.woken.push(class);
            return;
        }
        self.has_room |= key > old;
        if self.is_kept() {
            let gpus = self.gpus(class);
            self.running.remove(old, gpus);
            self.running.insert(key, gpus);
        }
    }

    /// Returns the first job of a class that is not admitted by the count.
    pub(super) fn left_out(&mut self, class: usize) -> Option<Key> {
        let waiting = self.queues.head(class);
        let backfilled = self.backfilling.first_backfilled(class);
        waiting.into_iter().chain(backfilled).min()
    }

    /// Decides which jobs run and fills the plan. The policy must call [`Pass::wait`] to put preempted jobs back into
    /// their queues.
    pub(crate) fn decide(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) {
        if !self.is_rule_known && self.may_refuse() {
            self.know_rule(plan);
        }
        match self.algorithm {
            Algorithm::Incremental => self.incremental(view, plan),
            Algorithm::Backfilling if self.queues.is_empty() && self.backfilling.is_idle() => {}
            Algorithm::Backfilling => {
                self.count(view);
                self.place_and_backfill(view, plan);
            }
            Algorithm::Walk => self.walk(view, plan),
        }
        self.woken.clear();
        self.has_room = false;
        if self.may_refuse() {
            let stops = plan.actions().iter();
            let stops = stops.filter(|action| action.verb == Verb::Preempt);
            self.stopped.clear();
            self.stopped.extend(stops.map(|action| action.job));
        }
    }

    /// Looks up the properties of the placement rule for each class.
    fn know_rule(&mut self, plan: &mut Plan<'_>) {
        self.is_rule_known = true;
        let (places, free) = (&self.places, plan.free());
        let is_non_monotone = |class| {
            let types = &places.classes().get(class).types;
            types
                .iter()
                .any(|&t| places.is_non_monotone(free, class, t))
        };
        self.non_monotone = (0..places.classes().len()).map(is_non_monotone).collect();
        if self.algorithm != Algorithm::Backfilling {
            return;
        }
        self.backfilling.know_rule(free, &self.places);
        if self.non_monotone.contains(&true) {
            // Non-monotone classes are rare, because they need a gang that is wider than every rack. The walk tries
            // each job of such a class.
            self.algorithm = Algorithm::Walk;
            let backfilling = std::mem::take(&mut self.backfilling);
            for (class, key) in backfilling.unplaced() {
                self.queues.push(class, key);
            }
            for key in backfilling.backfilled() {
                self.queues.set(key, QueueState::Running);
            }
        }
    }

    /// Starts a job that is no longer in a queue.
    pub(super) fn start_job(
        &mut self,
        plan: &mut Plan<'_>,
        key: Key,
        gpus: GpuSet,
        state: QueueState,
    ) {
        let job = key.job();
        self.queues.set(key, state);
        plan.start(job, gpus);
    }

    pub(super) fn stop_job(&mut self, plan: &mut Plan<'_>, job: JobId) {
        plan.preempt(job);
        self.queues.forget(job);
    }

    /// Adds the first waiting job of a class to `heads`.
    pub(super) fn push_head(&mut self, class: usize) {
        if let Some(key) = self.queues.head(class) {
            let rank = self.measure.waiting(key, self.gpus(class));
            self.heads.push(Reverse((rank, class)));
        }
    }

    /// Returns the key that a waiting job gets if it runs from `now` on.
    pub(super) fn running_key(&self, key: Key, now: i64) -> Key {
        Key {
            main: self.measure.to_running(key.main, now),
            ..key
        }
    }
}
