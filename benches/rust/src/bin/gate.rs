//! One case of the instruction gate: runs it once, prints how much there was to do.
//!
//! `gate NAME LOAD JOBS [SERVERS]`, for instance `gate bare-fifo light 10000`. Under callgrind only
//! the functions `measured_*` are counted, so making the workload costs nothing (`benches/instructions.py`).
//! With 2,000 servers it is one run of the published table, for a profiler, and prints its CPU time.
#![allow(clippy::print_stdout, reason = "a benchmark talks on stdout")]

use std::process::ExitCode;

use gangline_benches::bare;
use gangline_benches::contender::{options, policy, run, summary};
use gangline_benches::workload::{Cluster, Jobs, Load, philly_like};
use gangline_benches::worlds::world;
use gangline_engine::{Engine, Policy, World};
use rustix::time::{ClockId, clock_gettime};

/// Small enough for callgrind, large enough to be in its steady state after 2,000 jobs.
const SERVERS: u32 = 125;

/// What is counted, named so that callgrind's filter finds it.
#[inline(never)]
fn measured_bare(name: &str, jobs: &Jobs, cluster: Cluster) -> i64 {
    let times = if name == "bare-fifo" {
        bare::fifo(jobs, cluster)
    } else {
        bare::sjf(jobs, cluster)
    };
    times.finish_ns.last().copied().unwrap_or(0)
}

#[inline(never)]
fn measured_run(world: &World, policy: &mut dyn Policy) -> Engine {
    run(world, policy, options(None))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, load, count, rest @ ..] = arguments.as_slice() else {
        eprintln!("usage: gate NAME light|saturated JOBS [SERVERS]");
        return ExitCode::from(2);
    };
    let (Some(load), Ok(count), Ok(servers)) = (
        Load::ALL.into_iter().find(|known| known.name() == load),
        count.parse::<usize>(),
        rest.first().map_or(Ok(SERVERS), |text| text.parse()),
    ) else {
        eprintln!("unknown load {load} or bad number of jobs {count} or servers");
        return ExitCode::from(2);
    };
    let cluster = Cluster {
        servers,
        gpus_per_server: 8,
    };
    let jobs = philly_like(count, cluster, load.offered(), 1);
    let (last_s, operations) = if name.starts_with("bare-") {
        (
            measured_bare(name, &jobs, cluster) as f64 / 1e9,
            3.0 * count as f64,
        )
    } else if let Some(mut policy) = policy(name) {
        let world = world(&jobs, cluster);
        // valgrind has no such clock
        let clock = || (!rest.is_empty()).then(|| clock_gettime(ClockId::ThreadCPUTime));
        let begin = clock();
        let engine = measured_run(&world, policy.as_mut());
        if let (Some(begin), Some(end)) = (begin, clock()) {
            let spent = end - begin;
            let spent_ns = spent.tv_sec as f64 * 1e9 + spent.tv_nsec as f64;
            println!("CPU time per job: {:.1} ns", spent_ns / count as f64);
        }
        let output = engine.output();
        println!("log hash: {:016x}", output.log_hash);
        // every event, one start per job, a stop and another start per preemption
        let preemptions = summary(&output, "preemptions");
        let operations = summary(&output, "events") + count as f64 + 2.0 * preemptions;
        (output.finish_s.last().copied().unwrap_or(0.0), operations)
    } else {
        eprintln!("unknown case {name}");
        return ExitCode::from(2);
    };
    println!("last job finishes at {last_s:.3} s; operations: {operations:.0}");
    ExitCode::SUCCESS
}
