//! The priority score: the mean share of its speed that a job kept so far.

use gangline_model::SimSpan;

/// Mean share in 10^-12, rounded down, of a sum over nanoseconds; 0 before any progress.
pub(super) fn mean_share(kept_ns: i128, time: SimSpan) -> u64 {
    if time.0 == 0 {
        return 0;
    }
    (kept_ns / i128::from(time.0)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ONE: i128 = 1_000_000_000_000;
    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn the_published_example() {
        // S = 1 for 100 s, then 0.5 for 300 s: 250 / 400
        let kept = ONE * 100 * i128::from(SECOND) + ONE / 2 * 300 * i128::from(SECOND);
        let score = mean_share(kept, SimSpan(400 * SECOND));
        assert_eq!(score, 625_000_000_000);
        assert_eq!(mean_share(0, SimSpan(0)), 0);
    }

    /// 0.3 all the time, and 0.2 and 0.4 for equal times.
    #[test]
    fn means_that_are_equal_in_decimals_tie() {
        let unit = |share: f64| (share * 1e12).round() as i128;
        let time = 7 * i128::from(SECOND);
        let (even, mixed) = (2 * time * unit(0.3), time * (unit(0.2) + unit(0.4)));
        let score = |kept| mean_share(kept, SimSpan(14 * SECOND));
        assert_eq!(score(even), score(mixed));
        assert_eq!(score(even), 300_000_000_000);
    }

    proptest! {
        #[test]
        fn it_lies_between_the_shares_of_its_segments(
            segments in prop::collection::vec((1_i128..=ONE, 1_i64..1_000_000 * SECOND), 1..20),
        ) {
            let kept = segments.iter().map(|(share, time)| share * i128::from(*time)).sum();
            let time = SimSpan(segments.iter().map(|segment| segment.1).sum());
            let score = i128::from(mean_share(kept, time));
            prop_assert!(score >= segments.iter().map(|segment| segment.0).min().expect("one"));
            prop_assert!(score <= segments.iter().map(|segment| segment.0).max().expect("one"));
        }

        /// However a job's time is cut up, the same share gives the same score.
        #[test]
        fn equal_shares_give_equal_scores(
            share in 1_i128..=ONE,
            times in prop::collection::vec(1_i64..1_000_000 * SECOND, 1..20),
        ) {
            let kept = times.iter().map(|time| share * i128::from(*time)).sum();
            let time = SimSpan(times.iter().sum());
            prop_assert_eq!(i128::from(mean_share(kept, time)), share);
        }
    }
}
