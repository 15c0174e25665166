//! Jobs whose rate changes with their progress (`docs/concepts/jobs-and-rates.md`), such as jobs that raise their batch
//! size while they run.

use crate::{JobId, ModelError};
use std::ops::RangeInclusive;

const PHASES_MAX: usize = 1024;
/// Range of accepted relative rates of a phase, and of accepted relative sizes of its steps.
const RELATIVE: RangeInclusive<f64> = 1e-6..=1e6;

/// A phase in the user's terms: progress at its start, relative rate, and relative step size.
pub type GivenPhase = (f64, f64, f64);

/// A part of a job's work during which the factor for the base rate is constant.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Phase {
    /// Share of the work that is done when the phase starts, in [0, 1); 0 for the first phase.
    progress: f64,
    /// Factor that multiplies the base rate. The harmonic mean of the factors, weighted by work, is 1.
    factor: f64,
    /// Step size, such as the batch size, relative to the step size in the first phase.
    step_size: f64,
}

/// Phases of a class of jobs; there are at least two.
#[derive(Clone, Debug, PartialEq)]
pub struct Phases(Vec<Phase>);

impl Phases {
    /// Creates phases; returns `None` if neither the rate nor the step size ever changes.
    fn new(given: &[GivenPhase]) -> Option<Self> {
        let mut kept: Vec<GivenPhase> = Vec::with_capacity(given.len());
        for &phase in given {
            let bits = |(_, rate, size): GivenPhase| (rate.to_bits(), size.to_bits());
            if kept.last().is_none_or(|&last| bits(last) != bits(phase)) {
                kept.push(phase);
            }
        }
        if kept.len() < 2 {
            return None;
        }
        let mut mean = 0.0;
        for (at, &(progress, rate, _)) in kept.iter().enumerate() {
            let end = kept.get(at + 1).map_or(1.0, |next| next.0);
            mean += (end - progress) / rate;
        }
        let first = kept[0].2;
        let phase = |&(progress, rate, size): &GivenPhase| Phase {
            progress,
            factor: rate * mean,
            step_size: size / first,
        };
        Some(Self(kept.iter().map(phase).collect()))
    }

    /// Returns the remaining work at the start of a phase; 0 if no phase has this number.
    fn left_at(&self, phase: usize, work: f64) -> f64 {
        let progress = self.0.get(phase).map_or(1.0, |phase| phase.progress);
        work * (1.0 - progress)
    }

    /// Returns the phase of a job, given its total and its remaining work.
    pub fn phase(&self, work: f64, left: f64) -> usize {
        let later = 1..self.0.len();
        later
            .take_while(|&phase| left <= self.left_at(phase, work))
            .count()
    }

    /// Returns the remaining work at the start of the next phase; 0 if this is the last phase.
    pub fn knot(&self, work: f64, phase: usize) -> f64 {
        self.left_at(phase + 1, work)
    }

    /// Returns the factor that multiplies the base rate in a phase.
    pub fn factor(&self, phase: usize) -> f64 {
        self.0[phase].factor
    }

    /// Returns the step size in a phase, relative to the step size in the first phase.
    pub fn step_size(&self, phase: usize) -> f64 {
        self.0[phase].step_size
    }

    /// Returns, for this phase and each later phase, the part of the remaining work that belongs to the phase, and the
    /// factor of the phase.
    pub fn segments(
        &self,
        work: f64,
        phase: usize,
        left: f64,
    ) -> impl Iterator<Item = (f64, f64)> + '_ {
        (phase..self.0.len()).map(move |at| {
            let from = if at == phase {
                left
            } else {
                self.left_at(at, work)
            };
            let part = if at + 1 == self.0.len() {
                from
            } else {
                (from - self.left_at(at + 1, work)).max(0.0)
            };
            (part, self.0[at].factor)
        })
    }
}

/// The phases of each job whose rate changes with its progress.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseTable {
    /// Class of each job; `u32::MAX` means that the rate of the job does not change.
    row: Vec<u32>,
    classes: Vec<Option<Phases>>,
}

impl PhaseTable {
    /// Checks the classes, each a list of phases, and creates the table. `row` contains the class of each job;
    /// `u32::MAX` means that the job has no class. Returns `None` if the rate of no job changes.
    ///
    /// # Errors
    /// Returns [`ModelError::Table`], which names the first invalid class, or an entry of `row` that refers to a
    /// missing class.
    pub fn new(row: Vec<u32>, classes: &[Vec<GivenPhase>]) -> Result<Option<Self>, ModelError> {
        let fail = |what: String| {
            Err(ModelError::Table {
                table: "phases",
                what,
            })
        };
        for (at, class) in classes.iter().enumerate() {
            if let Some(what) = problem(class) {
                return fail(format!("class {at}: {what}"));
            }
        }
        let named = row.iter().filter(|&&row| row != u32::MAX).max();
        if let Some(row) = named.filter(|&&row| row as usize >= classes.len()) {
            return fail(format!(
                "a job names row {row}, but the number of rows is {}",
                classes.len()
            ));
        }
        let classes: Vec<Option<Phases>> = classes.iter().map(|one| Phases::new(one)).collect();
        let table = Self { row, classes };
        let has_any = (0..table.row.len()).any(|job| table.get(JobId::new(job)).is_some());
        Ok(has_any.then_some(table))
    }

    /// Returns the number of jobs in the table.
    pub fn jobs(&self) -> usize {
        self.row.len()
    }

    /// Returns the phases of a job, if its rate changes.
    #[inline]
    pub fn get(&self, job: JobId) -> Option<&Phases> {
        self.classes.get(self.row[job.index()] as usize)?.as_ref()
    }
}

/// Returns a description of the first error in the phases of a class; `None` if they are valid.
fn problem(class: &[GivenPhase]) -> Option<&'static str> {
    let starts = class.first().is_some_and(|first| first.0 == 0.0);
    let ascend = class.windows(2).all(|two| two[0].0 < two[1].0);
    let ends = class.last().is_some_and(|last| last.0 < 1.0);
    if class.len() > PHASES_MAX {
        Some("a job has at most 1024 phases")
    } else if !(starts && ascend && ends) {
        Some(
            "the first phase must begin at progress 0, and each later phase at a higher progress below 1",
        )
    } else if !class.iter().all(|one| RELATIVE.contains(&one.1)) {
        Some("a relative rate must be from 1e-6 to 1e6")
    } else if !class.iter().all(|one| RELATIVE.contains(&one.2)) {
        Some("a relative size of a step must be from 1e-6 to 1e6")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(classes: &[Vec<GivenPhase>]) -> Option<PhaseTable> {
        let rows = (0..classes.len() as u32).collect();
        PhaseTable::new(rows, classes).expect("valid")
    }

    #[test]
    fn the_traced_duration_includes_the_changes() {
        let table = table(&[vec![(0.0, 1.0, 1.0), (0.25, 3.0, 1.0)]]).expect("it changes");
        let phases = table.get(JobId(0)).expect("it changes");
        // The job takes 0.25 / 1 + 0.75 / 3 = 0.5 of the time that it would take at rate 1.
        let factors: Vec<f64> = vec![phases.factor(0), phases.factor(1)];
        assert_eq!(factors, [0.5, 1.5]);
        let parts: Vec<(f64, f64)> = phases.segments(100.0, 0, 90.0).collect();
        assert_eq!(parts, [(15.0, 0.5), (75.0, 1.5)]);
        assert_eq!(
            phases.segments(100.0, 1, 60.0).collect::<Vec<_>>(),
            [(60.0, 1.5)]
        );
        assert_eq!(
            [75.1, 75.0, 1.0].map(|left| phases.phase(100.0, left)),
            [0, 1, 1]
        );
        let knots: Vec<f64> = vec![phases.knot(100.0, 0), phases.knot(100.0, 1)];
        assert_eq!(knots, [75.0, 0.0]);
    }

    #[test]
    fn equal_rates_in_a_row_are_one_phase() {
        assert_eq!(
            table(&[
                vec![(0.0, 5.0, 1.0)],
                vec![(0.0, 2.0, 1.0), (0.5, 2.0, 1.0)]
            ]),
            None
        );
        let merged = table(&[vec![(0.0, 1.0, 1.0), (0.25, 1.0, 1.0), (0.5, 2.0, 1.0)]]);
        assert_eq!(merged, table(&[vec![(0.0, 1.0, 1.0), (0.5, 2.0, 1.0)]]));
    }

    #[test]
    fn sizes_of_steps_are_relative_to_the_first() {
        let table = table(&[vec![(0.0, 1.0, 16.0), (0.5, 1.0, 64.0)]]).expect("the size changes");
        let phases = table.get(JobId(0)).expect("the size changes");
        let sizes: Vec<f64> = vec![phases.step_size(0), phases.step_size(1)];
        assert_eq!(sizes, [1.0, 4.0]);
        assert_eq!(phases.factor(0).to_bits(), phases.factor(1).to_bits());
    }

    #[test]
    fn bad_classes_are_refused() {
        let is_bad = |class: &[GivenPhase]| PhaseTable::new(vec![0], &[class.to_vec()]).is_err();
        assert!(is_bad(&[]));
        assert!(is_bad(&[(0.1, 1.0, 1.0)]));
        assert!(is_bad(&[(0.0, 1.0, 1.0), (0.5, 2.0, 1.0), (0.5, 3.0, 1.0)]));
        assert!(is_bad(&[(0.0, 1.0, 1.0), (1.0, 2.0, 1.0)]));
        for rate in [0.0, 1e7, f64::NAN, f64::INFINITY, -1.0] {
            assert!(is_bad(&[(0.0, rate, 1.0)]));
        }
        assert!(is_bad(&[(0.0, 1.0, 1.0), (f64::NAN, 2.0, 1.0)]));
        assert!(PhaseTable::new(vec![1], &[vec![(0.0, 1.0, 1.0)]]).is_err());
    }
}
