//! The plan of a backfill pass: when running jobs end, which servers are booked when, and what is free at an instant.
//!
//! A search for the start of a job sweeps over the ends of running jobs and of bookings, and keeps on the draft what
//! would be free: GPUs of jobs that have ended are given back, booked servers have none. At its end the draft is rolled
//! back. O(ends + bookings) for a job.

use gangline_engine::{FreeIndex, Mark};
use gangline_model::{GpuSet, JobId, ServerId, SimSpan, SimTime};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Servers that nobody else may use from `begin` to `end`.
#[derive(Clone, Debug)]
struct Booking {
    servers: SmallVec<[ServerId; 4]>,
    begin: SimTime,
    end: SimTime,
    /// Whether it shuts its servers for the job that is being planned.
    is_shut: bool,
}

/// What shuts a server, and what would be free if nothing did.
#[derive(Clone, Copy, Debug, Default)]
struct Shut {
    bookings: u32,
    mask: u64,
}

/// When running jobs are expected to end, ascending.
pub(super) type Ends = Vec<(SimTime, JobId)>;

/// Bookings, and a search under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Planner {
    resolution: i64,
    bookings: Vec<Booking>,
    by_begin: Vec<usize>,
    by_end: Vec<usize>,
    pub(super) ends: Ends,
    /// By kind and time limit: no start before this instant, `NEVER` = none at all.
    pub(super) earliest: FxHashMap<(usize, SimSpan), SimTime>,
    shut: Vec<Shut>,
    // the search
    next_begin: usize,
    next_end: usize,
    next_gone: usize,
}

impl Planner {
    pub(super) fn new(servers: usize, resolution: SimSpan) -> Self {
        Self {
            resolution: resolution.0,
            shut: vec![Shut::default(); servers],
            ..Self::default()
        }
    }

    /// The next instant of the grid, the instant itself if it is one.
    pub(super) fn up(&self, at: SimTime) -> SimTime {
        match at.0 % self.resolution {
            0 => at,
            over => at + SimSpan(self.resolution - over),
        }
    }

    /// A pass begins; `ends` are those of all running jobs with a time limit.
    pub(super) fn begin(&mut self, ends: Ends) {
        self.bookings.clear();
        self.by_begin.clear();
        self.by_end.clear();
        self.earliest.clear();
        self.ends = ends;
    }

    /// A job starts in this pass.
    pub(super) fn add_end(&mut self, end: SimTime, job: JobId) {
        if end < SimTime::NEVER {
            let at = self.ends.partition_point(|&other| other < (end, job));
            self.ends.insert(at, (end, job));
        }
    }

    /// A job is preempted in this pass.
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
        bookings.push(Booking {
            servers: servers.into_iter().collect(),
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

    /// Whether a server is booked for a part of the time that is looked at.
    pub(super) fn is_shut(&self, server: ServerId) -> bool {
        self.shut[server.index()].bookings > 0
    }

    /// The first end of a running job or of a booking after the instant that is looked at.
    pub(super) fn next_start(&self) -> SimTime {
        let gone = self.ends.get(self.next_gone).map(|end| end.0);
        let booked = self
            .by_end
            .get(self.next_end)
            .map(|&at| self.bookings[at].end);
        gone.unwrap_or(SimTime::NEVER)
            .min(booked.unwrap_or(SimTime::NEVER))
    }

    /// The first end after an instant.
    pub(super) fn first_end_after(&self, at: SimTime) -> SimTime {
        let gone = self.ends.iter().map(|end| end.0);
        let all = gone.chain(self.bookings.iter().map(|booking| booking.end));
        all.filter(|&end| end > at).min().unwrap_or(SimTime::NEVER)
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

    /// Ends the search that began at a mark.
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
