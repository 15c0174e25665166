//! Timers by instant, most of which are cancelled before they are due: bins in a ring, each for one span of time
//! in every round. Bins lie in no order until time comes to them.
//!
//! Cost: O(1) and a share of sorting the few timers of one bin, per timer.

use super::{Entry, key};
use crate::workload::Jobs;

const BINS: usize = 1 << 11;

/// Timers, entries whose key is the instant: those of the span that time has come to, and of all later ones.
pub(super) struct Wheel {
    /// Log2 of a bin's span in nanoseconds.
    shift: u32,
    /// The bin, counted through all rounds, that was opened last.
    opened: i64,
    /// Timers up to its end, the next one last.
    due: Vec<Entry>,
    bins: Vec<Vec<Entry>>,
    /// How many lie in bins.
    later: usize,
}

impl Wheel {
    /// A bin takes the timers of some sixteen arrivals, and a round is no shorter than a job.
    pub(super) fn new(jobs: &Jobs) -> Self {
        let last_ns = jobs.arrival_ns.last().copied().unwrap_or(0);
        let count = jobs.len().max(1) as i64;
        let mean_ns: i64 = jobs.duration_ns.iter().map(|&each| each / count).sum();
        let span_ns = (last_ns / count * 16).max(mean_ns / BINS as i64).max(1);
        Self {
            shift: span_ns.ilog2(),
            opened: 0,
            due: Vec::new(),
            bins: vec![Vec::new(); BINS],
            later: 0,
        }
    }

    pub(super) fn push(&mut self, timer: Entry) {
        let bin = key(timer) >> self.shift;
        if bin > self.opened {
            self.bins[bin as usize % BINS].push(timer);
            self.later += 1;
        } else {
            let place = self.due.partition_point(|&other| other > timer);
            self.due.insert(place, timer);
        }
    }

    /// The next timer that is still asked for, if before the limit.
    pub(super) fn peek(&mut self, limit_ns: i64, is_live: impl Fn(Entry) -> bool) -> Option<Entry> {
        loop {
            while let Some(&next) = self.due.last() {
                if is_live(next) {
                    return (key(next) < limit_ns).then_some(next);
                }
                self.due.pop();
            }
            if self.later == 0 || self.opened >= limit_ns >> self.shift {
                return None;
            }
            self.opened += 1;
            self.open(&is_live);
        }
    }

    pub(super) fn pop(&mut self) {
        self.due.pop();
    }

    fn open(&mut self, is_live: impl Fn(Entry) -> bool) {
        let end = self.opened;
        let bin = &mut self.bins[end as usize % BINS];
        let before = bin.len();
        let (shift, due) = (self.shift, &mut self.due);
        bin.retain(|&timer| {
            if key(timer) >> shift > end {
                return true;
            }
            if is_live(timer) {
                due.push(timer);
            }
            false
        });
        self.later -= before - bin.len();
        self.due.sort_unstable_by(|one, other| other.cmp(one));
    }
}
