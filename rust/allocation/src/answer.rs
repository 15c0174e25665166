//! The result of an allocation for classes of jobs, in a form that does not depend on the method.

use super::choose::Pair;
use super::space::{Plan, Space, Spent};

/// The time that two classes spend together on one GPU type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairTime {
    /// The two classes. If both jobs of the pair belong to one class, this class is listed twice.
    pub classes: [usize; 2],
    /// GPU type on which the two classes share GPUs.
    pub gpu_type: usize,
    /// Time that the two classes spend together, in job-seconds per second.
    pub time: f64,
}

/// Result of an allocation, by class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Shares of one job of each class, `classes x types`.
    pub shares: Vec<f64>,
    /// Time that each pair of classes spends on shared GPUs; pairs without such time are omitted.
    pub together: Vec<PairTime>,
    /// Value of the objective, in the unit of the objective.
    pub objective: f64,
    /// Level of each class; used only by water filling.
    pub levels: Vec<f64>,
    /// Deadlines that the allocation misses, and methods that failed.
    pub notes: Notes,
    /// Name of the method; empty for a closed form.
    pub method: String,
    /// Number of programs that were solved.
    pub programs: u32,
    /// Number of evaluations and simplex steps.
    pub iterations: u32,
}

/// Deadlines that an allocation misses, and methods that failed before another method succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Notes {
    /// Number of deadlines that have passed.
    pub passed: f64,
    /// Total weight of the missed deadlines.
    pub missed: f64,
    /// Whether the price method failed and linear programs were solved instead.
    pub prices_failed: bool,
    /// Whether a program needed a second method.
    pub is_retry: bool,
}

impl Answer {
    /// Creates the answer for a plan and the value of the objective that it reaches.
    pub(crate) fn of(space: &Space<'_>, plan: Plan, objective: f64) -> Self {
        Self {
            together: together(&space.pairs, &plan.together),
            shares: plan.shares,
            objective,
            ..Self::default()
        }
    }

    /// Adds the solver statistics.
    pub(crate) fn by(mut self, spent: Spent) -> Self {
        self.method = spent.method;
        self.programs = spent.programs;
        self.iterations = spent.iterations;
        self.notes.is_retry |= spent.is_retry;
        self
    }
}

/// Returns the pairs with a positive time.
fn together(pairs: &[Pair], times: &[f64]) -> Vec<PairTime> {
    let used = pairs.iter().zip(times).filter(|(_, time)| **time > 0.0);
    used.map(|(pair, &time)| PairTime {
        classes: pair.classes,
        gpu_type: pair.gpu_type,
        time,
    })
    .collect()
}
