//! `FIND_ALLOC`: finds the best place for one job among the GPUs that the decision has not yet given out.
//!
//! The cost is O(types x (groups of servers + W)), independent of the number of servers. Only the search for a place
//! inside a single rack visits every rack.

use super::facts::Facts;
use super::params::{CostHorizon, HadarParams, Objective, Pick};
use super::price::Prices;
use super::queue::Rank;
use crate::kit::{Counts, Seen, Servers};
use gangline_engine::{ClusterView, Plan, PolicyError};
use gangline_model::{GpuSet, GpuTypeId, JobId, ServerId, gpus_in, mask_of_lowest};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Two values count as equal if their relative difference is at most this, which allows for rounding errors. The value
/// is our own choice.
const TOLERANCE: f64 = 1e-12;

#[inline]
pub(crate) fn equal(x: f64, y: f64) -> bool {
    (x - y).abs() <= TOLERANCE * x.abs().max(y.abs())
}

#[inline]
pub(crate) fn above(x: f64, y: f64) -> bool {
    x > y && !equal(x, y)
}

/// The properties of an active job that change between decisions.
#[derive(Clone, Debug)]
pub(super) struct Live {
    pub(super) remaining: f64,
    waited_s: f64,
    /// GPUs that the job holds.
    pub(super) held: Option<Counts>,
    /// Remaining time of the job's current overhead.
    left_s: f64,
    /// Overhead if the job starts or moves.
    start_s: f64,
}

impl Live {
    pub(super) fn new(view: &ClusterView<'_>, job: JobId) -> Result<Self, PolicyError> {
        let run = view.run(job);
        let left = run.map_or(0, |run| (run.only().progress_start - view.now()).0.max(0));
        let held = run.map(|run| {
            let parts = run.gpus().by_server().iter();
            parts.map(|one| (one.server.0, gpus_in(one.mask))).collect()
        });
        Ok(Self {
            remaining: Seen::AS_TOLD.work_left(view, job)?,
            waited_s: (view.now() - view.jobs().arrival(job)).seconds(),
            held,
            left_s: gangline_model::SimSpan(left).seconds(),
            start_s: view.overhead(job).seconds(),
        })
    }
}

/// A place for a job, with its utility and cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Quote {
    /// Servers in ascending order, each with its number of GPUs.
    pub places: Counts,
    /// Utility minus cost.
    pub payoff: f64,
    /// Cost of the GPUs.
    pub cost: f64,
    /// Utility of the completion time at this place.
    pub utility: f64,
    /// Rate of the job at this place when it runs alone, in iterations per second.
    pub rate: f64,
    /// Whether the job stays because no other place is faster.
    pub by_stay_rule: bool,
}

/// A job that gets GPUs, and the place that it gets.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) rank: Rank,
    pub(super) offer: Quote,
}

impl Quote {
    /// Returns the utility as a whole percentage of the cost, for an offer with a payoff of at most 0.
    pub(super) fn percent(&self) -> u32 {
        (100.0 * self.utility / self.cost) as u32
    }
}

/// The criterion by which the best candidate is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The largest payoff or the lowest cost, depending on the objective.
    Objective,
    /// The largest utility, used for backfilled jobs.
    Utility,
}

/// Finds places for jobs at one instant.
#[derive(Debug)]
pub(super) struct Finder<'a> {
    pub(super) view: &'a ClusterView<'a>,
    pub(super) params: &'a HadarParams,
    pub(super) prices: &'a Prices,
}

impl Finder<'_> {
    /// Returns the best place for a job, if there is any.
    pub(super) fn find(
        &self,
        servers: &Servers,
        facts: &Facts,
        live: &Live,
        goal: Goal,
    ) -> Option<Quote> {
        let stay = self.stay(servers, facts, live);
        let mut others = self.others(servers, facts);
        // The GPUs that the job holds are already candidate 0.
        others.retain(|places| live.held.as_ref() != Some(places));
        let offer = |places: Counts| self.offer(servers, facts, live, places, live.start_s);
        let offers: SmallVec<[Quote; 8]> = others.into_iter().map(offer).collect();
        if let Some(mut stay) = stay {
            if self.params.stay && !offers.iter().any(|other| above(other.rate, stay.rate)) {
                stay.by_stay_rule = true;
                return Some(stay);
            }
            return Some(self.best(stay, offers, goal));
        }
        let mut offers = offers.into_iter();
        offers.next().map(|first| self.best(first, offers, goal))
    }

    /// Returns whether there is a place for a job with these types and this gang size. `find` returns a place if and
    /// only if the result is true.
    pub(super) fn fits(&self, free_of_type: &[u32], types: u64, gpus: u32) -> bool {
        let usable = free_of_type.iter().enumerate();
        let mut free = usable
            .filter(|(at, _)| types >> at & 1 == 1)
            .map(|(_, &free)| free);
        if self.params.mix_types {
            free.sum::<u32>() >= gpus
        } else {
            free.any(|free| free >= gpus)
        }
    }

    fn best(&self, first: Quote, rest: impl IntoIterator<Item = Quote>, goal: Goal) -> Quote {
        let keys = |offer: &Quote| match goal {
            Goal::Utility => (offer.utility, -offer.cost),
            Goal::Objective if self.params.objective == Objective::MinCost => {
                (-offer.cost, offer.payoff)
            }
            Goal::Objective => (offer.payoff, -offer.cost),
        };
        rest.into_iter().fold(first, |best, next| {
            let (old, new) = (keys(&best), keys(&next));
            let is_better = above(new.0, old.0) || equal(new.0, old.0) && above(new.1, old.1);
            if is_better { next } else { best }
        })
    }

    /// Returns candidate 0, the GPUs that the job holds, if this decision has not given them out.
    fn stay(&self, servers: &Servers, facts: &Facts, live: &Live) -> Option<Quote> {
        let held = live.held.as_ref()?;
        let is_free = held
            .iter()
            .all(|&(server, gpus)| servers.free(server) >= gpus);
        is_free.then(|| self.offer(servers, facts, live, held.clone(), live.left_s))
    }

    /// Returns the other candidates, in the order in which they are compared.
    fn others(&self, servers: &Servers, facts: &Facts) -> SmallVec<[Counts; 8]> {
        let mut found = SmallVec::new();
        let types: SmallVec<[GpuTypeId; 4]> = facts.types.iter().map(|one| one.id).collect();
        for &id in &types {
            found.extend(self.consolidated(servers, id, facts.gpus));
        }
        if facts.gpus == 1 {
            return found;
        }
        let allowed = |at: usize| {
            let first = if self.params.mix_types { 0 } else { at };
            &types[first..=at]
        };
        for at in 0..types.len() {
            found.extend(self.spread(servers, allowed(at), facts.gpus));
        }
        if self.params.rack_aware {
            for at in 0..types.len() {
                found.extend(self.in_rack(servers, allowed(at), facts.gpus));
            }
        }
        found
    }

    /// Returns the best server of the given GPU type that has room for the whole gang.
    fn consolidated(&self, servers: &Servers, id: GpuTypeId, gpus: u32) -> Option<Counts> {
        let mut best: Option<(f64, u32, u32)> = None;
        for (at, group) in servers.groups.iter().enumerate() {
            if group.gpu_type != id {
                continue;
            }
            for free in gpus..=group.capacity {
                let Some(server) = group.by_free[free as usize].first() else {
                    continue;
                };
                let server = server as u32;
                let price = if self.params.pick == Pick::BestFit {
                    0.0
                } else {
                    self.prices.of(at, free)
                };
                if best.is_none_or(|best| is_before((price, free, server), best)) {
                    best = Some((price, free, server));
                }
            }
        }
        best.map(|(_, _, server)| SmallVec::from_slice(&[(server, gpus)]))
    }

    /// Returns GPUs on the servers of the given types, cheapest servers first. The gang takes all free GPUs of each
    /// server until it is complete. The result is `None` if one server is enough, or if too few GPUs are free.
    fn spread(&self, servers: &Servers, types: &[GpuTypeId], gpus: u32) -> Option<Counts> {
        let free: u32 = types.iter().map(|&id| servers.free_of_type(id)).sum();
        if free < gpus {
            return None;
        }
        let mut buckets: SmallVec<[(f64, u32, usize); 16]> = SmallVec::new();
        for (at, group) in servers.groups.iter().enumerate() {
            if types.contains(&group.gpu_type) {
                let filled =
                    (1..=group.capacity).filter(|&f| !group.by_free[f as usize].is_empty());
                buckets.extend(filled.map(|free| (self.prices.of(at, free), free, at)));
            }
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let (mut places, mut missing) = (Counts::new(), gpus);
        for alike in buckets.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq() && a.1 == b.1) {
            let free = alike[0].1;
            let of = |&(_, free, at): &(f64, u32, usize)| {
                servers.groups[at].by_free[free as usize].iter().peekable()
            };
            let mut heads: SmallVec<[_; 4]> = alike.iter().map(of).collect();
            while missing > 0 {
                let next = heads.iter_mut().filter_map(|head| {
                    let server = *head.peek()?;
                    Some((server as u32, head))
                });
                let Some((server, head)) = next.min_by_key(|(server, _)| *server) else {
                    break;
                };
                head.next();
                let count = free.min(missing);
                places.push((server, count));
                missing -= count;
            }
        }
        several(places)
    }

    /// Does the same as `spread`, but uses only the rack with the most free GPUs.
    fn in_rack(&self, servers: &Servers, types: &[GpuTypeId], gpus: u32) -> Option<Counts> {
        let cluster = self.view.cluster();
        let is_of = |server: &&u32| types.contains(&cluster.server(ServerId(**server)).gpu_type);
        let there = servers.roomiest_rack(types).iter().filter(is_of);
        let mut there: Vec<(f64, u32, u32)> = there
            .filter(|&&server| servers.free(server) > 0)
            .map(|&server| {
                let free = servers.free(server);
                (self.prices.of(servers.group(server), free), free, server)
            })
            .collect();
        there.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        let (mut places, mut missing) = (Counts::new(), gpus);
        for (_, free, server) in there {
            let count = free.min(missing);
            if count > 0 {
                places.push((server, count));
            }
            missing -= count;
        }
        if missing == 0 { several(places) } else { None }
    }

    fn offer(
        &self,
        servers: &Servers,
        facts: &Facts,
        live: &Live,
        places: Counts,
        overhead_s: f64,
    ) -> Quote {
        let masks = places
            .iter()
            .map(|&(server, gpus)| (ServerId(server), u64::MAX >> (64 - gpus)));
        let rate = self.view.rate_alone(facts.job, &masks.collect::<GpuSet>());
        let completion = live.waited_s + overhead_s + live.remaining / rate;
        let utility = facts.numerator / completion;
        debug_assert!(
            utility > 0.0 && utility.is_finite(),
            "work and time are above 0"
        );
        let prices = places.iter().map(|&(server, gpus)| {
            let price = self.prices.of(servers.group(server), servers.free(server));
            price * f64::from(gpus)
        });
        let mut cost = prices.sum::<f64>();
        if self.params.cost_horizon == CostHorizon::Remaining {
            cost *= libm::ceil(live.remaining / (rate * self.params.round.seconds()));
        }
        if places.len() > 1 {
            cost *= 1.0 + self.params.spread_surcharge;
        }
        Quote {
            payoff: utility - cost,
            places,
            cost,
            utility,
            rate,
            by_stay_rule: false,
        }
    }
}

/// Returns whether server `a` comes before `b` in the order of price, free GPUs and index.
fn is_before(a: (f64, u32, u32), b: (f64, u32, u32)) -> bool {
    a.0.total_cmp(&b.0)
        .then((a.1, a.2).cmp(&(b.1, b.2)))
        .is_lt()
}

/// Returns the counts, sorted by server, if they use more than one server.
fn several(mut places: Counts) -> Option<Counts> {
    places.sort_unstable();
    (places.len() > 1).then_some(places)
}

// The following code converts GPUs per server to slots, and an allocation to the actions that lead to it.

/// Fills the plan: first the preemptions, then the starts and moves in queue order. A job whose number of GPUs on a
/// server does not change keeps its slots there; other jobs get the lowest free slots.
pub(super) fn emit(view: &ClusterView<'_>, plan: &mut Plan<'_>, chosen: &[Chosen]) {
    let next: BTreeMap<JobId, &Chosen> = chosen.iter().map(|one| (one.rank.job, one)).collect();
    let mut free: BTreeMap<ServerId, u64> = BTreeMap::new();
    for run in view.running().filter_map(|job| view.run(job)) {
        let kept = next.get(&run.job).map(|one| &one.offer.places);
        for one in run.gpus().by_server() {
            let same = (one.server.0, gpus_in(one.mask));
            if !kept.is_some_and(|places| places.contains(&same)) {
                let mask = free.entry(one.server);
                *mask.or_insert_with(|| view.free_mask(one.server)) |= one.mask;
            }
        }
        if kept.is_none() {
            plan.preempt(run.job);
        }
    }
    for one in chosen {
        let held = view.run(one.rank.job).map(gangline_engine::Run::gpus);
        let mut gpus = GpuSet::new();
        for &(server, count) in &one.offer.places {
            let server = ServerId(server);
            let before = held.map_or(0, |held| held.mask_on(server));
            if gpus_in(before) == count {
                gpus.insert(server, before);
                continue;
            }
            let free = free.entry(server).or_insert_with(|| view.free_mask(server));
            let mask = mask_of_lowest(*free, count);
            *free &= !mask;
            gpus.insert(server, mask);
        }
        match held {
            None => plan.start(one.rank.job, gpus),
            Some(held) if *held == gpus => {}
            Some(_) => plan.move_to(one.rank.job, gpus),
        }
    }
}
