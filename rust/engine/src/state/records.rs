//! The records of a run: what it keeps of each job, of each running job and of each server.
//!
//! Plain data, laid out by cache lines for the events that read it; [`crate::State`] keeps them in step.

use gangline_model::{ClusterSpec, GpuSet, GpuTypeId, JobId, SimSpan, SimTime, Tier};

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

/// A running job, in two cache lines. It holds all that the end of a run reads, so that the job's own record, by then
/// long out of the cache, is only written. What only some runs need is in [`RunDetails`].
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Run {
    /// Its GPUs.
    pub gpus: GpuSet,
    /// The job.
    pub job: JobId,
    pub(crate) generation: u32,
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
    /// Work left at the later of `segment_start` and `progress_start`.
    pub(crate) left: f64,
    /// Time the job has held GPUs, up to the start of the present segment.
    pub(crate) held_ns: i64,
    pub(crate) locality: f64,
    /// GPU type of its first server.
    pub gpu_type: GpuTypeId,
    /// Samples per GPU and pass; 0 = the job's own batch size.
    pub sub_batch: u32,
    /// Tier of its placement.
    pub tier: Tier,
    pub(crate) touched: bool,
}

impl Default for Run {
    /// A record that nobody holds yet.
    fn default() -> Self {
        Self {
            gpus: GpuSet::new(),
            job: JobId(NO_JOB),
            generation: 0,
            rate: 0.0,
            segment_start: SimTime::ZERO,
            progress_start: SimTime::ZERO,
            finish: SimTime::NEVER,
            started: SimTime::ZERO,
            left: 0.0,
            held_ns: 0,
            locality: 1.0,
            gpu_type: GpuTypeId(0),
            sub_batch: 0,
            tier: Tier::Server,
            touched: false,
        }
    }
}

/// What a run keeps of a running job only where GPUs are shared or segments are written.
#[derive(Clone, Debug)]
pub(crate) struct RunDetails {
    /// Since when it has a co-runner; `NEVER` while it has none.
    pub(crate) shared_since: SimTime,
    /// Sub-batch when the segment opened.
    pub(crate) segment_sub_batch: u32,
    /// Co-runners when the segment opened.
    pub(crate) co_runners: Option<Box<[u32]>>,
}

/// No resident.
pub(crate) const NO_JOB: u32 = u32::MAX;
/// A job that has not started: its first start.
pub(crate) const NOT_YET: SimTime = SimTime(i64::MIN);

/// What every event of a job needs, in one cache line instead of one per column. Made when the job arrives, so that
/// a run does not touch the memory of jobs to come.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct JobState {
    /// Work left when it waits; while it runs, what it would have left if its server failed.
    pub(crate) remaining: f64,
    pub(crate) first_start: SimTime,
    pub(crate) finish: SimTime,
    /// Time it has held GPUs, up to the start of the present segment.
    pub(crate) run_ns: i64,
    active_at_arrival: ActiveTime,
    pub(super) active_at_finish: ActiveTime,
    /// Record of the running job, or its phase.
    pub(super) place: u32,
    /// How often it was preempted.
    pub(crate) preemptions: u32,
}

/// Integral of the number of active jobs over time, ns. Below 2^95: fewer than 2^32 jobs for less than 2^63 ns. In
/// three words, as an i128 would take 16 bytes and an alignment of 16.
#[derive(Clone, Copy, Debug)]
pub(super) struct ActiveTime([u32; 3]);

impl ActiveTime {
    #[inline]
    pub(super) fn new(ns: i128) -> Self {
        Self([ns as u32, (ns >> 32) as u32, (ns >> 64) as u32])
    }

    #[inline]
    fn ns(self) -> i128 {
        let [low, middle, high] = self.0.map(i128::from);
        high << 64 | middle << 32 | low
    }
}

// values of `JobState::place` that are no record: `State::set_running` makes sure that no record is as large
/// A waiting job.
pub(super) const WAITING: u32 = u32::MAX;
/// A job whose work is done.
pub(super) const FINISHED: u32 = u32::MAX - 1;
/// A job that is left out of the run.
pub(super) const DROPPED: u32 = u32::MAX - 2;

impl JobState {
    /// A job that has come and waits; `active_ns` is the integral of active jobs so far.
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

    /// A job that is left out of the run.
    pub(crate) fn dropped() -> Self {
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

    /// Record of the running job.
    #[inline]
    pub(crate) fn slot(&self) -> Option<u32> {
        (self.place < DROPPED).then_some(self.place)
    }

    /// Integral of the number of active jobs over the life of a finished job.
    #[inline]
    pub(crate) fn active_ns(&self) -> i128 {
        self.active_at_finish.ns() - self.active_at_arrival.ns()
    }
}

/// A server, with all that a start or stop on it needs side by side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerState {
    /// Free slots; 0 if it is down.
    pub(crate) free: u64,
    /// All its slots.
    pub(crate) full: u64,
    /// Number of its first GPU, GPUs counted over the whole cluster.
    pub(crate) gpu_base: u32,
    pub(crate) gpu_type: GpuTypeId,
    pub(crate) up: bool,
}

impl Run {
    /// Share of its base rate that the job keeps here, to the nearest 2^-40, in that unit.
    pub(crate) fn kept(&self) -> i128 {
        (self.locality * (1_u64 << 40) as f64).round() as i128
    }

    /// Time with progress in the present segment, up to `now`.
    #[inline]
    pub fn progress_in_segment(&self, now: SimTime) -> SimSpan {
        SimSpan((now - self.segment_start.max(self.progress_start)).0.max(0))
    }
}

/// All servers of a cluster, up and with all their GPUs free.
pub(super) fn server_states(cluster: &ClusterSpec) -> Vec<ServerState> {
    let mut next = 0;
    let states = cluster.servers().iter().map(|server| {
        let gpu_base = next;
        next += server.gpus;
        let full = u64::MAX >> (64 - server.gpus);
        ServerState {
            free: full,
            full,
            gpu_base,
            gpu_type: server.gpu_type,
            up: true,
        }
    });
    states.collect()
}
