//! The set of feasible plans, which all objectives share, and the interface that both methods of finding an optimal
//! plan implement.
//!
//! A plan gives each class time alone on each type, and gives each pair of classes time together. No class uses more
//! time than its jobs have, and no plan uses more GPUs of a type than the cluster has.

use super::choose::Pair;
use super::model::SolverError;
use super::rho::Fairness;
use super::table::Table;
use std::borrow::Cow;

/// The set of feasible plans. Tables are row-major, `classes x types`.
pub(crate) struct Space<'a> {
    /// Rates that the objective uses; 0 where a class cannot run.
    pub rates: Cow<'a, [f64]>,
    /// For each class, the value of one unit of rate in the choice among optima.
    pub worth: Vec<f64>,
    /// Gang size of the jobs in each class.
    pub gangs: &'a [f64],
    /// Number of jobs in each class.
    pub members: &'a [f64],
    /// Number of GPUs of each type.
    pub capacity: &'a [f64],
    /// Pairs of classes that may share GPUs.
    pub pairs: Vec<Pair>,
}

impl<'a> Space<'a> {
    /// Creates the set of plans for classes at the given rates. Given the worths, a class and a type, `counts` returns
    /// two values of one step per second: its value in the objective, and its value in the choice among optima.
    pub(crate) fn of(
        table: &'a Table,
        rates: impl Into<Cow<'a, [f64]>>,
        worth: Vec<f64>,
        counts: impl Fn(&[f64], usize, usize) -> [f64; 2],
    ) -> Self {
        let rates = rates.into();
        let pairs = table.pairs(&rates, |class, gpu_type| counts(&worth, class, gpu_type));
        Self {
            rates,
            worth,
            gangs: &table.gangs,
            members: &table.members,
            capacity: &table.capacity,
            pairs,
        }
    }

    /// Creates the set of plans for an objective in which a step has the same value as in the choice among optima.
    pub(crate) fn plain(
        table: &'a Table,
        rates: impl Into<Cow<'a, [f64]>>,
        worth: Vec<f64>,
    ) -> Self {
        Self::of(table, rates, worth, |worth, class, _| [worth[class]; 2])
    }

    /// Returns the rates of one job of each class under a plan.
    pub(crate) fn rates_of(&self, plan: &Plan) -> Vec<f64> {
        let types = self.capacity.len();
        let rows = self.rates.chunks_exact(types);
        let rows = rows.zip(plan.shares.chunks_exact(types));
        let alone = rows.map(|(rates, x)| rates.iter().zip(x).map(|(rate, x)| rate * x).sum());
        let mut found: Vec<f64> = alone.collect();
        for (pair, time) in self.pairs.iter().zip(&plan.together) {
            for (class, rate) in pair.classes.into_iter().zip(pair.rates) {
                found[class] += rate * time / self.members[class];
            }
        }
        found
    }

    /// Returns the largest rate that a job of each class can reach alone.
    pub(crate) fn fastest_alone(&self) -> Vec<f64> {
        let rows = self.rates.chunks_exact(self.capacity.len());
        rows.map(|row| {
            let usable = row.iter().zip(self.capacity).filter(|own| *own.1 > 0.0);
            usable.fold(0.0_f64, |most, (rate, _)| most.max(*rate))
        })
        .collect()
    }
}

/// The optimal plan for an objective.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// Value of the objective.
    pub z: f64,
    /// Shares of one job of each class, `classes x types`.
    pub shares: Vec<f64>,
    /// Time that each pair spends together, in job-seconds per second.
    pub together: Vec<f64>,
    /// For max-min fairness, the weight of each class in the bound on z; empty if not requested. The weights add up to
    /// 1.
    pub weights: Vec<f64>,
}

/// Solver statistics.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Spent {
    /// Number of programs that were solved.
    pub programs: u32,
    /// Number of evaluations and simplex steps.
    pub iterations: u32,
    /// Name of the method that was used last.
    pub method: String,
    /// Whether a program needed a second method.
    pub is_retry: bool,
}

impl Spent {
    /// Returns these statistics with the given method name.
    pub(crate) fn named(mut self, method: &str) -> Self {
        method.clone_into(&mut self.method);
        self
    }
}

/// Parameters of water filling.
pub(crate) struct Water<'a> {
    /// Level of each class at a rate of 1.
    pub worth: &'a [f64],
    /// Relative speeds at which levels rise, as in [`Filling`](super::levels::Filling).
    pub speeds: &'a dyn Fn(&[bool]) -> Vec<f64>,
    /// Whether each class has a constant speed for as long as its level can rise.
    pub is_even: bool,
}

/// A method for finding optimal plans.
pub(crate) trait Method {
    /// Finds the largest z such that `measure x rate` is at least z for each class. Among the plans that reach it,
    /// returns one with the largest worth.
    fn max_min(&mut self, space: &Space<'_>, measure: &[f64]) -> Result<Plan, SolverError>;

    /// Finds the largest sum of gains. Among the plans that reach it, returns one with the largest sum of the next
    /// gains. The arguments contain gains by class and type; the gains of pairs are stored in the pairs.
    fn most(
        &mut self,
        space: &Space<'_>,
        gains: &[f64],
        then: Option<&[f64]>,
    ) -> Result<Plan, SolverError>;

    /// Finds the smallest rho. Returns a plan with the largest worth among those that reach it.
    fn least_rho(
        &mut self,
        space: &Space<'_>,
        fairness: &Fairness<'_>,
    ) -> Result<Plan, SolverError>;

    /// Finds the level of each class. Returns a plan with the largest worth among those that reach these levels.
    fn fill(
        &mut self,
        space: &Space<'_>,
        water: &Water<'_>,
    ) -> Result<(Vec<f64>, Plan), SolverError>;
}
