//! The linear programs of policies, from the ask to the shares, without a solver from outside.
//!
//! Runs give an [`Ask`] of jobs and `gangline.lp.solve` a [`Table`] of classes; the rest is the same.

use super::allocator::{Ask, equal_split};
use super::choose::{Choose, Chosen};
use super::class::{RowPart, group_rows};
use super::dual::SolverError;
use super::levels::Filling;
use super::program::{TwoStages, by_class, within};
use super::rho::Fairness;

/// Shares are rounded to it: wider than the slack of the second stage, so that neither it nor a last bit reorders jobs.
const GRID: f64 = 1e-8;
/// Smaller shares are none.
const LEAST_SHARE: f64 = 1e-6;
/// A job whose end is a rounding error away still counts as work.
pub(crate) const LEAST_STEPS: f64 = 1e-9;
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
    /// The least maximum of rho; agnostic variants know one mean rate per job.
    Ftf {
        /// Whether rates are unknown.
        is_agnostic: bool,
    },
    /// Max-min, and again for jobs that can still rise; agnostic variants know only where a job can run.
    WaterFilling {
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

/// Classes of equal jobs; tables are row by row, `classes x types`. Each class can run on a type that has GPUs.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Steps per second; 0 where a class cannot run.
    pub rates: Vec<f64>,
    /// GPUs of one job.
    pub gangs: Vec<f64>,
    /// Jobs of each class.
    pub members: Vec<f64>,
    /// Weights.
    pub weights: Vec<f64>,
    /// Steps left, > 0; empty for programs that do not look at it, as the next two.
    pub remaining: Vec<f64>,
    /// Seconds since arrival.
    pub age_s: Vec<f64>,
    /// Seconds that an equal split would have taken for the steps done so far; empty for none.
    pub lost_s: Vec<f64>,
    /// GPUs of each type.
    pub capacity: Vec<f64>,
    /// Jobs over which an equal split divides, those included that can run nowhere at present.
    pub jobs: f64,
}

/// What a program gives to its classes.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Shares of one job of each class, `classes x types`.
    pub shares: Vec<f64>,
    /// In the policy's own terms.
    pub objective: f64,
    /// Water filling: the level of each class.
    pub levels: Vec<f64>,
    /// Programs that were solved.
    pub programs: u32,
    /// Evaluations and simplex steps.
    pub iterations: u32,
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

impl Program {
    /// The program of a policy by its name, if it is one of these.
    pub fn named(policy: &str, is_proportional: bool, prices: Vec<f64>) -> Option<Self> {
        let is_agnostic = policy.ends_with("-agnostic");
        match policy.trim_end_matches("-agnostic") {
            "gavel-las" => Some(Self::Las { is_agnostic }),
            "gavel-makespan" => Some(Self::Makespan { is_agnostic }),
            "gavel-ftf" => Some(Self::Ftf { is_agnostic }),
            "gavel-water-filling" => Some(Self::WaterFilling { is_agnostic }),
            "gavel-max-sum" => Some(Self::MaxSum { is_proportional }),
            "gavel-cost" => Some(Self::Cost { prices }),
            _ => None,
        }
    }

    /// Solves an ask; nothing where the program is not of a kind that is solved here. `lost_s` is what
    /// [`Service`](super::Service) says, or empty.
    ///
    /// # Errors
    /// [`SolverError`] if no optimum is found or a number is out of range.
    pub fn solve(&self, ask: &Ask, lost_s: &[f64]) -> Option<Result<Found, SolverError>> {
        let has_deadline = ask.time_left_s.iter().any(|left| left.is_finite());
        let is_other = matches!(self, Self::Cost { .. }) && has_deadline;
        if ask.jobs.is_empty() || !ask.entities.is_empty() || is_other {
            return None;
        }
        let (table, row_of) = self.grouped(ask, lost_s);
        if table.gangs.is_empty() {
            return Some(Ok(Found {
                shares: vec![0.0; ask.rates.len()],
                programs: 0,
                iterations: 0,
            }));
        }
        let answer = self.solve_table(&table)?;
        Some(answer.map(|answer| Found {
            shares: of_jobs(&answer.shares, &row_of, ask.capacity.len()),
            programs: answer.programs,
            iterations: answer.iterations,
        }))
    }

    /// Solves a program of classes; nothing if it is too large.
    ///
    /// # Errors
    /// Those of [`Self::solve`].
    pub fn solve_table(&self, table: &Table) -> Option<Result<Answer, SolverError>> {
        if 2 * table.gangs.len() + table.capacity.len() > ROWS_MAX {
            return None;
        }
        let answer = match self {
            Self::Las { .. } | Self::Makespan { .. } => self.max_min(table),
            Self::Ftf { is_agnostic } => table.least_rho(*is_agnostic),
            Self::WaterFilling { is_agnostic } => table.filled(*is_agnostic),
            Self::MaxSum { .. } | Self::Cost { .. } => self.most(table),
        };
        Some(answer.and_then(|answer| {
            if answer.shares.iter().all(|share| share.is_finite()) {
                return Ok(answer);
            }
            let steps = answer.iterations;
            Err(SolverError::Steps { steps })
        }))
    }

    /// One row per class of jobs that can run, and the row of each job, if it has one.
    fn grouped(&self, ask: &Ask, lost_s: &[f64]) -> (Table, Vec<Option<usize>>) {
        let types = ask.capacity.len();
        let left: Vec<f64> = ask
            .remaining
            .iter()
            .map(|left| left.max(LEAST_STEPS))
            .collect();
        let words = |column: &[f64]| column.iter().map(|own| own.to_bits()).collect::<Vec<u64>>();
        let mut columns = vec![(words(&ask.rates), types), (words(&ask.gangs), 1)];
        match self {
            Self::Las { .. } | Self::WaterFilling { .. } => columns.push((words(&ask.weights), 1)),
            Self::Makespan { .. } => columns.push((words(&left), 1)),
            Self::Ftf { .. } => {
                let own = [left.as_slice(), &ask.age_s, lost_s];
                let own = own.iter().filter(|column| !column.is_empty());
                columns.extend(own.map(|column| (words(column), 1)));
            }
            Self::MaxSum { .. } | Self::Cost { .. } => {}
        }
        let parts = columns.iter().map(|(words, width)| RowPart {
            words,
            width: *width,
        });
        let classes = group_rows(&parts.collect::<Vec<_>>(), ask.jobs.len());
        let mut table = Table {
            capacity: ask.capacity.clone(),
            jobs: ask.jobs.len() as f64,
            ..Table::default()
        };
        let mut place = vec![None; classes.first.len()];
        for (class, (&first, &count)) in classes.first.iter().zip(&classes.count).enumerate() {
            let first = first as usize;
            let rates = &ask.rates[first * types..(first + 1) * types];
            let mut pairs = rates.iter().zip(&ask.capacity);
            if !pairs.any(|(rate, gpus)| *rate > 0.0 && *gpus > 0.0) {
                continue;
            }
            place[class] = Some(table.gangs.len());
            table.rates.extend_from_slice(rates);
            table.gangs.push(ask.gangs[first]);
            table.members.push(count as f64);
            table.weights.push(ask.weights[first]);
            table.remaining.extend(left.get(first));
            table.age_s.extend(ask.age_s.get(first));
            table.lost_s.extend(lost_s.get(first));
        }
        let row_of = classes.of.iter().map(|&class| place[class as usize]);
        let row_of = row_of.collect();
        (table, row_of)
    }

    fn max_min(&self, table: &Table) -> Result<Answer, SolverError> {
        let fair = table.fair();
        let each = table.gangs.iter().zip(&table.weights).zip(&fair);
        let (rates, measure, worth) = match self {
            Self::Las { is_agnostic: true } => {
                let measure = each.map(|((gang, weight), _)| gang / weight).collect();
                (
                    table.flat(&vec![1.0; fair.len()]),
                    measure,
                    vec![1.0; fair.len()],
                )
            }
            Self::Las { .. } => {
                let measure = each.map(|((gang, weight), fair)| gang / weight * fair);
                (table.rates.clone(), measure.collect(), fair)
            }
            _ => {
                let is_agnostic = matches!(self, Self::Makespan { is_agnostic: true });
                let measure: Vec<f64> = table.remaining.iter().map(|left| 1.0 / left).collect();
                (table.rates_seen(is_agnostic), measure, fair)
            }
        };
        let program = TwoStages {
            rates: &rates,
            measure: &measure,
            worth: &worth,
            gangs: &table.gangs,
            members: &table.members,
            capacity: &table.capacity,
        };
        let staged = program.solve(EVALUATIONS)?;
        let is_makespan = matches!(self, Self::Makespan { .. });
        Ok(Answer {
            objective: if is_makespan {
                1.0 / staged.z
            } else {
                staged.z
            },
            shares: staged.shares,
            levels: Vec::new(),
            programs: 2,
            iterations: staged.iterations,
        })
    }

    fn most(&self, table: &Table) -> Result<Answer, SolverError> {
        let types = table.capacity.len();
        let fair = by_class(&table.rates, &table.fair());
        let cells = table.rates.iter().enumerate();
        let gains = match self {
            Self::Cost { prices } => cells.map(|(at, rate)| rate / prices[at % types]).collect(),
            Self::MaxSum { is_proportional } if *is_proportional => fair.clone(),
            _ => table.rates.clone(),
        };
        let is_last = matches!(self, Self::MaxSum { is_proportional } if *is_proportional);
        let program = Choose {
            rates: &table.rates,
            gains: &gains,
            then: (!is_last).then_some(fair.as_slice()),
            gangs: &table.gangs,
            members: &table.members,
            capacity: &table.capacity,
            floors: &vec![0.0; table.gangs.len()],
            prices: &[],
        };
        let mut chosen = program.solve()?;
        within(
            &mut chosen.shares,
            &table.gangs,
            &table.members,
            &table.capacity,
        );
        let rows = chosen.shares.iter().zip(&gains).enumerate();
        Ok(Answer {
            objective: rows
                .map(|(at, (x, gain))| table.members[at / types] * gain * x)
                .sum(),
            shares: chosen.shares,
            levels: Vec::new(),
            programs: 2 - u32::from(is_last),
            iterations: chosen.steps,
        })
    }
}

impl Table {
    /// One over the rate of each class averaged over all GPUs.
    fn fair(&self) -> Vec<f64> {
        let gpus: f64 = self.capacity.iter().sum();
        let rows = self.rates.chunks_exact(self.capacity.len());
        let totals = rows.map(|row| {
            row.iter()
                .zip(&self.capacity)
                .map(|(a, w)| a * w)
                .sum::<f64>()
        });
        totals.map(|total| 1.0 / (total / gpus)).collect()
    }

    /// The same rate wherever a class can run.
    fn flat(&self, rates: &[f64]) -> Vec<f64> {
        let types = self.capacity.len();
        let cells = self.rates.iter().enumerate();
        cells
            .map(|(at, rate)| if *rate > 0.0 { rates[at / types] } else { 0.0 })
            .collect()
    }

    /// The rates, or their mean over all GPUs wherever a class can run.
    fn rates_seen(&self, is_agnostic: bool) -> Vec<f64> {
        if !is_agnostic {
            return self.rates.clone();
        }
        let mean: Vec<f64> = self.fair().iter().map(|fair| 1.0 / fair).collect();
        self.flat(&mean)
    }

    fn least_rho(&self, is_agnostic: bool) -> Result<Answer, SolverError> {
        let rates = self.rates_seen(is_agnostic);
        let types = self.capacity.len();
        let rows = rates.chunks_exact(types).zip(&self.gangs);
        let alone = rows.map(|(row, gang)| {
            let shares = equal_split(&self.capacity, self.jobs, *gang);
            row.iter()
                .zip(shares)
                .map(|(rate, x)| rate * x)
                .sum::<f64>()
        });
        let alone = alone.zip(&self.remaining).enumerate();
        let lost = |class: usize| self.lost_s.get(class).copied().unwrap_or(0.0);
        let fair_s: Vec<f64> = alone
            .map(|(class, (rate, left))| lost(class) + left / rate)
            .collect();
        let program = Fairness {
            rates: &rates,
            gangs: &self.gangs,
            members: &self.members,
            capacity: &self.capacity,
            age_s: &self.age_s,
            remaining: &self.remaining,
            fair_s: &fair_s,
        };
        let found = program.solve(EVALUATIONS)?;
        let worth = self.fair();
        let chosen = self.above(&rates, &found.asked, &worth, &found.prices)?;
        Ok(Answer {
            shares: chosen.shares,
            objective: found.rho,
            levels: Vec::new(),
            programs: found.programs + 1,
            iterations: found.evaluations + chosen.steps,
        })
    }

    fn filled(&self, is_agnostic: bool) -> Result<Answer, SolverError> {
        let ones = vec![1.0; self.gangs.len()];
        let (rates, worth) = if is_agnostic {
            (self.flat(&ones), ones)
        } else {
            (self.rates.clone(), self.fair())
        };
        let speed = self.weights.iter().zip(&self.gangs);
        let speed: Vec<f64> = speed.map(|(weight, gang)| weight / gang).collect();
        let program = Filling {
            rates: &by_class(&rates, &worth),
            gangs: &self.gangs,
            members: &self.members,
            capacity: &self.capacity,
            speed: &speed,
        };
        let found = program.solve(EVALUATIONS)?;
        let floors = found
            .levels
            .iter()
            .zip(&worth)
            .map(|(level, worth)| level / worth);
        let floors: Vec<f64> = floors.collect();
        let chosen = self.above(&rates, &floors, &worth, &found.prices)?;
        let heights = found
            .levels
            .iter()
            .zip(&speed)
            .map(|(level, speed)| level / speed);
        Ok(Answer {
            objective: heights.fold(f64::INFINITY, f64::min),
            shares: chosen.shares,
            programs: found.programs + 1,
            iterations: found.evaluations + chosen.steps,
            levels: found.levels,
        })
    }

    /// The plan of most worth that reaches the floors.
    fn above(
        &self,
        rates: &[f64],
        floors: &[f64],
        worth: &[f64],
        prices: &[f64],
    ) -> Result<Chosen, SolverError> {
        let program = TwoStages {
            rates,
            measure: worth,
            worth,
            gangs: &self.gangs,
            members: &self.members,
            capacity: &self.capacity,
        };
        program.second_stage(floors, prices)
    }
}

/// The shares of each job on the grid: small ones are none, and all where a job has no row.
fn of_jobs(shares: &[f64], row_of: &[Option<usize>], types: usize) -> Vec<f64> {
    let rounded: Vec<f64> = shares
        .iter()
        .map(|share| rounded(share.clamp(0.0, 1.0)))
        .collect();
    let mut found = vec![0.0; row_of.len() * types];
    for (own, row) in found.chunks_exact_mut(types).zip(row_of) {
        if let Some(row) = row {
            own.copy_from_slice(&rounded[row * types..(row + 1) * types]);
        }
    }
    found
}

/// A share on the grid; small ones are none.
fn rounded(share: f64) -> f64 {
    let cells = share / GRID;
    if cells < LEAST_SHARE / GRID {
        return 0.0;
    }
    cells.round_ties_even() * GRID
}
