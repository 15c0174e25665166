//! The records of running jobs: plain data, which [`crate::state`] keeps in step.
//!
//! A running job holds *parts*: one in the ordinary case, which needs no allocation, several where a policy forks
//! jobs (`docs/concepts/parts.md`). What concerns the work is one number per job; what concerns a place belongs to a part.

use gangline_model::{GpuSet, GpuTypeId, JobId, SimSpan, SimTime, Tier};
use prefetch_index::prefetch_index;
use smallvec::SmallVec;
use std::mem::offset_of;
use std::slice::from_ref;

/// The parts of a job, by server index.
pub(crate) type Parts = SmallVec<[Part; 1]>;

/// One placement of a running job: a whole gang.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its GPUs.
    pub gpus: GpuSet,
    /// Start of the present segment (place, rate and terms stand since then).
    pub segment_start: SimTime,
    /// When progress starts or started: start plus overhead.
    pub progress_start: SimTime,
    /// Its own rate, iterations per second, once it makes progress; 0 while it is paused at its quota.
    pub rate: f64,
    /// Base rate of the gang here.
    pub(crate) base: f64,
    /// Locality factor.
    pub locality: f64,
    /// Slowdown factor of its co-runners.
    pub xi: f64,
    /// Iteration time at its sub-batch over that at full batch.
    pub inflation: f64,
    /// Iterations that it may still do, at the last settlement; infinite without a quota.
    pub(crate) quota: f64,
    /// What a failure of its server would lose; kept only under policies that fork jobs.
    pub(crate) at_risk: AtRisk,
    /// Number of the part.
    pub number: u16,
    /// GPU type of its first server.
    pub gpu_type: GpuTypeId,
    /// Samples per GPU and pass; 0 = the job's own batch size.
    pub sub_batch: u32,
    /// Passes beyond the first, where a plan named the batch of an elastic job.
    pub accum: Option<u32>,
    /// Tier of its placement.
    pub tier: Tier,
    /// What only runs with shared GPUs or with segments keep.
    pub(crate) details: Option<Box<PartDetails>>,
}

/// The work of a part since its last safe point: its start or move, a pause in place, or a checkpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtRisk {
    pub(crate) work: f64,
    /// What was left of the job at the safe point, if no other part has done or lost work since: then what is
    /// left after a loss is known to the last digit.
    pub(crate) left: Option<f64>,
}

impl AtRisk {
    /// A safe point with so much left.
    #[inline]
    pub(crate) fn safe(left: f64) -> Self {
        Self {
            work: 0.0,
            left: Some(left),
        }
    }
}

/// What is kept of a part only where GPUs are shared or segments are written.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartDetails {
    /// Until when its time with a co-runner is counted; `NEVER` while it has none.
    pub(crate) shared_since: SimTime,
    /// Whether it started at this instant: its co-runners are known when all have started.
    pub(crate) is_new: bool,
    /// Sub-batch when the segment opened.
    pub(crate) segment_sub_batch: u32,
    /// Co-runners when the segment opened.
    pub(crate) co_runners: Vec<u32>,
}

impl Part {
    /// Time with progress from `since` to `now`.
    #[inline]
    pub(crate) fn progress(&self, since: SimTime, now: SimTime) -> SimSpan {
        SimSpan((now - since.max(self.progress_start)).0.max(0))
    }

    /// Time with progress in the present segment, up to `now`.
    #[inline]
    pub fn progress_in_segment(&self, now: SimTime) -> SimSpan {
        self.progress(self.segment_start, now)
    }

    /// Whether it will stop, or has stopped, at a quota.
    pub fn has_quota(&self) -> bool {
        self.quota < f64::INFINITY
    }

    /// Whether it has used up its quota.
    #[inline]
    pub fn is_paused(&self) -> bool {
        self.quota <= 0.0
    }

    /// Share of its base rate that distance leaves, to the nearest 10^-12, in that unit: exact for decimals.
    pub(crate) fn kept(&self) -> i128 {
        (self.locality * 1e12).round() as i128
    }

    /// Share of its base rate that it really has, alone on none of its GPUs or not.
    pub(crate) fn useful(&self) -> f64 {
        self.locality / (self.inflation * self.xi)
    }
}

/// A running job. An unused record keeps its last part, so that a start needs no other memory.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Run {
    pub(crate) parts: Parts,
    /// The job.
    pub job: JobId,
    pub(crate) generation: u32,
    /// Sum of the rates of its parts, iterations per second.
    pub rate: f64,
    /// When it will be done, or its rate will change by itself.
    pub finish: SimTime,
    /// Its last start or move.
    pub started: SimTime,
    /// The last settlement: when `left` was evaluated.
    pub(crate) since: SimTime,
    /// Work left at the last settlement.
    pub(crate) left: f64,
    /// Work left when the next noise phase of an elastic job begins; 0 = none does.
    pub(crate) knot: f64,
    /// Time the job has held GPUs, up to the last settlement.
    pub(crate) held_ns: i64,
    pub(crate) is_touched: bool,
}

impl Default for Run {
    /// A record that no job has yet.
    fn default() -> Self {
        Self {
            parts: SmallVec::from_buf([Part::default()]),
            job: JobId(u32::MAX),
            generation: 0,
            rate: 0.0,
            finish: SimTime::NEVER,
            started: SimTime::ZERO,
            since: SimTime::ZERO,
            left: 0.0,
            knot: 0.0,
            held_ns: 0,
            is_touched: false,
        }
    }
}

impl Default for Part {
    fn default() -> Self {
        Self {
            gpus: GpuSet::new(),
            segment_start: SimTime::ZERO,
            progress_start: SimTime::ZERO,
            rate: 0.0,
            base: 0.0,
            locality: 1.0,
            xi: 1.0,
            inflation: 1.0,
            quota: f64::INFINITY,
            at_risk: AtRisk::safe(0.0),
            number: 0,
            gpu_type: GpuTypeId(0),
            sub_batch: 0,
            accum: None,
            tier: Tier::Server,
            details: None,
        }
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

impl Run {
    /// Asks the memory for all cache lines of the record.
    #[inline]
    pub(crate) fn prefetch(&self) {
        let first = 0_usize.wrapping_sub(offset_of!(Self, is_touched));
        for line in 0..size_of::<Self>() / LINE {
            prefetch_index(from_ref(&self.is_touched), first.wrapping_add(line * LINE));
        }
    }

    /// Its parts, by server.
    #[inline]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The only part of a job that is not forked; the first of one that is.
    #[inline]
    pub fn only(&self) -> &Part {
        &self.parts[0]
    }

    /// The part of a number.
    #[inline]
    pub fn part(&self, number: u16) -> Option<&Part> {
        self.parts.iter().find(|part| part.number == number)
    }

    /// GPUs of the only part.
    #[inline]
    pub fn gpus(&self) -> &GpuSet {
        &self.only().gpus
    }

    /// GPU type of the first server.
    #[inline]
    pub fn gpu_type(&self) -> GpuTypeId {
        self.only().gpu_type
    }

    /// Whether it holds several parts.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        self.parts.len() > 1
    }

    /// Position of the part of a number.
    #[inline]
    pub(crate) fn position(&self, number: u16) -> Option<usize> {
        self.parts.iter().position(|part| part.number == number)
    }

    /// The earliest start of progress of a part that is not paused, but not before `from`: from then on the rate
    /// counts. `NEVER` if all are paused.
    #[inline]
    pub(crate) fn progress_from(&self, from: SimTime) -> SimTime {
        let open = self.parts.iter().filter(|part| !part.is_paused());
        let first = open.map(|part| part.progress_start).min();
        first.map_or(SimTime::NEVER, |first| first.max(from))
    }
}
