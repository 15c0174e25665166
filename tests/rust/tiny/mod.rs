//! A tiny world and its run: equal servers in one rack, and jobs that arrive together.

use gangline_engine::{Control, Engine, EngineError, Output, Policy, RunConfig, Silent, World};
use gangline_model::{
    ClusterSpec, GpuType, GpuTypeId, JobColumns, JobTable, RackId, RateTable, Server, SimTime,
};
use std::sync::Arc;

/// Creates `servers` servers with `gpus` GPUs each. For each number of iterations, a job with `gang` GPUs arrives at 0
/// and does one iteration per second.
pub(crate) fn world(servers: usize, gpus: u32, gang: u32, works: &[f64]) -> World {
    let gpu_type = GpuType {
        name: "A".to_owned(),
        memory_bytes: u64::MAX,
        price_per_hour: 0.0,
        speed: 1.0,
    };
    let server = Server {
        gpu_type: GpuTypeId(0),
        gpus,
        rack: RackId(0),
    };
    let cluster = ClusterSpec::new(vec![gpu_type], vec![server; servers]).expect("valid");
    let columns = JobColumns {
        arrival: vec![SimTime(0); works.len()],
        gpus: vec![gang; works.len()],
        work: works.to_vec(),
        ..JobColumns::default()
    };
    World {
        rates: Arc::new(RateTable::from_speeds(&cluster)),
        cluster: Arc::new(cluster),
        jobs: Arc::new(JobTable::new(columns).expect("valid")),
    }
}

/// Runs to the end and checks the invariants of the engine.
pub(crate) fn run(
    world: &World,
    config: RunConfig,
    policy: &mut dyn Policy,
) -> Result<Output, EngineError> {
    let config = RunConfig {
        check_invariants: true,
        ..config
    };
    let mut engine = Engine::new(world, config, policy.traits())?;
    engine.start(policy)?;
    engine.run(policy, &Control::default(), &mut Silent)?;
    engine.output()
}
