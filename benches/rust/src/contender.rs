//! The measured programs: the bare loops, the engine with a minimal policy, and the engine with real policies. One run
//! of each is a function from a prepared world to finish times and event counts.

use gangline_engine::{Control, Engine, Output, Policy, RunConfig, Silent, World};
use gangline_model::SimTime;
use gangline_policies::{Params, Services};
use gangline_testkit::build;

use crate::floor::Floor;

/// Policies of the published table, in its order.
pub const POLICIES: [&str; 8] = [
    "fifo",
    "sjf",
    "fifo-skip",
    "srtf",
    "srsf",
    "las",
    "tiresias",
    "easy",
];

/// Returns a policy by name, with its default parameters; `floor` is the minimal one.
pub fn policy(name: &str) -> Option<Box<dyn Policy>> {
    match name {
        "floor" => Some(Box::new(Floor::default())),
        _ => build(name, &Params::new(), Services::default()).ok(),
    }
}

/// Returns the options of every measured run, which are those of a default run.
pub fn options(until: Option<SimTime>) -> RunConfig {
    RunConfig {
        check_invariants: false,
        until,
        ..RunConfig::default()
    }
}

/// Sets up a run and runs it. The caller takes out the results, so that this can be timed separately.
pub fn run(world: &World, policy: &mut dyn Policy, options: RunConfig) -> Engine {
    let mut engine = Engine::new(world, options, policy.traits())
        .expect("every job of the workload fits the cluster");
    engine
        .start(policy)
        .expect("every job has a place on the empty cluster");
    engine
        .run(policy, &Control::default(), &mut Silent)
        .expect("the policy keeps the rules");
    engine
}

/// Returns a value of the summary.
pub fn summary(output: &Output, key: &str) -> f64 {
    let found = output.summary.iter().find(|entry| entry.0 == key);
    found.map_or(f64::NAN, |entry| entry.1)
}
