//! Max-min fairness by prices.

use gangline_allocation::{MaxMin, PriceSolution, SolverError};

fn solve(problem: &MaxMin<'_>) -> PriceSolution {
    problem.solve(1e-9, 500).expect("small programs converge")
}

/// Checks weak duality, which needs no oracle: the shares are feasible and reach z, and z equals the bound.
fn certify(problem: &MaxMin<'_>, found: &PriceSolution) {
    let types = problem.capacity.len();
    let mut held = vec![0.0; types];
    for (class, row) in found.shares.chunks_exact(types).enumerate() {
        assert!(row.iter().all(|&share| share >= 0.0));
        assert!(row.iter().sum::<f64>() <= 1.0 + 1e-9);
        let own = &problem.rates[class * types..(class + 1) * types];
        let rate: f64 = own.iter().zip(row).map(|(a, x)| a * x).sum();
        assert!(rate >= found.z * (1.0 - 1e-9), "{rate} < {}", found.z);
        for kind in 0..types {
            held[kind] += problem.members[class] * problem.gangs[class] * row[kind];
        }
    }
    for (held, gpus) in held.iter().zip(problem.capacity) {
        assert!(*held <= gpus * (1.0 + 1e-9), "{held} > {gpus}");
    }
    assert!(found.bound - found.z <= 1e-9 * found.bound);
}

#[test]
fn two_jobs_two_types_by_hand() {
    // 1 + 3 x over 2.5 equals 2 - x over 1.5 at x = 1/2, where both are 1.
    let problem = MaxMin {
        rates: &[0.4, 1.6, 2.0 / 3.0, 4.0 / 3.0],
        gangs: &[1.0, 1.0],
        members: &[1.0, 1.0],
        capacity: &[1.0, 1.0],
    };
    let found = solve(&problem);
    assert!((found.z - 1.0).abs() < 1e-9);
    certify(&problem, &found);
}

#[test]
fn prices_are_zero_without_contention() {
    let problem = MaxMin {
        rates: &[3.0, 5.0, 0.0],
        gangs: &[2.0],
        members: &[2.0],
        capacity: &[8.0, 8.0, 8.0],
    };
    let found = solve(&problem);
    assert!((found.z - 5.0).abs() < 1e-9);
    certify(&problem, &found);
}

#[test]
fn a_class_counts_as_often_as_it_has_members() {
    // Ten equal jobs share four GPUs, so each has 0.4 of the time.
    let problem = MaxMin {
        rates: &[2.0],
        gangs: &[1.0],
        members: &[10.0],
        capacity: &[4.0],
    };
    let found = solve(&problem);
    assert!((found.z - 0.8).abs() < 1e-9);
    certify(&problem, &found);
}

#[test]
fn many_small_programs_prove_themselves() {
    // The numbers come from a small generator with a fixed seed.
    let mut state = 1_u64;
    let mut draw = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..400 {
        let (classes, types) = (1 + draw(12) as usize, 1 + draw(9) as usize);
        let mut rates: Vec<f64> = (0..classes * types)
            .map(|_| (draw(8) as f64) * (1.0 + draw(1000) as f64 / 500.0))
            .collect();
        for class in 0..classes {
            rates[class * types + draw(types as u64) as usize] = 1.0 + draw(5) as f64;
        }
        let gangs: Vec<f64> = (0..classes).map(|_| f64::from(1 << draw(4))).collect();
        let members: Vec<f64> = (0..classes).map(|_| 1.0 + draw(5) as f64).collect();
        let mut capacity: Vec<f64> = (0..types).map(|_| 1.0 + draw(20) as f64).collect();
        for kind in 0..types {
            // Some types have no GPUs, but no class depends on such a type.
            let row = |class: usize| &rates[class * types..(class + 1) * types];
            let others = |class: usize| {
                let usable = row(class).iter().zip(&capacity).enumerate();
                usable.filter(|(at, (rate, gpus))| *at != kind && **rate > 0.0 && **gpus > 0.0)
            };
            if draw(4) == 0 && (0..classes).all(|class| others(class).count() > 0) {
                capacity[kind] = 0.0;
            }
        }
        let problem = MaxMin {
            rates: &rates,
            gangs: &gangs,
            members: &members,
            capacity: &capacity,
        };
        certify(&problem, &solve(&problem));
    }
}

#[test]
fn wrong_tables_are_named() {
    let good = MaxMin {
        rates: &[1.0],
        gangs: &[1.0],
        members: &[1.0],
        capacity: &[1.0],
    };
    let refused = |problem: MaxMin<'_>| problem.solve(1e-9, 10).expect_err("refused");
    for problem in [
        MaxMin {
            rates: &[1.0, 2.0],
            ..good
        },
        MaxMin {
            rates: &[f64::NAN],
            ..good
        },
        MaxMin {
            rates: &[0.0],
            ..good
        },
        MaxMin {
            members: &[],
            ..good
        },
        MaxMin {
            gangs: &[0.0],
            ..good
        },
        MaxMin {
            capacity: &[0.0],
            ..good
        },
    ] {
        assert!(matches!(refused(problem), SolverError::Input { .. }));
    }
}

#[test]
fn a_gap_that_is_not_reached_is_an_error() {
    let problem = MaxMin {
        rates: &[0.4, 1.6, 2.0 / 3.0, 4.0 / 3.0],
        gangs: &[1.0, 1.0],
        members: &[1.0, 1.0],
        capacity: &[1.0, 1.0],
    };
    assert!(matches!(
        problem.solve(1e-9, 1),
        Err(SolverError::Gap { evaluations: 1, .. })
    ));
}
