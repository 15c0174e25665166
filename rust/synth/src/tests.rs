//! These tests compare shapes with the published statistics, and check determinism and the dependencies between
//! options.

#![expect(clippy::float_cmp, reason = "equal streams give equal bits")]

use super::*;

const JOBS: u32 = 100_000;

fn big(shape: Shape) -> SynthSpec {
    SynthSpec {
        jobs: JOBS,
        seed: 1,
        arrivals: Arrivals::Batch,
        ..SynthSpec::new(shape)
    }
}

fn made(spec: &SynthSpec) -> SynthTrace {
    generate(spec).expect("a valid spec")
}

/// Maximum gang size of a class, and p25, p50, p75, p90 and p95 of its durations in the public trace.
type Published = (u32, [f64; 5]);

const PHILLY_CLASSES: [Published; 4] = [
    (1, [122.0, 1117.0, 2716.0, 8512.0, 19137.0]),
    (4, [21.0, 367.0, 45476.0, 166_199.0, 233_725.0]),
    (8, [1871.0, 23683.0, 173_288.0, 352_409.0, 525_631.0]),
    (u32::MAX, [566.0, 21137.0, 104_218.0, 252_560.0, 446_126.0]),
];
const HELIOS_CLASSES: [Published; 4] = [
    (1, [67.0, 190.0, 1179.0, 8425.0, 33380.0]),
    (4, [63.0, 193.0, 1840.0, 43915.0, 122_006.0]),
    (8, [98.0, 216.0, 1150.0, 25590.0, 65849.0]),
    (u32::MAX, [65.0, 248.0, 2412.0, 49244.0, 107_624.0]),
];
const PAI_CLASSES: [Published; 1] = [(u32::MAX, [131.0, 618.0, 3699.0, 12201.0, 22752.0])];

/// Returns the sorted durations of one class. Each class has 100,000 draws, so that the tolerance holds for rare
/// classes too.
fn class_durations(shape: Shape, gpus: u32) -> Vec<f64> {
    let spec = big(shape);
    let mut seconds =
        World::new(&spec).draw_durations(&spec, &vec![gpus; JOBS as usize], &mut BTreeMap::new());
    seconds.sort_by(f64::total_cmp);
    seconds
}

#[test]
fn quantiles_of_every_class_are_within_5_percent() {
    let shapes = [
        (Shape::Philly, &PHILLY_CLASSES[..]),
        (Shape::Helios, &HELIOS_CLASSES[..]),
        (Shape::Pai, &PAI_CLASSES[..]),
    ];
    for (shape, classes) in shapes {
        for (gpus_up_to, quantiles) in classes {
            let seconds = class_durations(shape, (*gpus_up_to).min(16));
            for (percent, published) in [25, 50, 75, 90, 95].into_iter().zip(quantiles) {
                let measured = seconds[seconds.len() * percent / 100];
                assert!(
                    (measured / published - 1.0).abs() < 0.05,
                    "{shape} up to {gpus_up_to} GPUs, p{percent}: {measured}, not {published}"
                );
            }
        }
    }
}

#[test]
fn gang_shares_are_within_half_a_percent() {
    let shapes = [
        (
            Shape::Philly,
            vec![
                (1, 0.932),
                (2, 0.0221),
                (4, 0.0227),
                (8, 0.02),
                (16, 0.0024),
            ],
        ),
        (
            Shape::Helios,
            vec![
                (1, 0.5329),
                (2, 0.0554),
                (8, 0.2515),
                (24, 0.009),
                (128, 0.0055),
            ],
        ),
        (
            Shape::Pai,
            vec![
                (1, 0.78),
                (2, 0.031),
                (10, 0.042),
                (50, 0.024),
                (100, 0.005),
            ],
        ),
        (Shape::Uniform, vec![(1, 0.5), (2, 0.2), (4, 0.2), (8, 0.1)]),
    ];
    for (shape, shares) in shapes {
        let trace = made(&big(shape));
        for (size, share) in shares {
            let count = trace.gpus.iter().filter(|gpus| **gpus == size).count();
            let measured = count as f64 / f64::from(JOBS);
            assert!(
                (measured - share).abs() < 0.005,
                "{shape} {size}: {measured}, not {share}"
            );
        }
    }
}

/// Returns the 64-bit FNV-1a hash of all arrivals (microseconds), gang sizes and durations (milliseconds), in
/// little-endian order.
fn hash(trace: &SynthTrace, jobs: usize) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut feed = |number: u64| {
        for byte in number.to_le_bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    for job in 0..jobs {
        feed((trace.arrival_s[job] * 1e6).round() as u64);
        feed(u64::from(trace.gpus[job]));
        feed((trace.duration_s[job] * 1e3).round() as u64);
    }
    hash
}

#[test]
fn first_thousand_jobs_have_their_golden_hash() {
    // The values were computed by the reference implementation in `tests/unit/trace/test_synth.py`.
    let goldens = [
        (Shape::Philly, 1_459_319_003_721_731_623),
        (Shape::Helios, 15_222_662_636_357_689_146),
        (Shape::Pai, 8_174_767_460_805_933_218),
        (Shape::Uniform, 13_690_428_591_380_158_226),
    ];
    for (shape, golden) in goldens {
        let spec = SynthSpec {
            jobs: 1000,
            seed: 1,
            ..SynthSpec::new(shape)
        };
        assert_eq!(hash(&made(&spec), 1000), golden, "{shape}");
    }
}

#[test]
fn more_jobs_only_append() {
    for shape in Shape::ALL {
        let with = |jobs| {
            made(&SynthSpec {
                jobs,
                seed: 9,
                users: 5,
                ..SynthSpec::new(shape)
            })
        };
        let (short, long) = (with(300), with(2000));
        assert_eq!(short.arrival_s, long.arrival_s[..300]);
        assert_eq!(short.gpus, long.gpus[..300]);
        assert_eq!(short.duration_s, long.duration_s[..300]);
        let codes = |trace: &SynthTrace| trace.user.clone().expect("users were requested").codes;
        assert_eq!(codes(&short), codes(&long)[..300]);
    }
}

#[test]
fn changing_one_option_moves_no_other_column() {
    let plain = SynthSpec {
        jobs: 2000,
        seed: 3,
        ..SynthSpec::new(Shape::Helios)
    };
    let base = made(&plain);
    let model = |name: &str| SynthModel {
        name: name.to_owned(),
        gpus: None,
    };
    let extras = made(&SynthSpec {
        users: 30,
        vcs: 4,
        models: vec![model("a"), model("b")],
        ..plain.clone()
    });
    assert_eq!(
        (&extras.gpus, &extras.duration_s),
        (&base.gpus, &base.duration_s)
    );
    assert_eq!(extras.arrival_s, base.arrival_s);
    let poisson = made(&SynthSpec {
        arrivals: Arrivals::Poisson,
        ..plain.clone()
    });
    assert_eq!(
        (&poisson.gpus, &poisson.duration_s),
        (&base.gpus, &base.duration_s)
    );
    assert_ne!(poisson.arrival_s, base.arrival_s);
    let noisy = made(&SynthSpec {
        noise: 0.5,
        ..plain.clone()
    });
    assert_eq!(
        (&noisy.gpus, &noisy.arrival_s),
        (&base.gpus, &base.arrival_s)
    );
    assert_ne!(noisy.duration_s, base.duration_s);
    let fewer = made(&SynthSpec {
        models: vec![model("a")],
        users: 30,
        ..plain.clone()
    });
    assert_eq!(fewer.user, extras.user);
    let small = made(&SynthSpec {
        max_gpus: Some(8),
        ..plain
    });
    assert_eq!(small.arrival_s, base.arrival_s);
    for job in 0..2000 {
        let fitted = base.gpus[job] <= 8;
        assert!(!fitted || small.gpus[job] == base.gpus[job]);
        assert!(!fitted || small.duration_s[job] == base.duration_s[job]);
    }
    let too_large = base.gpus.iter().filter(|gpus| **gpus > 8).count() as u64;
    assert_eq!(small.notes["gpus_redrawn"], too_large);
    assert!(too_large > 0);
}

#[test]
fn another_seed_moves_every_column() {
    let with = |seed| {
        made(&SynthSpec {
            jobs: 200,
            seed,
            users: 50,
            ..SynthSpec::new(Shape::Philly)
        })
    };
    let (one, two) = (with(1), with(2));
    assert_ne!(one.arrival_s, two.arrival_s);
    assert_ne!(one.gpus, two.gpus);
    assert_ne!(one.duration_s, two.duration_s);
    assert_ne!(one.user, two.user);
}

/// Returns the offered load: GPU-seconds of the jobs, divided by the GPU-seconds of the cluster from the first to the
/// last arrival.
fn offered(trace: &SynthTrace, cluster_gpus: u32) -> f64 {
    let mut work_ms = 0;
    for (gpus, seconds) in trace.gpus.iter().zip(&trace.duration_s) {
        work_ms += u64::from(*gpus) * (seconds * 1000.0).round() as u64;
    }
    let span_s = trace.arrival_s[trace.arrival_s.len() - 1] - trace.arrival_s[0];
    work_ms as f64 / 1000.0 / (f64::from(cluster_gpus) * span_s)
}

#[test]
fn load_is_what_every_drawn_trace_offers() {
    let loaded = |jobs, seed, load, shape| SynthSpec {
        jobs,
        seed,
        load: Some(load),
        cluster_gpus: Some(64),
        ..SynthSpec::new(shape)
    };
    for shape in Shape::ALL {
        let mut specs: Vec<SynthSpec> = (0..20).map(|seed| loaded(200, seed, 1.1, shape)).collect();
        specs.extend((0..20).map(|seed| SynthSpec {
            max_duration_s: Some(7200.0),
            max_gpus: Some(4),
            noise: 0.5,
            arrivals: Arrivals::Poisson,
            ..loaded(300, seed, 0.7, shape)
        }));
        specs.extend([2, 3, 5].map(|jobs| loaded(jobs, 1, 0.01, shape)));
        // The arrivals of these traces span from milliseconds to decades.
        specs.push(loaded(50, 2, 1e6, shape));
        specs.push(SynthSpec {
            load: Some(1e-5),
            max_duration_s: Some(1000.0),
            ..loaded(100, 3, 1.0, shape)
        });
        for spec in specs {
            let trace = made(&spec);
            let load = offered(&trace, 64) / spec.load.expect("each has one");
            assert!((load - 1.0).abs() < 1e-3, "{load} times that of {spec:?}");
            assert!(trace.arrival_s[0] == 0.0 && trace.arrival_s.is_sorted());
        }
    }
}

#[test]
fn load_moves_arrivals_alone() {
    let plain = SynthSpec {
        jobs: 500,
        users: 9,
        cluster_gpus: Some(64),
        ..SynthSpec::new(Shape::Helios)
    };
    let loaded = made(&SynthSpec {
        load: Some(0.8),
        ..plain.clone()
    });
    let plain = made(&plain);
    assert_eq!(
        (&loaded.gpus, &loaded.duration_s, &loaded.user),
        (&plain.gpus, &plain.duration_s, &plain.user)
    );
    assert_ne!(loaded.arrival_s, plain.arrival_s);
}

#[test]
fn gangs_that_never_fit_get_the_largest_size_that_does() {
    // A size with a share of 1e-9 is never drawn, although each of the 50 jobs has 101 draws.
    let spec = SynthSpec {
        jobs: 50,
        max_gpus: Some(5),
        gang_shares: vec![(2, 0.0), (1, 0.5e-9), (4, 0.5e-9), (8, 1.0)],
        ..SynthSpec::new(Shape::Uniform)
    };
    let trace = made(&spec);
    assert_eq!(trace.gpus, [4; 50]);
    assert_eq!(
        (trace.notes["gpus_cut"], trace.notes["gpus_redrawn"]),
        (50, 50)
    );
}

#[test]
fn zipf_columns_have_their_law() {
    let spec = SynthSpec {
        users: 3,
        vcs: 2,
        ..big(Shape::Pai)
    };
    let trace = made(&spec);
    let user = trace.user.expect("users were requested");
    assert_eq!(user.names, ["user-1", "user-2", "user-3"]);
    let share =
        |code| user.codes.iter().filter(|user| **user == code).count() as f64 / f64::from(JOBS);
    // 1 + 2^-1.2 + 3^-1.2 = 1.70286...
    for (code, weight) in [(0, 1.0), (1, 0.435_275_3), (2, 0.267_581)] {
        assert!(
            (share(code) - weight / 1.702_856_3).abs() < 0.005,
            "{code}: {}",
            share(code)
        );
    }
    assert_eq!(
        trace.vc.expect("virtual clusters were requested").names,
        ["vc-1", "vc-2"]
    );
    assert!(trace.model.is_none());
}

#[test]
fn models_are_uniform_among_those_that_know_the_size() {
    let entry = |name: &str, gpus: &[u32]| SynthModel {
        name: name.to_owned(),
        gpus: Some(gpus.to_vec()),
    };
    let models = vec![
        entry("any", &[1, 2, 4]),
        entry("one", &[1]),
        entry("two", &[2]),
    ];
    let spec = SynthSpec {
        models,
        ..big(Shape::Uniform)
    };
    let trace = made(&spec);
    let model = trace.model.expect("models were given");
    let mut counts = BTreeMap::new();
    for (gpus, code) in trace.gpus.iter().zip(&model.codes) {
        *counts.entry((*gpus, *code)).or_insert(0_u64) += 1;
    }
    let kinds: Vec<(u32, i32)> = counts.keys().copied().collect();
    assert_eq!(kinds, [(1, 0), (1, 1), (2, 0), (2, 2), (4, 0), (8, -1)]);
    assert_eq!(trace.notes["models_absent"], counts[&(8, -1)]);
    let ratio = counts[&(1, 0)] as f64 / counts[&(1, 1)] as f64;
    assert!((ratio - 1.0).abs() < 0.05, "{ratio}");
}

#[test]
fn durations_are_cut_counted_and_above_0() {
    let spec = SynthSpec {
        max_duration_s: Some(600.0),
        ..big(Shape::Philly)
    };
    let (cut, full) = (made(&spec), made(&big(Shape::Philly)));
    let longer = full
        .duration_s
        .iter()
        .filter(|seconds| **seconds > 600.0)
        .count() as u64;
    assert!(cut.notes["durations_cut"].abs_diff(longer) <= 1);
    assert!(
        cut.duration_s
            .iter()
            .zip(&full.duration_s)
            .all(|(c, f)| *c == f.min(600.0))
    );
    let short = SynthSpec {
        mean_duration_s: 0.001,
        ..big(Shape::Uniform)
    };
    assert!(
        made(&short)
            .duration_s
            .iter()
            .all(|seconds| *seconds >= 0.001)
    );
}

#[test]
fn noise_keeps_the_median_and_has_its_spread() {
    let spec = SynthSpec {
        noise: 0.4,
        ..big(Shape::Pai)
    };
    let (noisy, plain) = (made(&spec), made(&big(Shape::Pai)));
    let logs: Vec<f64> = noisy
        .duration_s
        .iter()
        .zip(&plain.duration_s)
        .map(|(n, p)| libm::log(n / p))
        .collect();
    let mean = logs.iter().sum::<f64>() / f64::from(JOBS);
    let square = logs.iter().map(|log| log * log).sum::<f64>() / f64::from(JOBS);
    assert!(
        mean.abs() < 0.006 && (square.sqrt() - 0.4).abs() < 0.005,
        "{mean} {square}"
    );
}

#[test]
fn values_are_read_from_text_and_refused_with_reasons() {
    let mut spec = SynthSpec::new(Shape::Philly);
    let text = |word: &str| SynthValue::Text(word.to_owned());
    for (key, word) in [
        ("jobs", "12"),
        ("rate_per_h", "1e2"),
        ("arrivals", "poisson"),
    ] {
        spec.set(key, &text(word)).expect("a valid value");
    }
    spec.set("models", &text("a, b")).expect("two names");
    spec.set("seed", &SynthValue::Int(i128::from(u64::MAX)))
        .expect("64 bits");
    assert_eq!(
        (spec.jobs, spec.rate_per_h, spec.seed),
        (12, Some(100.0), u64::MAX)
    );
    assert_eq!(spec.models[1].name, "b");
    spec.set("rate_per_h", &SynthValue::Unset)
        .expect("back to the default");
    assert_eq!(spec.rate_per_h, None);

    let before = spec.clone();
    let mut message =
        |key: &str, value: SynthValue| spec.set(key, &value).expect_err("refused").to_string();
    assert_eq!(
        message("jobs", SynthValue::Int(0)),
        "`jobs` is 0; allowed: 1 to 100000000"
    );
    assert_eq!(
        message("jobs", text("many")),
        "`jobs` must be a whole number, not 'many'"
    );
    assert_eq!(
        message("seed", SynthValue::Int(-1)),
        "`seed` is -1; allowed: 0 to 18446744073709551615"
    );
    assert_eq!(
        message("noise", SynthValue::Float(f64::NAN)),
        "`noise` must be a number, not NaN"
    );
    assert_eq!(
        message("arrivals", text("weekly")),
        "`arrivals` must be one of batch, poisson, diurnal, not 'weekly'"
    );
    assert_eq!(
        message("cluster_gpu", SynthValue::Int(4)),
        "`synth:philly` has no parameter `cluster_gpu`; did you mean `cluster_gpus`?"
    );
    assert_eq!(
        message("gang_shares", text("1:1")),
        "`synth:philly` has no parameter `gang_shares`"
    );
    assert_eq!(spec, before);
}

#[test]
fn shares_are_read_from_text() {
    let mut spec = SynthSpec::new(Shape::Uniform);
    spec.set("gang_shares", &SynthValue::Text("1:3, 16:1".into()))
        .expect("two sizes");
    assert_eq!(spec.gang_shares, [(1, 3.0), (16, 1.0)]);
    for bad in ["", "1", "0:1", "1:-1", "1:0", "1:x"] {
        assert!(
            spec.set("gang_shares", &SynthValue::Text(bad.into()))
                .is_err(),
            "{bad}"
        );
    }
}

#[test]
fn values_that_exclude_each_other_are_errors() {
    let philly = || SynthSpec::new(Shape::Philly);
    let refused = |spec: SynthSpec| generate(&spec).expect_err("refused").to_string();
    let load = SynthSpec {
        load: Some(0.5),
        ..philly()
    };
    assert_eq!(refused(load.clone()), "`load` needs `cluster_gpus` as well");
    let both = SynthSpec {
        rate_per_h: Some(3.0),
        cluster_gpus: Some(8),
        ..load
    };
    assert!(refused(both).starts_with("`load` and `rate_per_h` exclude each other"));
    let batch = SynthSpec {
        arrivals: Arrivals::Batch,
        rate_per_h: Some(3.0),
        ..philly()
    };
    assert!(refused(batch).contains("a batch has no rate"));
    let slow = SynthSpec {
        rate_per_h: Some(1e-6),
        ..philly()
    };
    assert!(refused(slow).starts_with("`rate_per_h` is too low for 10000 jobs"));
    let with_load = |load, jobs| SynthSpec {
        load: Some(load),
        jobs,
        cluster_gpus: Some(8),
        ..philly()
    };
    assert_eq!(
        refused(with_load(1e-6, 10_000)),
        "`load` is too low for 10000 jobs; allowed: arrivals up to 4e9 s"
    );
    let short = SynthSpec {
        max_duration_s: Some(0.001),
        ..with_load(1e6, 20)
    };
    assert_eq!(
        refused(short),
        "`load` is too high for 20 jobs; allowed: at least 0.001 s from the first to the last arrival"
    );
    assert_eq!(
        refused(with_load(0.5, 1)),
        "`jobs` is 1; allowed: at least 2 with `load`"
    );
    let uniform = || SynthSpec::new(Shape::Uniform);
    assert!(
        refused(SynthSpec {
            arrivals: Arrivals::Diurnal,
            ..uniform()
        })
        .contains("no daily pattern")
    );
    let wide = SynthSpec {
        gang_shares: vec![(8, 1.0)],
        max_gpus: Some(4),
        ..uniform()
    };
    assert!(refused(wide).contains("no size fits"));
}

#[test]
fn every_documented_parameter_can_be_set_to_its_default() {
    for shape in Shape::ALL {
        let mut spec = SynthSpec::new(shape);
        for parameter in parameters(shape) {
            spec.set(parameter.name, &parameter.default)
                .expect("a default is valid");
            assert!(parameter.doc.ends_with('.'), "{}", parameter.name);
        }
        assert_eq!(spec, SynthSpec::new(shape));
        assert_eq!(Shape::from_name(shape.name()), Ok(shape));
    }
    let error = Shape::from_name("phily").expect_err("no such shape");
    assert_eq!(
        error.to_string(),
        "no synthetic trace is called `phily`; did you mean `philly`?"
    );
}
