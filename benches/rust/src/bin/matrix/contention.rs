//! What shared up-links cost: gangs that nearly all cross racks, each alone, on up-links that are never
//! full, and on up-links that mostly are.

use std::sync::Arc;

use gangline_benches::contender::{options, policy, run, summary};
use gangline_benches::workload::{Cluster, Jobs, MEAN_DURATION_S, philly_like};
use gangline_benches::worlds::world_of_racks;
use gangline_engine::{EndReason, RunConfig, World};
use gangline_model::{Contention, LinkChange, ModelGiven, Network, NetworkConfig};

use crate::{least, timed};

const CLUSTER: Cluster = Cluster {
    servers: 512,
    gpus_per_server: 8,
};
const SERVERS_PER_RACK: u32 = 2;
const JOBS: usize = 20_000;
/// No gang fits a server, most fit no rack; about 220 run at a time.
const GANGS: [u32; 4] = [12, 18, 24, 30];
const OFFERED: f64 = 0.6;

/// Prints nanoseconds per event of the three, and how many re-timed segments an event leaves behind.
pub(crate) fn measure(repeats: usize, policies: &[&str]) {
    let world = world_of_racks(&gangs(), CLUSTER, SERVERS_PER_RACK);
    let networks = [
        network(&world, Contention::Off, 1.5e9),
        network(&world, Contention::MaxMin, 1e15),
        network(&world, Contention::MaxMin, 1.5e9),
    ];
    for name in policies {
        let mut ns = [(); 3].map(|()| Vec::new());
        for _ in 0..repeats {
            for (network, ns) in networks.iter().zip(&mut ns) {
                let mut policy = policy(name).expect("checked at the start");
                let (seconds, engine) = timed(|| run(&world, policy.as_mut(), network.clone()));
                ns.push(seconds * 1e9 / summary(&engine.output(), "events"));
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

fn gangs() -> Jobs {
    let mut jobs = philly_like(JOBS, CLUSTER, OFFERED, 4);
    let mean = f64::from(GANGS.iter().sum::<u32>()) / GANGS.len() as f64;
    let gap_s = mean * MEAN_DURATION_S / (OFFERED * f64::from(CLUSTER.gpus()));
    let last = *jobs.arrival_ns.last().expect("not empty") as f64;
    let stretch = gap_s * 1e9 * JOBS as f64 / last;
    for (at, gpus) in jobs.gpus.iter_mut().enumerate() {
        *gpus = GANGS[at % GANGS.len()];
        jobs.arrival_ns[at] = (jobs.arrival_ns[at] as f64 * stretch) as i64;
    }
    jobs
}

fn network(world: &World, contention: Contention, uplink_bw: f64) -> RunConfig {
    let model = ModelGiven {
        compute_s: 1.0,
        grad_bytes: 1.4e9,
        buckets: 25,
        ..ModelGiven::default()
    };
    let mut tiers = [LinkChange::default(); 3];
    tiers[2].uplink_bw = Some(uplink_bw);
    let config = NetworkConfig {
        preset: Some("pcie-25g".to_owned()),
        models: vec![("m".to_owned(), model)],
        default_model: Some("m".to_owned()),
        contention,
        tiers,
        ..NetworkConfig::default()
    };
    let network = Network::new(&config, &world.cluster, &[]).expect("a network");
    RunConfig {
        locality: Some(Arc::new(network)),
        ..options(None)
    }
}

fn retimed(world: &World, name: &str, config: RunConfig) -> f64 {
    let mut policy = policy(name).expect("checked at the start");
    let config = RunConfig {
        segments: true,
        ..config
    };
    let output = run(world, policy.as_mut(), config).output();
    let events = summary(&output, "events");
    let table = output.segments.expect("asked for");
    // a row per server: a job's rows of one segment follow each other
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
