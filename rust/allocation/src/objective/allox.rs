//! `AlloX`: assigns waiting single-GPU jobs to places in the queues of the GPU types.
//!
//! The k-th job from the end of a queue delays k jobs, including itself, by its duration. The mean completion time is
//! therefore a sum over (job, type, place). The optimal assignment is the solution of a linear program with integral
//! vertices.

use super::super::answer::Answer;
use super::super::model::{Algorithm, Model, Rows, SolverError};
use super::super::rows::ByRows;
use super::super::table::Table;

/// Assigns the oldest waiting jobs; the objective is the sum of their completion times. Rows are in order of arrival,
/// and running jobs stay on their type. Among jobs at the same position in the queues of a type, the oldest starts
/// first.
pub(super) fn solve(
    table: &Table,
    alpha: f64,
    rows: &mut ByRows<'_>,
) -> Result<Answer, SolverError> {
    let wide = table.gangs.iter().position(|gang| *gang > 1.0);
    if let Some(class) = wide {
        return Err(SolverError::Gang {
            row: table.first[class],
            gpus: table.gangs[class] as u32,
        });
    }
    let types = table.capacity.len();
    let mut answer = Answer {
        shares: vec![0.0; table.rates.len()],
        ..Answer::default()
    };
    let mut free = table.capacity.clone();
    let running = |class: usize| table.running.get(class).copied().flatten();
    for class in 0..table.gangs.len() {
        if let Some(kind) = running(class) {
            answer.shares[class * types + kind] = 1.0;
            free[kind] -= 1.0;
        }
    }
    for own in &mut free {
        *own = own.max(0.0);
    }
    let span = |class: usize, kind: usize| {
        let rate = table.rates[class * types + kind];
        (rate > 0.0 && free[kind] > 0.0).then(|| table.remaining[class] / rate)
    };
    let some: f64 = free.iter().sum();
    let most = (alpha * table.jobs).ceil().max(some) as usize;
    let can = |class: usize| (0..types).any(|kind| span(class, kind).is_some());
    let waiting = (0..table.gangs.len()).filter(|&class| running(class).is_none() && can(class));
    let waiting: Vec<usize> = waiting.take(most).collect();
    if waiting.is_empty() {
        return Ok(answer);
    }
    rows.how.algorithm = Algorithm::Simplex;
    let spans: Vec<Vec<Option<f64>>> = waiting
        .iter()
        .map(|&class| (0..types).map(|kind| span(class, kind)).collect())
        .collect();
    let (total, places) = assign(&spans, &free, rows)?;
    answer.objective = total;
    for kind in 0..types {
        for job in heads(&places, kind) {
            answer.shares[waiting[job] * types + kind] = 1.0;
        }
    }
    Ok(answer)
}

/// For each job, its type and its place in the queue, counted from the end.
type Places = Vec<(usize, usize)>;

/// Returns the sum of the completion times, and the places of the jobs. Each queue has enough places for its last place
/// to stay empty.
fn assign(
    spans: &[Vec<Option<f64>>],
    free: &[f64],
    rows: &mut ByRows<'_>,
) -> Result<(f64, Places), SolverError> {
    let jobs = spans.len();
    let gpus: f64 = free.iter().sum();
    let mut levels = ((jobs as f64 / gpus).ceil() as usize + 1).max(enough(spans, free));
    loop {
        let (total, places) = with_levels(spans, free, levels, rows)?;
        if levels > jobs || places.iter().all(|own| own.1 != levels) {
            return Ok((total, places));
        }
        levels *= 2;
    }
}

/// Returns a number of places per queue that is large enough for every job to find a place. Many jobs may need the same
/// type, so the number of places in an equal distribution over all GPUs can be too small. This function instead lets
/// each job join the shortest queue among those of its types, starting with the jobs that have the fewest types.
fn enough(spans: &[Vec<Option<f64>>], free: &[f64]) -> usize {
    let mut order: Vec<&Vec<Option<f64>>> = spans.iter().collect();
    order.sort_by_key(|row| row.iter().flatten().count());
    let mut jobs = vec![0.0_f64; free.len()];
    let length = |jobs: &[f64], kind: usize| jobs[kind] / free[kind];
    for row in order {
        let usable = (0..free.len()).filter(|&kind| row[kind].is_some());
        let shortest = usable.min_by(|&a, &b| length(&jobs, a).total_cmp(&length(&jobs, b)));
        if let Some(kind) = shortest {
            jobs[kind] += 1.0;
        }
    }
    let used = (0..free.len()).filter(|&kind| jobs[kind] > 0.0);
    used.map(|kind| length(&jobs, kind).ceil() as usize)
        .max()
        .unwrap_or(0)
}

fn with_levels(
    spans: &[Vec<Option<f64>>],
    free: &[f64],
    levels: usize,
    rows: &mut ByRows<'_>,
) -> Result<(f64, Places), SolverError> {
    let jobs = spans.len();
    let cells = spans.iter().enumerate().flat_map(|(job, row)| {
        let usable = row.iter().enumerate();
        usable.filter_map(move |(kind, span)| span.map(|span| (job, kind, span)))
    });
    let columns: Vec<(usize, usize, usize, f64)> = cells
        .flat_map(|(job, kind, span)| (1..=levels).map(move |place| (job, kind, place, span)))
        .collect();
    let unit = columns.iter().fold(0.0_f64, |most, own| most.max(own.3));
    let mut slot = vec![usize::MAX; free.len() * levels];
    for &(_, kind, place, _) in &columns {
        slot[kind * levels + place - 1] = 0;
    }
    let mut sizes = Vec::new();
    for (at, own) in slot.iter_mut().enumerate().filter(|own| *own.1 == 0) {
        *own = sizes.len();
        sizes.push(free[at / levels]);
    }
    let each = Rows {
        entries: (0..columns.len())
            .map(|at| (columns[at].0, at, 1.0))
            .collect(),
        lower: vec![1.0; jobs],
        upper: vec![1.0; jobs],
    };
    let in_slot = columns.iter().enumerate();
    let in_slot = in_slot.map(|(at, own)| (slot[own.1 * levels + own.2 - 1], at, 1.0));
    let slots = Rows {
        entries: in_slot.collect(),
        lower: vec![f64::NEG_INFINITY; sizes.len()],
        upper: sizes,
    };
    let cost = columns.iter().map(|own| own.2 as f64 * own.3 / unit);
    let model = Model {
        cost: cost.collect(),
        lower: vec![0.0; columns.len()],
        upper: vec![1.0; columns.len()],
        rows: each.above(slots),
        maximise: false,
        is_integer: false,
    };
    let found = rows.run(&model, &[])?;
    let mut places = vec![(0, 0); jobs];
    let mut total = 0.0;
    let x = found.first().map_or(&[][..], |own| own.x.as_slice());
    // The vertices of an assignment problem are integral.
    for (at, own) in columns.iter().enumerate().filter(|own| x[own.0] > 0.5) {
        places[own.0] = (own.1, own.2);
        total += model.cost[at];
    }
    Ok((total * unit, places))
}

/// Returns the jobs at the heads of a type's queues. Jobs at the same place are ordered from the oldest to the
/// youngest.
///
/// If n jobs are at place k from the end, then n queues have at least k jobs. Subtracting the number of jobs at the
/// next place gives the number of queues with exactly k jobs. The heads of these queues are at place k.
fn heads(places: &[(usize, usize)], kind: usize) -> Vec<usize> {
    let at = |place: usize| {
        let each = places.iter().enumerate();
        each.filter(move |(_, own)| **own == (kind, place))
            .map(|(job, _)| job)
    };
    let mine = places.iter().filter(|own| own.0 == kind);
    let deepest = mine.map(|own| own.1).max().unwrap_or(0);
    let ending = |place: usize| at(place).count().saturating_sub(at(place + 1).count());
    (1..=deepest)
        .flat_map(|place| at(place).take(ending(place)))
        .collect()
}
