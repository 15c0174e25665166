//! What an allocation is to be best in: one file per objective, with its rows, what is chosen among its optima, and what
//! tells jobs apart.

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

/// Programs of more rows are left to prices, or to the solver outside.
const ROWS_MAX: usize = 10_000;

/// What the objectives of the parts of a program make of all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfParts {
    /// The least of them; more is better.
    Least,
    /// The largest of them; less is better.
    Largest,
    /// Their sum; more is better.
    Sum,
}

impl OfParts {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Least => "least",
            Self::Largest => "largest",
            Self::Sum => "sum",
        }
    }
}

/// What an allocation is to be best in.
#[derive(Clone, Debug, PartialEq)]
pub enum Objective {
    /// Max-min of rate per fair share and weight; agnostic variants know only where a job can run.
    Las {
        /// Whether rates are unknown.
        is_agnostic: bool,
    },
    /// The smallest makespan.
    Makespan {
        /// The rates that it knows.
        seen: Seen,
        /// In runs: what the share of a job with much slack counts, beside 1 for a job without.
        slack_weight: f64,
    },
    /// The least maximum of rho.
    Ftf {
        /// The rates that it knows.
        seen: Seen,
    },
    /// Max-min, and again for jobs that can still rise; agnostic variants know only where a job can run.
    WaterFilling {
        /// Whether rates are unknown.
        is_agnostic: bool,
        /// How each entity divides its weight; one for all if there is only one.
        inside: Vec<Inside>,
    },
    /// Most steps per second, per fair share if proportional.
    MaxSum {
        /// Whether rates are measured in fair shares.
        is_proportional: bool,
    },
    /// Most steps per second and unit of price; deadlines first.
    Cost {
        /// Per GPU-hour and type.
        prices: Vec<f64>,
        /// Whether all deadlines are forgotten where one cannot be met.
        drops_all: bool,
    },
    /// The least sum of completion times of jobs with one GPU.
    Allox {
        /// Share of the jobs, oldest first, that an assignment looks at.
        alpha: f64,
    },
    /// An equal split.
    Isolated,
    /// First come first served on the fastest type with room.
    FifoPerf {
        /// Types by name: of equally fast ones the first is taken; empty for the order that they have.
        by_name: Vec<usize>,
    },
}

words! {
    /// Who solves.
    #[derive(Default)]
    pub enum Choice {
        /// The methods of this crate; the solver outside for what they do not know.
        #[default]
        Auto = "auto",
        /// The simplex method of the solver outside.
        Simplex = "simplex",
        /// The interior point of the solver outside.
        InteriorPoint = "ipx",
        /// Prices alone, where they can; else the solver outside.
        Dual = "dual",
    }
}

/// How an allocation is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Who solves.
    pub solver: Choice,
    /// Whether one of several optima is chosen by its worth.
    pub chooses: bool,
    /// Wall time of each solve outside.
    pub time_limit_s: f64,
    /// Of the solver's own random numbers.
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
    /// The same for a solver outside.
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
    /// The same with what it has to know.
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

    /// Solves for classes of jobs.
    ///
    /// # Errors
    /// [`SolverError`] if no optimum is found or a number is out of range.
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

    /// Solves by a method.
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
                    expected: "one over the plans of classes",
                })
            }
        }
    }

    /// Whether the methods of this crate know the program.
    fn is_of_core(&self, table: &Table, is_large: bool) -> bool {
        match self {
            Self::WaterFilling { .. } => true,
            Self::Cost { .. } => !is_large && table.deadlines().is_empty(),
            Self::Allox { .. } => false,
            _ => !is_large,
        }
    }

    /// Whether prices alone can solve it.
    fn is_of_prices(&self) -> bool {
        matches!(
            self,
            Self::Las { .. } | Self::Makespan { .. } | Self::Ftf { .. }
        )
    }

    /// Whether nothing is solved.
    pub fn is_closed_form(&self) -> bool {
        matches!(self, Self::Isolated | Self::FifoPerf { .. })
    }

    /// What the objectives of parts make; none if it is no program that can be dealt into parts.
    pub fn of_parts(&self) -> Option<OfParts> {
        match self {
            Self::Las { .. } | Self::WaterFilling { .. } => Some(OfParts::Least),
            Self::Makespan { .. } | Self::Ftf { .. } => Some(OfParts::Largest),
            Self::MaxSum { .. } | Self::Cost { .. } => Some(OfParts::Sum),
            Self::Allox { .. } | Self::Isolated | Self::FifoPerf { .. } => None,
        }
    }

    /// Whether it is a heterogeneity-agnostic variant, to which all types are alike.
    pub fn is_agnostic(&self) -> bool {
        match self {
            Self::Las { is_agnostic } | Self::WaterFilling { is_agnostic, .. } => *is_agnostic,
            Self::Makespan { seen, .. } | Self::Ftf { seen } => *seen != Seen::Own,
            _ => false,
        }
    }

    /// Whether equal splits of earlier allocations count.
    pub(crate) fn counts_service(&self) -> bool {
        matches!(self, Self::Ftf { .. })
    }

    /// Whether deadlines count.
    pub(crate) fn looks_at_deadlines(&self) -> bool {
        matches!(self, Self::Cost { .. })
    }

    /// What tells jobs apart; `has_deadlines` says whether one can still be met.
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

    /// Whether the jobs of an entity have turns.
    pub(crate) fn is_in_order(&self, entity: u32) -> bool {
        match self {
            Self::WaterFilling { inside, .. } => {
                water_filling::inside_of(inside, entity as usize) == Inside::Fifo
            }
            _ => false,
        }
    }

    /// What the shares of each class count in rounds.
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

/// An answer whose shares are numbers.
fn finite(answer: Answer) -> Result<Answer, SolverError> {
    if answer.shares.iter().all(|share| share.is_finite()) {
        return Ok(answer);
    }
    let steps = answer.iterations;
    Err(SolverError::Steps { steps })
}
