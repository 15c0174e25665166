//! What the engine costs when decisions are free: the plans of a run, written down and given again.
//!
//! The second run starts, stops and checks exactly what the first did, and no policy thinks. What a policy
//! costs beyond that is its own search; below it no policy can come, however clever. A decision that only a
//! timer of the policy's brought about gets one timer here; those that decided nothing get none.

use gangline_engine::{
    Changes, ClusterView, Next, Plan, Policy, PolicyError, PolicyTraits, WakeOn,
};
use gangline_model::{Action, JobId, SimTime, TimerTag};

/// A decision that did something.
#[derive(Clone, Debug)]
struct Decision {
    time: SimTime,
    /// Whether a job came or ended then, which wakes by itself.
    is_woken: bool,
    /// End of its actions among all.
    actions_end: usize,
}

/// Lets a policy decide and writes down what it does.
pub struct Recording {
    inner: Box<dyn Policy>,
    decisions: Vec<Decision>,
    actions: Vec<Action>,
}

impl Recording {
    /// Of this policy.
    pub fn new(inner: Box<dyn Policy>) -> Self {
        Self {
            inner,
            decisions: Vec::new(),
            actions: Vec::new(),
        }
    }

    /// What was written down, to be given again.
    pub fn replay(self) -> Replay {
        Replay {
            decisions: self.decisions,
            actions: self.actions,
            next: 0,
            done: 0,
        }
    }
}

impl Policy for Recording {
    fn traits(&self) -> PolicyTraits {
        self.inner.traits()
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        self.inner.start(view, plan)
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        let next = self.inner.decide(view, changes, plan)?;
        if !plan.is_empty() {
            self.actions.extend_from_slice(plan.actions());
            self.decisions.push(Decision {
                time: view.now(),
                is_woken: !changes.arrived.is_empty() || !changes.finished.is_empty(),
                actions_end: self.actions.len(),
            });
        }
        Ok(next)
    }
}

/// Gives the plans again.
#[derive(Clone, Debug)]
pub struct Replay {
    decisions: Vec<Decision>,
    actions: Vec<Action>,
    next: usize,
    /// Actions given.
    done: usize,
}

impl Policy for Replay {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            wake_on: WakeOn::QUEUE | WakeOn::TIMER,
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
        view: &ClusterView<'_>,
        _changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        let Some(decision) = self.decisions.get(self.next) else {
            return Ok(Next::Ask);
        };
        if decision.time != view.now() {
            return Ok(Next::Ask);
        }
        for action in &mut self.actions[self.done..decision.actions_end] {
            plan.push(std::mem::replace(action, Action::preempt(action.job)));
        }
        self.done = decision.actions_end;
        self.next += 1;
        if let Some(next) = self.decisions.get(self.next)
            && !next.is_woken
        {
            plan.wake_at(next.time, TimerTag { kind: 0, id: 0 });
        }
        Ok(Next::Ask)
    }
}

#[cfg(test)]
mod tests {
    use super::Recording;
    use crate::contender::{options, policy, run, summary};
    use crate::workload::{Cluster, philly_like};
    use crate::worlds::world;

    const CLUSTER: Cluster = Cluster {
        servers: 6,
        gpus_per_server: 8,
    };

    #[test]
    fn a_replay_is_the_same_run() {
        let jobs = philly_like(1_000, CLUSTER, 2.5, 7);
        let world = world(&jobs, CLUSTER);
        for name in ["fifo", "srtf", "srsf", "las", "tiresias"] {
            let mut recording = Recording::new(policy(name).expect("a known policy"));
            let first = run(&world, &mut recording, options(None))
                .output()
                .expect("memory for a benchmark");
            let mut replay = recording.replay();
            let again = run(&world, &mut replay, options(None))
                .output()
                .expect("memory for a benchmark");
            assert_eq!(first.log_hash, again.log_hash, "{name}");
            assert_eq!(first.finish_s, again.finish_s, "{name}");
            let stops = summary(&first, "preemptions");
            assert_eq!(stops > 0.0, name != "fifo", "{name}: {stops} stops");
        }
    }
}
