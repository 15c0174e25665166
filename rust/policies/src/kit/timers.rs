//! A single timer of the engine that is always set to the earliest of several instants.

use gangline_engine::Plan;
use gangline_model::{JobId, SimTime, TimerTag};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The only timer that a policy keeps in the engine.
#[derive(Debug)]
pub(crate) struct Alarm {
    at: SimTime,
}

impl Alarm {
    const TAG: TimerTag = TimerTag { kind: 0, id: 0 };
    /// A timer that is not set.
    pub(crate) const OFF: Self = Self { at: SimTime::NEVER };

    /// Sets the timer, unless it is already set to that instant. `SimTime::NEVER` switches the timer off.
    #[inline]
    pub(crate) fn set(&mut self, now: SimTime, at: SimTime, plan: &mut Plan<'_>) {
        if self.at <= now {
            self.at = SimTime::NEVER;
        }
        if at == self.at {
            return;
        }
        self.at = at;
        if at == SimTime::NEVER {
            plan.cancel(Self::TAG);
        } else {
            plan.wake_at(at, Self::TAG);
        }
    }
}

/// Timers of jobs, at most one for each job. With most queue policies, timers are usually cancelled before they are
/// due. Cancelling a timer needs no search, because its entry simply stays in the heap and becomes stale. Only the
/// earliest timer is set in the engine.
#[derive(Debug)]
pub struct JobTimers {
    /// Pairs (time, job), some of which are stale.
    heap: BinaryHeap<Reverse<(SimTime, u32)>>,
    /// Timer of each job; `SimTime::NEVER` means that the job has no timer.
    at: Vec<SimTime>,
    live: usize,
    alarm: Alarm,
}

impl JobTimers {
    /// Creates an empty set for `jobs` jobs.
    pub fn new(jobs: usize) -> Self {
        Self {
            heap: BinaryHeap::new(),
            at: vec![SimTime::NEVER; jobs],
            live: 0,
            alarm: Alarm::OFF,
        }
    }

    /// Sets the timer of a job; `SimTime::NEVER` cancels it.
    #[inline]
    pub fn set(&mut self, job: JobId, time: SimTime) {
        let at = &mut self.at[job.index()];
        if *at == time {
            return;
        }
        if *at != SimTime::NEVER {
            self.live -= 1;
        }
        *at = time;
        if time != SimTime::NEVER {
            self.live += 1;
            self.heap.push(Reverse((time, job.0)));
        }
    }

    /// Returns the timer of a job.
    pub fn get(&self, job: JobId) -> Option<SimTime> {
        Some(self.at[job.index()]).filter(|&at| at != SimTime::NEVER)
    }

    /// Cancels the timer of a job.
    #[inline]
    pub fn clear(&mut self, job: JobId) {
        self.set(job, SimTime::NEVER);
    }

    /// Removes the next timer that is due, and returns its job. Timers are ordered by time, then by job.
    #[inline]
    pub fn due(&mut self, now: SimTime) -> Option<JobId> {
        let (time, job) = self.first()?;
        if time > now {
            return None;
        }
        self.heap.pop();
        self.at[job as usize] = SimTime::NEVER;
        self.live -= 1;
        Some(JobId(job))
    }

    /// Returns the earliest timer.
    #[inline]
    fn first(&mut self) -> Option<(SimTime, u32)> {
        while let Some(&Reverse((time, job))) = self.heap.peek() {
            if self.at[job as usize] == time {
                return Some((time, job));
            }
            self.heap.pop();
        }
        None
    }

    /// Passes the earliest timer to the engine, if it has changed. The policy must call this method at the end of a
    /// decision.
    #[inline]
    pub fn flush(&mut self, now: SimTime, plan: &mut Plan<'_>) {
        if self.heap.len() > 2 * self.live + 1024 {
            let at = &self.at;
            self.heap
                .retain(|Reverse((time, job))| at[*job as usize] == *time);
        }
        let next = self.first().map_or(SimTime::NEVER, |(time, _)| time);
        self.alarm.set(now, next, plan);
    }
}
