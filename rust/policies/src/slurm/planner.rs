//! The state of a backfill pass: the expected ends of running jobs, the booked servers, and the free GPUs at an
//! instant.
//!
//! To find the start of a job, a search sweeps over the ends of running jobs and of bookings. During the sweep, the
//! draft contains the GPUs that would be free at the instant under examination. The GPUs of jobs that have ended by
//! this instant are given back, and booked servers have no free GPUs. At the end of a search, the draft is rolled back
//! only to the instant at which the search began, not to the current instant. This saves work, because the next job often
//! cannot start before that instant either. Its search then begins at or near it, and adjusts only the GPUs of jobs that end between the two
//! instants. A search costs O(ends between the two instants + ends that the sweep passes + bookings).

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
    /// Whether the booking closes its servers to the job that is currently being planned.
    is_shut: bool,
}

/// Number of bookings that close a server, and a mask of the GPUs that would be free without them.
#[derive(Clone, Copy, Debug, Default)]
struct Shut {
    bookings: u32,
    mask: u64,
}

/// For each GPU type, the servers with free GPUs: the start of each server's first booking (latest first) and its
/// number of free GPUs.
#[derive(Clone, Debug)]
pub(super) struct OpenGpus {
    by_type: Vec<Vec<(SimTime, u32)>>,
}

impl OpenGpus {
    /// Returns the latest end that a gang may have if it starts now on one of the types. Until this end, servers
    /// without bookings have enough free GPUs.
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

/// Expected ends of running jobs, ascending.
pub(super) type Ends = Vec<(SimTime, JobId)>;

/// Bookings, and the state of the current search.
#[derive(Clone, Debug, Default)]
pub(super) struct Planner {
    resolution: i64,
    bookings: Vec<Booking>,
    by_begin: Vec<usize>,
    by_end: Vec<usize>,
    pub(super) ends: Ends,
    /// For each kind, the time limits of jobs that were planned, in ascending order. Each limit comes with an instant
    /// before which no job with this limit or a longer one can start. The instants are in ascending order as well.
    earliest: FxHashMap<usize, Vec<(SimSpan, SimTime)>>,
    /// For each server, the earliest start of a booking.
    first_booked: Vec<SimTime>,
    shut: Vec<Shut>,
    /// For each GPU type, the servers with GPUs that are free now, each with its number of free GPUs.
    open: Vec<Vec<(ServerId, u32)>>,
    /// One mark in the draft for each end whose GPUs have been given back, in order. Each mark records the state just
    /// before its end.
    given: Vec<Mark>,
    // The following fields are the state of the current search.
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

    /// Rounds an instant up to the time grid.
    pub(super) fn up(&self, at: SimTime) -> SimTime {
        match at.0 % self.resolution {
            0 => at,
            over => at + SimSpan(self.resolution - over),
        }
    }

    /// Begins a pass; `ends` contains the ends of all running jobs with a time limit.
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

    /// Removes the end of a job that is preempted in this pass.
    pub(super) fn remove_end(&mut self, job: JobId) {
        self.ends.retain(|&(_, other)| other != job);
    }

    /// Books servers from `begin` to `end`.
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

    /// Records that, in this pass, no job of this kind with this time limit or a longer one can start before an
    /// instant.
    pub(super) fn note_earliest(&mut self, kind: usize, limit: SimSpan, begin: SimTime) {
        let known = self.earliest.entry(kind).or_default();
        let from = known.partition_point(|one| one.0 < limit);
        let later = known[from..]
            .iter()
            .take_while(|one| one.1 <= begin)
            .count();
        known.splice(from..from + later, [(limit, begin)]);
    }

    /// Returns an instant before which no job of this kind and with this time limit can start.
    pub(super) fn earliest(&self, kind: usize, limit: SimSpan) -> Option<SimTime> {
        let known = self.earliest.get(&kind)?;
        let before = known.partition_point(|one| one.0 <= limit);
        known[..before].last().map(|one| one.1)
    }

    /// Discards the instants recorded by [`Self::note_earliest`], because a preemption has freed GPUs.
    pub(super) fn forget_earliest(&mut self) {
        self.earliest.clear();
    }

    pub(super) fn bookings(&self) -> usize {
        self.bookings.len()
    }

    /// Records which GPUs are free now; the draft must be in the current state.
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

    /// Returns the GPUs that are free now, sorted by the first bookings of their servers.
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

    /// Returns the first end of a job or a booking after an instant.
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

    /// Rolls the draft back to the state in which only the GPUs of the first `gone` ends are given back.
    pub(super) fn rewind(&mut self, free: &mut FreeIndex, gone: usize) {
        if let Some(&before) = self.given.get(gone) {
            free.rollback(before);
            self.given.truncate(gone);
        }
    }

    /// Advances the draft to the interval in which a job would run if it started at `begin`. The instant must not be
    /// earlier than in the last call.
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

    /// Ends the search, and rolls the draft back to the instant at which the search began.
    pub(super) fn end_search(&mut self, free: &mut FreeIndex) {
        let begun = self.begun.take();
        free.rollback(begun.expect("a search has begun"));
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
