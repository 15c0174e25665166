//! One case of the instruction gate. It runs the case once and prints the amount of work in it.
//!
//! The usage is `gate NAME LOAD JOBS [SERVERS]`, for instance `gate bare-fifo light 10000`, or `gate NAME SHAPE SIZE`
//! for a stretch of a run with SIZE waiting jobs or SIZE servers, counted per decision. Under callgrind only the
//! functions `measured_*` are counted, so creating the workload costs nothing (`benches/instructions.py`). With SERVERS
//! it also prints the CPU time. With 2,000 servers it is one run of the published table, for use with a profiler.
#![allow(clippy::print_stdout, reason = "a benchmark talks on stdout")]

use std::process::ExitCode;

use gangline_benches::bare::{self, Times};
use gangline_benches::case::{Case, case, case_policy, config_of};
use gangline_benches::contender::{run, summary};
use gangline_benches::workload::{Cluster, Jobs, Load, MEAN_DURATION_S, philly_like, with_backlog};
use gangline_benches::worlds::world;
use gangline_engine::{Advance, Engine, Policy, RunConfig, World};
use gangline_model::SimTime;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Number of servers. It is small enough for callgrind, and large enough for a steady state after 2,000 jobs.
const SERVERS: u32 = 125;

/// The counted code. Its name lets callgrind's filter find it.
#[inline(never)]
fn measured_bare(bare_loop: BareLoop, jobs: &Jobs, cluster: Cluster) -> Times {
    bare_loop(jobs, cluster)
}

type BareLoop = fn(&Jobs, Cluster) -> Times;

fn bare_loop(name: &str) -> Option<BareLoop> {
    match name {
        "bare-fifo" => Some(bare::fifo),
        "bare-sjf" => Some(bare::sjf),
        _ => None,
    }
}

#[inline(never)]
fn measured_run(world: &World, policy: &mut dyn Policy, config: RunConfig) -> Engine {
    run(world, policy, config)
}

/// Amount of work in a stretch of a run.
#[derive(Clone, Copy, Default)]
struct Work {
    decisions: u64,
    /// Waiting jobs, summed over the decisions.
    waiting: u64,
}

/// Runs to an instant, or to the end.
#[inline(never)]
fn measured_stretch(engine: &mut Engine, policy: &mut dyn Policy, end: SimTime) -> Work {
    run_until(engine, policy, end)
}

/// Decides up to the first instant at or after `end`.
fn run_until(engine: &mut Engine, policy: &mut dyn Policy, end: SimTime) -> Work {
    let mut work = Work::default();
    loop {
        if engine.advance().expect("asked in turn") == Advance::Done {
            return work;
        }
        work.decisions += 1;
        work.waiting += engine.view().0.waiting_count() as u64;
        engine.decide(policy).expect("the policy keeps the rules");
        if engine.now() >= end {
            return work;
        }
    }
}

fn seconds(seconds: f64) -> SimTime {
    SimTime((seconds * 1e9) as i64)
}

/// Returns the jobs, cluster, and the stretch that is measured.
fn stretch(shape: &str, size: usize) -> Option<(Jobs, Cluster, SimTime, SimTime)> {
    let cluster = |servers| Cluster {
        servers,
        gpus_per_server: 8,
    };
    let last = |jobs: &Jobs| SimTime(*jobs.arrival_ns.last().expect("not empty"));
    match shape {
        // SIZE jobs wait at first, and afterwards as many jobs end as arrive. `queue` is counted per waiting job.
        "waiting" | "queue" => {
            let jobs = with_backlog(size, 2_000, cluster(SERVERS), 1.0);
            let end = last(&jobs);
            Some((jobs, cluster(SERVERS), SimTime(end.0 / 10), end))
        }
        // SIZE jobs wait, and others arrive within one lease. No job ends, and none fits.
        "arrivals" => {
            let mut jobs = with_backlog(size, 1_000, cluster(SERVERS), 1.0);
            for (at, arrival) in jobs.arrival_ns.iter_mut().skip(size).enumerate() {
                *arrival = seconds(10.0 + at as f64).0;
            }
            jobs.duration_ns.fill(seconds(1e7).0);
            Some((jobs, cluster(SERVERS), seconds(9.0), seconds(1_100.0)))
        }
        // Three gangs fit by their number of GPUs, but one of any three finds no rack. It is counted per waiting job in
        // each round.
        "refused" => {
            let mut jobs = philly_like(size, cluster(SERVERS), 1.0, 1);
            jobs.arrival_ns.fill(0);
            jobs.duration_ns.fill(seconds(1e7).0);
            jobs.gpus.fill(8 * 33);
            Some((jobs, cluster(SERVERS), seconds(1.0), seconds(10_000.0)))
        }
        // The same jobs run on SIZE servers.
        "servers" => {
            let jobs = philly_like(8_000, cluster(SERVERS), 0.9, 3);
            let (from, end) = (seconds(4.0 * MEAN_DURATION_S), last(&jobs));
            Some((jobs, cluster(u32::try_from(size).ok()?), from, end))
        }
        // SIZE jobs run, each on a GPU of its own. Short jobs arrive one by one and look for a partner.
        "residents" => {
            let servers = cluster(u32::try_from(size).ok()?.div_ceil(8));
            let newcomers = 1_000;
            let mut jobs = philly_like(size + newcomers, servers, 1.0, 5);
            jobs.gpus.fill(1);
            for at in 0..size {
                jobs.arrival_ns[at] = 0;
                jobs.duration_ns[at] += seconds(1e5).0;
            }
            for at in 0..newcomers {
                jobs.arrival_ns[size + at] = seconds(10.0 + at as f64).0;
                jobs.duration_ns[size + at] /= 100;
            }
            Some((jobs, servers, seconds(9.0), seconds(1_010.0)))
        }
        _ => None,
    }
}

/// Prints the number of decisions in a stretch of a run, or the number of waiting jobs summed over them.
fn growth(name: &str, shape: &str, size: usize) -> Option<()> {
    let (jobs, cluster, from, end) = stretch(shape, size)?;
    let mut policy = case_policy(name)?;
    let world = world(&jobs, cluster);
    // The end of a run costs something for every running job.
    let is_ended = shape != "residents";
    let config = RunConfig {
        until: is_ended.then_some(end),
        ..config_of(name)
    };
    let mut engine = Engine::new(&world, config, policy.traits())
        .expect("every job of the workload fits the cluster");
    engine
        .start(policy.as_mut())
        .expect("every job has a place on the empty cluster");
    run_until(&mut engine, policy.as_mut(), from);
    let end = if is_ended { SimTime::NEVER } else { end };
    let work = measured_stretch(&mut engine, policy.as_mut(), end);
    let operations = if matches!(shape, "queue" | "refused") {
        work.waiting
    } else {
        work.decisions
    };
    println!("operations: {operations}");
    Some(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [name, load, count] if let Some(load) = load_of(load) => whole_run(name, load, count, None),
        [name, load, count, servers] if let Some(load) = load_of(load) => {
            whole_run(name, load, count, Some(servers))
        }
        [name, shape, size] => match size.parse() {
            Ok(size) if growth(name, shape, size).is_some() => ExitCode::SUCCESS,
            _ => usage(),
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: gate NAME light|saturated JOBS [SERVERS] | gate NAME waiting|queue|arrivals|refused|servers|residents SIZE"
    );
    ExitCode::from(2)
}

fn load_of(name: &str) -> Option<Load> {
    Load::ALL.into_iter().find(|known| known.name() == name)
}

/// Prints the last finish and the number of events, starts and stops.
fn whole_run(name: &str, load: Load, count: &str, servers: Option<&str>) -> ExitCode {
    let is_timed = servers.is_some();
    let (Ok(count), Ok(servers)) = (
        count.parse::<usize>(),
        servers.map_or(Ok(SERVERS), str::parse),
    ) else {
        return usage();
    };
    let cluster = Cluster {
        servers,
        gpus_per_server: 8,
    };
    // Valgrind does not have this clock.
    let clock = || is_timed.then(|| clock_gettime(ClockId::ThreadCPUTime));
    let print_since = |begin: Option<Timespec>| {
        if let (Some(begin), Some(end)) = (begin, clock()) {
            let spent = end - begin;
            let spent_ns = spent.tv_sec as f64 * 1e9 + spent.tv_nsec as f64;
            println!("CPU time per job: {:.1} ns", spent_ns / count as f64);
        }
    };
    let (last_s, operations) = if let Some(bare_loop) = bare_loop(name) {
        let jobs = philly_like(count, cluster, load.offered(), 1);
        let begin = clock();
        let times = measured_bare(bare_loop, &jobs, cluster);
        print_since(begin);
        // Each job has an arrival, a start and an end.
        let last_ns = times.finish_ns.last().copied().unwrap_or(0);
        (last_ns as f64 / 1e9, 3.0 * count as f64)
    } else if let Some(case) = case(name, count, cluster, load) {
        let Case {
            jobs: _jobs,
            world,
            mut policy,
            config,
        } = case;
        let begin = clock();
        let engine = measured_run(&world, policy.as_mut(), config);
        print_since(begin);
        let output = engine.output().expect("memory for a benchmark");
        println!("log hash: {:016x}", output.log_hash);
        // The operations are every event, one start per job, and a stop and another start per preemption.
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
