//! Solves the finish-time fairness program with prices: finds the smallest rho at which every job can finish in time.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | `t_c`, `r_c` | `age_s`, `remaining` | time since arrival in seconds, steps left |
//! | `D_c` | `fair_s` | time in seconds from arrival to the end under an equal split |
//! | `rho` | `rho` | the largest `(t + r / rate) / D` |
//!
//! A given rho requires the rate `r / (rho D - t)` from each class. The search approaches the smallest rho from below,
//! starting at the largest rho that a job would have if each job ran at its fastest rate. If the required rates are out
//! of reach, the max-min program finds prices at which these rates cost more than all GPUs are worth. The next trial is
//! the smallest rho whose rates are affordable at these prices. The cost is a convex function of rho, so this is
//! Newton's method, and it never overshoots. No trial exceeds the smallest rho that a plan can reach, so the first
//! feasible trial is optimal.

use super::choose::Pair;
use super::dual::{Market, MaxMin, Until};
use super::frontier::cost_of;
use super::model::SolverError;
use super::search::affordable;

/// Maximum number of trials; 3 to 8 trials are usual.
pub(crate) const TRIALS: u32 = 100;
/// Two values of rho count as equal if their relative difference is at most this.
const CLOSE: f64 = 1e-8;
/// Minimum rate of a class, relative to its fastest rate. A program could not distinguish a smaller rate from zero.
const LEAST_TIME: f64 = 1e-8;

/// A program. Tables are row-major, `classes x types`.
#[derive(Clone, Copy, Debug)]
pub struct Fairness<'a> {
    /// Rates; 0 where a class cannot run.
    pub rates: &'a [f64],
    /// Gang size of the jobs in each class.
    pub gangs: &'a [f64],
    /// Number of jobs in each class.
    pub members: &'a [f64],
    /// Number of GPUs of each type.
    pub capacity: &'a [f64],
    /// Time in seconds since arrival.
    pub age_s: &'a [f64],
    /// Number of steps left, > 0.
    pub remaining: &'a [f64],
    /// Time in seconds from arrival to the end under an equal split, > 0.
    pub fair_s: &'a [f64],
}

/// Result of the search.
#[derive(Clone, Debug)]
pub struct Fair {
    /// The largest rho of the plan.
    pub rho: f64,
    /// Lower bound on rho over all plans.
    pub bound: f64,
    /// Shares of one job of each class, `classes x types`.
    pub shares: Vec<f64>,
    /// Rate that rho requires from one job of each class; the plan reaches all of these rates.
    pub asked: Vec<f64>,
    /// Prices that prove the bound: for each type, the price of all its GPUs.
    pub prices: Vec<f64>,
    /// Number of max-min programs that were solved.
    pub programs: u32,
    /// Number of plans that these programs evaluated.
    pub evaluations: u32,
}

impl Fairness<'_> {
    /// Finds the smallest rho.
    ///
    /// # Errors
    /// Returns [`SolverError`] if a table is invalid or the price method does not converge.
    ///
    /// # Examples
    /// ```
    /// use gangline_allocation::Fairness;
    /// // Two equal jobs share one GPU, and one of them is 10 s old: (10 + 5 / x) / 20 equals 5 / (1 - x) / 10.
    /// let one = [1.0, 1.0];
    /// let found = Fairness {
    ///     rates: &one, gangs: &one, members: &one, capacity: &[1.0],
    ///     age_s: &[10.0, 0.0], remaining: &[5.0, 5.0], fair_s: &[20.0, 10.0],
    /// };
    /// let found = found.solve(1_000).unwrap();
    /// let x = found.shares[0];
    /// assert!(((10.0 + 5.0 / x) / 20.0 - 5.0 / (1.0 - x) / 10.0).abs() < 1e-7);
    /// ```
    pub fn solve(&self, evaluations: u32) -> Result<Fair, SolverError> {
        self.check()?;
        let program = MaxMin {
            rates: self.rates,
            gangs: self.gangs,
            members: self.members,
            capacity: self.capacity,
        };
        let mut market = Market::new(&program)?;
        let dearest = self.largest(&market.split);
        let mut bound = self.largest(&market.fastest).min(dearest);
        let (mut programs, mut looked_at) = (0, 0);
        let mut prices: Option<Vec<f64>> = None;
        let found = loop {
            let asked = self.asked(bound, &market.fastest);
            let met = market.most(&asked, prices.as_deref(), Until::Known, evaluations)?;
            programs += 1;
            looked_at += met.evaluations;
            if met.is_all() || programs == TRIALS {
                break met;
            }
            let next = self.affordable(&mut market, &met.prices, bound, dearest);
            if next <= bound {
                break met; // The remaining difference is noise.
            }
            bound = next;
            prices = Some(met.prices);
        };
        let shares = market.shares(&found);
        let types = self.capacity.len();
        let rows = self
            .rates
            .chunks_exact(types)
            .zip(shares.chunks_exact(types));
        let rates = rows.map(|(own, x)| own.iter().zip(x).map(|(rate, x)| rate * x).sum());
        let rho = self.largest(&rates.collect::<Vec<f64>>());
        let gap = 1.0 - bound / rho;
        if gap > CLOSE {
            return Err(SolverError::Gap { gap, evaluations });
        }
        Ok(Fair {
            asked: self.asked(rho, &market.fastest),
            rho,
            bound,
            shares,
            prices: found.prices,
            programs,
            evaluations: looked_at,
        })
    }

    /// Returns the largest rate that a job of each class can reach, alone or with a co-runner.
    pub(crate) fn fastest(&self, pairs: &[Pair]) -> Vec<f64> {
        let rows = self.rates.chunks_exact(self.capacity.len());
        let mut fastest: Vec<f64> = rows
            .map(|row| {
                let usable = row.iter().zip(self.capacity).filter(|own| *own.1 > 0.0);
                usable.fold(0.0_f64, |most, (rate, _)| most.max(*rate))
            })
            .collect();
        for pair in pairs {
            for (class, rate) in pair.classes.into_iter().zip(pair.rates) {
                fastest[class] = fastest[class].max(rate);
            }
        }
        fastest
    }

    fn check(&self) -> Result<(), SolverError> {
        let classes = self.gangs.len();
        let is_column = |column: &[f64], least: f64| {
            column.len() == classes && column.iter().all(|own| own.is_finite() && *own >= least)
        };
        let positive = f64::MIN_POSITIVE;
        if is_column(self.age_s, 0.0)
            && is_column(self.remaining, positive)
            && is_column(self.fair_s, positive)
        {
            return Ok(());
        }
        Err(SolverError::Input {
            what: "age_s, remaining and fair_s",
            expected: "one finite number per class, at least 0 in age_s and above 0 in remaining and fair_s",
        })
    }

    /// Returns the largest rho at given rates.
    pub(crate) fn largest(&self, rates: &[f64]) -> f64 {
        let each = self.age_s.iter().zip(self.remaining).zip(self.fair_s);
        let rho = each.zip(rates);
        let rho = rho.map(|(((age, left), fair), rate)| (age + left / rate) / fair);
        rho.fold(0.0, f64::max)
    }

    /// Returns the rate that a class needs for the given rho, and the derivative of this rate with respect to rho.
    pub(crate) fn rate(&self, class: usize, rho: f64, fastest: f64) -> (f64, f64) {
        let (left, fair) = (self.remaining[class], self.fair_s[class]);
        let rate = left / (rho * fair - self.age_s[class]);
        if rate > fastest || rate < 0.0 {
            (fastest, 0.0) // Only rounding gives a higher rate: the age hides the remaining time.
        } else if rate < LEAST_TIME * fastest {
            (LEAST_TIME * fastest, 0.0)
        } else {
            (rate, -rate * rate * fair / left)
        }
    }

    /// Returns the rate that each class needs for the given rho.
    pub(crate) fn asked(&self, rho: f64, fastest: &[f64]) -> Vec<f64> {
        let each = fastest.iter().enumerate();
        each.map(|(class, &fastest)| self.rate(class, rho, fastest).0)
            .collect()
    }

    /// Returns the smallest rho whose rates cost no more than all GPUs are worth.
    fn affordable(&self, market: &mut Market<'_>, prices: &[f64], dear: f64, cheap: f64) -> f64 {
        market.set_hulls(prices);
        let worth: f64 = prices.iter().sum();
        affordable(dear, cheap, |rho| {
            let (mut cost, mut slope) = (0.0, 0.0);
            for (class, members) in self.members.iter().enumerate() {
                let (rate, change) = self.rate(class, rho, market.fastest[class]);
                let (own, rise) = cost_of(market.hulls.of(class), rate);
                cost += members * own;
                slope += members * rise * change;
            }
            (cost - worth, slope)
        })
    }
}
