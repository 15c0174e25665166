//! Max-min fairness in two stages. The price method finds the largest minimum rate. A simplex method then finds the
//! optimal plan that preserves this rate; this plan is a vertex.

use super::choose::{Choose, Chosen, Pair};
use super::dual::MaxMin;
use super::model::SolverError;

/// Fraction of the first objective that the second stage may give up. The value is too small to change any comparison
/// of plans, but larger than rounding noise.
const SLACK: f64 = 1e-9;
/// A class that needs less than this fraction of its time to meet the objective gets this fraction as its floor.
const LEAST_TIME: f64 = 1e-8;
/// Relative gap of the prices. Plans are mixed until no plan improves the mix, so the bounds usually agree to the last
/// digits.
const GAP: f64 = 1e-13;
/// Factor by which the prices outweigh the gains in the initial plan of the second stage.
pub(crate) const DEAR: f64 = 1e4;

/// A max-min program, including the choice among its optima. Tables are row-major, `classes x types`.
#[derive(Clone, Copy, Debug)]
pub struct TwoStages<'a> {
    /// Rates; 0 where a class cannot run.
    pub rates: &'a [f64],
    /// Factor by which the objective multiplies the rate of each class.
    pub measure: &'a [f64],
    /// Factor by which the second stage multiplies the rate of each class.
    pub worth: &'a [f64],
    /// Gang size of the jobs in each class.
    pub gangs: &'a [f64],
    /// Number of jobs in each class.
    pub members: &'a [f64],
    /// Number of GPUs of each type.
    pub capacity: &'a [f64],
    /// Pairs of classes that may share GPUs, sorted by the first class; the gain of a pair is its worth.
    pub pairs: &'a [Pair],
}

/// Result of both stages.
#[derive(Clone, Debug)]
pub struct Staged {
    /// The smallest `measure x rate`.
    pub z: f64,
    /// Shares of one job of each class, `classes x types`.
    pub shares: Vec<f64>,
    /// Time that each pair spends together, in job-seconds per second.
    pub together: Vec<f64>,
    /// Weight of each class in the bound on z, if there are pairs. The weights add up to 1.
    pub weights: Vec<f64>,
    /// Number of plans that the prices evaluated, plus simplex steps.
    pub iterations: u32,
}

impl TwoStages<'_> {
    /// Solves both stages.
    ///
    /// # Errors
    /// Returns [`SolverError`] if a table is invalid, prices do not converge or no vertex is found.
    ///
    /// # Examples
    /// ```
    /// use gangline_allocation::TwoStages;
    /// let one = [1.0, 1.0];
    /// let found = TwoStages {
    ///     rates: &[2.0, 4.0], measure: &one, worth: &one, gangs: &one, members: &one, capacity: &[1.0],
    ///     pairs: &[],
    /// };
    /// let found = found.solve(1_000).unwrap();
    /// assert!((found.z - 4.0 / 3.0).abs() < 1e-12);
    /// ```
    pub fn solve(&self, evaluations: u32) -> Result<Staged, SolverError> {
        let types = self.capacity.len();
        let mut asked = self.measure.to_vec();
        let (mut z, mut prices, mut iterations) = self.first_stage(&asked, evaluations)?;
        let reached = z;
        let fastest = self.rates.chunks_exact(types).map(|row| {
            let usable = row
                .iter()
                .zip(self.capacity)
                .filter(|(_, gpus)| **gpus > 0.0);
            usable.fold(0.0_f64, |most, (rate, _)| most.max(*rate))
        });
        let mut is_lowered = false;
        for (own, fastest) in asked.iter_mut().zip(fastest) {
            let most = reached / LEAST_TIME / fastest;
            if *own > most {
                *own = most;
                is_lowered = true;
            }
        }
        if is_lowered {
            let more;
            (z, prices, more) = self.first_stage(&asked, evaluations)?;
            iterations += more;
        }
        let floors: Vec<f64> = asked.iter().map(|own| z / own).collect();
        let packs = !self.pairs.is_empty();
        let chosen = self.second_stage(&floors, &prices, packs)?;
        Ok(Staged {
            // The price method does not include pairs, so the floors begin to rise at its result.
            z: if packs {
                z * (1.0 - SLACK) * (1.0 + chosen.value)
            } else {
                reached
            },
            shares: chosen.shares,
            together: chosen.together,
            weights: chosen.weights,
            iterations: iterations + chosen.steps,
        })
    }

    /// Returns the plan with the largest worth among those above the floors. The floors are lowered by a negligible
    /// fraction; if `rises` is set, they then rise together as far as they can. `prices` shows where GPUs are scarce.
    pub(crate) fn second_stage(
        &self,
        floors: &[f64],
        prices: &[f64],
        rises: bool,
    ) -> Result<Chosen, SolverError> {
        let floors: Vec<f64> = floors.iter().map(|own| own * (1.0 - SLACK)).collect();
        let all: f64 = prices.iter().sum();
        let times = DEAR * self.gangs.len() as f64 / all.max(f64::MIN_POSITIVE);
        let prices: Vec<f64> = prices.iter().map(|price| price * times).collect();
        let program = Choose {
            rates: self.rates,
            gains: &by_class(self.rates, self.worth),
            then: None,
            gangs: self.gangs,
            members: self.members,
            capacity: self.capacity,
            floors: &floors,
            prices: &prices,
            pairs: self.pairs,
            rises,
        };
        let mut chosen = program.solve()?;
        within(
            &mut chosen.shares,
            &mut chosen.together,
            self.pairs,
            self.gangs,
            self.members,
            self.capacity,
        );
        Ok(chosen)
    }

    /// Returns the objective that the best plan reaches, the prices that prove it, and the number of plans evaluated.
    fn first_stage(
        &self,
        measure: &[f64],
        evaluations: u32,
    ) -> Result<(f64, Vec<f64>, u32), SolverError> {
        let rates = by_class(self.rates, measure);
        let program = MaxMin {
            rates: &rates,
            gangs: self.gangs,
            members: self.members,
            capacity: self.capacity,
        };
        let mut found = program.solve(GAP, evaluations)?;
        let (gangs, members) = (self.gangs, self.members);
        within(
            &mut found.shares,
            &mut [],
            &[],
            gangs,
            members,
            self.capacity,
        );
        let types = self.capacity.len();
        let rows = rates
            .chunks_exact(types)
            .zip(found.shares.chunks_exact(types));
        let reached =
            rows.map(|(rates, shares)| rates.iter().zip(shares).map(|(a, x)| a * x).sum());
        let z = reached.fold(f64::INFINITY, f64::min);
        Ok((z, found.prices, found.evaluations))
    }
}

/// Returns a table after multiplying each row by a number for its class.
pub(crate) fn by_class(table: &[f64], times: &[f64]) -> Vec<f64> {
    let types = table.len() / times.len().max(1);
    let rows = table.chunks_exact(types.max(1)).zip(times);
    rows.flat_map(|(row, times)| row.iter().map(move |value| value * times))
        .collect()
}

/// Moves a plan and the time of its pairs back inside the bounds, which they may exceed because of rounding errors.
pub fn within(
    shares: &mut [f64],
    together: &mut [f64],
    pairs: &[Pair],
    gangs: &[f64],
    members: &[f64],
    capacity: &[f64],
) {
    let types = capacity.len();
    let (mut held, mut busy) = (vec![0.0; types], vec![0.0; gangs.len()]);
    for (class, row) in shares.chunks_exact_mut(types).enumerate() {
        for (share, held) in row.iter_mut().zip(&mut held) {
            *share = share.max(0.0);
            *held += gangs[class] * members[class] * *share;
            busy[class] += *share;
        }
    }
    for (pair, time) in pairs.iter().zip(&mut *together) {
        *time = time.max(0.0);
        held[pair.gpu_type] += gangs[pair.classes[0]] * *time;
        for class in pair.classes {
            busy[class] += *time / members[class];
        }
    }
    for (held, gpus) in held.iter_mut().zip(capacity) {
        *held = if *gpus > 0.0 {
            (*held / gpus).max(1.0)
        } else {
            1.0
        };
    }
    for (row, busy) in shares.chunks_exact_mut(types).zip(&busy) {
        for (share, over) in row.iter_mut().zip(&held) {
            *share /= over.max(*busy);
        }
    }
    for (pair, time) in pairs.iter().zip(together) {
        let [one, other] = pair.classes.map(|class| busy[class]);
        *time /= held[pair.gpu_type].max(one).max(other);
    }
}
