//! Total throughput: maximises the sum of the rates.

use super::super::answer::Answer;
use super::super::model::SolverError;
use super::super::program::by_class;
use super::super::space::{Method, Space};
use super::super::table::Table;

/// Maximises the sum of the rates. A proportional variant divides each rate by the job's average rate on the cluster.
pub(super) fn solve(
    table: &Table,
    is_proportional: bool,
    method: &mut dyn Method,
) -> Result<Answer, SolverError> {
    let worth = table.fair();
    let fair = by_class(&table.rates, &worth);
    let space = Space::of(table, table.rates.as_slice(), worth, |worth, class, _| {
        let gain = if is_proportional { worth[class] } else { 1.0 };
        [gain, worth[class]]
    });
    let (gains, then) = if is_proportional {
        (&fair, None)
    } else {
        (&table.rates, Some(fair.as_slice()))
    };
    let plan = method.most(&space, gains, then)?;
    let objective = plan.z;
    Ok(Answer::of(&space, plan, objective))
}
