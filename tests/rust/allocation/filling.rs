//! Water filling, with levels worked out by hand.

use gangline_allocation::{Filling, Pair, SolverError};

/// Returns the levels if they rise in proportion to these speeds.
fn levels(problem: &Filling<'_>, speed: &[f64]) -> Vec<f64> {
    let speeds = |done: &[bool]| {
        let each = speed.iter().zip(done);
        each.map(|(own, done)| if *done { 0.0 } else { *own })
            .collect()
    };
    let problem = Filling {
        speeds: &speeds,
        ..*problem
    };
    problem.solve().expect("small problems").levels
}

/// Returns no speeds; [`levels`] replaces it.
fn silent(_done: &[bool]) -> Vec<f64> {
    Vec::new()
}

fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() <= 1e-8 * b, "{found:?} {expected:?}");
    }
}

#[test]
fn a_class_at_its_maximum_leaves_the_rest_to_others() {
    // Three jobs share two GPUs of one type. The first can use only a quarter of the rate that the others can.
    let problem = Filling {
        rates: &[0.25, 1.0, 1.0],
        gangs: &[1.0, 1.0, 1.0],
        members: &[1.0, 1.0, 1.0],
        capacity: &[2.0],
        pairs: &[],
        speeds: &silent,
        is_even: true,
    };
    let speed = &[1.0, 1.0, 1.0];
    // The first needs a whole GPU for its maximum of 0.25, and the others share one GPU.
    close(&levels(&problem, speed), &[0.25, 0.5, 0.5]);
}

#[test]
fn a_type_that_only_some_can_use_fills_first() {
    // There are two classes of two jobs. Type 0 serves both classes, and type 1 only the second.
    let problem = Filling {
        rates: &[1.0, 0.0, 1.0, 1.0],
        gangs: &[1.0, 1.0],
        members: &[2.0, 2.0],
        capacity: &[1.0, 1.5],
        pairs: &[],
        speeds: &silent,
        is_even: true,
    };
    let speed = &[1.0, 1.0];
    // The first class reaches level 0.5 with all of type 0, and the second rises to 0.75 on type 1.
    close(&levels(&problem, speed), &[0.5, 0.75]);
}

#[test]
fn weights_set_how_fast_levels_rise() {
    let problem = Filling {
        rates: &[1.0, 1.0],
        gangs: &[1.0, 1.0],
        members: &[1.0, 1.0],
        capacity: &[1.0],
        pairs: &[],
        speeds: &silent,
        is_even: true,
    };
    let speed = &[3.0, 1.0];
    close(&levels(&problem, speed), &[0.75, 0.25]);
}

#[test]
fn without_contention_all_are_at_their_top() {
    let problem = Filling {
        rates: &[2.0, 3.0, 0.0, 5.0],
        gangs: &[1.0, 2.0],
        members: &[2.0, 1.0],
        capacity: &[4.0, 4.0],
        pairs: &[],
        speeds: &silent,
        is_even: true,
    };
    let speed = &[1.0, 0.5];
    close(&levels(&problem, speed), &[3.0, 5.0]);
}

#[test]
fn a_type_with_gpus_to_spare_stops_no_level() {
    // The types have speeds 1, 2 and 4. The class with speed 2.5 takes the whole fastest type exactly when the second
    // class has all of its time on the next type. The others rise to that level too, on GPUs that are left over.
    let unit = 32.0 / 54.0;
    let problem = Filling {
        rates: &[unit, 2.0 * unit, 4.0 * unit].repeat(5),
        gangs: &[4.0, 4.0, 2.0, 2.0, 1.0],
        members: &[1.0, 2.0, 1.0, 1.0, 1.0],
        capacity: &[14.0, 16.0, 2.0],
        pairs: &[],
        speeds: &silent,
        is_even: true,
    };
    let speed = &[0.625, 1.25, 2.5, 0.5, 1.0];
    let (next, top) = (2.0 * unit, 4.0 * unit);
    close(&levels(&problem, speed), &[next, next, top, next, next]);
}

#[test]
fn levels_that_wait_rise_when_others_have_ended() {
    // The levels rise one after the other on two GPUs. The first job takes one GPU, then the second job takes the
    // other, and nothing is left for the last.
    let in_turn = |done: &[bool]| {
        let first = done.iter().position(|done| !done);
        (0..3)
            .map(|at| f64::from(u8::from(first == Some(at))))
            .collect()
    };
    let problem = Filling {
        rates: &[1.0; 3],
        gangs: &[1.0; 3],
        members: &[1.0; 3],
        capacity: &[2.0],
        pairs: &[],
        speeds: &in_turn,
        is_even: false,
    };
    let found = problem.solve().expect("a small problem");
    for (level, expected) in found.levels.iter().zip([1.0, 1.0, 0.0]) {
        assert!((level - expected).abs() < 1e-9, "{:?}", found.levels);
    }
}

#[test]
fn wrong_speeds_are_refused() {
    for speed in [&[][..], &[0.0], &[f64::NAN]] {
        let problem = Filling {
            rates: &[1.0],
            gangs: &[1.0],
            members: &[1.0],
            capacity: &[1.0],
            pairs: &[],
            speeds: &|_| speed.to_vec(),
            is_even: true,
        };
        let refused = problem.solve().expect_err("refused");
        assert!(matches!(refused, SolverError::Input { what: "speed", .. }));
    }
}

#[test]
fn a_pair_lifts_levels_beyond_what_turns_do() {
    // Two jobs on one GPU each keep 0.8 of their rate side by side. A third job has a GPU type to itself.
    let pair = Pair {
        classes: [0, 1],
        gpu_type: 0,
        rates: [0.8, 0.8],
        gain: 1.6,
        then: 0.0,
    };
    let problem = Filling {
        rates: &[1.0, 0.0, 1.0, 0.0, 0.0, 1.0],
        gangs: &[1.0; 3],
        members: &[1.0; 3],
        capacity: &[1.0, 1.0],
        pairs: &[pair],
        speeds: &silent,
        is_even: true,
    };
    let speed = &[1.0; 3];
    close(&levels(&problem, speed), &[0.8, 0.8, 1.0]);
}
