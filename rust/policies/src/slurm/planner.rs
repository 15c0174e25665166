//! The plan of a backfill pass: expected ends of running jobs, booked servers, and the free GPUs at an instant.
//!
//! A search for the start of a job sweeps over the ends of running jobs and of bookings, and keeps on the draft what
//! would be free: GPUs of jobs that have ended are given back, booked servers have none. At its end the draft is rolled
//! back, but not to the present: the next search begins where this one began, if jobs of its kind could start no sooner,
//! and gives back or takes only what ends between the two. O(ends between + ends swept + bookings) for a job.

use gangline_engine::{FreeIndex, Mark};
use gangline_model::{GpuSet, GpuTypeId, JobId, ServerId, SimSpan, SimTime};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cmp::Reverse;

/// Servers that no other job may use from `begin` to `end`.
#[derive(Clone, Debug)]
struct Booking {
    servers: SmallVec<[ServerId; 4]>,
    begin: SimTime,
    end: SimTime,
    /// Whether the booking closes its servers to the job that is being planned.
    is_shut: bool,
}

/// Number of bookings that close a server, and the mask of GPUs that are free without them.
#[derive(Clone, Copy, Debug, Default)]
struct Shut {
    bookings: u32,
    mask: u64,
}

/// By GPU type: the first bookings of the servers with free GPUs, the latest first, and how many are free.
#[derive(Clone, Debug)]
pub(super) struct OpenGpus {
    by_type: Vec<Vec<(SimTime, u32)>>,
}

impl OpenGpus {
    /// The latest end of a gang on one of the types that starts now: before its end, none of enough free GPUs is booked.
    pub(super) fn until(&self, types: &[GpuTypeId], gpus: u32) -> SimTime {
        let latest = |id: &GpuTypeId| {
            let mut found = 0;
            let mut servers = self.by_type[id.index()].iter();
            servers.find_map(|&(first, free)| {
                found += free;
                (found >= gpus).then_some(first)
            })
        };
        types
            .iter()
            .filter_map(latest)
            .max()
            .unwrap_or(SimTime::ZERO)
    }
}

/// When running jobs are expected to end, ascending.
pub(super) type Ends = Vec<(SimTime, JobId)>;

/// Bookings, and the state of the current search.
#[derive(Clone, Debug, Default)]
pub(super) struct Planner {
    resolution: i64,
    bookings: Vec<Booking>,
    by_begin: Vec<usize>,
    by_end: Vec<usize>,
    pub(super) ends: Ends,
    /// By kind: time limits of jobs that were planned, ascending, each with an instant before which no job with that
    /// limit or a longer one can start. The instants ascend as well.
    earliest: FxHashMap<usize, Vec<(SimSpan, SimTime)>>,
    /// By server: the earliest start of a booking.
    first_booked: Vec<SimTime>,
    shut: Vec<Shut>,
    /// By GPU type: servers with GPUs that are free now, and how many.
    open: Vec<Vec<(ServerId, u32)>>,
    /// Of the first ends, whose GPUs the draft has given back: the draft before each.
    given: Vec<Mark>,
    // the search
    begun: Option<Mark>,
    next_begin: usize,
    next_end: usize,
    next_gone: usize,
}

impl Planner {
    pub(super) fn new(servers: usize, resolution: SimSpan) -> Self {
        Self {
            resolution: resolution.0,
            shut: vec![Shut::default(); servers],
            first_booked: vec![SimTime::NEVER; servers],
            ..Self::default()
        }
    }

    /// Rounds an instant up to the grid.
    pub(super) fn up(&self, at: SimTime) -> SimTime {
        match at.0 % self.resolution {
            0 => at,
            over => at + SimSpan(self.resolution - over),
        }
    }

    /// A pass begins; `ends` are those of all running jobs with a time limit.
    pub(super) fn begin(&mut self, ends: Ends, free: &FreeIndex) {
        for booking in self.bookings.drain(..) {
            for server in booking.servers {
                self.first_booked[server.index()] = SimTime::NEVER;
            }
        }
        self.by_begin.clear();
        self.by_end.clear();
        self.earliest.clear();
        self.ends = ends;
        self.note_free(free);
    }

    /// Records the end of a job that starts in this pass.
    pub(super) fn add_end(&mut self, end: SimTime, job: JobId) {
        if end < SimTime::NEVER {
            let at = self.ends.partition_point(|&other| other < (end, job));
            self.ends.insert(at, (end, job));
        }
    }

    /// Forgets the end of a job that is preempted in this pass.
    pub(super) fn remove_end(&mut self, job: JobId) {
        self.ends.retain(|&(_, other)| other != job);
    }

    /// Books servers.
    pub(super) fn book(
        &mut self,
        servers: impl IntoIterator<Item = ServerId>,
        begin: SimTime,
        end: SimTime,
    ) {
        let bookings = &mut self.bookings;
        let at = bookings.len();
        let servers: SmallVec<[ServerId; 4]> = servers.into_iter().collect();
        for server in &servers {
            let first = &mut self.first_booked[server.index()];
            *first = begin.min(*first);
        }
        bookings.push(Booking {
            servers,
            begin,
            end,
            is_shut: false,
        });
        let place = self
            .by_begin
            .partition_point(|&other| bookings[other].begin <= begin);
        self.by_begin.insert(place, at);
        let place = self
            .by_end
            .partition_point(|&other| bookings[other].end <= end);
        self.by_end.insert(place, at);
    }

    /// Records that no job of this kind, with this time limit or a longer one, can start before an instant in this
    /// pass.
    pub(super) fn note_earliest(&mut self, kind: usize, limit: SimSpan, begin: SimTime) {
        let known = self.earliest.entry(kind).or_default();
        let from = known.partition_point(|one| one.0 < limit);
        let later = known[from..]
            .iter()
            .take_while(|one| one.1 <= begin)
            .count();
        known.splice(from..from + later, [(limit, begin)]);
    }

    /// Returns an instant before which no job of this kind and time limit can start.
    pub(super) fn earliest(&self, kind: usize, limit: SimSpan) -> Option<SimTime> {
        let known = self.earliest.get(&kind)?;
        let before = known.partition_point(|one| one.0 <= limit);
        known[..before].last().map(|one| one.1)
    }

    /// Forgets these instants after GPUs came free unexpectedly.
    pub(super) fn forget_earliest(&mut self) {
        self.earliest.clear();
    }

    /// Returns the number of bookings.
    pub(super) fn bookings(&self) -> usize {
        self.bookings.len()
    }

    /// Notes the GPUs that are free now; the draft is that of the present.
    pub(super) fn note_free(&mut self, free: &FreeIndex) {
        self.open.resize(free.types(), Vec::new());
        self.open.iter_mut().for_each(Vec::clear);
        for server in (0..self.shut.len()).map(ServerId::new) {
            let mask = free.free_mask(server);
            if mask != 0 {
                let of_type = &mut self.open[free.type_of(server).index()];
                of_type.push((server, mask.count_ones()));
            }
        }
    }

    /// Those GPUs by the first bookings of their servers.
    pub(super) fn open_gpus(&self) -> OpenGpus {
        let first = |&(server, free): &(ServerId, u32)| (self.first_booked[server.index()], free);
        let by_type = self.open.iter().map(|servers| {
            let mut servers: Vec<_> = servers.iter().map(first).collect();
            servers.sort_unstable_by_key(|&(first, _)| Reverse(first));
            servers
        });
        OpenGpus {
            by_type: by_type.collect(),
        }
    }

    /// Returns whether a server is booked during a part of the interval under examination.
    pub(super) fn is_shut(&self, server: ServerId) -> bool {
        self.shut[server.index()].bookings > 0
    }

    /// Returns the first end of a running job or a booking after the instant under examination.
    pub(super) fn next_start(&self) -> SimTime {
        let gone = self.ends.get(self.next_gone).map(|end| end.0);
        let booked = self
            .by_end
            .get(self.next_end)
            .map(|&at| self.bookings[at].end);
        gone.unwrap_or(SimTime::NEVER)
            .min(booked.unwrap_or(SimTime::NEVER))
    }

    /// Returns the first end after an instant.
    pub(super) fn first_end_after(&self, at: SimTime) -> SimTime {
        let gone = self.ends.iter().map(|end| end.0);
        let all = gone.chain(self.bookings.iter().map(|booking| booking.end));
        all.filter(|&end| end > at).min().unwrap_or(SimTime::NEVER)
    }

    /// Begins a search at an instant.
    pub(super) fn begin_search<'g>(
        &mut self,
        free: &mut FreeIndex,
        begin: SimTime,
        gpus_of: impl Fn(JobId) -> &'g GpuSet,
    ) {
        let gone = self.ends.partition_point(|end| end.0 <= begin);
        self.rewind(free, gone);
        for at in self.given.len()..gone {
            self.given.push(free.mark());
            self.give(free, gpus_of(self.ends[at].1));
        }
        self.begun = Some(free.mark());
        (self.next_begin, self.next_end, self.next_gone) = (0, 0, gone);
    }

    /// Takes back from the draft what ends after the first so many ends.
    pub(super) fn rewind(&mut self, free: &mut FreeIndex, gone: usize) {
        if let Some(&before) = self.given.get(gone) {
            free.rollback(before);
            self.given.truncate(gone);
        }
    }

    /// Looks at the time from an instant, not before the last one that was looked at, to the end of a job that starts there.
    pub(super) fn look_at<'g>(
        &mut self,
        free: &mut FreeIndex,
        (begin, end): (SimTime, SimTime),
        gpus_of: impl Fn(JobId) -> &'g GpuSet,
    ) {
        while let Some(&(gone, job)) = self.ends.get(self.next_gone)
            && gone <= begin
        {
            self.next_gone += 1;
            self.give(free, gpus_of(job));
        }
        while let Some(&at) = self.by_begin.get(self.next_begin)
            && self.bookings[at].begin < end
        {
            self.next_begin += 1;
            if self.bookings[at].end > begin {
                self.bookings[at].is_shut = true;
                for &server in &self.bookings[at].servers {
                    let shut = &mut self.shut[server.index()];
                    shut.bookings += 1;
                    if shut.bookings == 1 {
                        shut.mask = free.free_mask(server);
                        free.set_free_mask(server, 0);
                    }
                }
            }
        }
        while let Some(&at) = self.by_end.get(self.next_end)
            && self.bookings[at].end <= begin
        {
            self.next_end += 1;
            if std::mem::take(&mut self.bookings[at].is_shut) {
                for &server in &self.bookings[at].servers {
                    let shut = &mut self.shut[server.index()];
                    shut.bookings -= 1;
                    if shut.bookings == 0 {
                        free.set_free_mask(server, shut.mask);
                    }
                }
            }
        }
    }

    fn give(&mut self, free: &mut FreeIndex, gpus: &GpuSet) {
        for one in gpus.by_server() {
            let shut = &mut self.shut[one.server.index()];
            if shut.bookings > 0 {
                shut.mask |= one.mask;
            } else {
                free.set_free_mask(one.server, free.free_mask(one.server) | one.mask);
            }
        }
    }

    /// Ends the search.
    pub(super) fn end_search(&mut self, free: &mut FreeIndex) {
        let begun = self.begun.take();
        free.rollback(begun.expect("a search is under way"));
        for &at in &self.by_begin[..self.next_begin] {
            let booking = &mut self.bookings[at];
            if std::mem::take(&mut booking.is_shut) {
                for server in &booking.servers {
                    self.shut[server.index()].bookings = 0;
                }
            }
        }
    }
}
