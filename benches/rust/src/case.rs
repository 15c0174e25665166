//! The cases of the instruction gate: a world, a policy and the options of the run, by name.
//!
//! Every registered policy is a case under its own name, on plain servers with its default parameters. The other cases
//! have a policy with parameters, shared GPUs, or a network.

use gangline_engine::{Policy, RunConfig, World};
use gangline_model::Interference;
use gangline_network::Contention;
use gangline_policies::{ParamValue, Params, Services, build};

use crate::contender::{options, policy};
use crate::fork::FloorFork;
use crate::share::FloorShare;
use crate::uplinks::{NARROW, network, wide_gangs, world_of_small_racks};
use crate::workload::{Cluster, Jobs, Load, philly_like};
use crate::worlds::world;

/// Slowdown factor of every pair.
const XI: f64 = 1.25;

/// One case: world, policy and options.
pub struct Case {
    /// Workload from which the world was created; it is kept during the run.
    pub jobs: Jobs,
    /// Cluster, jobs and rates.
    pub world: World,
    /// The policy.
    pub policy: Box<dyn Policy>,
    /// Options of the run.
    pub config: RunConfig,
}

/// Returns the case with a name and a number of jobs, or `None` if there is none.
pub fn case(name: &str, count: usize, cluster: Cluster, load: Load) -> Option<Case> {
    let policy = case_policy(name)?;
    let is_wide = name == "fifo-uplinks";
    let jobs = if is_wide {
        wide_gangs(count, cluster, load.offered())
    } else {
        philly_like(count, cluster, load.offered(), 1)
    };
    let jobs = if matches!(name, "floor-fork" | "toy-fork") {
        within_servers(jobs, cluster)
    } else {
        jobs
    };
    let world = if is_wide {
        world_of_small_racks(&jobs, cluster)
    } else {
        world(&jobs, cluster)
    };
    let config = match name {
        "fifo-uplinks" => network(&world, Contention::MaxMin, NARROW),
        _ => config_of(name),
    };
    Some(Case {
        jobs,
        world,
        policy,
        config,
    })
}

/// Reduces larger gangs to the size of a server, because a part must fit on one server.
fn within_servers(mut jobs: Jobs, cluster: Cluster) -> Jobs {
    for gpus in &mut jobs.gpus {
        *gpus = (*gpus).min(cluster.gpus_per_server);
    }
    jobs
}

/// Returns the policy of a case.
pub fn case_policy(name: &str) -> Option<Box<dyn Policy>> {
    match name {
        "floor-share" | "floor-share-off" => Some(Box::new(FloorShare::default())),
        "floor-fork" => Some(Box::new(FloorFork::default())),
        "fifo-uplinks" => policy("fifo"),
        "gavel-isolated-yarn" => {
            let rule = ParamValue::Str("yarn".to_owned());
            let params = Params::from([("placement".to_owned(), rule)]);
            Some(build("gavel-isolated", &params, Services::default()).expect("a parameter"))
        }
        "gandiva-pack" => {
            let params = Params::from([("pack".to_owned(), ParamValue::Bool(true))]);
            Some(build("gandiva", &params, Services::default()).expect("a parameter of gandiva"))
        }
        _ => policy(name),
    }
}

/// Returns the options of a case without a network.
pub fn config_of(name: &str) -> RunConfig {
    match name {
        "floor-share" | "gandiva-pack" | "gavel-gandiva" | "toy-share" | "sjf-ffs" | "sjf-bsbf" => {
            sharing(2)
        }
        "floor-share-off" => sharing(1),
        _ => options(None),
    }
}

fn sharing(max_share: u32) -> RunConfig {
    RunConfig {
        max_share,
        interference: Some(Interference::constant(XI, 1).expect("at least 1")),
        ..options(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::{run, summary};
    use gangline_testkit::policies;

    /// Names of the cases that are not a registered policy.
    const OTHERS: [&str; 6] = [
        "floor",
        "floor-fork",
        "floor-share",
        "floor-share-off",
        "gandiva-pack",
        "fifo-uplinks",
    ];

    const CLUSTER: Cluster = Cluster {
        servers: 25,
        gpus_per_server: 8,
    };

    /// Returns the names of all cases that run without a solver.
    fn names() -> impl Iterator<Item = &'static str> {
        let registered = policies().filter(|info| info.objective.is_none());
        OTHERS
            .into_iter()
            .chain(registered.map(|info| info.name).collect::<Vec<_>>())
    }

    fn outcome(name: &str, load: Load) -> gangline_engine::Output {
        let mut case = case(name, 2_000, CLUSTER, load).expect("a case");
        run(&case.world, case.policy.as_mut(), case.config)
            .output()
            .expect("memory for a benchmark")
    }

    #[test]
    fn every_named_case_runs() {
        for name in names() {
            let mut case = case(name, 300, CLUSTER, Load::Light).expect("a case");
            let output = run(&case.world, case.policy.as_mut(), case.config)
                .output()
                .expect("memory for a benchmark");
            assert_eq!(summary(&output, "finished") as usize, 300, "{name}");
        }
    }

    #[test]
    fn the_least_sharing_policy_shares_when_saturated_and_is_fifo_without_sharing() {
        let shared = outcome("floor-share", Load::Saturated);
        let apart = outcome("floor-share-off", Load::Saturated);
        assert_eq!(apart.finish_s, outcome("floor", Load::Saturated).finish_s);
        assert!(summary(&shared, "makespan_s") < summary(&apart, "makespan_s"));
        assert!(summary(&shared, "wait_mean_s") < summary(&apart, "wait_mean_s"));
    }

    #[test]
    fn copies_shorten_runs_while_there_is_room() {
        let forked = outcome("floor-fork", Load::Light);
        let apart = outcome("floor", Load::Light);
        assert!(summary(&forked, "jct_mean_s") < 0.8 * summary(&apart, "jct_mean_s"));
        assert!(forked.gpu_s.iter().sum::<f64>() > 1.1 * apart.run_s.iter().sum::<f64>());
    }

    #[test]
    fn up_links_slow_wide_gangs() {
        let output = outcome("fifo-uplinks", Load::Light);
        assert!(summary(&output, "comm_fraction") > 0.0);
    }
}
