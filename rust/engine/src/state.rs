//! The state of a run at an instant. [`motion::Motion`] changes the state; policies see the state through
//! [`crate::ClusterView`].
//!
//! The state has four parts. [`Jobs`] stores the phase of each job, and [`Occupancy`] stores the residents of each GPU.
//! [`TypeTable`] stores the usable types of each job. A record ([`Run`]) stores the work and the GPUs of a running job.

use crate::config::{RunConfig, World};
use crate::estimates::{Estimate, Estimates, Past, noise};
use crate::features::Features;
use crate::occupancy::Occupancy;
use crate::run_time::Stays;
use crate::state::jobs::{JobState, Jobs, NOT_YET};
use crate::state::running::{Part, Run};
use crate::state::types::TypeTable;
use crate::traits::PolicyTraits;
use crate::uplinks::UpLinks;

use gangline_model::{
    ClusterSpec, ElasticTable, GpuSet, GpuTypeId, Infeasible, JobId, JobTable, PhaseTable,
    RateTable, ServerId, SimSpan, SimTime, span_of_work,
};
use std::sync::Arc;

mod elastic;
pub(crate) mod jobs;
pub(crate) mod motion;
pub(crate) mod phases;
mod rates;
mod run_time;
pub(crate) mod running;
mod types;

/// The state of a run.
#[derive(Clone, Debug)]
pub struct State {
    cluster: Arc<ClusterSpec>,
    jobs: Arc<JobTable>,
    rates: Arc<RateTable>,
    config: RunConfig,
    features: Features,
    types: TypeTable,
    /// The elastic jobs; `None` in a run in which gangs may not change their size.
    elastic: Option<Arc<ElasticTable>>,
    /// The phases of jobs whose rate changes with their progress; `None` in a run in which jobs can be forked.
    phases: Option<Arc<PhaseTable>>,
    /// Overhead per GPU that the policy adds to a restart.
    restart_per_gpu: SimSpan,
    now: SimTime,
    lives: Jobs,
    /// Records of running jobs; the records in `free_records` are unused.
    runs: Vec<Run>,
    free_records: Vec<u32>,
    occupancy: Occupancy,
    /// Jobs to re-time at the end of the instant.
    touched: Vec<JobId>,
    /// Estimates from finished jobs; `None` if the run does not use such estimates.
    past: Option<Box<Past>>,
    /// Numbers of starts and moves, and the costs of the last stops; present only in a run with a `[runtime]` table.
    stays: Option<Box<Stays>>,
    /// Uplinks that jobs share; `None` means that each job sends as if it were alone.
    uplinks: Option<Box<UpLinks>>,
}

impl State {
    pub(crate) fn new(
        world: &World,
        config: RunConfig,
        traits: &PolicyTraits,
        features: Features,
    ) -> Self {
        let World {
            cluster,
            jobs,
            rates,
        } = world;
        let gang_max = jobs.columns().gpus.iter().copied().max().unwrap_or(0);
        let server_max = cluster.servers().iter().map(|server| server.gpus).max();
        let gpus_max = gang_max.max(server_max.unwrap_or(0)); // Copies may be larger than gangs.
        Self {
            types: TypeTable::new(world, traits),
            elastic: rates.elastic().filter(|_| features.resizes).cloned(),
            phases: rates.phases().filter(|_| features.has_knots).cloned(),
            restart_per_gpu: traits.restart_per_gpu,
            now: SimTime::ZERO,
            lives: Jobs::new(jobs.len(), cluster.gpu_types().len(), gpus_max),
            runs: Vec::new(),
            free_records: Vec::new(),
            occupancy: Occupancy::new(cluster, features.max_share),
            touched: Vec::new(),
            past: match &config.estimates {
                Estimates::History(rule) => Some(Box::new(Past::new(*rule))),
                _ => None,
            },
            stays: config
                .run_time
                .as_ref()
                .map(|_| Box::new(Stays::new(jobs.len()))),
            uplinks: config
                .locality
                .as_ref()
                .and_then(|model| model.shared_bw())
                .map(|capacity| Box::new(UpLinks::new(cluster.racks(), capacity))),
            cluster: Arc::clone(cluster),
            jobs: Arc::clone(jobs),
            rates: Arc::clone(rates),
            features,
            config,
        }
    }

    // These methods return the components.

    #[inline]
    pub(crate) fn cluster(&self) -> &Arc<ClusterSpec> {
        &self.cluster
    }

    #[inline]
    pub(crate) fn jobs(&self) -> &Arc<JobTable> {
        &self.jobs
    }

    #[inline]
    pub(crate) fn rates(&self) -> &RateTable {
        &self.rates
    }

    #[inline]
    pub(crate) fn config(&self) -> &RunConfig {
        &self.config
    }

    #[inline]
    pub(crate) fn features(&self) -> Features {
        self.features
    }

    #[inline]
    pub(crate) fn types(&self) -> &TypeTable {
        &self.types
    }

    #[inline]
    pub(crate) fn now(&self) -> SimTime {
        self.now
    }

    #[inline]
    pub(crate) fn lives(&self) -> &Jobs {
        &self.lives
    }

    #[inline]
    pub(crate) fn occupancy(&self) -> &Occupancy {
        &self.occupancy
    }

    /// Returns the occupancy, for changes that do not concern jobs: lending the free-GPU index, and failures and
    /// repairs of servers.
    #[inline]
    pub(crate) fn occupancy_mut(&mut self) -> &mut Occupancy {
        &mut self.occupancy
    }

    #[inline]
    pub(crate) fn uplinks(&self) -> Option<&UpLinks> {
        self.uplinks.as_deref()
    }

    // These methods advance time.

    #[inline]
    pub(crate) fn begin_instant(&mut self, now: SimTime) {
        self.now = now;
        self.lives.begin_instant();
    }

    /// Ends the instant. Returns whether jobs must still be re-timed.
    #[expect(
        clippy::inline_always,
        reason = "called once per instant, from the run loop"
    )]
    #[inline(always)]
    pub(crate) fn end_instant(&mut self) -> bool {
        let types = &self.types;
        self.lives.end_instant(|job| types.gang(job));
        let uplinks = self.uplinks.as_ref();
        !self.touched.is_empty() || uplinks.is_some_and(|uplinks| uplinks.is_out_of_date())
    }

    #[inline]
    pub(crate) fn next_arrival(&self) -> Option<SimTime> {
        let next = self.lives.next().index();
        self.jobs.columns().arrival.get(next).copied()
    }

    pub(crate) fn drop_all(&mut self, jobs: Vec<Infeasible>) {
        self.lives.drop_all(jobs);
    }

    /// Returns the states of all jobs, and the jobs left out, for the results.
    pub(crate) fn take_lives(&mut self) -> (Vec<JobState>, Vec<Infeasible>) {
        self.lives.take()
    }

    // These methods are queries.

    /// Returns the number of GPUs that a part of the job has on a server.
    #[inline]
    pub(crate) fn gang_on(&self, job: JobId, server: ServerId) -> u32 {
        let gang = self.jobs.gpus(job);
        match self.types.copy_gpus() {
            None => gang,
            Some(copy) => copy.on(self.cluster.server(server).gpus, gang),
        }
    }

    #[inline]
    fn requeue(&mut self, job: JobId) {
        let gang = self.types.gang(job);
        self.lives.requeue(job, gang);
    }

    /// Returns the record of a running job.
    #[inline]
    pub fn run(&self, job: JobId) -> Option<&Run> {
        let record = self.lives.record(job)?;
        Some(&self.runs[record as usize])
    }

    /// Returns the number of a running job's record.
    #[inline]
    pub(crate) fn record_of(&self, job: JobId) -> usize {
        self.lives.record(job).expect("a running job") as usize
    }

    #[inline]
    pub(crate) fn job_of(&self, record: usize) -> JobId {
        self.runs[record].job
    }

    /// Returns whether an event of this generation belongs to the job that currently uses the record.
    #[inline]
    pub(crate) fn is_live(&self, record: u32, generation: u32) -> bool {
        self.runs[record as usize].generation == generation
    }

    /// Prefetches the record of a run that may end soon.
    #[inline]
    pub(crate) fn prefetch_run(&self, record: u32) {
        if let Some(run) = self.runs.get(record as usize) {
            run.prefetch();
        }
    }

    /// Prefetches the state of the job whose run ends next.
    #[inline]
    pub(crate) fn prefetch_end(&self, record: u32) {
        self.lives.prefetch(self.runs[record as usize].job);
    }

    #[inline]
    pub(crate) fn first_start(&self, job: JobId) -> Option<SimTime> {
        let first = self.lives.get(job)?.first_start;
        (first != NOT_YET).then_some(first)
    }

    /// Returns the current remaining work without changing the state.
    pub(crate) fn remaining_work(&self, job: JobId) -> f64 {
        let Some(state) = self.lives.get(job) else {
            return self.jobs.work(job);
        };
        match self.run(job) {
            None => state.remaining,
            Some(run) => {
                let work = |sum, part: &Part| {
                    sum + part.rate * part.progress(run.since, self.now).seconds()
                };
                run.left - run.parts.iter().fold(0.0, work)
            }
        }
    }

    /// Returns the isolated time that the remaining work takes; see [`crate::ClusterView::remaining`].
    pub(crate) fn remaining_span(&self, job: JobId) -> SimSpan {
        // The rate of an elastic job changes at its next knot.
        let is_steady = |run: &Run| run.knot <= 0.0 || self.phases_of(job).is_some();
        match self.run(job) {
            Some(run) if self.is_at_best_rate(run) && !run.is_forked() && is_steady(run) => {
                self.done_at(run) - run.progress_from(self.now)
            }
            _ => self.span_at(job, self.types.best_rate(job)),
        }
    }

    /// Returns the isolated time that all the work takes.
    #[inline]
    pub(crate) fn duration(&self, job: JobId) -> SimSpan {
        span_of_work(self.jobs.work(job), self.types.best_rate(job))
    }

    /// Returns the estimate of the job's duration that policies see.
    #[inline]
    pub(crate) fn estimate(&self, job: JobId) -> Estimate {
        let told = match &self.config.estimates {
            Estimates::Exact => return Estimate::Exact,
            Estimates::Noise(sigma) => {
                return Estimate::Times(noise(self.config.seed, job, *sigma));
            }
            Estimates::Given(totals) => Some(totals[job.index()]),
            Estimates::History(_) => self.past.as_ref().and_then(|past| past.told(job)),
        };
        told.map_or(Estimate::Exact, |total| {
            Estimate::Plus(SimSpan(total.0 - self.duration(job).0))
        })
    }

    /// Returns the memory per GPU at the given sub-batch; 0 means the full batch size.
    pub(crate) fn memory_bytes(&self, job: JobId, sub_batch: u32) -> u64 {
        if sub_batch == 0 || sub_batch >= self.jobs.batch_size(job) {
            return self.jobs.memory_bytes(job);
        }
        self.pass_bytes(job, sub_batch)
    }

    /// Returns the iteration time at the given sub-batch, divided by the iteration time at full batch size, on this
    /// number of servers of a type. If `servers` is `None`, the job is assumed to be on as few servers as possible.
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

    /// Returns the maximum time without progress that a start or move costs the job now.
    #[inline]
    pub(crate) fn overhead(&self, job: JobId) -> SimSpan {
        self.overhead_of(job, || (self.jobs.gpus(job), self.types.usable(job)))
    }

    /// Returns [`Self::overhead`] on the GPUs that `place` describes by their number and a mask of their types. `place`
    /// is called only if the overhead depends on its result.
    #[inline]
    fn overhead_of(&self, job: JobId, place: impl Fn() -> (u32, u64)) -> SimSpan {
        if !self.features.starts_cost {
            return SimSpan::ZERO;
        }
        if self.features.has_run_time {
            let (gpus, types) = place();
            return self.start_cost(job, gpus, types);
        }
        if self.first_start(job).is_none() {
            return self.config.first_start;
        }
        self.restart_overhead(job)
    }

    /// Returns [`Self::overhead`] for a start or move of the gang to GPUs of one type.
    #[inline]
    pub(crate) fn overhead_on(&self, job: JobId, gpu_type: GpuTypeId) -> SimSpan {
        self.overhead_of(job, || (self.jobs.gpus(job), 1 << gpu_type.index()))
    }

    /// Returns [`Self::overhead`] for a start or move to these GPUs.
    #[inline]
    pub(crate) fn overhead_at(&self, job: JobId, gpus: &GpuSet) -> SimSpan {
        self.overhead_of(job, || (gpus.gpus(), self.type_mask(gpus)))
    }

    /// Returns the maximum time without progress that a restart or move costs the job.
    #[inline]
    pub(crate) fn restart_overhead(&self, job: JobId) -> SimSpan {
        let cost = if self.features.has_run_time {
            self.longest_restart(job)
        } else {
            self.restart_of_run(job)
        };
        cost + self.restart_per_gpus(job)
    }

    /// Returns the restart cost that the options of the run set, without the cost that the policy adds.
    #[inline]
    fn restart_of_run(&self, job: JobId) -> SimSpan {
        match (&self.config.restart_by_model, self.jobs.model(job)) {
            (Some(spans), Some(label)) => spans[label as usize],
            _ => self.config.restart,
        }
    }

    /// Returns the cost that a policy adds to a restart for each GPU of the gang.
    #[inline]
    fn restart_per_gpus(&self, job: JobId) -> SimSpan {
        SimSpan(self.restart_per_gpu.0 * i64::from(self.jobs.gpus(job)))
    }
}
