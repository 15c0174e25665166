//! The records of running jobs, and the progress of their work between two changes
//! (`docs/concepts/jobs-and-rates.md`, `overhead-and-failures.md`).
//!
//! Work is one number per job. This number is *settled* (updated to the current instant) when a property of the job
//! changes. The work then decreases linearly until the next event of the job: its completion, the start of its next
//! phase, or the end of a part's overhead or quota. A running job has *parts*: usually one, which needs no memory
//! allocation, or several if the policy forks jobs (`docs/concepts/parts.md`). Work is a property of the job, and
//! placement is a property of the part.

use gangline_model::{
    GpuSet, GpuTypeId, JobId, MAX_SECONDS, SPAN_MAX, ServerId, SimSpan, SimTime, Tier, span_of_work,
};
use prefetch_index::prefetch_index;
use smallvec::SmallVec;
use std::mem::offset_of;
use std::slice::from_ref;

/// The parts of a job, in the order of server indices.
pub(crate) type Parts = SmallVec<[Part; 1]>;

/// One placement of a running job: a whole gang.
#[derive(Clone, Debug)]
pub struct Part {
    /// GPUs of the part.
    pub gpus: GpuSet,
    /// Start of the current segment; GPUs, rate and terms have been constant since then.
    pub segment_start: SimTime,
    /// Instant at which progress begins or began: the start plus the overhead.
    pub progress_start: SimTime,
    /// Rate of the part in iterations per second while it makes progress; 0 while it is paused at its quota.
    pub rate: f64,
    /// Base rate of the gang on these GPUs.
    pub(crate) base: f64,
    /// Locality factor.
    pub locality: f64,
    /// Slowdown factor that the co-runners of the part cause.
    pub xi: f64,
    /// Iteration time at the part's sub-batch, divided by the iteration time at full batch size.
    pub inflation: f64,
    /// Number of iterations left in the part's quota at the last settlement; infinite without a quota.
    pub(crate) quota: f64,
    /// Work that would be lost if the part's server failed; recorded only under policies that fork jobs.
    pub(crate) at_risk: AtRisk,
    /// Number of the part.
    pub number: u16,
    /// GPU type of the first server.
    pub gpu_type: GpuTypeId,
    /// Number of samples per GPU and pass; 0 means the job's own batch size.
    pub sub_batch: u32,
    /// Number of passes beyond the first, if a plan named the batch size of an elastic job.
    pub accum: Option<u32>,
    /// Tier of the placement.
    pub tier: Tier,
    /// Details that only some runs need.
    pub(crate) details: Option<Box<PartDetails>>,
}

/// Work that a part has done since its last safe point. A safe point is its start or move, a pause in place, or a
/// checkpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtRisk {
    pub(crate) work: f64,
    /// Remaining work of the job at the safe point; `None` if another part has done or lost work since then. With this
    /// value, a loss restores the remaining work exactly.
    pub(crate) left: Option<f64>,
}

impl AtRisk {
    /// Creates a safe point with this remaining work.
    #[inline]
    pub(crate) fn safe(left: f64) -> Self {
        Self {
            work: 0.0,
            left: Some(left),
        }
    }
}

/// Details of a part that are needed only if GPUs are shared, if segments are recorded, or if the run has a `[runtime]`
/// table.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartDetails {
    /// Instant up to which the part's time with a co-runner has been counted; `NEVER` while it has no co-runner.
    pub(crate) shared_since: SimTime,
    /// Whether the part started at this instant. Its co-runners are known only after all starts of the instant.
    pub(crate) is_new: bool,
    /// Sub-batch at the time when the segment opened.
    pub(crate) segment_sub_batch: u32,
    /// Co-runners at the time when the segment opened.
    pub(crate) co_runners: Vec<u32>,
    /// Deviation of the part from the rate that policies know.
    pub(crate) untold: Untold,
    /// Time with progress since the last safe point; recorded only in runs with a `[runtime]` table.
    pub(crate) at_risk_ns: i64,
}

/// Deviation of a part from the rate that policies know. The deviation is constant until the part moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Untold {
    /// Ratio of the actual time to the time that policies expect.
    pub(crate) pace: f64,
    /// Share of the time with progress that the part spends on work, not on checkpoints.
    pub(crate) works: f64,
    /// Share of the time with progress that the part spends on checkpoints.
    pub(crate) saves: f64,
}

impl Default for Untold {
    /// Creates the values for a part that does not deviate.
    fn default() -> Self {
        Self {
            pace: 1.0,
            works: 1.0,
            saves: 0.0,
        }
    }
}

impl Untold {
    /// Returns the actual rate of a part, given the rate that policies know.
    #[inline]
    pub(crate) fn rate(self, told: f64) -> f64 {
        told * self.works / self.pace
    }
}

/// A part that is about to start.
#[derive(Debug)]
pub(crate) struct NewPart<'a> {
    pub(crate) number: u16,
    /// GPUs of the part; the start swaps them with the GPUs in the reused record.
    pub(crate) gpus: &'a mut GpuSet,
    /// Sub-batch; 0 means the full batch size.
    pub(crate) sub_batch: u32,
    /// Number of passes beyond the first; together with `sub_batch`, it defines the batch size of an elastic job.
    pub(crate) accum: Option<u32>,
    pub(crate) overhead: SimSpan,
    /// Iteration quota; infinite means no quota.
    pub(crate) quota: f64,
}

/// The rate of a part when it starts, and the values from which this rate is computed.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) gpu_type: GpuTypeId,
    pub(crate) tier: Tier,
    pub(crate) base: f64,
    pub(crate) locality: f64,
    pub(crate) inflation: f64,
    pub(crate) rate: f64,
    pub(crate) untold: Untold,
    pub(crate) has_details: bool,
}

/// Components of a part's current rate.
#[derive(Clone, Copy)]
pub(crate) struct Speed {
    pub(crate) locality: f64,
    pub(crate) xi: f64,
    pub(crate) inflation: f64,
    pub(crate) rate: f64,
    /// Whether the part may have a co-runner.
    pub(crate) is_shared: bool,
}

/// Kind of the next event of a running job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextStep {
    /// The work of the job is done.
    Done,
    /// An overhead has ended, or a quota is used up.
    Change,
}

/// The end of simulated time, at about 285 years, just before nanoseconds would overflow. No run continues after this
/// instant.
pub(crate) const HORIZON: SimTime = SimTime(9_000_000_000_000_000_000);
/// Completion time of a job that would finish after the horizon. This instant is later than every possible event.
const BEYOND: SimTime = SimTime(HORIZON.0 + 1);

/// Returns the instant at which work that begins at `from` ends; [`BEYOND`] if this would be after the horizon.
#[inline]
fn end_of(from: SimTime, work: f64, rate: f64) -> SimTime {
    let span = span_of_work(work, rate);
    if span == SPAN_MAX && work > rate * MAX_SECONDS {
        return BEYOND;
    }
    from + span
}

impl Part {
    /// Starts the part now; `left` is the remaining work of its job.
    #[inline]
    pub(crate) fn fill(&mut self, new: NewPart<'_>, pace: Pace, now: SimTime, left: f64) {
        let NewPart {
            number,
            gpus,
            sub_batch,
            accum,
            overhead,
            quota,
        } = new;
        std::mem::swap(&mut self.gpus, gpus);
        self.segment_start = now;
        self.progress_start = now + overhead;
        self.rate = pace.rate;
        self.base = pace.base;
        self.locality = pace.locality;
        self.xi = 1.0;
        self.inflation = pace.inflation;
        self.quota = quota;
        self.at_risk = AtRisk::safe(left);
        self.number = number;
        self.gpu_type = pace.gpu_type;
        self.sub_batch = sub_batch;
        self.accum = accum;
        self.tier = pace.tier;
        if pace.has_details {
            let details = self.details.get_or_insert_default();
            details.shared_since = SimTime::NEVER;
            details.is_new = true;
            details.segment_sub_batch = sub_batch;
            details.co_runners.clear();
            details.untold = pace.untold;
            details.at_risk_ns = 0;
        }
    }

    /// Updates the time with progress that would be lost in a failure. The caller must call this method before the work
    /// is settled.
    #[cold]
    pub(crate) fn settle_risk(
        &mut self,
        (since, now): (SimTime, SimTime),
        interval: Option<SimSpan>,
    ) {
        let span = if self.rate > 0.0 {
            self.progress(since, now).0
        } else {
            0
        };
        let last = self.last_checkpoint(interval, since, now);
        if let Some(details) = &mut self.details {
            let safe = last.map_or(details.at_risk_ns + span, |last| span.min((now - last).0));
            details.at_risk_ns = safe;
        }
    }

    /// Returns the instant at which the quota is used up if the part makes progress from `from` on; `NEVER` without a
    /// quota.
    #[inline]
    fn quota_end(&self, from: SimTime) -> SimTime {
        if self.quota.is_finite() {
            end_of(from, self.quota, self.rate)
        } else {
            SimTime::NEVER
        }
    }

    /// Returns the last checkpoint that the part has taken since an instant. Checkpoints take place at multiples of the
    /// checkpoint interval after the start of progress.
    #[inline]
    fn last_checkpoint(
        &self,
        interval: Option<SimSpan>,
        since: SimTime,
        now: SimTime,
    ) -> Option<SimTime> {
        let interval = interval?;
        let origin = self.progress_start;
        let passed = (now - origin).0.max(0) / interval.0;
        let last = SimTime(origin.0 + passed * interval.0);
        (last > since.max(origin)).then_some(last)
    }

    /// Returns the time with progress from `since` to `now`.
    #[inline]
    pub(crate) fn progress(&self, since: SimTime, now: SimTime) -> SimSpan {
        SimSpan((now - since.max(self.progress_start)).0.max(0))
    }

    /// Returns the time with progress in the current segment, up to `now`.
    #[inline]
    pub fn progress_in_segment(&self, now: SimTime) -> SimSpan {
        self.progress(self.segment_start, now)
    }

    /// Returns whether the part has a quota at which it will pause or has paused.
    pub fn has_quota(&self) -> bool {
        self.quota < f64::INFINITY
    }

    /// Returns whether the part has used up its quota.
    #[inline]
    pub fn is_paused(&self) -> bool {
        self.quota <= 0.0
    }

    /// Returns the locality factor in units of 10^-12, rounded to the nearest unit, so that decimal fractions are
    /// exact.
    pub(crate) fn kept(&self) -> i128 {
        (self.locality * 1e12).round() as i128
    }

    /// Returns the fraction of its base rate that the part keeps with its locality, sub-batch and co-runners.
    pub(crate) fn useful(&self) -> f64 {
        self.locality / (self.inflation * self.xi)
    }
}

/// The record of a running job. An unused record keeps its last part, so that a start allocates no memory.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Run {
    pub(crate) parts: Parts,
    /// The job.
    pub job: JobId,
    pub(crate) generation: u32,
    /// Sum of the rates of all parts, in iterations per second.
    pub rate: f64,
    /// Instant at which the job will be done, or at which its rate will change even without an external event.
    pub finish: SimTime,
    /// Instant of the job's last start or move.
    pub started: SimTime,
    /// Instant of the last settlement, at which `left` was computed.
    pub(crate) since: SimTime,
    /// Work left at the last settlement.
    pub(crate) left: f64,
    /// Remaining work at the start of the job's next phase; 0 if it has no further phase.
    pub(crate) knot: f64,
    /// Number of the current phase, for a job whose rate changes with its progress.
    pub(crate) phase: u32,
    pub(crate) is_touched: bool,
}

impl Default for Run {
    /// Creates a record without a job.
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
            phase: 0,
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

/// Size of a cache line in bytes.
const LINE: usize = 64;

impl Run {
    /// Prefetches all cache lines of the record.
    #[inline]
    pub(crate) fn prefetch(&self) {
        let first = 0_usize.wrapping_sub(offset_of!(Self, is_touched));
        for line in 0..size_of::<Self>() / LINE {
            prefetch_index(from_ref(&self.is_touched), first.wrapping_add(line * LINE));
        }
    }

    /// Returns the parts of the job, in the order of servers.
    #[inline]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns the only part of a job that is not forked, or the first part of a forked job.
    #[inline]
    pub fn only(&self) -> &Part {
        &self.parts[0]
    }

    /// Returns the part with a given number.
    #[inline]
    pub fn part(&self, number: u16) -> Option<&Part> {
        self.parts.iter().find(|part| part.number == number)
    }

    /// Returns the GPUs of the only part.
    #[inline]
    pub fn gpus(&self) -> &GpuSet {
        &self.only().gpus
    }

    /// Returns the GPU type of the first server.
    #[inline]
    pub fn gpu_type(&self) -> GpuTypeId {
        self.only().gpu_type
    }

    /// Returns whether the next event of the run is in the queue, even if this event is beyond the end of simulated
    /// time. A run has no event before it has a rate or while all its parts are paused.
    #[inline]
    pub(crate) fn has_event(&self) -> bool {
        self.rate > 0.0
    }

    /// Returns whether the job holds several parts.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        self.parts.len() > 1
    }

    /// Returns the position of the part with a given number.
    #[inline]
    pub(crate) fn position(&self, number: u16) -> Option<usize> {
        self.parts.iter().position(|part| part.number == number)
    }

    /// Returns the instant from which the rate applies. This is the earliest instant, at or after `from`, at which any
    /// part that is not paused makes progress. The result is `NEVER` if all parts are paused.
    #[inline]
    pub(crate) fn progress_from(&self, from: SimTime) -> SimTime {
        let open = self.parts.iter().filter(|part| !part.is_paused());
        let first = open.map(|part| part.progress_start).min();
        first.map_or(SimTime::NEVER, |first| first.max(from))
    }

    /// Returns the part on a server; the job must be a resident there.
    #[inline]
    pub(crate) fn resident_on(&self, server: ServerId) -> &Part {
        match &self.parts[..] {
            [only] => only,
            _ => self.part_on(server).expect("a resident has a part here"),
        }
    }

    /// Returns the part on a server, if the job has one there.
    pub(crate) fn part_on(&self, server: ServerId) -> Option<&Part> {
        let is_here = |part: &&Part| part.gpus.mask_on(server) != 0;
        self.parts.iter().find(is_here)
    }
}

// These methods compute the progress of the work.
impl Run {
    /// Settles the work of the only part at the current instant. If the part has taken a checkpoint since the last
    /// settlement, returns the work that the job would have left after falling back to this checkpoint.
    #[inline]
    pub(crate) fn settle(
        &mut self,
        (since, now): (SimTime, SimTime),
        interval: Option<SimSpan>,
    ) -> Option<f64> {
        let part = &mut self.parts[0];
        let work = part.rate * part.progress(since, now).seconds();
        let before = self.left;
        self.left = (before - work).max(0.0);
        part.quota = (part.quota - work).max(0.0);
        let last = part.last_checkpoint(interval, since, now)?;
        let from = since.max(part.progress_start);
        Some((before - part.rate * (last - from).seconds()).max(0.0))
    }

    /// Settles the work under a policy that forks jobs: the work of all parts adds up, and each part records its own
    /// work at risk. Returns the positions of the parts whose quotas are used up exactly; these parts must be paused.
    #[inline(never)]
    pub(crate) fn settle_parts(
        &mut self,
        (since, now): (SimTime, SimTime),
        interval: Option<SimSpan>,
    ) -> SmallVec<[usize; 4]> {
        let (from, before) = (self.progress_from(since), self.left);
        let (mut done, mut workers) = (0.0, 0);
        let mut used_up = SmallVec::new();
        for (at, part) in self.parts.iter_mut().enumerate() {
            let start = since.max(part.progress_start);
            let mut work = part.rate * part.progress(since, now).seconds();
            let is_due = part.progress_start <= from && part.quota_end(from) == now;
            if is_due && !part.is_paused() {
                work = part.quota;
                used_up.push(at);
            }
            if work > 0.0 {
                workers += 1;
            }
            done += work;
            part.quota -= work;
            match part.last_checkpoint(interval, since, now) {
                None => part.at_risk.work += work,
                Some(last) => {
                    let kept = before - part.rate * (last - start).seconds();
                    part.at_risk = AtRisk::safe(kept.max(0.0));
                    part.at_risk.work += part.rate * (now - last).seconds();
                }
            }
        }
        self.left = (before - done).max(0.0);
        if workers > 0 {
            for part in &mut self.parts {
                let own = part.rate > 0.0 && part.progress(since, now).0 > 0;
                if workers > u32::from(own) {
                    part.at_risk.left = None;
                }
            }
        }
        used_up
    }

    /// Returns whether the next event of the run is its completion.
    #[inline]
    pub(crate) fn ends_next(&self) -> bool {
        match &self.parts[..] {
            [part] => self.knot <= 0.0 && part.quota >= self.left && !self.begins_next(),
            _ => self.next_step().1 == NextStep::Done,
        }
    }

    /// Returns whether the next event of a run with one part is the end of its overhead.
    #[inline]
    pub(crate) fn begins_next(&self) -> bool {
        self.finish <= self.parts[0].progress_start
    }

    /// Returns the instant at which the job finishes at its current rate, or pauses at its quota. The next event of the
    /// job may be earlier: the end of its overhead or, for an elastic job, the end of a phase.
    #[inline]
    pub(crate) fn done_at(&self) -> SimTime {
        match &self.parts[..] {
            [part] if part.rate > 0.0 && (self.knot > 0.0 || self.begins_next()) => {
                let work = part.quota.min(self.left);
                end_of(self.progress_from(self.since), work, part.rate)
            }
            _ => self.finish,
        }
    }

    /// Returns the total rate of all parts, and the instant of the run's next event; the work must be settled.
    /// `starts_quietly` means that the end of an overhead is an event.
    #[inline]
    pub(crate) fn next_event(&self, now: SimTime, starts_quietly: bool) -> (f64, SimTime) {
        match &self.parts[..] {
            [part] if part.rate > 0.0 && starts_quietly && part.progress_start > now => {
                (part.rate, part.progress_start)
            }
            [part] if part.rate > 0.0 => {
                let from = self.since.max(part.progress_start);
                let work = part.quota.min(self.left - self.knot);
                (part.rate, end_of(from, work, part.rate))
            }
            _ => self.next_event_of_parts(),
        }
    }

    #[cold]
    fn next_event_of_parts(&self) -> (f64, SimTime) {
        let rate = self.parts.iter().fold(0.0, |sum, part| sum + part.rate);
        let next = if rate > 0.0 {
            self.next_step().0
        } else {
            SimTime::NEVER
        };
        (rate, next)
    }

    /// Returns the time and the kind of the run's next event, computed from the last settlement.
    fn next_step(&self) -> (SimTime, NextStep) {
        let from = self.progress_from(self.since);
        let (mut rate, mut quotas) = (0.0, 0.0);
        let (mut used_up, mut overhead_end) = (SimTime::NEVER, SimTime::NEVER);
        for part in self.parts.iter().filter(|part| !part.is_paused()) {
            if part.progress_start > from {
                overhead_end = overhead_end.min(part.progress_start);
                continue;
            }
            rate += part.rate;
            quotas += part.quota;
            used_up = used_up.min(part.quota_end(from));
        }
        let done = end_of(from, self.left, rate);
        let change = used_up.min(overhead_end);
        let is_short = done == used_up && quotas < self.left && overhead_end >= done;
        if done <= change && !is_short {
            (done, NextStep::Done)
        } else {
            (change, NextStep::Change)
        }
    }
}
