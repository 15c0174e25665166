//! The GPU types that each job may use, their order, and the best rates. All of these are computed once per run.

use crate::config::World;
use crate::state::jobs::Gang;
use crate::traits::{CopyGpus, PolicyTraits};
use gangline_model::{GpuTypeId, Infeasible, InfeasibleReason, JobId};
use smallvec::SmallVec;

/// Usable GPU types as bits: one mask for all jobs, or one mask per job.
#[derive(Clone, Debug)]
enum Usable {
    Uniform(u64),
    PerJob(Vec<u64>),
}

impl Usable {
    #[inline]
    fn of(&self, job: JobId) -> u64 {
        match self {
            Self::Uniform(mask) => *mask,
            Self::PerJob(masks) => masks[job.index()],
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct TypeTable {
    world: World,
    /// Types that a placement may use.
    usable: Usable,
    /// Types that can hold the whole gang, under policies that mix types. `None` means that they are the same as the
    /// usable types.
    whole: Option<Usable>,
    /// For each row of the rate table, the types in descending order of base rate; ties are in ascending order of
    /// index. Row 0 applies to jobs without a row in the rate table.
    orders: Vec<SmallVec<[GpuTypeId; 4]>>,
    mixes_types: bool,
    copy_gpus: CopyGpus,
    /// Minimum number of GPUs that a copy of each job needs on each type (jobs, types); empty if copies are whole
    /// gangs.
    least: Vec<u32>,
}

impl TypeTable {
    pub(crate) fn new(world: &World, traits: &PolicyTraits) -> Self {
        let World {
            cluster,
            jobs,
            rates,
        } = world;
        let (mixes_types, copy_gpus) = (traits.mixes_types, traits.copy_gpus);
        let masks = |mixes| {
            let mask = |job| jobs.usable_types(job, cluster, rates, mixes);
            Usable::PerJob(jobs.ids().map(mask).collect())
        };
        // With one type, jobs larger than the cluster are refused or dropped before the first event.
        let is_plain = jobs.is_uniform() && cluster.gpu_types().len() == 1;
        if copy_gpus != CopyGpus::Gang {
            let copies = |job| least_copies(world, copy_gpus, job);
            let least: Vec<u32> = jobs.ids().flat_map(copies).collect();
            let mask = |row: &[u32]| {
                (0..row.len())
                    .map(|id| u64::from(row[id] < u32::MAX) << id)
                    .sum()
            };
            let types = cluster.gpu_types().len();
            return Self {
                world: world.clone(),
                usable: Usable::PerJob(least.chunks(types).map(mask).collect()),
                least,
                whole: Some(masks(false)),
                orders: type_orders(world),
                mixes_types,
                copy_gpus,
            };
        }
        Self {
            world: world.clone(),
            usable: if is_plain {
                Usable::Uniform(1)
            } else {
                masks(mixes_types)
            },
            whole: (mixes_types && !is_plain).then(|| masks(false)),
            orders: type_orders(world),
            mixes_types,
            copy_gpus,
            least: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn gang(&self, job: JobId) -> Gang<'_> {
        let jobs = &self.world.jobs;
        let row = |types: usize| &self.least[job.index() * types..][..types];
        Gang {
            gpus: jobs.gpus(job),
            usable: self.usable(job),
            least: (!self.least.is_empty()).then(|| row(self.least.len() / jobs.len())),
        }
    }

    /// Returns the rule for the number of GPUs per copy, if this number may differ from the gang size.
    #[inline]
    pub(crate) fn copy_gpus(&self) -> Option<CopyGpus> {
        (self.copy_gpus != CopyGpus::Gang).then_some(self.copy_gpus)
    }

    /// Returns whether gangs may span several types.
    #[inline]
    pub(crate) fn mixes(&self) -> bool {
        self.mixes_types
    }

    /// Returns the types that a placement of the job may use, as a mask.
    #[inline]
    pub(crate) fn usable(&self, job: JobId) -> u64 {
        self.usable.of(job)
    }

    /// Returns all types in descending order of the job's base rate; ties are in ascending order of index.
    #[inline]
    pub(crate) fn order(&self, job: JobId) -> &[GpuTypeId] {
        let row = match &self.world.jobs.columns().rate_class {
            Some(classes) if classes[job.index()] != u32::MAX => classes[job.index()] as usize + 1,
            _ => 0,
        };
        &self.orders[row]
    }

    /// Returns the base rate that the whole gang has on its fastest type if it is consolidated and alone. This rate
    /// does not depend on the policy (`docs/concepts/jobs-and-rates.md`).
    #[inline]
    pub(crate) fn best_rate(&self, job: JobId) -> f64 {
        let World {
            cluster,
            jobs,
            rates,
        } = &self.world;
        let usable = match &self.usable {
            Usable::Uniform(_) => return rates.base(jobs, job, GpuTypeId(0)),
            Usable::PerJob(masks) => masks[job.index()],
        };
        let whole = self.whole.as_ref().map_or(usable, |whole| whole.of(job));
        let order = self.order(job).iter().copied();
        if let Some(best) = order.clone().find(|id| whole >> id.index() & 1 == 1) {
            return rates.base(jobs, job, best);
        }
        let usable = if self.least.is_empty() {
            usable
        } else {
            // These are the types of the gang, not of its copies.
            jobs.usable_types(job, cluster, rates, true)
        };
        let usable = order.filter(|id| usable >> id.index() & 1 == 1);
        mixed_rate(&self.world, job, usable)
    }

    /// Returns the jobs that can never run, even on the whole cluster.
    pub(crate) fn infeasible(&self) -> Vec<Infeasible> {
        let World {
            cluster,
            jobs,
            rates,
        } = &self.world;
        if self.copy_gpus != CopyGpus::Gang {
            let nowhere = |job: &JobId| self.usable(*job) == 0;
            let reason = |job| {
                // Reasons that do not depend on the number of GPUs hold for copies as well.
                let of_any = [InfeasibleReason::NoType, InfeasibleReason::Memory];
                let of_gang = jobs.infeasible(job, cluster, rates, true);
                let reason = of_gang.filter(|why| of_any.contains(why));
                Infeasible {
                    job,
                    reason: reason.unwrap_or(InfeasibleReason::NoCopy),
                }
            };
            return jobs.ids().filter(nowhere).map(reason).collect();
        }
        let find = |job| {
            jobs.infeasible(job, cluster, rates, self.mixes_types)
                .map(|reason: InfeasibleReason| Infeasible { job, reason })
        };
        if let Usable::Uniform(_) = self.usable {
            // Only the gang size can exclude a job, so one comparison is enough for nearly all jobs.
            let most = cluster.gpus_total();
            let large = |job: &JobId| jobs.gpus(*job) > most;
            return jobs.ids().filter(large).filter_map(find).collect();
        }
        jobs.ids().filter_map(find).collect()
    }
}

/// Returns, for each type, the minimum number of GPUs that a copy of the job has on any server where it fits and makes
/// progress; `u32::MAX` if there is no such server.
fn least_copies(world: &World, copy_gpus: CopyGpus, job: JobId) -> Vec<u32> {
    let World {
        cluster,
        jobs,
        rates,
    } = world;
    let mut least = vec![u32::MAX; cluster.gpu_types().len()];
    for server in cluster.servers() {
        let id = server.gpu_type;
        let gpus = copy_gpus.on(server.gpus, jobs.gpus(job));
        let memory = cluster.gpu_types()[id.index()].memory_bytes;
        let is_allowed = jobs.allowed_types(job) >> id.index() & 1 == 1;
        let fits = gpus <= server.gpus && memory >= jobs.memory_bytes(job);
        let best = &mut least[id.index()];
        if is_allowed && fits && gpus < *best && rates.of_copy(jobs, job, id, gpus) > 0.0 {
            *best = gpus;
        }
    }
    least
}

/// Returns the rate of a gang that no single type can hold. The gang takes types in the order of their rates until it
/// has enough GPUs, and runs at the rate of the slowest of these types. The rate is 0 if all types together have too
/// few GPUs.
fn mixed_rate(world: &World, job: JobId, usable: impl Iterator<Item = GpuTypeId>) -> f64 {
    let gang = world.jobs.gpus(job);
    let mut gpus = 0;
    for id in usable {
        gpus += world.cluster.gpus_by_type()[id.index()];
        if gpus >= gang {
            return f64::from(gang) * (world.rates.base(&world.jobs, job, id) / f64::from(gang));
        }
    }
    0.0
}

/// For each row of the rate table, returns the types in descending order of base rate; ties are in ascending order of
/// index. Row 0 applies to jobs without a row in the rate table.
fn type_orders(world: &World) -> Vec<SmallVec<[GpuTypeId; 4]>> {
    let World {
        cluster,
        jobs,
        rates,
    } = world;
    let ids: SmallVec<[GpuTypeId; 4]> =
        (0..cluster.gpu_types().len()).map(GpuTypeId::new).collect();
    let mut by_speed = ids.clone();
    let speed = |id: &GpuTypeId| cluster.gpu_types()[id.index()].speed;
    by_speed.sort_by(|a, b| speed(b).total_cmp(&speed(a)).then(a.cmp(b)));
    let mut orders = vec![by_speed];
    let Some(classes) = &jobs.columns().rate_class else {
        return orders;
    };
    let rows = classes
        .iter()
        .filter(|&&class| class != u32::MAX)
        .max()
        .map_or(0, |max| max + 1);
    orders.resize(rows as usize + 1, SmallVec::new());
    for job in jobs.ids() {
        let class = classes[job.index()];
        if class == u32::MAX || !orders[class as usize + 1].is_empty() {
            continue;
        }
        let mut order = ids.clone();
        let rate = |id: &GpuTypeId| rates.base(jobs, job, *id);
        order.sort_by(|a, b| rate(b).total_cmp(&rate(a)).then(a.cmp(b)));
        orders[class as usize + 1] = order;
    }
    orders
}
