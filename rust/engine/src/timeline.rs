//! The timeline: one row for each change of a count. The rows can be sampled; by default, they are thinned when there
//! are too many.

use crate::config::TimelineMode;
use crate::segments::NoMemory;
use crate::state::State;
use gangline_model::{SimSpan, SimTime};

/// Number of rows beyond which [`TimelineMode::Auto`] thins the timeline.
const TIMELINE_ROWS: usize = 1 << 17;

/// The timeline table.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Instant in nanoseconds.
    pub t_ns: Vec<i64>,
    /// Number of GPUs on servers that are up.
    pub gpus_total: Vec<i32>,
    /// Number of GPUs with a resident.
    pub gpus_busy: Vec<i32>,
    /// Number of running jobs.
    pub jobs_running: Vec<i32>,
    /// Number of waiting jobs.
    pub jobs_waiting: Vec<i32>,
    /// Number of busy GPUs of each type, row-major (rows, types).
    pub busy_by_type: Vec<i32>,
}

/// Counts at an instant. If successive counts are equal, only the first gives a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    total: u32,
    busy: u32,
    running: u32,
    waiting: u32,
}

/// The timeline during the run. The counts of a row are stored together, not in one buffer per column.
#[derive(Clone, Debug)]
pub(crate) struct TimelineWriter {
    rows: Vec<(SimTime, Counts)>,
    /// Number of busy GPUs of each type, row-major (rows, types).
    busy_by_type: Vec<u32>,
    mode: TimelineMode,
    /// Minimum time between two consecutive rows.
    gap: SimSpan,
    last_row: SimTime,
    /// Whether a row is pending because it came too soon after the previous row.
    pending: bool,
}

impl Counts {
    fn of(state: &State) -> Self {
        Self {
            total: state.occupancy().gpus_up(),
            busy: state.occupancy().gpus_busy(),
            running: state.lives().running().len() as u32,
            waiting: state.lives().waiting().len() as u32,
        }
    }
}

impl TimelineWriter {
    pub(crate) fn new(mode: TimelineMode) -> Self {
        Self {
            rows: Vec::new(),
            busy_by_type: Vec::new(),
            gap: match mode {
                TimelineMode::Sample(span) => span,
                _ => SimSpan::ZERO,
            },
            mode,
            last_row: SimTime(i64::MIN),
            pending: false,
        }
    }

    /// Frees the memory of the rows.
    pub(crate) fn clear(&mut self) {
        self.rows = Vec::new();
        self.busy_by_type = Vec::new();
    }

    /// Returns whether a row is pending.
    #[inline]
    pub(crate) fn has_put_off(&self) -> bool {
        self.pending
    }

    /// Adds a row if a count has changed.
    #[inline]
    pub(crate) fn write(&mut self, state: &State) -> Result<(), NoMemory> {
        let now = state.now();
        if matches!(self.mode, TimelineMode::Off)
            || (self.pending && now - self.last_row < self.gap)
        {
            return Ok(());
        }
        let counts = Counts::of(state);
        if self.ends_with(&counts, state.occupancy().busy_by_type()) {
            return Ok(());
        }
        if self.last_row.0 != i64::MIN && now - self.last_row < self.gap {
            self.pending = true;
            return Ok(());
        }
        self.push(state, now, counts)
    }

    /// Writes the pending row if it is due before `now`. The counts have not changed since this row was due.
    #[cold]
    pub(crate) fn write_due(&mut self, state: &State, now: SimTime) -> Result<(), NoMemory> {
        let due = self.last_row + self.gap;
        if due >= now {
            return Ok(());
        }
        let counts = Counts::of(state);
        if self.ends_with(&counts, state.occupancy().busy_by_type()) {
            self.pending = false;
            return Ok(());
        }
        self.push(state, due, counts)
    }

    /// Writes the last row of the run, regardless of sampling.
    pub(crate) fn write_last(&mut self, state: &State) -> Result<(), NoMemory> {
        if !self.pending {
            return Ok(());
        }
        self.gap = SimSpan::ZERO;
        self.write(state)
    }

    #[inline]
    fn push(&mut self, state: &State, time: SimTime, counts: Counts) -> Result<(), NoMemory> {
        self.pending = false;
        self.last_row = time;
        let busy_by_type = state.occupancy().busy_by_type();
        self.rows.try_reserve(1)?;
        self.busy_by_type.try_reserve(busy_by_type.len())?;
        self.rows.push((time, counts));
        // Most clusters have one type, and for one type this is faster than copying a slice.
        for &busy in busy_by_type {
            self.busy_by_type.push(busy);
        }
        if matches!(self.mode, TimelineMode::Auto) && self.rows.len() >= TIMELINE_ROWS {
            self.halve(busy_by_type.len());
        }
        Ok(())
    }

    /// Increases the sampling time to at least twice its value, and keeps the rows that the new sampling time would
    /// have produced.
    #[cold]
    fn halve(&mut self, types: usize) {
        let count = self.rows.len() as i64;
        let span = (self.rows[self.rows.len() - 1].0 - self.rows[0].0).0;
        self.gap = SimSpan(self.gap.0.saturating_mul(2).max(span / (count / 2)).max(1));
        self.pending = self.thin(self.gap, types);
        self.last_row = self.rows[self.rows.len() - 1].0;
    }

    /// Returns whether the last row has these counts.
    #[inline]
    fn ends_with(&self, counts: &Counts, busy_by_type: &[u32]) -> bool {
        let last = self.rows.last();
        last.is_some_and(|last| last.1 == *counts) && self.busy_by_type.ends_with(busy_by_type)
    }

    /// Keeps at most one row per `gap`. A pending row is written `gap` after the previous row, so the table always lags
    /// behind by less than `gap`. Returns whether the last row is still pending.
    fn thin(&mut self, gap: SimSpan, types: usize) -> bool {
        let mut kept = 0;
        let mut put_off = None;
        for row in 0..self.rows.len() {
            let time = self.rows[row].0;
            let mut due = self.due(kept, gap);
            if let Some(held) = put_off.filter(|_| due < time) {
                // A pending row was not written, so this does not overwrite a row that is still needed.
                self.put(held, due, kept, types);
                kept += 1;
                due = self.due(kept, gap);
            }
            if time < due {
                put_off = Some(row);
            } else {
                put_off = None;
                self.put(row, time, kept, types);
                kept += 1;
            }
        }
        self.rows.truncate(kept);
        self.busy_by_type.truncate(kept * types);
        put_off.is_some()
    }

    /// Returns the earliest time at which the next row may be recorded, given the number of rows kept so far.
    fn due(&self, kept: usize, gap: SimSpan) -> SimTime {
        match kept {
            0 => SimTime(i64::MIN),
            _ => self.rows[kept - 1].0 + gap,
        }
    }

    /// Writes the counts of a row to an earlier position, with a new instant.
    fn put(&mut self, row: usize, time: SimTime, to: usize, types: usize) {
        self.rows[to] = (time, self.rows[row].1);
        self.busy_by_type
            .copy_within(row * types..(row + 1) * types, to * types);
    }

    /// Returns the rows as a table and leaves the writer empty.
    pub(crate) fn take(&mut self) -> Timeline {
        let column = |of: fn(&Counts) -> u32| -> Vec<i32> {
            self.rows.iter().map(|row| of(&row.1) as i32).collect()
        };
        let timeline = Timeline {
            t_ns: self.rows.iter().map(|row| row.0.0).collect(),
            gpus_total: column(|counts| counts.total),
            gpus_busy: column(|counts| counts.busy),
            jobs_running: column(|counts| counts.running),
            jobs_waiting: column(|counts| counts.waiting),
            busy_by_type: self.busy_by_type.iter().map(|&busy| busy as i32).collect(),
        };
        self.clear();
        timeline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows_of(steps: &[(i64, u32)]) -> TimelineWriter {
        let mut rows = TimelineWriter::new(TimelineMode::Auto);
        let mut now = 0;
        for &(after, busy) in steps {
            now += after;
            let counts = Counts {
                total: 9,
                busy,
                running: 0,
                waiting: 0,
            };
            rows.rows.push((SimTime(now), counts));
            rows.busy_by_type.push(busy);
        }
        rows
    }

    /// Returns the value at an instant according to the table.
    fn busy_at(rows: &TimelineWriter, time: i64) -> u32 {
        let after = rows.rows.partition_point(|row| row.0.0 <= time);
        rows.rows[after - 1].1.busy
    }

    #[test]
    fn a_change_soon_after_a_row_is_not_lost_for_long() {
        let mut rows = rows_of(&[(0, 1), (1, 6), (999, 7), (500, 2)]);
        assert!(!rows.thin(SimSpan(10), 1));
        let found: Vec<_> = rows.rows.iter().map(|row| (row.0.0, row.1.busy)).collect();
        assert_eq!(found, [(0, 1), (10, 6), (1000, 7), (1500, 2)]);
        assert_eq!(rows.busy_by_type, [1, 6, 7, 2]);
    }

    proptest! {
        #[test]
        fn thinned_rows_are_out_of_date_by_less_than_the_gap(
            steps in prop::collection::vec((1_i64..30, 0_u32..5), 1..60),
            gap in 1_i64..40,
        ) {
            let whole = rows_of(&steps);
            let mut thin = whole.clone();
            let is_put_off = thin.thin(SimSpan(gap), 1);
            let end = whole.rows[whole.rows.len() - 1].0.0;
            let last = thin.rows[thin.rows.len() - 1].0.0;
            prop_assert!(thin.rows.windows(2).all(|pair| (pair[1].0 - pair[0].0).0 >= gap));
            prop_assert_eq!(is_put_off, last < end);
            prop_assert!(end - last < gap);
            for time in whole.rows[0].0.0..=end {
                let shown = busy_at(&thin, time);
                let mut recent = (time - gap + 1).max(whole.rows[0].0.0)..=time;
                prop_assert!(recent.any(|then| busy_at(&whole, then) == shown), "{time}");
            }
        }
    }
}
