//! Holds the auctions. The greedy auction repeatedly gives a place to the job with the largest gain per GPU, and then
//! assigns the remaining GPUs.

use super::exact::Exact;
use super::fairness::{Fairness, Rho, Standing};
use crate::kit::Places;
use gangline_engine::{ClusterView, Plan, PolicyError};
use gangline_model::{GpuSet, GpuTypeId, JobId, SimSpan, words};
use gangline_rng::{Purpose, Stream};
use rustc_hash::FxHashSet;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

words! {
    /// Method of choosing winners.
    pub(crate) enum Winners {
        /// Repeatedly, the bid with the highest value per GPU wins.
        Greedy = "greedy",
        /// The set of bids that maximises the product of all valuations wins.
        Milp = "milp",
    }
}

words! {
    /// Rule that chooses the jobs that get the remaining GPUs.
    pub enum Leftover {
        /// The job that is worst off.
        Rho = "rho",
        /// A random job; the draws are keyed by the instant and the job.
        Random = "random",
    }
}

/// A job's bid for the best available place: ln(v) / d.
#[derive(Clone, Copy, Debug)]
struct Bid {
    value: f64,
    standing: Standing,
    rho: Rho,
}

impl Ord for Bid {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_value = self.value.total_cmp(&other.value);
        let by_rho = || self.rho.compare(&other.rho);
        let by_index = || other.standing.job.cmp(&self.standing.job);
        by_value.then_with(by_rho).then_with(by_index)
    }
}

impl PartialOrd for Bid {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Bid {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Bid {}

/// An auction and its results.
#[derive(Debug)]
pub(super) struct Auction {
    fairness: f64,
    leftover: Leftover,
    /// The exact auction, if it is used instead of the greedy auction.
    exact: Option<Exact>,
    bids: BinaryHeap<Bid>,
    winners: Vec<(JobId, GpuSet)>,
    has_won: FxHashSet<JobId>,
}

/// Returns the number of bidders that are invited, which is at least one. The bidders that are worst off are invited
/// first.
fn invited(fairness: f64, bidders: usize) -> usize {
    // Decimals such as 0.58 are inexact as floats: 50 x 0.58 should be 29, but is 28.999999999999996.
    let left_out = fairness * bidders as f64 * (1.0 + 4.0 * f64::EPSILON);
    (bidders - left_out.floor() as usize).max(1)
}

impl Auction {
    pub(super) fn new(fairness: f64, leftover: Leftover, exact: Option<Exact>) -> Self {
        Self {
            fairness,
            leftover,
            exact,
            bids: BinaryHeap::new(),
            winners: Vec::new(),
            has_won: FxHashSet::default(),
        }
    }

    /// Assigns the free GPUs of the plan's draft. `lease_left` is the time until the next auction.
    pub(super) fn run(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        places: &mut Places,
        (standings, fairness): (&mut [Standing], &Fairness),
        lease_left: SimSpan,
    ) -> Result<(), PolicyError> {
        self.winners.clear();
        self.has_won.clear();
        let invited = invited(self.fairness, standings.len());
        if invited < standings.len() {
            standings.select_nth_unstable_by(invited, |one, two| fairness.order(view, one, two));
        }
        match self.exact.take() {
            None => self.greedy(
                view,
                plan,
                places,
                (&standings[..invited], fairness),
                lease_left,
            ),
            Some(mut exact) => {
                let found =
                    exact.winners(view, plan, places, &mut standings[..invited], lease_left);
                self.exact = Some(exact);
                for (job, gpus) in found? {
                    self.has_won.insert(job);
                    self.winners.push((job, gpus));
                }
            }
        }
        self.hand_on(view, plan, places, (standings, fairness), lease_left);
        Ok(())
    }

    /// Repeatedly gives GPUs to the job with the largest gain per GPU.
    fn greedy(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        places: &mut Places,
        (invited, fairness): (&[Standing], &Fairness),
        lease_left: SimSpan,
    ) {
        self.bids.clear();
        let has_room = rooms(plan, places);
        let may_bid = |one: &&Standing| has_room[one.class] || view.run(one.job).is_some();
        for &standing in invited.iter().filter(may_bid) {
            if let Some((value, _)) = bid(view, plan, places, &standing, lease_left) {
                let rho = fairness.fraction(view, &standing);
                self.bids.push(Bid {
                    value,
                    standing,
                    rho,
                });
            }
        }
        // Once no GPUs are free, the remaining bids are void.
        while let Some(highest) = self.bids.pop().filter(|_| has_any(plan)) {
            let standing = highest.standing;
            let Some((value, gpus)) = bid(view, plan, places, &standing, lease_left) else {
                continue;
            };
            if value < highest.value {
                // The place was taken after the bid was made.
                self.bids.push(Bid { value, ..highest });
            } else {
                self.win(plan, standing.job, gpus);
            }
        }
    }

    fn win(&mut self, plan: &mut Plan<'_>, job: JobId, gpus: GpuSet) {
        plan.take(&gpus);
        self.has_won.insert(job);
        self.winners.push((job, gpus));
    }

    /// Gives the remaining GPUs to the other jobs, one after another, if they fit.
    fn hand_on(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        places: &mut Places,
        (standings, fairness): (&[Standing], &Fairness),
        lease_left: SimSpan,
    ) {
        if !has_any(plan) {
            return;
        }
        let has_room = rooms(plan, places);
        let mut others: Vec<Standing> = standings
            .iter()
            .filter(|standing| has_room[standing.class] || view.run(standing.job).is_some())
            .filter(|standing| !self.has_won.contains(&standing.job))
            .copied()
            .collect();
        match self.leftover {
            Leftover::Rho => others.sort_unstable_by(|one, two| fairness.order(view, one, two)),
            Leftover::Random => {
                let draws = Stream::new(view.seed(), Purpose::Policy);
                let draw = |job: JobId| draws.draw(view.now().0 as u64, job.0, 0).uniform();
                others.sort_by_cached_key(|standing| (draw(standing.job).to_bits(), standing.job));
            }
        }
        for standing in others {
            if let Some((_, gpus)) = bid(view, plan, places, &standing, lease_left) {
                self.win(plan, standing.job, gpus);
            }
        }
    }

    /// Writes the actions; the draft already contains their effects. Returns the increase in the number of waiting
    /// jobs, which may be negative.
    pub(super) fn carry_out(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        standings: &[Standing],
    ) -> isize {
        let mut more = 0;
        for &Standing { job, .. } in standings {
            if view.run(job).is_some() && !self.has_won.contains(&job) {
                more += 1;
                plan.preempt(job);
            }
        }
        for (job, gpus) in self.winners.drain(..) {
            match view.run(job) {
                None => {
                    more -= 1;
                    plan.start(job, gpus);
                }
                Some(run) if *run.gpus() == gpus => {}
                Some(_) => plan.move_to(job, gpus),
            }
        }
        more
    }
}

fn has_any(plan: &mut Plan<'_>) -> bool {
    let free = plan.free();
    (0..free.types()).any(|at| free.pool(GpuTypeId::new(at)).free_total() > 0)
}

/// Returns, for each class, whether a gang of the class might have a place.
fn rooms(plan: &mut Plan<'_>, places: &Places) -> Vec<bool> {
    let classes = 0..places.classes().len();
    classes
        .map(|class| places.can(plan.free(), class))
        .collect()
}

/// Returns the best place that a job can have now, and ln(v) / d for this place. Among equally good places, the GPUs
/// that the job held come first, if all of them are free; then the types decide, in the job's order.
fn bid(
    view: &ClusterView<'_>,
    plan: &mut Plan<'_>,
    places: &mut Places,
    standing: &Standing,
    lease_left: SimSpan,
) -> Option<(f64, GpuSet)> {
    let job = standing.job;
    let best_rate = view.types_of(job).next().map(|t| view.base_rate(job, t))?;
    let value = |gpus: &GpuSet| standing.gain(best_rate / view.rate_alone(job, gpus), lease_left);
    let mut found: Option<(f64, GpuSet)> = None;
    if let Some(run) = view.run(job)
        && plan.free().is_free(run.gpus())
    {
        found = Some((value(run.gpus()), run.gpus().clone()));
    }
    for gpu_type in view.types_of(job) {
        if let Some(gpus) = places.place_on(plan, standing.class, job, gpu_type) {
            let v = value(&gpus);
            if found.as_ref().is_none_or(|(best, _)| v > *best) {
                found = Some((v, gpus));
            }
        }
    }
    let gang = f64::from(view.jobs().gpus(job));
    found.map(|(v, gpus)| (libm::log(v) / gang, gpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_left_out_is_that_of_the_decimal() {
        assert_eq!(invited(0.58, 50), 50 - 29);
        assert_eq!(invited(0.579, 50), 50 - 28);
        assert_eq!(invited(0.8, 4), 4 - 3);
        assert_eq!(invited(0.0, 7), 7);
        assert_eq!(invited(0.999, 3), 1);
    }
}
