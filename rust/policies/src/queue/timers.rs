//! One timer per job behind a single timer of the engine.
//!
//! Most timers of a queue policy are cancelled before they are due. Here such a timer costs a push into a list, in
//! no order while it is far off; the engine hears only of the earliest one.

use crate::order::Line;
use gangline_engine::Plan;
use gangline_model::{JobId, SimTime, TimerTag};

const TAG: TimerTag = TimerTag { kind: 0, id: 0 };

/// Timers by job; a job has at most one.
#[derive(Debug)]
pub struct JobTimers {
    line: Line<(SimTime, u32)>,
    /// By job; `SimTime::NEVER` = none.
    at: Vec<SimTime>,
    live: usize,
    /// What the engine was told.
    armed: SimTime,
}

impl JobTimers {
    /// No timers for so many jobs.
    pub fn new(jobs: usize) -> Self {
        Self {
            line: Line::default(),
            at: vec![SimTime::NEVER; jobs],
            live: 0,
            armed: SimTime::NEVER,
        }
    }

    /// Sets the timer of a job; `SimTime::NEVER` = none.
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
            self.line.push((time, job.0));
        }
    }

    /// Drops the timer of a job.
    #[inline]
    pub fn clear(&mut self, job: JobId) {
        self.set(job, SimTime::NEVER);
    }

    /// Takes the next timer that is due, by time, then job.
    #[inline]
    pub fn due(&mut self, now: SimTime) -> Option<JobId> {
        let (time, job) = self.first()?;
        if time > now {
            return None;
        }
        self.line.pop();
        self.at[job as usize] = SimTime::NEVER;
        self.live -= 1;
        Some(JobId(job))
    }

    /// The earliest timer.
    #[inline]
    fn first(&mut self) -> Option<(SimTime, u32)> {
        let at = &self.at;
        self.line.first(|(time, job)| at[job as usize] == time)
    }

    /// Tells the engine the earliest timer, if it has changed. Call at the end of a decision.
    #[inline]
    pub fn flush(&mut self, now: SimTime, plan: &mut Plan<'_>) {
        if self.armed <= now {
            self.armed = SimTime::NEVER;
        }
        if self.line.len() > 4 * self.live + 1024 {
            let at = &self.at;
            self.line.retain(|(time, job)| at[job as usize] == time);
        }
        let next = self.first().map_or(SimTime::NEVER, |(time, _)| time);
        if next == self.armed {
            return;
        }
        self.armed = next;
        if next == SimTime::NEVER {
            plan.cancel(TAG);
        } else {
            plan.wake_at(next, TAG);
        }
    }
}
