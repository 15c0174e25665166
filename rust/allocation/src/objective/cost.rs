//! Throughput per dollar, subject to deadlines.
//!
//! Stage 1 minimises the weight of missed deadlines. Stage 2 then maximises the steps per second per unit of price.

use super::super::answer::{Answer, Notes};
use super::super::model::{Keeps, Next, Rows, SolverError};
use super::super::program::by_class;
use super::super::rows::{Activities, ByRows, LEAST_TIME, total};
use super::super::space::{Method, Space};
use super::super::table::Table;

/// If the weight of the missed deadlines is above this limit, it is more than solver noise.
const MISSED: f64 = 1e-9;

/// Optimises the objective without deadlines: the sum of rate / price.
pub(super) fn solve(
    table: &Table,
    prices: &[f64],
    method: &mut dyn Method,
) -> Result<Answer, SolverError> {
    let types = table.capacity.len();
    let space = space(table, prices);
    let cells = table.rates.iter().enumerate();
    let gains: Vec<f64> = cells.map(|(at, rate)| rate / prices[at % types]).collect();
    let fair = by_class(&table.rates, &space.worth);
    let plan = method.most(&space, &gains, Some(&fair))?;
    let objective = plan.z;
    Ok(Answer {
        notes: passed(table),
        ..Answer::of(&space, plan, objective)
    })
}

/// Optimises the objective if some deadlines can still be met.
pub(super) fn with_deadlines(
    table: &Table,
    prices: &[f64],
    drops_all: bool,
    rows: &mut ByRows<'_>,
) -> Result<Answer, SolverError> {
    let space = space(table, prices);
    let sums = Activities::new(&space);
    let gain = sums.by_rate(&vec![1.0; table.gangs.len()]);
    let each = gain.iter().zip(sums.kinds());
    let money: Vec<f64> = each.map(|(gain, &kind)| gain / prices[kind]).collect();
    let (missed, times) = in_turn(table, &sums, &money, rows)?;
    let notes = Notes {
        missed,
        ..passed(table)
    };
    let mut answer = if drops_all && missed > MISSED {
        solve(table, prices, rows)?
    } else {
        Answer::of(&space, sums.plan(&times), total(&money, &times))
    };
    answer.notes = notes;
    Ok(answer)
}

/// Minimises the weight of the missed deadlines, then maximises each gain in turn.
fn in_turn(
    table: &Table,
    sums: &Activities<'_, '_>,
    money: &[f64],
    rows: &mut ByRows<'_>,
) -> Result<(f64, Vec<f64>), SolverError> {
    let ahead = table.deadlines();
    let (count, late) = (sums.count(), ahead.len());
    let quickest = sums.space.fastest_alone();
    // All members of a class miss their deadlines by the same fraction.
    let weights: Vec<f64> = ahead
        .iter()
        .map(|(class, _)| table.weights[*class] * table.members[*class])
        .collect();
    let mut place = vec![usize::MAX; table.gangs.len()];
    let mut inverse = vec![0.0; table.gangs.len()];
    for (at, &(class, left_s)) in ahead.iter().enumerate() {
        place[class] = at;
        let least = table.remaining[class] / left_s;
        // If a deadline needs almost no time, the entries of its row would be too large for a solver.
        inverse[class] = 1.0 / least.max(LEAST_TIME * quickest[class]);
    }
    let met = sums.scaled(&sums.rate, &inverse).into_iter();
    let met = met.filter(|own| place[own.0] != usize::MAX);
    let mut entries: Vec<_> = met
        .map(|(class, at, value)| (place[class], at, value))
        .collect();
    entries.extend((0..late).map(|at| (at, count + at, 1.0)));
    let base = sums.base().above(Rows {
        entries,
        lower: vec![1.0; late],
        upper: vec![f64::INFINITY; late],
    });
    let heaviest = weights.iter().copied().fold(0.0, f64::max);
    let mut cost = vec![0.0; count];
    cost.extend(weights.iter().map(|own| -own / heaviest));
    let mut model = sums.model(cost, base, late);
    model.upper[count..].fill(1.0);
    let next = |gains: &[f64]| Next {
        cost: sums.costs(gains, late),
        keeps: Keeps::Bounds,
    };
    let mut then = vec![next(money)];
    if rows.chooses {
        then.push(next(&sums.by_rate(&sums.space.worth)));
    }
    let found = rows.run(&model, &then)?;
    let (Some(first), Some(last)) = (found.first(), found.last()) else {
        return Ok((0.0, vec![0.0; count]));
    };
    // The missed weight is taken from the solver's columns, because the sum over the plan is noisy if a deadline needs
    // little time.
    let missed = first.x[count..].iter().zip(&weights);
    let missed = missed.map(|(part, weight)| part.max(0.0) * weight).sum();
    Ok((missed, sums.times(&last.x[..count])))
}

fn space<'a>(table: &'a Table, prices: &[f64]) -> Space<'a> {
    Space::of(
        table,
        table.rates.as_slice(),
        table.fair(),
        |worth, class, gpu_type| [1.0 / prices[gpu_type], worth[class]],
    )
}

fn passed(table: &Table) -> Notes {
    let each = table.time_left_s.iter().zip(&table.members);
    let passed = each.filter(|(left, _)| **left <= 0.0);
    Notes {
        passed: passed.map(|(_, members)| members).sum(),
        ..Notes::default()
    }
}
