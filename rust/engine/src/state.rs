//! The state of a run: per-job and per-server columns. Only the engine writes them.

use crate::config::{RunConfig, World};
use crate::run::PolicyTraits;
use crate::structures::bits::BitSet;
use crate::uplinks::UpLinks;
use gangline_model::{
    ClusterSpec, GpuTypeId, Infeasible, InfeasibleReason, JobId, JobTable, RateTable, ServerId,
    SimSpan, SimTime, span_of_work,
};
use prefetch_index::prefetch_index;
use records::{ActiveTime, DROPPED, FINISHED, ServerState, WAITING, server_states};
use smallvec::SmallVec;
use std::sync::Arc;

mod records;

pub(crate) use records::{JobState, NO_JOB, NOT_YET, RunDetails};
pub use records::{Phase, Run};

/// GPU types a job may use: one mask for all jobs, or one each.
#[derive(Clone, Debug)]
enum Usable {
    Uniform(u64),
    PerJob(Vec<u64>),
}

/// Per-job columns of the result that only some runs need; optional ones are filled when first needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobColumnsOut {
    pub(crate) overhead_ns: Vec<i64>,
    pub(crate) comm_s: Vec<f64>,
    /// `comm_s` by tier.
    pub(crate) comm_tier_s: [Vec<f64>; 3],
    pub(crate) share_ns: Vec<i64>,
    /// The share of its base rate that a job kept, in units of 2^-40, summed over its ns with progress in closed
    /// segments.
    pub(crate) kept_ns: Vec<i128>,
    pub(crate) migrations: Vec<i32>,
}

impl JobColumnsOut {
    /// The columns that a run is known to need.
    fn new(config: &RunConfig, count: usize, max_share: u32) -> Self {
        let has_distance = config.locality.is_some();
        let losses = || {
            if has_distance {
                vec![0.0; count]
            } else {
                Vec::new()
            }
        };
        let spans = |is_needed: bool| {
            if is_needed {
                vec![0; count]
            } else {
                Vec::new()
            }
        };
        Self {
            overhead_ns: spans(has_overhead(config)),
            comm_s: losses(),
            comm_tier_s: [losses(), losses(), losses()],
            share_ns: spans(max_share > 1),
            kept_ns: Vec::new(),
            migrations: Vec::new(),
        }
    }
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
    /// Overhead of a restart beyond the run's, per GPU.
    pub(crate) restart_per_gpu: SimSpan,
    pub(crate) now: SimTime,
    // per job
    /// By job, up to the last that has arrived; those left out of the run stand among them.
    pub(crate) job: Vec<JobState>,
    /// Jobs that are left out of the run, ascending.
    pub(crate) dropped: Vec<Infeasible>,
    pub(crate) out: JobColumnsOut,
    usable: Usable,
    type_orders: Vec<SmallVec<[GpuTypeId; 4]>>,
    // running jobs
    pub(crate) runs: Vec<Run>,
    /// By record, iterations: see [`crate::limits`]; empty where there are none.
    pub(crate) limits: Vec<f64>,
    /// By record, like `runs`; empty where nobody needs them.
    pub(crate) details: Vec<RunDetails>,
    pub(crate) free_slots: Vec<u32>,
    pub(crate) waiting: BitSet,
    pub(crate) running: BitSet,
    pub(crate) servers: Vec<ServerState>,
    // per GPU: residents[gpu * max_share + k]
    pub(crate) residents: Vec<u32>,
    pub(crate) resident_count: Vec<u8>,
    /// Where GPUs are shared: since when the residents of a GPU stand.
    pub(crate) useful_since: Vec<SimTime>,
    pub(crate) useful_gpu_s: f64,
    // totals
    pub(crate) busy_by_type: Vec<u32>,
    pub(crate) up_by_type: Vec<u32>,
    pub(crate) gpus_busy: u32,
    pub(crate) gpus_up: u32,
    pub(crate) busy_servers: u32,
    pub(crate) touched: Vec<JobId>,
    /// Whether, in this instant, a job was touched, or came to or left shared up-links.
    pub(crate) is_unsettled: bool,
    /// Up-links that jobs share; `None` = each job goes as if it were alone on them.
    pub(crate) uplinks: Option<Box<UpLinks>>,
}

impl State {
    pub(crate) fn new(world: &World, config: RunConfig, max_share: u32, mixes_types: bool) -> Self {
        let World {
            cluster,
            jobs,
            rates,
        } = world;
        let count = jobs.len();
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
            restart_per_gpu: SimSpan::ZERO,
            now: SimTime::ZERO,
            job: Vec::with_capacity(count),
            dropped: Vec::new(),
            out: JobColumnsOut::new(&config, count, max_share),
            usable,
            type_orders: type_orders(cluster, jobs, rates),
            runs: Vec::new(),
            limits: Vec::new(),
            details: Vec::new(),
            free_slots: Vec::new(),
            waiting: BitSet::new(count),
            running: BitSet::new(count),
            servers: server_states(cluster),
            residents: vec![NO_JOB; gpus * max_share as usize],
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
            gpus_busy: 0,
            gpus_up: cluster.gpus_total(),
            busy_servers: 0,
            touched: Vec::new(),
            is_unsettled: false,
            uplinks: config
                .locality
                .as_ref()
                .and_then(|model| model.shared_bw())
                .map(|capacity| Box::new(UpLinks::new(cluster.racks(), capacity))),
            cluster: Arc::clone(cluster),
            jobs: Arc::clone(jobs),
            rates: Arc::clone(rates),
            config,
        }
    }

    /// Prepares what a policy asks for beyond the usual.
    pub(crate) fn serve(&mut self, traits: &PolicyTraits) {
        let count = self.jobs.len();
        self.restart_per_gpu = traits.restart_per_gpu;
        if self.restart_per_gpu != SimSpan::ZERO || traits.sets_overheads {
            self.out.overhead_ns.resize(count, 0);
        }
        if traits.watches_locality {
            self.out.kept_ns.resize(count, 0);
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

    /// The usable type with the highest base rate.
    #[inline]
    pub(crate) fn best_type(&self, job: JobId) -> Option<GpuTypeId> {
        let usable = match &self.usable {
            Usable::Uniform(_) => return Some(GpuTypeId(0)), // the only type
            Usable::PerJob(masks) => masks[job.index()],
        };
        self.type_order(job)
            .iter()
            .copied()
            .find(|id| usable >> id.index() & 1 == 1)
    }

    /// Whether each job goes at its best rate from the instant of its start to its end: nothing slows a job,
    /// no start costs time.
    pub(crate) fn is_undisturbed(&self) -> bool {
        self.cluster.gpu_types().len() == 1
            && self.max_share == 1
            && self.config.locality.is_none()
            && self.out.overhead_ns.is_empty()
    }

    /// Base rate on the best usable type: the isolated, consolidated rate.
    #[inline]
    pub(crate) fn best_rate(&self, job: JobId) -> f64 {
        self.best_type(job)
            .map_or(0.0, |id| self.rates.base(&self.jobs, job, id))
    }

    /// Where a job is in its life; `None` if there is no such job.
    #[inline]
    pub(crate) fn phase(&self, job: JobId) -> Option<Phase> {
        match self.job.get(job.index()) {
            Some(state) => Some(state.phase()),
            None if job.index() >= self.jobs.len() => None,
            None if self.is_dropped(job) => Some(Phase::Dropped),
            None => Some(Phase::Pending),
        }
    }

    pub(crate) fn is_dropped(&self, job: JobId) -> bool {
        let found = self.dropped.binary_search_by_key(&job, |entry| entry.job);
        found.is_ok()
    }

    /// The running job's record.
    #[inline]
    pub fn run(&self, job: JobId) -> Option<&Run> {
        let slot = self.job.get(job.index())?.slot()?;
        Some(&self.runs[slot as usize])
    }

    /// Whether a job has come and holds no GPUs.
    #[inline]
    pub(crate) fn is_waiting(&self, job: JobId) -> bool {
        let state = self.job.get(job.index());
        state.is_some_and(|state| state.place == WAITING)
    }

    /// Whether a job holds GPUs.
    #[inline]
    pub(crate) fn is_running(&self, job: JobId) -> bool {
        let state = self.job.get(job.index());
        state.is_some_and(|state| state.slot().is_some())
    }

    /// Record of a job that is known to run.
    #[inline]
    pub(crate) fn slot_of(&self, job: JobId) -> usize {
        self.job[job.index()].place as usize
    }

    #[inline]
    pub(crate) fn run_mut(&mut self, job: JobId) -> &mut Run {
        let slot = self.slot_of(job);
        &mut self.runs[slot]
    }

    /// Whether an event of this generation is still that of the run in the record.
    #[inline]
    pub(crate) fn is_live(&self, slot: u32, generation: u32) -> bool {
        self.runs[slot as usize].generation == generation
    }

    /// Whether the end of a run is in the queue, be it beyond all time. It is not before the run has a rate, nor
    /// while it rests at its limit of work.
    #[inline]
    pub(crate) fn has_event(&self, slot: usize) -> bool {
        self.runs[slot].rate > 0.0
    }

    /// Asks the memory for the record of a run that may end soon.
    #[inline]
    pub(crate) fn expect(&self, slot: u32) {
        prefetch_index(&self.runs, slot as usize);
    }

    /// The same for the record of a job.
    #[inline]
    pub(crate) fn expect_job(&self, job: JobId) {
        prefetch_index(&self.job, job.index());
    }

    /// The same for the record of its job, when the run is the next to end.
    #[inline]
    pub(crate) fn expect_end(&self, slot: u32) {
        prefetch_index(&self.job, self.runs[slot as usize].job.index());
    }

    /// First start ever, if it has started.
    #[inline]
    pub(crate) fn first_start(&self, job: JobId) -> Option<SimTime> {
        let first = self.job.get(job.index())?.first_start;
        (first != NOT_YET).then_some(first)
    }

    /// A job that lost its GPUs is in the queue again.
    #[inline]
    pub(crate) fn wait_again(&mut self, job: JobId) {
        self.job[job.index()].place = WAITING;
        self.waiting.insert(job.index());
    }

    /// A waiting job holds a record from now on; its work left, and its time with GPUs so far.
    #[inline]
    pub(crate) fn set_running(&mut self, job: JobId, slot: u32) -> (f64, i64) {
        assert!(
            slot < DROPPED,
            "at most two jobs run per GPU, and a cluster has at most 2^30 GPUs"
        );
        self.waiting.remove(job.index());
        self.running.insert(job.index());
        let state = &mut self.job[job.index()];
        state.place = slot;
        if state.first_start == NOT_YET {
            state.first_start = self.now;
        }
        (state.remaining, state.run_ns)
    }

    /// A job that lost its GPUs is done; `active_ns` is the integral of active jobs so far.
    #[inline]
    pub(crate) fn finish(&mut self, job: JobId, active_ns: i128) {
        let now = self.now;
        let state = &mut self.job[job.index()];
        state.place = FINISHED;
        state.remaining = 0.0;
        state.finish = now;
        state.active_at_finish = ActiveTime::new(active_ns);
    }

    /// Takes a server out; its residents have left before.
    pub(crate) fn fail(&mut self, server: ServerId) {
        let state = &mut self.servers[server.index()];
        state.up = false;
        state.free = 0;
        let gpus = self.cluster.server(server).gpus;
        self.up_by_type[state.gpu_type.index()] -= gpus;
        self.gpus_up -= gpus;
    }

    /// Puts a server back with all its GPUs free.
    pub(crate) fn repair(&mut self, server: ServerId) {
        let state = &mut self.servers[server.index()];
        state.up = true;
        state.free = state.full;
        let gpus = self.cluster.server(server).gpus;
        self.up_by_type[state.gpu_type.index()] += gpus;
        self.gpus_up += gpus;
    }

    /// Whether a server is up.
    #[inline]
    pub fn is_up(&self, server: ServerId) -> bool {
        self.servers
            .get(server.index())
            .is_some_and(|state| state.up)
    }

    #[inline]
    pub(crate) fn gpu(&self, server: ServerId, slot: u32) -> usize {
        (self.servers[server.index()].gpu_base + slot) as usize
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
            .filter(|&&job| job != NO_JOB)
            .map(|&job| JobId(job))
    }

    /// Work left now, without changing anything.
    pub(crate) fn remaining_work(&self, job: JobId) -> f64 {
        let Some(state) = self.job.get(job.index()) else {
            return self.jobs.work(job);
        };
        match state.slot().map(|slot| &self.runs[slot as usize]) {
            None => state.remaining,
            Some(run) => run.left - run.rate * run.progress_in_segment(self.now).seconds(),
        }
    }

    /// Isolated time for the work left: see [`crate::ClusterView::remaining`].
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
        let closed = self.job.get(at).map_or(0, |job| job.run_ns) - overhead;
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
    #[inline]
    pub(crate) fn inflation(&self, job: JobId, sub_batch: u32) -> f64 {
        if sub_batch == 0 {
            return 1.0;
        }
        let batch = self.jobs.batch_size(job);
        if batch == 0 || sub_batch >= batch {
            return 1.0;
        }
        1.0 + self.config.acc_cost * f64::from(batch.div_ceil(sub_batch) - 1)
    }

    /// Time without progress that a start or move of the job costs now.
    #[inline]
    pub(crate) fn overhead(&self, job: JobId) -> SimSpan {
        if self.out.overhead_ns.is_empty() {
            return SimSpan::ZERO; // no start costs time
        }
        if self.first_start(job).is_none() {
            return self.config.first_start;
        }
        self.restart_overhead(job)
    }

    /// Time without progress that a restart or move of the job costs.
    #[inline]
    pub(crate) fn restart_overhead(&self, job: JobId) -> SimSpan {
        let base = match (&self.config.restart_by_model, self.jobs.model(job)) {
            (Some(spans), Some(label)) => spans[label as usize],
            _ => self.config.restart,
        };
        base + SimSpan(self.restart_per_gpu.0 * i64::from(self.jobs.gpus(job)))
    }

    /// Share of its base rate that the job kept, in units of 2^-40, summed over its ns with progress so far.
    pub(crate) fn kept_ns(&self, job: JobId) -> i128 {
        let closed = self.out.kept_ns.get(job.index()).copied().unwrap_or(0);
        let open = self.run(job).map_or(0, |run| {
            run.kept() * i128::from(run.progress_in_segment(self.now).0)
        });
        closed + open
    }

    /// Isolated service of every job that is not dropped, ascending: its duration on its best type in ns, times its
    /// gang size unless `is_time`.
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
        let counts = |job: &JobId| !self.is_dropped(*job) && dropped.binary_search(job).is_err();
        let mut all: Vec<i128> = self.jobs.ids().filter(counts).map(service).collect();
        all.sort_unstable();
        all
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
