//! Objectives of allocations. Each file contains one objective: its rows, its choice among optima, and the facts that
//! it uses to distinguish jobs.

mod allox;
mod closed;
mod cost;
mod ftf;
mod las;
mod makespan;
mod max_sum;
mod water_filling;

use super::answer::Answer;
use super::core::Core;
use super::even::Spread;
use super::facts::{Facts, Inside, Seen};
use super::model::{Algorithm, How, Solver, SolverError};
use super::rows::ByRows;
use super::space::{Method, Spent};
use super::table::{Table, Told};
use gangline_model::words;

pub use closed::FastestFirst;

/// Programs with more rows than this are solved with the price method or by an external solver.
const ROWS_MAX: usize = 10_000;

/// Rule by which the objectives of the parts are combined into the objective of the whole program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfParts {
    /// The minimum over the parts; a larger value is better.
    Least,
    /// The maximum over the parts; a smaller value is better.
    Largest,
    /// The sum over the parts; a larger value is better.
    Sum,
}

impl OfParts {
    /// Returns the name of the combination.
    pub fn name(self) -> &'static str {
        match self {
            Self::Least => "least",
            Self::Largest => "largest",
            Self::Sum => "sum",
        }
    }
}

/// Objective of an allocation.
#[derive(Clone, Debug, PartialEq)]
pub enum Objective {
    /// Max-min fairness of each job's rate, relative to its fair share and weight. A heterogeneity-agnostic variant
    /// knows only which types a job can run on.
    Las {
        /// Whether rates are unknown.
        is_agnostic: bool,
    },
    /// The smallest makespan.
    Makespan {
        /// The rates that the objective uses.
        seen: Seen,
        /// Minimum of the weight by which rounds multiply the share of a job. The weight is 1 for a job without slack,
        /// and decreases with the slack.
        slack_weight: f64,
    },
    /// The smallest possible value of the largest rho.
    Ftf {
        /// The rates that the objective uses.
        seen: Seen,
    },
    /// Lexicographic max-min fairness. A heterogeneity-agnostic variant knows only which types a job can run on.
    WaterFilling {
        /// Whether rates are unknown.
        is_agnostic: bool,
        /// Rule by which each entity divides its weight; if the list has only one rule, it applies to all entities.
        inside: Vec<Inside>,
    },
    /// Maximum sum of the jobs' rates, in steps per second or relative to their rates at fair shares.
    MaxSum {
        /// Whether rates are relative to fair shares.
        is_proportional: bool,
    },
    /// Maximum number of steps per second per unit of price; deadlines come first.
    Cost {
        /// Price per GPU-hour for each type.
        prices: Vec<f64>,
        /// Whether all deadlines are ignored if one cannot be met.
        drops_all: bool,
    },
    /// Minimum sum of the completion times of single-GPU jobs.
    Allox {
        /// Share of the jobs, oldest first, that an assignment includes.
        alpha: f64,
    },
    /// An equal split.
    Isolated,
    /// First come, first served on the fastest type with enough free GPUs.
    FifoPerf {
        /// GPU types, sorted by name. Of several equally fast types, a job gets the first. An empty list means the
        /// order of the cluster.
        by_name: Vec<usize>,
    },
}

words! {
    /// Choice of the solver.
    #[derive(Default)]
    pub enum Choice {
        /// The methods of this crate, or the external solver for programs that they do not support.
        #[default]
        Auto = "auto",
        /// The simplex method of the external solver.
        Simplex = "simplex",
        /// The interior point method of the external solver.
        InteriorPoint = "ipx",
        /// The price method where possible, otherwise the external solver.
        Dual = "dual",
    }
}

/// Settings of an allocation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Choice of the solver.
    pub solver: Choice,
    /// Whether, among several optima, the plan with the largest worth is chosen.
    pub chooses: bool,
    /// Wall-clock limit of each external solve, in seconds.
    pub time_limit_s: f64,
    /// Seed of the solver's random number generator.
    pub seed: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            solver: Choice::Auto,
            chooses: true,
            time_limit_s: 60.0,
            seed: 0,
        }
    }
}

impl Settings {
    /// Returns these settings in the form that an external solver needs.
    pub fn how(self) -> How {
        How {
            algorithm: match self.solver {
                Choice::Auto | Choice::Dual => Algorithm::Auto,
                Choice::Simplex => Algorithm::Simplex,
                Choice::InteriorPoint => Algorithm::InteriorPoint,
            },
            time_limit_s: self.time_limit_s,
            seed: self.seed,
        }
    }
}

impl Objective {
    /// Returns this objective after adding the facts that it needs.
    #[must_use]
    pub fn with(mut self, facts: &Facts) -> Self {
        match &mut self {
            Self::Makespan { seen, .. } | Self::Ftf { seen } if *seen != Seen::Own => {
                *seen = facts.reference.map_or(Seen::Mean, Seen::Reference);
            }
            Self::Cost { prices, .. } => prices.clone_from(&facts.prices),
            Self::FifoPerf { by_name } => by_name.clone_from(&facts.by_name),
            Self::WaterFilling { inside, .. } if !facts.inside.is_empty() => {
                inside.clone_from(&facts.inside);
            }
            _ => {}
        }
        self
    }

    /// Optimises the objective for classes of jobs.
    ///
    /// # Errors
    /// Returns [`SolverError`] if no optimum is found or a number is out of range.
    pub fn solve(
        &self,
        table: &Table,
        settings: Settings,
        solver: &mut dyn Solver,
    ) -> Result<Answer, SolverError> {
        match self {
            Self::Isolated => return Ok(closed::isolated(table)),
            Self::FifoPerf { by_name } => return Ok(closed::fifo_perf(table, by_name)),
            _ => {}
        }
        let mut answer = self.solved(table, settings, solver)?;
        if self.is_agnostic() && table.kinds.is_empty() && settings.chooses {
            let spread = Spread {
                rates: &table.rates,
                gangs: &table.gangs,
                members: &table.members,
                capacity: &table.capacity,
            };
            spread.even(&mut answer.shares);
        }
        finite(answer)
    }

    fn solved(
        &self,
        table: &Table,
        settings: Settings,
        solver: &mut dyn Solver,
    ) -> Result<Answer, SolverError> {
        let is_large = 2 * table.gangs.len() + table.capacity.len() > ROWS_MAX;
        let (mut is_retry, mut prices_failed) = (false, false);
        if settings.solver == Choice::Auto && settings.chooses && self.is_of_core(table, is_large) {
            let mut core = Core::default();
            match self.by(table, &mut core).and_then(finite) {
                Ok(answer) => return Ok(answer.by(core.spent.named("core"))),
                Err(_) => is_retry = true,
            }
        }
        let is_due = match settings.solver {
            Choice::Auto => is_large,
            Choice::Dual => true,
            Choice::Simplex | Choice::InteriorPoint => false,
        };
        if is_due && self.is_of_prices() && table.kinds.is_empty() {
            let mut core = Core {
                is_prices: true,
                ..Core::default()
            };
            match self.by(table, &mut core) {
                Ok(answer) => return Ok(answer.by(core.spent.named("dual"))),
                Err(error) if settings.solver == Choice::Dual => return Err(error),
                Err(_) => prices_failed = true,
            }
        }
        let mut rows = ByRows {
            solver,
            how: settings.how(),
            chooses: settings.chooses,
            spent: Spent::default(),
        };
        let answer = match self {
            Self::Allox { alpha } => allox::solve(table, *alpha, &mut rows),
            Self::Cost { prices, drops_all } if !table.deadlines().is_empty() => {
                cost::with_deadlines(table, prices, *drops_all, &mut rows)
            }
            _ => self.by(table, &mut rows),
        };
        let mut answer = answer?.by(rows.spent);
        answer.notes.is_retry |= is_retry;
        answer.notes.prices_failed = prices_failed;
        Ok(answer)
    }

    /// Optimises the objective with one method.
    fn by(&self, table: &Table, method: &mut dyn Method) -> Result<Answer, SolverError> {
        match self {
            Self::Las { is_agnostic } => las::solve(table, *is_agnostic, method),
            Self::Makespan { seen, .. } => makespan::solve(table, *seen, method),
            Self::Ftf { seen } => ftf::solve(table, *seen, method),
            Self::WaterFilling {
                is_agnostic,
                inside,
            } => water_filling::solve(table, *is_agnostic, inside, method),
            Self::MaxSum { is_proportional } => max_sum::solve(table, *is_proportional, method),
            Self::Cost { prices, .. } => cost::solve(table, prices, method),
            Self::Allox { .. } | Self::Isolated | Self::FifoPerf { .. } => {
                Err(SolverError::Input {
                    what: "objective",
                    expected: "an objective over the plans of classes",
                })
            }
        }
    }

    /// Returns whether the methods of this crate support the program.
    fn is_of_core(&self, table: &Table, is_large: bool) -> bool {
        match self {
            Self::WaterFilling { .. } => true,
            Self::Cost { .. } => !is_large && table.deadlines().is_empty(),
            Self::Allox { .. } => false,
            _ => !is_large,
        }
    }

    /// Returns whether the price method alone can optimise this objective.
    fn is_of_prices(&self) -> bool {
        matches!(
            self,
            Self::Las { .. } | Self::Makespan { .. } | Self::Ftf { .. }
        )
    }

    /// Returns whether this objective has a closed form and therefore needs no solver.
    pub fn is_closed_form(&self) -> bool {
        matches!(self, Self::Isolated | Self::FifoPerf { .. })
    }

    /// Returns how the objectives of the parts are combined, or `None` if the program cannot be split into parts.
    pub fn of_parts(&self) -> Option<OfParts> {
        match self {
            Self::Las { .. } | Self::WaterFilling { .. } => Some(OfParts::Least),
            Self::Makespan { .. } | Self::Ftf { .. } => Some(OfParts::Largest),
            Self::MaxSum { .. } | Self::Cost { .. } => Some(OfParts::Sum),
            Self::Allox { .. } | Self::Isolated | Self::FifoPerf { .. } => None,
        }
    }

    /// Returns whether this objective is a heterogeneity-agnostic variant, which treats all types equally.
    pub fn is_agnostic(&self) -> bool {
        match self {
            Self::Las { is_agnostic } | Self::WaterFilling { is_agnostic, .. } => *is_agnostic,
            Self::Makespan { seen, .. } | Self::Ftf { seen } => *seen != Seen::Own,
            _ => false,
        }
    }

    /// Returns whether this objective needs the service history of the jobs ([`Service`](super::Service)).
    pub(crate) fn counts_service(&self) -> bool {
        matches!(self, Self::Ftf { .. })
    }

    /// Returns whether this objective uses deadlines.
    pub(crate) fn looks_at_deadlines(&self) -> bool {
        matches!(self, Self::Cost { .. })
    }

    /// Returns the facts that distinguish jobs; `has_deadlines` indicates whether any deadline can still be met.
    pub(crate) fn told(&self, has_deadlines: bool) -> &'static [Told] {
        match self {
            Self::Las { .. } | Self::Isolated => &[Told::Weights],
            Self::WaterFilling { .. } => &[Told::Weights, Told::Entities],
            Self::Makespan { .. } => &[Told::Remaining],
            Self::Ftf { .. } => &[Told::Remaining, Told::Ages],
            Self::Cost { .. } if has_deadlines => &[Told::Each],
            Self::MaxSum { .. } | Self::Cost { .. } => &[],
            Self::Allox { .. } | Self::FifoPerf { .. } => &[Told::Each],
        }
    }

    /// Returns whether an entity gives its whole weight to its first job that can still rise.
    pub(crate) fn is_in_order(&self, entity: u32) -> bool {
        match self {
            Self::WaterFilling { inside, .. } => {
                water_filling::inside_of(inside, entity as usize) == Inside::Fifo
            }
            _ => false,
        }
    }

    /// Returns, for each class, the weight by which rounds multiply its shares.
    pub(crate) fn weights(&self, table: &Table, answer: &Answer) -> Vec<f64> {
        match self {
            Self::Makespan { seen, slack_weight } if *slack_weight < 1.0 => {
                let urgency = makespan::urgency(table, *seen, answer.objective);
                urgency.iter().map(|own| own.max(*slack_weight)).collect()
            }
            _ => vec![1.0; table.gangs.len()],
        }
    }
}

/// Returns the answer, or an error if a share is not a finite number.
fn finite(answer: Answer) -> Result<Answer, SolverError> {
    if answer.shares.iter().all(|share| share.is_finite()) {
        return Ok(answer);
    }
    let steps = answer.iterations;
    Err(SolverError::Steps { steps })
}
