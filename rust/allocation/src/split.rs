//! An equal split of all GPUs among the active jobs.

use super::allocator::{Allocator, Ask};
use gangline_engine::PolicyError;

/// Allocator that splits all GPUs equally among the active jobs. A share equals (GPUs of the type / jobs) / gang size,
/// and the shares of a job add up to at most 1.
///
/// # Examples
/// ```
/// use gangline_allocation::{Allocator, Ask, EqualSplit};
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
        let rows = ask.gangs.iter();
        Ok(rows
            .flat_map(|gang| equal_split(&ask.capacity, jobs, *gang))
            .collect())
    }
}

/// Returns the shares of a gang under an equal split among `jobs` jobs.
pub(crate) fn equal_split(capacity: &[f64], jobs: f64, gang: f64) -> impl Iterator<Item = f64> {
    let shares = move || capacity.iter().map(move |gpus| gpus / jobs / gang);
    let total: f64 = shares().sum();
    let most = total.max(1.0); // A division by 1 changes nothing.
    shares().map(move |share| share / most)
}
