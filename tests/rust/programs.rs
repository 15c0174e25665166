//! Rounds with the programs of the core: a run has the same log however it is driven.

use gangline_allocation::{Allocator, Ask, EqualSplit, Program, Service, Shares};
use gangline_engine::{Advance, Control, Engine, Output, Policy, PolicyError, Silent};
use gangline_model::{GpuType, JobTable, RateTable};
use gangline_policies::{ParamValue, Params, Services, build};
use gangline_testkit::conformance::{self, Case, Numbers, Scope};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the allocators of one policy were asked for.
#[derive(Default)]
struct Counts {
    asks: AtomicU64,
    unsolved: AtomicU64,
    pair_shares: AtomicU64,
}

/// Shares by a program; an equal split where none is found, as there is no other solver here.
struct Solver {
    program: Program,
    service: Option<Service>,
    counts: Arc<Counts>,
}

impl Allocator for Solver {
    fn start(&mut self, types: &[GpuType]) -> Result<(), PolicyError> {
        if let Program::Cost { prices } = &mut self.program {
            *prices = (0..types.len()).map(|at| 1.0 + at as f64).collect();
        }
        Ok(())
    }

    fn allocate(&mut self, ask: &Ask) -> Result<Vec<f64>, PolicyError> {
        Ok(self.allocate_packed(ask)?.alone)
    }

    fn allocate_packed(&mut self, ask: &Ask) -> Result<Shares, PolicyError> {
        let add = |count: &AtomicU64, more: usize| count.fetch_add(more as u64, Ordering::Relaxed);
        add(&self.counts.asks, 1);
        let without_deadlines = Ask {
            time_left_s: Vec::new(),
            ..ask.clone()
        };
        let service = self.service.as_mut().map(|own| own.count(ask));
        let lost_s = service.unwrap_or_default();
        let found = self.program.solve(&without_deadlines, &lost_s);
        if let Ok(found) = found.expect("a program of the core") {
            add(&self.counts.pair_shares, found.pair_shares.len());
            return Ok(Shares {
                alone: found.shares,
                pair_shares: found.pair_shares,
            });
        }
        add(&self.counts.unsolved, 1);
        Ok(Shares {
            alone: EqualSplit.allocate(ask)?,
            pair_shares: Vec::new(),
        })
    }
}

/// A drawn world; in every other one kinds of jobs differ in which GPU type is fast for them.
fn draw(seed: u64) -> Case {
    let mut numbers = Numbers::new(seed + 4_000_000);
    let scope = Scope {
        types: 1 + seed % 4,
        jobs: numbers.pick(&[10, 30, 80]),
        has_trouble: !seed.is_multiple_of(3),
        has_checkpoints: false,
        gangs_max: numbers.pick(&[1, 3, 8]),
        has_elastic: false,
    };
    let mut case = conformance::draw(seed + 40_000, scope);
    if numbers.once_in(2) {
        let (types, kinds) = (case.world.cluster.gpu_types().len(), 1 + numbers.below(6));
        let rates = (0..types as u64 * kinds).map(|_| numbers.pick(&[0.25, 0.7, 1.0, 1.9, 4.0]));
        let rates: Vec<f64> = rates.collect();
        let mut columns = case.world.jobs.columns().clone();
        columns.work = case.world.jobs.all_work().to_vec();
        let kind = |_: &u32| numbers.below(kinds) as u32;
        columns.rate_class = Some(columns.gpus.iter().map(kind).collect());
        let jobs = JobTable::new(columns).expect("valid");
        let table = RateTable::from_speeds(&case.world.cluster);
        let table = table.with_classes(rates, &jobs).expect("a row per kind");
        case.world.rates = Arc::new(table);
        case.world.jobs = Arc::new(jobs);
    }
    case
}

/// Turns of a few decisions one by one and a few events in one go, in a drawn order.
fn run_in_turns(case: &Case, policy: &mut dyn Policy, numbers: &mut Numbers) -> Output {
    let control = Control::default();
    let config = case.config.clone();
    let mut engine = Engine::new(&case.world, config, policy.traits()).expect("valid");
    engine.start(policy).expect("valid");
    loop {
        for _ in 0..numbers.below(4) {
            if engine.advance().expect("no stall") == Advance::Done {
                return engine.output().expect("memory");
            }
            engine.decide(policy).expect("a plan that is accepted");
        }
        let events = 1 + numbers.below(30);
        let ended = engine.run_for(events, policy, &control, &mut Silent);
        if ended.expect("no error").is_some() {
            return engine.output().expect("memory");
        }
    }
}

fn settings(numbers: &mut Numbers, is_packed: bool) -> Params {
    let round_s = numbers.pick(&[11.0, 17.5, 30.0]);
    let interval_s = numbers.pick(&[0.0, 0.0, 40.0]);
    let mut params = Params::from([
        ("round_s".to_owned(), ParamValue::Float(round_s)),
        (
            "min_solve_interval_s".to_owned(),
            ParamValue::Float(interval_s),
        ),
        (
            "backfill_mid_round".to_owned(),
            ParamValue::Bool(numbers.once_in(2)),
        ),
        (
            "partitions".to_owned(),
            ParamValue::Int(numbers.pick(&[1, 1, 2])),
        ),
    ]);
    if is_packed {
        params.insert("packed".to_owned(), ParamValue::Bool(true));
    }
    params
}

/// One go, one decision at a time, in turns of both, and with every round walked.
fn check(policy: &str, is_packed: bool) {
    let counts = Arc::new(Counts::default());
    for seed in 0..30 {
        let case = draw(seed);
        let mut numbers = Numbers::new(seed + 5_000_000);
        let params = settings(&mut numbers, is_packed);
        let words = format!("{policy}, seed {seed}, {params:?}");
        let make = || {
            let solver = Solver {
                program: Program::named(policy, false, Vec::new()).expect("a program"),
                service: policy.starts_with("gavel-ftf").then(Service::default),
                counts: Arc::clone(&counts),
            };
            let services = Services {
                allocator: Some(Box::new(solver)),
                ..Services::default()
            };
            build(policy, &params, services).expect("valid")
        };
        let whole = conformance::run(&case, make().as_mut());
        let whole = whole.unwrap_or_else(|error| panic!("{words}: {error}"));
        let steps = conformance::run_stepwise(&case, make().as_mut(), |_| Ok(()));
        let steps = steps.unwrap_or_else(|error| panic!("{words}: {error}"));
        assert!(conformance::are_equal(&whole, &steps), "{words}: steps");
        let turns = run_in_turns(&case, make().as_mut(), &mut numbers);
        assert!(conformance::are_equal(&whole, &turns), "{words}: turns");
        let mut walked = case;
        walked.config.skip_rounds = false;
        let walked = conformance::run(&walked, make().as_mut());
        let walked = walked.unwrap_or_else(|error| panic!("{words}: {error}"));
        assert!(conformance::are_equal(&whole, &walked), "{words}: rounds");
    }
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (asks, unsolved) = (read(&counts.asks), read(&counts.unsolved));
    assert!(asks > 500, "these worlds ask: {asks}");
    assert!(
        unsolved * 100 <= asks,
        "{unsolved} of {asks} have no optimum"
    );
    assert_eq!(read(&counts.pair_shares) > 0, is_packed);
}

#[test]
fn a_run_of_max_min_has_one_log() {
    check("gavel-las", false);
    check("gavel-las-agnostic", false);
}

#[test]
fn a_run_of_the_makespan_has_one_log() {
    check("gavel-makespan", false);
    check("gavel-makespan-agnostic", false);
}

#[test]
fn a_run_of_finish_time_fairness_has_one_log() {
    check("gavel-ftf", false);
    check("gavel-ftf-agnostic", false);
}

#[test]
fn a_run_of_water_filling_has_one_log() {
    check("gavel-water-filling", false);
    check("gavel-water-filling-agnostic", false);
}

#[test]
fn a_run_of_sums_has_one_log() {
    check("gavel-max-sum", false);
    check("gavel-cost", false);
}

#[test]
fn a_packed_run_has_one_log() {
    for policy in ["gavel-las", "gavel-makespan", "gavel-ftf", "gavel-max-sum"] {
        check(policy, true);
    }
}
