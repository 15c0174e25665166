//! Shares as rounds use them, from requests of jobs, worked out by hand.

use gangline_allocation::{Ask, NoSolver, Objective, PairShare, Seen, Settings, Shares};
use gangline_model::{GpuTypeId, JobId};

/// Returns a request of jobs with one GPU and weight 1. Each job is of its own kind and has rate 1 on the only GPU
/// type.
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

/// Returns row, kind of the partner, and share in units of the grid.
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
fn tiny_shares_are_dropped() {
    // Shares are in proportion to the weights: one job has one ten-millionth of the weight of the other.
    let mut one = ask(2, 1.0);
    one.weights = vec![1.0, 1e7];
    let found = solve(&las(), &one);
    assert_eq!(bits(&found.alone), bits(&[0.0, 99_999_990.0 * 1e-8]));
    // The same holds for pairs. The two jobs run side by side without loss. The second has so little work that its
    // share is dropped.
    let mut two = packed(ask(2, 1.0), &[0, 1], &[0.0, 1.0, 1.0, 0.0]);
    two.remaining = vec![1e8, 10.0];
    let found = solve(&makespan(0.0), &two);
    assert_eq!(beside(&found), [(0, 1, 100_000_000)]);
}

#[test]
fn slack_weighs_the_time_of_a_pair_for_each_of_its_jobs() {
    // Both can run side by side without loss. The longer job has no slack, and the shorter one needs a fifth of the
    // time.
    let mut both = packed(ask(2, 1.0), &[0, 1], &[0.0, 1.0, 1.0, 0.0]);
    both.remaining = vec![10.0, 2.0];
    let shares = |slack_weight| beside(&solve(&makespan(slack_weight), &both));
    assert_eq!(shares(1.0), [(0, 1, 100_000_000), (1, 0, 100_000_000)]);
    assert_eq!(shares(0.5), [(0, 1, 100_000_000), (1, 0, 50_000_000)]);
    assert_eq!(shares(0.1), [(0, 1, 100_000_000), (1, 0, 20_000_000)]);
}

#[test]
fn jobs_of_different_kinds_form_different_classes() {
    // On one GPU, jobs of kind 0 share without loss, and the job of kind 1 shares with none. Each side gets half of the
    // time.
    let three = packed(ask(3, 1.0), &[0, 1, 0], &[1.0, 0.0, 0.0, 0.0]);
    let found = solve(&las(), &three);
    assert_eq!(bits(&found.alone), bits(&[0.0, 0.5, 0.0]));
    assert_eq!(beside(&found), [(0, 0, 50_000_000), (2, 0, 50_000_000)]);
}

#[test]
fn an_agnostic_variant_reads_the_relative_rates_of_pairs() {
    // The job with rate 4 keeps half of it next to the other, which keeps all of its rate. Relative to their rates, the
    // first gets y / 2 + (1 - y) and the second gets y, so both get 2/3.
    let mut two = packed(ask(2, 1.0), &[0, 1], &[0.0, 2.0, 1.0, 0.0]);
    two.rates = vec![4.0, 1.0];
    let found = solve(&Objective::Las { is_agnostic: true }, &two);
    assert_eq!(beside(&found), [(0, 1, 66_666_667), (1, 0, 66_666_667)]);
    assert_eq!(bits(&found.alone), bits(&[33_333_333.0 * 1e-8, 0.0]));
}

#[test]
fn a_pair_counts_by_the_price_of_its_type() {
    // There is one GPU of each of two types; the second is four times as fast and costs ten times as much. On the first
    // type, both jobs together do 1.6 steps at a price of 1. On the second type, one job alone does 4 steps at a price
    // of 10.
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
    // The choice among optima may give up a little.
    let together = beside(&found).into_iter();
    let together: Vec<bool> = together.map(|own| own.2 > 99_999_990).collect();
    assert_eq!(together, [true, true]);
}

#[test]
fn time_lost_so_far_is_part_of_a_fair_time() {
    // Two equal jobs share one GPU, with 10 s of work left each, so an equal split takes 20 s. The first has already
    // lost 20 s of an equal split, so its fair time is 40 s. Its share is therefore half of the other's: 10 / x / 40 =
    // 10 / (1 - x) / 20.
    let mut two = ask(2, 1.0);
    two.remaining = vec![10.0, 10.0];
    two.age_s = vec![0.0, 0.0];
    let found = solve_with(&Objective::Ftf { seen: Seen::Own }, &two, &[20.0, 0.0]);
    for (share, expected) in found.alone.iter().zip([1.0 / 3.0, 2.0 / 3.0]) {
        assert!((share - expected).abs() < 1e-7, "{:?}", found.alone);
    }
}
