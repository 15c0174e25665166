//! Detects livelock: the policy repeatedly stops jobs before they save any progress, so the run would never end. A
//! search for a repeated state would not detect this, because the state of a policy may depend on the time. This module
//! therefore counts fruitless stops.
//!
//! The rule is narrow, so that it never ends a run that would finish. `docs/concepts/simulated-second.md` lists the
//! conditions of the rule. The check costs two comparisons per instant, and O(active jobs) once per 1,000 stops per
//! active job.
//!
//! Failures can undo work as well, if a job needs more time than its servers usually stay up. Such a job would
//! eventually finish by chance, but possibly only after more attempts than a user will wait for. A second rule covers
//! this case.

use crate::error::EngineError;
use crate::state::State;
use gangline_model::{JobId, SimTime};

/// Number of preemptions and moves per active job between two checks. This is our own choice.
const STOPS_PER_JOB: u64 = 1000;
/// Minimum number of preemptions and moves per failure at which the rule blames the policy. Below this number, the
/// failures may be the cause. This is our own choice.
const STOPS_PER_FAILURE: u64 = 100;

/// Number of placements per active job that failures end between two checks. A job that is ten times as long as the
/// mean time between failures needs about 22,000 attempts. This is our own choice.
const LOSSES_PER_JOB: u64 = 10_000;

/// The counts of stops and losses, and the state of the run at the last checks.
#[derive(Clone, Debug)]
pub(crate) struct Livelock {
    /// Number of preemptions and moves of parts so far.
    pub(crate) stops: u64,
    next_look: u64,
    last: Option<Look>,
    /// Number of parts that failures have ended so far.
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
    /// Hash of the work that each active job would still have if it lost its GPUs now.
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

/// Failures so far, and whether servers will fail or be repaired in the future.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlook {
    pub(crate) failures: u64,
    pub(crate) is_endless: bool,
    /// If failures are endless, whether all servers are up; otherwise, whether no failures or repairs are left.
    pub(crate) is_settled: bool,
}

impl Livelock {
    /// Returns whether a check is due. The engine asks once per instant.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.stops >= self.next_look || self.losses >= self.next_loss_look
    }

    /// Returns an error if the run would never end.
    #[cold]
    pub(crate) fn look(&mut self, state: &State, outlook: Outlook) -> Result<(), EngineError> {
        let (waiting, running) = (state.lives().waiting(), state.lives().running());
        let active = (waiting.len() + running.len()) as u64;
        let named = || {
            let jobs = waiting.iter().chain(running.iter()).take(10);
            (state.now(), active as usize, jobs.map(JobId::new).collect())
        };
        if self.stops >= self.next_look && self.finds_livelock(state, active, outlook) {
            let (time, open, jobs) = named();
            return Err(EngineError::Livelock { time, open, jobs });
        }
        if self.losses >= self.next_loss_look && self.finds_losses(state, active, outlook) {
            let (time, open, jobs) = named();
            return Err(EngineError::Undone { time, open, jobs });
        }
        Ok(())
    }

    /// Returns whether the policy's stops undid all work since the last check.
    fn finds_livelock(&mut self, state: &State, active: u64, outlook: Outlook) -> bool {
        self.next_look = self.stops + STOPS_PER_JOB * active;
        let now = self.now(state, self.last, outlook);
        let Some(last) = self.last.replace(now) else {
            return false;
        };
        let failures = now.failures - last.failures;
        let is_spared = failures * STOPS_PER_FAILURE > now.stops - last.stops;
        !is_spared && is_fruitless(state, last, now) && outlook.is_settled
    }

    /// Returns whether endless failures undid all work since the last check; `false` if the run has a limit.
    fn finds_losses(&mut self, state: &State, active: u64, outlook: Outlook) -> bool {
        let config = state.config();
        let is_limited = config.until.is_some() || config.max_events.is_some();
        self.next_loss_look = self.losses + LOSSES_PER_JOB * active;
        let now = self.now(state, self.last_loss_look, outlook);
        let Some(last) = self.last_loss_look.replace(now) else {
            return false;
        };
        !is_limited && outlook.is_endless && is_fruitless(state, last, now)
    }

    fn now(&self, state: &State, last: Option<Look>, outlook: Outlook) -> Look {
        let since = last.map_or(SimTime(i64::MIN), |last| last.time);
        Look {
            time: state.now(),
            stops: self.stops,
            done: state.lives().done(),
            failures: outlook.failures,
            work: work_left(state, since),
        }
    }
}

/// Returns whether no job finished, saved work or kept running between two checks, and no job is still to arrive.
fn is_fruitless(state: &State, last: Look, now: Look) -> bool {
    let is_spared = now.done > last.done || now.work != last.work;
    !is_spared && state.lives().are_all_here() && !runs_on_since(state, last.time)
}

/// Returns a hash of the work that each active job has left. It includes the amount left at the last save and, for a
/// forked job or a job that has run without interruption since `since`, also the current amount. Apart from this, the
/// hash does not depend on which jobs run.
fn work_left(state: &State, since: SimTime) -> u64 {
    let lives = state.lives();
    let mix = |hash: u64, value: u64| (hash ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let jobs = lives.waiting().iter().chain(lives.running().iter());
    jobs.map(JobId::new).fold(0, |sum, job| {
        let run = state.run(job);
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

/// Returns whether a job has held its GPUs since an instant and is not paused. A job that keeps its GPUs without a
/// pause will end.
fn runs_on_since(state: &State, time: SimTime) -> bool {
    let running = state.lives().running().iter();
    let mut runs = running.filter_map(|at| state.run(JobId::new(at)));
    runs.any(|run| run.started <= time && run.has_event())
}
