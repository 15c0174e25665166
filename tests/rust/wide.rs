//! Worlds with hundreds of servers and thousands of jobs. The trees and profiles of the fast passes must give the same
//! results as the walk.
//!
//! A failure prints the seed, the policy and its parameters. `GANGLINE_WIDE_SEED=<seed>` repeats that run alone, and
//! `GANGLINE_WIDE_RUNS=<n>` sets the number of worlds.

mod settings;

use gangline_engine::{FailureRow, Failures, OnInfeasible, RunConfig, World};
use gangline_model::{
    ClusterSpec, GpuType, GpuTypeId, JobColumns, JobTable, RackId, RateTable, Server, SimSpan,
    SimTime,
};
use gangline_policies::{ParamValue, Params, Services, build};
use gangline_testkit::conformance::{self, Case, Numbers};
use gangline_testkit::policies;
use settings::number;
use std::sync::Arc;

const SECOND_NS: i64 = 1_000_000_000;

/// Returns the policies with a fast pass for a single GPU type.
fn names() -> Vec<&'static str> {
    let names = policies().filter(|info| matches!(info.family, "attained service" | "preemptive"));
    names.map(|info| info.name).collect()
}

fn draw_cluster(numbers: &mut Numbers) -> ClusterSpec {
    let gpu_type = GpuType {
        name: "type0".to_owned(),
        memory_bytes: u64::MAX,
        price_per_hour: 0.0,
        speed: numbers.pick(&[1.0, 2.0, 0.5]),
    };
    let count = numbers.pick(&[40, 65, 130, 129, 260]);
    let racks = numbers.pick(&[1, 3, 16, 90, 300]);
    let size = numbers.pick(&[1, 2, 4, 8, 8]);
    let (is_mixed, is_scattered) = (numbers.once_in(3), numbers.once_in(2));
    let servers = (0..count)
        .map(|index| {
            let row = index * racks / count;
            let rack = if is_scattered {
                numbers.below(racks)
            } else {
                row
            };
            let mixed = numbers.pick(&[1, 2, 3, 4, 7, 8]);
            Server {
                gpu_type: GpuTypeId(0),
                gpus: if is_mixed { mixed } else { size },
                rack: RackId(rack as u32),
            }
        })
        .collect();
    ClusterSpec::new(vec![gpu_type], servers).expect("a valid cluster")
}

/// Draws seconds of work, each the product of three numbers, so that many are short and a few are long.
fn draw_lengths(numbers: &mut Numbers, count: u64, is_whole: bool) -> Vec<f64> {
    let longest_s = numbers.pick(&[60.0, 300.0, 2_000.0]);
    let mut length = || {
        let mut part = || (1 + numbers.below(1000)) as f64 / 1000.0;
        let seconds = part() * part() * part() * longest_s;
        if is_whole { seconds.ceil() } else { seconds }
    };
    (0..count).map(|_| length()).collect()
}

/// Draws sorted arrivals. While jobs arrive, the work that arrives is one to three times what the GPUs can do. The
/// arrivals are uniform or come in waves between which the queue empties. `least_s` is the time that all GPUs need for
/// the work.
fn draw_arrivals(numbers: &mut Numbers, count: u64, least_s: f64) -> Vec<i64> {
    let load = numbers.pick(&[1.0, 1.5, 3.0]);
    let span = (least_s / load * 1e9) as u64 + 1;
    let waves = numbers.pick(&[1, 1, 2, 5]);
    let mut instant = || {
        let at = numbers.below(span);
        (at + at * waves / span * (4 * span / waves)) as i64
    };
    let mut arrivals: Vec<i64> = (0..count).map(|_| instant()).collect();
    arrivals.sort_unstable();
    arrivals
}

fn draw_jobs(numbers: &mut Numbers, cluster: &ClusterSpec, count: u64) -> JobTable {
    let gangs: &[u64] = numbers.pick(&[
        &[1, 1, 1, 2, 4][..],
        &[1, 1, 2, 4, 8, 16, 5],
        &[1, 2, 3, 3, 9, 24, 40],
        &[1],
        &[4, 8],
    ]);
    let is_whole = numbers.once_in(2);
    let lengths = draw_lengths(numbers, count, is_whole);
    let mean = gangs.iter().sum::<u64>() as f64 / gangs.len() as f64;
    let gpus = cluster.servers().iter().map(|server| server.gpus);
    let least_s = lengths.iter().sum::<f64>() * mean / f64::from(gpus.sum::<u32>());
    let mut arrivals = draw_arrivals(numbers, count, least_s);
    if is_whole {
        for at in &mut arrivals {
            *at -= *at % SECOND_NS;
        }
    }
    let mut columns = JobColumns {
        model_labels: ["vgg16", "resnet50", "bert"]
            .map(ToString::to_string)
            .into(),
        ..JobColumns::default()
    };
    let mut models = Vec::new();
    for (at, length) in arrivals.into_iter().zip(lengths) {
        columns.arrival.push(SimTime(at));
        columns.gpus.push(numbers.pick(gangs) as u32);
        columns.work.push(length);
        models.push(numbers.below(3) as u32);
    }
    columns.model = Some(models);
    JobTable::new(columns).expect("valid columns")
}

fn draw_failures(numbers: &mut Numbers, cluster: &ClusterSpec) -> Failures {
    let mut rows = Vec::new();
    let is_any = !numbers.once_in(3);
    for server in (0..cluster.servers().len() as u32).filter(|_| is_any) {
        let mut up = 0;
        for _ in 0..numbers.below(3) {
            let down = up + 1 + numbers.below(200) as i64;
            up = down + 1 + numbers.below(60) as i64;
            rows.push(FailureRow {
                server,
                down: SimTime(down * SECOND_NS),
                up: SimTime(up * SECOND_NS),
            });
        }
    }
    Failures::Table(rows)
}

fn draw(seed: u64, numbers: &mut Numbers) -> Case {
    let cluster = Arc::new(draw_cluster(numbers));
    let count = numbers.pick(&[300, 700, 1_500]);
    let jobs = Arc::new(draw_jobs(numbers, &cluster, count));
    let rates = Arc::new(RateTable::from_speeds(&cluster));
    let config = RunConfig {
        seed,
        on_infeasible: OnInfeasible::Drop,
        // The walk of thousands of jobs is slow.
        max_events: Some(12_000),
        restart: SimSpan(numbers.pick(&[0, 0, 1, 10]) * SECOND_NS),
        first_start: SimSpan(numbers.pick(&[0, 0, 2]) * SECOND_NS),
        failures: draw_failures(numbers, &cluster),
        ..RunConfig::default()
    };
    Case {
        world: World {
            cluster,
            jobs,
            rates,
        },
        config,
    }
}

fn draw_params(name: &str, numbers: &mut Numbers, is_free: bool) -> Params {
    let word = |word: &str| ParamValue::Str(word.to_owned());
    let rules = [
        "consolidate",
        "yarn",
        "whole_servers",
        "skew",
        "skew",
        "count",
    ];
    let mut params = Params::from([
        ("placement".to_owned(), word(numbers.pick(&rules))),
        (
            "fit".to_owned(),
            word(numbers.pick(&["best", "best", "first"])),
        ),
        (
            "slots".to_owned(),
            word(numbers.pick(&["lowest", "lowest", "aligned"])),
        ),
        (
            "max_level".to_owned(),
            word(numbers.pick(&["network", "network", "rack", "server"])),
        ),
        // The protection is longer than every restart; otherwise no job would make progress.
        (
            "preempt_min_run_s".to_owned(),
            ParamValue::Int(if is_free {
                numbers.pick(&[0, 0, 3])
            } else {
                12
            }),
        ),
    ]);
    if numbers.once_in(3) {
        params.insert("yarn_cross_rack".to_owned(), ParamValue::Bool(true));
    }
    if numbers.once_in(3) {
        params.insert("rack_choice".to_owned(), word("fewest_servers"));
    }
    if name.starts_with('s') {
        let error = numbers.pick(&[0.0, 0.0, 0.5]);
        params.insert("estimate_error".to_owned(), ParamValue::Float(error));
        return params;
    }
    let limits = numbers.pick(&[&[20.0, 100.0][..], &[10.0], &[5.0, 40.0, 200.0]]);
    params.insert(
        "limits".to_owned(),
        ParamValue::numbers(limits.iter().copied()),
    );
    let knob = numbers.pick(&[0.0, 0.0, 1.0, 4.0]);
    params.insert("promote_knob".to_owned(), ParamValue::Float(knob));
    params.insert("las_time".to_owned(), ParamValue::Bool(numbers.once_in(2)));
    if name.ends_with("gittins") {
        params.insert(
            "delta".to_owned(),
            ParamValue::Float(numbers.pick(&[5.0, 20.0])),
        );
    } else if numbers.once_in(6) {
        params.insert("discretised".to_owned(), ParamValue::Bool(false));
        params.insert("las_quantum".to_owned(), ParamValue::Float(12.0));
    }
    params
}

/// Runs a world with both passes of its policy, compares them, and returns the number of preemptions.
fn wide_run(seed: u64) -> f64 {
    let mut numbers = Numbers::new(seed.wrapping_add(9_000_000));
    let case = draw(seed, &mut numbers);
    let name = numbers.pick(&names());
    let is_free = (case.config.restart, case.config.first_start) == (SimSpan(0), SimSpan(0));
    let params = draw_params(name, &mut numbers, is_free);
    let words = format!("seed {seed}, {name} {params:?}");
    let [quick, walked] = conformance::with_idle_type(case).map(|case| {
        let mut policy = build(name, &params, Services::default())
            .unwrap_or_else(|error| panic!("{words}: {error}"));
        conformance::run(&case, policy.as_mut()).unwrap_or_else(|error| panic!("{words}: {error}"))
    });
    assert!(
        conformance::are_equal(&quick, &walked),
        "{words}: the quick pass and the walk differ"
    );
    let preemptions = quick.summary.iter().find(|(key, _)| *key == "preemptions");
    preemptions.expect("a counter").1
}

#[test]
fn wide() {
    if let Some(seed) = number("GANGLINE_WIDE_SEED") {
        wide_run(seed);
        return;
    }
    let runs = number("GANGLINE_WIDE_RUNS").unwrap_or(16);
    let preemptions: f64 = (0..runs).map(wide_run).sum();
    assert!(
        preemptions > 200.0 * runs as f64,
        "these worlds preempt: {preemptions}"
    );
}
