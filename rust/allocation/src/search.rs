//! The step that is common to all price searches: it finds the boundary between points that are too expensive and
//! points that are affordable.

/// Maximum number of Newton steps and halvings; 3 to 10 steps are usual.
const STEPS: u32 = 100;

/// Returns the affordable point that is nearest to `dear`. The search runs between `dear` and `cheap`; `cheap` must be
/// affordable.
///
/// `over` returns the excess cost of a point, and the derivative of this cost. The search uses Newton's method, but
/// halves the interval if a step would leave it. On a convex curve, no step leaves the interval.
pub(crate) fn affordable(
    mut dear: f64,
    mut cheap: f64,
    mut over: impl FnMut(f64) -> (f64, f64),
) -> f64 {
    let mut trial = dear;
    for _ in 0..STEPS {
        let (excess, slope) = over(trial);
        if excess > 0.0 {
            dear = trial;
        } else {
            cheap = trial;
        }
        let (low, high) = (dear.min(cheap), dear.max(cheap));
        let newton = trial - excess / slope;
        if (newton - trial).abs() <= 1e-15 * high {
            return newton.clamp(low, high);
        }
        let next = if newton > low && newton < high {
            newton
        } else {
            f64::midpoint(low, high)
        };
        if next.to_bits() == trial.to_bits() {
            break;
        }
        trial = next;
    }
    cheap
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_find_the_crossing() {
        // 1 / x is 0.5 at x = 2; the search approaches this point from both sides.
        let falling = |x: f64| (1.0 / x - 0.5, -1.0 / (x * x));
        assert!((affordable(0.1, 100.0, falling) - 2.0).abs() < 1e-14);
        let rising = |x: f64| (x.powi(3) - 8.0, 3.0 * x * x);
        assert!((affordable(50.0, 0.0, rising) - 2.0).abs() < 1e-14);
    }

    #[test]
    fn a_flat_curve_ends_at_the_cheap_side() {
        assert!(affordable(1.0, 3.0, |_| (-1.0, 0.0)) <= 3.0);
        assert!((affordable(1.0, 3.0, |_| (1.0, 0.0)) - 3.0).abs() < 1e-12);
    }
}
