//! One timer per job behind a single timer of the engine.
//!
//! Most timers of a queue policy are cancelled before they are due. Here that costs no search: their entries become
//! stale. The engine hears only of the earliest timer.

use gangline_engine::Plan;
use gangline_model::{JobId, SimTime, TimerTag};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const TAG: TimerTag = TimerTag { kind: 0, id: 0 };

/// Timers by job; a job has at most one.
#[derive(Debug)]
pub struct JobTimers {
    /// Times and jobs, some of them stale.
    heap: BinaryHeap<Reverse<(SimTime, u32)>>,
    /// By job; `SimTime::NEVER` = none.
    at: Vec<SimTime>,
    live: usize,
    /// The timer that the engine knows.
    armed: SimTime,
}

impl JobTimers {
    /// No timers for so many jobs.
    pub fn new(jobs: usize) -> Self {
        Self {
            heap: BinaryHeap::new(),
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
            self.heap.push(Reverse((time, job.0)));
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
        self.heap.pop();
        self.at[job as usize] = SimTime::NEVER;
        self.live -= 1;
        Some(JobId(job))
    }

    /// The earliest timer.
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

    /// Tells the engine the earliest timer, if it has changed. Call at the end of a decision.
    #[inline]
    pub fn flush(&mut self, now: SimTime, plan: &mut Plan<'_>) {
        if self.armed <= now {
            self.armed = SimTime::NEVER;
        }
        if self.heap.len() > 2 * self.live + 1024 {
            let at = &self.at;
            self.heap
                .retain(|Reverse((time, job))| at[*job as usize] == *time);
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
