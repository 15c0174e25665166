//! What a run leaves behind: segments, timeline, totals, and a hash of the event log. Segments are columns
//! from the first push and are moved out; the timeline is short and becomes columns at the end.

use crate::bits::BitSet;
use crate::config::TimelineMode;
use crate::segments::Segments;
use crate::state::{NO_JOB, State, slots};
use gangline_model::{GpuSet, JobId, SimSpan, SimTime};

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
    /// The rate changed (a co-runner came or went, another sub-batch).
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

impl Rows {
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
    rows: Rows,
    mode: TimelineMode,
    gap: SimSpan,
    last_row: SimTime,
    /// Counts of the last row that was written; `None` before the first.
    last: Option<Counts>,
    last_by_type: Vec<u32>,
    pending: bool,
    pub(crate) hash: LogHash,
    pub(crate) totals: Totals,
}

/// Time-weighted totals of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) last: SimTime,
    pub(crate) busy_gpu_ns: i128,
    pub(crate) busy_server_ns: i128,
    pub(crate) up_gpu_ns: i128,
    pub(crate) active_ns: i128,
    pub(crate) fragmented_gpu_ns: i128,
    pub(crate) preemptions: u64,
    pub(crate) migrations: u64,
    pub(crate) failures: u64,
}

impl Recorder {
    pub(crate) fn new(segments: bool, mode: TimelineMode) -> Self {
        Self {
            segments: segments.then(Segments::default),
            rows: Rows::default(),
            gap: match mode {
                TimelineMode::Sample(span) => span,
                _ => SimSpan::ZERO,
            },
            mode,
            last_row: SimTime(i64::MIN),
            last: None,
            last_by_type: Vec::new(),
            pending: false,
            hash: LogHash::default(),
            totals: Totals::default(),
        }
    }

    /// Adds the rows of a segment that ends now.
    #[inline]
    pub(crate) fn segment(&mut self, state: &mut State, job: JobId, reason: EndReason) {
        if self.segments.is_some() {
            self.segment_rows(state, job, reason);
        }
    }

    fn segment_rows(&mut self, state: &mut State, job: JobId, reason: EndReason) {
        let Some(table) = &mut self.segments else {
            return;
        };
        let run = state.run(job).expect("a segment belongs to a running job");
        let details = &state.details[state.slot_of(job)];
        let opened = details.segment_sub_batch;
        let batch = if opened == 0 {
            state.jobs.batch_size(job)
        } else {
            opened
        };
        for part in run.gpus.parts() {
            table.job.push(job.0);
            table.start_ns.push(run.segment_start.0);
            table.end_ns.push(state.now.0);
            table.server.push(part.server.0);
            table.gpu_mask.push(part.mask);
            table.tier.push(run.tier as u8);
            table.rate.push(run.rate);
            table.sub_batch.push(batch);
            table.co_offset.push(table.co_runners.len() as i32);
            table.co_runners.extend(
                details
                    .co_runners
                    .iter()
                    .flat_map(|others| others.iter().copied()),
            );
            table.end_reason.push(reason as u8);
        }
    }

    /// Adds what the time since the last instant is worth; call before anything changes at `now`.
    #[inline]
    pub(crate) fn advance(&mut self, state: &State, waiting_demand: &Demand, now: SimTime) {
        let length = i128::from((now - self.totals.last).0);
        if length == 0 {
            return;
        }
        let totals = &mut self.totals;
        totals.last = now;
        totals.busy_gpu_ns += i128::from(state.gpus_busy) * length;
        totals.busy_server_ns += i128::from(state.busy_servers) * length;
        totals.up_gpu_ns += i128::from(state.gpus_up) * length;
        let active = state.waiting.len() + state.running.len();
        totals.active_ns += active as i128 * length;
        if !state.waiting.is_empty() {
            totals.fragmented_gpu_ns += i128::from(waiting_demand.fragmented(state)) * length;
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
        let counts = Counts {
            total: state.gpus_up,
            busy: state.gpus_busy,
            running: state.running.len() as u32,
            waiting: state.waiting.len() as u32,
        };
        let is_same =
            self.last.as_ref() == Some(&counts) && self.last_by_type == state.busy_by_type;
        if is_same && !self.pending {
            return;
        }
        if self.last_row.0 != i64::MIN && state.now - self.last_row < self.gap {
            self.pending = true;
            return;
        }
        self.push_row(state, counts);
        if matches!(self.mode, TimelineMode::Auto) && self.rows.rows.len() >= TIMELINE_ROWS {
            self.thin(state.busy_by_type.len());
        }
    }

    fn push_row(&mut self, state: &State, counts: Counts) {
        self.pending = false;
        self.last_row = state.now;
        self.rows.rows.push((state.now, counts));
        self.rows
            .busy_by_type
            .extend_from_slice(&state.busy_by_type);
        self.last = Some(counts);
        self.last_by_type.clone_from(&state.busy_by_type);
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
            table.sort();
        }
    }

    /// Doubles the sampling time and keeps the rows that it would have given.
    fn thin(&mut self, types: usize) {
        let Rows { rows, busy_by_type } = &mut self.rows;
        let span = (rows[rows.len() - 1].0 - rows[0].0).0;
        self.gap = SimSpan((self.gap.0 * 2).max(span * 2 / rows.len() as i64).max(1));
        let mut kept = 0;
        let mut last = i64::MIN;
        for row in 0..rows.len() {
            let t = rows[row].0.0;
            if last != i64::MIN && t - last < self.gap.0 {
                continue;
            }
            last = t;
            rows[kept] = rows[row];
            busy_by_type.copy_within(row * types..(row + 1) * types, kept * types);
            kept += 1;
        }
        rows.truncate(kept);
        busy_by_type.truncate(kept * types);
        self.last_row = SimTime(last);
        self.pending = true;
    }
}

/// Gang sizes of waiting jobs, per GPU type: is there one that the idle GPUs could serve together?
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    types: Vec<TypeDemand>,
}

#[derive(Clone, Debug)]
struct TypeDemand {
    /// Gang size -> waiting gangs.
    counts: Vec<u32>,
    sizes: BitSet,
    /// Smallest waiting gang; `u32::MAX` if there is none.
    smallest: u32,
}

impl Demand {
    pub(crate) fn new(types: usize, gpus_max: u32) -> Self {
        let width = gpus_max as usize + 1;
        let none = TypeDemand {
            counts: vec![0; width],
            sizes: BitSet::new(width),
            smallest: u32::MAX,
        };
        Self {
            types: vec![none; types],
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, state: &State, job: JobId) {
        let gpus = state.jobs.gpus(job);
        for id in slots(state.usable(job)) {
            let demand = &mut self.types[id as usize];
            let count = &mut demand.counts[gpus as usize];
            *count += 1;
            if *count == 1 {
                demand.sizes.insert(gpus as usize);
                demand.smallest = demand.smallest.min(gpus);
            }
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, state: &State, job: JobId) {
        let gpus = state.jobs.gpus(job);
        for id in slots(state.usable(job)) {
            let demand = &mut self.types[id as usize];
            let count = &mut demand.counts[gpus as usize];
            *count -= 1;
            if *count == 0 {
                demand.sizes.remove(gpus as usize);
                let smallest = demand.sizes.first().map(|gpus| gpus as u32);
                demand.smallest = smallest.unwrap_or(u32::MAX);
            }
        }
    }

    /// Idle GPUs of the types on which a waiting gang would fit if they were together.
    #[inline]
    fn fragmented(&self, state: &State) -> u32 {
        let mut idle = 0;
        for (id, demand) in self.types.iter().enumerate() {
            let free = state.up_by_type[id] - state.busy_by_type[id];
            if demand.smallest <= free {
                idle += free;
            }
        }
        idle
    }
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
    pub(crate) fn event(&mut self, kind: u64, now: SimTime, job: JobId, gpus: &GpuSet) {
        self.word(now.0 as u64);
        self.word(kind << 32 | u64::from(job.0));
        for part in gpus.parts() {
            self.word(u64::from(part.server.0));
            self.word(part.mask);
        }
    }
}

impl State {
    /// Co-runners of a gang, ascending by id.
    pub(crate) fn co_runners(&self, job: JobId, gpus: &GpuSet) -> Vec<u32> {
        let mut others: Vec<u32> = gpus
            .parts()
            .iter()
            .flat_map(|part| slots(part.mask).map(move |slot| (part.server, slot)))
            .flat_map(|(server, slot)| self.residents_of(server, slot))
            .filter(|&other| other != job && other.0 != NO_JOB)
            .map(|other| other.0)
            .collect();
        others.sort_unstable();
        others.dedup();
        others
    }
}
