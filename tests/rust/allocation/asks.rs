//! From an ask of jobs to shares as rounds use them, by hand.

use gangline_allocation::{Ask, NoSolver, Objective, PairShare, Seen, Settings, Shares};
use gangline_model::{GpuTypeId, JobId};

/// Jobs of one GPU and weight 1, each of its own kind, at rate 1 on the only type.
fn ask(jobs: usize, gpus: f64) -> Ask {
    Ask {
        jobs: (0..jobs).map(JobId::new).collect(),
        rates: vec![1.0; jobs],
        gangs: vec![1.0; jobs],
        weights: vec![1.0; jobs],
        capacity: vec![gpus],
        ..Ask::default()
    }
}

fn packed(mut ask: Ask, kinds: &[u32], pair_rates: &[f64]) -> Ask {
    ask.kinds = kinds.to_vec();
    ask.kind_count = pair_rates.len().isqrt();
    ask.pair_rates = pair_rates.to_vec();
    ask
}

fn las() -> Objective {
    Objective::Las { is_agnostic: false }
}

fn makespan(slack_weight: f64) -> Objective {
    Objective::Makespan {
        seen: Seen::Own,
        slack_weight,
    }
}

fn solve(objective: &Objective, ask: &Ask) -> Shares {
    solve_with(objective, ask, &[])
}

fn solve_with(objective: &Objective, ask: &Ask, lost_s: &[f64]) -> Shares {
    let found = objective.allocate(ask, lost_s, Settings::default(), &mut NoSolver);
    found.expect("a small program").shares
}

fn bits(shares: &[f64]) -> Vec<u64> {
    shares.iter().map(|share| share.to_bits()).collect()
}

/// Row, kind of the partner and share, in units of the grid.
fn beside(found: &Shares) -> Vec<(usize, u32, i64)> {
    let each = found.pair_shares.iter();
    each.map(|own: &PairShare| {
        assert_eq!(own.gpu_type, GpuTypeId(0));
        (own.row, own.beside, (own.share * 1e8).round() as i64)
    })
    .collect()
}

#[test]
fn shares_are_on_a_grid_of_eight_digits() {
    let found = solve(&las(), &ask(3, 1.0));
    let third = 33_333_333.0 * 1e-8;
    assert_eq!(bits(&found.alone), bits(&[third; 3]));
}

#[test]
fn slivers_are_no_shares() {
    // shares in proportion to weights: one part in ten million and one
    let mut one = ask(2, 1.0);
    one.weights = vec![1.0, 1e7];
    let found = solve(&las(), &one);
    assert_eq!(bits(&found.alone), bits(&[0.0, 99_999_990.0 * 1e-8]));
    // and of pairs: jobs of kind 0 beside the other without a loss; the other has a tenth of a sliver of work
    let mut two = packed(ask(2, 1.0), &[0, 1], &[0.0, 1.0, 1.0, 0.0]);
    two.remaining = vec![1e8, 10.0];
    let found = solve(&makespan(0.0), &two);
    assert_eq!(beside(&found), [(0, 1, 100_000_000)]);
}

#[test]
fn slack_weighs_the_time_of_a_pair_for_each_of_its_jobs() {
    // Both run side by side without a loss until the first ends: it has no slack, the other needs a fifth of the time.
    let mut both = packed(ask(2, 1.0), &[0, 1], &[0.0, 1.0, 1.0, 0.0]);
    both.remaining = vec![10.0, 2.0];
    let shares = |slack_weight| beside(&solve(&makespan(slack_weight), &both));
    assert_eq!(shares(1.0), [(0, 1, 100_000_000), (1, 0, 100_000_000)]);
    assert_eq!(shares(0.5), [(0, 1, 100_000_000), (1, 0, 50_000_000)]);
    assert_eq!(shares(0.1), [(0, 1, 100_000_000), (1, 0, 20_000_000)]);
}

#[test]
fn jobs_of_unlike_kinds_are_no_class() {
    // On one GPU the jobs of kind 0 share without a loss, that of kind 1 with none: half of the time for each.
    let three = packed(ask(3, 1.0), &[0, 1, 0], &[1.0, 0.0, 0.0, 0.0]);
    let found = solve(&las(), &three);
    assert_eq!(bits(&found.alone), bits(&[0.0, 0.5, 0.0]));
    assert_eq!(beside(&found), [(0, 0, 50_000_000), (2, 0, 50_000_000)]);
}

#[test]
fn an_agnostic_variant_knows_of_pairs_what_both_keep() {
    // The job of rate 4 keeps half of it beside the other, which keeps all. In shares of their speeds the first gets
    // y / 2 + (1 - y) and the second y: 2/3 each.
    let mut two = packed(ask(2, 1.0), &[0, 1], &[0.0, 2.0, 1.0, 0.0]);
    two.rates = vec![4.0, 1.0];
    let found = solve(&Objective::Las { is_agnostic: true }, &two);
    assert_eq!(beside(&found), [(0, 1, 66_666_667), (1, 0, 66_666_667)]);
    assert_eq!(bits(&found.alone), bits(&[33_333_333.0 * 1e-8, 0.0]));
}

#[test]
fn a_pair_counts_by_the_price_of_its_type() {
    // A GPU each of two types, the second four times as fast and ten times as dear: both jobs together on the first
    // do 1.6 steps per price of 1, alone on the second 4 per price of 10.
    let mut two = packed(ask(2, 1.0), &[0, 0], &[0.8, 3.2]);
    two.kind_count = 1;
    two.rates = vec![1.0, 4.0, 1.0, 4.0];
    two.capacity = vec![1.0, 1.0];
    let prices = vec![1.0, 10.0];
    let found = solve(
        &Objective::Cost {
            prices,
            drops_all: false,
        },
        &two,
    );
    // up to what the choice among optima may give up
    let together = beside(&found).into_iter();
    let together: Vec<bool> = together.map(|own| own.2 > 99_999_990).collect();
    assert_eq!(together, [true, true]);
}

#[test]
fn time_lost_so_far_is_part_of_a_fair_time() {
    // Two equal jobs on one GPU with 10 s of work left: 20 s by an equal split. The first has 20 s behind it that an equal split
    // would have taken, so its fair time is 40 s, and twice its share the other's: 10 / x / 40 = 10 / (1 - x) / 20.
    let mut two = ask(2, 1.0);
    two.remaining = vec![10.0, 10.0];
    two.age_s = vec![0.0, 0.0];
    let found = solve_with(&Objective::Ftf { seen: Seen::Own }, &two, &[20.0, 0.0]);
    for (share, expected) in found.alone.iter().zip([1.0 / 3.0, 2.0 / 3.0]) {
        assert!((share - expected).abs() < 1e-7, "{:?}", found.alone);
    }
}
