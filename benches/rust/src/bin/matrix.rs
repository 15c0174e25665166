//! The matrix of the published table: jobs x load x policy, with engine and bare loop in turns.
//!
//! `matrix speed JOBS REPEATS POLICIES [SERVERS]`, `matrix waiting REPEATS POLICIES`, `matrix servers REPEATS
//! POLICIES`, `matrix load JOBS REPEATS POLICIES`, `matrix contention REPEATS POLICIES`. It prints one JSON object per
//! line on stdout, from which `benches/run.py` makes a table. Times are the minimum CPU time of several interleaved
//! runs in one process. Other processes on the machine can only add to this time, and they affect all interleaved runs
//! in the same way.
#![allow(clippy::print_stdout, reason = "a benchmark talks on stdout")]

#[path = "matrix/contention.rs"]
mod contention;
#[path = "matrix/load.rs"]
mod load;

use std::process::ExitCode;

use gangline_benches::bare::{self, Times};
use gangline_benches::contender::{options, policy, run, summary};
use gangline_benches::workload::{Cluster, Jobs, Load, MEAN_DURATION_S, philly_like, with_backlog};
use gangline_benches::worlds::world;
use gangline_engine::{Output, World};
use gangline_model::SimTime;
use rustix::time::{ClockId, clock_gettime};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["speed", jobs, repeats, policies] => match (jobs.parse(), repeats.parse()) {
            (Ok(jobs), Ok(repeats)) => speed(jobs, Cluster::PUBLISHED, repeats, &names(policies)),
            _ => return usage(),
        },
        ["speed", jobs, repeats, policies, servers] => {
            let (Ok(jobs), Ok(repeats), Ok(servers)) =
                (jobs.parse(), repeats.parse(), servers.parse())
            else {
                return usage();
            };
            let cluster = Cluster {
                servers,
                ..Cluster::PUBLISHED
            };
            speed(jobs, cluster, repeats, &names(policies));
        }
        ["load", jobs, repeats, policies] => match (jobs.parse(), repeats.parse()) {
            (Ok(jobs), Ok(repeats)) => load::measure(jobs, repeats, &names(policies)),
            _ => return usage(),
        },
        ["waiting", repeats, policies] => match repeats.parse() {
            Ok(repeats) => waiting(repeats, &names(policies)),
            Err(_) => return usage(),
        },
        ["servers", repeats, policies] => match repeats.parse() {
            Ok(repeats) => servers(repeats, &names(policies)),
            Err(_) => return usage(),
        },
        ["contention", repeats, policies] => match repeats.parse() {
            Ok(repeats) => contention::measure(repeats, &names(policies)),
            Err(_) => return usage(),
        },
        _ => return usage(),
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: matrix speed|load JOBS REPEATS A,B,.. | speed JOBS REPEATS A,B,.. SERVERS | waiting|servers|contention REPEATS A,B,.."
    );
    ExitCode::from(2)
}

fn names(list: &str) -> Vec<&str> {
    let names: Vec<&str> = list.split(',').collect();
    for name in &names {
        assert!(policy(name).is_some(), "unknown policy {name}");
    }
    names
}

/// Returns the CPU seconds of this thread, on which all measured code runs.
fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the CPU seconds that `work` takes, and what it returns.
fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = cpu_s();
    let result = work();
    (cpu_s() - start, result)
}

fn least(values: Vec<f64>) -> f64 {
    values
        .into_iter()
        .min_by(f64::total_cmp)
        .expect("at least one run")
}

type BareLoop = fn(&Jobs, Cluster) -> Times;

/// A run shorter than this is repeated several times in a turn, so that its minimum time is found sooner. The bare
/// loop, to which all policies are compared, is such a run.
const SHORT_S: f64 = 2.0;
const RUNS_IF_SHORT: usize = 3;

/// Returns the CPU seconds of the fastest run of a turn, and the result of that run.
fn turn<T>(mut run: impl FnMut() -> (f64, T)) -> (f64, T) {
    let mut best = run();
    if best.0 < SHORT_S {
        for _ in 1..RUNS_IF_SHORT {
            let again = run();
            if again.0 < best.0 {
                best = again;
            }
        }
    }
    best
}

/// The loops to which all policies are compared.
const BARE_LOOPS: [(&str, BareLoop); 2] = [("fifo", bare::fifo), ("sjf", bare::sjf)];

/// Prints the time per job of the bare loops and all policies on a cluster, at light load and saturated.
fn speed(count: usize, cluster: Cluster, repeats: usize, policies: &[&str]) {
    for load in Load::ALL {
        let jobs = philly_like(count, cluster, load.offered(), 1);
        let world = world(&jobs, cluster);
        let mut limit_s = [const { Vec::new() }; BARE_LOOPS.len()];
        let mut engine_s = vec![Vec::new(); policies.len()];
        let mut output_s = vec![Vec::new(); policies.len()];
        let mut counts = vec![(0.0, 0.0); policies.len()];
        let mut expected = Vec::new();
        for _ in 0..repeats {
            for (at, (name, bare_loop)) in BARE_LOOPS.iter().enumerate() {
                let (seconds, times) = turn(|| timed(|| bare_loop(&jobs, cluster)));
                limit_s[at].push(seconds);
                expected.push((*name, times));
            }
            for (at, name) in policies.iter().enumerate() {
                let (inside, (outside, output)) = turn(|| one_run(&world, name));
                engine_s[at].push(inside);
                output_s[at].push(outside);
                check(name, &output, &expected);
                counts[at] = (summary(&output, "events"), summary(&output, "preemptions"));
            }
            expected.clear();
        }
        let per_job = |seconds: Vec<f64>| least(seconds) * 1e9 / count as f64;
        let [fifo_ns, sjf_ns] = limit_s.map(per_job);
        for (at, ((name, inside), outside)) in
            policies.iter().zip(engine_s).zip(output_s).enumerate()
        {
            println!(
                concat!(
                    r#"{{"kind":"speed","jobs":{count},"load":"{}""#,
                    r#","policy":"{name}","ns_per_job":{:.1}"#,
                    r#","output_ns_per_job":{:.1},"bare_fifo_ns_per_job":{:.1}"#,
                    r#","bare_sjf_ns_per_job":{:.1},"events":{}"#,
                    r#","preemptions":{}}}"#,
                ),
                load.name(),
                per_job(inside),
                per_job(outside),
                fifo_ns,
                sjf_ns,
                counts[at].0,
                counts[at].1,
                count = count,
                name = name,
            );
        }
    }
}

/// Returns the seconds of the run, the seconds to take out the results, and the results.
fn one_run(world: &World, name: &str) -> (f64, (f64, Output)) {
    let mut policy = policy(name).expect("checked at the start");
    let (inside, engine) = timed(|| run(world, policy.as_mut(), options(None)));
    (
        inside,
        timed(|| engine.output().expect("memory for a benchmark")),
    )
}

/// Checks that the engine gives the bare loop's finish times to the nanosecond where both use the same order of jobs.
fn check(name: &str, output: &Output, expected: &[(&str, Times)]) {
    let own = if name == "floor" { "fifo" } else { name };
    let Some((_, times)) = expected.iter().find(|(bare, _)| *bare == own) else {
        return;
    };
    let pairs = output.finish_s.iter().zip(&times.finish_ns);
    let differ = pairs
        .filter(|&(&ours, &bare)| ours.total_cmp(&(bare as f64 / 1e9)).is_ne())
        .count();
    assert_eq!(
        differ, 0,
        "{name}: finish times differ from the bare loop's"
    );
}

/// Returns the nanoseconds per event between two instants: the time of the run to the second minus that of the run to
/// the first. A preemption counts as two events, a stop and another start. With a longer queue a policy may preempt
/// more often, which is its decision and not a cost of the queue.
fn per_event(world: &World, name: &str, from: SimTime, to: SimTime, repeats: usize) -> f64 {
    let until = |end| {
        let mut policy = policy(name).expect("checked at the start");
        let (seconds, engine) = timed(|| run(world, policy.as_mut(), options(Some(end))));
        let output = engine.output().expect("memory for a benchmark");
        (
            seconds,
            summary(&output, "events") + 2.0 * summary(&output, "preemptions"),
        )
    };
    let pairs: Vec<_> = (0..repeats).map(|_| (until(from), until(to))).collect();
    let first_s = least(pairs.iter().map(|pair| pair.0.0).collect());
    let last_s = least(pairs.iter().map(|pair| pair.1.0).collect());
    let ((_, first), (_, last)) = pairs[0];
    (last_s - first_s) * 1e9 / (last - first)
}

/// Prints the cost per event with 1,000 and with 100,000 waiting jobs, if jobs arrive at the rate of service.
fn waiting(repeats: usize, policies: &[&str]) {
    const ARRIVALS: usize = 200_000;
    for name in policies {
        let cost = [1_000, 100_000].map(|backlog| {
            let jobs = with_backlog(backlog, ARRIVALS, Cluster::PUBLISHED, 1.0);
            let end = SimTime(*jobs.arrival_ns.last().expect("not empty"));
            per_event(
                &world(&jobs, Cluster::PUBLISHED),
                name,
                SimTime(end.0 / 10),
                end,
                repeats,
            )
        });
        println!(
            concat!(
                r#"{{"kind":"waiting","policy":"{name}""#,
                r#","ns_per_event_1000":{:.1},"ns_per_event_100000":{:.1}}}"#,
            ),
            cost[0],
            cost[1],
            name = name,
        );
    }
}

/// Prints the cost per event on 125 and on 12,500 servers. With the same jobs on both, the difference is the cost of
/// the number of servers. With the same offered load on both, there are a hundred times as many running jobs, whose
/// memory fits in no cache. The growth of the bare loop is printed for comparison.
fn servers(repeats: usize, policies: &[&str]) {
    const OFFERED: f64 = 0.9;
    let small = Cluster {
        servers: 125,
        gpus_per_server: 8,
    };
    let large = Cluster {
        servers: 12_500,
        gpus_per_server: 8,
    };
    let (few, many) = (warmed(small, OFFERED), warmed(large, OFFERED));
    let limit = [(&few, small), (&many, large)].map(|(jobs, cluster)| {
        let runs = (0..repeats).map(|_| timed(|| bare::fifo(jobs, cluster)).0);
        least(runs.collect()) * 1e9 / jobs.len() as f64
    });
    for name in policies {
        let cost = [(&few, small), (&few, large), (&many, large)].map(|(jobs, cluster)| {
            let end = SimTime(*jobs.arrival_ns.last().expect("not empty"));
            per_event(&world(jobs, cluster), name, WARM, end, repeats)
        });
        println!(
            concat!(
                r#"{{"kind":"servers","policy":"{name}""#,
                r#","ns_per_event_125":{:.1}"#,
                r#","ns_per_event_12500_same_jobs":{:.1}"#,
                r#","ns_per_event_12500_same_load":{:.1}"#,
                r#","bare_growth_same_load":{:.2}}}"#,
            ),
            cost[0],
            cost[1],
            cost[2],
            limit[1] / limit[0],
            name = name,
        );
    }
}

/// Instant until which the cluster fills. Afterwards about as many jobs end as arrive.
const WARM: SimTime = SimTime((4.0 * MEAN_DURATION_S * 1e9) as i64);

/// Creates enough jobs to fill the cluster, and 200,000 more.
fn warmed(cluster: Cluster, offered: f64) -> Jobs {
    philly_like(cluster.servers as usize * 40 + 200_000, cluster, offered, 3)
}
