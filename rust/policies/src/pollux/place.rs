//! Places jobs once their numbers of GPUs are fixed: each job on one server if possible, otherwise on whole idle
//! servers plus one more server. If a job's GPUs cannot be placed, its number of GPUs is corrected afterwards. The cost
//! is O(servers) per job.

use super::racer::Objective;
use super::racer::Racer;
use super::search::Bidder;
use gangline_engine::ClusterView;
use gangline_model::{GpuSet, GpuTypeId, ServerId, mask_of_lowest};
use std::cmp::Reverse;

/// Minimum increase of the objective that counts as a gain.
const GAIN_MIN: f64 = 1e-9;

/// A trade on one server: the giver moves to a lower rung, so that a job that lacks room can move to a higher one.
#[derive(Clone, Copy)]
struct Room {
    gain: f64,
    giver: usize,
    server: usize,
    down: u32,
    up: u32,
}

/// Returns free GPUs of the given servers, which are used in the given order, starting with the lowest GPUs of each.
fn first_of(servers: &[usize], free: impl Fn(usize) -> u64, gpus: u32) -> GpuSet {
    let mut rest = gpus;
    let part = |&server: &usize| {
        let mask = mask_of_lowest(free(server), rest);
        rest -= mask.count_ones();
        (mask != 0).then(|| (ServerId::new(server), mask))
    };
    servers.iter().map_while(part).collect()
}

/// The GPUs that each job gets in this decision; the layout is filled job by job.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    view: ClusterView<'a>,
    racers: &'a [Racer<'a>],
    objective: Objective,
    avoids: bool,
    free: Vec<u64>,
    full: Vec<u64>,
    /// For each server, the number of jobs on it that use several servers.
    spanning: Vec<u32>,
    /// GPUs of each job, in the order of the racers.
    held: Vec<Option<GpuSet>>,
}

impl<'a> Layout<'a> {
    /// Creates a layout in which all GPUs are free.
    pub(super) fn new(
        view: ClusterView<'a>,
        racers: &'a [Racer<'a>],
        objective: Objective,
        avoids: bool,
    ) -> Self {
        let servers = view.cluster().servers();
        let size = |(at, one): (usize, &gangline_model::Server)| {
            let gpus = if view.is_up(ServerId::new(at)) {
                one.gpus
            } else {
                0
            };
            mask_of_lowest(u64::MAX, gpus)
        };
        let full: Vec<u64> = servers.iter().enumerate().map(size).collect();
        Self {
            view,
            racers,
            objective,
            avoids,
            free: full.clone(),
            spanning: vec![0; full.len()],
            full,
            held: vec![None; racers.len()],
        }
    }

    /// Finds GPUs for all jobs. Changes the bidders' counts to the numbers of GPUs that could be placed.
    pub(super) fn put(mut self, bidders: &mut [Bidder]) -> Vec<Option<GpuSet>> {
        let stays = |one: &Bidder| one.now > 0 && one.count == one.now;
        for (at, bidder) in bidders.iter().enumerate() {
            if let Some(run) = self.view.run(self.racers[at].job).filter(|_| stays(bidder)) {
                self.give(at, run.gpus().clone());
            }
        }
        let is_open = |at: &usize| bidders[*at].count > 0 && !stays(&bidders[*at]);
        let mut open: Vec<usize> = (0..bidders.len()).filter(is_open).collect();
        open.sort_by_key(|&at| (Reverse(bidders[at].count), self.racers[at].job));
        let mut short = Vec::new();
        for at in open {
            let wanted = bidders[at].count;
            self.put_one(at, &mut bidders[at]);
            if bidders[at].count < wanted {
                short.push((at, wanted));
            }
        }
        for (at, wanted) in short {
            self.improve(at, wanted, bidders);
        }
        while let Some((at, up)) = self.best_growth(bidders) {
            self.grow(at, up);
            bidders[at].count = up;
        }
        self.held
    }

    fn count_spanning(&mut self, gpus: &GpuSet, by: i32) {
        if gpus.by_server().len() > 1 {
            for one in gpus.by_server() {
                let count = &mut self.spanning[one.server.index()];
                *count = count.saturating_add_signed(by);
            }
        }
    }

    fn give(&mut self, at: usize, gpus: GpuSet) {
        self.count_spanning(&gpus, 1);
        for one in gpus.by_server() {
            self.free[one.server.index()] &= !one.mask;
        }
        self.held[at] = Some(gpus);
    }

    fn take(&mut self, at: usize) -> Option<GpuSet> {
        let gpus = self.held[at].take()?;
        self.count_spanning(&gpus, -1);
        for one in gpus.by_server() {
            self.free[one.server.index()] |= one.mask;
        }
        Some(gpus)
    }

    fn is_free(&self, gpus: &GpuSet) -> bool {
        let mut all = gpus.by_server().iter();
        all.all(|one| self.free[one.server.index()] & one.mask == one.mask)
    }

    /// Returns the number of free GPUs of a server.
    fn room(&self, server: usize) -> u32 {
        self.free[server].count_ones()
    }

    /// Returns the server of a job if the job uses exactly one.
    fn server_of(&self, at: usize) -> Option<usize> {
        match self.held[at].as_ref()?.by_server() {
            [one] => Some(one.server.index()),
            _ => None,
        }
    }

    fn lowest(&self, server: usize, gpus: u32) -> (ServerId, u64) {
        (
            ServerId::new(server),
            mask_of_lowest(self.free[server], gpus),
        )
    }

    fn gpu_type(&self, server: usize) -> GpuTypeId {
        self.view.cluster().servers()[server].gpu_type
    }

    fn of_type(&self, id: GpuTypeId) -> impl Iterator<Item = usize> + Clone {
        let is_right = move |at: &usize| self.gpu_type(*at) == id;
        (0..self.free.len()).filter(is_right)
    }

    /// Returns whether a job that spans several servers may use this server. If interference is avoided, only one such
    /// job may use it.
    fn admits(&self, server: usize) -> bool {
        !self.avoids || self.spanning[server] == 0
    }

    /// Places a job with its assigned number of GPUs. If there is no place, the highest lower rung that has a place is
    /// used.
    fn put_one(&mut self, at: usize, bidder: &mut Bidder) {
        let lower = bidder.ladder.iter().rev().map(|rung| rung.0);
        let lower = lower.filter(|&rung| rung < bidder.count);
        let counts: Vec<u32> = std::iter::once(bidder.count).chain(lower).collect();
        let own = self
            .view
            .run(self.racers[at].job)
            .map(gangline_engine::Run::gpus);
        for count in counts {
            let stays = own
                .filter(|own| count == bidder.now && self.is_free(own))
                .cloned();
            if let Some(gpus) = stays.or_else(|| self.find(at, count)) {
                self.give(at, gpus);
                bidder.count = count;
                return;
            }
        }
        bidder.count = 0;
    }

    /// Returns GPUs for a job, trying one type after another: on one server, otherwise on whole idle servers plus one
    /// more server.
    fn find(&self, at: usize, gpus: u32) -> Option<GpuSet> {
        let mut types = self.view.types_of(self.racers[at].job);
        types.find_map(|id| {
            let fitting = self.best_fit(id, gpus, |_| true);
            let single = fitting.map(|server| self.lowest(server, gpus));
            single.map_or_else(
                || self.span(id, gpus),
                |one| Some(std::iter::once(one).collect()),
            )
        })
    }

    /// Returns the server with the fewest free GPUs among the servers with enough; ties go to the first.
    fn best_fit(&self, id: GpuTypeId, gpus: u32, is_open: impl Fn(usize) -> bool) -> Option<usize> {
        let fitting = self
            .of_type(id)
            .filter(|&at| self.room(at) >= gpus && is_open(at));
        fitting.min_by_key(|&at| self.room(at))
    }

    fn span(&self, id: GpuTypeId, gpus: u32) -> Option<GpuSet> {
        let size = |at: usize| self.full[at].count_ones();
        let is_idle = |at: &usize| self.free[*at] == self.full[*at] && self.full[*at] != 0;
        let mut idle: Vec<usize> = self.of_type(id).filter(is_idle).collect();
        idle.sort_by_key(|&at| (Reverse(size(at)), at));
        let (mut rest, mut taken) = (gpus, Vec::new());
        for at in idle {
            if size(at) <= rest {
                rest -= size(at);
                taken.push(at);
            }
        }
        let mut places: Vec<_> = taken.iter().map(|&at| self.lowest(at, size(at))).collect();
        if rest > 0 {
            let is_open = |at| !taken.contains(&at) && self.admits(at);
            places.push(self.lowest(self.best_fit(id, rest, is_open)?, rest));
        }
        Some(places.into_iter().collect())
    }

    fn worth(&self, bidder: &Bidder, count: u32) -> f64 {
        self.objective.worth(bidder.felt(count))
    }

    /// Finds more GPUs for a job that did not have enough room, if this increases the objective. Another job may give
    /// up a rung, or the job may use GPUs on several servers.
    fn improve(&mut self, at: usize, wanted: u32, bidders: &mut [Bidder]) {
        let room = self.find_room(at, wanted, bidders);
        let apart = self.find_apart(at, wanted, &bidders[at]);
        let gain = room.map_or(GAIN_MIN, |room| room.gain);
        if let Some((_, gpus)) = apart.filter(|apart| apart.0 > gain) {
            self.take(at);
            bidders[at].count = gpus.gpus();
            self.give(at, gpus);
        } else if let Some(room) = room {
            let server = ServerId::new(room.server);
            if let Some(gpus) = self.take(room.giver) {
                let mask = mask_of_lowest(gpus.mask_on(server), room.down);
                self.give(room.giver, GpuSet::single(server, mask));
            }
            self.take(at);
            let gpus = std::iter::once(self.lowest(room.server, room.up)).collect();
            self.give(at, gpus);
            (bidders[room.giver].count, bidders[at].count) = (room.down, room.up);
        }
    }

    /// Returns the best trade in which a different job gives up a rung on its server, if any trade brings a gain.
    fn find_room(&self, at: usize, wanted: u32, bidders: &[Bidder]) -> Option<Room> {
        let usable = self.view.usable_types(self.racers[at].job);
        let own = &bidders[at];
        let before = self.worth(own, own.count);
        let mut found: Option<Room> = None;
        for (giver, other) in bidders.iter().enumerate().filter(|one| one.0 != at) {
            let (Some(server), Some(down)) = (self.server_of(giver), other.down(1)) else {
                continue;
            };
            if usable >> self.gpu_type(server).index() & 1 == 0 {
                continue;
            }
            let mut room = self.room(server) + other.count - down;
            if self.server_of(at) == Some(server) {
                room += own.count;
            }
            let rungs = own.ladder.iter().rev().map(|rung| rung.0);
            let mut better = rungs.filter(|&rung| rung > own.count && rung <= room.min(wanted));
            let Some(up) = better.next() else { continue };
            let lost = self.worth(other, other.count) - self.worth(other, down);
            let gain = (self.worth(own, up) - before) - lost;
            if gain > GAIN_MIN && found.is_none_or(|best| gain > best.gain) {
                found = Some(Room {
                    gain,
                    giver,
                    server,
                    down,
                    up,
                });
            }
        }
        found
    }

    /// Returns free GPUs on several servers, and the gain that the job has with them.
    fn find_apart(&self, at: usize, wanted: u32, bidder: &Bidder) -> Option<(f64, GpuSet)> {
        let racer = &self.racers[at];
        let own = match (&self.held[at], self.server_of(at)) {
            (Some(_), None) => return None,
            (held, _) => held.as_ref(),
        };
        if !racer.is_elastic() {
            return None;
        }
        let free = |server: usize| {
            let own = own.map_or(0, |own| own.mask_on(ServerId::new(server)));
            self.free[server] | own
        };
        let before = self.worth(bidder, bidder.count);
        let mut best: Option<(f64, GpuSet)> = None;
        for id in self.view.types_of(racer.job) {
            let open = self.of_type(id).filter(|&server| self.admits(server));
            let mut servers: Vec<usize> = open.filter(|&server| free(server) != 0).collect();
            servers.sort_by_key(|&server| (Reverse(free(server).count_ones()), server));
            let room: u32 = servers
                .iter()
                .map(|&server| free(server).count_ones())
                .sum();
            let rungs = bidder.ladder.iter().map(|rung| rung.0);
            for count in rungs.filter(|&rung| rung > bidder.count && rung <= wanted.min(room)) {
                let worth = self
                    .objective
                    .worth(racer.speedup(count, true) * bidder.phi);
                let gain = worth - before;
                if gain > GAIN_MIN && best.as_ref().is_none_or(|best| gain > best.0) {
                    best = Some((gain, first_of(&servers, free, count)));
                }
            }
        }
        best
    }

    /// Among the jobs whose numbers of GPUs have changed, returns the job that would gain most per GPU from the next
    /// rung on its server.
    fn best_growth(&self, bidders: &[Bidder]) -> Option<(usize, u32)> {
        let mut best: Option<(f64, usize, u32)> = None;
        for (at, bidder) in bidders.iter().enumerate() {
            let (Some(server), Some(up)) = (self.server_of(at), bidder.up()) else {
                continue;
            };
            let extra = up - bidder.count;
            if bidder.count == bidder.now || extra > self.room(server) {
                continue;
            }
            let gain = self.worth(bidder, up) - self.worth(bidder, bidder.count);
            let gain = gain / f64::from(extra);
            if gain > 0.0 && best.is_none_or(|found| gain > found.0) {
                best = Some((gain, at, up));
            }
        }
        best.map(|(_, at, up)| (at, up))
    }

    /// Extends a job that runs on one server to `up` GPUs, using the lowest free GPUs of this server.
    fn grow(&mut self, at: usize, up: u32) {
        let Some(server) = self.server_of(at) else {
            return;
        };
        let Some(own) = self.held[at]
            .as_ref()
            .map(|own| own.mask_on(ServerId::new(server)))
        else {
            return;
        };
        let more = mask_of_lowest(self.free[server], up - own.count_ones());
        self.take(at);
        self.give(at, GpuSet::single(ServerId::new(server), own | more));
    }
}
