//! The linear programs of policies, from the ask to the shares, without a solver from outside.
//!
//! The numbers are computed as `gangline.lp` does, operation by operation: both give the same bits.

use super::allocator::Ask;
use super::choose::Choose;
use super::class::{RowPart, group_rows};
use super::dual::SolverError;
use super::program::{TwoStages, within};

/// Shares are rounded to it: wider than the slack of the second stage, so that neither it nor a last bit reorders jobs.
const GRID: f64 = 1e-8;
/// Smaller shares are none.
const LEAST_SHARE: f64 = 1e-6;
/// A job whose end is a rounding error away still counts as work.
const LEAST_STEPS: f64 = 1e-9;
/// Programs of more rows are left to others.
const ROWS_MAX: usize = 10_000;
/// Evaluations of the price method.
const EVALUATIONS: u32 = 1_000;

/// A policy whose programs are solved here.
#[derive(Clone, Debug, PartialEq)]
pub enum Program {
    /// Max-min of rate per fair share and weight; agnostic variants know only where a job can run.
    Las {
        /// Whether rates are unknown.
        is_agnostic: bool,
    },
    /// The smallest makespan; agnostic variants know one mean rate per job.
    Makespan {
        /// Whether rates are unknown.
        is_agnostic: bool,
    },
    /// Most steps per second, per fair share if proportional.
    MaxSum {
        /// Whether rates are measured in fair shares.
        is_proportional: bool,
    },
    /// Most steps per second and unit of price, while no job has a deadline.
    Cost {
        /// Per GPU-hour and type.
        prices: Vec<f64>,
    },
}

/// Shares and what they took.
#[derive(Clone, Debug)]
pub struct Found {
    /// Rounded shares, `jobs x types`.
    pub shares: Vec<f64>,
    /// Programs that were solved; 0 if no job can run.
    pub programs: u32,
    /// Evaluations and simplex steps.
    pub iterations: u32,
}

/// One row per class of jobs that can run.
struct Rows {
    rates: Vec<f64>,
    gangs: Vec<f64>,
    members: Vec<f64>,
    /// Row of the first job of each class.
    first: Vec<usize>,
    /// Place of the row of each job's class; none if it can run nowhere.
    row_of: Vec<Option<usize>>,
    prop: Vec<f64>,
}

impl Program {
    /// Solves; nothing where the program is not of a kind that is solved here.
    ///
    /// # Errors
    /// [`SolverError`] if no optimum is found or a number is out of range.
    pub fn solve(&self, ask: &Ask) -> Option<Result<Found, SolverError>> {
        let has_deadline = ask.time_left_s.iter().any(|left| left.is_finite());
        if ask.jobs.is_empty() || (matches!(self, Self::Cost { .. }) && has_deadline) {
            return None;
        }
        let left = ask.remaining.iter().map(|left| left.max(LEAST_STEPS));
        let left: Vec<f64> = left.collect();
        let rows = self.rows(ask, &left);
        if 2 * rows.gangs.len() + ask.capacity.len() > ROWS_MAX {
            return None;
        }
        Some(self.solve_rows(ask, &left, &rows))
    }

    fn rows(&self, ask: &Ask, left: &[f64]) -> Rows {
        let types = ask.capacity.len();
        let words = |column: &[f64]| column.iter().map(|own| own.to_bits()).collect::<Vec<u64>>();
        let mut columns = vec![(words(&ask.rates), types), (words(&ask.gangs), 1)];
        match self {
            Self::Las { .. } => columns.push((words(&ask.weights), 1)),
            Self::Makespan { .. } => columns.push((words(left), 1)),
            Self::MaxSum { .. } | Self::Cost { .. } => {}
        }
        let parts = columns.iter().map(|(words, width)| RowPart {
            words,
            width: *width,
        });
        let classes = group_rows(&parts.collect::<Vec<_>>(), ask.jobs.len());
        let mut rows = Rows {
            rates: Vec::new(),
            gangs: Vec::new(),
            members: Vec::new(),
            first: Vec::new(),
            row_of: Vec::with_capacity(ask.jobs.len()),
            prop: Vec::new(),
        };
        let gpus: f64 = ask.capacity.iter().sum();
        let mut place = vec![None; classes.first.len()];
        for (class, (&first, &count)) in classes.first.iter().zip(&classes.count).enumerate() {
            let first = first as usize;
            let rates = &ask.rates[first * types..(first + 1) * types];
            let pairs = || rates.iter().zip(&ask.capacity);
            if !pairs().any(|(rate, gpus)| *rate > 0.0 && *gpus > 0.0) {
                continue;
            }
            place[class] = Some(rows.first.len());
            let mut total = 0.0;
            for (rate, own) in pairs() {
                total += rate * own;
            }
            rows.first.push(first);
            rows.rates.extend_from_slice(rates);
            rows.gangs.push(ask.gangs[first]);
            rows.members.push(count as f64);
            rows.prop.push(total / gpus);
        }
        rows.row_of
            .extend(classes.of.iter().map(|&class| place[class as usize]));
        rows
    }

    fn solve_rows(&self, ask: &Ask, left: &[f64], rows: &Rows) -> Result<Found, SolverError> {
        let mut found = Found {
            shares: vec![0.0; ask.rates.len()],
            programs: 0,
            iterations: 0,
        };
        if rows.first.is_empty() {
            return Ok(found);
        }
        let types = ask.capacity.len();
        let mut shares = match self {
            Self::Las { .. } | Self::Makespan { .. } => self.max_min(ask, left, rows, &mut found),
            Self::MaxSum { .. } | Self::Cost { .. } => self.most(ask, rows, &mut found),
        }?;
        if !shares.iter().all(|share| share.is_finite()) {
            return Err(SolverError::Steps {
                steps: found.iterations,
            });
        }
        for (row, members) in shares.chunks_exact_mut(types).zip(&rows.members) {
            for share in row {
                *share = rounded((*share * members / members).clamp(0.0, 1.0));
            }
        }
        for (own, row) in found.shares.chunks_exact_mut(types).zip(&rows.row_of) {
            if let Some(row) = row {
                own.copy_from_slice(&shares[row * types..(row + 1) * types]);
            }
        }
        Ok(found)
    }

    fn max_min(
        &self,
        ask: &Ask,
        left: &[f64],
        rows: &Rows,
        found: &mut Found,
    ) -> Result<Vec<f64>, SolverError> {
        let types = ask.capacity.len();
        let each = || rows.first.iter().zip(&rows.prop);
        let fair: Vec<f64> = rows.prop.iter().map(|prop| 1.0 / prop).collect();
        let flat = |of: &dyn Fn(usize) -> f64| -> Vec<f64> {
            let cells = rows.rates.iter().enumerate();
            let seen = cells.map(|(at, rate)| if *rate > 0.0 { of(at / types) } else { 0.0 });
            seen.collect()
        };
        let (rates, measure, worth) = match self {
            Self::Las { is_agnostic: true } => {
                let measure = rows
                    .first
                    .iter()
                    .map(|&job| ask.gangs[job] / ask.weights[job]);
                (flat(&|_| 1.0), measure.collect(), vec![1.0; fair.len()])
            }
            Self::Las { .. } => {
                let measure = each();
                let measure =
                    measure.map(|(&job, prop)| ask.gangs[job] / (ask.weights[job] * prop));
                (rows.rates.clone(), measure.collect(), fair)
            }
            Self::Makespan { is_agnostic } => {
                let measure: Vec<f64> = rows.first.iter().map(|&job| 1.0 / left[job]).collect();
                let mean = || flat(&|row| rows.prop[row]);
                let rates = if *is_agnostic {
                    mean()
                } else {
                    rows.rates.clone()
                };
                (rates, measure, fair)
            }
            Self::MaxSum { .. } | Self::Cost { .. } => unreachable!("not max-min"),
        };
        let program = TwoStages {
            rates: &rates,
            measure: &measure,
            worth: &worth,
            gangs: &rows.gangs,
            members: &rows.members,
            capacity: &ask.capacity,
        };
        let staged = program.solve(EVALUATIONS)?;
        found.programs = 2;
        found.iterations = staged.iterations;
        Ok(staged.shares)
    }

    fn most(&self, ask: &Ask, rows: &Rows, found: &mut Found) -> Result<Vec<f64>, SolverError> {
        let types = ask.capacity.len();
        let cells = || rows.rates.iter().enumerate();
        let fair: Vec<f64> = cells()
            .map(|(at, rate)| rate * (1.0 / rows.prop[at / types]))
            .collect();
        let gains = match self {
            Self::Cost { prices } => cells()
                .map(|(at, rate)| rate / prices[at % types])
                .collect(),
            Self::MaxSum {
                is_proportional: true,
            } => fair.clone(),
            _ => rows.rates.clone(),
        };
        let is_last = matches!(self, Self::MaxSum { is_proportional } if *is_proportional);
        let program = Choose {
            rates: &rows.rates,
            gains: &gains,
            then: (!is_last).then_some(fair.as_slice()),
            gangs: &rows.gangs,
            members: &rows.members,
            capacity: &ask.capacity,
            floors: &vec![0.0; rows.gangs.len()],
            prices: &[],
        };
        let mut chosen = program.solve()?;
        within(
            &mut chosen.shares,
            &rows.gangs,
            &rows.members,
            &ask.capacity,
        );
        found.programs = 2 - u32::from(is_last);
        found.iterations = chosen.steps;
        Ok(chosen.shares)
    }
}

/// A share on the grid; small ones are none.
fn rounded(share: f64) -> f64 {
    let cells = share / GRID;
    if cells < LEAST_SHARE / GRID {
        return 0.0;
    }
    cells.round_ties_even() * GRID
}
