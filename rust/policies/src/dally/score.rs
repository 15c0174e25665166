//! The priority score: the mean share of its speed that a job kept so far.

use gangline_model::SimSpan;

/// Mean share in 2^-40, rounded down, of a sum over nanoseconds; 0 before any progress.
pub(super) fn mean_share(kept_ns: i128, time: SimSpan) -> u64 {
    if time.0 == 0 {
        return 0;
    }
    (kept_ns / i128::from(time.0)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use gangline_engine::{
        Changes, ClusterView, Control, Engine, Next, Plan, Policy, PolicyError, PolicyTraits,
        RunConfig, Silent, WakeOn, World,
    };
    use gangline_model::{
        ClusterSpec, GpuSet, GpuType, GpuTypeId, JobColumns, JobId, JobTable, RackId, RateTable,
        Server, ServerId, SimTime, TierTable, TimerTag,
    };
    use proptest::prelude::*;
    use std::sync::Arc;

    const ONE: i128 = 1 << 40;
    const SECOND: i64 = 1_000_000_000;
    const TAG: TimerTag = TimerTag { kind: 0, id: 0 };

    #[test]
    fn the_published_example() {
        // S = 1 for 100 s, then 0.5 for 300 s: 250 / 400
        let kept = ONE * 100 * i128::from(SECOND) + ONE / 2 * 300 * i128::from(SECOND);
        let score = mean_share(kept, SimSpan(400 * SECOND));
        assert_eq!(u128::from(score) * 1000, 625 << 40);
        assert_eq!(mean_share(0, SimSpan(0)), 0);
    }

    proptest! {
        #[test]
        fn it_lies_between_the_shares_of_its_segments(
            segments in prop::collection::vec((1_i128..=ONE, 1_i64..1_000_000 * SECOND), 1..20),
        ) {
            let kept = segments.iter().map(|(share, time)| share * i128::from(*time)).sum();
            let time = SimSpan(segments.iter().map(|segment| segment.1).sum());
            let score = i128::from(mean_share(kept, time));
            prop_assert!(score >= segments.iter().map(|segment| segment.0).min().expect("one"));
            prop_assert!(score <= segments.iter().map(|segment| segment.0).max().expect("one"));
        }

        /// However a job's time is cut up, the same share gives the same score.
        #[test]
        fn equal_shares_give_equal_scores(
            share in 1_i128..=ONE,
            times in prop::collection::vec(1_i64..1_000_000 * SECOND, 1..20),
        ) {
            let kept = times.iter().map(|time| share * i128::from(*time)).sum();
            let time = SimSpan(times.iter().sum());
            prop_assert_eq!(i128::from(mean_share(kept, time)), share);
        }
    }

    /// Starts the job on server 0, moves it over both servers after 100 s of progress, looks after 300 more.
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

        fn start(
            &mut self,
            _: &ClusterView<'_>,
            _: &mut Plan<'_>,
        ) -> Result<Vec<JobId>, PolicyError> {
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
        let gpu_type = GpuType {
            name: "g".to_owned(),
            memory_bytes: u64::MAX,
            price_per_hour: 0.0,
            speed: 1.0,
        };
        let server = Server {
            gpu_type: GpuTypeId(0),
            gpus: 2,
            rack: RackId(0),
        };
        let cluster = ClusterSpec::new(vec![gpu_type], vec![server; 2]).expect("valid");
        let jobs = JobTable::new(JobColumns {
            arrival: vec![SimTime(0)],
            gpus: vec![2],
            work: vec![1e4],
            ..JobColumns::default()
        });
        let world = World {
            rates: Arc::new(RateTable::from_speeds(&cluster)),
            cluster: Arc::new(cluster),
            jobs: Arc::new(jobs.expect("valid")),
        };
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
        let mut engine = Engine::new(&world, config, policy.traits()).expect("valid");
        engine.start(&mut policy).expect("starts");
        engine
            .run(&mut policy, &Control::default(), &mut Silent)
            .expect("ends");
        policy
    }

    #[test]
    fn the_engine_keeps_its_terms() {
        let plain = moved(0);
        let five_eighths = 5 << 37;
        assert_eq!(plain.first, Some(0), "never run");
        assert_eq!(plain.seen, [(five_eighths, five_eighths)]);
        // 100 s of overhead are no progress; with `score_includes_overhead` they count as time
        assert_eq!(moved(100).seen, [(five_eighths, 1 << 39)]);
    }
}
