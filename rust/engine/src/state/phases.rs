//! Jobs whose rate changes with their progress (`docs/concepts/jobs-and-rates.md`): the current phase of each job, and
//! the time that its remaining work takes.

use crate::state::State;
use crate::state::running::Run;
use gangline_model::{JobId, Phases, SimSpan, SimTime, span_of_work};

/// The current phase of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PresentPhase {
    /// Number of the phase, counted from 0.
    pub number: usize,
    /// Factor that multiplies the base rate.
    pub factor: f64,
    /// Size of a step, relative to a step in the first phase.
    pub step_size: f64,
}

impl State {
    /// Returns the phases of a job, if its rate changes with its progress.
    #[inline]
    pub(crate) fn phases_of(&self, job: JobId) -> Option<&Phases> {
        self.phases.as_ref()?.get(job)
    }

    /// Returns the current phase. A running job's phase lasts until its next knot, even if rounding has already moved
    /// its remaining work slightly past the knot.
    fn present(&self, job: JobId, phases: &Phases) -> usize {
        let work = self.jobs.work(job);
        match self.run(job) {
            Some(run) => run.phase as usize,
            None => phases.phase(work, self.remaining_work(job)),
        }
    }

    /// Returns the phase of a job with this remaining work; 0 if its rate does not change.
    pub(super) fn phase_at(&self, job: JobId, left: f64) -> u32 {
        let phases = self.phases_of(job);
        phases.map_or(0, |phases| phases.phase(self.jobs.work(job), left) as u32)
    }

    /// Returns the current phase of a job whose rate changes with its progress.
    pub(crate) fn present_phase(&self, job: JobId) -> Option<PresentPhase> {
        let phases = self.phases_of(job)?;
        let number = self.present(job, phases);
        Some(PresentPhase {
            number,
            factor: phases.factor(number),
            step_size: phases.step_size(number),
        })
    }

    /// Returns the factor that multiplies a job's base rate in its current phase.
    #[inline]
    pub(crate) fn phase_factor(&self, job: JobId) -> Option<f64> {
        let phases = self.phases_of(job)?;
        Some(phases.factor(self.present(job, phases)))
    }

    /// Returns the base rate in the current phase, given the mean base rate.
    #[inline]
    pub(crate) fn base_in_phase(&self, job: JobId, base: f64) -> f64 {
        self.phase_factor(job).map_or(base, |factor| base * factor)
    }

    /// Returns the time that the remaining work of a job takes at this mean rate.
    #[inline]
    pub(crate) fn span_at(&self, job: JobId, rate: f64) -> SimSpan {
        let left = self.remaining_work(job);
        let Some(phases) = self.phases_of(job) else {
            return span_of_work(left, rate);
        };
        let parts = phases.segments(self.jobs.work(job), self.present(job, phases), left);
        let spans = parts.map(|(part, factor)| span_of_work(part, rate * factor));
        SimSpan(spans.fold(0, |sum: i64, span| sum.saturating_add(span.0)))
    }

    /// Returns the time, in seconds and without rounding, that the remaining work takes at this mean rate.
    #[inline]
    pub(crate) fn seconds_at(&self, job: JobId, rate: f64) -> f64 {
        let left = self.remaining_work(job);
        let Some(phases) = self.phases_of(job) else {
            return left / rate;
        };
        let parts = phases.segments(self.jobs.work(job), self.present(job, phases), left);
        parts.fold(0.0, |sum, (part, factor)| sum + part / (rate * factor))
    }

    /// Returns the instant at which a running job finishes or reaches its quota if nothing else changes.
    #[inline]
    pub(crate) fn done_at(&self, run: &Run) -> SimTime {
        match self.phases_of(run.job) {
            Some(phases) if run.only().rate > 0.0 => self.done_through(run, phases),
            _ => run.done_at(),
        }
    }

    #[cold]
    fn done_through(&self, run: &Run, phases: &Phases) -> SimTime {
        let (part, work) = (run.only(), self.jobs.work(run.job));
        let base = self.base_on(run.job, &part.gpus);
        let mut quota = part.quota;
        let mut end = run.progress_from(run.since);
        for (left, factor) in phases.segments(work, run.phase as usize, run.left) {
            let rate = self.rate_of(part, base * factor, part.locality, part.inflation * part.xi);
            end = end + span_of_work(left.min(quota), rate);
            if quota <= left {
                break;
            }
            quota -= left;
        }
        end
    }

    /// Returns whether a running job has the best rate of its current phase, that is, whether the job is consolidated
    /// and has no co-runners.
    #[inline]
    pub(crate) fn is_at_best_rate(&self, run: &Run) -> bool {
        let best = self.base_in_phase(run.job, self.types.best_rate(run.job));
        run.rate.to_bits() == best.to_bits()
    }
}
