//! The plan of a backfill pass: expected ends of running jobs, booked servers, and the free GPUs at an instant.
//!
//! A search for the start of a job sweeps over the ends of running jobs and of bookings. It keeps the free GPUs of
//! each instant in the draft: it returns the GPUs of jobs that have ended and removes booked servers. Afterwards the
//! draft is rolled back. O(ends + bookings) for a job.

use gangline_engine::{FreeIndex, Mark};
use gangline_model::{GpuSet, JobId, ServerId, SimSpan, SimTime};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

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
    // state of the search
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

    /// Begins a pass; `ends` are those of all running jobs with a time limit.
    pub(super) fn begin(&mut self, ends: Ends) {
        for booking in self.bookings.drain(..) {
            for server in booking.servers {
                self.first_booked[server.index()] = SimTime::NEVER;
            }
        }
        self.by_begin.clear();
        self.by_end.clear();
        self.earliest.clear();
        self.ends = ends;
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

    /// Returns the instant until which some server with a free GPU is not booked. A job that ends later cannot start
    /// now.
    pub(super) fn open_until(&self, free: &FreeIndex) -> SimTime {
        let servers = self.first_booked.iter().enumerate();
        let open = servers.filter(|&(at, _)| free.free_mask(ServerId::new(at)) != 0);
        open.map(|(_, &first)| first).max().unwrap_or(SimTime::ZERO)
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

    /// Examines the interval of a job that starts at an instant, which is not before the last one examined.
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

    /// Ends the search and rolls the draft back to its mark.
    pub(super) fn end_search(&mut self, free: &mut FreeIndex, mark: Mark) {
        free.rollback(mark);
        for booking in &mut self.bookings {
            if std::mem::take(&mut booking.is_shut) {
                for server in &booking.servers {
                    self.shut[server.index()].bookings = 0;
                }
            }
        }
        (self.next_begin, self.next_end, self.next_gone) = (0, 0, 0);
    }
}
