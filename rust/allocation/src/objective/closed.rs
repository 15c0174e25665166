//! Allocations without a solver: an equal split, and first come, first served.

use super::super::allocator::{Allocator, Ask};
use super::super::answer::Answer;
use super::super::split::equal_split;
use super::super::table::Table;
use gangline_engine::PolicyError;
use gangline_model::GpuType;

/// Splits all GPUs equally. The objective is the smallest rate relative to fair share and weight.
pub(super) fn isolated(table: &Table) -> Answer {
    let gangs = table.gangs.iter();
    let shares: Vec<f64> = gangs
        .flat_map(|gang| equal_split(&table.capacity, table.jobs, *gang))
        .collect();
    let rates = rates_of(table, &shares).zip(table.gangs.iter().zip(&table.weights));
    let ratios = rates.zip(table.fair());
    let ratios = ratios.map(|((rate, (gang, weight)), fair)| rate * gang / weight * fair);
    Answer {
        objective: ratios.fold(f64::INFINITY, f64::min),
        shares,
        ..Answer::default()
    }
}

/// Places jobs first come, first served, each on its fastest type with enough free GPUs. The objective is the sum of
/// the rates.
pub(super) fn fifo_perf(table: &Table, by_name: &[usize]) -> Answer {
    let shares = fastest_first(&table.rates, &table.gangs, &table.capacity, by_name);
    Answer {
        objective: rates_of(table, &shares).sum(),
        shares,
        ..Answer::default()
    }
}

fn rates_of<'a>(table: &'a Table, shares: &'a [f64]) -> impl Iterator<Item = f64> + 'a {
    let types = table.capacity.len();
    let rows = table
        .rates
        .chunks_exact(types)
        .zip(shares.chunks_exact(types));
    rows.map(|(rates, x)| rates.iter().zip(x).map(|(rate, x)| rate * x).sum())
}

/// Gives each job, in order of arrival, all of its time on its fastest type with enough free GPUs. The pass ends at the
/// first job for which no type has enough free GPUs. A job that cannot run on any type with enough free GPUs is
/// skipped. Every call places all jobs again, without regard to earlier calls.
///
/// # Examples
/// ```
/// use gangline_allocation::{Allocator, Ask, FastestFirst};
/// use gangline_model::JobId;
/// let ask = Ask {
///     jobs: vec![JobId(0), JobId(1)], gangs: vec![2.0, 1.0], capacity: vec![1.0, 2.0],
///     rates: vec![9.0, 3.0, 1.0, 8.0], ..Ask::default()
/// };
/// assert_eq!(FastestFirst::default().allocate(&ask).unwrap(), [0.0, 1.0, 1.0, 0.0]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct FastestFirst {
    /// GPU types, sorted by name. Of several equally fast types, the job gets the first.
    by_name: Vec<usize>,
}

impl Allocator for FastestFirst {
    fn start(&mut self, types: &[GpuType]) -> Result<(), PolicyError> {
        self.by_name = (0..types.len()).collect();
        self.by_name.sort_by_key(|&at| &types[at].name);
        Ok(())
    }

    fn allocate(&mut self, ask: &Ask) -> Result<Vec<f64>, PolicyError> {
        Ok(fastest_first(
            &ask.rates,
            &ask.gangs,
            &ask.capacity,
            &self.by_name,
        ))
    }
}

fn fastest_first(rates: &[f64], gangs: &[f64], capacity: &[f64], by_name: &[usize]) -> Vec<f64> {
    let mut free = capacity.to_vec();
    let as_they_are: Vec<usize> = (0..free.len()).collect();
    let order = if by_name.len() == free.len() {
        by_name
    } else {
        &as_they_are
    };
    let mut shares = vec![0.0; rates.len()];
    let rows = rates.chunks_exact(free.len());
    let each = gangs.iter().zip(rows);
    for ((&gang, rates), own) in each.zip(shares.chunks_exact_mut(capacity.len())) {
        let room = order.iter().copied().filter(|&at| free[at] >= gang);
        let better = |a: usize, b: usize| if rates[b] > rates[a] { b } else { a };
        let Some(pick) = room.reduce(better) else {
            break;
        };
        if rates[pick] > 0.0 {
            own[pick] = 1.0;
            free[pick] -= gang;
        }
    }
    shares
}
