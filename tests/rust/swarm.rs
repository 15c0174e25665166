//! Randomised runs with any cluster, trace, policy, parameters and failures, drawn from one seed.
//!
//! A failure prints the seed, the policy and its parameters. `GANGLINE_SWARM_SEED=<seed>` repeats that run alone, and
//! `GANGLINE_SWARM_RUNS=<n>` sets the number of runs.

mod settings;

use gangline_engine::Outcome;
use gangline_model::{ClusterSpec, GpuType, GpuTypeId, RackId, RateTable, Server};
use gangline_policies::Services;
use gangline_testkit::conformance::{self, Case, Numbers, Scope};
use gangline_testkit::policies;
use settings::number;
use std::sync::Arc;

/// Replaces the cluster by a larger one than other tests draw, with many racks and servers of any size.
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
    let mut rates = RateTable::from_speeds(&cluster);
    if let Some(table) = case.world.rates.elastic() {
        let table = Arc::clone(table);
        rates = rates
            .with_elastic(table, &case.world.jobs)
            .expect("a row per job");
    }
    case.world.rates = Arc::new(rates);
    if case.config.locality.is_some() {
        case.config.locality = Some(conformance::contended(&cluster, 1e9));
    }
    let cluster_size = cluster.servers().len();
    case.world.cluster = Arc::new(cluster);
    // Failures are rare enough that even a gang over all servers sometimes ends between two of them.
    let servers = cluster_size as f64;
    case.config.failures = if numbers.once_in(2) {
        gangline_engine::Failures::Random {
            mtbf_s: 500.0 * servers.max(8.0),
            mttr_s: 20.0,
        }
    } else {
        gangline_engine::Failures::None
    };
}

fn swarm_run(seed: u64) {
    let mut numbers = Numbers::new(seed.wrapping_add(7_000_000));
    let known: Vec<_> = policies().filter(|info| !info.solves()).collect();
    let info = known[numbers.below(known.len() as u64) as usize];
    let params = conformance::draw_params(info, &mut numbers);
    let scope = Scope {
        types: 1 + numbers.below(4),
        jobs: numbers.pick(&[5, 60, 300]),
        has_trouble: numbers.once_in(2),
        has_checkpoints: false,
        gangs_max: numbers.pick(&[1, 8, 80]),
        has_elastic: seed.is_multiple_of(3),
    };
    let mut case = conformance::draw(seed, scope);
    if numbers.once_in(2) {
        widen(&mut case, &mut numbers);
    }
    let words = format!("seed {seed}, {} {params:?}", info.name);
    let mut policy = info
        .build(&params, Services::default())
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
