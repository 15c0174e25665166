//! One decision: finds the jobs that take part and makes an offer to each of them in order of priority.

use super::params::{DallyParams, Renewal};
use super::queue::{Rank, Waiting};
use super::rooms::{self, Seeker};
use super::rooms::{Claim, Claims, Masks};
use super::tuner::{Delays, Tuner};
use crate::kit::TypeList;
use crate::place::{Level, PlacementParams};
use gangline_engine::FreeIndex;
use gangline_model::{GpuSet, JobId, SimTime, Tier};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The numbers of GPUs in the largest server and in the largest rack that a class can use. Only servers that are up
/// count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) server: u32,
    pub(super) rack: u32,
}

impl Extent {
    pub(super) fn of(free: &FreeIndex, types: &TypeList) -> Self {
        let mut extent = Self::default();
        for &gpu_type in types {
            let pool = free.pool(gpu_type);
            extent.server = extent.server.max(pool.server_gpus_max());
            extent.rack = extent.rack.max(pool.rack_up_max());
        }
        extent
    }

    /// Returns the narrowest tier at which a gang of this size would fit if all GPUs were free.
    pub(super) fn narrowest(self, gpus: u32) -> Tier {
        if gpus <= self.server {
            Tier::Server
        } else if gpus <= self.rack {
            Tier::Rack
        } else {
            Tier::Network
        }
    }
}

/// Jobs with the same number of GPUs and the same types.
#[derive(Clone, Debug)]
pub(super) struct Class {
    pub(super) gpus: u32,
    pub(super) types: TypeList,
    pub(super) extent: Extent,
    /// Index of the tuner of the class; there is one tuner per gang size.
    pub(super) tuner: usize,
    pub(super) waiting: Waiting,
    /// Whether the last decision left room for a gang of the class in one rack.
    rack_room: bool,
}

impl Class {
    pub(super) fn new(gpus: u32, types: TypeList, extent: Extent, tuner: usize) -> Self {
        Self {
            gpus,
            types,
            extent,
            tuner,
            waiting: Waiting::default(),
            rack_room: false,
        }
    }
}

/// The outcome for a job whose lease has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Kept,
    Moved(GpuSet),
    Nothing,
}

/// A waiting job that accepted an offered place.
#[derive(Clone, Debug)]
pub(super) struct Start {
    pub(super) rank: Rank,
    pub(super) class: usize,
    pub(super) level: Level,
    pub(super) gpus: GpuSet,
}

/// A job whose lease ends now.
#[derive(Clone, Debug)]
pub(super) struct Up {
    pub(super) job: JobId,
    pub(super) class: usize,
    pub(super) tier: Tier,
    /// The GPUs that the job held.
    pub(super) gpus: GpuSet,
    pub(super) verdict: Verdict,
}

/// The classes and their tuners, and buffers that all decisions reuse.
#[derive(Debug, Default)]
pub(super) struct Decision {
    pub(super) classes: Vec<Class>,
    pub(super) tuners: Vec<Tuner>,
    /// The classes that have waiting jobs.
    pub(super) busy: gangline_engine::BitSet,
    pub(super) placement: PlacementParams,
    /// The jobs whose lease ends at this decision, in order of rank.
    pub(super) ups: Vec<Up>,
    pub(super) starts: Vec<Start>,
    claims: Claims,
    heap: BinaryHeap<Reverse<(Rank, Candidate)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Candidate {
    /// The highest-ranked waiting job of this class that could be placed when the candidate was added.
    Class(usize),
    Up,
}

impl Decision {
    pub(super) fn new(placement: PlacementParams) -> Self {
        Self {
            placement,
            ..Self::default()
        }
    }

    /// Records the jobs whose lease ends; they may be given in any order. Their GPUs become claims.
    pub(super) fn raise(&mut self, mut ups: Vec<(Rank, Up)>) {
        ups.sort_by_key(|up| up.0);
        let claim = |(rank, up): &(Rank, Up)| Claim {
            rank: *rank,
            gpus: up.gpus.clone(),
        };
        self.claims.set(ups.iter().map(claim).collect());
        self.ups = ups.into_iter().map(|(_, up)| up).collect();
        self.starts.clear();
    }

    pub(super) fn delays(&mut self, class: usize, params: &DallyParams, now: SimTime) -> Delays {
        self.tuners[self.classes[class].tuner].delays(params, now)
    }

    /// Returns the widest level that a job accepts for now, and the waiting time in ns after which it accepts a wider
    /// one. Both depend on the timers and on the room that the last decision left. The result is `None` if the job
    /// already accepts any place.
    pub(super) fn limit(&self, class: &Class, waited: i64) -> Option<(Tier, i64)> {
        let delays = self.tuners[class.tuner].known();
        if may_use(class, Level::Network, waited, delays) {
            return None;
        }
        let for_rack = class.rack_room && !may_use(class, Level::Rack, waited, delays);
        Some(if for_rack {
            (Tier::Server, delays.least())
        } else {
            (Tier::Rack, delays.network)
        })
    }

    fn can(&mut self, free: &mut FreeIndex, class: usize, level: Level) -> bool {
        let class = &self.classes[class];
        rooms::can(free, &mut self.claims, (class.gpus, &class.types), level)
    }

    /// Returns the highest-ranked waiting job of a class that may be placed at some level that has room.
    fn best(
        &mut self,
        free: &mut FreeIndex,
        class: usize,
        params: &DallyParams,
        now: SimTime,
    ) -> Option<Rank> {
        let delays = self.delays(class, params, now);
        let (gpus, extent) = (self.classes[class].gpus, self.classes[class].extent);
        let waited = |delay: i64| now.0.saturating_sub(delay);
        let bound = if self.can(free, class, Level::Server) {
            i64::MAX
        } else if self.can(free, class, Level::Rack) {
            match extent.narrowest(gpus) {
                Tier::Server => waited(delays.least()),
                Tier::Rack | Tier::Network => i64::MAX,
            }
        } else if self.can(free, class, Level::Network) {
            match extent.narrowest(gpus) {
                Tier::Server | Tier::Rack => waited(delays.network),
                Tier::Network => i64::MAX,
            }
        } else {
            return None;
        };
        self.classes[class].waiting.first_since(bound)
    }

    /// Makes offers, in order of rank, to the waiting jobs that may be placed and to the jobs whose lease ends.
    pub(super) fn walk(&mut self, free: &mut FreeIndex, params: &DallyParams, now: SimTime) {
        self.heap.clear();
        let mut next = self.busy.next_from(0);
        while let Some(class) = next {
            next = self.busy.next_from(class + 1);
            if let Some(rank) = self.best(free, class, params, now) {
                self.heap.push(Reverse((rank, Candidate::Class(class))));
            }
        }
        for claim in &self.claims.list {
            self.heap.push(Reverse((claim.rank, Candidate::Up)));
        }
        while let Some(Reverse((rank, candidate))) = self.heap.pop() {
            match candidate {
                Candidate::Up => self.ask_up(free, params, now),
                Candidate::Class(class) => {
                    // The levels that have room might have changed since the job was added to the heap.
                    let best = self.best(free, class, params, now);
                    if best == Some(rank) {
                        self.ask_waiting(free, class, rank, params, now);
                    }
                    let following = if best == Some(rank) {
                        self.best(free, class, params, now)
                    } else {
                        best
                    };
                    if let Some(rank) = following {
                        self.heap.push(Reverse((rank, Candidate::Class(class))));
                    }
                }
            }
        }
        self.second_look(free, params, now);
    }

    /// Places a waiting job at the narrowest level that it may use and that has room. If there is no such level, the
    /// job keeps waiting.
    fn ask_waiting(
        &mut self,
        free: &mut FreeIndex,
        class: usize,
        rank: Rank,
        params: &DallyParams,
        now: SimTime,
    ) {
        let delays = self.delays(class, params, now);
        let waited = now.0 - rank.since;
        for level in [Level::Server, Level::Rack, Level::Network] {
            let may = may_use(&self.classes[class], level, waited, delays);
            if !may || !self.can(free, class, level) {
                continue;
            }
            let seeker = Seeker {
                gpus: self.classes[class].gpus,
                types: &self.classes[class].types,
                own: None,
                over: self.claims.open(),
            };
            let found = rooms::find(&self.placement, free, &self.claims, &seeker, level);
            if let Some(gpus) = found {
                self.take(free, &gpus);
                self.classes[class].waiting.remove(rank);
                if self.classes[class].waiting.is_empty() {
                    self.busy.remove(class);
                }
                self.starts.push(Start {
                    rank,
                    class,
                    level,
                    gpus,
                });
                return;
            }
        }
    }

    /// Handles the next job whose lease ends. The job keeps its GPUs or moves to a narrower place. If other jobs have
    /// taken some of its GPUs, or under [`Renewal::Redecide`], it gets an offer like a new job.
    fn ask_up(&mut self, free: &mut FreeIndex, params: &DallyParams, now: SimTime) {
        let at = self.claims.ask();
        let claim = self.claims.list[at].clone();
        let tier = self.ups[at].tier;
        let is_whole = claim.gpus == self.ups[at].gpus;
        let keeps = is_whole && params.renewal == Renewal::Keep;
        let over = self.claims.above(claim.rank.score);
        let levels: &[Level] = match (keeps, tier) {
            (true, _) if !params.upgrades => &[],
            (true, Tier::Server) => &[],
            (true, Tier::Rack) => &[Level::Server],
            (true, Tier::Network) => &[Level::Server, Level::Rack],
            (false, _) => &[Level::Server, Level::Rack, Level::Network],
        };
        let found = self.look(free, at, &claim.gpus, &over, (levels, keeps), params, now);
        let own = &claim.gpus;
        match found {
            None if keeps => self.ups[at].verdict = Verdict::Kept,
            None => give_back(free, own),
            Some(gpus) => {
                give_back(free, own);
                self.settle_up(free, at, gpus);
            }
        }
    }

    /// Returns GPUs for a job whose lease ends, at the first of the given levels that has room. Unless the job only
    /// moves to a narrower place (`is_upgrade`), a level is tried only if a job that has not waited may use it.
    #[expect(clippy::too_many_arguments)] // Together, the arguments are the state of one search.
    fn look(
        &mut self,
        free: &mut FreeIndex,
        at: usize,
        own: &GpuSet,
        over: &Masks,
        (levels, is_upgrade): (&[Level], bool),
        params: &DallyParams,
        now: SimTime,
    ) -> Option<GpuSet> {
        let class = self.ups[at].class;
        let delays = self.delays(class, params, now);
        let class = &self.classes[class];
        let seeker = Seeker {
            gpus: class.gpus,
            types: &class.types,
            own: Some(own),
            over,
        };
        let may = |level: &&Level| is_upgrade || may_use(class, **level, 0, delays);
        levels
            .iter()
            .filter(may)
            .find_map(|&level| rooms::find(&self.placement, free, &self.claims, &seeker, level))
    }

    fn settle_up(&mut self, free: &mut FreeIndex, at: usize, gpus: GpuSet) {
        self.take(free, &gpus);
        self.ups[at].verdict = if gpus == self.ups[at].gpus {
            Verdict::Kept
        } else {
            Verdict::Moved(gpus)
        };
    }

    /// Makes a second offer to each job that got no GPUs when its lease ended. Jobs that were handled after it may have
    /// left room.
    fn second_look(&mut self, free: &mut FreeIndex, params: &DallyParams, now: SimTime) {
        for at in 0..self.ups.len() {
            if self.ups[at].verdict != Verdict::Nothing {
                continue;
            }
            let own: GpuSet = self.ups[at]
                .gpus
                .by_server()
                .iter()
                .map(|part| (part.server, part.mask & free.free_mask(part.server)))
                .collect();
            let every = &[Level::Server, Level::Rack, Level::Network];
            let over = Masks::new();
            if let Some(gpus) = self.look(free, at, &own, &over, (every, false), params, now) {
                self.settle_up(free, at, gpus);
            }
        }
    }

    fn take(&mut self, free: &mut FreeIndex, gpus: &GpuSet) {
        self.claims.displace(gpus);
        for part in gpus.by_server() {
            let mask = free.free_mask(part.server) & !part.mask;
            free.set_free_mask(part.server, mask);
        }
    }

    /// Returns the earliest instant at which the end of a delay lets a waiting job of a class use room that is
    /// available now.
    pub(super) fn next_delay(
        &mut self,
        free: &mut FreeIndex,
        at: usize,
        params: &DallyParams,
        now: SimTime,
    ) -> Option<SimTime> {
        let delays = self.delays(at, params, now);
        let class = &self.classes[at];
        let asked = (class.gpus, &class.types);
        let end = |delay: i64| {
            if delay == Delays::NEVER {
                return None;
            }
            let since = class.waiting.next_since(now.0.saturating_sub(delay))?;
            Some(SimTime(since.saturating_add(delay)))
        };
        let rack_room = rooms::can_unclaimed(free, asked, Level::Rack);
        let rack = rack_room.then(|| end(delays.least())).flatten();
        let network_room = rack_room || rooms::can_unclaimed(free, asked, Level::Network);
        let network = network_room.then(|| end(delays.network)).flatten();
        self.classes[at].rack_room = rack_room;
        rack.into_iter().chain(network).min()
    }
}

/// Returns whether a job that has waited for this long may use a level.
fn may_use(class: &Class, level: Level, waited: i64, delays: Delays) -> bool {
    let narrowest = class.extent.narrowest(class.gpus);
    let network = waited >= delays.network || narrowest == Tier::Network;
    match level {
        Level::Server => true,
        Level::Rack => waited >= delays.rack || narrowest >= Tier::Rack || network,
        Level::Network => network,
    }
}

fn give_back(free: &mut FreeIndex, gpus: &GpuSet) {
    for part in gpus.by_server() {
        let mask = free.free_mask(part.server) | part.mask;
        free.set_free_mask(part.server, mask);
    }
}
