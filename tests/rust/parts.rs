//! Rules for the parts of a job in a plan: each is on one server, no two are on the same server, and without forks
//! there is only one.

mod tiny;

use gangline_engine::{
    Changes, ClusterView, EngineError, Next, Plan, Policy, PolicyError, PolicyTraits, Rule,
    RunConfig,
};
use gangline_model::{Action, GpuSet, JobId, ServerId};

/// Submits these actions at the arrival of the only job.
struct Order {
    actions: Vec<Action>,
    forks: bool,
}

impl Policy for Order {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            forks: self.forks,
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        _view: &ClusterView<'_>,
        _plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        Ok(Vec::new())
    }

    fn decide(
        &mut self,
        _view: &ClusterView<'_>,
        _changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        for action in self.actions.drain(..) {
            plan.push(action);
        }
        Ok(Next::Ask)
    }
}

/// Runs a job with two GPUs on two servers with four GPUs each.
fn run(actions: &[Action], forks: bool) -> Result<(), EngineError> {
    let actions = actions.to_vec();
    let mut policy = Order { actions, forks };
    tiny::run(
        &tiny::world(2, 4, 2, &[10.0]),
        RunConfig::default(),
        &mut policy,
    )?;
    Ok(())
}

fn part(number: u16, servers: &[u32], mask: u64) -> Action {
    let mut gpus = GpuSet::new();
    for &server in servers {
        gpus.insert(ServerId(server), mask);
    }
    Action::start(JobId(0), gpus).of_part(number)
}

#[test]
fn parts_on_servers_of_their_own_are_accepted() {
    assert!(run(&[part(0, &[0], 0b11), part(1, &[1], 0b11)], true).is_ok());
    assert!(run(&[part(0, &[0, 1], 0b1)], false).is_ok());
}

#[test]
fn a_plan_that_breaks_a_rule_of_parts_is_refused_by_its_name() {
    let spans = [part(0, &[0, 1], 0b1)];
    let shares = [part(0, &[0], 0b11), part(1, &[0], 0b1100)];
    let alone = [part(1, &[0], 0b11)];
    for (actions, forks, rule) in [
        (&spans[..], true, Rule::PartSpansServers),
        (&shares[..], true, Rule::PartsShareServer),
        (&alone[..], false, Rule::NotForked),
    ] {
        let Err(EngineError::Plan(error)) = run(actions, forks) else {
            panic!("{rule:?} was accepted");
        };
        assert_eq!(error.rule, rule);
    }
}
