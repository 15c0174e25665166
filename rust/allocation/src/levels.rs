//! Water filling: all levels rise together; a class that cannot rise further stops, and the others continue.
//!
//! A single simplex solver performs all rises, and each rise starts from the final basis of the previous rise. The
//! multipliers come from a vertex and not from a search, so they are exact up to rounding, even if rates or weights
//! span many orders of magnitude. The classes with the largest multipliers limit the level. A class with a small
//! multiplier continues; the next rise shows whether it can rise.

use super::choose::{Choose, Chosen, Pair};
use super::model::SolverError;
use super::program::DEAR;

/// A water-filling problem. Tables are row-major, `classes x types`.
#[derive(Clone, Copy)]
pub struct Filling<'a> {
    /// For each class and type, the level that the class reaches if it spends all of its time on the type; 0 where it
    /// cannot run.
    pub rates: &'a [f64],
    /// Gang size of the jobs in each class.
    pub gangs: &'a [f64],
    /// Number of jobs in each class.
    pub members: &'a [f64],
    /// Number of GPUs of each type.
    pub capacity: &'a [f64],
    /// Pairs of classes that may share GPUs; the rates of a pair are levels as well.
    pub pairs: &'a [Pair],
    /// Function that returns the relative speed at which the level of each class rises; 0 for a class that must wait.
    /// Its argument says, for each class, whether the level can rise no further.
    pub speeds: &'a dyn Fn(&[bool]) -> Vec<f64>,
    /// Whether each class has a constant speed for as long as its level can rise.
    pub is_even: bool,
}

/// Result of water filling.
#[derive(Clone, Debug)]
pub struct Levels {
    /// Level of each class.
    pub levels: Vec<f64>,
    /// Number of rises.
    pub rises: u32,
    /// Number of simplex steps.
    pub steps: u32,
    /// The plan with the largest gain among those that reach the levels; `None` if there are no pairs and speeds do not
    /// change, because other methods can then find this plan.
    pub plan: Option<Chosen>,
}

impl Filling<'_> {
    /// Computes the levels.
    ///
    /// # Errors
    /// Returns [`SolverError`] if a table is invalid or the simplex method does not end.
    pub fn solve(&self) -> Result<Levels, SolverError> {
        let (classes, types) = (self.gangs.len(), self.capacity.len());
        let speed = (self.speeds)(&vec![false; classes]);
        let is_fine = |speed: &f64| speed.is_finite() && *speed >= 0.0;
        let is_positive = |speed: &f64| *speed > 0.0;
        let some = if self.is_even {
            speed.iter().all(is_positive)
        } else {
            speed.iter().any(is_positive)
        };
        if speed.len() != classes || !speed.iter().all(is_fine) || !some {
            return Err(SolverError::Input {
                what: "speed",
                expected: "a number > 0 for each class",
            });
        }
        let height = self.first_height(&speed);
        let floors: Vec<f64> = speed.iter().map(|speed| speed * height).collect();
        let has_plan = !self.is_even || !self.pairs.is_empty();
        let program = Choose {
            rates: self.rates,
            gains: if has_plan {
                self.rates
            } else {
                &vec![0.0; self.rates.len()]
            },
            then: None,
            gangs: self.gangs,
            members: self.members,
            capacity: self.capacity,
            floors: &floors,
            prices: &vec![DEAR * classes as f64; types],
            pairs: self.pairs,
            rises: true,
        };
        let speeds = (!self.is_even).then_some(self.speeds);
        let filled = program.fill(speeds, has_plan)?;
        Ok(Levels {
            levels: filled.levels,
            rises: filled.rises,
            steps: filled.plan.steps,
            plan: has_plan.then_some(filled.plan),
        })
    }

    /// Returns a level that all classes can reach. Each class uses only the type on which it needs the smallest
    /// fraction of the GPUs.
    ///
    /// Each class can reach at least its rate under an equal split, divided by the number of types. The returned level
    /// requires only half of this rate.
    fn first_height(&self, speed: &[f64]) -> f64 {
        let jobs: f64 = self.members.iter().sum();
        let gpus: f64 = self.capacity.iter().sum();
        let rows = self.rates.chunks_exact(self.capacity.len());
        let heights = rows.zip(self.gangs).zip(speed).map(|((row, gang), speed)| {
            let share = 1.0 / (jobs * gang).max(gpus);
            let split = row
                .iter()
                .zip(self.capacity)
                .map(|(rate, own)| rate * own * share);
            split.sum::<f64>() / speed
        });
        let least = heights.fold(f64::INFINITY, f64::min);
        least / (2.0 * self.capacity.len() as f64)
    }
}
