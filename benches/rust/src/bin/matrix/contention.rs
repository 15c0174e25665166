//! The cost of shared uplinks. Nearly all gangs cross racks. The cases are no contention, uplinks that are never
//! full, and uplinks that are mostly full.

use gangline_benches::contender::{policy, run, summary};
use gangline_benches::uplinks::{ENDLESS, NARROW, network, wide_gangs, world_of_small_racks};
use gangline_benches::workload::Cluster;
use gangline_engine::{EndReason, RunConfig, World};
use gangline_network::Contention;

use crate::{least, timed};

const CLUSTER: Cluster = Cluster {
    servers: 512,
    gpus_per_server: 8,
};
const JOBS: usize = 20_000;
/// Offered load, at which about 220 gangs run at a time.
const OFFERED: f64 = 0.6;

/// Prints the nanoseconds per event of the three cases, and the number of re-timed segments per event.
pub(crate) fn measure(repeats: usize, policies: &[&str]) {
    let world = world_of_small_racks(&wide_gangs(JOBS, CLUSTER, OFFERED), CLUSTER);
    let networks = [
        network(&world, Contention::Off, NARROW),
        network(&world, Contention::MaxMin, ENDLESS),
        network(&world, Contention::MaxMin, NARROW),
    ];
    for name in policies {
        let mut ns = [(); 3].map(|()| Vec::new());
        for _ in 0..repeats {
            for (network, ns) in networks.iter().zip(&mut ns) {
                let mut policy = policy(name).expect("checked at the start");
                let (seconds, engine) = timed(|| run(&world, policy.as_mut(), network.clone()));
                ns.push(
                    seconds * 1e9
                        / summary(&engine.output().expect("memory for a benchmark"), "events"),
                );
            }
        }
        let [off, idle, full] = ns.map(least);
        println!(
            concat!(
                r#"{{"kind":"contention","policy":"{name}","ns_per_event_off":{:.1}"#,
                r#","ns_per_event_never_full":{:.1},"ns_per_event_full":{:.1}"#,
                r#","retimed_per_event_full":{:.2}}}"#,
            ),
            off,
            idle,
            full,
            retimed(&world, name, networks[2].clone()),
            name = name,
        );
    }
}

fn retimed(world: &World, name: &str, config: RunConfig) -> f64 {
    let mut policy = policy(name).expect("checked at the start");
    let config = RunConfig {
        segments: true,
        ..config
    };
    let output = run(world, policy.as_mut(), config)
        .output()
        .expect("memory for a benchmark");
    let events = summary(&output, "events");
    let table = output.segments.expect("asked for");
    // There is a row per server, and a job's rows of one segment are adjacent.
    let rows = 0..table.job.len();
    let is_first = |row: &usize| {
        let before = row.checked_sub(1);
        before.is_none_or(|at| {
            (table.job[at], table.start_ns[at]) != (table.job[*row], table.start_ns[*row])
        })
    };
    let count = rows
        .filter(is_first)
        .filter(|&row| table.end_reason[row] == EndReason::Retimed as u8)
        .count();
    count as f64 / events
}
