//! Laws of the policies, checked on drawn worlds in the engine.

use gangline_engine::Outcome;
use gangline_policies::{ParamValue, Params, Services, Stops};
use gangline_testkit::conformance::{self, Case, Numbers, Scope};
use gangline_testkit::{build, find, policies};

/// Draws the parameters of a policy; `is_loose` allows only placement rules that refuse no gang.
fn draw_params(name: &str, numbers: &mut Numbers, is_loose: bool) -> Params {
    let info = find(name).expect("a registered policy");
    let mut params = conformance::draw_params(info, numbers);
    if is_loose && info.placement.is_some() {
        let loose = ["consolidate", "count", "spread", "random", "random_server"];
        let rule = ParamValue::Str(numbers.pick(&loose).to_owned());
        params.insert("placement".to_owned(), rule);
        params.remove("max_level");
    }
    params
}

/// Returns whether a run that loses work at each preemption still ends. It might not end if jobs are preempted for
/// ever, or if a round or lease is shorter than the lost work takes.
fn is_losing(name: &str, params: &Params) -> bool {
    let info = find(name).expect("a registered policy");
    let knob = params
        .get("promote_knob")
        .is_some_and(|k| *k != ParamValue::Float(0.0));
    let is_continuous = params.get("discretised") == Some(&ParamValue::Bool(false));
    let has_terms = matches!(info.stops, Stops::InRounds | Stops::AtLeaseEnds);
    !knob && !is_continuous && !has_terms
}

#[test]
fn every_policy_passes_the_law() {
    for seed in 0..150 {
        for info in policies().filter(|info| !info.solves()) {
            let mut numbers = Numbers::new(seed + 1_000_000);
            let is_loose = seed % 2 == 0;
            let params = draw_params(info.name, &mut numbers, is_loose);
            let make = || {
                build(info.name, &params, Services::default()).expect("drawn parameters are valid")
            };
            let claims = is_loose && info.is_work_conserving;
            let is_losing = is_losing(info.name, &params);
            let scope = Scope {
                has_checkpoints: is_losing,
                // The quotas of `toy-fork` are for jobs with fewer iterations.
                has_elastic: seed % 3 == 1 && info.name != "toy-fork",
                ..Scope::default()
            };
            conformance::check(make, seed, scope, claims)
                .unwrap_or_else(|error| panic!("{} {params:?}: {error}", info.name));
        }
    }
}

/// The preemptive queues have faster passes for a single GPU type. Their plans must equal those of the general walk
/// byte for byte.
#[test]
fn quick_passes_equal_the_walk() {
    let preemptive =
        || policies().filter(|info| matches!(info.family, "attained service" | "preemptive"));
    let mut compared = 0;
    for seed in 0..200 {
        let scope = Scope {
            types: 1,
            jobs: if seed % 5 == 0 { 120 } else { 25 },
            has_trouble: seed % 4 != 0,
            has_checkpoints: true,
            gangs_max: if seed % 2 == 0 { 12 } else { 4 },
            has_elastic: false,
        };
        let case = conformance::draw(seed, scope);
        for info in preemptive() {
            let mut numbers = Numbers::new(seed + 2_000_000);
            let params = draw_params(info.name, &mut numbers, false);
            let mut case = case.clone();
            if !is_losing(info.name, &params) {
                case.config.checkpoint_interval = None;
            }
            compare(case, seed, info.name, &params);
            compared += 1;
        }
    }
    assert!(compared >= 200 * 6, "{compared}");
}

/// Worlds with rules that refuse gangs, gangs wider than a rack, and more work than GPUs. The fast pass keeps the
/// admitted but unplaced jobs and the opportunistic jobs between decisions, and the walk computes them again.
#[test]
fn kept_refusals_equal_the_walk() {
    let mut preemptions = 0.0;
    // In world 5,502 a gang wider than every rack finds a place when another has taken a free rack. In world 5,620 jobs
    // would preempt each other before any has restarted, if the protection could be that short.
    for seed in (0..200).chain([5_502, 5_620]) {
        let scope = Scope {
            types: 1,
            jobs: if seed % 3 == 0 { 200 } else { 60 },
            has_trouble: seed % 2 == 0,
            has_checkpoints: false,
            gangs_max: if seed % 4 == 0 { 5 } else { 20 },
            has_elastic: false,
        };
        let case = conformance::draw(seed + 40_000, scope);
        for name in ["las", "gittins", "tiresias", "tiresias-gittins"] {
            let mut numbers = Numbers::new(seed + 4_000_000);
            let mut params = draw_params(name, &mut numbers, false);
            let rule = numbers.pick(&["yarn", "whole_servers", "skew", "skew", "consolidate"]);
            let level = numbers.pick(&["server", "rack"]);
            let limits = numbers.pick(&[&[5.0, 40.0][..], &[2.0, 9.0, 30.0]]);
            let word = |word: &str| ParamValue::Str(word.to_owned());
            params.insert("placement".to_owned(), word(rule));
            params.insert("max_level".to_owned(), word(level));
            params.insert(
                "limits".to_owned(),
                ParamValue::numbers(limits.iter().copied()),
            );
            params.remove("discretised");
            preemptions += compare(case.clone(), seed, name, &params);
        }
    }
    assert!(preemptions > 2_000.0, "these worlds preempt: {preemptions}");
}

/// Runs a policy in a world with one GPU type, and in the same world with a second type. Returns the number of
/// preemptions.
fn compare(case: Case, seed: u64, name: &str, params: &Params) -> f64 {
    let run = |case: &Case| {
        let mut policy = build(name, params, Services::default()).expect("valid parameters");
        conformance::run(case, policy.as_mut())
            .unwrap_or_else(|error| panic!("seed {seed}, {name} {params:?}: {error}"))
    };
    let [quick, walked] = conformance::with_idle_type(case).map(|case| run(&case));
    assert!(
        quick.outcome == Some(Outcome::Finished) && conformance::are_equal(&quick, &walked),
        "seed {seed}, {name} {params:?}: finish {:?} and by the walk {:?}",
        quick.finish_s,
        walked.finish_s
    );
    let preemptions = quick.summary.iter().find(|(key, _)| *key == "preemptions");
    preemptions.expect("a counter").1
}

fn finishes(case: &Case, name: &str, params: &Params) -> Vec<u64> {
    let mut policy = build(name, params, Services::default()).expect("valid parameters");
    let output = conformance::run(case, policy.as_mut()).expect("the run ends");
    output
        .finish_s
        .iter()
        .map(|finish| finish.to_bits())
        .collect()
}

#[test]
fn las_with_one_huge_limit_is_fifo_skip() {
    // With one type, placement by count and no failures, the first starts are in queue order.
    let scope = Scope {
        types: 1,
        has_trouble: false,
        ..Scope::default()
    };
    for seed in 0..200 {
        let case = conformance::draw(seed, scope);
        let count = ("placement".to_owned(), ParamValue::Str("count".to_owned()));
        let huge = ("limits".to_owned(), ParamValue::numbers([1e12]));
        let las = Params::from([count.clone(), huge]);
        assert_eq!(
            finishes(&case, "las", &las),
            finishes(&case, "fifo-skip", &Params::from([count])),
            "seed {seed}"
        );
    }
}

/// Without co-runners and without migration, `gandiva` is a queue that skips jobs. The two must agree event by event,
/// with failures, overheads and every placement rule.
#[test]
fn gandiva_without_co_runners_is_fifo_skip() {
    for seed in 0..300 {
        let scope = Scope {
            jobs: if seed % 5 == 0 { 120 } else { 40 },
            ..Scope::default()
        };
        let case = conformance::draw(seed, scope);
        let mut numbers = Numbers::new(seed + 4_000_000);
        let queue = draw_params("fifo-skip", &mut numbers, false);
        let mut alone = queue.clone();
        for (field, value) in [("max_residents", 1), ("moves_per_event", 0)] {
            alone.insert(field.to_owned(), ParamValue::Int(value));
        }
        let run = |name: &str, params: &Params| {
            let mut policy = build(name, params, Services::default()).expect("valid parameters");
            conformance::run(&case, policy.as_mut()).expect("the run ends")
        };
        assert!(
            conformance::are_equal(&run("gandiva", &alone), &run("fifo-skip", &queue)),
            "seed {seed}, {queue:?}"
        );
    }
}

#[test]
fn knob_zero_never_promotes_and_a_small_one_does() {
    let mut promotions = [0, 0];
    for seed in 0..60 {
        let scope = Scope {
            has_checkpoints: false,
            ..Scope::default()
        };
        let case = conformance::draw(seed, scope);
        for (at, knob) in [0.0, 0.1].into_iter().enumerate() {
            let params = Params::from([
                ("limits".to_owned(), ParamValue::numbers([5.0, 40.0])),
                ("promote_knob".to_owned(), ParamValue::Float(knob)),
            ]);
            let mut policy = build("las", &params, Services::default()).expect("valid parameters");
            conformance::run(&case, policy.as_mut()).expect("the run ends");
            let counters = policy.counters();
            let count = counters.iter().find(|(name, _)| *name == "promotions");
            promotions[at] += count.expect("a counter").1;
        }
    }
    assert_eq!(promotions[0], 0);
    assert!(promotions[1] > 0, "the worlds give reasons to promote");
}

/// Compares the mean completion time of up to seven jobs on one GPU under `srtf` with every order of service at every
/// arrival and completion.
#[test]
fn srtf_on_one_gpu_is_optimal() {
    for seed in 0..80 {
        let mut numbers = Numbers::new(seed + 3_000_000);
        let count = 1 + numbers.below(7) as usize;
        let mut arrivals: Vec<u64> = (0..count).map(|_| numbers.below(12)).collect();
        arrivals.sort_unstable();
        let works: Vec<u64> = (0..count).map(|_| 1 + numbers.below(9)).collect();
        let case = one_gpu(&arrivals, &works);
        let finishes = finishes(&case, "srtf", &Params::new());
        let total: f64 = finishes.iter().map(|bits| f64::from_bits(*bits)).sum();
        let best = brute_force(&arrivals, &mut works.clone(), 0);
        assert!(
            (total - best as f64).abs() < 1e-6,
            "seed {seed}: {total} and {best}"
        );
    }
}

fn one_gpu(arrivals: &[u64], works: &[u64]) -> Case {
    use gangline_model::{JobColumns, JobTable, SimTime};
    let scope = Scope {
        types: 1,
        has_trouble: false,
        ..Scope::default()
    };
    let mut case = conformance::draw(0, scope);
    case.config.interference = None; // The factors were drawn for other jobs.
    let server = gangline_model::Server {
        gpu_type: gangline_model::GpuTypeId(0),
        gpus: 1,
        rack: gangline_model::RackId(0),
    };
    let gpu_type = gangline_model::GpuType {
        name: "A".to_owned(),
        memory_bytes: u64::MAX,
        price_per_hour: 0.0,
        speed: 1.0,
    };
    let cluster = gangline_model::ClusterSpec::new(vec![gpu_type], vec![server]).expect("valid");
    let columns = JobColumns {
        arrival: arrivals
            .iter()
            .map(|&s| SimTime(s as i64 * 1_000_000_000))
            .collect(),
        gpus: vec![1; arrivals.len()],
        work: works.iter().map(|&s| s as f64).collect(),
        ..JobColumns::default()
    };
    case.world.rates = gangline_model::RateTable::from_speeds(&cluster).into();
    case.world.cluster = cluster.into();
    case.world.jobs = JobTable::new(columns).expect("valid").into();
    case
}

/// Returns the minimum sum of finish times when any job that has arrived may run in each whole second.
fn brute_force(arrivals: &[u64], left: &mut [u64], now: u64) -> u64 {
    let there: Vec<usize> = (0..left.len())
        .filter(|&job| left[job] > 0 && arrivals[job] <= now)
        .collect();
    let next = arrivals
        .iter()
        .copied()
        .filter(|&arrival| arrival > now)
        .min();
    if there.is_empty() {
        return next.map_or(0, |next| brute_force(arrivals, left, next));
    }
    let mut best = u64::MAX;
    for job in there {
        let until = next.map_or(now + left[job], |next| next.min(now + left[job]));
        left[job] -= until - now;
        let ended = if left[job] == 0 { until } else { 0 };
        best = best.min(ended + brute_force(arrivals, left, until));
        left[job] += until - now;
    }
    best
}
