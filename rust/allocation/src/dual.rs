//! Max-min by prices: as many unknowns as GPU types, whatever the number of jobs.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | `a[c,k]` | `rates` | what time on type k counts for a job of class c |
//! | `s_c`, `n_c` | `gangs`, `members` | GPUs of a job, jobs of the class |
//! | `W_k` | `capacity` | GPUs of a type |
//! | `p_k` | `prices` | price of all GPUs of a type |
//! | `z` | `z` | the smallest `a . x` |
//!
//! Given prices, the best z maximises `z - cost of z`, a concave function of one number whose slope
//! falls at the corners of the classes' hulls: the z where the slopes add up to 1 is found by selection,
//! in O(classes x types). That plan has a value and leaves or lacks GPUs: a cut for the prices, a column
//! for the master. The value at any prices bounds z from above, the best mix of plans from below.
//! 20 to 40 evaluations bring both together, from 100 to 100,000 classes (measured).

use super::frontier::{Corner, Hull, edge_price, lower_hull, reach};
use super::master::{Master, Mix};
use thiserror::Error;

/// Trial prices lie this far from the best ones towards the master's: ours, measured; damps swings.
const STEP: f64 = 0.7;

/// A max-min program; tables are row by row, `classes x types`.
#[derive(Clone, Copy, Debug)]
pub struct MaxMin<'a> {
    /// What a unit of time counts; 0 where a class cannot run. Each class has a positive entry on a type
    /// with GPUs.
    pub rates: &'a [f64],
    /// GPUs of one job.
    pub gangs: &'a [f64],
    /// Jobs of each class.
    pub members: &'a [f64],
    /// GPUs of each type.
    pub capacity: &'a [f64],
}

/// What the price method found.
#[derive(Clone, Debug)]
pub struct PriceSolution {
    /// Objective that the shares reach.
    pub z: f64,
    /// No plan reaches more than this.
    pub bound: f64,
    /// Shares of one job of each class, `classes x types`.
    pub shares: Vec<f64>,
    /// Prices that prove the bound, each of all GPUs of a type.
    pub prices: Vec<f64>,
    /// Plans that were looked at.
    pub evaluations: u32,
}

/// Why a program was not solved.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum SolverError {
    /// A table has the wrong size or an entry that is no number.
    #[error("{what}: expected {expected}")]
    Input {
        /// The table.
        what: &'static str,
        /// What it should hold.
        expected: &'static str,
    },
    /// The bounds did not meet in time.
    #[error("gap {gap:.1e} after {evaluations} evaluations")]
    Gap {
        /// (bound - z) / z.
        gap: f64,
        /// Plans that were looked at.
        evaluations: u32,
    },
    /// The simplex method did not end at an optimum.
    #[error("no optimum after {steps} simplex steps")]
    Steps {
        /// Steps that were made.
        steps: u32,
    },
    /// Water filling found no class at a bottleneck.
    #[error("no class at its bottleneck with {left} left")]
    Stuck {
        /// Classes that were not done.
        left: usize,
    },
}

/// A class's usable types in ascending order of rate: (first entry, end) into `entries`.
struct Prepared<'a> {
    problem: &'a MaxMin<'a>,
    /// (type, rate over the reference), class by class.
    entries: Vec<(u32, f64)>,
    starts: Vec<usize>,
    /// No share reaches more: the slowest class's fastest rate.
    highest: f64,
    /// The unit of z: what an equal split reaches.
    reference: f64,
    /// All GPUs, and all jobs.
    totals: (f64, f64),
    /// Corners of one evaluation: (rate, slope), reused.
    corners: Vec<(f64, f64)>,
}

/// A plan: z and the cheapest shares that reach it at some prices.
struct Plan {
    prices: Vec<f64>,
    z: f64,
    /// z minus what the shares cost plus what all GPUs are worth.
    bound: f64,
    left: Vec<f64>,
}

impl MaxMin<'_> {
    /// Solves to a relative gap.
    ///
    /// # Errors
    /// If a table is wrong, or the gap is not reached within the evaluations.
    pub fn solve(&self, gap: f64, evaluations: u32) -> Result<PriceSolution, SolverError> {
        self.check()?;
        let mut prepared = Prepared::new(self)?;
        let mut master = Master::new(1.0, &prepared.isolated_left());
        let mut plans: Vec<Plan> = Vec::new();
        let mut prices = prepared.first_prices();
        let (mut bound, mut best_prices) = (f64::INFINITY, prices.clone());
        let mut reached = 0.0;
        for evaluation in 1..=evaluations {
            let plan = prepared.evaluate(&prices);
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
            if bound - reached <= gap * bound {
                return Ok(PriceSolution {
                    z: reached * prepared.reference,
                    bound: bound * prepared.reference,
                    shares: prepared.shares(&mix, &plans),
                    prices: best_prices,
                    evaluations: evaluation,
                });
            }
            // A damped trial that brought nothing is followed by an undamped one, which must.
            let step = if lower || rose { STEP } else { 1.0 };
            let trials = best_prices.iter().zip(&mix.prices).zip(self.capacity);
            prices = trials
                .map(|((best, new), gpus)| {
                    // nothing is sold where there are no GPUs
                    if *gpus > 0.0 {
                        best + step * (new - best)
                    } else {
                        0.0
                    }
                })
                .collect();
        }
        Err(SolverError::Gap {
            gap: (bound - reached) / bound,
            evaluations,
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

impl<'a> Prepared<'a> {
    fn new(problem: &'a MaxMin<'a>) -> Result<Self, SolverError> {
        let types = problem.capacity.len();
        let mut prepared = Self {
            problem,
            entries: Vec::with_capacity(problem.rates.len()),
            starts: Vec::with_capacity(problem.gangs.len() + 1),
            highest: f64::INFINITY,
            reference: f64::INFINITY,
            totals: (problem.capacity.iter().sum(), problem.members.iter().sum()),
            corners: Vec::with_capacity(problem.rates.len()),
        };
        prepared.starts.push(0);
        for (class, row) in problem.rates.chunks_exact(types).enumerate() {
            let start = prepared.entries.len();
            let usable = row.iter().zip(problem.capacity).zip(0..);
            prepared.entries.extend(
                usable
                    .filter(|((rate, gpus), _)| **rate > 0.0 && **gpus > 0.0)
                    .map(|((&rate, _), kind)| (kind, rate)),
            );
            let mine = &mut prepared.entries[start..];
            mine.sort_by(|a, b| a.1.total_cmp(&b.1));
            let Some(&(_, fastest)) = mine.last() else {
                return Err(SolverError::Input {
                    what: "rates",
                    expected: "a positive rate on a type with GPUs for every class",
                });
            };
            prepared.highest = prepared.highest.min(fastest);
            prepared.starts.push(prepared.entries.len());
            let split = prepared.isolated(class);
            let alone: f64 = (0..types)
                .map(|k| row[k] * split * problem.capacity[k])
                .sum();
            prepared.reference = prepared.reference.min(alone);
        }
        for entry in &mut prepared.entries {
            entry.1 /= prepared.reference;
        }
        prepared.highest /= prepared.reference;
        Ok(prepared)
    }

    /// Share per GPU of a type under an equal split, at most all of the time in total.
    fn isolated(&self, class: usize) -> f64 {
        let (gpus, jobs) = self.totals;
        let share = 1.0 / (jobs * self.problem.gangs[class]);
        share / (gpus * share).max(1.0)
    }

    /// What an equal split leaves of each type, as a part of it.
    fn isolated_left(&self) -> Vec<f64> {
        let problem = self.problem;
        let held: f64 = (0..problem.gangs.len())
            .map(|class| self.isolated(class) * problem.gangs[class] * problem.members[class])
            .sum();
        // Types without GPUs have nothing to leave; classes do not use types they cannot run on.
        let left = |gpus: &f64| {
            if *gpus > 0.0 {
                (1.0 - held).max(0.0)
            } else {
                0.0
            }
        };
        problem.capacity.iter().map(left).collect()
    }

    /// All GPUs are worth what an equal split reaches, each type in proportion to its GPUs.
    fn first_prices(&self) -> Vec<f64> {
        let capacity = &self.problem.capacity;
        capacity.iter().map(|own| own / self.totals.0).collect()
    }

    fn hull(&self, class: usize, prices: &[f64], hull: &mut Hull) {
        let gang = self.problem.gangs[class];
        let mine = &self.entries[self.starts[class]..self.starts[class + 1]];
        let points = mine.iter().map(|&(kind, rate)| Corner {
            rate,
            cost: gang * prices[kind as usize] / self.problem.capacity[kind as usize],
            gpu_type: Some(kind),
        });
        lower_hull(points, hull);
    }

    fn evaluate(&mut self, prices: &[f64]) -> Plan {
        let problem = self.problem;
        let mut hull = Hull::new();
        let mut corners = std::mem::take(&mut self.corners);
        corners.clear();
        let mut slope = 0.0;
        for (class, &members) in problem.members.iter().enumerate() {
            self.hull(class, prices, &mut hull);
            let mut before = edge_price(&hull, 1);
            slope += members * before;
            for end in 2..hull.len() {
                if hull[end - 1].rate >= self.highest {
                    break;
                }
                let after = edge_price(&hull, end);
                corners.push((hull[end - 1].rate, members * (after - before)));
                before = after;
            }
        }
        let z = best_rate(&mut corners, slope, self.highest);
        self.corners = corners;
        let mut held = vec![0.0; prices.len()];
        let mut cost = 0.0;
        for (class, &members) in problem.members.iter().enumerate() {
            self.hull(class, prices, &mut hull);
            let gpus = members * problem.gangs[class];
            let (end, weight) = reach(&hull, z);
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

    /// The shares of a mix of plans; plan 0 of the master is the equal split.
    fn shares(&self, mix: &Mix, plans: &[Plan]) -> Vec<f64> {
        let types = self.problem.capacity.len();
        let mut shares = vec![0.0; self.problem.rates.len()];
        let mut hull = Hull::new();
        for &(plan, weight) in &mix.weights {
            for (class, row) in shares.chunks_exact_mut(types).enumerate() {
                let Some(plan) = plan.checked_sub(1).map(|index| &plans[index]) else {
                    let split = self.isolated(class);
                    for &(kind, _) in &self.entries[self.starts[class]..self.starts[class + 1]] {
                        row[kind as usize] += weight * split * self.problem.capacity[kind as usize];
                    }
                    continue;
                };
                self.hull(class, &plan.prices, &mut hull);
                let (end, part) = reach(&hull, plan.z);
                for (corner, part) in [(hull[end - 1], 1.0 - part), (hull[end], part)] {
                    if let Some(kind) = corner.gpu_type {
                        row[kind as usize] += weight * part;
                    }
                }
            }
        }
        shares
    }
}

/// The rate at which slopes, started at `slope` and raised at each corner, reach 1; at most `highest`.
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
