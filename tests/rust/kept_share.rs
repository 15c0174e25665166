//! The mean locality factor of a job, as the engine sums it up for a policy that watches locality.

mod tiny;

use gangline_engine::{
    Changes, ClusterView, Next, Plan, Policy, PolicyError, PolicyTraits, RunConfig, WakeOn,
};
use gangline_model::{GpuSet, JobId, ServerId, SimSpan, SimTime, TierTable, TimerTag};
use std::sync::Arc;

const SECOND: i64 = 1_000_000_000;
const TAG: TimerTag = TimerTag { kind: 0, id: 0 };

/// Returns the mean in units of 10^-12, rounded down; 0 before any progress.
fn mean_share(kept_ns: i128, time: SimSpan) -> u64 {
    let time = i128::from(time.0);
    if time == 0 {
        0
    } else {
        (kept_ns / time) as u64
    }
}

/// Starts the job on server 0, moves it to both servers after 100 s of progress, and reads the mean after 300 s more.
#[derive(Debug, Default)]
struct Mover {
    restart: i64,
    first: Option<u64>,
    seen: Vec<(u64, u64)>,
}

impl Policy for Mover {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            wake_on: WakeOn::QUEUE | WakeOn::TIMER,
            watches_locality: true,
            ..PolicyTraits::default()
        }
    }

    fn start(&mut self, _: &ClusterView<'_>, _: &mut Plan<'_>) -> Result<Vec<JobId>, PolicyError> {
        Ok(Vec::new())
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        let (job, now) = (JobId(0), view.now());
        let kept = view.kept_ns(job);
        let after = |seconds: i64| SimTime(now.0 + seconds * SECOND);
        if !changes.arrived.is_empty() {
            self.first = Some(mean_share(kept, view.executed(job)));
            let gpus: GpuSet = [(ServerId(0), 3)].into_iter().collect();
            plan.start(job, gpus);
            plan.wake_at(after(100), TAG);
        } else if now.0 == 100 * SECOND {
            let gpus = [(ServerId(0), 1), (ServerId(1), 1)].into_iter().collect();
            plan.move_to(job, gpus);
            plan.wake_at(after(300 + self.restart), TAG);
        } else if changes.finished.is_empty() {
            let without = mean_share(kept, view.executed(job));
            self.seen.push((without, mean_share(kept, view.held(job))));
        }
        Ok(Next::Ask)
    }
}

fn moved(restart: i64) -> Mover {
    let tiers = TierTable::new(vec![[1.0, 0.5, 0.25]]).expect("factors");
    let config = RunConfig {
        locality: Some(Arc::new(tiers)),
        restart: SimSpan(restart * SECOND),
        ..RunConfig::default()
    };
    let mut policy = Mover {
        restart,
        ..Mover::default()
    };
    tiny::run(&tiny::world(2, 2, 2, &[1e4]), config, &mut policy).expect("ends");
    policy
}

#[test]
fn the_engine_sums_locality_factors_over_time() {
    let plain = moved(0);
    let five_eighths = 625_000_000_000;
    assert_eq!(plain.first, Some(0), "never run");
    assert_eq!(plain.seen, [(five_eighths, five_eighths)]);
    // 100 s of overhead are not progress. Relative to the time in which the job holds GPUs, they lower the mean.
    assert_eq!(moved(100).seen, [(five_eighths, 500_000_000_000)]);
}
