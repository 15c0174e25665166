//! `toy-timer`: for some time, a job accepts only a place on a single server; after that, it accepts any place.

use gangline_engine::{
    Changes, ClusterView, Next, Plan, Policy, PolicyError, PolicyTraits, WakeOn,
};
use gangline_model::{JobId, SimSpan, TimerTag};
use gangline_policies::kit::Places;
use gangline_policies::place::Level;

/// A first-come, first-served queue that spreads gangs only after a delay.
#[derive(Debug)]
pub struct ToyTimer {
    delay: SimSpan,
    narrow: Places,
    wide: Places,
}

impl ToyTimer {
    /// Creates the policy with this delay.
    pub fn new(delay: SimSpan) -> Self {
        Self {
            delay,
            narrow: super::places::places(Level::Server),
            wide: super::places::places(Level::Network),
        }
    }
}

impl Policy for ToyTimer {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            wake_on: WakeOn::QUEUE | WakeOn::TIMER,
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        self.narrow.start(view, plan)?;
        self.wide.start(view, plan)
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        if self.delay > SimSpan::ZERO {
            for &job in &changes.arrived {
                plan.wake_at(
                    view.jobs().arrival(job) + self.delay,
                    TimerTag { kind: 0, id: job.0 },
                );
            }
        }
        for job in view.waiting() {
            let is_late = view.now() >= view.jobs().arrival(job) + self.delay;
            let places = if is_late {
                &mut self.wide
            } else {
                &mut self.narrow
            };
            let class = places.classes().of(job);
            places.start_job(plan, class, job);
        }
        Ok(Next::Ask)
    }
}
