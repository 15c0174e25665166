//! Solves the max-min fairness program with prices: there is one unknown per GPU type, however many
//! jobs there are.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | `a[c,k]` | `rates` | value that time on type k has for a job of class c |
//! | `s_c`, `n_c` | `gangs`, `members` | GPUs of a job, number of jobs in the class |
//! | `W_k` | `capacity` | GPUs of a type |
//! | `p_k` | `prices` | price of all GPUs of a type together |
//! | `z` | `z` | the smallest `a . x` |
//!
//! At given prices, the optimal z maximises `z - cost of z`. The cost is a convex function of z, and its slope rises at
//! the corners of the classes' hulls. A selection algorithm finds the z at which this slope reaches 1, in O(classes x
//! types). The plan for this z leaves some GPUs of a type idle, or needs more than there are. Its value and these
//! differences yield a cut for the prices, which is a column of the master program. The value at any prices is an upper
//! bound on z, and the best mix of plans gives a lower bound. In measurements with 100 to 100,000 classes, 20 to 40
//! evaluations closed the gap.

use super::frontier::{Corner, Hulls, edge_price, reach};
use super::master::{Master, Mix};
use super::model::SolverError;

/// Trial prices lie at this fraction of the way from the best prices so far to the prices of the master program. This
/// damps oscillation. The value is our own choice, based on measurements.
const STEP: f64 = 0.7;

/// A max-min program. Tables are row-major, `classes x types`.
#[derive(Clone, Copy, Debug)]
pub struct MaxMin<'a> {
    /// For each class and type, the value of a unit of time; 0 where the class cannot run. Each class has a positive
    /// entry for at least one type with GPUs.
    pub rates: &'a [f64],
    /// Gang size of the jobs in each class.
    pub gangs: &'a [f64],
    /// Number of jobs in each class.
    pub members: &'a [f64],
    /// Number of GPUs of each type.
    pub capacity: &'a [f64],
}

/// Result of the price method.
#[derive(Clone, Debug)]
pub struct PriceSolution {
    /// Value of the objective that the shares reach.
    pub z: f64,
    /// Upper bound on the objective.
    pub bound: f64,
    /// Shares of one job of each class, `classes x types`.
    pub shares: Vec<f64>,
    /// Prices that prove the bound: for each type, the price of all its GPUs.
    pub prices: Vec<f64>,
    /// Number of plans evaluated.
    pub evaluations: u32,
}

/// A demand counts as met if at most this fraction of it is missing.
const MET: f64 = 1e-10;
/// From this number of evaluations on, the wider gap `WIDE_GAP` is enough, because rounding errors may prevent a
/// narrower one.
const FEW: u32 = 60;
const WIDE_GAP: f64 = 1e-9;

impl MaxMin<'_> {
    /// Solves the program to within a relative gap.
    ///
    /// # Errors
    /// Returns an error if a table is invalid, or if `evaluations` evaluations do not reach the gap.
    pub fn solve(&self, gap: f64, evaluations: u32) -> Result<PriceSolution, SolverError> {
        let mut market = Market::new(self)?;
        let demand = vec![1.0; self.gangs.len()];
        let found = market.most(&demand, None, Until::Gap(gap), evaluations)?;
        Ok(PriceSolution {
            shares: market.shares(&found),
            z: found.z,
            bound: found.bound,
            prices: found.prices,
            evaluations: found.evaluations,
        })
    }

    fn check(&self) -> Result<(), SolverError> {
        let (classes, types) = (self.gangs.len(), self.capacity.len());
        let input = |what, expected| Err(SolverError::Input { what, expected });
        if self.rates.len() != classes * types || classes == 0 {
            return input("rates", "classes x types entries, at least one class");
        }
        if self.members.len() != classes {
            return input("members", "one number per class");
        }
        let finite = |table: &[f64], least: f64| {
            table
                .iter()
                .all(|value| value.is_finite() && *value >= least)
        };
        if !finite(self.rates, 0.0) || !finite(self.capacity, 0.0) {
            return input("rates and capacity", "finite numbers >= 0");
        }
        if !finite(self.gangs, 1.0) || !finite(self.members, 1.0) {
            return input("gangs and members", "finite numbers >= 1");
        }
        Ok(())
    }
}

/// Condition that ends a search for prices.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// The relative gap between the bounds is at most this value.
    Gap(f64),
    /// It is known whether the demand can be met. If it cannot be met, the prices prove a shortage that is at least
    /// half of the shortage under the optimal plan.
    Known,
}

/// Result of a search: the part of a demand that can be met.
#[derive(Clone, Debug)]
pub(crate) struct Met {
    /// The part of the demand that the mix of plans meets.
    pub z: f64,
    /// Upper bound on the part of the demand that can be met.
    pub bound: f64,
    /// Prices that prove the bound.
    pub prices: Vec<f64>,
    /// Number of plans evaluated.
    pub evaluations: u32,
    mix: Mix,
    plans: Vec<Plan>,
    /// For each class, the part of the demand that a rate of one step per second meets.
    unit: Vec<f64>,
}

impl Met {
    /// Returns whether the whole demand is met.
    pub(crate) fn is_all(&self) -> bool {
        self.z >= 1.0 - MET
    }
}

/// Classes, and the GPUs for which they compete at given prices.
pub(crate) struct Market<'a> {
    problem: &'a MaxMin<'a>,
    /// For each class in turn, a pair (type, rate) for each type that the class can use, slowest type first.
    entries: Vec<(u32, f64)>,
    ends: Vec<usize>,
    /// Largest rate of each class.
    pub fastest: Vec<f64>,
    /// For each class, the share of time that a job gets on a type under an equal split, divided by the number of GPUs
    /// of the type. The shares of a job add up to at most 1.
    equal: Vec<f64>,
    /// For each class, the rate of a job under the equal split.
    pub split: Vec<f64>,
    /// Hulls at the prices of the last plan.
    pub hulls: Hulls,
    /// Corners of one plan: the part of the demand at which the slope rises, and the size of the rise. The buffer is
    /// reused.
    corners: Vec<(f64, f64)>,
}

/// The optimal plan at given prices.
#[derive(Clone, Debug)]
struct Plan {
    prices: Vec<f64>,
    /// Part of the demand that the plan meets, relative to an equal split.
    z: f64,
    /// Upper bound: z, minus the cost of the shares, plus the price of all GPUs.
    bound: f64,
    left: Vec<f64>,
}

impl<'a> Market<'a> {
    pub(crate) fn new(problem: &'a MaxMin<'a>) -> Result<Self, SolverError> {
        problem.check()?;
        let classes = problem.gangs.len();
        let mut market = Self {
            problem,
            entries: Vec::with_capacity(problem.rates.len()),
            ends: Vec::with_capacity(classes),
            fastest: Vec::with_capacity(classes),
            equal: Vec::with_capacity(classes),
            split: Vec::with_capacity(classes),
            hulls: Hulls::default(),
            corners: Vec::with_capacity(problem.rates.len()),
        };
        let (gpus, jobs): (f64, f64) =
            (problem.capacity.iter().sum(), problem.members.iter().sum());
        let rows = problem.rates.chunks_exact(problem.capacity.len());
        for (row, gang) in rows.zip(problem.gangs) {
            let start = market.entries.len();
            let usable = row.iter().zip(problem.capacity).zip(0..);
            market.entries.extend(
                usable
                    .filter(|((rate, gpus), _)| **rate > 0.0 && **gpus > 0.0)
                    .map(|((&rate, _), kind)| (kind, rate)),
            );
            let mine = &mut market.entries[start..];
            mine.sort_by(|a, b| a.1.total_cmp(&b.1));
            let Some(&(_, fastest)) = mine.last() else {
                return Err(SolverError::Input {
                    what: "rates",
                    expected: "for every class, a positive rate on at least one GPU type with a capacity above 0",
                });
            };
            market.fastest.push(fastest);
            market.ends.push(market.entries.len());
            let share = 1.0 / (jobs * gang);
            let share = share / (gpus * share).max(1.0);
            market.equal.push(share);
            let pairs = row.iter().zip(problem.capacity);
            let rate = pairs.map(|(rate, gpus)| rate * share * gpus).sum();
            market.split.push(rate);
        }
        Ok(market)
    }

    /// Returns the largest part of a demand that can be met; the demand is given in steps per second for a job of each
    /// class.
    ///
    /// The search starts at `prices`, if given. If it fails because of rounding errors, it is repeated from the default
    /// prices.
    pub(crate) fn most(
        &mut self,
        demand: &[f64],
        prices: Option<&[f64]>,
        until: Until,
        evaluations: u32,
    ) -> Result<Met, SolverError> {
        let found = self.search(demand, prices, until, evaluations);
        if found.is_err() && prices.is_some() {
            return self.search(demand, None, until, evaluations);
        }
        found
    }

    fn search(
        &mut self,
        demand: &[f64],
        prices: Option<&[f64]>,
        until: Until,
        evaluations: u32,
    ) -> Result<Met, SolverError> {
        // The unit is the part that an equal split meets, so that all numbers are about 1.
        let parts = self.split.iter().zip(demand).map(|(own, all)| own / all);
        let reference = parts.fold(f64::INFINITY, f64::min);
        let unit: Vec<f64> = demand.iter().map(|all| 1.0 / (all * reference)).collect();
        let mut master = Master::new(1.0, &self.left_of_split());
        let mut plans: Vec<Plan> = Vec::new();
        let mut prices = match prices {
            Some(raw) => raw.iter().map(|price| price / reference).collect(),
            None => self.first_prices(),
        };
        let (mut bound, mut best_prices) = (f64::INFINITY, prices.clone());
        let mut reached = 0.0;
        for evaluation in 1..=evaluations {
            let plan = self.plan(&prices, &unit);
            let lower = plan.bound < bound;
            if lower {
                bound = plan.bound;
                best_prices.clone_from(&prices);
            }
            master.add(plan.z, &plan.left);
            plans.push(plan);
            let mix = master.solve().ok_or(SolverError::Gap {
                gap: (bound - reached) / bound,
                evaluations: evaluation,
            })?;
            let rose = mix.value > reached;
            reached = mix.value;
            let is_close = |gap: f64| bound - reached <= gap * bound;
            let is_over = match until {
                Until::Gap(gap) => is_close(gap),
                Until::Known => {
                    let (z, most) = (reached * reference, bound * reference);
                    z >= 1.0 - MET || 1.0 - most > 0.5 * (1.0 - z) || is_close(f64::EPSILON)
                }
            };
            if is_over || (evaluation >= FEW && is_close(WIDE_GAP)) {
                for price in &mut best_prices {
                    *price *= reference;
                }
                return Ok(Met {
                    z: reached * reference,
                    bound: bound * reference,
                    prices: best_prices,
                    evaluations: evaluation,
                    mix,
                    plans,
                    unit,
                });
            }
            // If a damped trial brings no improvement, the next trial is undamped. An undamped trial always brings one.
            let step = if lower || rose { STEP } else { 1.0 };
            let trials = best_prices.iter().zip(&mix.prices);
            prices = trials
                .zip(self.problem.capacity)
                // Types without GPUs have price 0.
                .map(|((best, new), gpus)| if *gpus > 0.0 { best + step * (new - best) } else { 0.0 })
                .collect();
        }
        Err(SolverError::Gap {
            gap: (bound - reached) / bound,
            evaluations,
        })
    }

    /// Returns the shares of a mix of plans, `classes x types`; plan 0 of the master is the equal split.
    pub(crate) fn shares(&mut self, met: &Met) -> Vec<f64> {
        let problem = self.problem;
        let types = problem.capacity.len();
        let mut shares = vec![0.0; problem.rates.len()];
        for &(plan, weight) in &met.mix.weights {
            let plan = plan.checked_sub(1).map(|index| &met.plans[index]);
            if let Some(plan) = plan {
                self.set_hulls(&plan.prices);
            }
            for (class, row) in shares.chunks_exact_mut(types).enumerate() {
                let Some(plan) = plan else {
                    let share = weight * self.equal[class];
                    for &(kind, _) in self.usable(class) {
                        row[kind as usize] += share * problem.capacity[kind as usize];
                    }
                    continue;
                };
                let hull = self.hulls.of(class);
                let (end, part) = reach(hull, plan.z / met.unit[class]);
                for (corner, part) in [(hull[end - 1], 1.0 - part), (hull[end], part)] {
                    if let Some(kind) = corner.gpu_type {
                        row[kind as usize] += weight * part;
                    }
                }
            }
        }
        shares
    }

    /// Computes the hulls of all classes at given prices; each price is for all GPUs of a type.
    pub(crate) fn set_hulls(&mut self, prices: &[f64]) {
        self.hulls.clear();
        let mut start = 0;
        for (&end, gang) in self.ends.iter().zip(self.problem.gangs) {
            let points = self.entries[start..end].iter();
            self.hulls.push(points.map(|&(kind, rate)| Corner {
                rate,
                cost: gang * prices[kind as usize] / self.problem.capacity[kind as usize],
                gpu_type: Some(kind),
            }));
            start = end;
        }
    }

    fn usable(&self, class: usize) -> &[(u32, f64)] {
        let start = class.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.entries[start..self.ends[class]]
    }

    /// Returns a lower bound on the fraction of each type that an equal split leaves free.
    fn left_of_split(&self) -> Vec<f64> {
        let problem = self.problem;
        let gangs = problem.gangs.iter().zip(problem.members);
        let held = self.equal.iter().zip(gangs);
        let held: f64 = held.map(|(share, (gang, jobs))| share * gang * jobs).sum();
        // A type without GPUs has nothing left. A class that cannot run on a type leaves more of it free, which is
        // ignored.
        let left = |gpus: &f64| {
            if *gpus > 0.0 {
                (1.0 - held).max(0.0)
            } else {
                0.0
            }
        };
        problem.capacity.iter().map(left).collect()
    }

    /// Returns prices that are proportional to the number of GPUs of each type. At these prices, all GPUs together are
    /// worth as much as the value of an equal split.
    fn first_prices(&self) -> Vec<f64> {
        let capacity = self.problem.capacity;
        let gpus: f64 = capacity.iter().sum();
        capacity.iter().map(|own| own / gpus).collect()
    }

    /// Returns the optimal plan at given prices; `unit` is the part of the demand that one step per second meets.
    fn plan(&mut self, prices: &[f64], unit: &[f64]) -> Plan {
        let problem = self.problem;
        self.set_hulls(prices);
        let ends = self
            .fastest
            .iter()
            .zip(unit)
            .map(|(rate, unit)| rate * unit);
        let highest = ends.fold(f64::INFINITY, f64::min);
        self.corners.clear();
        let mut slope = 0.0;
        for (class, (members, unit)) in problem.members.iter().zip(unit).enumerate() {
            let (hull, weight) = (self.hulls.of(class), members / unit);
            let mut before = edge_price(hull, 1);
            slope += weight * before;
            for end in 2..hull.len() {
                let part = hull[end - 1].rate * unit;
                if part >= highest {
                    break;
                }
                let after = edge_price(hull, end);
                self.corners.push((part, weight * (after - before)));
                before = after;
            }
        }
        let z = best_rate(&mut self.corners, slope, highest);
        let mut held = vec![0.0; prices.len()];
        let mut cost = 0.0;
        for (class, (members, unit)) in problem.members.iter().zip(unit).enumerate() {
            let (hull, gpus) = (self.hulls.of(class), members * problem.gangs[class]);
            let (end, weight) = reach(hull, z / unit);
            for (corner, part) in [(hull[end - 1], 1.0 - weight), (hull[end], weight)] {
                if let Some(kind) = corner.gpu_type {
                    held[kind as usize] += gpus * part;
                    cost += members * part * corner.cost;
                }
            }
        }
        let left = held.iter().zip(problem.capacity);
        Plan {
            prices: prices.to_vec(),
            z,
            bound: z - cost + prices.iter().sum::<f64>(),
            left: left
                .map(|(held, gpus)| if *gpus > 0.0 { 1.0 - held / gpus } else { 0.0 })
                .collect(),
        }
    }
}

/// Returns the rate at which the slope reaches 1, or `highest` if it does not; the slope starts at `slope` and rises at
/// each corner.
fn best_rate(corners: &mut [(f64, f64)], mut slope: f64, highest: f64) -> f64 {
    if slope >= 1.0 {
        return 0.0;
    }
    let mut rest = corners;
    while rest.len() > 32 {
        let middle = rest.len() / 2;
        rest.select_nth_unstable_by(middle, |a, b| a.0.total_cmp(&b.0));
        let below: f64 = rest[..middle].iter().map(|corner| corner.1).sum();
        if slope + below >= 1.0 {
            rest = &mut rest[..middle];
        } else {
            slope += below;
            rest = &mut rest[middle..];
        }
    }
    rest.sort_by(|a, b| a.0.total_cmp(&b.0));
    for &(rate, rise) in rest.iter() {
        slope += rise;
        if slope >= 1.0 {
            return rate;
        }
    }
    highest
}
