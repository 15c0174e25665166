//! The steps of one decision: departures, finding groups for jobs, migration, and turns.

use super::affinity::Affinity;
use super::groups::Groups;
use super::groups::Resident;
use super::params::GandivaParams;
use super::turns::Pairs;
use super::turns::{Turn, Turns};
use crate::kit::why::NO_PLACE;
use crate::kit::{ByClass, JobTimers, Places};
use crate::place::Level;
use gangline_engine::{
    Cause, Changes, ClusterView, FreeIndex, Next, Plan, Policy, PolicyError, PolicyTraits, Reason,
    WakeOn,
};
use gangline_model::{GpuSet, GpuTypeId, JobId, SimTime, Terms};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The job takes turns with a running job on the same GPUs.
pub(crate) static TURN: Reason = Reason::new(
    "turn",
    "it takes turns with a job on the same GPUs",
    "it took turns on its GPUs with {others}",
);

/// Jobs that may share a group: they have the same GPU type and gang size, and the placement rule cannot tell them
/// apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) gpu_type: GpuTypeId,
    pub(super) gpus: u32,
}

/// The policy `gandiva`: time slicing on shared GPUs, migration and packing.
#[derive(Debug)]
pub(crate) struct Gandiva {
    pub(super) params: GandivaParams,
    pub(super) places: Places,
    pub(super) kinds: Vec<Kind>,
    /// Kinds of each class, in the order of the class's types.
    pub(super) kinds_of: Vec<SmallVec<[usize; 4]>>,
    pub(super) groups: Groups,
    pub(super) affinity: Affinity,
    pairs: Pairs,
    /// Jobs without a group.
    queue: ByClass<JobId>,
    heads: BinaryHeap<Reverse<(JobId, usize)>>,
    /// Timers for the ends of turns and trials, keyed by the slot of the group.
    timers: JobTimers,
    /// Groups whose running residents have all finished, so that no resident runs until the next turn begins.
    idle: Vec<u32>,
    /// Whether groups on several servers might now find a narrower place although they found none at the last search.
    pub(super) may_narrow: bool,
    pub(super) counts: Counts,
}

/// Counters that are shown in the notes of the result.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    joins: u64,
    switches: u64,
    pub(super) spreads: u64,
    pub(super) narrowings: u64,
}

impl Gandiva {
    pub(crate) fn new(params: GandivaParams) -> Self {
        Self {
            places: Places::new(params.placement.clone()),
            kinds: Vec::new(),
            kinds_of: Vec::new(),
            groups: Groups::default(),
            affinity: Affinity::default(),
            pairs: Pairs::new(params.pack_gain),
            queue: ByClass::new(0),
            heads: BinaryHeap::new(),
            timers: JobTimers::new(0),
            idle: Vec::new(),
            may_narrow: false,
            counts: Counts::default(),
            params,
        }
    }

    fn learn_kinds(&mut self) {
        let mut known: FxHashMap<(GpuTypeId, u32, u8), usize> = FxHashMap::default();
        for class in self.places.classes().iter() {
            let mut kinds = SmallVec::new();
            for &gpu_type in &class.types {
                let key = (gpu_type, class.gpus, class.demand.skew.kind_on(gpu_type));
                let next = self.kinds.len();
                let kind = *known.entry(key).or_insert(next);
                if kind == next {
                    self.kinds.push(Kind {
                        gpu_type,
                        gpus: class.gpus,
                    });
                }
                kinds.push(kind);
            }
            self.kinds_of.push(kinds);
        }
    }

    fn check(&self, view: &ClusterView<'_>) -> Result<(), PolicyError> {
        let bad = |field: &str, value: String, expected: &str| {
            Err(PolicyError::Parameter {
                policy: "gandiva".to_owned(),
                field: field.to_owned(),
                value,
                expected: expected.to_owned(),
            })
        };
        if self.params.pack && view.max_share() < 2 {
            let expected =
                "false if a GPU holds at most one job; [sharing] max_share = 2 allows two";
            return bad("pack", "true".to_owned(), expected);
        }
        let interval = view.checkpoint_interval();
        if self.params.max_residents > 1
            && interval.is_some_and(|interval| interval > self.params.quantum)
        {
            let value = self.params.quantum.seconds().to_string();
            let expected = "at least checkpoint_interval_s; otherwise turns would save no progress";
            return bad("quantum_s", value, expected);
        }
        Ok(())
    }

    /// Records which jobs have left, and which servers have failed or been repaired. Returns whether GPUs or turns have
    /// become free.
    fn update(&mut self, view: &ClusterView<'_>, changes: &Changes, plan: &mut Plan<'_>) -> bool {
        let mut emptied: SmallVec<[u32; 8]> = SmallVec::new();
        for &job in &changes.finished {
            let slot = self.groups.of(job).expect("a running job has a group");
            self.groups.leave(slot, job);
            let group = self.groups.get(slot);
            if group.residents.is_empty() {
                emptied.push(slot);
            } else if group.running.is_empty() {
                self.idle.push(slot);
            }
        }
        let mut broken: SmallVec<[u32; 8]> = SmallVec::new();
        let groups = &self.groups;
        self.idle.retain(|&slot| {
            let gpus = &groups.get(slot).gpus;
            let is_up = gpus.by_server().iter().all(|part| view.is_up(part.server));
            if is_up {
                // The engine counts these GPUs as free, but they still belong to the group.
                plan.take(gpus);
            } else {
                broken.push(slot);
            }
            is_up
        });
        for slot in emptied.into_iter().chain(broken) {
            self.remove(plan.free(), slot);
        }
        for &job in &changes.requeued {
            if let Some(slot) = self.groups.of(job) {
                self.remove(plan.free(), slot);
            }
        }
        for &server in changes.servers_down.iter().chain(&changes.servers_up) {
            self.affinity.refresh(plan.free(), server);
            self.may_narrow = true;
        }
        for &job in &changes.arrived {
            self.wait(job);
        }
        changes.has_room()
    }

    fn wait(&mut self, job: JobId) {
        let class = self.places.class_of(job);
        self.queue.push(class, job);
    }

    /// Removes a group. The remaining residents of the group wait like jobs that have just arrived.
    fn remove(&mut self, free: &FreeIndex, slot: u32) {
        let group = self.groups.remove(slot);
        self.affinity.release(free, &group.gpus);
        self.timers.clear(JobId(slot));
        self.may_narrow = true;
        for resident in &group.residents {
            self.wait(resident.job);
        }
    }

    /// Ends trials that are over and stores their measurements. Returns the groups whose turn or trial ends now, in
    /// index order.
    fn end_trials(&mut self, view: &ClusterView<'_>) -> Vec<u32> {
        let mut due = Vec::new();
        while let Some(slot) = self.timers.due(view.now()) {
            due.push(slot.0);
        }
        due.sort_unstable_by_key(|&slot| self.groups.get(slot).index);
        for &slot in &due {
            let gpu_type = self.kinds[self.groups.get(slot).kind].gpu_type;
            let pairs = &mut self.pairs;
            self.groups.change(slot, |group| {
                if group.trial_end > view.now() {
                    return;
                }
                let [lead, partner] = group.running[..] else {
                    unreachable!("a trial has two residents");
                };
                group.trial_end = SimTime::NEVER;
                if !pairs.measure(view, lead, partner, gpu_type) {
                    group.running.truncate(1);
                }
            });
        }
        due
    }

    /// Finds a place for a new group of a job, on the first of its types that has one. On each type, servers that the
    /// job's size class has claimed are tried first, then servers without a group, and then the placement rule.
    pub(super) fn find_place(
        &mut self,
        view: &ClusterView<'_>,
        free: &mut FreeIndex,
        class: usize,
        job: JobId,
    ) -> Option<(usize, GpuSet)> {
        (0..self.kinds_of[class].len()).find_map(|order| {
            let kind = self.kinds_of[class][order];
            let gpus = self.find_place_of(view, free, kind, (class, job))?;
            Some((kind, gpus))
        })
    }

    /// Does the same as [`Self::find_place`], but on one type only.
    pub(super) fn find_place_of(
        &mut self,
        view: &ClusterView<'_>,
        free: &mut FreeIndex,
        kind: usize,
        (class, job): (usize, JobId),
    ) -> Option<GpuSet> {
        let Kind { gpu_type, gpus } = self.kinds[kind];
        let fit = self.params.placement.fit;
        if let Some(at) = self.affinity.find(fit, kind, gpu_type, gpus) {
            return Some(self.places.rule().place_at(free.pool(gpu_type), at, gpus));
        }
        let job = (job, view.starts(job));
        self.places.place_in(free, class, job, gpu_type)
    }

    /// Creates a group with its first resident.
    pub(super) fn make_group(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        (kind, gpus): (usize, GpuSet),
        (class, job): (usize, JobId),
    ) {
        plan.take(&gpus);
        self.affinity.claim(plan.free(), kind, &gpus);
        let span = (plan.free().tier(&gpus), gpus.by_server().len());
        let first = Resident {
            job,
            class,
            joined: 0,
            offset: -view.executed(job).0,
            has_run: false,
        };
        self.groups.make(kind, gpus, span, first);
        self.may_narrow = true;
    }

    /// Adds a job to the group with the fewest residents, among the groups that it may join. Returns whether there was
    /// such a group.
    fn join(&mut self, view: &ClusterView<'_>, class: usize, job: JobId) -> bool {
        let kinds = self.kinds_of[class].iter().enumerate();
        let open = kinds.filter_map(|(order, &kind)| {
            let (residents, index, slot) = self.groups.most_open(kind)?;
            Some((residents, order, index, slot))
        });
        let Some((.., slot)) = open.min() else {
            return false;
        };
        let residents = &self.groups.get(slot).residents;
        let least = residents.iter().map(|one| one.run_time(view)).min();
        let resident = Resident {
            job,
            class,
            joined: 0,
            offset: least.unwrap_or(0) - view.executed(job).0,
            has_run: false,
        };
        self.groups.join(slot, resident);
        self.counts.joins += 1;
        true
    }

    /// Returns whether the first job of a class might find a place for a new group, or a group to join.
    fn can(&self, free: &mut FreeIndex, class: usize) -> bool {
        let mut kinds = self.kinds_of[class].iter();
        kinds.any(|&kind| self.groups.most_open(kind).is_some()) || self.places.can(free, class)
    }

    /// Finds groups for jobs in order of arrival; jobs that find no group are skipped. If the first job of a class
    /// finds no group, the rest of the class is skipped. Groups that are created for other classes do not help this
    /// class.
    fn serve(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>, arrived: Option<&[JobId]>) {
        let mut classes: SmallVec<[usize; 16]> = SmallVec::new();
        if let Some(arrived) = arrived {
            classes.extend(arrived.iter().map(|&job| self.places.class_of(job)));
            classes.sort_unstable();
            classes.dedup();
        } else {
            classes.extend(self.queue.busy());
        }
        for class in classes {
            self.push_head(plan.free(), class);
        }
        while let Some(Reverse((job, class))) = self.heads.pop() {
            if let Some(place) = self.find_place(view, plan.free(), class, job) {
                self.make_group(view, plan, place, (class, job));
            } else if !self.join(view, class, job) {
                continue;
            }
            self.queue.pop(class);
            self.push_head(plan.free(), class);
        }
    }

    fn push_head(&mut self, free: &mut FreeIndex, class: usize) {
        if let Some(job) = self.queue.first(class)
            && self.can(free, class)
        {
            self.heads.push(Reverse((job, class)));
        }
    }

    /// Decides the next turn in a group.
    pub(super) fn set_turn(&mut self, view: &ClusterView<'_>, slot: u32, turn: Turn) {
        let turns = Turns {
            view,
            params: &self.params,
            pairs: &self.pairs,
            gpu_type: self.kinds[self.groups.get(slot).kind].gpu_type,
        };
        self.groups
            .change(slot, |group| turns.take_turn(group, turn));
    }

    /// Decides the turns of the groups that have changed, and writes the actions.
    fn apply(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>, due: &[u32]) {
        for &slot in due {
            let group = self.groups.get(slot);
            if group.turn_end <= view.now() {
                self.set_turn(view, slot, Turn::Next);
            }
        }
        for slot in self.groups.take_changed() {
            self.set_turn(view, slot, Turn::Same);
            self.timers.set(JobId(slot), self.groups.get(slot).due());
            self.write(view, plan, slot);
        }
        // `set_turn` has marked these groups as changed again, but they need no further decision.
        self.groups.forget_changed();
    }

    /// Writes the actions that make the cluster match the state of a group.
    fn write(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>, slot: u32) {
        let group = self.groups.get_mut(slot);
        let switch = self.params.switch;
        for resident in &mut group.residents {
            let job = resident.job;
            let runs = group.running.contains(&job);
            match view.run(job) {
                None if runs => {
                    let terms = Terms {
                        overhead: switch.filter(|_| resident.has_run),
                        ..Terms::default()
                    };
                    plan.start_on(job, group.gpus.clone(), terms);
                }
                Some(run) if runs && *run.gpus() != group.gpus => {
                    plan.move_to(job, group.gpus.clone());
                }
                Some(_) if !runs => {
                    plan.preempt(job);
                    self.counts.switches += 1;
                }
                _ => {}
            }
            resident.has_run |= runs;
        }
    }
}

impl Policy for Gandiva {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            wake_on: WakeOn::QUEUE | WakeOn::TIMER,
            max_share: 1 + u32::from(self.params.pack),
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        self.check(view)?;
        let unplaceable = self.places.start(view, plan)?;
        self.learn_kinds();
        let (jobs, classes) = (view.jobs().len(), self.places.classes().len());
        let kinds = self.kinds.len();
        self.groups = Groups::new(jobs, classes, kinds, self.params.max_residents);
        self.queue = ByClass::new(classes);
        self.timers = JobTimers::new(view.cluster().gpus_total() as usize);
        // If no job can join a group, there is no need to keep groups of the same size class together on servers.
        if self.params.max_residents > 1 && self.places.rule().is_narrow() {
            self.affinity = Affinity::new(plan.free(), view.cluster().servers().len(), kinds);
        }
        Ok(unplaceable)
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        let has_grown = self.update(view, changes, plan);
        let due = self.end_trials(view);
        for slot in std::mem::take(&mut self.idle) {
            self.set_turn(view, slot, Turn::Next);
        }
        self.serve(view, plan, (!has_grown).then_some(&changes.arrived));
        let is_asked = !(changes.finished.is_empty() && due.is_empty());
        if is_asked && self.migrate(view, plan) {
            self.serve(view, plan, None);
        }
        self.apply(view, plan, &due);
        self.timers.flush(view.now(), plan);
        Ok(Next::Ask)
    }

    fn reasons(&self) -> Vec<&'static Reason> {
        vec![&NO_PLACE, &TURN]
    }

    fn why(&self, _view: &ClusterView<'_>, job: JobId) -> Option<Cause> {
        let Some(slot) = self.groups.of(job) else {
            return Some(Cause::new(&NO_PLACE));
        };
        let running = self.groups.get(slot).running.first();
        running.copied().map(|other| Cause::of(&TURN, other))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("joins", self.counts.joins),
            ("switches", self.counts.switches),
            ("spreads", self.counts.spreads),
            ("narrowings", self.counts.narrowings),
            ("pairs_kept", self.pairs.kept),
            ("pairs_undone", self.pairs.undone),
        ]
    }
}

// Migration moves residents of shared groups to free GPUs, and gangs on many servers to fewer servers.

impl Gandiva {
    /// Makes up to `moves_per_event` migrations: first out of shared groups, then to narrower places. Returns whether
    /// there was a migration.
    pub(super) fn migrate(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) -> bool {
        let most = self.params.moves_per_event;
        let mut moves = 0;
        while moves < most && self.spread(view, plan) {
            moves += 1;
        }
        while moves < most && self.narrow(view, plan) {
            moves += 1;
        }
        moves > 0
    }

    /// Moves a resident of the most shared group to a new group. Among the residents for which a new group can be
    /// created, the one with the least run time moves.
    fn spread(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) -> bool {
        let mut placeable: SmallVec<[usize; 8]> = SmallVec::new();
        let mut most = None;
        let classes: SmallVec<[usize; 8]> = self.groups.movable_classes().collect();
        for class in classes {
            if !self.places.can(plan.free(), class) {
                continue;
            }
            let entry = self.groups.most_shared(class);
            let job = self.movable_of(entry.2, class);
            if self.find_place(view, plan.free(), class, job).is_some() {
                placeable.push(class);
                most = Some(most.map_or(entry, |best| entry.min(best)));
            }
        }
        let Some((Reverse(_), _, slot)) = most else {
            return false;
        };
        let movable = self.groups.get(slot).movable();
        let least = movable
            .filter(|one| placeable.contains(&one.class))
            .min_by_key(|one| (view.executed(one.job), one.joined))
            .copied()
            .expect("a resident that may migrate made the group a candidate");
        let place = self.find_place(view, plan.free(), least.class, least.job);
        self.groups.leave(slot, least.job);
        let place = place.expect("asked before");
        self.make_group(view, plan, place, (least.class, least.job));
        self.counts.spreads += 1;
        true
    }

    /// Returns a resident of the given class that may leave the group.
    fn movable_of(&self, slot: u32, class: usize) -> JobId {
        let mut movable = self.groups.get(slot).movable();
        let found = movable.find(|one| one.class == class);
        found
            .expect("a group is listed under a class only if a resident of the class may migrate")
            .job
    }

    /// Moves one group to GPUs that are closer together. Among the groups for which such GPUs are free, the one with
    /// the widest span moves.
    fn narrow(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) -> bool {
        if !self.may_narrow || !self.places.rule().is_narrow() {
            return false;
        }
        let mut best = None;
        for kind in 0..self.kinds.len() {
            let Some(entry) = self.groups.widest(kind) else {
                continue;
            };
            let (Reverse(span), _, slot) = entry;
            let is_least = span <= narrowest(plan.free(), self.kinds[kind]);
            if is_least || best.as_ref().is_some_and(|(other, _)| *other < entry) {
                continue;
            }
            let group = self.groups.get(slot);
            let job = group.running[0];
            let class = self.places.class_of(job);
            if !self
                .places
                .can_on(plan.free(), class, self.kinds[kind].gpu_type)
            {
                continue;
            }
            let place = self.find_place_of(view, plan.free(), kind, (class, job));
            let place =
                place.filter(|gpus| (plan.free().tier(gpus), gpus.by_server().len()) < span);
            best = place.map(|gpus| (entry, gpus)).or(best);
        }
        let Some(((.., slot), gpus)) = best else {
            self.may_narrow = false;
            return false;
        };
        let group = self.groups.get(slot);
        let (kind, old) = (group.kind, group.gpus.clone());
        plan.give_back(&old);
        plan.take(&gpus);
        self.affinity.release(plan.free(), &old);
        self.affinity.claim(plan.free(), kind, &gpus);
        let span = (plan.free().tier(&gpus), gpus.by_server().len());
        self.groups.change(slot, |group| {
            group.span = span;
            group.gpus = gpus;
        });
        self.set_turn(view, slot, Turn::Elsewhere);
        self.counts.narrowings += 1;
        true
    }
}

/// Returns the narrowest span that a gang of the given kind can have on healthy servers.
fn narrowest(free: &FreeIndex, kind: Kind) -> (Level, usize) {
    let pool = free.pool(kind.gpu_type);
    let servers = kind.gpus.div_ceil(pool.server_gpus_max().max(1)) as usize;
    let level = if servers <= 1 {
        Level::Server
    } else if kind.gpus <= pool.rack_up_max() {
        Level::Rack
    } else {
        Level::Network
    };
    (level, servers)
}
