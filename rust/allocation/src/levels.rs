//! Water filling by prices: levels rise together, a class that cannot rise stays, the others go on.
//!
//! What is asked of each class at height c is `min(start + c x speed, top)`: a class at its top, all of its
//! time on its fastest type, simply stays there. The largest c is found from above: if the levels asked at
//! some c are out of reach, max-min finds prices at which they cost more than all GPUs are worth, and the
//! largest c that is not too dear at these prices is the next trial. That is Newton's method on a concave
//! curve of straight pieces, and takes a few steps. A class that must pay for a higher level at the last prices is
//! at its bottleneck; each stage has one at least. Stages are as many as GPU types that fill up one after the
//! other, not as many as different levels.

use super::dual::{Market, MaxMin, Met, SolverError, Until};
use super::frontier::cost_of;
use super::search::affordable;

/// Levels that are reached up to this are reached.
const REACHED: f64 = 1e-9;
/// Levels that are reached up to this only were not found.
const NOISE: f64 = 1e-7;
/// Costs closer than this, as a part of what all GPUs are worth, are equal.
const NOTHING: f64 = 1e-10;
/// What counts as paying: a part of what the class that pays most does, for as much of its fastest rate. Noise in
/// prices is below it, and a class that pays less is asked again in the next stage, among those that are left.
const PAYS: f64 = 1e-2;
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
    /// Prices of all GPUs of each type at which no class reaches more for less.
    pub prices: Vec<f64>,
    /// Max-min programs that were solved.
    pub programs: u32,
    /// Plans that these looked at.
    pub evaluations: u32,
}

/// How far it has come.
struct Water<'a> {
    problem: &'a Filling<'a>,
    market: Market<'a>,
    start: Vec<f64>,
    is_done: Vec<bool>,
    asked: Vec<f64>,
    /// At which the last levels that were out of reach were too dear; none at first.
    prices: Vec<f64>,
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
        let program = MaxMin {
            rates: self.rates,
            gangs: self.gangs,
            members: self.members,
            capacity: self.capacity,
        };
        let mut water = Water {
            problem: self,
            market: Market::new(&program)?,
            start: vec![0.0; classes],
            is_done: vec![false; classes],
            asked: vec![0.0; classes],
            prices: Vec::new(),
            programs: 0,
            evaluations: 0,
        };
        while !water.is_done.iter().all(|done| *done) {
            water.stage(evaluations)?;
        }
        water.asked.clone_from(&water.start);
        let found = water.reach(evaluations)?;
        Ok(Levels {
            shares: water.market.shares(&found),
            prices: water.prices,
            levels: water.start,
            programs: water.programs,
            evaluations: water.evaluations,
        })
    }
}

impl Water<'_> {
    /// Raises all that can rise as far as they can rise together; where only noise in prices stops them, without it.
    fn stage(&mut self, evaluations: u32) -> Result<(), SolverError> {
        for is_clean in [false, true] {
            if self.rise(evaluations, is_clean)? {
                return Ok(());
            }
        }
        let left = self.is_done.iter().filter(|done| !**done).count();
        Err(SolverError::Stuck { left })
    }

    /// Whether that brought a class to its top or to its bottleneck.
    fn rise(&mut self, evaluations: u32, is_clean: bool) -> Result<bool, SolverError> {
        let classes = 0..self.start.len();
        let full = |class: usize| {
            (self.market.fastest[class] - self.start[class]) / self.problem.speed[class]
        };
        let left = classes.clone().filter(|&class| !self.is_done[class]);
        let mut height = left.map(full).fold(0.0, f64::max);
        let (mut part, mut is_dear) = (0.0, false);
        for _ in 0..TRIALS {
            self.asked = self.levels_at(height);
            let found = self.reach(evaluations)?;
            part = found.z.min(1.0);
            if part >= 1.0 - REACHED {
                break;
            }
            let lower = self.affordable(&found.prices, height, is_clean);
            (self.prices, is_dear) = (found.prices, true);
            if lower >= height {
                break; // the rest is noise
            }
            height = lower;
        }
        if part < 1.0 - NOISE {
            let gap = 1.0 - part;
            return Err(SolverError::Gap { gap, evaluations });
        }
        if !self.stop(is_dear) {
            return Ok(false);
        }
        // What is reached for certain: no prices then call it too dear.
        for (start, asked) in self.start.iter_mut().zip(&self.asked) {
            *start = asked * part;
        }
        Ok(true)
    }

    fn level(&self, class: usize, height: f64) -> f64 {
        if self.is_done[class] {
            return self.start[class];
        }
        (self.start[class] + height * self.problem.speed[class]).min(self.market.fastest[class])
    }

    fn levels_at(&self, height: f64) -> Vec<f64> {
        (0..self.start.len())
            .map(|class| self.level(class, height))
            .collect()
    }

    /// Which part of the levels that are asked can be reached by all.
    fn reach(&mut self, evaluations: u32) -> Result<Met, SolverError> {
        // a class that was not lifted yet asks for nothing
        let asked: Vec<f64> = self.asked.iter().map(|level| level.max(1e-300)).collect();
        let start = Some(self.prices.as_slice()).filter(|prices| !prices.is_empty());
        let found = self.market.most(&asked, start, Until::Known, evaluations)?;
        self.programs += 1;
        self.evaluations += found.evaluations;
        Ok(found)
    }

    /// The largest height below `high` whose levels cost no more than all GPUs are worth.
    ///
    /// Levels that are reached are never too dear but by noise, and without it such a class rises until it pays.
    fn affordable(&mut self, prices: &[f64], high: f64, is_clean: bool) -> f64 {
        let prices = if is_clean {
            without_noise(prices)
        } else {
            prices.to_vec()
        };
        self.market.set_hulls(&prices);
        let cost = |height: f64| {
            let (mut cost, mut slope) = (0.0, 0.0);
            for (class, members) in self.problem.members.iter().enumerate() {
                let level = self.level(class, height);
                let (own, rise) = cost_of(self.market.hulls.of(class), level);
                cost += members * own;
                if !self.is_done[class] && level < self.market.fastest[class] {
                    slope += members * rise * self.problem.speed[class];
                }
            }
            (cost, slope)
        };
        let mut worth: f64 = prices.iter().sum();
        if is_clean {
            worth = worth.max(cost(0.0).0);
        }
        // where nothing but noise is dear, levels still rise
        worth *= 1.0 + NOTHING;
        affordable(high, 0.0, |height| {
            let (cost, slope) = cost(height);
            (cost - worth, slope)
        })
    }

    /// Marks what cannot rise: classes at their top, and those that would have to pay for more; whether there are any.
    fn stop(&mut self, is_dear: bool) -> bool {
        let mut found = false;
        for class in 0..self.start.len() {
            let (level, top) = (self.asked[class], self.market.fastest[class]);
            if !self.is_done[class] && level >= top * (1.0 - REACHED) {
                self.is_done[class] = true;
                found = true;
            }
        }
        if !is_dear {
            return found;
        }
        self.market.set_hulls(&without_noise(&self.prices));
        // a class that stands at a corner of its hull may seem to be just below it
        for beyond in [1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4] {
            let pays = self.payers(1.0 + beyond);
            let most = pays.iter().copied().fold(0.0, f64::max);
            for (done, paid) in self.is_done.iter_mut().zip(pays) {
                if paid > PAYS * most {
                    *done = true;
                    found = true;
                }
            }
            if found {
                break;
            }
        }
        found
    }

    /// What a little more would cost each class that is not done, at these times its level: per unit of its fastest rate,
    /// so that neither weights nor units of rates count.
    fn payers(&self, times: f64) -> Vec<f64> {
        let more = |class: usize| {
            if self.is_done[class] {
                return 0.0;
            }
            let level = self.asked[class] * times;
            cost_of(self.market.hulls.of(class), level).1 * self.market.fastest[class]
        };
        (0..self.start.len()).map(more).collect()
    }
}

/// Prices but those of types that are not full.
fn without_noise(prices: &[f64]) -> Vec<f64> {
    let dearest = prices.iter().copied().fold(0.0, f64::max);
    let is_noise = |price: f64| price <= NO_PRICE * dearest;
    let clean = prices.iter().copied();
    clean
        .map(|price| if is_noise(price) { 0.0 } else { price })
        .collect()
}
