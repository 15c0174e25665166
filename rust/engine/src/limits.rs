//! Limits of work: a running job that has done so many iterations keeps its GPUs without progress, until it
//! gets another limit, moves or stops. What is left of its work is exact then: no time is converted back.
//!
//! Limits live beside the records of running jobs and exist only in runs that use them: O(1) per order.

use crate::queue::EventQueue;
use crate::record::{EndReason, Recorder};
use crate::state::State;
use gangline_model::{JobId, SimTime};

impl State {
    /// Work that the record may do from the start of its segment on.
    #[inline]
    pub(crate) fn limit_of(&self, slot: usize) -> f64 {
        self.limits.get(slot).copied().unwrap_or(f64::INFINITY)
    }

    /// Whether the record has used up its limit.
    pub(crate) fn is_paused(&self, slot: usize) -> bool {
        self.limit_of(slot) <= 0.0
    }

    /// Whether the limit of the record comes before the end of its job.
    #[inline]
    pub(crate) fn ends_by_limit(&self, slot: usize) -> bool {
        !self.limits.is_empty() && self.limit_of(slot) < self.runs[slot].left
    }

    /// From now on the job does at most `work` more; infinite = as much as there is.
    #[cold]
    pub(crate) fn limit(
        &mut self,
        job: JobId,
        work: f64,
        queue: &mut EventQueue,
        recorder: &mut Recorder,
    ) {
        let slot = self.slot_of(job);
        self.close_segment(slot, recorder, EndReason::Retimed);
        if self.limits.len() <= slot {
            self.limits.resize(slot + 1, f64::INFINITY);
        }
        self.limits[slot] = work;
        self.resume(slot, queue);
    }

    /// The limit of a record is used up: its GPUs are held at rate 0.
    #[cold]
    pub(crate) fn pause(&mut self, slot: u32, recorder: &mut Recorder) {
        let (now, at) = (self.now, slot as usize);
        let left = self.runs[at].left - self.limits[at];
        self.close_segment(at, recorder, EndReason::Retimed);
        self.limits[at] = 0.0;
        let run = &mut self.runs[at];
        run.left = left;
        run.generation = run.generation.wrapping_add(1);
        run.segment_start = now;
        run.rate = 0.0;
        run.finish = SimTime::NEVER;
    }
}
