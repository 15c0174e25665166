//! Finish-time fairness: minimises the largest rho.

use super::super::answer::Answer;
use super::super::facts::Seen;
use super::super::model::SolverError;
use super::super::rho::Fairness;
use super::super::space::{Method, Space};
use super::super::split::equal_split;
use super::super::table::Table;

/// Minimises the largest rho: age plus remaining time, divided by the time that an equal split would have taken.
pub(super) fn solve(
    table: &Table,
    seen: Seen,
    method: &mut dyn Method,
) -> Result<Answer, SolverError> {
    let space = Space::plain(table, table.seen(seen), table.fair());
    let rows = space.rates.chunks_exact(table.capacity.len());
    let alone = rows.zip(&table.gangs).map(|(row, gang)| {
        let shares = equal_split(&table.capacity, table.jobs, *gang);
        row.iter()
            .zip(shares)
            .map(|(rate, x)| rate * x)
            .sum::<f64>()
    });
    let alone = alone.zip(&table.remaining).enumerate();
    let lost = |class: usize| table.lost_s.get(class).copied().unwrap_or(0.0);
    let fair_s: Vec<f64> = alone
        .map(|(class, (rate, left))| lost(class) + left / rate)
        .collect();
    let fairness = Fairness {
        rates: &space.rates,
        gangs: &table.gangs,
        members: &table.members,
        capacity: &table.capacity,
        age_s: &table.age_s,
        remaining: &table.remaining,
        fair_s: &fair_s,
    };
    let plan = method.least_rho(&space, &fairness)?;
    let objective = plan.z;
    Ok(Answer::of(&space, plan, objective))
}
