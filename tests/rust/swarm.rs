//! Swarm: any cluster, any trace, any policy with any parameters, failures and all, from one number.
//!
//! A failure prints the seed, the policy and its parameters; `GANGLINE_SWARM_SEED=<seed>` repeats it alone and
//! `GANGLINE_SWARM_RUNS=<n>` goes further than the few runs of every day.

mod settings;

use gangline_engine::Outcome;
use gangline_model::{ClusterSpec, GpuType, GpuTypeId, RackId, RateTable, Server};
use gangline_policies::conformance::{self, Case, Numbers, QUEUES, Scope};
use gangline_policies::{POLICIES, ParamDefault, ParamKind, ParamValue, Params, Services, build};
use settings::number;
use std::sync::Arc;

/// A value of a kind, near its default or far from it.
fn draw_value(kind: ParamKind, default: ParamDefault, numbers: &mut Numbers) -> ParamValue {
    let scale = numbers.pick(&[0.01, 0.3, 1.0, 4.0]);
    let around = match default {
        ParamDefault::Float(value) if value > 0.0 => value * scale,
        _ => scale,
    };
    match kind {
        ParamKind::Bool => ParamValue::Bool(numbers.once_in(2)),
        ParamKind::AtLeast(least) | ParamKind::Maybe(least) => ParamValue::Float(around.max(least)),
        ParamKind::Whole(least) | ParamKind::MaybeWhole(least) => {
            ParamValue::Float(around.round().max(least))
        }
        ParamKind::Share | ParamKind::Fraction => ParamValue::Float((around / 7.0).fract()),
        ParamKind::Above(bound) => ParamValue::Float(around + bound),
        // the default: other texts name parts of one cluster
        ParamKind::Text => default.value(),
        ParamKind::Choice(words) => ParamValue::Str(numbers.pick(words).to_owned()),
        ParamKind::Increasing => {
            let first = 1.0 + numbers.below(30) as f64;
            let count = 1 + numbers.below(4);
            ParamValue::List((0..count).map(|k| first * (k + 1) as f64).collect())
        }
        ParamKind::Positives => {
            let count = 1 + numbers.below(9);
            ParamValue::List(
                (0..count)
                    .map(|_| 1.0 + numbers.below(200) as f64)
                    .collect(),
            )
        }
        // a share is a weight
        ParamKind::NamedShares | ParamKind::NamedWeights => draw_shares(numbers),
    }
}

/// Shares for every user and virtual cluster of the drawn worlds.
fn draw_shares(numbers: &mut Numbers) -> ParamValue {
    let whole: Vec<f64> = QUEUES.map(|_| (1 + numbers.below(9)) as f64).into();
    let total: f64 = whole.iter().sum();
    let names = QUEUES.iter().map(ToString::to_string);
    ParamValue::Table(names.zip(whole.iter().map(|share| share / total)).collect())
}

fn draw_params(name: &str, numbers: &mut Numbers) -> Params {
    let mut params = Params::new();
    for spec in gangline_policies::find(name)
        .expect("registered")
        .parameters()
    {
        if numbers.once_in(2) {
            continue;
        }
        let value = match spec.name {
            // the public timing knows neither overheads nor failures
            "compat" => ParamValue::Bool(false),
            // the other one needs a solver
            "auction" => ParamValue::Str("greedy".to_owned()),
            // the other sources need sizes or a network model
            "skew" => ParamValue::Str("flags".to_owned()),
            "skew_threshold" | "skew_eps" => ParamValue::Float(0.2),
            // longer than every restart of the drawn worlds, or nobody would make progress
            "round_s" | "lease_s" | "preempt_min_run_s" | "period_s" => {
                ParamValue::Float(11.0 + numbers.below(30) as f64)
            }
            // a rack may not be refused for longer than the network
            "rack_delay" => ParamValue::Float(numbers.below(7) as f64),
            "network_delay" => ParamValue::Float(12.0 + numbers.below(9) as f64),
            // a lease is longer than every restart
            "overhead_per_gpu_s" => ParamValue::Float(0.01 * numbers.below(2) as f64),
            // the exact search is for few jobs, a wide beam for few rounds
            "tier" => ParamValue::Str(numbers.pick(&["beam", "greedy"]).to_owned()),
            "beam_width" => ParamValue::Int(1 + numbers.below(4) as i64),
            // shorter than the age of some job
            "horizon_s" => ParamValue::None,
            // higher prices can keep every job off an empty cluster
            "umin_factor" => ParamValue::Float(numbers.pick(&[0.01, 0.25, 0.5])),
            "merge_s" => ParamValue::Float(numbers.below(5) as f64),
            // without a head start equal jobs swap every nanosecond
            "las_quantum" => ParamValue::Float(1.0 + numbers.below(30) as f64),
            _ => draw_value(spec.kind, spec.default, numbers),
        };
        params.insert(spec.name.to_owned(), value);
    }
    params
}

/// Larger clusters than the laws draw: many racks, servers of any size.
fn widen(case: &mut Case, numbers: &mut Numbers) {
    let types = case.world.cluster.gpu_types().to_vec();
    let count = types.len() as u64;
    let racks = 1 + numbers.below(12);
    let servers = (0..count.max(numbers.below(50)))
        .map(|index| {
            let most = if numbers.once_in(9) { 64 } else { 9 };
            Server {
                gpu_type: GpuTypeId((index % count) as u32),
                gpus: 1 + numbers.below(most) as u32,
                rack: RackId(numbers.below(racks) as u32),
            }
        })
        .collect();
    let types: Vec<GpuType> = types;
    let cluster = ClusterSpec::new(types, servers).expect("a valid cluster");
    case.world.rates = Arc::new(RateTable::from_speeds(&cluster));
    if case.config.locality.is_some() {
        case.config.locality = Some(conformance::contended(&cluster, 1e9));
    }
    case.world.cluster = Arc::new(cluster);
    // rare enough that the largest gang ends between two failures now and then
    case.config.failures = if numbers.once_in(2) {
        gangline_engine::Failures::Random {
            mtbf_s: 4000.0,
            mttr_s: 20.0,
        }
    } else {
        gangline_engine::Failures::None
    };
}

fn swarm_run(seed: u64) {
    let mut numbers = Numbers::new(seed.wrapping_add(7_000_000));
    let known: Vec<_> = POLICIES
        .iter()
        .filter(|info| !info.needs.allocator())
        .collect();
    let info = known[numbers.below(known.len() as u64) as usize];
    let params = draw_params(info.name, &mut numbers);
    let scope = Scope {
        types: 1 + numbers.below(4),
        jobs: numbers.pick(&[5, 60, 300]),
        has_trouble: numbers.once_in(2),
        has_checkpoints: false,
        gangs_max: numbers.pick(&[1, 8, 80]),
    };
    let mut case = conformance::draw(seed, scope);
    if numbers.once_in(2) {
        widen(&mut case, &mut numbers);
    }
    let words = format!("seed {seed}, {} {params:?}", info.name);
    let mut policy = build(info.name, &params, Services::default())
        .unwrap_or_else(|error| panic!("{words}: {error}"));
    let output =
        conformance::run(&case, policy.as_mut()).unwrap_or_else(|error| panic!("{words}: {error}"));
    assert_eq!(
        output.outcome,
        Some(Outcome::Finished),
        "{words}: a million events"
    );
    let ended = output
        .finish_s
        .iter()
        .filter(|finish| finish.is_finite())
        .count();
    assert_eq!(
        ended + output.dropped.len(),
        case.world.jobs.len(),
        "{words}: jobs are lost"
    );
}

#[test]
fn swarm() {
    if let Some(seed) = number("GANGLINE_SWARM_SEED") {
        swarm_run(seed);
        return;
    }
    for seed in 0..number("GANGLINE_SWARM_RUNS").unwrap_or(400) {
        swarm_run(seed);
    }
}
