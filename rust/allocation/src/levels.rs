//! Water filling: levels rise together, a class that cannot rise stays, the others go on.
//!
//! One simplex method from the first rise to the last, which goes on where it stood. Its multipliers follow from a vertex and
//! not from a search, so they are exact to rounding however many decades lie between rates or weights. The classes with
//! the largest ones limit the level; one with a small multiplier rises on, and if it cannot, the next rise tells.

use super::choose::Choose;
use super::dual::SolverError;
use super::program::DEAR;

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
    /// How often levels rose.
    pub rises: u32,
    /// Simplex steps.
    pub steps: u32,
}

impl Filling<'_> {
    /// Fills.
    ///
    /// # Errors
    /// [`SolverError`] if a table is wrong or the simplex method does not end.
    pub fn solve(&self) -> Result<Levels, SolverError> {
        let (classes, types) = (self.gangs.len(), self.capacity.len());
        let is_fine = |speed: &f64| speed.is_finite() && *speed > 0.0;
        if self.speed.len() != classes || !self.speed.iter().all(is_fine) {
            return Err(SolverError::Input {
                what: "speed",
                expected: "a number > 0 for each class",
            });
        }
        let height = self.first_height();
        let floors: Vec<f64> = self.speed.iter().map(|speed| speed * height).collect();
        let program = Choose {
            rates: self.rates,
            gains: &vec![0.0; self.rates.len()],
            then: None,
            gangs: self.gangs,
            members: self.members,
            capacity: self.capacity,
            floors: &floors,
            prices: &vec![DEAR * classes as f64; types],
            pairs: &[],
            rises: true,
        };
        let filled = program.fill()?;
        let levels = floors.iter().zip(&filled.reached);
        Ok(Levels {
            levels: levels.map(|(floor, times)| floor * times).collect(),
            rises: filled.rises,
            steps: filled.steps,
        })
    }

    /// A height that all reach if each is on the one type where that takes the smallest part of the GPUs.
    ///
    /// A type gives a class at least a part of its equal split, one by the number of types: half of that is asked for.
    fn first_height(&self) -> f64 {
        let jobs: f64 = self.members.iter().sum();
        let gpus: f64 = self.capacity.iter().sum();
        let rows = self.rates.chunks_exact(self.capacity.len());
        let heights = rows
            .zip(self.gangs)
            .zip(self.speed)
            .map(|((row, gang), speed)| {
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
