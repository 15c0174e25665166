//! The state of a run: per-job and per-server columns. Only the engine writes them.

use crate::bits::BitSet;
use crate::config::{RunConfig, World};
use gangline_model::{
    ClusterSpec, GpuSet, GpuTypeId, Infeasible, InfeasibleReason, JobId, JobTable, RateTable,
    ServerId, SimSpan, SimTime, Tier, span_of_work,
};
use smallvec::SmallVec;
use std::sync::Arc;

/// Where a job is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Not arrived yet.
    Pending,
    /// Waiting for GPUs.
    Waiting,
    /// Holding GPUs.
    Running,
    /// Its work is done.
    Finished,
    /// Left out of the run: it could never run.
    Dropped,
}

/// A running job. `State::remaining` holds its work at the later of `segment_start` and
/// `progress_start`.
#[derive(Clone, Debug)]
pub struct Run {
    /// The job.
    pub job: JobId,
    /// Its GPUs.
    pub gpus: GpuSet,
    /// Present rate, iterations per second.
    pub rate: f64,
    /// Start of the present segment (rate, place and partners stand since then).
    pub segment_start: SimTime,
    /// When progress starts or started: start plus overhead.
    pub progress_start: SimTime,
    /// When it will be done at the present rate.
    pub finish: SimTime,
    /// Its last start or move.
    pub started: SimTime,
    /// Tier of its placement.
    pub tier: Tier,
    /// GPU type of its first server.
    pub gpu_type: GpuTypeId,
    /// Samples per GPU and pass; 0 = the job's own batch size.
    pub sub_batch: u32,
    /// Slow-down of the whole gang by co-runners.
    pub xi: f64,
    pub(crate) base: f64,
    pub(crate) locality: f64,
    pub(crate) inflation: f64,
    pub(crate) generation: u32,
    pub(crate) touched: bool,
    pub(crate) shared_since: SimTime,
    pub(crate) checkpoint_remaining: f64,
    /// Kept for the segments table only.
    pub(crate) co_runners: Option<Box<[u32]>>,
    /// Sub-batch when the segment opened, for the segments table.
    pub(crate) segment_sub_batch: u32,
}

pub(crate) const NO_SLOT: u32 = u32::MAX;
/// A job that has not started: its first start.
pub(crate) const NOT_YET: SimTime = SimTime(i64::MIN);

/// GPU types a job may use: one mask for all jobs, or one each.
#[derive(Clone, Debug)]
enum Usable {
    Uniform(u64),
    PerJob(Vec<u64>),
}

/// What every event of a job needs, side by side: one cache line instead of one per column.
#[derive(Clone, Debug)]
pub(crate) struct JobState {
    /// Work left at the last change of rate.
    pub(crate) remaining: f64,
    pub(crate) first_start: SimTime,
    pub(crate) finish: SimTime,
    /// Time holding GPUs, up to the present segment.
    pub(crate) run_ns: i64,
    /// Integral of the number of active jobs at arrival; after the finish, over its life.
    pub(crate) active_ns: i128,
    /// Record of the running job.
    pub(crate) slot: u32,
    pub(crate) phase: Phase,
}

impl JobState {
    fn new(work: f64) -> Self {
        Self {
            remaining: work,
            first_start: NOT_YET,
            finish: SimTime::NEVER,
            run_ns: 0,
            active_ns: 0,
            slot: NO_SLOT,
            phase: Phase::Pending,
        }
    }
}

/// Per-job columns of the result that only some runs need; optional ones are filled when first needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobColumnsOut {
    pub(crate) overhead_ns: Vec<i64>,
    pub(crate) comm_s: Vec<f64>,
    pub(crate) share_ns: Vec<i64>,
    pub(crate) preemptions: Vec<i32>,
    pub(crate) migrations: Vec<i32>,
}

/// The state of a run. Policies see it through [`crate::ClusterView`].
#[derive(Debug)]
pub struct State {
    pub(crate) cluster: Arc<ClusterSpec>,
    pub(crate) jobs: Arc<JobTable>,
    pub(crate) rates: Arc<RateTable>,
    pub(crate) config: RunConfig,
    pub(crate) max_share: u32,
    pub(crate) mixes_types: bool,
    pub(crate) now: SimTime,
    // per job
    pub(crate) job: Vec<JobState>,
    pub(crate) out: JobColumnsOut,
    usable: Usable,
    type_orders: Vec<SmallVec<[GpuTypeId; 4]>>,
    // running jobs
    pub(crate) runs: Vec<Run>,
    pub(crate) free_slots: Vec<u32>,
    pub(crate) waiting: BitSet,
    pub(crate) running: BitSet,
    // per server
    pub(crate) free: Vec<u64>,
    pub(crate) up: Vec<bool>,
    pub(crate) gpu_base: Vec<u32>,
    // per GPU: residents[gpu * max_share + k]
    pub(crate) residents: Vec<u32>,
    pub(crate) resident_count: Vec<u8>,
    /// Where GPUs are shared: since when the residents of a GPU stand.
    pub(crate) useful_since: Vec<SimTime>,
    pub(crate) useful_gpu_s: f64,
    // totals
    pub(crate) busy_by_type: Vec<u32>,
    pub(crate) up_by_type: Vec<u32>,
    pub(crate) busy_servers: u32,
    pub(crate) touched: Vec<JobId>,
}

impl State {
    pub(crate) fn new(world: &World, config: RunConfig, max_share: u32, mixes_types: bool) -> Self {
        let World {
            cluster,
            jobs,
            rates,
        } = world;
        let count = jobs.len();
        let servers = cluster.servers().len();
        let gpu_base = gpu_bases(cluster);
        let gpus = cluster.gpus_total() as usize;
        let usable = if jobs.is_uniform() && cluster.gpu_types().len() == 1 {
            // jobs larger than the cluster are refused or dropped before the first event
            Usable::Uniform(1)
        } else {
            let mask = |job| jobs.usable_types(job, cluster, rates, mixes_types);
            Usable::PerJob(jobs.ids().map(mask).collect())
        };
        Self {
            max_share,
            mixes_types,
            now: SimTime::ZERO,
            job: jobs
                .columns()
                .work
                .iter()
                .map(|&work| JobState::new(work))
                .collect(),
            out: JobColumnsOut {
                overhead_ns: if has_overhead(&config) {
                    vec![0; count]
                } else {
                    Vec::new()
                },
                comm_s: if config.locality.is_some() {
                    vec![0.0; count]
                } else {
                    Vec::new()
                },
                share_ns: if max_share > 1 {
                    vec![0; count]
                } else {
                    Vec::new()
                },
                preemptions: Vec::new(),
                migrations: Vec::new(),
            },
            usable,
            type_orders: type_orders(cluster, jobs, rates),
            runs: Vec::new(),
            free_slots: Vec::new(),
            waiting: BitSet::new(count),
            running: BitSet::new(count),
            free: (0..servers)
                .map(|s| cluster.full_mask(ServerId::new(s)))
                .collect(),
            up: vec![true; servers],
            gpu_base,
            residents: vec![NO_SLOT; gpus * max_share as usize],
            resident_count: if max_share > 1 {
                vec![0; gpus]
            } else {
                Vec::new()
            },
            useful_since: if max_share > 1 {
                vec![SimTime::ZERO; gpus]
            } else {
                Vec::new()
            },
            useful_gpu_s: 0.0,
            busy_by_type: vec![0; cluster.gpu_types().len()],
            up_by_type: cluster.gpus_by_type().to_vec(),
            busy_servers: 0,
            touched: Vec::new(),
            cluster: Arc::clone(cluster),
            jobs: Arc::clone(jobs),
            rates: Arc::clone(rates),
            config,
        }
    }

    /// Jobs that can never run on the whole cluster.
    pub(crate) fn infeasible(&self) -> Vec<Infeasible> {
        let find = |job| {
            self.jobs
                .infeasible(job, &self.cluster, &self.rates, self.mixes_types)
                .map(|reason: InfeasibleReason| Infeasible { job, reason })
        };
        if let Usable::Uniform(_) = self.usable {
            // only the gang size can rule a job out, so nearly all are settled by one comparison
            let most = self.cluster.gpus_total();
            let large = |job: &JobId| self.jobs.gpus(*job) > most;
            return self.jobs.ids().filter(large).filter_map(find).collect();
        }
        self.jobs.ids().filter_map(find).collect()
    }

    #[inline]
    pub(crate) fn usable(&self, job: JobId) -> u64 {
        match &self.usable {
            Usable::Uniform(mask) => *mask,
            Usable::PerJob(masks) => masks[job.index()],
        }
    }

    #[inline]
    pub(crate) fn type_order(&self, job: JobId) -> &[GpuTypeId] {
        let row = match &self.jobs.columns().rate_class {
            Some(classes) if classes[job.index()] != u32::MAX => classes[job.index()] as usize + 1,
            _ => 0,
        };
        &self.type_orders[row]
    }

    /// The usable type of highest base rate.
    #[inline]
    pub(crate) fn best_type(&self, job: JobId) -> Option<GpuTypeId> {
        let usable = self.usable(job);
        self.type_order(job)
            .iter()
            .copied()
            .find(|id| usable >> id.index() & 1 == 1)
    }

    /// Base rate on the best usable type: the isolated, consolidated rate.
    #[inline]
    pub(crate) fn best_rate(&self, job: JobId) -> f64 {
        self.best_type(job)
            .map_or(0.0, |id| self.rates.base(&self.jobs, job, id))
    }

    /// The running job's record.
    #[inline]
    pub fn run(&self, job: JobId) -> Option<&Run> {
        let slot = self.job.get(job.index())?.slot;
        (slot != NO_SLOT).then(|| &self.runs[slot as usize])
    }

    #[inline]
    pub(crate) fn run_mut(&mut self, job: JobId) -> &mut Run {
        let slot = self.job[job.index()].slot;
        &mut self.runs[slot as usize]
    }

    /// Whether a server is up.
    #[inline]
    pub fn is_up(&self, server: ServerId) -> bool {
        self.up.get(server.index()).copied().unwrap_or(false)
    }

    #[inline]
    pub(crate) fn gpu(&self, server: ServerId, slot: u32) -> usize {
        (self.gpu_base[server.index()] + slot) as usize
    }

    /// Those of the slots that have exactly one resident.
    pub(crate) fn alone_mask(&self, server: ServerId, mask: u64) -> u64 {
        if self.max_share == 1 {
            return mask;
        }
        slots(mask)
            .filter(|&slot| self.resident_count[self.gpu(server, slot)] == 1)
            .fold(0, |alone, slot| alone | 1 << slot)
    }

    /// Residents of a GPU, in order of arrival on it.
    pub(crate) fn residents_of(&self, server: ServerId, slot: u32) -> impl Iterator<Item = JobId> {
        let gpu = self.gpu(server, slot);
        let share = self.max_share as usize;
        self.residents[gpu * share..(gpu + 1) * share]
            .iter()
            .filter(|&&job| job != NO_SLOT)
            .map(|&job| JobId(job))
    }

    /// Work left now, without changing anything.
    pub(crate) fn remaining_work(&self, job: JobId) -> f64 {
        let left = self.job[job.index()].remaining;
        match self.run(job) {
            None => left,
            Some(run) => left - run.rate * run.progress_in_segment(self.now).seconds(),
        }
    }

    /// Isolated time for the work left: spec baselines section 1, exact keys.
    pub(crate) fn remaining_span(&self, job: JobId) -> SimSpan {
        let best = self.best_rate(job);
        match self.run(job) {
            Some(run) if run.rate.to_bits() == best.to_bits() => {
                run.finish - self.now.max(run.progress_start)
            }
            _ => span_of_work(self.remaining_work(job), best),
        }
    }

    /// GPU time held so far without overhead, GPU-nanoseconds.
    #[inline]
    pub(crate) fn attained_gpu_ns(&self, job: JobId) -> i128 {
        i128::from(self.executed(job).0) * i128::from(self.jobs.gpus(job))
    }

    /// Time with GPUs so far without overhead.
    #[inline]
    pub(crate) fn executed(&self, job: JobId) -> SimSpan {
        let at = job.index();
        let overhead = self.out.overhead_ns.get(at).copied().unwrap_or(0);
        let closed = self.job[at].run_ns - overhead;
        let open = self
            .run(job)
            .map_or(0, |run| run.progress_in_segment(self.now).0);
        SimSpan(closed + open)
    }

    /// Memory per GPU at a sub-batch; 0 = full batch.
    pub(crate) fn memory_bytes(&self, job: JobId, sub_batch: u32) -> u64 {
        let full = self.jobs.memory_bytes(job);
        let batch = self.jobs.batch_size(job);
        if full == 0 || sub_batch == 0 || batch == 0 || sub_batch >= batch {
            return full;
        }
        let fixed = self.config.memory_fixed_fraction;
        let share = f64::from(sub_batch) / f64::from(batch);
        (full as f64 * (fixed + (1.0 - fixed) * share)).round() as u64
    }

    /// Iteration time at a sub-batch over that at full batch.
    pub(crate) fn inflation(&self, job: JobId, sub_batch: u32) -> f64 {
        let batch = self.jobs.batch_size(job);
        if sub_batch == 0 || batch == 0 || sub_batch >= batch {
            return 1.0;
        }
        1.0 + self.config.acc_cost * f64::from(batch.div_ceil(sub_batch) - 1)
    }

    /// Time without progress that a start or move of the job costs now.
    #[inline]
    pub(crate) fn overhead(&self, job: JobId) -> SimSpan {
        if self.job[job.index()].first_start == NOT_YET {
            return self.config.first_start;
        }
        match (&self.config.restart_by_model, self.jobs.model(job)) {
            (Some(spans), Some(label)) => spans[label as usize],
            _ => self.config.restart,
        }
    }

    /// Isolated service of every job that is not dropped, ascending: total duration, times the gang
    /// unless it is counted in time alone.
    pub(crate) fn service_distribution(&self, is_time: bool, dropped: &[JobId]) -> Vec<i128> {
        let service = |job: JobId| {
            let span = span_of_work(self.jobs.work(job), self.best_rate(job));
            i128::from(span.0)
                * if is_time {
                    1
                } else {
                    i128::from(self.jobs.gpus(job))
                }
        };
        let counts = |job: &JobId| {
            self.job[job.index()].phase != Phase::Dropped && dropped.binary_search(job).is_err()
        };
        let mut all: Vec<i128> = self.jobs.ids().filter(counts).map(service).collect();
        all.sort_unstable();
        all
    }

    pub(crate) fn gpus_busy(&self) -> u32 {
        self.busy_by_type.iter().sum()
    }

    pub(crate) fn gpus_up(&self) -> u32 {
        self.up_by_type.iter().sum()
    }
}

impl Run {
    /// Time with progress in the present segment, up to `now`.
    #[inline]
    pub fn progress_in_segment(&self, now: SimTime) -> SimSpan {
        SimSpan((now - self.segment_start.max(self.progress_start)).0.max(0))
    }
}

/// Set bits of a mask, lowest first.
pub(crate) fn slots(mask: u64) -> impl Iterator<Item = u32> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        if rest == 0 {
            return None;
        }
        let slot = rest.trailing_zeros();
        rest &= rest - 1;
        Some(slot)
    })
}

/// Number of the first GPU of each server, GPUs counted over the whole cluster.
fn gpu_bases(cluster: &ClusterSpec) -> Vec<u32> {
    let mut next = 0;
    let sizes = cluster.servers().iter().map(|server| server.gpus);
    sizes
        .map(|gpus| {
            let base = next;
            next += gpus;
            base
        })
        .collect()
}

fn has_overhead(config: &RunConfig) -> bool {
    config.restart != SimSpan::ZERO
        || config.first_start != SimSpan::ZERO
        || config.restart_by_model.is_some()
}

/// Types by base rate descending, then index: row 0 for jobs without a row in the rate table.
fn type_orders(
    cluster: &ClusterSpec,
    jobs: &JobTable,
    rates: &RateTable,
) -> Vec<SmallVec<[GpuTypeId; 4]>> {
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
