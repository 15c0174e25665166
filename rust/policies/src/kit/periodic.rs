//! Makes a policy decide only at multiples of a period.

use gangline_engine::{
    Cause, Changes, ClusterView, Next, Plan, Policy, PolicyError, PolicyTraits, Reason, WakeOn,
};
use gangline_model::{JobId, SimSpan};

/// A wrapper that calls its policy only at multiples of a period. Each call gets all changes since the previous one.
pub(crate) struct Periodic {
    policy: Box<dyn Policy>,
    period: SimSpan,
}

impl Periodic {
    /// Wraps a policy. If the period is 0, returns the policy itself.
    pub(crate) fn of(policy: Box<dyn Policy>, period: SimSpan) -> Box<dyn Policy> {
        if period == SimSpan::ZERO {
            return policy;
        }
        Box::new(Self { policy, period })
    }
}

impl Policy for Periodic {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            wake_on: WakeOn::ROUND,
            round: Some(self.period),
            ..self.policy.traits()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        self.policy.start(view, plan)
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        self.policy.decide(view, changes, plan)?;
        // Time alone may change a decision, for example when a job drops to a lower queue.
        let is_idle = view.first_waiting().is_none() && view.running().next().is_none();
        Ok(if is_idle { Next::Steady } else { Next::Ask })
    }

    fn why(&self, view: &ClusterView<'_>, job: JobId) -> Option<Cause> {
        self.policy.why(view, job)
    }

    fn reasons(&self) -> Vec<&'static Reason> {
        self.policy.reasons()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.policy.counters()
    }
}
