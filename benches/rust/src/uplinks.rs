//! Worlds in which gangs share uplinks: nearly every gang crosses racks.

use std::sync::Arc;

use gangline_engine::{RunConfig, World};
use gangline_network::{Contention, LinkChange, ModelGiven, Network, NetworkConfig};

use crate::contender::options;
use crate::workload::{Cluster, Jobs, MEAN_DURATION_S, philly_like};
use crate::worlds::world_of_racks;

const SERVERS_PER_RACK: u32 = 2;
/// Gang sizes. No gang fits on a server of 8 GPUs, and most fit in no rack.
const GANGS: [u32; 4] = [12, 18, 24, 30];
/// Bytes/s of an uplink that is mostly full.
pub const NARROW: f64 = 1.5e9;
/// Bytes/s of an uplink that is never full.
pub const ENDLESS: f64 = 1e15;

/// Returns a world with racks of two servers.
pub fn world_of_small_racks(jobs: &Jobs, cluster: Cluster) -> World {
    world_of_racks(jobs, cluster, SERVERS_PER_RACK)
}

/// Returns jobs that need more than one server each.
pub fn wide_gangs(count: usize, cluster: Cluster, offered: f64) -> Jobs {
    let mut jobs = philly_like(count, cluster, offered, 4);
    let mean = f64::from(GANGS.iter().sum::<u32>()) / GANGS.len() as f64;
    let gap_s = mean * MEAN_DURATION_S / (offered * f64::from(cluster.gpus()));
    let last = *jobs.arrival_ns.last().expect("not empty") as f64;
    let stretch = gap_s * 1e9 * count as f64 / last;
    for (at, gpus) in jobs.gpus.iter_mut().enumerate() {
        *gpus = GANGS[at % GANGS.len()];
        jobs.arrival_ns[at] = (jobs.arrival_ns[at] as f64 * stretch) as i64;
    }
    jobs
}

/// Returns the options of a run on a network whose uplinks have this many bytes/s.
pub fn network(world: &World, contention: Contention, uplink_bw: f64) -> RunConfig {
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
