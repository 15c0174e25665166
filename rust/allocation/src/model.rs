//! A linear program as plain arrays, and the interface to its solver.
//!
//! A [`Solver`] does not depend on jobs or objectives. All numbers that are passed to a solver are scaled to about 1,
//! because the solver's tolerances are absolute.

use super::allocator::Ask;
use super::facts::Facts;
use gangline_model::SimTime;
use thiserror::Error;

/// Reasons why there is no allocation.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum SolverError {
    /// A table has the wrong size, or contains an invalid entry.
    #[error("{what}: expected {expected}")]
    Input {
        /// Name of the table.
        what: &'static str,
        /// The expected contents.
        expected: &'static str,
    },
    /// The bounds did not converge within the allowed number of evaluations.
    #[error("the relative gap is still {gap:.1e} after {evaluations} evaluations")]
    Gap {
        /// Relative gap: (bound - z) / z.
        gap: f64,
        /// Number of plans evaluated.
        evaluations: u32,
    },
    /// The simplex method ended without an optimum.
    #[error("no optimum after {steps} simplex steps")]
    Steps {
        /// Number of steps.
        steps: u32,
    },
    /// No class limits a level, although some class must.
    #[error("no class is a bottleneck, although {left} of the classes can still rise")]
    Bottleneck {
        /// Number of classes that could still rise.
        left: usize,
    },
    /// A job needs several GPUs, but the policy supports only single-GPU jobs.
    #[error("job {row} needs {gpus} GPUs; the policy supports only single-GPU jobs")]
    Gang {
        /// Row of the job in the request.
        row: usize,
        /// Number of GPUs of the job.
        gpus: u32,
    },
    /// An external solver has failed; the value is its message.
    #[error("{0}")]
    Outside(String),
}

/// Constraints `lower <= A x <= upper`. Entries are (row, column, value); repeated entries are added up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// Entries, in the order in which they are summed.
    pub entries: Vec<(usize, usize, f64)>,
    /// Lower bounds of the rows.
    pub lower: Vec<f64>,
    /// Upper bounds of the rows.
    pub upper: Vec<f64>,
}

impl Rows {
    /// Appends other rows.
    #[must_use]
    pub fn above(mut self, below: Rows) -> Self {
        let first = self.lower.len();
        let moved = below.entries.into_iter();
        let moved = moved.map(|(row, column, value)| (first + row, column, value));
        self.entries.extend(moved);
        self.lower.extend(below.lower);
        self.upper.extend(below.upper);
        self
    }

    /// Returns the constraint matrix by rows (CSR): row starts, column indices and coefficients. Within a row, the
    /// entries keep their order.
    ///
    /// # Examples
    /// ```
    /// use gangline_allocation::Rows;
    /// let rows = Rows {
    ///     entries: vec![(1, 0, 5.0), (0, 2, 6.0), (1, 1, 7.0)],
    ///     lower: vec![0.0; 2], upper: vec![1.0; 2],
    /// };
    /// assert_eq!(rows.compressed(), (vec![0, 1, 3], vec![2, 0, 1], vec![6.0, 5.0, 7.0]));
    /// ```
    pub fn compressed(&self) -> (Vec<i32>, Vec<i32>, Vec<f64>) {
        let mut start = vec![0; self.lower.len() + 1];
        for &(row, _, _) in &self.entries {
            start[row + 1] += 1;
        }
        for row in 0..self.lower.len() {
            start[row + 1] += start[row];
        }
        let mut next = start.clone();
        let (mut index, mut value) = (vec![0; self.entries.len()], vec![0.0; self.entries.len()]);
        for &(row, column, own) in &self.entries {
            let at = next[row] as usize;
            (index[at], value[at]) = (column as i32, own);
            next[row] += 1;
        }
        (start, index, value)
    }
}

/// One linear program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    /// Objective coefficient of each column.
    pub cost: Vec<f64>,
    /// Lower bound of each column.
    pub lower: Vec<f64>,
    /// Upper bound of each column.
    pub upper: Vec<f64>,
    /// Constraints.
    pub rows: Rows,
    /// Whether the objective is maximised.
    pub maximise: bool,
    /// Whether every variable must be an integer.
    pub is_integer: bool,
}

/// A further objective; the solver starts from the optimal vertex of the previous objective.
#[derive(Clone, Debug, PartialEq)]
pub struct Next {
    /// Objective coefficient of each column.
    pub cost: Vec<f64>,
    /// Rule by which the earlier objectives are preserved.
    pub keeps: Keeps,
}

/// Rule by which a later objective preserves the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keeps {
    /// At least this fraction of the first objective, which is the value of the last column, is preserved.
    LastColumn(f64),
    /// Earlier objectives are preserved exactly. Columns and rows with a nonzero multiplier have the same value in
    /// every optimum, so they are fixed.
    Bounds,
}

/// The optimum of one objective.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Solution {
    /// Value of each column.
    pub x: Vec<f64>,
    /// Multiplier of each row.
    pub row_dual: Vec<f64>,
    /// Value of the objective.
    pub objective: f64,
    /// Number of solver iterations.
    pub iterations: u32,
}

/// Settings of a solve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct How {
    /// Method of solving.
    pub algorithm: Algorithm,
    /// Wall-clock limit of each solve, in seconds.
    pub time_limit_s: f64,
    /// Seed of the solver's random number generator.
    pub seed: u32,
}

/// A method of solving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// The number of rows determines the method. If rounding errors prevent a solution, a second method is used.
    Auto,
    /// Only the dual simplex method.
    Simplex,
    /// Only the interior point method, with crossover.
    InteriorPoint,
}

/// The optima of one program and its further objectives, and the method that found them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Solved {
    /// One solution for the program, and one for each further objective.
    pub solutions: Vec<Solution>,
    /// Name of the method.
    pub method: String,
    /// Whether the first method failed and a second one was used.
    pub is_retry: bool,
}

/// Solves linear programs.
pub trait Solver: Send {
    /// Solves a program and its further objectives.
    ///
    /// # Errors
    /// Returns [`SolverError`] if one of these programs does not end at an optimum.
    fn solve(&mut self, model: &Model, then: &[Next], how: How) -> Result<Solved, SolverError>;

    /// Receives a problem that could not be solved, before the error is returned.
    fn failed(&mut self, failed: &Failed<'_>, error: &SolverError) {
        let _ = (failed, error);
    }
}

/// A problem without a solution.
#[derive(Clone, Copy, Debug)]
pub enum Failed<'a> {
    /// An allocation.
    Allocation {
        /// The request.
        ask: &'a Ask,
        /// Result of [`Service`](super::Service), or empty.
        lost_s: &'a [f64],
        /// Facts that the objective uses.
        facts: &'a Facts,
    },
    /// An auction.
    Auction {
        /// Instant of the auction.
        now: SimTime,
    },
}

/// Placeholder for a missing solver; every solve returns an error.
#[derive(Clone, Copy, Debug)]
pub struct NoSolver;

impl Solver for NoSolver {
    fn solve(&mut self, _model: &Model, _then: &[Next], _how: How) -> Result<Solved, SolverError> {
        let message = "this policy needs a solver: run it through the Python package";
        Err(SolverError::Outside(message.to_owned()))
    }
}
