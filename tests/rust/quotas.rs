//! Iteration quotas: the number of iterations after which a running job holds its GPUs without progress. The values are
//! worked out by hand.

mod tiny;

use gangline_engine::{
    Changes, ClusterView, EngineError, Next, Output, Plan, Policy, PolicyError, PolicyTraits, Rule,
    RunConfig, WakeOn,
};
use gangline_model::{Action, GpuSet, Interference, JobId, ServerId, SimTime, Terms, TimerTag};

/// An order at a whole second.
#[derive(Clone, Copy)]
enum Order {
    /// The job gets the only GPU.
    Start(u32),
    /// The job gets the only GPU, with a quota.
    StartOn(u32, f64),
    Preempt(u32),
    Quota(u32, f64),
}

/// Orders by second.
type Orders<'a> = &'a [(i64, &'a [Order])];

use Order::{Preempt, Quota, Start, StartOn};

/// A policy that follows orders by second; a timer wakes it for each of them.
struct Script {
    orders: Vec<(i64, Vec<Order>)>,
    next: usize,
    shares: u32,
}

fn gpu() -> GpuSet {
    GpuSet::single(ServerId(0), 1)
}

impl Policy for Script {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            wake_on: WakeOn::ARRIVAL | WakeOn::TIMER,
            max_share: self.shares,
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
        for order in &self.orders[self.next].1 {
            let with = |quota| Terms {
                quota: Some(quota),
                ..Terms::default()
            };
            plan.push(match *order {
                Start(job) => Action::start(JobId(job), gpu()),
                StartOn(job, quota) => Action::start(JobId(job), gpu()).with(with(quota)),
                Preempt(job) => Action::preempt(JobId(job)),
                Quota(job, quota) => Action::keep(JobId(job), with(quota)),
            });
        }
        self.next += 1;
        if let Some((second, _)) = self.orders.get(self.next) {
            let tag = TimerTag { kind: 0, id: 0 };
            plan.wake_at(SimTime(second * 1_000_000_000), tag);
        }
        Ok(Next::Ask)
    }
}

/// Runs jobs with these iterations on one GPU. Alone, each does one iteration per second.
fn run(works: &[f64], shares: u32, orders: &[(i64, &[Order])]) -> Result<Output, EngineError> {
    let config = RunConfig {
        segments: true,
        interference: Some(Interference::constant(1.25, 1).expect(">= 1")),
        ..RunConfig::default()
    };
    let orders = orders.iter().map(|(s, all)| (*s, all.to_vec())).collect();
    let mut script = Script {
        orders,
        next: 0,
        shares,
    };
    tiny::run(&tiny::world(1, 1, 1, works), config, &mut script)
}

/// Returns start and end in seconds, and rate, of each segment of a job.
fn segments(output: &Output, job: u32) -> Vec<(f64, f64, f64)> {
    let table = output.segments.as_ref().expect("asked for");
    let seconds = |ns: i64| ns as f64 / 1e9;
    (0..table.job.len())
        .filter(|&row| table.job[row] == job)
        .map(|row| {
            (
                seconds(table.start_ns[row]),
                seconds(table.end_ns[row]),
                table.rate[row],
            )
        })
        .collect()
}

#[test]
fn a_job_is_paused_at_its_quota_and_goes_on_with_the_next() {
    let orders: &[(i64, &[Order])] = &[
        (0, &[StartOn(0, 4.0)]),
        (6, &[Quota(0, 3.0)]),
        (20, &[Quota(0, f64::INFINITY)]),
    ];
    let output = run(&[10.0], 1, orders).expect("sound");
    let wanted = [
        (0.0, 4.0, 1.0),
        (4.0, 6.0, 0.0),
        (6.0, 9.0, 1.0),
        (9.0, 20.0, 0.0),
        (20.0, 23.0, 1.0),
    ];
    assert_eq!(segments(&output, 0), wanted);
    assert_eq!(output.run_s, [23.0]);
    assert!(output.preemptions.is_empty());
}

#[test]
fn a_quota_of_all_remaining_work_has_no_effect() {
    for limit in [10.0, 11.0] {
        let orders: &[(i64, &[Order])] = &[(0, &[StartOn(0, limit)])];
        let output = run(&[10.0], 1, orders).expect("sound");
        assert_eq!(output.finish_s, [10.0]);
    }
}

#[test]
fn a_new_quota_before_the_end_of_the_old_one_counts_from_now() {
    // Two of 4 iterations are done at 2 s, and 5 more end at 7 s.
    let orders: &[(i64, &[Order])] = &[
        (0, &[StartOn(0, 4.0)]),
        (2, &[Quota(0, 5.0)]),
        (9, &[Quota(0, 100.0)]),
    ];
    let output = run(&[10.0], 1, orders).expect("sound");
    assert_eq!(segments(&output, 0)[2], (7.0, 9.0, 0.0));
    assert_eq!(output.finish_s, [12.0]);
}

#[test]
fn a_preemption_ends_the_quota() {
    let orders: &[(i64, &[Order])] = &[
        (0, &[StartOn(0, 4.0)]),
        (2, &[Preempt(0)]),
        (3, &[Start(0)]),
    ];
    let output = run(&[10.0], 1, orders).expect("sound");
    assert_eq!(output.finish_s, [11.0]);
}

#[test]
fn a_paused_job_stays_paused_when_its_co_runner_leaves() {
    // Side by side, both do 0.8 iterations per second: 4 iterations take 5 s and 8 take 10 s. Then six are left.
    let orders: &[(i64, &[Order])] = &[
        (0, &[StartOn(0, 4.0), Start(1)]),
        (12, &[Quota(0, f64::INFINITY)]),
    ];
    let output = run(&[10.0, 8.0], 2, orders).expect("sound");
    assert_eq!(output.finish_s, [18.0, 10.0]);
    let wanted = [(0.0, 5.0, 0.8), (5.0, 12.0, 0.0), (12.0, 18.0, 1.0)];
    assert_eq!(segments(&output, 0), wanted);
}

#[test]
fn the_rest_of_a_quota_is_faster_when_the_co_runner_leaves() {
    // The rate is 0.8 per second until 5 s. One iteration of the quota of 5 is then left, which is done at 6 s.
    let orders: &[(i64, &[Order])] = &[
        (0, &[StartOn(0, 5.0), Start(1)]),
        (9, &[Quota(0, f64::INFINITY)]),
    ];
    let output = run(&[10.0, 4.0], 2, orders).expect("sound");
    assert_eq!(segments(&output, 0)[1], (5.0, 6.0, 1.0));
    assert_eq!(output.finish_s, [14.0, 5.0]);
}

#[test]
fn bad_quotas_are_refused() {
    let bad: [&[Order]; 3] = [
        &[StartOn(0, 0.0)],
        &[StartOn(0, -1.0)],
        &[StartOn(0, f64::NAN)],
    ];
    for orders in bad {
        let Err(EngineError::Plan(error)) = run(&[10.0, 1.0], 1, &[(0, orders)]) else {
            panic!("accepted");
        };
        assert_eq!(error.rule, Rule::WorkLimit);
    }
    let waiting: [(Orders<'_>, Rule); 3] = [
        (&[(0, &[Start(0), Quota(1, 3.0)])], Rule::NotRunning),
        (&[(0, &[Quota(0, 3.0)])], Rule::NotRunning),
        (
            &[(0, &[Start(0)]), (2, &[Preempt(0), Quota(0, 3.0)])],
            Rule::TwoActions,
        ),
    ];
    for (orders, rule) in waiting {
        let Err(EngineError::Plan(error)) = run(&[10.0, 1.0], 1, orders) else {
            panic!("accepted");
        };
        assert_eq!(error.rule, rule);
    }
}
