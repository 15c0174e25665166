//! The benchmarks' workloads as the engine's own types.

use std::sync::Arc;

use gangline_engine::World;
use gangline_model::{
    ClusterSpec, GpuType, GpuTypeId, JobColumns, JobTable, RackId, RateTable, Server, SimTime,
};

use crate::workload::{Cluster, Jobs};

/// Number of servers of a rack. There are racks so that placement does its usual work.
pub const SERVERS_PER_RACK: u32 = 50;

/// Returns a world with one GPU type of speed 1. The work of a job is its duration in seconds.
pub fn world(jobs: &Jobs, cluster: Cluster) -> World {
    world_of_racks(jobs, cluster, SERVERS_PER_RACK)
}

/// Returns such a world with this number of servers per rack.
pub fn world_of_racks(jobs: &Jobs, cluster: Cluster, servers_per_rack: u32) -> World {
    let gpu_type = GpuType {
        name: "GPU".to_owned(),
        memory_bytes: u64::MAX,
        price_per_hour: 0.0,
        speed: 1.0,
    };
    let server = |index| Server {
        gpu_type: GpuTypeId(0),
        gpus: cluster.gpus_per_server,
        rack: RackId(index / servers_per_rack),
    };
    let spec = ClusterSpec::new(vec![gpu_type], (0..cluster.servers).map(server).collect())
        .expect("a cluster of equal servers is valid");
    let columns = JobColumns {
        arrival: jobs.arrival_ns.iter().copied().map(SimTime).collect(),
        gpus: jobs.gpus.clone(),
        work: jobs.duration_ns.iter().map(|&ns| ns as f64 / 1e9).collect(),
        ..JobColumns::default()
    };
    let rates = RateTable::from_speeds(&spec);
    World {
        cluster: Arc::new(spec),
        jobs: Arc::new(JobTable::new(columns).expect("the workload is sorted and positive")),
        rates: Arc::new(rates),
    }
}
