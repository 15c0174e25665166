//! Livelock: jobs that the policy stops again and again before they keep any progress, so that the run would never
//! end. A policy may look at the clock, so no state of it ever repeats; what is counted are fruitless stops.
//!
//! The rule is narrow, so that it spares every run that would end. `docs/concepts/simulated-second.md` lists what
//! must hold. Cost: a comparison per instant, and O(active jobs) once per 1,000 stops of each active job.

use crate::error::EngineError;
use crate::run::Engine;
use gangline_model::{JobId, SimTime};

/// Preemptions and moves per active job between two looks. Ours.
const STOPS_PER_JOB: u64 = 1000;
/// Under failures without end, at least this many of them per failure: else failures may be what undoes the work. Ours.
const STOPS_PER_FAILURE: u64 = 100;

/// What is counted between two looks.
#[derive(Debug)]
pub(crate) struct Livelock {
    /// Preemptions and moves of parts, so far.
    pub(crate) stops: u64,
    next_look: u64,
    last: Option<Look>,
}

/// What a look found.
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
        }
    }
}

impl Engine {
    /// Whether jobs undid each other's work, and nothing else happened, since the last look. To be asked once per
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
        let since = self.livelock.last.map(|last| last.time);
        let now = Look {
            time: self.state.now,
            stops,
            done: lives.done(),
            failures: self.recorder.totals.failures,
            work: self.work_left(since.unwrap_or(SimTime(i64::MIN))),
        };
        let Some(last) = self.livelock.last.replace(now) else {
            return false;
        };
        let failures = now.failures - last.failures;
        let is_spared = now.done > last.done
            || now.work != last.work
            || !lives.are_all_here()
            || failures * STOPS_PER_FAILURE > stops - last.stops;
        !is_spared && !self.runs_on_since(last.time) && self.is_capacity_settled()
    }

    /// A hash of the work that each active job has left: as it is kept if the job loses its GPUs now, and where a job
    /// has run since an instant, or as several parts, as it is.
    fn work_left(&self, since: SimTime) -> u64 {
        let lives = &self.state.lives;
        let mix = |hash: u64, value: u64| (hash ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let jobs = lives.waiting().iter().chain(lives.running().iter());
        jobs.map(JobId::new).fold(0, |hash, job| {
            let run = self.state.run(job);
            let left = run.filter(|run| run.started <= since || run.is_forked());
            let kept = lives.get(job).map_or(0.0, |life| life.remaining);
            let hash = mix(hash.rotate_left(23), u64::from(job.0));
            let hash = mix(hash.rotate_left(23), kept.to_bits());
            mix(
                hash.rotate_left(23),
                left.map_or(0, |run| run.left.to_bits()),
            )
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
        let lives = &self.state.lives;
        let (waiting, running) = (lives.waiting(), lives.running());
        EngineError::Livelock {
            time: self.state.now,
            open: waiting.len() + running.len(),
            jobs: (waiting.iter().chain(running.iter()))
                .take(10)
                .map(JobId::new)
                .collect(),
        }
    }
}
