//! The allocator that is used in runs. It optimises an objective for the jobs in each request, and prepares the
//! resulting shares for rounds.

use super::allocator::{Allocator, Ask, PairShare, Shares};
use super::answer::{Answer, PairTime};
use super::facts::Facts;
use super::model::{Failed, NoSolver, Solver, SolverError};
use super::objective::{Objective, Settings};
use super::program::by_class;
use super::service::{LEAST_STEPS, Service};
use super::split::EqualSplit;
use super::table::{ClassOf, Table};
use gangline_engine::{PolicyError, Silent, Stopwatch};
use gangline_model::{GpuType, GpuTypeId, JobId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shares are rounded to this grid. The grid is wider than the slack of the second stage, so that neither the slack nor
/// floating-point noise changes the order of jobs.
const GRID: f64 = 1e-8;
/// Shares below this limit are set to 0. The second stage may spend its slack on tiny shares of scarce types. Such a
/// share would entitle its job to GPUs of that type, perhaps even before all other jobs.
const LEAST_SHARE: f64 = 1e-6;
/// If the weight of the missed deadlines is above this limit, it is more than solver noise.
const MISSED: f64 = 1e-9;

/// Purpose of a run's linear programs, and the settings of the solver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Programs {
    /// The programs compute allocations.
    OfAllocations(Settings),
    /// The programs solve auctions exactly.
    OfAuctions {
        /// Wall-clock limit of each solve, in seconds.
        time_limit_s: f64,
    },
}

/// Statistics of the linear programs that a run solves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Purpose of the programs; `None` if the run solves no programs.
    pub of: Option<Programs>,
    /// Number of allocations or auctions, by the name of the method; the name is empty for a closed form.
    pub allocations: BTreeMap<String, u64>,
    /// Number of linear programs that were solved.
    pub programs: u64,
    /// Number of evaluations and simplex steps.
    pub iterations: u64,
    /// Wall-clock time in nanoseconds.
    pub nanos: u64,
    /// Number of allocations that failed and were replaced by an equal split.
    pub fallbacks: u64,
    /// Number of allocations in which the price method failed and linear programs were solved instead.
    pub prices_failed: u64,
    /// Number of allocations in which a program needed a second method.
    pub retried: u64,
    /// Number of allocations that miss a deadline; `None` if there are no deadlines.
    pub missing_deadlines: Option<u64>,
    /// Number of jobs whose deadline passed.
    pub dropped_deadlines: u64,
}

impl Tally {
    /// Counts an allocation or auction: its method, its programs, its steps and its wall time.
    pub fn add(&mut self, of: Programs, method: &str, [programs, steps]: [u32; 2], nanos: u64) {
        self.of = Some(of);
        *self.allocations.entry(method.to_owned()).or_default() += 1;
        self.programs += u64::from(programs);
        self.iterations += u64::from(steps);
        self.nanos += nanos;
    }
}

/// The solver, the clock and the counters that a policy receives from outside the core.
pub struct Outside {
    /// Solves the linear programs for which this crate has no method.
    pub solver: Box<dyn Solver>,
    /// Measures the time of allocations.
    pub clock: Box<dyn Stopwatch + Send>,
    /// Counts the allocations.
    pub tally: Arc<Mutex<Tally>>,
}

impl Default for Outside {
    fn default() -> Self {
        Self {
            solver: Box::new(NoSolver),
            clock: Box::new(Silent),
            tally: Arc::default(),
        }
    }
}

impl Outside {
    /// Returns the counters.
    pub fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Settings of the allocations in a run.
#[derive(Clone, Debug, PartialEq)]
pub struct InRuns {
    /// Name of the policy, used in messages.
    pub policy: String,
    /// The objective.
    pub objective: Objective,
    /// Settings of the solver.
    pub settings: Settings,
    /// Whether an equal split replaces an allocation that fails.
    pub falls_back: bool,
    /// Name of the reference type, if the objective uses only the rate of each job on this type.
    pub reference: Option<String>,
}

/// An allocator that optimises an objective.
pub struct Allocations {
    given: InRuns,
    facts: Facts,
    outside: Outside,
    service: Option<Service>,
    /// Jobs whose deadline has passed.
    passed: BTreeSet<JobId>,
}

/// The shares that rounds use, and the solution from which they were computed.
#[derive(Clone, Debug)]
pub struct Found {
    /// Rounded shares.
    pub shares: Shares,
    /// Solution for the classes of jobs; empty if no job can run.
    pub answer: Answer,
}

impl Allocations {
    /// Creates an allocator.
    pub fn new(given: InRuns, outside: Outside) -> Self {
        let mut tally = outside.tally();
        tally.of = Some(Programs::OfAllocations(given.settings));
        if matches!(given.objective, Objective::Cost { .. }) {
            tally.missing_deadlines = Some(0);
        }
        drop(tally);
        Self {
            service: given.objective.counts_service().then(Service::default),
            given,
            facts: Facts::default(),
            outside,
            passed: BTreeSet::new(),
        }
    }

    fn count(&mut self, answer: &Answer, began: u64) {
        let nanos = self.outside.clock.nanos() - began;
        let of = Programs::OfAllocations(self.given.settings);
        let mut tally = self.outside.tally();
        let spent = [answer.programs, answer.iterations];
        tally.add(of, &answer.method, spent, nanos);
        tally.prices_failed += u64::from(answer.notes.prices_failed);
        tally.retried += u64::from(answer.notes.is_retry);
        if let Some(missing) = &mut tally.missing_deadlines {
            *missing += u64::from(answer.notes.missed > MISSED);
        }
        tally.dropped_deadlines = self.passed.len() as u64;
    }

    /// Counts a failed allocation, and returns an equal split instead. Returns the error if the settings do not allow
    /// this.
    fn instead(
        &mut self,
        ask: &Ask,
        lost_s: &[f64],
        error: &SolverError,
    ) -> Result<Shares, PolicyError> {
        let failed = Failed::Allocation {
            ask,
            lost_s,
            facts: &self.facts,
        };
        self.outside.solver.failed(&failed, error);
        if !self.given.falls_back {
            let policy = &self.given.policy;
            let message = format!("{policy}: {error}");
            return Err(PolicyError::Failed { message });
        }
        let mut tally = self.outside.tally();
        tally.fallbacks += 1;
        *tally.allocations.entry(String::new()).or_default() += 1;
        drop(tally);
        let types = ask.capacity.len();
        let mut alone = EqualSplit.allocate(ask)?;
        for (row, rates) in alone
            .chunks_exact_mut(types)
            .zip(ask.rates.chunks_exact(types))
        {
            let mut usable = rates.iter().zip(&ask.capacity);
            let can = usable.any(|(rate, gpus)| *rate > 0.0 && *gpus > 0.0);
            for share in row {
                *share = if can { rounded(*share) } else { 0.0 };
            }
        }
        Ok(Shares {
            alone,
            pair_shares: Vec::new(),
        })
    }
}

impl Allocator for Allocations {
    fn start(&mut self, types: &[GpuType]) -> Result<(), PolicyError> {
        let wrong = |field: &str, value: String, expected: String| PolicyError::Parameter {
            policy: self.given.policy.clone(),
            field: field.to_owned(),
            value,
            expected,
        };
        let names: Vec<&str> = types.iter().map(|own| own.name.as_str()).collect();
        let mut facts = Facts::default();
        if let Some(name) = &self.given.reference {
            facts.reference = names.iter().position(|own| own == name);
            if facts.reference.is_none() {
                let expected = format!("a GPU type of the cluster ({})", names.join(", "));
                return Err(wrong("reference_type", name.clone(), expected));
            }
        }
        if matches!(self.given.objective, Objective::Cost { .. }) {
            facts.prices = types.iter().map(|own| own.price_per_hour).collect();
            let absent = names.iter().zip(&facts.prices).filter(|own| *own.1 <= 0.0);
            let absent: Vec<&str> = absent.map(|own| *own.0).collect();
            if !absent.is_empty() {
                let expected =
                    "a price > 0 for every GPU type of the cluster; set it in [[gpu_types]]";
                let value = format!("none for {}", absent.join(", "));
                return Err(wrong("price_per_hour", value, expected.to_owned()));
            }
        }
        self.given.objective = self.given.objective.clone().with(&facts);
        self.facts = facts;
        Ok(())
    }

    fn allocate(&mut self, ask: &Ask) -> Result<Vec<f64>, PolicyError> {
        Ok(self.allocate_packed(ask)?.alone)
    }

    fn allocate_packed(&mut self, ask: &Ask) -> Result<Shares, PolicyError> {
        let began = self.outside.clock.nanos();
        let service = self.service.as_mut();
        let lost_s = service.map(|own| own.count(ask)).unwrap_or_default();
        let late = self.given.objective.looks_at_deadlines() && !ask.time_left_s.is_empty();
        let ahead;
        let asked = if late {
            ahead = self.ahead(ask);
            &ahead
        } else {
            ask
        };
        let InRuns {
            objective,
            settings,
            ..
        } = &self.given;
        let solver = self.outside.solver.as_mut();
        match objective.allocate(asked, &lost_s, *settings, solver) {
            Ok(found) => {
                self.count(&found.answer, began);
                Ok(found.shares)
            }
            Err(error) => self.instead(ask, &lost_s, &error),
        }
    }
}

impl Allocations {
    /// Returns the request without the deadlines that have passed, and records the jobs that missed them.
    fn ahead(&mut self, ask: &Ask) -> Ask {
        let mut ahead = ask.clone();
        for (job, left_s) in ask.jobs.iter().zip(&mut ahead.time_left_s) {
            if *left_s <= 0.0 {
                self.passed.insert(*job);
                *left_s = f64::INFINITY;
            }
        }
        ahead
    }
}

impl Objective {
    /// Optimises the objective for the jobs in a request; `lost_s` is the result of [`Service`], or empty.
    ///
    /// # Errors
    /// Returns [`SolverError`] if no optimum is found or a number is out of range.
    pub fn allocate(
        &self,
        ask: &Ask,
        lost_s: &[f64],
        settings: Settings,
        solver: &mut dyn Solver,
    ) -> Result<Found, SolverError> {
        let left = ask.remaining.iter().map(|left| left.max(LEAST_STEPS));
        let (table, row_of) = self.classes(ask, &left.collect::<Vec<f64>>(), lost_s);
        if table.gangs.is_empty() {
            return Ok(Found {
                shares: Shares {
                    alone: vec![0.0; ask.rates.len()],
                    pair_shares: Vec::new(),
                },
                answer: Answer::default(),
            });
        }
        let answer = self.solve(&table, settings, solver)?;
        let weights = self.weights(&table, &answer);
        let shares = by_class(&answer.shares, &weights);
        Ok(Found {
            shares: Shares {
                alone: of_jobs(&shares, &row_of, ask.capacity.len()),
                pair_shares: pair_shares(&answer.together, &table, &weights, &row_of),
            },
            answer,
        })
    }

    /// Returns the classes of a request, and the class of each job that can run; `left` is the remaining work of each
    /// job.
    pub fn classes(&self, ask: &Ask, left: &[f64], lost_s: &[f64]) -> (Table, ClassOf) {
        let can_be_met = |left: &f64| *left > 0.0 && left.is_finite();
        let has_deadlines = ask.time_left_s.iter().any(can_be_met);
        let told = self.told(has_deadlines);
        Table::of(ask, left, lost_s, told, |entity| self.is_in_order(entity))
    }
}

/// Returns the shares of each job, rounded to the grid. Small shares become 0, and all shares of a job without a class
/// are 0.
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

/// Returns, for each job, the shares of time that it spends with co-runners of each kind. The time that two classes
/// spend together is split evenly among the jobs of each class; a pair within one class consists of two jobs of this class.
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

/// Rounds a share to the grid, or to 0 if it is below [`LEAST_SHARE`].
fn rounded(share: f64) -> f64 {
    let cells = share / GRID;
    if cells < LEAST_SHARE / GRID {
        return 0.0;
    }
    cells.round_ties_even() * GRID
}
