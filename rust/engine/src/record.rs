//! What a run leaves behind: segments, timeline, totals, and a hash of the event log. Segments are columns
//! from the first push and are moved out; the timeline is short and becomes columns at the end.

use crate::config::TimelineMode;
use crate::error::EngineError;
use crate::segments::{NoMemory, Segments};
use crate::state::State;
use crate::state::running::Part;
use gangline_model::{GpuSet, GpuTypeId, JobId, SimSpan, SimTime};

/// Why a segment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EndReason {
    /// The job's work is done.
    Finished = 0,
    /// The policy took the GPUs.
    Preempted = 1,
    /// The policy moved the job.
    Moved = 2,
    /// A server failed.
    Failed = 3,
    /// The rate changed: a co-runner came or went, another sub-batch, another share of an up-link, a quota.
    Retimed = 4,
    /// The run was stopped before the job was done.
    Stopped = 5,
}

/// The timeline table.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Instant, ns.
    pub t_ns: Vec<i64>,
    /// GPUs of up servers.
    pub gpus_total: Vec<i32>,
    /// GPUs with a resident.
    pub gpus_busy: Vec<i32>,
    /// Running jobs.
    pub jobs_running: Vec<i32>,
    /// Waiting jobs.
    pub jobs_waiting: Vec<i32>,
    /// Busy GPUs by type, row-major (rows, types).
    pub busy_by_type: Vec<i32>,
}

/// Counts at an instant; two equal ones make one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    total: u32,
    busy: u32,
    running: u32,
    waiting: u32,
}

/// The timeline while it grows: one place to append to instead of one per column.
#[derive(Clone, Debug, Default)]
struct Rows {
    rows: Vec<(SimTime, Counts)>,
    /// Busy GPUs by type, row-major (rows, types).
    busy_by_type: Vec<u32>,
}

impl Counts {
    fn of(state: &State) -> Self {
        Self {
            total: state.occupancy.gpus_up(),
            busy: state.occupancy.gpus_busy(),
            running: state.lives.running().len() as u32,
            waiting: state.lives.waiting().len() as u32,
        }
    }
}

impl Rows {
    /// Whether the last row says the same.
    #[inline]
    fn ends_with(&self, counts: &Counts, busy_by_type: &[u32]) -> bool {
        let last = self.rows.last();
        last.is_some_and(|last| last.1 == *counts) && self.busy_by_type.ends_with(busy_by_type)
    }

    /// Keeps at most one row per `gap`. What was put off is written `gap` after the row before it, so that at
    /// any time the last row is out of date by less than `gap`. Whether the last row is put off still.
    fn thin(&mut self, gap: SimSpan, types: usize) -> bool {
        let mut kept = 0;
        let mut put_off = None;
        for row in 0..self.rows.len() {
            let time = self.rows[row].0;
            let mut due = self.due(kept, gap);
            if let Some(held) = put_off.filter(|_| due < time) {
                // a row was put off, so there is room for one
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

    /// When the next row may come, after so many.
    fn due(&self, kept: usize, gap: SimSpan) -> SimTime {
        match kept {
            0 => SimTime(i64::MIN),
            _ => self.rows[kept - 1].0 + gap,
        }
    }

    /// Puts the counts of a row at an instant to an earlier position.
    fn put(&mut self, row: usize, time: SimTime, to: usize, types: usize) {
        self.rows[to] = (time, self.rows[row].1);
        self.busy_by_type
            .copy_within(row * types..(row + 1) * types, to * types);
    }

    fn into_timeline(self) -> Timeline {
        let column = |of: fn(&Counts) -> u32| -> Vec<i32> {
            self.rows.iter().map(|row| of(&row.1) as i32).collect()
        };
        Timeline {
            t_ns: self.rows.iter().map(|row| row.0.0).collect(),
            gpus_total: column(|counts| counts.total),
            gpus_busy: column(|counts| counts.busy),
            jobs_running: column(|counts| counts.running),
            jobs_waiting: column(|counts| counts.waiting),
            busy_by_type: self.busy_by_type.iter().map(|&busy| busy as i32).collect(),
        }
    }
}

/// Rows beyond which [`TimelineMode::Auto`] thins the timeline.
const TIMELINE_ROWS: usize = 1 << 17;

/// Collects what a run leaves behind.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) segments: Option<Segments>,
    /// Segments recorded when memory ran out.
    out_of_memory: Option<usize>,
    rows: Rows,
    mode: TimelineMode,
    gap: SimSpan,
    last_row: SimTime,
    pending: bool,
    pub(crate) hash: LogHash,
    pub(crate) totals: Totals,
}

/// GPU-seconds that the parts of forked jobs lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LostGpuSeconds {
    pub(crate) overhead: f64,
    pub(crate) comm: f64,
    pub(crate) shared: f64,
}

/// What co-runners came to, in runs with shared GPUs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SharingTotals {
    /// Time of parts with a co-runner.
    pub(crate) part_ns: i128,
    /// The same, each second times the slowdown factor.
    pub(crate) xi_s: f64,
    /// GPU-seconds that the work done would have taken on the same GPUs without co-runners, at full batch.
    pub(crate) alone_gpu_s: f64,
    /// Starts and moves after which a part has a co-runner.
    pub(crate) starts: u64,
    /// Starts and moves below the full batch.
    pub(crate) sub_batch_starts: u64,
}

/// Time-weighted totals of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) last: SimTime,
    pub(crate) busy_gpu_ns: i128,
    /// Of that, by GPU type; empty where GPUs have no price.
    pub(crate) busy_by_type_ns: Vec<i128>,
    pub(crate) busy_server_ns: i128,
    pub(crate) up_gpu_ns: i128,
    /// Held by parts that have used up their quota.
    pub(crate) paused_gpu_ns: i128,
    /// Under a policy that forks jobs.
    pub(crate) lost_by_parts: LostGpuSeconds,
    pub(crate) sharing: SharingTotals,
    pub(crate) active_ns: i128,
    pub(crate) fragmented_gpu_ns: i128,
    pub(crate) preemptions: u64,
    pub(crate) failures: u64,
}

impl Recorder {
    pub(crate) fn new(segments: bool, mode: TimelineMode) -> Self {
        Self {
            segments: segments.then(Segments::default),
            out_of_memory: None,
            rows: Rows::default(),
            gap: match mode {
                TimelineMode::Sample(span) => span,
                _ => SimSpan::ZERO,
            },
            mode,
            last_row: SimTime(i64::MIN),
            pending: false,
            hash: LogHash::default(),
            totals: Totals::default(),
        }
    }

    /// Adds the rows of a part's segment that ends now.
    #[inline]
    pub(crate) fn segment(
        &mut self,
        state: &State,
        (job, part): (JobId, &Part),
        start: SimTime,
        reason: EndReason,
    ) {
        if let Some(table) = &mut self.segments
            && segment_rows(table, state, (job, part), (start, reason)).is_err()
        {
            self.run_out();
        }
    }

    /// Gives back the memory of the tables, which the way out may need.
    #[cold]
    fn run_out(&mut self) {
        let table = self.segments.take();
        self.out_of_memory = Some(table.map_or(0, |table| table.job.len()));
        self.rows = Rows::default();
    }

    /// Refuses to go on when memory ran out.
    #[inline]
    pub(crate) fn check_memory(&self, now: SimTime) -> Result<(), EngineError> {
        match self.out_of_memory {
            None => Ok(()),
            Some(segments) => Err(EngineError::OutOfMemory {
                time: now,
                segments,
            }),
        }
    }

    /// Adds the time since the last instant to the totals; call before anything changes at `now`.
    #[expect(clippy::inline_always, reason = "a part of the loop, once per instant")]
    #[inline(always)]
    pub(crate) fn advance(&mut self, state: &State, now: SimTime) {
        let length = i128::from((now - self.totals.last).0);
        if length == 0 {
            return;
        }
        if self.pending {
            self.write_due_row(state, now);
        }
        let totals = &mut self.totals;
        totals.last = now;
        let (there, lives) = (&state.occupancy, &state.lives);
        totals.busy_gpu_ns += i128::from(there.gpus_busy()) * length;
        let by_type = there.busy_by_type().iter();
        for (total, &busy) in totals.busy_by_type_ns.iter_mut().zip(by_type) {
            *total += i128::from(busy) * length;
        }
        totals.busy_server_ns += i128::from(there.busy_servers()) * length;
        totals.up_gpu_ns += i128::from(there.gpus_up()) * length;
        let active = lives.waiting().len() + lives.running().len();
        totals.active_ns += active as i128 * length;
        if !lives.waiting().is_empty() && there.gpus_busy() < there.gpus_up() {
            let idle = |at| {
                let id = GpuTypeId::new(at);
                there.up(id) - there.busy(id)
            };
            totals.fragmented_gpu_ns += i128::from(lives.fragmented(idle)) * length;
        }
    }

    /// Adds a timeline row if a count has changed.
    #[inline]
    pub(crate) fn timeline_row(&mut self, state: &State) {
        if matches!(self.mode, TimelineMode::Off) {
            return;
        }
        if self.pending && state.now - self.last_row < self.gap {
            return;
        }
        let counts = Counts::of(state);
        if self.rows.ends_with(&counts, state.occupancy.busy_by_type()) {
            return;
        }
        if self.last_row.0 != i64::MIN && state.now - self.last_row < self.gap {
            self.pending = true;
            return;
        }
        self.push_row(state, state.now, counts);
    }

    /// Writes the row that the sampling has put off, if its time lies before `now`: what changed soon after
    /// the last row has stood since.
    #[cold]
    fn write_due_row(&mut self, state: &State, now: SimTime) {
        let due = self.last_row + self.gap;
        if due >= now {
            return;
        }
        let counts = Counts::of(state);
        if self.rows.ends_with(&counts, state.occupancy.busy_by_type()) {
            self.pending = false;
        } else {
            self.push_row(state, due, counts);
        }
    }

    #[inline]
    fn push_row(&mut self, state: &State, time: SimTime, counts: Counts) {
        self.pending = false;
        self.last_row = time;
        let busy_by_type = state.occupancy.busy_by_type();
        let room = self.rows.rows.try_reserve(1);
        if (room.and_then(|()| self.rows.busy_by_type.try_reserve(busy_by_type.len()))).is_err() {
            self.run_out();
            return;
        }
        self.rows.rows.push((time, counts));
        // most clusters have one type: less work than to copy a slice
        for &busy in busy_by_type {
            self.rows.busy_by_type.push(busy);
        }
        if matches!(self.mode, TimelineMode::Auto) && self.rows.rows.len() >= TIMELINE_ROWS {
            self.thin(busy_by_type.len());
        }
    }

    /// Takes the timeline out.
    pub(crate) fn take_timeline(&mut self) -> Timeline {
        std::mem::take(&mut self.rows).into_timeline()
    }

    /// The last row of the run, whatever the sampling.
    pub(crate) fn finish(&mut self, state: &State) {
        if self.pending {
            self.gap = SimSpan::ZERO;
            self.timeline_row(state);
        }
        if let Some(table) = &mut self.segments {
            table.co_offset.push(table.co_runners.len() as i32);
            if table.sort().is_err() {
                self.run_out();
            }
        }
    }

    /// Doubles the sampling time and keeps the rows that it would have given.
    #[cold]
    fn thin(&mut self, types: usize) {
        let count = self.rows.rows.len() as i64;
        let span = (self.rows.rows[self.rows.rows.len() - 1].0 - self.rows.rows[0].0).0;
        self.gap = SimSpan(self.gap.0.saturating_mul(2).max(span / (count / 2)).max(1));
        self.pending = self.rows.thin(self.gap, types);
        let last = self.rows.rows[self.rows.rows.len() - 1];
        self.last_row = last.0;
    }
}

/// Adds a row per server of a part.
fn segment_rows(
    table: &mut Segments,
    state: &State,
    (job, part): (JobId, &Part),
    (start, reason): (SimTime, EndReason),
) -> Result<(), NoMemory> {
    let details = part.details.as_ref().expect("kept where segments are");
    table.make_room(part.gpus.by_server().len(), details.co_runners.len())?;
    let batch = match details.segment_sub_batch {
        0 => state.jobs.batch_size(job),
        opened => opened,
    };
    for one in part.gpus.by_server() {
        table.job.push(job.0);
        table.part.push(part.number);
        table.start_ns.push(start.0);
        table.end_ns.push(state.now.0);
        table.server.push(one.server.0);
        table.gpu_mask.push(one.mask);
        table.tier.push(part.tier as u8);
        table.rate.push(part.rate);
        table.sub_batch.push(batch);
        if state.is_shared() {
            table.xi.push(part.xi);
        }
        table.co_offset.push(table.co_runners.len() as i32);
        table.co_runners.extend_from_slice(&details.co_runners);
        table.end_reason.push(reason as u8);
    }
    Ok(())
}

/// What happened to a job, as the log has it. Numbers are part of golden hashes.
#[derive(Clone, Copy)]
pub(crate) enum Logged {
    Start = 1,
    Finish = 2,
    /// Preempted, or taken off its GPUs by a move.
    Stop = 3,
    Failed = 4,
}

/// A 64-bit hash of every start, stop and finish in order: equal logs, equal hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogHash(pub u64);

impl Default for LogHash {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl LogHash {
    #[inline]
    fn word(&mut self, word: u64) {
        // multiply-xor mixing with odd constants; good enough to tell logs apart, not cryptographic
        self.0 = (self.0 ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        self.0 ^= self.0 >> 32;
    }

    #[inline]
    pub(crate) fn event(&mut self, kind: Logged, now: SimTime, job: JobId, gpus: &GpuSet) {
        self.word(now.0 as u64);
        self.word((kind as u64) << 32 | u64::from(job.0));
        for part in gpus.by_server() {
            self.word(u64::from(part.server.0));
            self.word(part.mask);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows_of(steps: &[(i64, u32)]) -> Rows {
        let mut rows = Rows::default();
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

    /// What a reader of the table takes to be true at an instant.
    fn busy_at(rows: &Rows, time: i64) -> u32 {
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
