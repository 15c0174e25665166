//! The exact auction. Each bidder gets a gang on one type and tier, or nothing; of all such outcomes, the auction finds
//! one with the largest product of v.

use super::bids::{AuctionAsk, Award, Bid, Offer, Room};
use super::fairness::Standing;
use super::program::winners;
use super::rooms::deal;
use crate::kit::Places;
use crate::place::PlacementParams;
use crate::place::{Pick, consolidate};
use gangline_allocation::{Algorithm, Failed, How, Outside, Programs, Solver, SolverError};
use gangline_engine::{ClusterView, Plan, PolicyError};
use gangline_model::{GpuSet, GpuTypeId, JobId, ServerId, SimSpan, Tier};

/// Maximum number of bidders.
const BIDDERS_MAX: usize = 64;

/// Maximum number of choices that a single program ranks. Up to this limit, a solver with the usual tolerances can tell
/// the weights of the choices apart.
const CHOICES_MAX: u64 = 1 << 24;

/// Finds the bids with the largest product of values that can be served together. Ties go to the choice in which the
/// most bidders keep the GPUs that they hold. Further ties go to the choice that gives the first bidder the earliest of
/// its bids, then the second bidder, and so on. Returns at most one award for each bidder, in order of the bids, and
/// the numbers of programs and solver iterations.
///
/// # Errors
/// Returns [`SolverError`] if there is no proven answer.
pub fn award(
    ask: &AuctionAsk,
    solver: &mut dyn Solver,
    how: How,
    choices_max: u64,
) -> Result<(Vec<Award>, [u32; 2]), SolverError> {
    let (bids, spent) = winners(ask, solver, how, choices_max)?;
    let awards = deal(ask, &bids).ok_or(SolverError::Input {
        what: "the winners of an auction",
        expected: "gangs that fit together",
    })?;
    Ok((awards, spent))
}

/// The state of the exact auctions in a run.
pub(super) struct Exact {
    outside: Outside,
    time_limit_s: f64,
    placement: PlacementParams,
}

impl std::fmt::Debug for Exact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exact")
            .field("placement", &self.placement)
            .finish_non_exhaustive()
    }
}

impl Exact {
    /// Creates an exact auction; `placement` must use the rule `consolidate`.
    pub(super) fn new(outside: Outside, time_limit_s: f64, placement: PlacementParams) -> Self {
        Self {
            outside,
            time_limit_s,
            placement,
        }
    }

    fn award(&mut self, ask: &AuctionAsk) -> Result<Vec<Award>, PolicyError> {
        let began = self.outside.clock.nanos();
        let how = How {
            algorithm: Algorithm::Auto,
            time_limit_s: self.time_limit_s,
            seed: 0,
        };
        match award(ask, self.outside.solver.as_mut(), how, CHOICES_MAX) {
            Ok((awards, spent)) => {
                let nanos = self.outside.clock.nanos() - began;
                let of = Programs::OfAuctions {
                    time_limit_s: self.time_limit_s,
                };
                self.outside.tally().add(of, "mip", spent, nanos);
                Ok(awards)
            }
            Err(error) => {
                self.outside
                    .solver
                    .failed(&Failed::Auction { now: ask.now }, &error);
                let message = format!("themis: {error}");
                Err(PolicyError::Failed { message })
            }
        }
    }

    /// Returns the winning jobs with their GPUs. The draft already contains these GPUs.
    pub(super) fn winners(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        places: &Places,
        invited: &mut [Standing],
        lease_left: SimSpan,
    ) -> Result<Vec<(JobId, GpuSet)>, PolicyError> {
        invited.sort_unstable_by_key(|standing| standing.job);
        let (asked, bidders) = ask(view, plan, &self.placement, invited, lease_left)?;
        if bidders.is_empty() {
            return Ok(Vec::new());
        }
        let awards = self.award(&asked)?;
        let own = |job| {
            let run = view.run(job);
            run.expect("only running jobs bid for the GPUs that they hold")
                .gpus()
                .clone()
        };
        place(
            plan,
            places,
            &self.placement,
            (&asked, &bidders),
            &awards,
            own,
        )
    }
}

/// Returns the description of an auction among these jobs, and the jobs that make bids, in order.
fn ask(
    view: &ClusterView<'_>,
    plan: &mut Plan<'_>,
    placement: &PlacementParams,
    invited: &[Standing],
    lease_left: SimSpan,
) -> Result<(AuctionAsk, Vec<JobId>), PolicyError> {
    let mut ask = AuctionAsk {
        now: view.now(),
        ..AuctionAsk::default()
    };
    let servers = view.cluster().servers().iter().enumerate();
    ask.rooms = servers
        .map(|(at, server)| Room {
            server: ServerId::new(at),
            gpu_type: server.gpu_type,
            rack: server.rack.0,
            free: plan.free().free_mask(ServerId::new(at)).count_ones(),
        })
        .filter(|room| room.free > 0)
        .collect();
    let mut bidders = Vec::new();
    for standing in invited {
        let before = ask.bids.len();
        add_bids(view, plan, placement, standing, lease_left, &mut ask);
        if ask.bids.len() > before {
            ask.gangs.push(view.jobs().gpus(standing.job));
            bidders.push(standing.job);
        }
    }
    if bidders.len() > BIDDERS_MAX {
        return Err(PolicyError::Parameter {
            policy: "themis".to_owned(),
            field: "auction".to_owned(),
            value: "milp".to_owned(),
            expected: format!(
                "at most {BIDDERS_MAX} bidders in an auction, but {} bid at {} s (invite fewer \
                 with a larger `fairness`, or use \"greedy\")",
                bidders.len(),
                ask.now.seconds()
            ),
        });
    }
    Ok((ask, bidders))
}

/// Adds those bids of a job that are worth more than waiting.
fn add_bids(
    view: &ClusterView<'_>,
    plan: &mut Plan<'_>,
    placement: &PlacementParams,
    standing: &Standing,
    lease_left: SimSpan,
    ask: &mut AuctionAsk,
) {
    let job = standing.job;
    let Some(best_rate) = view.types_of(job).next().map(|t| view.base_rate(job, t)) else {
        return;
    };
    let bidder = ask.gangs.len();
    let value = |gpu_type, tier| {
        let rate = view.base_rate(job, gpu_type) * view.locality_at(job, gpu_type, tier);
        libm::log(standing.gain(best_rate / rate, lease_left))
    };
    if let Some(run) = view.run(job)
        && plan.free().is_free(run.gpus())
    {
        let gpu_type = plan.free().type_of(run.gpus().by_server()[0].server);
        let tier = view.cluster().tier(run.gpus());
        let worth = value(gpu_type, tier);
        if worth > 0.0 {
            for part in run.gpus().by_server() {
                let room = ask.rooms.binary_search_by_key(&part.server, |r| r.server);
                let room = room.expect("free GPUs are on a server with room");
                ask.own.push((ask.bids.len(), room, part.mask.count_ones()));
            }
            ask.bids.push(Bid {
                bidder,
                offer: Offer::Own(gpu_type, tier),
                value: worth,
            });
        }
    }
    for gpu_type in view.types_of(job) {
        for tier in tiers(plan, placement, gpu_type, view.jobs().gpus(job)) {
            let worth = value(gpu_type, tier);
            if worth > 0.0 {
                ask.bids.push(Bid {
                    bidder,
                    offer: Offer::Anywhere(gpu_type, tier),
                    value: worth,
                });
            }
        }
    }
}

/// Returns the tiers in which enough GPUs for a gang are free, ignoring all other bids.
fn tiers(
    plan: &mut Plan<'_>,
    placement: &PlacementParams,
    gpu_type: GpuTypeId,
    gpus: u32,
) -> Vec<Tier> {
    let pool = plan.free().pool_mut(gpu_type);
    let mut tiers = Vec::new();
    if pool.server_free_max() >= gpus {
        tiers.push(Tier::Server);
    }
    let is_gang = gpus > 1;
    if is_gang
        && placement.max_level != Tier::Server
        && pool.rack_most_free().is_some_and(|(_, free)| free >= gpus)
    {
        tiers.push(Tier::Rack);
    }
    if is_gang && placement.max_level == Tier::Network && pool.free_total() >= gpus {
        tiers.push(Tier::Network);
    }
    tiers
}

/// Returns the places of the awards, and removes them from the draft. Awards of GPUs that a job already holds come
/// first, then narrow tiers before wide tiers, and within a tier, large gangs before small gangs. The placement rule
/// places each gang. If a winner cannot be placed in this way, all winners are placed again. If a gang's award is for
/// one server or one rack, the gang then gets GPUs on the server or in the rack that the award names.
fn place(
    plan: &mut Plan<'_>,
    places: &Places,
    placement: &PlacementParams,
    (ask, bidders): (&AuctionAsk, &[JobId]),
    awards: &[Award],
    own: impl Fn(JobId) -> GpuSet,
) -> Result<Vec<(JobId, GpuSet)>, PolicyError> {
    let broken = || PolicyError::Failed {
        message: "themis: the solver of the auction gave away GPUs that are not free".to_owned(),
    };
    if awards.iter().any(|award| award.bid >= ask.bids.len()) {
        return Err(broken());
    }
    let mut order: Vec<&Award> = awards.iter().collect();
    let level = |award: &Award| match ask.bids[award.bid].offer {
        Offer::Own(..) => 0,
        Offer::Anywhere(_, tier) => 1 + tier as u8,
    };
    order.sort_by_key(|award| {
        let gang = ask.gangs[ask.bids[award.bid].bidder];
        (level(award), std::cmp::Reverse(gang), award.bid)
    });
    let mark = plan.mark();
    for by_rule in [true, false] {
        let mut given = Vec::with_capacity(order.len());
        for award in &order {
            let job = bidders[ask.bids[award.bid].bidder];
            let found = match ask.bids[award.bid].offer {
                Offer::Own(..) => Some(own(job)).filter(|gpus| plan.free().is_free(gpus)),
                Offer::Anywhere(..) => find(plan, places, placement, ask, award, by_rule),
            };
            let Some(gpus) = found else { break };
            plan.take(&gpus);
            given.push((job, gpus));
        }
        if given.len() == order.len() {
            return Ok(given);
        }
        plan.rollback(mark);
    }
    Err(broken())
}

fn find(
    plan: &mut Plan<'_>,
    places: &Places,
    placement: &PlacementParams,
    ask: &AuctionAsk,
    award: &Award,
    by_rule: bool,
) -> Option<GpuSet> {
    let bid = ask.bids[award.bid];
    let gang = ask.gangs[bid.bidder];
    let Offer::Anywhere(gpu_type, tier) = bid.offer else {
        return None;
    };
    let mut picks: Vec<Pick> = Vec::new();
    if by_rule || tier == Tier::Network {
        let free = plan.free();
        if !consolidate::at_level(placement, free, gpu_type, (gang, tier), &mut picks) {
            return None;
        }
    } else {
        let room = ask.rooms.get(award.room)?;
        let pool = plan.free().pool_mut(gpu_type);
        let at = (0..pool.servers().len()).find(|&at| pool.server(at) == room.server)?;
        if tier == Tier::Server {
            picks.push(Pick { at, gpus: gang });
            if pool.free(at) < gang {
                return None;
            }
        } else {
            let rack = pool.rack_of(at);
            if pool.rack_free(rack) < gang {
                return None;
            }
            consolidate::fill(placement.fit, pool, rack, gang, &mut picks);
        }
    }
    let mut gpus = GpuSet::new();
    for pick in picks {
        let part = places
            .rule()
            .place_at(plan.free().pool(gpu_type), pick.at, pick.gpus);
        for part in part.by_server() {
            gpus.insert(part.server, part.mask);
        }
    }
    Some(gpus)
}
