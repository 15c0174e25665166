//! What an allocation gives to classes of jobs, in terms of no method.

use super::choose::Pair;
use super::space::{Plan, Space, Spent};

/// Two classes sharing GPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairTime {
    /// The two; one class twice for two of its jobs.
    pub classes: [usize; 2],
    /// Where.
    pub gpu_type: usize,
    /// Job-seconds per second.
    pub time: f64,
}

/// What classes get.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Shares of one job of each class, `classes x types`.
    pub shares: Vec<f64>,
    /// Time of classes that share GPUs; none of it is 0.
    pub together: Vec<PairTime>,
    /// In the objective's own terms.
    pub objective: f64,
    /// Water filling: the level of each class.
    pub levels: Vec<f64>,
    /// What had to be left out.
    pub notes: Notes,
    /// Name of the method; empty for a closed form.
    pub method: String,
    /// Programs that were solved.
    pub programs: u32,
    /// Evaluations and simplex steps.
    pub iterations: u32,
}

/// What an allocation could not do, or not at once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Notes {
    /// Deadlines that have passed.
    pub passed: f64,
    /// Weight of the deadlines that are missed.
    pub missed: f64,
    /// Whether programs had to do what prices could not.
    pub prices_failed: bool,
    /// Whether a program had to be solved in another way.
    pub is_retry: bool,
}

impl Answer {
    /// A plan that is this good.
    pub(crate) fn of(space: &Space<'_>, plan: Plan, objective: f64) -> Self {
        Self {
            together: together(&space.pairs, &plan.together),
            shares: plan.shares,
            objective,
            ..Self::default()
        }
    }

    /// The same with what the solves took.
    pub(crate) fn by(mut self, spent: Spent) -> Self {
        self.method = spent.method;
        self.programs = spent.programs;
        self.iterations = spent.iterations;
        self.notes.is_retry |= spent.is_retry;
        self
    }
}

/// Pairs that have time.
fn together(pairs: &[Pair], times: &[f64]) -> Vec<PairTime> {
    let used = pairs.iter().zip(times).filter(|(_, time)| **time > 0.0);
    used.map(|(pair, &time)| PairTime {
        classes: pair.classes,
        gpu_type: pair.gpu_type,
        time,
    })
    .collect()
}
