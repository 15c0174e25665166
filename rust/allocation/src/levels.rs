//! Water filling: levels rise together, a class that cannot rise stays, the others go on.
//!
//! One simplex method from the first rise to the last, which goes on where it stood. Its multipliers follow from a vertex and
//! not from a search, so they are exact to rounding however many decades lie between rates or weights. The classes with
//! the largest ones limit the level; one with a small multiplier rises on, and if it cannot, the next rise tells.

use super::choose::{Choose, Chosen, Pair};
use super::model::SolverError;
use super::program::DEAR;

/// Water filling; tables are row by row, `classes x types`.
#[derive(Clone, Copy)]
pub struct Filling<'a> {
    /// The level that all of the time on a type gives; 0 where a class cannot run.
    pub rates: &'a [f64],
    /// GPUs of one job.
    pub gangs: &'a [f64],
    /// Jobs of each class.
    pub members: &'a [f64],
    /// GPUs of each type.
    pub capacity: &'a [f64],
    /// Classes that may share GPUs; rates are levels here, too.
    pub pairs: &'a [Pair],
    /// How fast levels rise, one beside the other, while these classes can rise no further; 0 for one that has to wait.
    pub speeds: &'a dyn Fn(&[bool]) -> Vec<f64>,
    /// Whether speeds stay the same as long as a class can rise.
    pub is_even: bool,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Levels {
    /// Level of each class.
    pub levels: Vec<f64>,
    /// How often levels rose.
    pub rises: u32,
    /// Simplex steps.
    pub steps: u32,
    /// The plan that gets most out of what the levels leave, if there are pairs or speeds change; nothing else reaches
    /// levels that only pairs do.
    pub plan: Option<Chosen>,
}

impl Filling<'_> {
    /// Fills.
    ///
    /// # Errors
    /// [`SolverError`] if a table is wrong or the simplex method does not end.
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

    /// A height that all reach if each is on the one type where that takes the smallest part of the GPUs.
    ///
    /// A type gives a class at least a part of its equal split, one by the number of types: half of that is asked for.
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
