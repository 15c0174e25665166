//! The phases of jobs. This is the only module that knows which jobs wait and which jobs run.

use crate::structures::bits::{BitSet, slots};
use gangline_model::{Infeasible, JobId, SimTime};
use prefetch_index::prefetch_index;

/// Phase of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// The job has not arrived yet.
    Pending,
    /// The job waits for GPUs.
    Waiting,
    /// The job holds GPUs.
    Running,
    /// The job has finished all its work.
    Finished,
    /// The job is left out of the run, because it could never run.
    Dropped,
}

/// Value that is stored as the first start of a job that has not started.
pub(crate) const NOT_YET: SimTime = SimTime(i64::MIN);

/// The data that every event of a job needs, in one cache line. The state is created when the job arrives, so that a
/// run does not touch memory for future jobs.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct JobState {
    /// Remaining work of a waiting job; for a running job, the work that it would have left if it lost all its parts
    /// now.
    pub(crate) remaining: f64,
    pub(crate) first_start: SimTime,
    pub(crate) finish: SimTime,
    /// Time with GPUs up to the last settlement.
    pub(crate) run_ns: i64,
    active_at_arrival: ActiveTime,
    active_at_finish: ActiveTime,
    /// Number of the job's record if the job is running; otherwise, the constant of its phase.
    place: u32,
    pub(crate) preemptions: u32,
}

/// Integral of the number of active jobs over time, in nanoseconds. The value is below 2^95, because fewer than 2^32
/// jobs are active for less than 2^63 ns. It is stored in three words, because an i128 would take 16 bytes with an
/// alignment of 16.
#[derive(Clone, Copy, Debug)]
struct ActiveTime([u32; 3]);

impl ActiveTime {
    #[inline]
    fn new(ns: i128) -> Self {
        Self([ns as u32, (ns >> 32) as u32, (ns >> 64) as u32])
    }

    #[inline]
    fn ns(self) -> i128 {
        let [low, middle, high] = self.0.map(i128::from);
        high << 64 | middle << 32 | low
    }
}

// These values of `JobState::place` stand for phases. `Jobs::start` checks that the numbers of records are smaller.
const WAITING: u32 = u32::MAX;
const FINISHED: u32 = u32::MAX - 1;
const DROPPED: u32 = u32::MAX - 2;

impl JobState {
    /// Creates the state of a job that has just arrived; `active_ns` is the integral of the number of active jobs so
    /// far.
    #[inline]
    pub(crate) fn arrived(work: f64, active_ns: i128) -> Self {
        Self {
            remaining: work,
            first_start: NOT_YET,
            finish: SimTime::NEVER,
            run_ns: 0,
            active_at_arrival: ActiveTime::new(active_ns),
            active_at_finish: ActiveTime::new(active_ns),
            place: WAITING,
            preemptions: 0,
        }
    }

    fn dropped() -> Self {
        Self {
            place: DROPPED,
            ..Self::arrived(0.0, 0)
        }
    }

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        match self.place {
            WAITING => Phase::Waiting,
            FINISHED => Phase::Finished,
            DROPPED => Phase::Dropped,
            _ => Phase::Running,
        }
    }

    /// Returns the record of the job if it runs.
    #[inline]
    pub(crate) fn record(&self) -> Option<u32> {
        (self.place < DROPPED).then_some(self.place)
    }

    /// Returns the integral of the number of active jobs over the life of a finished job.
    #[inline]
    pub(crate) fn active_ns(&self) -> i128 {
        self.active_at_finish.ns() - self.active_at_arrival.ns()
    }
}

/// The jobs of a run that have arrived.
#[derive(Clone, Debug)]
pub(crate) struct Jobs {
    /// States of all jobs up to the most recent arrival, including jobs that the run leaves out.
    states: Vec<JobState>,
    waiting: BitSet,
    running: BitSet,
    demand: Demand,
    /// The first job that arrived at the current instant. This job and all later ones are counted as demand at the end
    /// of the instant.
    newest: usize,
    /// Number of times that each job lost all its GPUs before it was done, not counting moves; empty until the first
    /// loss.
    losses: Vec<u32>,
    /// Jobs that the run leaves out, in ascending order.
    dropped: Vec<Infeasible>,
    /// Number of dropped jobs whose arrival time has passed.
    dropped_seen: usize,
    count: usize,
    done: usize,
}

/// A gang: its size, and the GPU types that it may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gang<'a> {
    pub(crate) gpus: u32,
    pub(crate) usable: u64,
    /// Minimum size of a copy on each GPU type, if copies may differ in size from the gang.
    pub(crate) least: Option<&'a [u32]>,
}

impl Gang<'_> {
    /// Returns the minimum number of GPUs that the gang needs in order to start on a usable type.
    #[inline]
    fn on(&self, gpu_type: u32) -> u32 {
        self.least
            .map_or(self.gpus, |least| least[gpu_type as usize])
    }
}

impl Jobs {
    pub(crate) fn new(count: usize, types: usize, gpus_max: u32) -> Self {
        Self {
            states: Vec::with_capacity(count),
            waiting: BitSet::new(count),
            running: BitSet::new(count),
            demand: Demand::new(types, gpus_max),
            newest: 0,
            losses: Vec::new(),
            dropped: Vec::new(),
            dropped_seen: 0,
            count,
            done: 0,
        }
    }

    // These methods change the phases.

    /// Begins an instant. Jobs that arrive after this call count as new.
    #[inline]
    pub(crate) fn begin_instant(&mut self) {
        self.newest = self.states.len();
    }

    /// Ends the instant. Jobs that arrived at this instant and still wait are now counted as demand. Jobs that start at
    /// once are therefore never counted.
    #[expect(
        clippy::inline_always,
        reason = "called once per instant, from the run loop"
    )]
    #[inline(always)]
    pub(crate) fn end_instant<'g>(&mut self, gang: impl Fn(JobId) -> Gang<'g>) {
        for at in self.newest..self.states.len() {
            if self.states[at].phase() == Phase::Waiting {
                self.demand.add(gang(JobId::new(at)));
            }
        }
    }

    /// Leaves jobs out of the run, in addition to the jobs that are already left out.
    pub(crate) fn drop_all(&mut self, jobs: Vec<Infeasible>) {
        let mut fresh = jobs;
        fresh.retain(|entry| !self.is_dropped(entry.job));
        self.done += fresh.len();
        self.dropped.extend(fresh);
        self.dropped.sort_by_key(|entry| entry.job);
        self.skip_dropped();
    }

    /// Skips the jobs that would arrive next but are left out of the run.
    #[inline]
    fn skip_dropped(&mut self) {
        while let Some(entry) = self.dropped.get(self.dropped_seen)
            && entry.job.index() == self.states.len()
        {
            self.states.push(JobState::dropped());
            self.dropped_seen += 1;
        }
    }

    #[inline]
    pub(crate) fn arrive(&mut self, work: f64, active_ns: i128) -> JobId {
        let job = self.next();
        self.states.push(JobState::arrived(work, active_ns));
        self.waiting.insert(job.index());
        self.skip_dropped();
        job
    }

    /// Gives a waiting job a record. Returns the remaining work of the job.
    #[inline]
    pub(crate) fn start<'g>(
        &mut self,
        job: JobId,
        record: u32,
        now: SimTime,
        gang: impl FnOnce() -> Gang<'g>,
    ) -> f64 {
        assert!(
            record < DROPPED,
            "at most two jobs run per GPU, and a cluster has at most 2^30 GPUs"
        );
        let at = job.index();
        if at < self.newest {
            self.demand.remove(gang());
        }
        self.waiting.remove(at);
        self.running.insert(at);
        let state = &mut self.states[at];
        state.place = record;
        if state.first_start == NOT_YET {
            state.first_start = now;
        }
        state.remaining
    }

    #[inline]
    pub(crate) fn requeue(&mut self, job: JobId, gang: Gang<'_>) {
        self.states[job.index()].place = WAITING;
        self.running.remove(job.index());
        self.waiting.insert(job.index());
        self.demand.add(gang);
    }

    /// Counts that a job has lost all its GPUs. The caller must not count moves.
    #[inline]
    pub(crate) fn note_loss(&mut self, job: JobId) {
        if self.losses.is_empty() {
            self.losses.resize(self.count, 0);
        }
        self.losses[job.index()] += 1;
    }

    /// Records that a running job is done; `active_ns` is the integral of the number of active jobs so far.
    #[inline]
    pub(crate) fn finish(&mut self, job: JobId, now: SimTime, active_ns: i128) {
        self.running.remove(job.index());
        let state = &mut self.states[job.index()];
        state.place = FINISHED;
        state.remaining = 0.0;
        state.finish = now;
        state.active_at_finish = ActiveTime::new(active_ns);
        self.done += 1;
    }

    // These methods are queries.

    /// Returns the next job to arrive. Jobs arrive in order and have a state after their arrival, so the next job is
    /// the first one without a state. Jobs that the run leaves out are skipped.
    #[inline]
    pub(crate) fn next(&self) -> JobId {
        JobId::new(self.states.len())
    }

    /// Returns whether all jobs have arrived.
    #[inline]
    pub(crate) fn are_all_here(&self) -> bool {
        self.states.len() == self.count
    }

    /// Returns the number of jobs that are finished or left out.
    #[inline]
    pub(crate) fn done(&self) -> usize {
        self.done
    }

    #[inline]
    pub(crate) fn are_all_done(&self) -> bool {
        self.done == self.count
    }

    #[inline]
    pub(crate) fn waiting(&self) -> &BitSet {
        &self.waiting
    }

    #[inline]
    pub(crate) fn running(&self) -> &BitSet {
        &self.running
    }

    /// Returns the number of fragmented GPUs. An idle GPU is fragmented if all idle GPUs of its type together would be
    /// enough for some waiting gang. `idle` returns the number of idle GPUs of a type.
    #[inline]
    pub(crate) fn fragmented(&self, idle: impl Fn(usize) -> u32) -> u32 {
        self.demand.fragmented(idle)
    }

    /// Returns how often a job has started so far. A move is not a start.
    pub(crate) fn starts(&self, job: JobId) -> u32 {
        let losses = self.losses.get(job.index()).copied();
        let has_gpus = self
            .get(job)
            .is_some_and(|state| matches!(state.phase(), Phase::Running | Phase::Finished));
        losses.unwrap_or(0) + u32::from(has_gpus)
    }

    /// Returns the state of a job that has arrived.
    #[inline]
    pub(crate) fn get(&self, job: JobId) -> Option<&JobState> {
        self.states.get(job.index())
    }

    /// Returns the mutable state of a job that has arrived.
    #[inline]
    pub(crate) fn of(&mut self, job: JobId) -> &mut JobState {
        &mut self.states[job.index()]
    }

    /// Returns the phase of a job; `None` if the job does not exist.
    #[inline]
    pub(crate) fn phase(&self, job: JobId) -> Option<Phase> {
        match self.states.get(job.index()) {
            Some(state) => Some(state.phase()),
            None if job.index() >= self.count => None,
            None if self.is_dropped(job) => Some(Phase::Dropped),
            None => Some(Phase::Pending),
        }
    }

    /// Returns whether a job is left out of the run.
    pub(crate) fn is_dropped(&self, job: JobId) -> bool {
        let found = self.dropped.binary_search_by_key(&job, |entry| entry.job);
        found.is_ok()
    }

    /// Returns whether a job has arrived and holds no GPUs.
    #[inline]
    pub(crate) fn is_waiting(&self, job: JobId) -> bool {
        self.get(job).is_some_and(|state| state.place == WAITING)
    }

    #[inline]
    pub(crate) fn record(&self, job: JobId) -> Option<u32> {
        self.get(job)?.record()
    }

    #[inline]
    pub(crate) fn prefetch(&self, job: JobId) {
        prefetch_index(&self.states, job.index());
    }

    /// Returns the states of all jobs and the jobs left out, for the results. A job that never arrived gets the state
    /// of a job that has just arrived.
    pub(crate) fn take(&mut self) -> (Vec<JobState>, Vec<Infeasible>) {
        let mut states = std::mem::take(&mut self.states);
        states.resize(self.count, JobState::arrived(0.0, 0));
        (states, std::mem::take(&mut self.dropped))
    }
}

/// Sizes of the waiting gangs for each GPU type. They show whether the idle GPUs of a type would be enough for one of
/// these gangs.
#[derive(Clone, Debug)]
struct Demand {
    types: Vec<TypeDemand>,
}

#[derive(Clone, Debug)]
struct TypeDemand {
    /// Number of waiting gangs of each size.
    counts: Vec<u32>,
    sizes: BitSet,
    /// Size of the smallest waiting gang; `u32::MAX` if no gang waits.
    smallest: u32,
}

impl Demand {
    fn new(types: usize, gpus_max: u32) -> Self {
        let width = gpus_max as usize + 1;
        let none = TypeDemand {
            counts: vec![0; width],
            sizes: BitSet::new(width),
            smallest: u32::MAX,
        };
        Self {
            types: vec![none; types],
        }
    }

    #[inline]
    fn add(&mut self, gang: Gang<'_>) {
        for id in slots(gang.usable) {
            let gpus = gang.on(id);
            let demand = &mut self.types[id as usize];
            let count = &mut demand.counts[gpus as usize];
            *count += 1;
            if *count == 1 {
                demand.sizes.insert(gpus as usize);
                demand.smallest = demand.smallest.min(gpus);
            }
        }
    }

    #[inline]
    fn remove(&mut self, gang: Gang<'_>) {
        for id in slots(gang.usable) {
            let gpus = gang.on(id);
            let demand = &mut self.types[id as usize];
            let count = &mut demand.counts[gpus as usize];
            *count -= 1;
            if *count == 0 {
                demand.sizes.remove(gpus as usize);
                let smallest = demand.sizes.first().map(|gpus| gpus as u32);
                demand.smallest = smallest.unwrap_or(u32::MAX);
            }
        }
    }

    #[inline]
    fn fragmented(&self, idle: impl Fn(usize) -> u32) -> u32 {
        let mut fragmented = 0;
        for (id, demand) in self.types.iter().enumerate() {
            let free = idle(id);
            if demand.smallest <= free {
                fragmented += free;
            }
        }
        fragmented
    }
}
