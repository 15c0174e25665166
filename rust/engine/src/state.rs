//! The state of a run. Only the engine writes it; policies see it through [`crate::ClusterView`].
//!
//! What owns what: [`Jobs`] where each job is in its life, [`Occupancy`] what is on which GPU, [`TypeTable`] which
//! types a job may use, the records of running jobs ([`Run`]) their work and places. `progress.rs` moves the work.

use crate::config::{RunConfig, World};
use crate::occupancy::Occupancy;
use crate::policy::PolicyTraits;
use crate::state::jobs::Jobs;
use crate::state::running::Run;
use crate::state::types::TypeTable;
use crate::state::useful::Useful;
use crate::uplinks::UpLinks;

use gangline_model::{
    ClusterSpec, ElasticTable, GpuTypeId, Infeasible, JobId, JobTable, RateTable, ServerId,
    SimSpan, SimTime, span_of_work,
};
use std::sync::Arc;

mod elastic;
pub(crate) mod jobs;
mod rates;
pub(crate) mod running;
mod types;
mod useful;

/// Per-job columns of the result that only some runs need; optional ones are filled when first needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobColumnsOut {
    /// Whether something is kept of segments without overhead or pause: one of the columns below, or the table.
    pub(crate) keeps_segments: bool,
    pub(crate) overhead_ns: Vec<i64>,
    pub(crate) comm_s: Vec<f64>,
    /// `comm_s` by tier.
    pub(crate) comm_tier_s: [Vec<f64>; 3],
    pub(crate) share_ns: Vec<i64>,
    /// Seconds with progress that co-runners and sub-batches cost.
    pub(crate) share_lost_s: Vec<f64>,
    /// The share of its base rate that a job kept, in units of 10^-12, summed over its ns with progress in closed
    /// segments.
    pub(crate) kept_ns: Vec<i128>,
    /// Time that its parts held GPUs, summed over them; only of policies that fork jobs.
    pub(crate) parts_ns: Vec<i64>,
    /// The same times the GPUs of each; also where gangs may change their size.
    pub(crate) gpu_ns: Vec<i128>,
    /// Of that, with progress; only where gangs may change their size.
    pub(crate) attained_ns: Vec<i128>,
    pub(crate) migrations: Vec<i32>,
}

impl JobColumnsOut {
    /// The columns that a run is known to need.
    fn new(
        config: &RunConfig,
        count: usize,
        max_share: u32,
        traits: &PolicyTraits,
        is_elastic: bool,
    ) -> Self {
        fn column<T: Clone + Default>(is_needed: bool, count: usize) -> Vec<T> {
            if is_needed {
                vec![T::default(); count]
            } else {
                Vec::new()
            }
        }
        let is_far = config.locality.is_some();
        let is_shared = max_share > 1;
        Self {
            keeps_segments: config.segments
                || is_far
                || is_shared
                || traits.watches_locality
                || traits.forks
                || is_elastic,
            overhead_ns: column(starts_cost(config, traits), count),
            comm_s: column(is_far, count),
            comm_tier_s: [(); 3].map(|()| column(is_far, count)),
            share_ns: column(is_shared, count),
            share_lost_s: column(is_shared, count),
            kept_ns: column(traits.watches_locality, count),
            parts_ns: column(traits.forks, count),
            gpu_ns: column(traits.forks || is_elastic, count),
            attained_ns: column(is_elastic, count),
            migrations: Vec::new(),
        }
    }
}

/// Whether the run or its policy makes every start or some cost time.
fn starts_cost(config: &RunConfig, traits: &PolicyTraits) -> bool {
    config.restart != SimSpan::ZERO
        || config.first_start != SimSpan::ZERO
        || config.restart_by_model.is_some()
        || traits.restart_per_gpu != SimSpan::ZERO
}

/// The state of a run.
#[derive(Debug)]
pub struct State {
    pub(crate) cluster: Arc<ClusterSpec>,
    pub(crate) jobs: Arc<JobTable>,
    pub(crate) rates: Arc<RateTable>,
    pub(crate) config: RunConfig,
    pub(crate) types: TypeTable,
    /// Elastic jobs; `None` where there are none, or a policy forks jobs: then they are as the trace has them.
    pub(crate) elastic: Option<Arc<ElasticTable>>,
    /// Whether jobs may hold several parts.
    pub(crate) forks: bool,
    /// Overhead of a restart beyond the run's, per GPU.
    pub(crate) restart_per_gpu: SimSpan,
    starts_cost: bool,
    pub(crate) now: SimTime,
    pub(crate) lives: Jobs,
    pub(crate) out: JobColumnsOut,
    /// Records of running jobs; those of `free_slots` are unused.
    pub(crate) runs: Vec<Run>,
    pub(crate) free_slots: Vec<u32>,
    pub(crate) occupancy: Occupancy,
    /// Useful time of shared GPUs.
    pub(crate) useful: Option<Box<Useful>>,
    /// Jobs to re-time at the end of the instant.
    pub(crate) touched: Vec<JobId>,
    /// Whether, in this instant, a job was touched, or came to or left shared up-links.
    pub(crate) is_retiming_due: bool,
    /// Up-links that jobs share; `None` = each job goes as if it were alone on them.
    pub(crate) uplinks: Option<Box<UpLinks>>,
}

impl State {
    pub(crate) fn new(world: &World, config: RunConfig, traits: &PolicyTraits) -> Self {
        let World {
            cluster,
            jobs,
            rates,
        } = world;
        let max_share = config.max_share.min(traits.max_share).max(1);
        let gang_max = jobs.columns().gpus.iter().copied().max().unwrap_or(0);
        let server_max = cluster.servers().iter().map(|server| server.gpus).max();
        let gpus_max = gang_max.max(server_max.unwrap_or(0)); // copies may be larger than gangs
        let gpus = cluster.gpus_total() as usize;
        let elastic = rates.elastic().filter(|_| !traits.forks).cloned();
        let is_elastic = elastic.is_some();
        Self {
            types: TypeTable::new(cluster, jobs, rates, traits),
            elastic,
            forks: traits.forks,
            restart_per_gpu: traits.restart_per_gpu,
            starts_cost: starts_cost(&config, traits),
            now: SimTime::ZERO,
            lives: Jobs::new(jobs.len(), cluster.gpu_types().len(), gpus_max),
            out: JobColumnsOut::new(&config, jobs.len(), max_share, traits, is_elastic),
            runs: Vec::new(),
            free_slots: Vec::new(),
            occupancy: Occupancy::new(cluster, max_share),
            useful: (max_share > 1).then(|| Box::new(Useful::new(gpus))),
            touched: Vec::new(),
            is_retiming_due: false,
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

    /// Jobs that can never run on the whole cluster.
    pub(crate) fn infeasible(&self) -> Vec<Infeasible> {
        self.types
            .infeasible(&self.cluster, &self.jobs, &self.rates)
    }

    /// Whether GPUs may hold several jobs in this run.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.occupancy.max_share() > 1
    }

    /// Base rate of the whole gang, consolidated and alone, where it is highest.
    #[inline]
    pub(crate) fn best_rate(&self, job: JobId) -> f64 {
        self.types
            .best_rate(&self.cluster, &self.jobs, &self.rates, job)
    }

    /// All types by base rate of the job descending, then index.
    #[inline]
    pub(crate) fn type_order(&self, job: JobId) -> &[GpuTypeId] {
        self.types.order(&self.jobs, job)
    }

    /// GPUs of a part of the job on a server.
    #[inline]
    pub(crate) fn gang_on(&self, job: JobId, server: ServerId) -> u32 {
        let gang = self.jobs.gpus(job);
        match self.types.copy_gpus() {
            None => gang,
            Some(copy) => copy.on(self.cluster.server(server).gpus, gang),
        }
    }

    /// A job that lost its last GPUs waits again.
    #[inline]
    pub(crate) fn requeue(&mut self, job: JobId) {
        let gang = self.types.gang(&self.jobs, job);
        self.lives.requeue(job, gang);
    }

    /// Whether each job goes at its best rate from the instant of its start to its end: nothing slows a job,
    /// no start costs time.
    pub(crate) fn is_undisturbed(&self) -> bool {
        self.cluster.gpu_types().len() == 1
            && !self.is_shared()
            && self.config.locality.is_none()
            && self.elastic.is_none()
            && !self.starts_cost
    }

    /// The running job's record.
    #[inline]
    pub fn run(&self, job: JobId) -> Option<&Run> {
        let slot = self.lives.slot(job)?;
        Some(&self.runs[slot as usize])
    }

    /// Record of a job that is known to run.
    #[inline]
    pub(crate) fn slot_of(&self, job: JobId) -> usize {
        self.lives.slot(job).expect("a running job") as usize
    }

    /// Whether an event of this generation is still that of the run in the record.
    #[inline]
    pub(crate) fn is_live(&self, slot: u32, generation: u32) -> bool {
        self.runs[slot as usize].generation == generation
    }

    /// Whether the next event of a run is in the queue, be it beyond all time. It is not before the run has a rate,
    /// nor while all its parts are paused.
    #[inline]
    pub(crate) fn has_event(&self, slot: usize) -> bool {
        self.runs[slot].rate > 0.0
    }

    /// Asks the memory for the record of a run that may end soon.
    #[inline]
    pub(crate) fn prefetch_run(&self, slot: u32) {
        if let Some(run) = self.runs.get(slot as usize) {
            run.prefetch();
        }
    }

    /// The same for the record of its job, when the run is the next to end.
    #[inline]
    pub(crate) fn prefetch_end(&self, slot: u32) {
        self.lives.prefetch(self.runs[slot as usize].job);
    }

    /// First start ever, if it has started.
    #[inline]
    pub(crate) fn first_start(&self, job: JobId) -> Option<SimTime> {
        let first = self.lives.get(job)?.first_start;
        (first != crate::state::jobs::NOT_YET).then_some(first)
    }

    /// Work left now, without changing anything.
    pub(crate) fn remaining_work(&self, job: JobId) -> f64 {
        let Some(state) = self.lives.get(job) else {
            return self.jobs.work(job);
        };
        match self.run(job) {
            None => state.remaining,
            Some(run) => {
                let work = |sum, part: &crate::Part| {
                    sum + part.rate * part.progress(run.since, self.now).seconds()
                };
                run.left - run.parts.iter().fold(0.0, work)
            }
        }
    }

    /// Isolated time for the work left: see [`crate::ClusterView::remaining`].
    pub(crate) fn remaining_span(&self, job: JobId) -> SimSpan {
        let best = self.best_rate(job);
        match self.run(job) {
            Some(run)
                if run.rate.to_bits() == best.to_bits() && !run.is_forked() && run.knot <= 0.0 =>
            {
                run.done_at() - run.progress_from(self.now)
            }
            _ => span_of_work(self.remaining_work(job), best),
        }
    }

    /// GPU time held so far without overhead, GPU-nanoseconds.
    #[inline]
    pub(crate) fn attained_gpu_ns(&self, job: JobId) -> i128 {
        if self.elastic.is_some() {
            return self.attained_elastic(job);
        }
        i128::from(self.executed(job).0) * i128::from(self.jobs.gpus(job))
    }

    /// Time with GPUs so far without overhead; of a forked job the sum over its parts.
    #[inline]
    pub(crate) fn executed(&self, job: JobId) -> SimSpan {
        let at = job.index();
        let overhead = self.out.overhead_ns.get(at).copied().unwrap_or(0);
        let run = self.run(job);
        if self.forks {
            let parts = run.map_or(&[][..], |run| run.parts());
            let open = parts
                .iter()
                .map(|part| part.progress_in_segment(self.now).0);
            return SimSpan(self.out.parts_ns[at] - overhead + open.sum::<i64>());
        }
        let closed = self.lives.get(job).map_or(0, |job| job.run_ns) - overhead;
        let open = run.map_or(0, |run| run.only().progress_in_segment(self.now).0);
        SimSpan(closed + open)
    }

    /// Time with GPUs so far, overhead included.
    pub(crate) fn held(&self, job: JobId) -> SimSpan {
        let closed = self.lives.get(job).map_or(0, |job| job.run_ns);
        let open = self.run(job).map_or(0, |run| (self.now - run.since).0);
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

    /// Iteration time at a sub-batch over that at full batch, on so many servers of a type; without a number,
    /// on as few as can be.
    #[inline]
    pub(crate) fn inflation(
        &self,
        job: JobId,
        sub_batch: u32,
        gpu_type: GpuTypeId,
        servers: Option<usize>,
    ) -> f64 {
        if sub_batch == 0 {
            return 1.0;
        }
        let batch = self.jobs.batch_size(job);
        if batch == 0 || sub_batch >= batch {
            return 1.0;
        }
        let passes = batch.div_ceil(sub_batch);
        let known = self.config.inflations.as_ref();
        known
            .and_then(|table| table.of(job, gpu_type, servers, passes))
            .unwrap_or_else(|| 1.0 + self.config.acc_cost * f64::from(passes - 1))
    }

    /// Time without progress that a start or move of the job costs now.
    #[inline]
    pub(crate) fn overhead(&self, job: JobId) -> SimSpan {
        if !self.starts_cost {
            return SimSpan::ZERO;
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

    /// Share of its base rate that the job kept, in units of 10^-12, summed over its ns with progress so far.
    pub(crate) fn kept_ns(&self, job: JobId) -> i128 {
        let closed = self.out.kept_ns.get(job.index()).copied().unwrap_or(0);
        let parts = self.run(job).map_or(&[][..], |run| run.parts());
        let open = parts
            .iter()
            .map(|part| part.kept() * i128::from(part.progress_in_segment(self.now).0));
        closed + open.sum::<i128>()
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
        let counts =
            |job: &JobId| !self.lives.is_dropped(*job) && dropped.binary_search(job).is_err();
        let mut all: Vec<i128> = self.jobs.ids().filter(counts).map(service).collect();
        all.sort_unstable();
        all
    }

    /// Time since the last start or move of a running job, overhead included.
    pub(crate) fn since_start(&self, job: JobId) -> Option<SimSpan> {
        self.run(job).map(|run| self.now - run.started)
    }
}
