//! Water filling by prices: levels rise together, a class that cannot rise stays, the others go on.
//!
//! What is asked of each class at height c is `min(start + c x speed, top)`: a class at its top, all of its
//! time on its fastest type, simply stays there. The largest c is found from above: if the levels asked at
//! some c are out of reach, max-min finds prices at which they cost more than all GPUs are worth, and the
//! largest c that is not too dear at these prices is the next trial. That is Newton's method on a concave
//! curve of straight pieces, and takes a few steps. A class that must pay for a higher level at the last prices is
//! at its bottleneck; each stage has one at least. Stages are as many as GPU types that fill up one after the
//! other, not as many as different levels.

use super::dual::{MaxMin, PriceSolution, SolverError};
use super::frontier::{Corner, Hull, lower_hull};

/// Levels that are reached up to this are reached.
const REACHED: f64 = 1e-9;
/// Levels that are reached up to this only were not found.
const NOISE: f64 = 1e-7;
/// Gap of each max-min, and where rounding stands in its way.
const GAP: f64 = 1e-10;
const WIDE_GAP: f64 = 1e-9;
/// What counts as paying: a part of what the class that pays most does. Noise in prices is below it, and
/// a class that pays less is asked again in the next stage, among those that are left.
const PAYS: f64 = 1e-4;
/// Prices below this part of the dearest are noise: those of types that are not full.
const NO_PRICE: f64 = 1e-6;
/// Trials of one stage; 3 to 6 are usual.
const TRIALS: u32 = 100;

/// Water filling; tables are row by row, `classes x types`.
#[derive(Clone, Copy, Debug)]
pub struct Filling<'a> {
    /// The level that all of the time on a type gives; 0 where a class cannot run.
    pub rates: &'a [f64],
    /// GPUs of one job.
    pub gangs: &'a [f64],
    /// Jobs of each class.
    pub members: &'a [f64],
    /// GPUs of each type.
    pub capacity: &'a [f64],
    /// How fast levels rise, one beside the other.
    pub speed: &'a [f64],
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Levels {
    /// Level of each class.
    pub levels: Vec<f64>,
    /// Shares of one job of each class that reach them, `classes x types`.
    pub shares: Vec<f64>,
    /// Max-min programs that were solved.
    pub programs: u32,
    /// Plans that these looked at.
    pub evaluations: u32,
}

/// How far it has come.
struct Water<'a> {
    problem: &'a Filling<'a>,
    start: Vec<f64>,
    top: Vec<f64>,
    is_done: Vec<bool>,
    asked: Vec<f64>,
    scaled: Vec<f64>,
    programs: u32,
    evaluations: u32,
}

impl Filling<'_> {
    /// Fills.
    ///
    /// # Errors
    /// [`SolverError`] if a table is wrong or the price method does not converge.
    pub fn solve(&self, evaluations: u32) -> Result<Levels, SolverError> {
        let classes = self.gangs.len();
        let is_fine = |speed: &f64| speed.is_finite() && *speed > 0.0;
        if self.speed.len() != classes || !self.speed.iter().all(is_fine) {
            return Err(SolverError::Input {
                what: "speed",
                expected: "a number > 0 for each class",
            });
        }
        let mut water = Water::new(self);
        while !water.is_done.iter().all(|done| *done) {
            water.stage(evaluations)?;
        }
        water.asked.clone_from(&water.start);
        let found = water.reach(evaluations)?;
        Ok(Levels {
            levels: water.start,
            shares: found.shares,
            programs: water.programs,
            evaluations: water.evaluations,
        })
    }
}

impl<'a> Water<'a> {
    fn new(problem: &'a Filling<'a>) -> Self {
        let types = problem.capacity.len();
        let top = problem.rates.chunks_exact(types).map(|row| {
            let usable = row.iter().zip(problem.capacity);
            usable
                .filter(|(_, gpus)| **gpus > 0.0)
                .fold(0.0, |top: f64, (rate, _)| top.max(*rate))
        });
        let classes = problem.gangs.len();
        Self {
            top: top.collect(),
            problem,
            start: vec![0.0; classes],
            is_done: vec![false; classes],
            asked: vec![0.0; classes],
            scaled: Vec::new(),
            programs: 0,
            evaluations: 0,
        }
    }

    /// Raises all that can rise as far as they can rise together.
    fn stage(&mut self, evaluations: u32) -> Result<(), SolverError> {
        let classes = 0..self.start.len();
        let full = |class: usize| (self.top[class] - self.start[class]) / self.problem.speed[class];
        let left = classes.clone().filter(|&class| !self.is_done[class]);
        let mut height = left.map(full).fold(0.0, f64::max);
        let mut prices: Option<Vec<f64>> = None;
        let mut part = 0.0;
        for _ in 0..TRIALS {
            self.asked = self.levels_at(height);
            let found = self.reach(evaluations)?;
            part = found.z.min(1.0);
            if part >= 1.0 - REACHED {
                break;
            }
            let lower = self.affordable(&found.prices, height);
            prices = Some(found.prices);
            if lower >= height {
                break; // the rest is noise
            }
            height = lower;
        }
        if part < 1.0 - NOISE {
            let gap = 1.0 - part;
            return Err(SolverError::Gap { gap, evaluations });
        }
        self.stop(prices.as_deref())?;
        // What is reached for certain: no prices then call it too dear.
        for (start, asked) in self.start.iter_mut().zip(&self.asked) {
            *start = asked * part;
        }
        Ok(())
    }

    fn level(&self, class: usize, height: f64) -> f64 {
        if self.is_done[class] {
            return self.start[class];
        }
        (self.start[class] + height * self.problem.speed[class]).min(self.top[class])
    }

    fn levels_at(&self, height: f64) -> Vec<f64> {
        (0..self.start.len())
            .map(|class| self.level(class, height))
            .collect()
    }

    /// Which part of the levels that are asked can be reached by all.
    fn reach(&mut self, evaluations: u32) -> Result<PriceSolution, SolverError> {
        let problem = self.problem;
        let types = problem.capacity.len();
        self.scaled.clear();
        let rows = problem.rates.chunks_exact(types).zip(&self.asked);
        // a class that was not lifted yet asks for nothing, however fast it is
        self.scaled.extend(
            rows.flat_map(|(row, level)| row.iter().map(move |rate| rate / level.max(1e-300))),
        );
        let program = MaxMin {
            rates: &self.scaled,
            gangs: problem.gangs,
            members: problem.members,
            capacity: problem.capacity,
        };
        let found = program
            .solve(GAP, evaluations)
            .or_else(|_| program.solve(WIDE_GAP, evaluations))?;
        self.programs += 1;
        self.evaluations += found.evaluations;
        Ok(found)
    }

    fn hull(&self, class: usize, prices: &[f64], hull: &mut Hull) {
        let problem = self.problem;
        let types = problem.capacity.len();
        let row = &problem.rates[class * types..(class + 1) * types];
        let mut points: smallvec::SmallVec<[Corner; 8]> = (0..types)
            .filter(|&kind| row[kind] > 0.0 && problem.capacity[kind] > 0.0)
            .map(|kind| Corner {
                rate: row[kind],
                cost: problem.gangs[class] * prices[kind].max(0.0) / problem.capacity[kind],
                gpu_type: Some(kind as u32),
            })
            .collect();
        points.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        lower_hull(points.into_iter(), hull);
    }

    /// The largest height below `high` whose levels cost no more than all GPUs are worth.
    fn affordable(&self, prices: &[f64], high: f64) -> f64 {
        let hulls: Vec<Hull> = (0..self.start.len())
            .map(|class| {
                let mut hull = Hull::new();
                self.hull(class, prices, &mut hull);
                hull
            })
            .collect();
        let pairs = prices.iter().zip(self.problem.capacity);
        let worth: f64 = pairs
            .filter(|(_, gpus)| **gpus > 0.0)
            .map(|(price, _)| price.max(0.0))
            .sum::<f64>()
            * (1.0 + GAP); // where nothing but noise is dear, levels still rise
        let over = |height: f64| {
            let (mut cost, mut slope) = (0.0, 0.0);
            for (class, hull) in hulls.iter().enumerate() {
                let level = self.level(class, height);
                let (own, rise) = cost_of(hull, level);
                let members = self.problem.members[class];
                cost += members * own;
                if !self.is_done[class] && level < self.top[class] {
                    slope += members * rise * self.problem.speed[class];
                }
            }
            (cost - worth, slope)
        };
        let (mut low, mut high) = (0.0, high);
        let mut trial = high;
        for _ in 0..TRIALS {
            let (excess, slope) = over(trial);
            if excess > 0.0 {
                high = trial;
            } else {
                low = trial;
            }
            let newton = trial - excess / slope;
            if (newton - trial).abs() <= 1e-15 * high {
                return newton.clamp(low, high);
            }
            let inside = newton > low && newton < high;
            let next = if inside {
                newton
            } else {
                f64::midpoint(low, high)
            };
            if next.to_bits() == trial.to_bits() {
                break;
            }
            trial = next;
        }
        low
    }

    /// Marks what cannot rise: classes at their top, and those that would have to pay for more.
    fn stop(&mut self, prices: Option<&[f64]>) -> Result<(), SolverError> {
        let mut found = false;
        for class in 0..self.start.len() {
            let (level, top) = (self.asked[class], self.top[class]);
            if !self.is_done[class] && level >= top * (1.0 - REACHED) {
                self.is_done[class] = true;
                found = true;
            }
        }
        let Some(prices) = prices else {
            return Ok(());
        };
        let dearest = prices.iter().copied().fold(0.0, f64::max);
        let is_noise = |price: f64| price <= NO_PRICE * dearest;
        let clean: Vec<f64> = prices
            .iter()
            .map(|&price| if is_noise(price) { 0.0 } else { price })
            .collect();
        // a class that stands at a corner of its hull may seem to be just below it
        for beyond in [1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4] {
            let pays = self.payers(&clean, 1.0 + beyond);
            let most = pays.iter().copied().fold(0.0, f64::max);
            for (done, paid) in self.is_done.iter_mut().zip(pays) {
                if paid > PAYS * most {
                    *done = true;
                    found = true;
                }
            }
            if found {
                return Ok(());
            }
        }
        Err(SolverError::Stuck {
            left: self.is_done.iter().filter(|done| !**done).count(),
        })
    }

    /// What a little more would cost each class that is not done, at these times its level.
    fn payers(&self, prices: &[f64], times: f64) -> Vec<f64> {
        let mut hull = Hull::new();
        let classes = 0..self.start.len();
        classes
            .map(|class| {
                if self.is_done[class] {
                    return 0.0;
                }
                self.hull(class, prices, &mut hull);
                cost_of(&hull, self.asked[class] * times).1 * self.problem.speed[class]
            })
            .collect()
    }
}

/// The least cost of a level, and of more of it, on a hull.
fn cost_of(hull: &Hull, level: f64) -> (f64, f64) {
    let end = (1..hull.len())
        .find(|&end| hull[end].rate > level)
        .unwrap_or(hull.len() - 1);
    let (left, right) = (hull[end - 1], hull[end]);
    let rise = (right.cost - left.cost) / (right.rate - left.rate);
    (left.cost + (level - left.rate) * rise, rise)
}
