//! Round-based policies with the solvers of the core: a run has the same log however it is driven.

use gangline_allocation::{NoSolver, Outside, Tally};
use gangline_engine::{Advance, Control, Engine, Output, Policy, Silent};
use gangline_model::{JobTable, RateTable};
use gangline_policies::{ParamValue, Params, Services, build};
use gangline_testkit::conformance::{self, Case, Numbers, Scope};
use std::sync::{Arc, Mutex, PoisonError};

/// Draws a world. In about half of the worlds, the kinds of jobs differ in which GPU type is fast for them.
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

/// Alternates between a few single decisions and a few events in one go, in a random order.
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
            "on_solver_error".to_owned(),
            ParamValue::Str("isolated".to_owned()),
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

/// Runs in one go, one decision at a time, in alternation, and with every round walked. An equal split replaces
/// programs that the core does not solve, because there is no other solver here.
fn check(policy: &str, is_packed: bool) {
    let tally: Arc<Mutex<Tally>> = Arc::default();
    for seed in 0..30 {
        let case = draw(seed);
        let mut numbers = Numbers::new(seed + 5_000_000);
        let params = settings(&mut numbers, is_packed);
        let words = format!("{policy}, seed {seed}, {params:?}");
        let make = || {
            let outside = Outside {
                solver: Box::new(NoSolver),
                clock: Box::new(Silent),
                tally: Arc::clone(&tally),
            };
            build(policy, &params, Services { outside }).expect("valid")
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
    let tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    let asks: u64 = tally.allocations.values().sum();
    assert!(asks > 500, "these worlds ask: {asks}");
    let unsolved = tally.fallbacks;
    assert!(
        unsolved * 100 <= asks,
        "{unsolved} of {asks} have no optimum"
    );
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
    // The log of `gavel-cost` is the same where there are no deadlines. Deadlines need a solver that is not available
    // here.
    check("gavel-max-sum", false);
}

#[test]
fn a_packed_run_has_one_log() {
    for policy in [
        "gavel-las",
        "gavel-makespan",
        "gavel-ftf",
        "gavel-max-sum",
        "gavel-water-filling",
    ] {
        check(policy, true);
    }
}
