//! Makespan: minimises the finish of the last job under constant shares.

use super::super::answer::Answer;
use super::super::facts::Seen;
use super::super::model::SolverError;
use super::super::space::{Method, Space};
use super::super::table::Table;

/// Minimises the finish of the last job, in seconds.
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

/// Returns the minimum fraction of the time to the makespan for which a job of each class must run: the time of all its
/// remaining work on its fastest type. A job for which this fraction is 1 cannot make up for a missed round, so missing
/// one increases the makespan.
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
