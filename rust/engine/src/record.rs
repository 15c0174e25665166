//! Results of a run in addition to the accounts of jobs: segments, timeline, totals over time, and a hash of the event
//! log.

use crate::accounts::Segment;
use crate::config::TimelineMode;
use crate::error::EngineError;
use crate::segments::{EndReason, Segments};
use crate::state::State;
use crate::timeline::{Timeline, TimelineWriter};
use gangline_model::{GpuSet, GpuTypeId, JobId, SimTime};

#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    pub(crate) segments: Option<Segments>,
    /// Number of recorded segments at the time when memory ran out.
    out_of_memory: Option<usize>,
    timeline: TimelineWriter,
    pub(crate) hash: LogHash,
    pub(crate) totals: Totals,
}

/// Time-weighted totals of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) last: SimTime,
    pub(crate) busy_gpu_ns: i128,
    /// `busy_gpu_ns` for each GPU type; empty if no GPU has a price.
    pub(crate) busy_by_type_ns: Vec<i128>,
    pub(crate) busy_server_ns: i128,
    pub(crate) up_gpu_ns: i128,
    pub(crate) active_ns: i128,
    pub(crate) fragmented_gpu_ns: i128,
    pub(crate) failures: u64,
}

impl Recorder {
    pub(crate) fn new(segments: bool, mode: TimelineMode) -> Self {
        Self {
            segments: segments.then(Segments::default),
            out_of_memory: None,
            timeline: TimelineWriter::new(mode),
            hash: LogHash::default(),
            totals: Totals::default(),
        }
    }

    /// Adds the rows of a segment to the segments table, if the run has this table.
    #[inline]
    pub(crate) fn segment(&mut self, state: &State, segment: Segment<'_>, reason: EndReason) {
        if let Some(table) = &mut self.segments
            && table.add(state, segment, reason).is_err()
        {
            self.run_out();
        }
    }

    /// Frees the memory of the tables, because the error path may need this memory.
    #[cold]
    fn run_out(&mut self) {
        let table = self.segments.take();
        self.out_of_memory = Some(table.map_or(0, |table| table.job.len()));
        self.timeline.clear();
    }

    /// Returns an error if memory ran out.
    #[inline]
    pub(crate) fn check_memory(&self, now: SimTime) -> Result<(), EngineError> {
        match self.out_of_memory {
            None => Ok(()),
            Some(segments) => Err(EngineError::OutOfMemory {
                time: now,
                segments,
            }),
        }
    }

    /// Adds the time since the last instant to the totals. The caller must call this method before anything changes at
    /// `now`.
    #[expect(
        clippy::inline_always,
        reason = "called once per instant, from the run loop"
    )]
    #[inline(always)]
    pub(crate) fn advance(&mut self, state: &State, now: SimTime) {
        let length = i128::from((now - self.totals.last).0);
        if length == 0 {
            return;
        }
        if self.timeline.has_put_off() && self.timeline.write_due(state, now).is_err() {
            self.run_out();
        }
        self.totals.last = now;
        self.totals.add(state, length);
    }

    /// Adds a timeline row if a count has changed.
    #[inline]
    pub(crate) fn timeline_row(&mut self, state: &State) {
        if self.timeline.write(state).is_err() {
            self.run_out();
        }
    }

    pub(crate) fn take_timeline(&mut self) -> Timeline {
        self.timeline.take()
    }

    /// Ends the run: writes the last row of the timeline, regardless of sampling, and sorts the segments.
    pub(crate) fn finish(&mut self, state: &State) {
        if self.timeline.write_last(state).is_err() {
            self.run_out();
        }
        if let Some(table) = &mut self.segments
            && table.finish().is_err()
        {
            self.run_out();
        }
    }
}

impl Totals {
    /// Adds a time interval during which nothing changed.
    #[expect(
        clippy::inline_always,
        reason = "called once per instant, from the run loop"
    )]
    #[inline(always)]
    fn add(&mut self, state: &State, length: i128) {
        let (there, lives) = (state.occupancy(), state.lives());
        self.busy_gpu_ns += i128::from(there.gpus_busy()) * length;
        let by_type = there.busy_by_type().iter();
        for (total, &busy) in self.busy_by_type_ns.iter_mut().zip(by_type) {
            *total += i128::from(busy) * length;
        }
        self.busy_server_ns += i128::from(there.busy_servers()) * length;
        self.up_gpu_ns += i128::from(there.gpus_up()) * length;
        let active = lives.waiting().len() + lives.running().len();
        self.active_ns += active as i128 * length;
        if !lives.waiting().is_empty() && there.gpus_busy() < there.gpus_up() {
            let idle = |at| {
                let id = GpuTypeId::new(at);
                there.up(id) - there.busy(id)
            };
            self.fragmented_gpu_ns += i128::from(lives.fragmented(idle)) * length;
        }
    }
}

/// A kind of job event in the log. Changing a number changes the golden hashes.
#[derive(Clone, Copy)]
pub(crate) enum Logged {
    Start = 1,
    Finish = 2,
    /// The job was preempted, or released its GPUs because it moved.
    Stop = 3,
    Failed = 4,
}

/// A 64-bit hash of all starts, stops and finishes, in order. Equal logs have equal hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogHash(pub u64);

impl Default for LogHash {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl LogHash {
    #[inline]
    fn word(&mut self, word: u64) {
        // The hash mixes by multiplication and xor with odd constants, which is good enough to distinguish logs, but
        // not cryptographic.
        self.0 = (self.0 ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        self.0 ^= self.0 >> 32;
    }

    #[inline]
    pub(crate) fn event(&mut self, kind: Logged, now: SimTime, job: JobId, gpus: &GpuSet) {
        self.word(now.0 as u64);
        self.word((kind as u64) << 32 | u64::from(job.0));
        for part in gpus.by_server() {
            self.word(u64::from(part.server.0));
            self.word(part.mask);
        }
    }
}
