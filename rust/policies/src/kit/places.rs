//! Demand classes (sets of gangs that the cluster cannot tell apart) and the placement of their jobs.
//!
//! Whether a gang fits depends only on its class, so a queue needs only one check per class instead of one per job.
//! Classes are determined once, before the first event; a typical trace has tens of classes.

use crate::place::{Demand, PlacementParams, Placer, Skew};
use gangline_engine::{ClusterView, FreeIndex, Plan, PolicyError};
use gangline_model::{GpuSet, GpuTypeId, JobId, ServerId};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The types that a class may use, in the order in which the policy tries them.
pub type TypeList = SmallVec<[GpuTypeId; 4]>;

/// Gangs of the same size, with the same GPU types and the same skew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemandClass {
    /// Gang size.
    pub gpus: u32,
    /// Usable types in descending order of base rate, then by index.
    pub types: TypeList,
    /// The demand of each job of the class, in the form that the placement rule reads.
    pub demand: Demand,
}

/// The classes of a trace.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    list: Vec<DemandClass>,
    of: Vec<u16>,
}

impl Classes {
    fn new(view: &ClusterView<'_>, placer: &Placer) -> Result<Self, PolicyError> {
        let jobs = view.jobs();
        let mut found: FxHashMap<(u32, Skew, TypeList), u16> = FxHashMap::default();
        let mut classes = Self {
            list: Vec::new(),
            of: Vec::with_capacity(jobs.len()),
        };
        // If jobs differ only in gang size and skew, these two properties define a class.
        let is_uniform = jobs.is_uniform();
        let mut small = [[u16::MAX; 2]; 128];
        for job in jobs.ids() {
            let demand = placer.demand(jobs, job, 0);
            let slot = (demand.gpus as usize, usize::from(demand.skew == Skew::HIGH));
            let is_plain = slot.1 == 1 || demand.skew == Skew::LOW;
            let is_small = is_uniform && is_plain && slot.0 < small.len();
            if is_small && small[slot.0][slot.1] != u16::MAX {
                classes.of.push(small[slot.0][slot.1]);
                continue;
            }
            let types: TypeList = view.types_of(job).collect();
            let next = classes.list.len() as u16;
            let class = *found
                .entry((demand.gpus, demand.skew, types.clone()))
                .or_insert_with(|| {
                    classes.list.push(DemandClass {
                        gpus: demand.gpus,
                        types,
                        demand,
                    });
                    next
                });
            if classes.list.len() >= usize::from(u16::MAX) {
                return Err(PolicyError::Failed {
                    message: "the trace has more than 65534 kinds of gangs".to_owned(),
                });
            }
            if is_small {
                small[slot.0][slot.1] = class;
            }
            classes.of.push(class);
        }
        Ok(classes)
    }

    /// Returns the number of classes.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the class of a job.
    #[inline]
    pub fn of(&self, job: JobId) -> usize {
        usize::from(self.of[job.index()])
    }

    /// Returns the properties of a class.
    #[inline]
    pub fn get(&self, class: usize) -> &DemandClass {
        &self.list[class]
    }

    /// Returns all classes, ordered by their first job.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &DemandClass> {
        self.list.iter()
    }
}

/// The demand classes of the trace, and the placement rule that finds GPUs for their jobs.
#[derive(Debug)]
pub struct Places {
    params: PlacementParams,
    classes: Classes,
    placer: Option<Placer>,
    /// For each class, a bit mask of the types on which a gang of the class would have a place on the empty cluster.
    homes: Vec<u64>,
}

impl Places {
    /// Stores the placement rule; [`Self::start`] determines the classes.
    pub fn new(params: PlacementParams) -> Self {
        Self {
            params,
            classes: Classes::default(),
            placer: None,
            homes: Vec::new(),
        }
    }

    /// Determines the classes of the trace. Returns the jobs that have no place even on the empty cluster.
    ///
    /// # Errors
    /// Returns [`PolicyError`] for a trace with too many classes.
    pub fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        let mut placer = Placer::new(self.params.clone(), view);
        self.classes = Classes::new(view, &placer)?;
        let free = plan.free();
        let homes = self.classes.iter().map(|class| {
            let has_place = |t: &&GpuTypeId| placer.place(free, **t, &class.demand).is_some();
            let types = class.types.iter().filter(has_place);
            types.fold(0, |homes, t| homes | 1 << t.index())
        });
        self.homes = homes.collect();
        self.placer = Some(placer);
        if self.homes.iter().all(|&homes| homes != 0) {
            return Ok(Vec::new());
        }
        Ok(view
            .jobs()
            .ids()
            .filter(|&job| self.homes[self.classes.of(job)] == 0)
            .collect())
    }

    /// Returns whether a job may use a type and would have a place there on the empty cluster.
    #[inline]
    pub(crate) fn has_home(&self, job: JobId, gpu_type: GpuTypeId) -> bool {
        self.homes[self.classes.of(job)] >> gpu_type.index() & 1 == 1
    }

    /// Returns the rate of a gang on a type; 0 if the gang would have no place there even on the empty cluster.
    #[inline]
    pub(crate) fn rate(&self, view: &ClusterView<'_>, job: JobId, gpu_type: GpuTypeId) -> f64 {
        if self.has_home(job, gpu_type) {
            view.base_rate(job, gpu_type)
        } else {
            0.0
        }
    }

    /// Returns the index of a job's class.
    #[inline]
    pub fn class_of(&self, job: JobId) -> usize {
        self.classes.of(job)
    }

    /// Returns the properties of the class of a job.
    #[inline]
    pub(crate) fn class(&self, job: JobId) -> &DemandClass {
        self.classes.get(self.classes.of(job))
    }

    /// Returns the classes.
    #[inline]
    pub fn classes(&self) -> &Classes {
        &self.classes
    }

    /// Returns the placement rule.
    ///
    /// # Panics
    /// Panics if this method is called before [`Self::start`].
    #[inline]
    pub fn rule(&self) -> &Placer {
        let rule = self.placer.as_ref();
        rule.expect("start comes before every decision")
    }

    /// See [`Placer::is_non_monotone`].
    pub fn is_non_monotone(&self, free: &FreeIndex, class: usize, gpu_type: GpuTypeId) -> bool {
        self.rule()
            .is_non_monotone(free, gpu_type, &self.classes.list[class].demand)
    }

    /// Returns whether some class might find a place when few GPUs are free, but none when more are free; see
    /// [`Placer::is_non_monotone`].
    pub fn has_non_monotone(&self, free: &FreeIndex) -> bool {
        self.rule().may_refuse()
            && (0..self.classes.len()).any(|class| {
                let types = &self.classes.list[class].types;
                types.iter().any(|&t| self.is_non_monotone(free, class, t))
            })
    }

    /// Returns whether a gang of the class might fit on one of its types. The cost is O(types).
    #[inline]
    pub fn can(&self, free: &mut FreeIndex, class: usize) -> bool {
        let class = &self.classes.list[class];
        let placer = self.rule();
        class.types.iter().any(|&gpu_type| {
            free.pool(gpu_type).free_total() >= class.gpus
                && placer.can(free, gpu_type, &class.demand)
        })
    }

    /// Returns whether a gang of the class might fit on a type. The cost is O(1).
    #[inline]
    pub fn can_on(&self, free: &mut FreeIndex, class: usize, gpu_type: GpuTypeId) -> bool {
        let placer = self.rule();
        placer.can(free, gpu_type, &self.classes.list[class].demand)
    }

    /// Returns whether a job now has a place on one of the types. This method is meant for use outside decisions, where
    /// there is no draft. The cost is O(types), or O(servers) if the rule may refuse a gang although enough GPUs are
    /// free.
    pub(crate) fn has_place(
        &self,
        view: &ClusterView<'_>,
        job: JobId,
        types: &[GpuTypeId],
    ) -> bool {
        let of = self.class(job).demand;
        let mut enough = types.iter().filter(|&&id| view.gpus_free(id) >= of.gpus);
        if !self.rule().may_refuse() {
            return enough.next().is_some();
        }
        let servers = || (0..view.cluster().servers().len()).map(ServerId::new);
        let down = servers().filter(|&id| !view.is_up(id));
        let mut free = FreeIndex::with_down(view.cluster(), down);
        for server in servers().filter(|&id| view.is_up(id)) {
            free.sync(server, view.free_mask(server));
        }
        let starts = view.starts(job);
        let demand = Demand { job, starts, ..of };
        let mut rule = self.rule().clone();
        enough.any(|&id| rule.place(&mut free, id, &demand).is_some())
    }

    /// Returns GPUs of one type for a job of the class, chosen from those that are free in the draft.
    #[inline]
    pub fn place_on(
        &mut self,
        plan: &mut Plan<'_>,
        class: usize,
        job: JobId,
        gpu_type: GpuTypeId,
    ) -> Option<GpuSet> {
        let starts = plan.starts(job);
        self.place_in(plan.free(), class, (job, starts), gpu_type)
    }

    /// Returns GPUs of one type for a job of the class, chosen from those that are free in an index. `job` contains the
    /// job and the number of times that it has been started.
    #[inline]
    pub fn place_in(
        &mut self,
        free: &mut FreeIndex,
        class: usize,
        job: (JobId, u32),
        gpu_type: GpuTypeId,
    ) -> Option<GpuSet> {
        let placer = self.rule();
        let gpus = self.classes.list[class].gpus;
        let pool = free.pool(gpu_type);
        if pool.free_total() < gpus {
            return None;
        }
        let found = placer.place_in_bucket(pool, gpus);
        if found.is_some() {
            return found;
        }
        self.place_by_rule(free, class, job, gpu_type)
    }

    fn place_by_rule(
        &mut self,
        free: &mut FreeIndex,
        class: usize,
        (job, starts): (JobId, u32),
        gpu_type: GpuTypeId,
    ) -> Option<GpuSet> {
        let of = self.classes.list[class].demand;
        let demand = Demand { job, starts, ..of };
        let placer = self.placer.as_mut();
        let placer = placer.expect("start comes before every decision");
        if !placer.can(free, gpu_type, &demand) {
            return None;
        }
        placer.place(free, gpu_type, &demand)
    }

    /// Returns the GPUs for a job of the class, on the first of its types that has room.
    #[inline]
    pub fn place(&mut self, plan: &mut Plan<'_>, class: usize, job: JobId) -> Option<GpuSet> {
        let types = self.classes.list[class].types.len();
        (0..types).find_map(|at| {
            let gpu_type = self.classes.list[class].types[at];
            self.place_on(plan, class, job, gpu_type)
        })
    }

    /// Starts a job on the GPUs that [`Self::place`] returns. Returns whether the job has started.
    #[inline]
    pub fn start_job(&mut self, plan: &mut Plan<'_>, class: usize, job: JobId) -> bool {
        let Some(gpus) = self.place(plan, class, job) else {
            return false;
        };
        plan.start(job, gpus);
        true
    }
}
