//! Max-min fairness: maximises the smallest rate relative to fair share and weight.

use super::super::answer::Answer;
use super::super::model::SolverError;
use super::super::space::{Method, Space};
use super::super::table::Table;

/// Maximises the smallest ratio `s rate / (w prop)`. A heterogeneity-agnostic variant uses a rate of 1 wherever a job
/// can run.
pub(super) fn solve(
    table: &Table,
    is_agnostic: bool,
    method: &mut dyn Method,
) -> Result<Answer, SolverError> {
    let each = table.gangs.iter().zip(&table.weights);
    let ones = vec![1.0; table.gangs.len()];
    let (rates, measure, worth) = if is_agnostic {
        let measure: Vec<f64> = each.map(|(gang, weight)| gang / weight).collect();
        (table.flat(&ones), measure, ones)
    } else {
        let fair = table.fair();
        let measure = each.zip(&fair);
        let measure = measure.map(|((gang, weight), fair)| gang / weight * fair);
        (table.rates.clone(), measure.collect(), fair)
    };
    let space = Space::plain(table, rates, worth);
    let plan = method.max_min(&space, &measure)?;
    let objective = plan.z;
    Ok(Answer::of(&space, plan, objective))
}
