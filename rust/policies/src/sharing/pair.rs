//! When two jobs should share a GPU: the pair rule of SJF-BSBF.

/// Times that are equal in decimals, which floats are not, differ by less, relative to them.
const ROUNDING: f64 = 1e-12; // ours: thousands of times what the roundings come to

/// A job that could join another one, and what each would do to the other. All times are in seconds.
///
/// # Examples
/// ```
/// use gangline_policies::sharing::Pair;
/// let pair = Pair { new_s: 40.0, resident_s: 100.0, xi_new: 2.0, xi_resident: 2.0, inflation: 1.0 };
/// assert_eq!((pair.t_con(), pair.t_seq()), (110.0, 120.0));
/// assert!(pair.shares());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// Time that the newcomer needs alone at full batch (A).
    pub new_s: f64,
    /// Time that the resident still needs alone (B).
    pub resident_s: f64,
    /// Slowdown factor of the newcomer beside the resident, at least 1.
    pub xi_new: f64,
    /// Slowdown factor of the resident beside the newcomer, at least 1.
    pub xi_resident: f64,
    /// Iteration time of the newcomer at its sub-batch over that at full batch (g), at least 1.
    pub inflation: f64,
}

impl Pair {
    /// Mean completion time of the two, from now, if the newcomer starts at once.
    ///
    /// The formula of the case that does not hold is never the smaller one, and the minimum is monotone in the times
    /// to the last bit.
    pub fn t_con(&self) -> f64 {
        let (a, b, g) = (self.new_s, self.resident_s, self.inflation);
        let (xi_a, xi_b) = (self.xi_new, self.xi_resident);
        let resident_first = (g * a) / 2.0 + (1.0 - 1.0 / (2.0 * xi_a)) * (xi_b * b);
        let newcomer_first = b / 2.0 + (1.0 - 1.0 / (2.0 * xi_b)) * ((xi_a * g) * a);
        resident_first.min(newcomer_first)
    }

    /// Mean completion time of the two, from now, if the newcomer waits for the end of the resident.
    pub fn t_seq(&self) -> f64 {
        self.resident_s + self.new_s / 2.0
    }

    /// The c for which sharing pays if and only if B > c A. It depends on the slowdown factors and the inflation alone.
    pub fn threshold(&self) -> f64 {
        let (xi_a, xi_b, g) = (self.xi_new, self.xi_resident, self.inflation);
        let q = (xi_b * (2.0 * xi_a - 1.0)) / (2.0 * xi_a);
        let newcomer_first = (g * xi_a) * (2.0 - 1.0 / xi_b) - 1.0;
        if q < 1.0 {
            ((g - 1.0) / (2.0 * (1.0 - q))).min(newcomer_first)
        } else {
            newcomer_first
        }
    }

    /// Whether sharing lowers the mean completion time; a tie does not.
    pub fn shares(&self) -> bool {
        let (a, b) = (self.new_s, self.resident_s);
        b - self.threshold() * a > ROUNDING * (a + b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gangline_rng::{Purpose, Stream};

    fn pair(new_s: f64, resident_s: f64, xi_new: f64, xi_resident: f64, inflation: f64) -> Pair {
        Pair {
            new_s,
            resident_s,
            xi_new,
            xi_resident,
            inflation,
        }
    }

    /// A, B, both slowdown factors, g; mean completion times, threshold, whether to share. By hand.
    const GOLDEN: [([f64; 5], [f64; 3], bool); 16] = [
        ([100.0, 100.0, 1.2, 1.2, 1.0], [120.0, 150.0, 0.0], true),
        ([100.0, 100.0, 1.5, 1.5, 1.0], [150.0, 150.0, 1.0], false),
        ([100.0, 100.0, 1.6, 1.6, 1.0], [160.0, 150.0, 1.2], false),
        ([40.0, 100.0, 2.0, 2.0, 1.0], [110.0, 120.0, 2.0], true),
        ([50.0, 100.0, 2.0, 2.0, 1.0], [125.0, 125.0, 2.0], false),
        ([60.0, 100.0, 2.0, 2.0, 1.0], [140.0, 130.0, 2.0], false),
        ([300.0, 100.0, 1.4, 1.4, 1.0], [240.0, 250.0, 0.0], true),
        (
            [300.0, 100.0, 1.2, 1.8, 1.0],
            [255.0, 250.0, 0.733_333],
            false,
        ),
        (
            [300.0, 100.0, 1.8, 1.2, 1.0],
            [236.666_667, 250.0, 0.0],
            true,
        ),
        ([10.0, 1000.0, 3.0, 3.0, 1.0], [525.0, 1005.0, 4.0], true),
        (
            [400.0, 1000.0, 3.0, 1.1, 1.0],
            [1_116.666_667, 1200.0, 0.0],
            true,
        ),
        ([100.0, 100.0, 1.0, 1.0, 1.0], [100.0, 150.0, 0.0], true),
        (
            [100.0, 100.0, 1.2, 1.2, 1.2],
            [130.0, 150.0, 0.333_333],
            true,
        ),
        (
            [100.0, 300.0, 1.2, 1.2, 2.0],
            [290.0, 350.0, 1.666_667],
            true,
        ),
        ([100.0, 30.0, 1.1, 1.1, 1.2], [78.0, 80.0, 0.25], true),
        ([100.0, 20.0, 1.1, 1.1, 1.2], [72.0, 70.0, 0.25], false),
    ];

    /// Equal in decimals: B = c A, with c = 2 xi - 2 for equal slowdown factors from 1.5 on and g = 1.
    #[test]
    fn a_tie_in_decimals_does_not_share() {
        for (xi, a, b) in [
            (1.7, 1.5, 2.1),
            (1.7, 7.0, 9.8),
            (1.6, 5.0, 6.0),
            (1.9, 0.5, 0.9),
        ] {
            assert!(!pair(a, b, xi, xi, 1.0).shares(), "{xi} {a} {b}");
            assert!(pair(a, b + 1e-9, xi, xi, 1.0).shares(), "{xi} {a} {b}");
        }
    }

    #[test]
    fn golden_pairs() {
        for ([a, b, xi_a, xi_b, g], [t_con, t_seq, c], shares) in GOLDEN {
            let pair = pair(a, b, xi_a, xi_b, g);
            let near = |found: f64, expected: f64| (found - expected).abs() < 1e-6;
            assert!(near(pair.t_con(), t_con), "{pair:?}: {}", pair.t_con());
            assert!(near(pair.t_seq(), t_seq), "{pair:?}: {}", pair.t_seq());
            assert!(near(pair.threshold(), c), "{pair:?}: {}", pair.threshold());
            assert_eq!(pair.shares(), shares, "{pair:?}");
        }
    }

    /// Mean completion time if the newcomer joins after `kappa` seconds, step by step.
    fn mean_at(pair: &Pair, kappa: f64) -> f64 {
        let work_a = pair.inflation * pair.new_s;
        let left_b = pair.resident_s - kappa;
        let (end_a, end_b) = (pair.xi_new * work_a, pair.xi_resident * left_b);
        let (last_a, last_b) = if end_a >= end_b {
            (end_b + (work_a - end_b / pair.xi_new), end_b)
        } else {
            (end_a, end_a + (left_b - end_a / pair.xi_resident))
        };
        kappa + f64::midpoint(last_a, last_b)
    }

    #[test]
    fn the_rule_takes_the_better_end_and_no_instant_between_is_better() {
        let stream = Stream::new(7, Purpose::Estimates);
        for at in 0..4_000 {
            let uniform = |slot| stream.draw(at, slot, 0).uniform();
            let pair = pair(
                1.0 + 500.0 * uniform(0),
                1.0 + 500.0 * uniform(1),
                1.0 + 2.0 * uniform(2),
                1.0 + 2.0 * uniform(3),
                1.0 + if at % 2 == 0 { 0.0 } else { 2.0 * uniform(4) },
            );
            // at its own end the newcomer goes on at full batch only if it had waited
            let now = mean_at(&pair, 0.0);
            assert!((pair.t_con() - now).abs() <= 1e-9 * now, "{pair:?}");
            let gain = pair.t_seq() - pair.t_con();
            if gain.abs() > 1e-9 * pair.t_seq() {
                assert_eq!(pair.shares(), gain > 0.0, "{pair:?}");
            }
            let best = pair.t_con().min(pair.t_seq());
            for step in 0..=50 {
                let mean = mean_at(&pair, pair.resident_s * f64::from(step) / 50.0);
                assert!(mean >= best * (1.0 - 1e-12), "{pair:?} at {step}");
            }
        }
    }
}
