//! The port through which rounds get their shares: arrays of the active jobs in, shares out.
//!
//! Who computes them is not known here: a closed form of this crate, or a solver on the other side of
//! the binding. An allocator may keep memory of earlier asks; jobs are named by their ids.

use gangline_engine::PolicyError;
use gangline_model::{JobId, SimTime};

/// The active jobs, in order of their ids; tables are row by row, `jobs x types`.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// The round that asks.
    pub now: SimTime,
    /// The jobs.
    pub jobs: Vec<JobId>,
    /// Work per second of the whole gang; 0 where a job cannot run.
    pub rates: Vec<f64>,
    /// GPUs of each gang.
    pub gangs: Vec<f64>,
    /// Weights.
    pub weights: Vec<f64>,
    /// Work left; empty for a policy that may not know it.
    pub remaining: Vec<f64>,
    /// Seconds since arrival.
    pub age_s: Vec<f64>,
    /// GPUs of each type on servers that are up.
    pub capacity: Vec<f64>,
}

/// Gives each job a share of its time on each type.
pub trait Allocator: Send {
    /// Shares of the active jobs, `jobs x types`, each in 0..=1.
    ///
    /// # Errors
    /// [`PolicyError`] if there are none; the run ends.
    fn allocate(&mut self, ask: &Ask) -> Result<Vec<f64>, PolicyError>;
}

/// An equal split: (GPUs of the type / jobs) / gang, a row at most 1.
///
/// # Examples
/// ```
/// use gangline_policies::lp::{Allocator, Ask, EqualSplit};
/// use gangline_model::JobId;
/// let ask = Ask {
///     jobs: vec![JobId(0), JobId(1)], gangs: vec![2.0, 1.0], capacity: vec![2.0],
///     ..Ask::default()
/// };
/// assert_eq!(EqualSplit.allocate(&ask).unwrap(), [0.5, 1.0]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct EqualSplit;

impl Allocator for EqualSplit {
    fn allocate(&mut self, ask: &Ask) -> Result<Vec<f64>, PolicyError> {
        let jobs = ask.jobs.len() as f64;
        let mut shares = Vec::with_capacity(ask.gangs.len() * ask.capacity.len());
        for gang in &ask.gangs {
            let start = shares.len();
            shares.extend(ask.capacity.iter().map(|gpus| gpus / jobs / gang));
            let total: f64 = shares[start..].iter().sum();
            if total > 1.0 {
                for share in &mut shares[start..] {
                    *share /= total;
                }
            }
        }
        Ok(shares)
    }
}

/// Stands where no solver was given; says so when it is asked.
#[derive(Clone, Copy, Debug)]
pub struct NoSolver;

impl Allocator for NoSolver {
    fn allocate(&mut self, _ask: &Ask) -> Result<Vec<f64>, PolicyError> {
        Err(PolicyError::Failed {
            message: "this policy needs a solver: run it through the Python package".to_owned(),
        })
    }
}
