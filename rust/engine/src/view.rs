//! Everything that a policy can read: the current state of the cluster, and the changes since its last decision.

use crate::accounts::Accounts;
use crate::error::PolicyError;
use crate::estimates::{Estimate, Estimates};
use crate::state::State;
use crate::state::jobs::Phase;
use crate::state::phases::PresentPhase;
use crate::state::running::{Part, Run};
use crate::traits::Knowledge;
use gangline_model::{
    ClusterSpec, ElasticModel, GpuSet, GpuTypeId, JobFacts, JobId, JobTable, LocalityModel,
    ServerId, SimSpan, SimTime, Tier, TimerTag,
};
use smallvec::SmallVec;
use std::ops::Deref;
use std::sync::Arc;

/// An entry of [`Changes::order`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A job arrived.
    Arrived(JobId),
    /// A job finished.
    Finished(JobId),
    /// A server was repaired.
    Up(ServerId),
    /// A server failed.
    Down(ServerId),
}

/// Changes since the last decision: first the effects of that decision's plan, then the events in order.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Jobs that the last plan started.
    pub started: Vec<JobId>,
    /// Jobs that lost all their GPUs because of the last plan, and now wait again.
    pub preempted: Vec<JobId>,
    /// Running jobs that the last plan moved to other GPUs.
    pub moved: Vec<JobId>,
    /// Jobs whose rate might have changed. There are four causes: the last plan changed the job's terms; a co-runner
    /// started, left or began to make progress; the job's share of an uplink changed; or the next phase of an elastic
    /// job began. Where GPUs or uplinks are shared, the list also contains jobs that were started or moved. A job may
    /// appear twice. Jobs in this list, in `started` and in `moved` may have ended in the meantime.
    pub retimed: Vec<JobId>,
    /// Jobs that arrived.
    pub arrived: Vec<JobId>,
    /// Jobs that finished.
    pub finished: Vec<JobId>,
    /// Jobs that a failure evicted and that now wait again.
    pub requeued: Vec<JobId>,
    /// Parts that a failure ended while other parts of the same job continue; each entry contains the job and the
    /// number of the part.
    pub parts_lost: Vec<(JobId, u16)>,
    /// Servers that were repaired.
    pub servers_up: Vec<ServerId>,
    /// Servers that failed.
    pub servers_down: Vec<ServerId>,
    /// Timers that fired.
    pub timers: Vec<TimerTag>,
    /// Arrivals, completions, failures and repairs in a single order; recorded only for a policy with
    /// [`crate::PolicyTraits::orders_changes`].
    pub order: Vec<Change>,
    /// Whether this instant is a round boundary.
    pub is_round: bool,
}

impl Changes {
    /// Returns whether any server failed or was repaired.
    #[inline]
    pub fn has_servers(&self) -> bool {
        !(self.servers_up.is_empty() && self.servers_down.is_empty())
    }

    /// Returns whether a gang that did not fit before might fit now. GPUs may have become free, because a job ended or
    /// lost a server, or because a server was repaired. The same holds after a failure, because some placement rules
    /// split gangs according to the size of the largest server that is up.
    #[inline]
    pub fn has_room(&self) -> bool {
        !(self.finished.is_empty() && self.requeued.is_empty()) || self.has_servers()
    }

    pub(crate) fn clear(&mut self) {
        self.started.clear();
        self.preempted.clear();
        self.moved.clear();
        self.retimed.clear();
        self.arrived.clear();
        self.finished.clear();
        self.requeued.clear();
        self.parts_lost.clear();
        self.servers_up.clear();
        self.servers_down.clear();
        self.timers.clear();
        self.order.clear();
        self.is_round = false;
    }
}

/// Public information about the jobs, which a policy may store.
#[derive(Clone, Debug)]
pub struct SharedFacts(Arc<JobTable>);

impl Deref for SharedFacts {
    type Target = JobFacts;

    fn deref(&self) -> &JobFacts {
        &self.0
    }
}

/// A read-only view of the state at the instant of a decision.
#[derive(Clone, Copy, Debug)]
pub struct ClusterView<'a> {
    pub(crate) state: &'a State,
    pub(crate) accounts: &'a Accounts,
    pub(crate) knowledge: Knowledge,
}

impl<'a> ClusterView<'a> {
    /// Returns the current instant.
    #[inline]
    pub fn now(&self) -> SimTime {
        self.state.now()
    }

    /// Returns the cluster description.
    pub fn cluster(&self) -> &'a ClusterSpec {
        self.state.cluster()
    }

    /// Returns the public information about the jobs in the trace. The work of a job is available only through methods
    /// of the view, which check [`Knowledge`].
    #[inline]
    pub fn jobs(&self) -> &'a JobFacts {
        self.state.jobs()
    }

    /// Returns the seed of the run, for the random draws of policies.
    pub fn seed(&self) -> u64 {
        self.state.config().seed
    }

    /// Returns the maximum number of jobs on one GPU in this run.
    pub fn max_share(&self) -> u32 {
        self.state.features().max_share
    }

    /// Returns the time with progress between two checkpoints. If there is no interval, a preempted job keeps all its
    /// progress.
    pub fn checkpoint_interval(&self) -> Option<SimSpan> {
        self.state.config().checkpoint_interval
    }

    /// Returns the number of free GPUs of the given type.
    #[inline]
    pub fn gpus_free(&self, gpu_type: GpuTypeId) -> u32 {
        self.gpus_up(gpu_type) - self.state.occupancy().busy(gpu_type)
    }

    /// Returns the number of GPUs of the given type on servers that are up.
    #[inline]
    pub fn gpus_up(&self, gpu_type: GpuTypeId) -> u32 {
        self.state.occupancy().up(gpu_type)
    }

    /// Returns the free slots of a server; 0 if the server is down.
    #[inline]
    pub fn free_mask(&self, server: ServerId) -> u64 {
        self.state.occupancy().free_mask(server)
    }

    /// Returns whether a server is up.
    pub fn is_up(&self, server: ServerId) -> bool {
        self.state.occupancy().is_up(server)
    }

    /// Returns the waiting jobs in order of arrival.
    pub fn waiting(&self) -> impl Iterator<Item = JobId> + use<'a> {
        self.state.lives().waiting().iter().map(JobId::new)
    }

    /// Returns the first waiting job in order of arrival.
    #[inline]
    pub fn first_waiting(&self) -> Option<JobId> {
        self.state.lives().waiting().first().map(JobId::new)
    }

    /// Returns the first waiting job with an id of at least `from`.
    #[inline]
    pub fn next_waiting(&self, from: JobId) -> Option<JobId> {
        self.state
            .lives()
            .waiting()
            .next_from(from.index())
            .map(JobId::new)
    }

    /// Returns the number of waiting jobs.
    pub fn waiting_count(&self) -> usize {
        self.state.lives().waiting().len()
    }

    /// Returns the running jobs in the order of their ids.
    pub fn running(&self) -> impl Iterator<Item = JobId> + use<'a> {
        self.state.lives().running().iter().map(JobId::new)
    }

    /// Returns the phase of a job.
    #[inline]
    pub fn phase(&self, job: JobId) -> Phase {
        self.state.lives().phase(job).expect("a job of the trace")
    }

    /// Prefetches the record of a job that might be started or stopped soon. If many jobs wait, only a few records are
    /// in a cache.
    #[inline]
    pub fn prefetch(&self, job: JobId) {
        self.state.lives().prefetch(job);
    }

    /// Returns the record of a running job, which contains its GPUs, its rate and its times.
    #[inline]
    pub fn run(&self, job: JobId) -> Option<&'a Run> {
        self.state.run(job)
    }

    /// Returns the residents of a GPU.
    pub fn residents(&self, server: ServerId, slot: u32) -> impl Iterator<Item = JobId> + use<'a> {
        let there = self.state.occupancy();
        there.residents(server, slot).iter().copied()
    }

    /// Returns how many GPUs of the given type either are free, or have one resident and at least `bytes` of free
    /// memory. The cost is O(distinct amounts of free memory).
    pub fn open_gpus(&self, gpu_type: GpuTypeId, bytes: u64) -> u32 {
        self.state.occupancy().open_gpus(gpu_type, bytes)
    }

    /// Returns the free memory of a GPU in bytes; `None` if GPUs are not shared.
    pub fn free_bytes(&self, server: ServerId, slot: u32) -> Option<u64> {
        self.state.occupancy().free_bytes(server, slot)
    }

    /// Returns the co-runners of a running part in the order of their ids. Each entry contains the number of shared
    /// GPUs and the slowdown factor that the co-runner causes.
    pub fn partners(&self, job: JobId, part: &Part) -> SmallVec<[(JobId, u32, f64); 2]> {
        self.state.partners(job, &part.gpus)
    }

    /// Returns the memory per GPU, in bytes, that the job needs at the given sub-batch; 0 means the full batch size.
    pub fn memory_bytes(&self, job: JobId, sub_batch: u32) -> u64 {
        self.state.memory_bytes(job, sub_batch)
    }

    /// Returns the iteration time of the job at the given sub-batch, divided by its iteration time at full batch size,
    /// on the fewest possible servers of a type. A sub-batch of 0 means the full batch size.
    pub fn inflation(&self, job: JobId, sub_batch: u32, gpu_type: GpuTypeId) -> f64 {
        self.state.inflation(job, sub_batch, gpu_type, None)
    }

    /// Returns the ratio of [`Self::inflation`] for the GPUs of a placement.
    pub fn inflation_on(&self, job: JobId, sub_batch: u32, gpus: &GpuSet) -> f64 {
        let places = gpus.by_server();
        let gpu_type = self.state.occupancy().type_of(places[0].server);
        self.state
            .inflation(job, sub_batch, gpu_type, Some(places.len()))
    }

    /// Returns the current sub-batch of a running job, on which its memory depends; 0 means the full batch size.
    pub fn sub_batch(&self, job: JobId) -> u32 {
        self.state.run(job).map_or(0, |run| run.only().sub_batch)
    }

    /// Returns the slowdown factor of `job` next to `co_runner` on a type; `None` if the two may not share GPUs.
    pub fn xi(&self, job: JobId, co_runner: JobId, gpu_type: GpuTypeId) -> Option<f64> {
        self.state.pair_xi(job, co_runner, gpu_type)
    }

    /// Returns the sharing class of a job. Jobs of one class cause the same slowdown, and any co-runner slows them
    /// equally. The class is 0 if the run has no table of slowdown factors.
    pub fn pair_class(&self, job: JobId) -> u32 {
        let table = self.state.config().interference.as_ref();
        table.map_or(0, |table| table.class(job))
    }

    /// Returns the model for the job's rates on other numbers of GPUs, if the job is elastic.
    #[inline]
    pub fn elastic(&self, job: JobId) -> Option<&'a ElasticModel> {
        self.state.elastic_model(job)
    }

    /// Returns the current noise phase of an elastic job; 0 for every other job.
    pub fn noise_phase(&self, job: JobId) -> usize {
        self.state.noise_phase(job)
    }

    /// Returns the memory per GPU, in bytes, that an elastic job needs if each pass has `pass_batch` samples.
    pub fn pass_bytes(&self, job: JobId, pass_batch: u32) -> u64 {
        self.state.pass_bytes(job, pass_batch)
    }

    /// Returns the instant of the job's first start, if it has started.
    #[inline]
    pub fn first_start(&self, job: JobId) -> Option<SimTime> {
        self.state.first_start(job)
    }

    /// Returns how often a job has started so far. A move is not a start.
    pub fn starts(&self, job: JobId) -> u32 {
        self.state.lives().starts(job)
    }

    /// Returns the time that the job has held GPUs so far, without overhead.
    #[inline]
    pub fn executed(&self, job: JobId) -> SimSpan {
        self.accounts.executed(self.state, job)
    }

    /// Returns the GPU time of the job so far, without overhead, in GPU-nanoseconds.
    #[inline]
    pub fn attained_gpu_ns(&self, job: JobId) -> i128 {
        self.accounts.attained_gpu_ns(self.state, job)
    }

    /// Returns the types that the job may use, as a mask.
    #[inline]
    pub fn usable_types(&self, job: JobId) -> u64 {
        self.state.types().usable(job)
    }

    /// Returns the number of GPUs that a part of the job has on a server. This is the gang size, unless the policy sets
    /// a different number of GPUs for copies.
    #[inline]
    pub fn gang_on(&self, job: JobId, server: ServerId) -> u32 {
        self.state.gang_on(job, server)
    }

    /// Returns the base rate, in iterations per second, of one copy of the job that runs alone and consolidated on
    /// `gpus` GPUs of a type.
    pub fn copy_rate(&self, job: JobId, gpu_type: GpuTypeId, gpus: u32) -> f64 {
        let state = self.state;
        state.rates().of_copy(state.jobs(), job, gpu_type, gpus)
    }

    /// Returns whether the rates of the job were measured, that is, whether they come from the throughput table.
    pub fn has_measured_rates(&self, job: JobId) -> bool {
        let state = self.state;
        state.rates().is_measured(state.jobs(), job)
    }

    /// Returns whether the run leaves the job out because it can never run.
    pub fn is_dropped(&self, job: JobId) -> bool {
        self.state.lives().is_dropped(job)
    }

    /// Returns the types that the job may use, in descending order of base rate; ties are in ascending order of index.
    #[inline]
    pub fn types_of(&self, job: JobId) -> impl Iterator<Item = GpuTypeId> + use<'a> {
        let usable = self.state.types().usable(job);
        let order = self.state.types().order(job);
        order
            .iter()
            .copied()
            .filter(move |id| usable >> id.index() & 1 == 1)
    }

    /// Returns the maximum time without progress, over all possible places, that a start or move would cost the job
    /// now.
    #[inline]
    pub fn overhead(&self, job: JobId) -> SimSpan {
        self.state.overhead(job)
    }

    /// Returns [`Self::overhead`] for GPUs of one type.
    #[inline]
    pub fn overhead_on(&self, job: JobId, gpu_type: GpuTypeId) -> SimSpan {
        self.state.overhead_on(job, gpu_type)
    }

    /// Returns [`Self::overhead`] for these GPUs.
    #[inline]
    pub fn overhead_at(&self, job: JobId, gpus: &GpuSet) -> SimSpan {
        self.state.overhead_at(job, gpus)
    }

    /// Returns whether the run has a `[runtime]` table, which sets costs for each kind of job or makes rates deviate
    /// from those that policies know.
    #[inline]
    pub fn has_run_time(&self) -> bool {
        self.state.features().has_run_time
    }

    /// Returns the maximum time without progress that a start or move costs the job after its first start.
    pub fn restart_overhead(&self, job: JobId) -> SimSpan {
        self.state.restart_overhead(job)
    }

    /// Returns the time that the job has held GPUs so far, including overhead.
    pub fn held(&self, job: JobId) -> SimSpan {
        let closed = self.state.lives().get(job).map_or(0, |job| job.run_ns);
        let open = self.run(job).map_or(0, |run| (self.now() - run.since).0);
        SimSpan(closed + open)
    }

    /// Returns the locality factor of the job, integrated over its time with progress so far. The unit is 10^-12 ns.
    /// The policy must declare [`crate::PolicyTraits::watches_locality`].
    pub fn kept_ns(&self, job: JobId) -> i128 {
        self.accounts.kept_ns(self.state, job)
    }

    /// Returns the rate, in iterations/s, that the job would have on these GPUs, next to their current residents; 0 if
    /// it cannot run there.
    pub fn rate_if(&self, job: JobId, gpus: &GpuSet) -> f64 {
        self.state.rate_if(job, gpus)
    }

    /// Returns the rate, in iterations/s, that the job would have if it were alone on these GPUs; 0 if it cannot run
    /// there.
    pub fn rate_alone(&self, job: JobId, gpus: &GpuSet) -> f64 {
        self.state.rate_alone(job, gpus)
    }

    /// Returns the rate, in iterations/s, that a running job would have in its current phase if it were alone on its
    /// GPUs.
    pub fn rate_alone_now(&self, job: JobId, gpus: &GpuSet) -> f64 {
        self.state.rate_alone_now(job, gpus)
    }

    /// Returns whether the rate of a job changes with its progress.
    #[inline]
    pub fn has_phases(&self, job: JobId) -> bool {
        self.state.phases_of(job).is_some()
    }

    /// Returns the current phase of a job whose rate changes with its progress.
    pub fn present_phase(&self, job: JobId) -> Option<PresentPhase> {
        self.state.present_phase(job)
    }

    /// Returns whether this run has a job that is not elastic and whose rate changes with its progress.
    pub fn has_any_phases(&self) -> bool {
        self.state.rates().phases().is_some()
    }

    /// Returns the current locality factor of a running gang, including the effect of other jobs that send through the
    /// same uplinks; 1 without a network. The result is `None` if the job does not run.
    #[inline]
    pub fn locality(&self, job: JobId) -> Option<f64> {
        self.run(job).map(|run| run.only().locality)
    }

    /// Returns the total gradient size of the job's model, in bytes; 0 if unknown.
    pub fn grad_bytes(&self, job: JobId) -> f64 {
        let known = &self.state.config().grad_bytes;
        let label = self.jobs().model(job);
        let bytes = label.and_then(|label| known.get(label as usize));
        bytes.copied().unwrap_or(0.0)
    }

    /// Returns whether gangs that span racks slow each other down.
    #[inline]
    pub fn shares_uplinks(&self) -> bool {
        self.state.uplinks().is_some()
    }

    /// Returns the locality factor of the gang on GPUs of a type; the factor holds for any placement in the given tier.
    pub fn locality_at(&self, job: JobId, gpu_type: GpuTypeId, tier: Tier) -> f64 {
        let gang = self.state.jobs().gang(job, gpu_type);
        self.network()
            .map_or(1.0, |model| model.at_tier(&gang, tier))
    }

    /// Returns the locality model; `None` if distance costs nothing.
    pub fn network(&self) -> Option<&'a dyn LocalityModel> {
        self.state.config().locality.as_deref()
    }

    /// Returns the cluster, jobs and network of the run, which a policy may store.
    pub fn shared(
        &self,
    ) -> (
        Arc<ClusterSpec>,
        SharedFacts,
        Option<Arc<dyn LocalityModel>>,
    ) {
        let state = self.state;
        (
            Arc::clone(state.cluster()),
            SharedFacts(Arc::clone(state.jobs())),
            state.config().locality.clone(),
        )
    }

    /// Returns the base rate of the gang on a type, in iterations/s.
    #[inline]
    pub fn base_rate(&self, job: JobId, gpu_type: GpuTypeId) -> f64 {
        self.state.rates().base(self.state.jobs(), job, gpu_type)
    }

    /// Returns the total work of the job, in iterations.
    ///
    /// # Errors
    /// Returns [`PolicyError::NotAllowedToKnow`] for an online policy.
    pub fn work(&self, job: JobId) -> Result<f64, PolicyError> {
        self.check_knowledge(job)?;
        Ok(self.state.jobs().work(job))
    }

    /// Returns the isolated time that all work of the job takes on its best type.
    ///
    /// # Errors
    /// Returns [`PolicyError::NotAllowedToKnow`] for an online policy.
    #[inline]
    pub fn duration(&self, job: JobId) -> Result<SimSpan, PolicyError> {
        self.check_knowledge(job)?;
        Ok(self.state.duration(job))
    }

    /// Returns whether policies see exact durations in this run.
    #[inline]
    pub fn tells_exactly(&self) -> bool {
        self.state.config().estimates.is_exact()
    }

    /// Returns whether estimates come from finished jobs; if so, there are no estimates at the start of the run.
    pub fn tells_by_history(&self) -> bool {
        matches!(self.state.config().estimates, Estimates::History(_))
    }

    /// Returns the run's estimate of the duration of a job.
    ///
    /// # Errors
    /// Returns [`PolicyError::NotAllowedToKnow`] for an online policy.
    #[inline]
    pub fn estimate(&self, job: JobId) -> Result<Estimate, PolicyError> {
        self.check_knowledge(job)?;
        Ok(self.state.estimate(job))
    }

    /// Returns the rate, in iterations/s, that the job has alone on its best type.
    #[inline]
    pub fn best_rate(&self, job: JobId) -> f64 {
        self.state.types().best_rate(job)
    }

    /// Returns the isolated time that the remaining work takes at the best rate. [`Estimate::factor`] uses this time to
    /// compute the factor for times at other rates.
    ///
    /// # Errors
    /// Returns [`PolicyError::NotAllowedToKnow`] for an online policy.
    pub fn isolated_left(&self, job: JobId) -> Result<SimSpan, PolicyError> {
        self.span_at(job, self.best_rate(job))
    }

    /// Returns the time that the remaining work would take at a rate. If the rate of the job changes with its progress,
    /// the given rate is the mean over its phases.
    ///
    /// # Errors
    /// Returns [`PolicyError::NotAllowedToKnow`] for an online policy.
    #[inline]
    pub fn span_at(&self, job: JobId, rate: f64) -> Result<SimSpan, PolicyError> {
        self.check_knowledge(job)?;
        Ok(self.state.span_at(job, rate))
    }

    /// Returns the same time as [`Self::span_at`], but in seconds and without rounding.
    ///
    /// # Errors
    /// Returns [`PolicyError::NotAllowedToKnow`] for an online policy.
    #[inline]
    pub fn seconds_at(&self, job: JobId, rate: f64) -> Result<f64, PolicyError> {
        self.check_knowledge(job)?;
        Ok(self.state.seconds_at(job, rate))
    }

    /// Returns the time that the remaining work would take on the job's best type, consolidated and alone. If the job
    /// runs at its best rate, this is the exact time to its completion, to the nanosecond.
    ///
    /// # Errors
    /// Returns [`PolicyError::NotAllowedToKnow`] for an online policy.
    #[inline]
    pub fn remaining(&self, job: JobId) -> Result<SimSpan, PolicyError> {
        self.check_knowledge(job)?;
        Ok(self.state.remaining_span(job))
    }

    /// Returns the remaining work, in iterations.
    ///
    /// # Errors
    /// Returns [`PolicyError::NotAllowedToKnow`] for an online policy.
    pub fn remaining_work(&self, job: JobId) -> Result<f64, PolicyError> {
        self.check_knowledge(job)?;
        Ok(self.state.remaining_work(job))
    }

    /// Returns whether every job in this run has its best rate from its start to its end. This requires a single GPU
    /// type, no overhead, and no cost of distance or co-runners. Sub-batches and quotas depend on the policy and are
    /// not considered.
    pub fn is_undisturbed(&self) -> bool {
        self.state.features().is_undisturbed
    }

    /// Returns whether a running job has its best rate because it is alone and consolidated.
    #[inline]
    pub fn is_at_best_rate(&self, job: JobId) -> bool {
        self.run(job)
            .is_some_and(|run| self.state.is_at_best_rate(run))
    }

    /// Returns the time at which a running job finishes if nothing else changes. The time takes all phases of the job
    /// into account.
    ///
    /// # Errors
    /// Returns [`PolicyError::NotAllowedToKnow`] for an online policy.
    #[inline]
    pub fn finish(&self, job: JobId) -> Result<Option<SimTime>, PolicyError> {
        self.check_knowledge(job)?;
        Ok(self.run(job).map(|run| self.state.done_at(run)))
    }

    /// Returns, in ascending order, the isolated service of each job in the trace except the jobs in `dropped`, which
    /// must be sorted by id. The values are in GPU-nanoseconds, or in nanoseconds if `is_time` is set, and are based on
    /// the run's estimates. A policy may know this distribution even if it may not know the service of any single job.
    pub fn service_distribution(&self, is_time: bool, dropped: &[JobId]) -> Vec<i128> {
        let jobs = self.state.jobs();
        let service = |job: JobId| {
            let span = self.state.estimate(job).of(self.state.duration(job));
            let gpus = if is_time { 1 } else { jobs.gpus(job) };
            i128::from(span.0) * i128::from(gpus)
        };
        let counts = |job: &JobId| !self.is_dropped(*job) && dropped.binary_search(job).is_err();
        let mut all: Vec<i128> = jobs.ids().filter(counts).map(service).collect();
        all.sort_unstable();
        all
    }

    #[inline]
    fn check_knowledge(&self, job: JobId) -> Result<(), PolicyError> {
        match self.knowledge {
            Knowledge::Remaining => Ok(()),
            Knowledge::Online => Err(PolicyError::NotAllowedToKnow { job }),
        }
    }
}
