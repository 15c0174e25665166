//! The linear programs of policies, from the ask to the shares, without a solver from outside.
//!
//! Runs give an [`Ask`] of jobs and `gangline.lp.solve` a [`Table`] of classes; the rest is the same.

use super::allocator::{Ask, PairShare, equal_split};
use super::choose::{Choose, Chosen, Pair};
use super::class::{RowPart, group_rows};
use super::dual::SolverError;
use super::even::Spread;
use super::levels::Filling;
use super::program::{TwoStages, by_class, within};
use super::rho::Fairness;
use gangline_model::GpuTypeId;
use std::collections::BTreeMap;

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
        /// In runs: what the share of a job with much slack counts, beside 1 for a job without.
        slack_weight: f64,
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
    /// Kind of each class, from 0; empty unless jobs may share GPUs.
    pub kinds: Vec<u32>,
    /// Number of kinds.
    pub kind_count: usize,
    /// As in an ask.
    pub pair_rates: Vec<f64>,
}

/// Two classes sharing GPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairTime {
    /// The two; one class twice for two of its jobs.
    pub classes: [usize; 2],
    /// Where.
    pub gpu_type: usize,
    /// Job-seconds per second.
    pub time: f64,
}

/// What a program gives to its classes.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Shares of one job of each class, `classes x types`.
    pub shares: Vec<f64>,
    /// Time of classes that share GPUs; none of it is 0.
    pub together: Vec<PairTime>,
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
    /// Rounded shares of pairs; none is 0.
    pub pair_shares: Vec<PairShare>,
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
            "gavel-makespan" => Some(Self::Makespan {
                is_agnostic,
                slack_weight: 1.0,
            }),
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
                pair_shares: Vec::new(),
                programs: 0,
                iterations: 0,
            }));
        }
        let answer = self.solve_table(&table)?;
        Some(answer.map(|answer| {
            let weights = self.weights(&table, &answer);
            let shares = by_class(&answer.shares, &weights);
            Found {
                shares: of_jobs(&shares, &row_of, ask.capacity.len()),
                pair_shares: pair_shares(&answer.together, &table, &weights, &row_of),
                programs: answer.programs,
                iterations: answer.iterations,
            }
        }))
    }

    /// Solves a program of classes; nothing if it is too large, or water filling with pairs.
    ///
    /// # Errors
    /// Those of [`Self::solve`].
    pub fn solve_table(&self, table: &Table) -> Option<Result<Answer, SolverError>> {
        let rows = 2 * table.gangs.len() + table.capacity.len();
        let is_left_to_others = match self {
            Self::WaterFilling { .. } => !table.kinds.is_empty(),
            _ => rows > ROWS_MAX,
        };
        if is_left_to_others {
            return None;
        }
        let answer = match self {
            Self::Las { .. } | Self::Makespan { .. } => self.max_min(table),
            Self::Ftf { is_agnostic } => table.least_rho(*is_agnostic),
            Self::WaterFilling { is_agnostic } => table.filled(*is_agnostic),
            Self::MaxSum { .. } | Self::Cost { .. } => self.most(table),
        };
        Some(answer.and_then(|mut answer| {
            if self.is_agnostic() && table.kinds.is_empty() {
                let spread = Spread {
                    rates: &table.rates,
                    gangs: &table.gangs,
                    members: &table.members,
                    capacity: &table.capacity,
                };
                spread.even(&mut answer.shares);
            }
            if answer.shares.iter().all(|share| share.is_finite()) {
                return Ok(answer);
            }
            let steps = answer.iterations;
            Err(SolverError::Steps { steps })
        }))
    }

    /// Whether the policy is a heterogeneity-agnostic variant, to which all types are alike.
    fn is_agnostic(&self) -> bool {
        match self {
            Self::Las { is_agnostic }
            | Self::Makespan { is_agnostic, .. }
            | Self::Ftf { is_agnostic }
            | Self::WaterFilling { is_agnostic } => *is_agnostic,
            Self::MaxSum { .. } | Self::Cost { .. } => false,
        }
    }

    /// What the shares of each class count in rounds.
    fn weights(&self, table: &Table, answer: &Answer) -> Vec<f64> {
        match self {
            Self::Makespan {
                is_agnostic,
                slack_weight,
            } if *slack_weight < 1.0 => {
                let urgency = table.urgency(*is_agnostic, answer.objective);
                urgency.iter().map(|own| own.max(*slack_weight)).collect()
            }
            _ => vec![1.0; table.gangs.len()],
        }
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
        let kinds: Vec<u64> = ask.kinds.iter().copied().map(u64::from).collect();
        if !kinds.is_empty() {
            columns.push((kinds, 1));
        }
        let parts = columns.iter().map(|(words, width)| RowPart {
            words,
            width: *width,
        });
        let classes = group_rows(&parts.collect::<Vec<_>>(), ask.jobs.len());
        let mut table = Table {
            capacity: ask.capacity.clone(),
            jobs: ask.jobs.len() as f64,
            kind_count: ask.kind_count,
            pair_rates: ask.pair_rates.clone(),
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
            table.kinds.extend(ask.kinds.get(first));
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
                let is_agnostic = self.is_agnostic();
                let measure: Vec<f64> = table.remaining.iter().map(|left| 1.0 / left).collect();
                (table.rates_seen(is_agnostic), measure, fair)
            }
        };
        let pairs = table.pairs(&rates, |class, _| [worth[class]; 2]);
        let program = TwoStages {
            rates: &rates,
            measure: &measure,
            worth: &worth,
            gangs: &table.gangs,
            members: &table.members,
            capacity: &table.capacity,
            pairs: &pairs,
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
            together: together(&pairs, &staged.together),
            levels: Vec::new(),
            programs: 2,
            iterations: staged.iterations,
        })
    }

    fn most(&self, table: &Table) -> Result<Answer, SolverError> {
        let types = table.capacity.len();
        let norm = table.fair();
        let fair = by_class(&table.rates, &norm);
        let cells = table.rates.iter().enumerate();
        let gains = match self {
            Self::Cost { prices } => cells.map(|(at, rate)| rate / prices[at % types]).collect(),
            Self::MaxSum { is_proportional } if *is_proportional => fair.clone(),
            _ => table.rates.clone(),
        };
        let pairs = table.pairs(&table.rates, |class, gpu_type| {
            let gain = match self {
                Self::Cost { prices } => 1.0 / prices[gpu_type],
                Self::MaxSum { is_proportional } if *is_proportional => norm[class],
                _ => 1.0,
            };
            [gain, norm[class]]
        });
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
            pairs: &pairs,
            rises: false,
        };
        let mut chosen = program.solve()?;
        within(
            &mut chosen.shares,
            &mut chosen.together,
            &pairs,
            &table.gangs,
            &table.members,
            &table.capacity,
        );
        Ok(Answer {
            objective: chosen.value,
            shares: chosen.shares,
            together: together(&pairs, &chosen.together),
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

    /// What part of the time to the makespan each class needs at the least: all its work on its fastest type. A job that
    /// needs all of it cannot catch up a round that it misses, and the makespan grows by it.
    fn urgency(&self, is_agnostic: bool, makespan_s: f64) -> Vec<f64> {
        let rates = self.rates_seen(is_agnostic);
        let rows = rates.chunks_exact(self.capacity.len());
        let fastest = rows.map(|row| {
            let usable = row.iter().zip(&self.capacity).filter(|own| *own.1 > 0.0);
            usable.fold(0.0_f64, |most, (rate, _)| most.max(*rate))
        });
        let each = fastest.zip(&self.remaining);
        each.map(|(fastest, left)| (left / fastest / makespan_s).min(1.0))
            .collect()
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
        let worth = self.fair();
        let pairs = self.pairs(&rates, |class, _| [worth[class]; 2]);
        if !pairs.is_empty() {
            let (rho, staged, programs) = program.solve_packed(&worth, &pairs, EVALUATIONS)?;
            return Ok(Answer {
                shares: staged.shares,
                together: together(&pairs, &staged.together),
                objective: rho,
                levels: Vec::new(),
                programs,
                iterations: staged.iterations,
            });
        }
        let found = program.solve(EVALUATIONS)?;
        let chosen = self.above(&rates, &found.asked, &worth, &found.prices)?;
        Ok(Answer {
            shares: chosen.shares,
            together: Vec::new(),
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
        let found = program.solve()?;
        let floors = found.levels.iter().zip(&worth);
        let floors: Vec<f64> = floors.map(|(level, worth)| level / worth).collect();
        // of two plans to begin with, the one that takes fewer GPUs
        let chosen = self.above(&rates, &floors, &worth, &self.capacity)?;
        let heights = found
            .levels
            .iter()
            .zip(&speed)
            .map(|(level, speed)| level / speed);
        Ok(Answer {
            objective: heights.fold(f64::INFINITY, f64::min),
            shares: chosen.shares,
            together: Vec::new(),
            programs: found.rises + 1,
            iterations: found.steps + chosen.steps,
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
            pairs: &[],
        };
        program.second_stage(floors, prices, false)
    }

    /// Classes that gain by sharing GPUs, at rates in the unit of those `seen`; `counts` says what a step per second of a
    /// class on a type counts in both objectives. Where two relative speeds add up to at most 1, alternating is as good.
    fn pairs(&self, seen: &[f64], counts: impl Fn(usize, usize) -> [f64; 2]) -> Vec<Pair> {
        let (types, classes) = (self.capacity.len(), self.kinds.len());
        let beside = |one: usize, other: usize| {
            let row = self.kinds[one] as usize * self.kind_count + self.kinds[other] as usize;
            &self.pair_rates[row * types..(row + 1) * types]
        };
        let alone = |class: usize, gpu_type: usize| self.rates[class * types + gpu_type];
        let mut pairs = Vec::new();
        for one in 0..classes {
            for other in one..classes {
                let is_two = one != other || self.members[one] >= 2.0;
                if !is_two || self.gangs[one].to_bits() != self.gangs[other].to_bits() {
                    continue;
                }
                let (ours, theirs) = (beside(one, other), beside(other, one));
                for gpu_type in (0..types).filter(|&own| self.capacity[own] > 0.0) {
                    let classes = [one, other];
                    let rates = [ours[gpu_type], theirs[gpu_type]];
                    let alone = classes.map(|class| alone(class, gpu_type));
                    let is_usable = rates.iter().chain(&alone).all(|rate| *rate > 0.0);
                    if !is_usable || rates[0] / alone[0] + rates[1] / alone[1] <= 1.0 {
                        continue;
                    }
                    let seen = classes.map(|class| seen[class * types + gpu_type]);
                    let as_seen = |at: usize| {
                        if seen[at].to_bits() == alone[at].to_bits() {
                            rates[at]
                        } else {
                            rates[at] / alone[at] * seen[at]
                        }
                    };
                    let rates = [as_seen(0), as_seen(1)];
                    let [a, b] = classes.map(|class| counts(class, gpu_type));
                    pairs.push(Pair {
                        classes,
                        gpu_type,
                        rates,
                        gain: a[0] * rates[0] + b[0] * rates[1],
                        then: a[1] * rates[0] + b[1] * rates[1],
                    });
                }
            }
        }
        pairs
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

/// Pairs that have time.
fn together(pairs: &[Pair], times: &[f64]) -> Vec<PairTime> {
    let used = pairs.iter().zip(times).filter(|(_, time)| **time > 0.0);
    used.map(|(pair, &time)| PairTime {
        classes: pair.classes,
        gpu_type: pair.gpu_type,
        time,
    })
    .collect()
}

/// The share of each job beside each kind. The time of two classes is split evenly over the jobs of each; a pair of one
/// class takes two of its jobs.
fn pair_shares(
    together: &[PairTime],
    table: &Table,
    weights: &[f64],
    row_of: &[Option<usize>],
) -> Vec<PairShare> {
    let mut total: BTreeMap<(usize, u32, usize), f64> = BTreeMap::new();
    for pair in together {
        let [one, other] = pair.classes;
        for (class, beside) in [(one, other), (other, one)] {
            let key = (class, table.kinds[beside], pair.gpu_type);
            *total.entry(key).or_default() += pair.time / table.members[class];
        }
    }
    let mut found = Vec::new();
    for ((class, beside, gpu_type), share) in total {
        let share = rounded((share * weights[class]).min(1.0));
        if share > 0.0 {
            let mine = row_of.iter().enumerate();
            let mine = mine.filter(|(_, own)| **own == Some(class));
            found.extend(mine.map(|(row, _)| PairShare {
                row,
                beside,
                gpu_type: GpuTypeId::new(gpu_type),
                share,
            }));
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
