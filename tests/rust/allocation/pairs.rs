//! Linear programs in which classes may share GPUs, worked out by hand.

use gangline_allocation::{
    Choose, NoSolver, Objective, Pair, Seen, Settings, Staged, Table, TwoStages,
};

fn pair(classes: [usize; 2], rates: [f64; 2]) -> Pair {
    Pair {
        classes,
        gpu_type: 0,
        rates,
        gain: rates[0] + rates[1],
        then: 0.0,
    }
}

/// Solves max-min fairness for jobs with one GPU and rate 1 on one type.
fn max_min(members: &[f64], gpus: f64, pairs: &[Pair]) -> Staged {
    let ones = vec![1.0; members.len()];
    let program = TwoStages {
        rates: &ones,
        measure: &ones,
        worth: &ones,
        gangs: &ones,
        members,
        capacity: &[gpus],
        pairs,
    };
    program.solve(1_000).expect("a small program")
}

fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() <= 1e-8, "{found:?} {expected:?}");
    }
}

#[test]
fn two_jobs_of_a_class_share_the_only_gpu() {
    let found = max_min(&[2.0], 1.0, &[pair([0, 0], [0.8, 0.8])]);
    assert!((found.z - 0.8).abs() < 1e-12);
    close(&found.shares, &[0.0]);
    close(&found.together, &[1.0]);
}

#[test]
fn what_one_loses_beside_the_other_it_gets_alone() {
    // They run together for a share y of the time, and the second runs alone for 1 - y: 0.9 y = 0.3 y + 1 - y.
    let found = max_min(&[1.0, 1.0], 1.0, &[pair([0, 1], [0.9, 0.3])]);
    assert!((found.z - 0.5625).abs() < 1e-12);
    close(&found.shares, &[0.0, 0.375]);
    close(&found.together, &[0.625]);
}

#[test]
fn classes_of_different_sizes_share_while_both_have_jobs() {
    // The single job runs next to each of the three in turn, without loss. The three always have two GPUs, so 3 z = 2.
    let found = max_min(&[1.0, 3.0], 2.0, &[pair([0, 1], [1.0, 1.0])]);
    assert!((found.z - 2.0 / 3.0).abs() < 1e-12);
    // Among all such plans, the best one lets the single job run all the time.
    close(&found.together, &[1.0]);
    close(&found.shares, &[0.0, 1.0 / 3.0]);
}

#[test]
fn a_pair_that_is_no_better_than_turns_changes_nothing() {
    let alone = max_min(&[2.0, 1.0], 1.0, &[]);
    let found = max_min(&[2.0, 1.0], 1.0, &[pair([0, 1], [0.5, 0.5])]);
    assert!((found.z - alone.z).abs() < 1e-12);
}

#[test]
fn chains_of_pairs_leave_no_column_to_a_class() {
    // There are four classes of one job, and each may share only with the next and the previous one. Two pairs use the
    // two GPUs, and no job runs alone.
    let neighbours = [[0, 1], [1, 2], [2, 3]].map(|own| pair(own, [0.9, 0.9]));
    let found = max_min(&[1.0; 4], 2.0, &neighbours);
    assert!((found.z - 0.9).abs() < 1e-12);
    close(&found.shares, &[0.0; 4]);
    close(&found.together, &[1.0, 0.0, 1.0]);
}

#[test]
fn the_next_objective_breaks_ties_of_a_sum() {
    // Two of three jobs share one GPU. The first objective is the same for every pair, and the next one chooses the
    // last two jobs.
    let ones = [1.0; 3];
    let mut pairs = [[0, 1], [0, 2], [1, 2]].map(|own| pair(own, [0.75, 0.75]));
    pairs[2].then = 1.0;
    let program = Choose {
        rates: &ones,
        gains: &ones,
        then: Some(&[0.0; 3]),
        gangs: &ones,
        members: &ones,
        capacity: &[1.0],
        floors: &[0.0; 3],
        prices: &[],
        pairs: &pairs,
        rises: false,
    };
    let found = program.solve().expect("a small program");
    assert!((found.value - 1.5).abs() < 1e-12);
    close(&found.shares, &[0.0; 3]);
    close(&found.together, &[0.0, 0.0, 1.0]);
}

#[test]
fn rho_of_two_jobs_of_which_one_is_older() {
    // They run together for a share y at 0.8 each, and the older runs alone for 1 - y: 10 + 5 / (1 - 0.2 y) = 5 / (0.8
    // y), both divided by 10 s.
    let y = (16.25 - (16.25_f64.powi(2) - 50.0).sqrt()) / 4.0;
    let table = Table {
        rates: vec![1.0; 2],
        gangs: vec![1.0; 2],
        members: vec![1.0; 2],
        weights: vec![1.0; 2],
        remaining: vec![5.0; 2],
        age_s: vec![10.0, 0.0],
        capacity: vec![1.0],
        jobs: 2.0,
        kinds: vec![0, 0],
        kind_count: 1,
        pair_rates: vec![0.8],
        ..Table::default()
    };
    let found =
        Objective::Ftf { seen: Seen::Own }.solve(&table, Settings::default(), &mut NoSolver);
    let found = found.expect("a small program");
    assert!((found.objective - 0.625 / y).abs() < 1e-8);
    close(&found.shares, &[1.0 - y, 0.0]);
    close(&[found.together[0].time], &[y]);
}

/// Returns two classes of one job each, at rate 1 on one GPU.
fn two_jobs<'a>(gains: &'a [f64], then: Option<&'a [f64]>, floors: &'a [f64]) -> Choose<'a> {
    Choose {
        rates: &[1.0; 2],
        gains,
        then,
        gangs: &[1.0; 2],
        members: &[1.0; 2],
        capacity: &[1.0],
        floors,
        prices: &[],
        pairs: &[],
        rises: false,
    }
}

#[test]
fn the_next_objective_gives_up_next_to_nothing_of_the_first() {
    // The second job counts for a hundredth of a per cent less in the first objective, and for a hundred times as much
    // in the next.
    let program = two_jobs(&[1.0, 0.9999], Some(&[0.01, 1.0]), &[0.0; 2]);
    let found = program.solve().expect("a small program");
    assert!(
        found.shares[1] > 1e-6,
        "some is given up: {:?}",
        found.shares
    );
    assert!(found.shares[0] + 0.9999 * found.shares[1] >= 1.0 - 2e-9);
}

#[test]
fn floors_that_no_plan_reaches_are_an_error() {
    let ones = [1.0; 2];
    assert!(two_jobs(&ones, None, &[0.5, 0.5]).solve().is_ok());
    assert!(two_jobs(&ones, None, &[0.503, 0.503]).solve().is_err());
}
