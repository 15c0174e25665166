//! Livelock: jobs that the policy stops again and again before they keep any progress, so that the run would never
//! end. A policy may look at the clock, so no state of it ever repeats; what is counted are fruitless stops.
//!
//! The rule is narrow, so that it spares every run that would end. `docs/concepts/simulated-second.md` lists what
//! must hold. Cost: two comparisons per instant, and O(active jobs) once per 1,000 stops of each active job.
//!
//! Failures can undo work as well, where a job is longer than its servers stay up. Such a job ends some day by chance,
//! which may be after more tries than anyone will wait for: that is what the second rule is about.

use crate::error::EngineError;
use crate::run::Engine;
use gangline_model::{JobId, SimTime};

/// Preemptions and moves per active job between two looks. Ours.
const STOPS_PER_JOB: u64 = 1000;
/// Under failures without end, at least this many of them per failure: else failures may be what undoes the work. Ours.
const STOPS_PER_FAILURE: u64 = 100;

/// Placements lost to failures per active job between two looks: a job of ten mean times between failures needs
/// about 22,000 tries. Ours.
const LOSSES_PER_JOB: u64 = 10_000;

/// The counts between two checks.
#[derive(Debug)]
pub(crate) struct Livelock {
    /// Preemptions and moves of parts, so far.
    pub(crate) stops: u64,
    next_look: u64,
    last: Option<Look>,
    /// Parts that failures ended, so far.
    pub(crate) losses: u64,
    next_loss_look: u64,
    last_loss_look: Option<Look>,
}

/// The state of the run at a check.
#[derive(Clone, Copy, Debug)]
struct Look {
    time: SimTime,
    stops: u64,
    done: usize,
    failures: u64,
    /// A hash of the work that each active job has left if it loses its GPUs now.
    work: u64,
}

impl Default for Livelock {
    fn default() -> Self {
        Self {
            stops: 0,
            next_look: STOPS_PER_JOB,
            last: None,
            losses: 0,
            next_loss_look: LOSSES_PER_JOB,
            last_loss_look: None,
        }
    }
}

impl Engine {
    /// Whether jobs undid each other's work, and nothing else happened, since the last look. Called once per
    /// instant.
    #[inline]
    pub(crate) fn is_livelocked(&mut self) -> bool {
        self.livelock.stops >= self.livelock.next_look && self.look_for_livelock()
    }

    #[cold]
    fn look_for_livelock(&mut self) -> bool {
        let lives = &self.state.lives;
        let active = lives.waiting().len() + lives.running().len();
        let stops = self.livelock.stops;
        self.livelock.next_look = stops + STOPS_PER_JOB * active as u64;
        let now = self.look(self.livelock.last);
        let Some(last) = self.livelock.last.replace(now) else {
            return false;
        };
        let failures = now.failures - last.failures;
        let is_spared = failures * STOPS_PER_FAILURE > stops - last.stops;
        !is_spared && self.is_fruitless(last, now) && self.is_capacity_settled()
    }

    /// Whether failures without end undid all work since the last look, in a run without a limit. Called once per
    /// instant.
    #[inline]
    pub(crate) fn is_undone_for_ever(&mut self) -> bool {
        self.livelock.losses >= self.livelock.next_loss_look && self.look_for_losses()
    }

    #[cold]
    fn look_for_losses(&mut self) -> bool {
        let (lives, config) = (&self.state.lives, &self.state.config);
        let active = lives.waiting().len() + lives.running().len();
        let is_limited = config.until.is_some() || config.max_events.is_some();
        self.livelock.next_loss_look = self.livelock.losses + LOSSES_PER_JOB * active as u64;
        let now = self.look(self.livelock.last_loss_look);
        let Some(last) = self.livelock.last_loss_look.replace(now) else {
            return false;
        };
        !is_limited && self.capacity.is_endless() && self.is_fruitless(last, now)
    }

    fn look(&self, last: Option<Look>) -> Look {
        let since = last.map_or(SimTime(i64::MIN), |last| last.time);
        Look {
            time: self.state.now,
            stops: self.livelock.stops,
            done: self.state.lives.done(),
            failures: self.recorder.totals.failures,
            work: self.work_left(since),
        }
    }

    /// Whether no job finished, kept any work or ran on between two looks, and none is still to arrive.
    fn is_fruitless(&self, last: Look, now: Look) -> bool {
        let is_spared = now.done > last.done || now.work != last.work;
        !is_spared && self.state.lives.are_all_here() && !self.runs_on_since(last.time)
    }

    /// A hash of the work that each active job has left: as it is kept if the job loses its GPUs now, and where a job
    /// has run since an instant, or as several parts, as it is. It does not depend on which jobs run.
    fn work_left(&self, since: SimTime) -> u64 {
        let lives = &self.state.lives;
        let mix = |hash: u64, value: u64| (hash ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let jobs = lives.waiting().iter().chain(lives.running().iter());
        jobs.map(JobId::new).fold(0, |sum, job| {
            let run = self.state.run(job);
            let left = run.filter(|run| run.started <= since || run.is_forked());
            let kept = lives.get(job).map_or(0.0, |life| life.remaining);
            let hash = mix(0, u64::from(job.0) + 1);
            let hash = mix(hash.rotate_left(23), kept.to_bits());
            let hash = mix(
                hash.rotate_left(23),
                left.map_or(0, |run| run.left.to_bits()),
            );
            sum.wrapping_add(hash)
        })
    }

    /// Whether a job holds its GPUs since an instant or before, and is not paused: it will end some day.
    fn runs_on_since(&self, time: SimTime) -> bool {
        let running = self.state.lives.running();
        let mut runs = running
            .iter()
            .filter_map(|at| self.state.run(JobId::new(at)));
        runs.any(|run| run.started <= time && run.rate > 0.0)
    }

    /// Whether servers will not come or go any more. Under failures without end: whether all are up.
    fn is_capacity_settled(&self) -> bool {
        if self.capacity.is_endless() {
            return self.state.occupancy.gpus_up() == self.state.cluster.gpus_total();
        }
        let running = self.state.lives.running();
        let ends = running.iter().map(|at| self.state.slot_of(JobId::new(at)));
        let ends = ends.filter(|&slot| self.state.has_event(slot)).count();
        self.queue.live() == self.timers.live() + ends
    }

    pub(crate) fn livelocked(&self) -> EngineError {
        let (time, open, jobs) = self.open_jobs();
        EngineError::Livelock { time, open, jobs }
    }

    pub(crate) fn undone(&self) -> EngineError {
        let (time, open, jobs) = self.open_jobs();
        EngineError::Undone { time, open, jobs }
    }

    /// The present instant, how many jobs are not done, and the first ten of them.
    fn open_jobs(&self) -> (SimTime, usize, Vec<JobId>) {
        let lives = &self.state.lives;
        let (waiting, running) = (lives.waiting(), lives.running());
        let jobs = waiting.iter().chain(running.iter()).take(10);
        let jobs = jobs.map(JobId::new).collect();
        (self.state.now, waiting.len() + running.len(), jobs)
    }
}
