//! Time of single decisions: 32 to 16,384 jobs on 60 to 100,000 GPUs.
//!
//! `decisions POLICIES [REPEATS [JOBS GPUS]]`, with names such as `hadar,hadare` (no presets), prints a table on
//! stdout. The table has one row if the numbers of jobs and GPUs are given. All jobs arrive at time 0. `first` is the
//! decision on all jobs and the empty cluster. `later` is the median of the decisions in the ten rounds after it that
//! had actions, with running and waiting jobs. Times are CPU time of the thread inside the policy, and the minimum over
//! the repeats. They do not include the application of the plan.
#![allow(clippy::print_stdout, reason = "a benchmark talks on stdout")]

use std::process::ExitCode;
use std::sync::Arc;

use gangline_benches::contender::{options, run};
use gangline_benches::workload::{Cluster, philly_like};
use gangline_engine::{Changes, ClusterView, Next, Plan, Policy, PolicyError, PolicyTraits, World};
use gangline_model::{
    ClusterSpec, GpuType, GpuTypeId, JobColumns, JobId, JobTable, RackId, RateTable, Server,
    SimTime,
};
use gangline_policies::{Params, Services};
use gangline_testkit::build;
use rustix::time::{ClockId, clock_gettime};

const JOBS: [usize; 4] = [32, 256, 2_048, 16_384];
const GPUS: [u32; 4] = [60, 1_000, 10_000, 100_000];
/// Speeds of the GPU types, which have equal numbers of GPUs.
const SPEEDS: [f64; 3] = [1.0, 0.5, 0.25];
const GPUS_PER_SERVER: u32 = 4;
/// End of the run, which has the decision at time 0 and ten more in rounds of six minutes.
const UNTIL_S: i64 = 3_601;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((policies, numbers)) = arguments.split_first() else {
        return usage();
    };
    let numbers: Result<Vec<u32>, _> = numbers.iter().map(|text| text.parse()).collect();
    let (repeats, jobs, gpus) = match numbers.as_deref() {
        Ok([]) => (3, JOBS.to_vec(), GPUS.to_vec()),
        Ok([repeats]) => (*repeats, JOBS.to_vec(), GPUS.to_vec()),
        Ok([repeats, jobs, gpus]) => (*repeats, vec![*jobs as usize], vec![*gpus]),
        _ => return usage(),
    };
    println!(
        "| policy | jobs | GPUs | first, ms | starts | later, ms |\n|---|---|---|---|---|---|"
    );
    for name in policies.split(',') {
        for &gpus in &gpus {
            for &jobs in &jobs {
                if !row(name, jobs, gpus, repeats) {
                    return usage();
                }
            }
        }
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: decisions POLICY,POLICY,.. [REPEATS [JOBS GPUS]]");
    ExitCode::from(2)
}

/// Prints one row. Returns `false` if there is no such policy.
fn row(name: &str, jobs: usize, gpus: u32, repeats: u32) -> bool {
    let world = world(jobs, gpus);
    let (mut first, mut later) = (f64::INFINITY, f64::INFINITY);
    let mut starts = 0;
    for _ in 0..repeats.max(1) {
        let Ok(inner) = build(name, &Params::new(), Services::default()) else {
            return false;
        };
        let mut policy = Timed {
            inner,
            times_s: Vec::new(),
            starts: 0,
        };
        run(
            &world,
            &mut policy,
            options(Some(SimTime(UNTIL_S * 1_000_000_000))),
        );
        let (one, rest) = policy.times_s.split_first().expect("one decision at least");
        first = first.min(*one);
        starts = policy.starts;
        let mut rest = rest.to_vec();
        rest.sort_unstable_by(f64::total_cmp);
        if let Some(&median) = rest.get(rest.len() / 2) {
            later = later.min(median);
        }
    }
    let later = if later.is_finite() {
        format!("{:.3}", later * 1e3)
    } else {
        "none".to_owned()
    };
    println!(
        "| {name} | {jobs} | {gpus} | {:.3} | {starts} | {later} |",
        first * 1e3
    );
    true
}

/// Creates servers of three types, and jobs that all arrive at time 0.
fn world(jobs: usize, gpus: u32) -> World {
    let cluster = Cluster {
        servers: gpus / GPUS_PER_SERVER,
        gpus_per_server: GPUS_PER_SERVER,
    };
    let gpu_type = |(at, &speed): (usize, &f64)| GpuType {
        name: format!("type {at}"),
        memory_bytes: u64::MAX,
        price_per_hour: 0.0,
        speed,
    };
    let server = |index: u32| Server {
        gpu_type: GpuTypeId::new(index as usize % SPEEDS.len()),
        gpus: GPUS_PER_SERVER,
        rack: RackId(index / 50),
    };
    let spec = ClusterSpec::new(
        SPEEDS.iter().enumerate().map(gpu_type).collect(),
        (0..cluster.servers).map(server).collect(),
    )
    .expect("types and servers are valid");
    let table = philly_like(jobs, cluster, 1.0, 1);
    // A gang fits on the GPUs of one type.
    let gangs = table.gpus.iter().map(|gang| (*gang).min(gpus / 4));
    let columns = JobColumns {
        arrival: vec![SimTime::ZERO; jobs],
        gpus: gangs.collect(),
        work: table
            .duration_ns
            .iter()
            .map(|&ns| ns as f64 / 1e9)
            .collect(),
        ..JobColumns::default()
    };
    let rates = RateTable::from_speeds(&spec);
    World {
        cluster: Arc::new(spec),
        jobs: Arc::new(JobTable::new(columns).expect("the workload is valid")),
        rates: Arc::new(rates),
    }
}

/// A policy whose decisions are timed.
struct Timed {
    inner: Box<dyn Policy>,
    times_s: Vec<f64>,
    /// Number of actions of the first decision, all of which are starts.
    starts: usize,
}

impl Policy for Timed {
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
        let start = cpu_s();
        let next = self.inner.decide(view, changes, plan);
        self.times_s.push(cpu_s() - start);
        if self.times_s.len() == 1 {
            self.starts = plan.actions().len();
        }
        next
    }
}

/// Returns the CPU seconds of this thread.
fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
