//! One linear program as plain arrays, and the port to whatever solves it.
//!
//! A [`Solver`] knows neither jobs nor objectives. Everything that it sees is scaled to about 1, because its tolerances
//! are absolute.

use super::allocator::Ask;
use super::facts::Facts;
use gangline_model::SimTime;
use thiserror::Error;

/// Why there is no allocation.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum SolverError {
    /// A table has the wrong size or an entry that is no number.
    #[error("{what}: expected {expected}")]
    Input {
        /// The table.
        what: &'static str,
        /// What it should hold.
        expected: &'static str,
    },
    /// The bounds did not meet in time.
    #[error("gap {gap:.1e} after {evaluations} evaluations")]
    Gap {
        /// (bound - z) / z.
        gap: f64,
        /// Plans that were looked at.
        evaluations: u32,
    },
    /// The simplex method did not end at an optimum.
    #[error("no optimum after {steps} simplex steps")]
    Steps {
        /// Steps that were made.
        steps: u32,
    },
    /// No class limits a level that should have a limit.
    #[error("no job at its bottleneck with {left} left")]
    Bottleneck {
        /// Classes that could still rise.
        left: usize,
    },
    /// A gang where only jobs with one GPU can be served.
    #[error("job {row} needs {gpus} GPUs; the policy knows single-GPU jobs only")]
    Gang {
        /// Its row in the ask.
        row: usize,
        /// Its GPUs.
        gpus: u32,
    },
    /// What solves it outside has failed, in its own words.
    #[error("{0}")]
    Outside(String),
}

/// Rows `lower <= A x <= upper`; entries are (row, column, value), and one that stands twice counts twice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// Entries, in the order in which they are added up.
    pub entries: Vec<(usize, usize, f64)>,
    /// Left sides.
    pub lower: Vec<f64>,
    /// Right sides.
    pub upper: Vec<f64>,
}

impl Rows {
    /// Puts other rows under these.
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

    /// Starts, columns and values row by row; the order inside a row is that of the entries.
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
    /// What a unit of each column adds to the objective.
    pub cost: Vec<f64>,
    /// Least value of each column.
    pub lower: Vec<f64>,
    /// Largest value of each column.
    pub upper: Vec<f64>,
    /// Constraints.
    pub rows: Rows,
    /// Whether the objective is to be large, not small.
    pub maximise: bool,
    /// Whether every column is a whole number.
    pub is_integer: bool,
}

/// Another objective, from the vertex of the optimum before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Next {
    /// What a unit of each column adds to it.
    pub cost: Vec<f64>,
    /// What is kept of the objectives before it.
    pub keeps: Keeps,
}

/// What a later objective keeps of those before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keeps {
    /// That part of the first objective, which is the value of the last column.
    LastColumn(f64),
    /// All: columns and rows that have a multiplier stay where they are, as they do in every optimum.
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
    /// Steps that it took.
    pub iterations: u32,
}

/// How a program is to be solved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct How {
    /// By which method.
    pub algorithm: Algorithm,
    /// Wall time of each solve.
    pub time_limit_s: f64,
    /// Of the solver's own random numbers.
    pub seed: u32,
}

/// A method of solving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// By its number of rows; another way where rounding stands in the way.
    Auto,
    /// Dual simplex and nothing else.
    Simplex,
    /// Interior point with crossover and nothing else.
    InteriorPoint,
}

/// The optima of one program, and how they were found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Solved {
    /// One for the program and one for each of the next objectives.
    pub solutions: Vec<Solution>,
    /// Name of the method.
    pub method: String,
    /// Whether it is not the first that was tried.
    pub is_retry: bool,
}

/// Solves linear programs.
pub trait Solver: Send {
    /// The optimum of a program, and of further objectives.
    ///
    /// # Errors
    /// [`SolverError`] if any of them does not end at an optimum.
    fn solve(&mut self, model: &Model, then: &[Next], how: How) -> Result<Solved, SolverError>;

    /// Hears of what has no answer, before the error goes on.
    fn failed(&mut self, failed: &Failed<'_>, error: &SolverError) {
        let _ = (failed, error);
    }
}

/// What has no answer.
#[derive(Clone, Copy, Debug)]
pub enum Failed<'a> {
    /// An allocation.
    Allocation {
        /// The ask.
        ask: &'a Ask,
        /// What [`Service`](super::Service) said, or empty.
        lost_s: &'a [f64],
        /// What the objective knew besides.
        facts: &'a Facts,
    },
    /// An auction.
    Auction {
        /// When.
        now: SimTime,
    },
}

/// Stands where no solver was given; says so when it is asked.
#[derive(Clone, Copy, Debug)]
pub struct NoSolver;

impl Solver for NoSolver {
    fn solve(&mut self, _model: &Model, _then: &[Next], _how: How) -> Result<Solved, SolverError> {
        let message = "this policy needs a solver: run it through the Python package";
        Err(SolverError::Outside(message.to_owned()))
    }
}
