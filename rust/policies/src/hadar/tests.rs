//! Examples worked out by hand, and properties checked on random scenarios.

use super::facts::Facts;
use super::find::{Finder, Goal, Live};
use super::params::HadarParams;
use super::{Chosen, Hadar, price};
use crate::kit::Servers;
use crate::params::{ParamReader, ParamValue, Params};
use gangline_engine::{
    Advance, Engine, OnInfeasible, Output, Policy, PolicyTraits, RunConfig, World,
};
use gangline_model::{
    ClusterSpec, GpuType, GpuTypeId, JobColumns, JobTable, RackId, RateTable, Server, ServerId,
    SimSpan, SimTime,
};
use gangline_testkit::conformance::{self, Case, Scope};
use std::sync::Arc;

const SPEC: &str = "a value of the worked example";

fn word(text: &str) -> ParamValue {
    ParamValue::Str(text.to_owned())
}

fn params(given: &[(&str, ParamValue)]) -> HadarParams {
    let given: Params = given
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect();
    let info = crate::find("hadar").expect("a registered name");
    let reader = ParamReader::new("hadar", info.parameters(), &given).expect("valid parameters");
    HadarParams::read(&reader).expect("valid parameters")
}

fn close(found: f64, wanted: f64) -> bool {
    (found - wanted).abs() <= 1e-9 * wanted.abs().max(1.0)
}

/// Creates three four-GPU servers, each of a different type, and four jobs that arrive at 0.
fn golden_world() -> World {
    let types = ["V", "P", "K"].map(|name| GpuType {
        name: name.to_owned(),
        memory_bytes: u64::MAX,
        price_per_hour: 0.0,
        speed: 1.0,
    });
    let server = |gpu_type| Server {
        gpu_type: GpuTypeId(gpu_type),
        gpus: 4,
        rack: RackId(0),
    };
    let cluster = ClusterSpec::new(types.to_vec(), (0..3).map(server).collect()).expect(SPEC);
    let gpus = vec![4, 2, 1, 6];
    let per_gpu = [
        [10.0, 6.0, 2.0],
        [20.0, 18.0, 6.0],
        [4.0, 2.0, 0.5],
        [5.0, 4.0, 1.0],
    ];
    let rows = per_gpu.iter().zip(&gpus);
    let rates = rows.flat_map(|(row, &gang)| row.map(|rate| rate * f64::from(gang)));
    let jobs = JobTable::new(JobColumns {
        arrival: vec![SimTime::ZERO; 4],
        work: vec![144_000.0, 72_000.0, 7_200.0, 108_000.0],
        rate_class: Some((0..4).collect()),
        gpus: gpus.clone(),
        ..JobColumns::default()
    })
    .expect(SPEC);
    let table = RateTable::from_speeds(&cluster).with_classes(rates.collect(), &jobs);
    World {
        cluster: Arc::new(cluster),
        rates: Arc::new(table.expect(SPEC)),
        jobs: Arc::new(jobs),
    }
}

/// Returns the policy after its first decision, and the jobs that it chooses in this decision.
fn first_decision(world: &World, params: HadarParams) -> (Hadar, Vec<Chosen>) {
    let mut policy = Hadar::new(params);
    // The example contains a gang that a run without mixed types would refuse.
    let traits = PolicyTraits {
        mixes_types: true,
        ..policy.traits()
    };
    let config = RunConfig {
        on_infeasible: OnInfeasible::Drop,
        ..RunConfig::default()
    };
    let mut engine = Engine::new(world, config, traits).expect(SPEC);
    engine.start(&mut policy).expect(SPEC);
    assert_eq!(engine.advance().expect(SPEC), Advance::Decision);
    let (view, changes) = engine.view();
    policy.note(&view, changes).expect("known work");
    let chosen = policy.choose(&view).expect(SPEC);
    (policy, chosen)
}

#[test]
fn prices_rise_from_floor_to_ceiling() {
    let wanted = [0.01, 0.031_622_776_6, 0.1, 0.316_227_766, 1.0];
    for (used, wanted) in (0..).zip(wanted) {
        assert!(close(price::price(0.01, 1.0, used, 4), wanted), "{used}");
    }
    assert!(
        close(price::price(0.5, 0.2, 3, 4), 0.5),
        "a ceiling below the floor has no effect"
    );
}

/// An expected choice: `(job, [(server, GPUs)], payoff)`.
type Wanted<'a> = &'a [(u32, &'a [(u32, u32)], f64)];

fn expect_golden(
    label: &str,
    given: &[(&str, ParamValue)],
    floor: f64,
    ceiling: [f64; 3],
    wanted: Wanted<'_>,
) {
    let world = golden_world();
    let mut given = given.to_vec();
    given.push(("spread_surcharge", ParamValue::Float(0.0)));
    given.push(("backfill", ParamValue::Bool(false)));
    let (mut policy, mut chosen) = first_decision(&world, params(&given));
    let prices = policy
        .market
        .pricing
        .prices(
            &policy.market.params,
            SimTime::ZERO,
            &policy.market.active,
            &policy.market.servers,
        )
        .expect(SPEC);
    assert!(
        (prices.floor / floor - 1.0).abs() < 1e-9,
        "{label}: {}",
        prices.floor
    );
    for (found, wanted) in prices.ceiling.iter().zip(ceiling) {
        assert!(close(*found, wanted), "{label}: {found} {wanted}");
    }
    chosen.sort_by_key(|one| one.rank.job);
    let places: Vec<(u32, &[(u32, u32)])> = chosen
        .iter()
        .map(|one| (one.rank.job.0, &one.offer.places[..]))
        .collect();
    let wanted_places: Vec<(u32, &[(u32, u32)])> =
        wanted.iter().map(|one| (one.0, one.1)).collect();
    assert_eq!(places, wanted_places, "{label}");
    for (found, wanted) in chosen.iter().zip(wanted) {
        // The numbers of the example have nine decimals.
        assert!(
            (found.offer.payoff - wanted.2).abs() < 6e-10,
            "{label}: {:?}",
            found.offer
        );
    }
}

#[test]
fn one_decision_as_worked_out_in_the_text() {
    let of = |utility: &str, order: &str, tier: &str| {
        vec![
            ("utility", word(utility)),
            ("order", word(order)),
            ("tier", word(tier)),
        ]
    };
    let (floor, ceiling) = (3.602_769_640e-7, [1.0, 0.5, 0.15]);
    let row: Wanted<'_> = &[
        (0, &[(0, 4)], 0.999_998_559),
        (1, &[(1, 2)], 0.899_999_279),
        (2, &[(1, 1)], 0.499_575_573),
    ];
    for tier in ["greedy", "exact", "beam"] {
        expect_golden(
            tier,
            &of("normalised", "arrival", tier),
            floor,
            ceiling,
            row,
        );
    }
    let row: Wanted<'_> = &[
        (0, &[(1, 4)], 0.599_998_559),
        (1, &[(0, 2)], 0.999_970_589),
        (2, &[(0, 1)], 0.999_999_640),
    ];
    expect_golden(
        "density",
        &of("normalised", "density", "greedy"),
        floor,
        ceiling,
        row,
    );
    let (floor, ceiling) = (5.404_154_460e-6, [20.0, 18.0, 6.0]);
    let row: Wanted<'_> = &[
        (0, &[(1, 4)], 23.999_978_383),
        (1, &[(0, 2)], 39.999_989_192),
        (3, &[(0, 2), (2, 4)], 5.979_185_780),
    ];
    let dense = of("effective_throughput", "density", "greedy");
    expect_golden("mixed", &dense, floor, ceiling, row);
    let row: Wanted<'_> = &[row[0], row[1], (2, &[(0, 1)], 3.989_603_698)];
    let mut unmixed = dense.clone();
    unmixed.push(("mix_types", ParamValue::Bool(false)));
    expect_golden("unmixed", &unmixed, floor, ceiling, row);
}

#[test]
fn sums_of_payoffs_as_in_the_text() {
    for (tier, jobs, sum) in [
        ("greedy", [0, 1, 2], 77.990_104_777),
        ("exact", [0, 1, 3], 81.980_220_363),
        ("beam", [0, 1, 3], 81.980_220_363),
    ] {
        let given = [
            ("utility", word("effective_throughput")),
            ("order", word("arrival")),
            ("tier", word(tier)),
            ("backfill", ParamValue::Bool(false)),
            ("spread_surcharge", ParamValue::Float(0.0)),
        ];
        let (_, chosen) = first_decision(&golden_world(), params(&given));
        let found: Vec<u32> = chosen.iter().map(|one| one.rank.job.0).collect();
        assert_eq!(found, jobs, "{tier}");
        let payoffs = chosen.iter().map(|one| one.offer.payoff);
        assert!((payoffs.sum::<f64>() - sum).abs() < 3e-9, "{tier}");
    }
}

/// Returns a small random scenario with few jobs and without failures or other extras.
fn small_case(seed: u64) -> Case {
    let scope = Scope {
        jobs: 9,
        has_trouble: false,
        gangs_max: 6,
        ..Scope::default()
    };
    conformance::draw(seed, scope)
}

fn run_case(case: &Case, given: &[(&str, ParamValue)]) -> Output {
    let mut all = vec![("round_s", ParamValue::Float(12.0))];
    all.extend_from_slice(given);
    conformance::run(case, &mut Hadar::new(params(&all))).expect("it ends")
}

fn variants() -> Vec<Vec<(&'static str, ParamValue)>> {
    let words = [
        "effective_throughput",
        "normalised",
        "inverse_jct",
        "ftf",
        "makespan",
    ];
    let mut all = Vec::new();
    for utility in words {
        for order in ["arrival", "density", "srtf"] {
            let backfill = ("backfill", ParamValue::Bool(order != "arrival"));
            all.push(vec![
                ("utility", word(utility)),
                ("order", word(order)),
                backfill,
            ]);
        }
    }
    all
}

#[test]
fn tiers_agree_where_they_must() {
    for seed in 0..60 {
        let case = small_case(seed);
        for variant in variants() {
            let run = |tier: &str, width: i64| {
                let mut given = variant.clone();
                given.push(("tier", word(tier)));
                given.push(("beam_width", ParamValue::Int(width)));
                run_case(&case, &given)
            };
            let narrow = run("beam", 1);
            let greedy = run("greedy", 1);
            assert!(
                conformance::are_equal(&greedy, &narrow),
                "seed {seed}, {variant:?}"
            );
            let wide = run("beam", 1 << 9);
            let exact = run("exact", 1);
            assert!(
                conformance::are_equal(&wide, &exact),
                "seed {seed}, {variant:?}"
            );
        }
    }
}

/// Returns the sum of the payoffs at the first decision.
fn first_sum(world: &World, tier: &str, width: i64) -> f64 {
    let given = [
        ("tier", word(tier)),
        ("beam_width", ParamValue::Int(width)),
        ("backfill", ParamValue::Bool(false)),
        ("exact_max_jobs", ParamValue::Int(50)),
    ];
    let (_, chosen) = first_decision(world, params(&given));
    assert!(chosen.iter().all(|one| one.offer.payoff > 0.0), "the gate");
    chosen.iter().map(|one| one.offer.payoff).sum()
}

#[test]
fn no_beam_beats_the_exact_search() {
    let mut gains = 0;
    for seed in 0..200 {
        let mut case = small_case(seed);
        overload(&mut case, |_| SimTime::ZERO);
        let exact = first_sum(&case.world, "exact", 1);
        for width in [1, 2, 4] {
            let beam = first_sum(&case.world, "beam", width);
            assert!(beam <= exact * (1.0 + 1e-9), "seed {seed}, width {width}");
            gains += usize::from(beam < exact * (1.0 - 1e-9));
        }
    }
    assert!(gains > 0, "some beams are too narrow");
}

/// Changes the arrivals in a scenario.
fn overload(case: &mut Case, arrival: impl Fn(SimTime) -> SimTime) {
    let jobs = &case.world.jobs;
    let mut columns = jobs.columns().clone();
    columns.work = jobs.all_work().to_vec();
    for at in &mut columns.arrival {
        *at = arrival(*at);
    }
    case.world.jobs = Arc::new(JobTable::new(columns).expect("valid columns"));
}

#[test]
fn on_an_empty_cluster_every_job_is_worth_its_price() {
    let mut seen = 0;
    for seed in 0..200 {
        let mut case = small_case(seed);
        overload(&mut case, |_| SimTime::ZERO);
        for horizon in ["round", "remaining"] {
            for variant in variants() {
                let mut given = variant.clone();
                given.push(("cost_horizon", word(horizon)));
                given.push(("umin_factor", ParamValue::Float(0.5)));
                let (policy, view_payoffs) = lone_payoffs(&case.world, params(&given));
                assert_eq!(policy.market.active.len(), view_payoffs.len());
                for payoff in view_payoffs {
                    assert!(payoff > 0.0, "seed {seed}, {given:?}");
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 10_000, "{seen}");
}

/// Returns the payoff of each job if it has the empty cluster to itself, at the prices that apply when all jobs are
/// active.
fn lone_payoffs(world: &World, params: HadarParams) -> (Hadar, Vec<f64>) {
    let mut policy = Hadar::new(params);
    let config = RunConfig {
        on_infeasible: OnInfeasible::Drop,
        ..RunConfig::default()
    };
    let mut engine = Engine::new(world, config, policy.traits()).expect(SPEC);
    engine.start(&mut policy).expect(SPEC);
    assert_eq!(engine.advance().expect(SPEC), Advance::Decision);
    let (view, changes) = engine.view();
    policy.note(&view, changes).expect("known work");
    if policy.market.active.is_empty() {
        return (policy, Vec::new());
    }
    let prices = policy
        .market
        .pricing
        .prices(
            &policy.market.params,
            view.now(),
            &policy.market.active,
            &policy.market.servers,
        )
        .expect(SPEC);
    let finder = Finder {
        view: &view,
        params: &policy.market.params,
        prices: &prices,
    };
    let payoff = |facts: &Facts| {
        let live = Live::new(&view, facts.job).expect("known work");
        let offer = finder.find(&policy.market.servers, facts, &live, Goal::Objective);
        offer.expect("it fits alone").payoff
    };
    let payoffs = policy.market.active.values().map(payoff).collect();
    (policy, payoffs)
}

#[test]
fn only_the_scale_of_a_utility_differs() {
    let mut compared = 0;
    for seed in 0..200 {
        let case = small_case(seed);
        if case.world.jobs.columns().allowed_types.is_some() {
            continue; // If jobs allow different types, the best rates of two jobs may differ.
        }
        // All jobs have the same best rate, which is a power of two. A = work therefore equals A = work / best rate,
        // times a constant.
        let run = |utility| run_case(&case, &[("utility", word(utility))]);
        let (a, b) = (run("effective_throughput"), run("normalised"));
        assert!(conformance::are_equal(&a, &b), "seed {seed}");
        compared += 1;
    }
    assert!(compared > 50);
}

#[test]
fn a_later_world_is_the_same_world() {
    let shift = SimSpan::from_seconds(12.0 * 1000.0).expect(SPEC);
    for seed in 0..100 {
        let case = small_case(seed);
        let mut later = case.clone();
        overload(&mut later, |at| at + shift);
        for variant in variants() {
            let (a, b) = (run_case(&case, &variant), run_case(&later, &variant));
            for (x, y) in a.finish_s.iter().zip(&b.finish_s) {
                let moved = y - shift.seconds();
                let is_same = x.is_nan() && y.is_nan() || (x - moved).abs() < 2e-9;
                assert!(is_same, "seed {seed}, {variant:?}: {x} {moved}");
            }
        }
    }
}

#[test]
fn the_order_of_failures_and_repairs_leaves_no_trace() {
    let world = golden_world();
    let fresh = Servers::new(&world.cluster, true, |one| Some(one.gpus));
    let mut used = fresh.clone();
    for server in [2, 0, 1] {
        used.set_up(ServerId(server), false);
        used.set_up(ServerId(server), false);
    }
    assert_eq!((used.up_total(), used.free_total()), (0, 0));
    for server in [1, 2, 0] {
        used.set_up(ServerId(server), true);
    }
    used.take(1, 3);
    assert_eq!((used.free(1), used.free_total()), (1, 9));
    used.give(1, 3);
    assert_eq!(format!("{used:?}"), format!("{fresh:?}"));
}
