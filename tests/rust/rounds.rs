//! Rounds with shares that no policy would give: the walks over kept claims against a look at everybody.

use gangline_engine::rng::{Purpose, Stream};
use gangline_engine::{Outcome, PolicyError};
use gangline_policies::conformance::{self, Numbers, Scope};
use gangline_policies::lp::{Allocator, Ask};
use gangline_policies::{ParamValue, Params, build_plain_with_allocator, build_with_allocator};

/// Shares from a seed: zeros, ties and numbers of every size.
struct Dice {
    stream: Stream,
    asks: u32,
}

impl Allocator for Dice {
    fn allocate(&mut self, ask: &Ask) -> Result<Vec<f64>, PolicyError> {
        self.asks += 1;
        let types = ask.capacity.len();
        let share = |at: usize| {
            let job = u64::from(ask.jobs[at / types].0);
            let draw = self.stream.draw(job, (at % types) as u32, self.asks);
            let words = draw.uniform_u64();
            match words % 5 {
                0 | 1 => 0.0,
                2 => 0.25,
                3 => 1.0 / types as f64,
                _ => (words >> 11) as f64 / 2.0_f64.powi(53),
            }
        };
        Ok((0..ask.rates.len()).map(share).collect())
    }
}

fn params(numbers: &mut Numbers) -> Params {
    let word = |word: &str| ParamValue::Str(word.to_owned());
    let rules = [
        "consolidate",
        "consolidate",
        "yarn",
        "whole_servers",
        "random",
    ];
    let mut params = Params::from([
        ("placement".to_owned(), word(numbers.pick(&rules))),
        (
            "zero_priority_pass".to_owned(),
            word(numbers.pick(&["after", "inline"])),
        ),
    ]);
    let mut number = |name: &str, value| params.insert(name.to_owned(), ParamValue::Float(value));
    number("round_s", numbers.pick(&[11.0, 17.5, 30.0]));
    number(
        "min_solve_interval_s",
        numbers.pick(&[0.0, 0.0, 40.0, 500.0]),
    );
    let backfills = ParamValue::Bool(numbers.once_in(2));
    params.insert("backfill_mid_round".to_owned(), backfills);
    params
}

#[test]
fn walks_over_kept_claims_equal_a_look_at_everybody() {
    let mut preemptions = 0.0;
    for seed in 0..400 {
        let mut numbers = Numbers::new(seed + 9_000_000);
        let scope = Scope {
            types: 1 + seed % 4,
            jobs: numbers.pick(&[10, 60, 150]),
            has_trouble: seed % 3 != 0,
            has_checkpoints: false,
            gangs_max: numbers.pick(&[1, 5, 12]),
        };
        let case = conformance::draw(seed + 50_000, scope);
        let params = params(&mut numbers);
        let dice = || {
            let stream = Stream::new(seed, Purpose::Extra);
            Box::new(Dice { stream, asks: 0 })
        };
        let mut fast = build_with_allocator("gavel-las", &params, dice()).expect("valid");
        let mut plain = build_plain_with_allocator("gavel-las", &params, dice()).expect("valid");
        let fast = conformance::run(&case, fast.as_mut()).expect("the run ends");
        let plain = conformance::run(&case, plain.as_mut()).expect("the run ends");
        assert!(
            fast.outcome == Some(Outcome::Finished) && conformance::are_equal(&fast, &plain),
            "seed {seed}, {params:?}: finish {:?} and plain {:?}",
            fast.finish_s,
            plain.finish_s
        );
        let count = fast.summary.iter().find(|(key, _)| *key == "preemptions");
        preemptions += count.expect("a counter").1;
    }
    assert!(preemptions > 2_000.0, "these worlds preempt: {preemptions}");
}
