//! Makespan: minimises the time at which the last job finishes under constant shares.

use super::super::answer::Answer;
use super::super::facts::Seen;
use super::super::model::SolverError;
use super::super::space::{Method, Space};
use super::super::table::Table;

/// Minimises the time at which the last job finishes, in seconds.
pub(super) fn solve(
    table: &Table,
    seen: Seen,
    method: &mut dyn Method,
) -> Result<Answer, SolverError> {
    let measure: Vec<f64> = table.remaining.iter().map(|left| 1.0 / left).collect();
    let space = Space::plain(table, table.seen(seen), table.fair());
    let plan = method.max_min(&space, &measure)?;
    let objective = 1.0 / plan.z;
    Ok(Answer::of(&space, plan, objective))
}

/// Returns, for each class, the fraction of the makespan that a job needs for all its remaining work on its fastest
/// type. A job whose fraction is 1 cannot make up for a missed round, so a missed round increases the makespan.
pub(super) fn urgency(table: &Table, seen: Seen, makespan_s: f64) -> Vec<f64> {
    let rates = table.seen(seen);
    let rows = rates.chunks_exact(table.capacity.len());
    let fastest = rows.map(|row| {
        let usable = row.iter().zip(&table.capacity).filter(|own| *own.1 > 0.0);
        usable.fold(0.0_f64, |most, (rate, _)| most.max(*rate))
    });
    let each = fastest.zip(&table.remaining);
    each.map(|(fastest, left)| (left / fastest / makespan_s).min(1.0))
        .collect()
}
