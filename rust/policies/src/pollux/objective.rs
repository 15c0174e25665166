//! What the policy maximises: the power mean over jobs of (speed-up x discount + 0.001).

/// Added to every speed-up, so that a job without GPUs has a finite worth. As in the public code of Pollux.
const FLOOR: f64 = 0.001;

/// The exponent of the mean.
#[derive(Clone, Copy, Debug)]
pub(super) struct Objective {
    p: f64,
}

impl Objective {
    pub(super) fn new(p: f64) -> Self {
        Self { p }
    }

    /// What a job adds to the sum; rises with the speed-up whatever the exponent.
    pub(super) fn worth(self, speedup: f64) -> f64 {
        let value = speedup + FLOOR;
        if self.p == 0.0 {
            return libm::log(value);
        }
        self.p.signum() * libm::pow(value, self.p)
    }

    /// The mean, of the sum of what so many jobs add.
    pub(super) fn mean(self, sum: f64, jobs: usize) -> f64 {
        let mean = sum / jobs as f64;
        if self.p == 0.0 {
            libm::exp(mean)
        } else {
            libm::pow(mean.abs(), 1.0 / self.p)
        }
    }
}

/// Discount for a job whose GPUs change: what is left of its life so far if every change so far, and this one, cost so
/// much. Seconds.
pub(super) fn discount(age_s: f64, restarts: u32, delay_s: f64) -> f64 {
    let lived = (age_s - delay_s * f64::from(restarts)).max(0.0);
    if age_s + delay_s > 0.0 {
        lived / (age_s + delay_s)
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discounts_by_hand() {
        for (age_s, restarts, expected) in
            [(0.0, 0, 0.0), (60.0, 0, 0.666_667), (600.0, 2, 0.857_143)]
        {
            assert!((discount(age_s, restarts, 30.0) - expected).abs() < 1e-6);
        }
        assert!(discount(0.0, 3, 0.0).abs() < 1e-15);
    }

    #[test]
    fn the_mean_of_equal_values_is_that_value() {
        for p in [-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0] {
            let objective = Objective::new(p);
            let sum = 4.0 * objective.worth(2.0);
            assert!((objective.mean(sum, 4) - 2.001).abs() < 1e-12, "{p}");
            assert!(objective.worth(1.0) < objective.worth(1.1), "{p}");
        }
    }

    #[test]
    fn the_harmonic_mean_favours_the_worst_off() {
        let objective = Objective::new(-1.0);
        let even = 2.0 * objective.worth(1.0);
        let uneven = objective.worth(0.1) + objective.worth(3.0);
        assert!(objective.mean(even, 2) > objective.mean(uneven, 2));
    }
}
