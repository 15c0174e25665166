//! Durations: draws, and the exact means that turn a load into a rate.

use super::tables::{DurationClass, POINTS};

/// What multiplies and what limits a drawn duration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shaping {
    /// Standard deviation of the logarithm of the noise; 0 = none.
    pub(super) noise: f64,
    /// Upper limit, infinite if there is none.
    pub(super) max_s: f64,
}

/// A piecewise log-linear quantile function: below 1 % it is constant.
pub(super) struct QuantileTable {
    gpus_up_to: u32,
    seconds: [f64; 9],
    logs: [f64; 9],
}

impl QuantileTable {
    pub(super) fn new(class: &DurationClass) -> Self {
        let logs = class.seconds.map(libm::log);
        Self {
            gpus_up_to: class.gpus_up_to,
            seconds: class.seconds,
            logs,
        }
    }

    /// The duration at probability `u`, `0 <= u < 1`.
    fn at(&self, u: f64) -> f64 {
        let above = POINTS.partition_point(|point| *point <= u);
        if above == 0 {
            return self.seconds[0];
        }
        let below = above - 1;
        let part = (u - POINTS[below]) / (POINTS[above] - POINTS[below]);
        libm::exp(self.logs[below] + part * (self.logs[above] - self.logs[below]))
    }

    /// Exact mean of the shaped duration.
    fn mean_s(&self, shaping: Shaping) -> f64 {
        let mut mean = POINTS[0] * shaped_mean(self.logs[0], self.logs[0], shaping);
        for i in 1..POINTS.len() {
            let share = POINTS[i] - POINTS[i - 1];
            mean += share * shaped_mean(self.logs[i - 1], self.logs[i], shaping);
        }
        mean
    }
}

/// Mean of `min(exp(y + noise z), max_s)`, `y` uniform on `[low, high]`, `z` standard normal.
fn shaped_mean(low: f64, high: f64, shaping: Shaping) -> f64 {
    let Shaping { noise, max_s } = shaping;
    let is_point = high <= low;
    if max_s.is_infinite() {
        let plain = if is_point {
            libm::exp(low)
        } else {
            (libm::exp(high) - libm::exp(low)) / (high - low)
        };
        return plain * libm::exp(noise * noise / 2.0);
    }
    let cut = libm::log(max_s);
    if noise <= 0.0 {
        if is_point {
            return libm::exp(low).min(max_s);
        }
        let knee = cut.clamp(low, high);
        return (libm::exp(knee) - libm::exp(low) + max_s * (high - knee)) / (high - low);
    }
    // E min = e^(y + s^2/2) Phi((c - y)/s - s) + M Phi((y - c)/s), with c = ln M; the integral
    // over y of the first term leaves a second M Phi, that of the other is M s (z Phi + phi).
    let free =
        |y: f64| libm::exp(y + noise * noise / 2.0) * normal_below((cut - y) / noise - noise);
    if is_point {
        return free(low) + max_s * normal_below((low - cut) / noise);
    }
    let primitive = |y: f64| {
        let z = (y - cut) / noise;
        let below = normal_below(z);
        free(y) + max_s * (below + noise * (z * below + normal_density(z)))
    };
    (primitive(high) - primitive(low)) / (high - low)
}

fn normal_below(z: f64) -> f64 {
    libm::erfc(-z * std::f64::consts::FRAC_1_SQRT_2) / 2.0
}

fn normal_density(z: f64) -> f64 {
    libm::exp(-z * z / 2.0) / libm::sqrt(2.0 * std::f64::consts::PI)
}

/// Where durations come from.
pub(super) enum Durations {
    /// One table per class of gang sizes, ordered.
    Quantiles(Vec<QuantileTable>),
    /// The same exponential law for all gangs.
    Exponential { mean_s: f64 },
}

impl Durations {
    /// The unshaped duration of a gang at probability `u`.
    pub(super) fn at(&self, gpus: u32, u: f64) -> f64 {
        match self {
            Self::Quantiles(tables) => table_of(tables, gpus).at(u),
            Self::Exponential { mean_s } => -libm::log(1.0 - u) * mean_s,
        }
    }

    /// Exact mean of the shaped duration of a gang (before rounding to milliseconds).
    pub(super) fn mean_s(&self, gpus: u32, shaping: Shaping) -> f64 {
        match self {
            Self::Quantiles(tables) => table_of(tables, gpus).mean_s(shaping),
            Self::Exponential { mean_s } => exponential_mean(*mean_s, shaping),
        }
    }
}

/// Mean of `min(X exp(noise z), max_s)`, `X` exponential, `z` standard normal.
///
/// For a fixed `z` it is `m (1 - e^(-max_s / m))` with `m = mean exp(noise z)`. The integral over
/// `z` has no closed form; the trapezoidal sum converges faster than any power for such smooth,
/// decaying functions, so 400 steps over 20 standard deviations are exact to rounding.
fn exponential_mean(mean_s: f64, shaping: Shaping) -> f64 {
    let Shaping { noise, max_s } = shaping;
    let cut = |mean: f64| {
        if max_s.is_infinite() {
            mean
        } else {
            mean * -libm::expm1(-max_s / mean)
        }
    };
    if noise <= 0.0 {
        return cut(mean_s);
    }
    if max_s.is_infinite() {
        return mean_s * libm::exp(noise * noise / 2.0);
    }
    let step = 0.05;
    (-200..=200)
        .map(|i| {
            let z = f64::from(i) * step;
            step * normal_density(z) * cut(mean_s * libm::exp(noise * z))
        })
        .sum()
}

fn table_of(tables: &[QuantileTable], gpus: u32) -> &QuantileTable {
    let index = tables.partition_point(|table| table.gpus_up_to < gpus);
    &tables[index]
}

#[cfg(test)]
mod tests {
    use super::super::tables::{HELIOS, PAI, PHILLY};
    use super::*;

    fn tables(classes: &[DurationClass]) -> Vec<QuantileTable> {
        classes.iter().map(QuantileTable::new).collect()
    }

    #[test]
    fn quantiles_are_met_at_the_points_and_log_linear_between() {
        let tables = tables(PHILLY.durations);
        let table = table_of(&tables, 1);
        for (point, seconds) in POINTS.iter().zip([30.0, 52.0, 122.0, 1117.0, 2716.0]) {
            assert!((table.at(*point) - seconds).abs() < 1e-9 * seconds);
        }
        assert!((table.at(0.0) - 30.0).abs() < 1e-12 && (table.at(0.009) - 30.0).abs() < 1e-12);
        // Half way between 50 % (1117) and 75 % (2716): the geometric mean.
        assert!((table.at(0.625) - (1117.0_f64 * 2716.0).sqrt()).abs() < 1e-6);
        assert!(table.at(1.0 - f64::EPSILON) <= 3_256_045.0);
    }

    #[test]
    fn classes_split_at_1_4_8() {
        let tables = tables(HELIOS.durations);
        let medians: Vec<f64> = [1, 2, 4, 5, 8, 9, 128]
            .map(|gpus| table_of(&tables, gpus).seconds[3])
            .to_vec();
        assert_eq!(medians, [190.0, 193.0, 193.0, 216.0, 216.0, 248.0, 248.0]);
    }

    #[test]
    fn means_equal_a_fine_sum() {
        // Midpoint sums over u (and over z, for noise) are the slow, obvious form of the mean.
        let steps = 200_000;
        for class in PHILLY
            .durations
            .iter()
            .chain(HELIOS.durations)
            .chain(PAI.durations)
        {
            let table = QuantileTable::new(class);
            for max_s in [50.0, 40_000.0, f64::INFINITY] {
                let sum: f64 = (0..steps)
                    .map(|i| table.at((f64::from(i) + 0.5) / f64::from(steps)).min(max_s))
                    .sum();
                let exact = table.mean_s(Shaping { noise: 0.0, max_s });
                assert!(
                    (sum / f64::from(steps) / exact - 1.0).abs() < 1e-5,
                    "{exact} {max_s}"
                );
            }
        }
    }

    #[test]
    fn means_with_noise_equal_a_fine_sum() {
        let table = QuantileTable::new(&PHILLY.durations[1]);
        let (steps, noises) = (2_000, 800);
        for (noise, max_s) in [(0.3, 50_000.0), (1.2, 50_000.0), (0.5, 10.0), (0.7, 1e9)] {
            let mut sum = 0.0;
            for j in 0..noises {
                let z = gangline_rng::inverse_normal((f64::from(j) + 0.5) / f64::from(noises));
                let factor = libm::exp(noise * z);
                sum += (0..steps)
                    .map(|i| {
                        (table.at((f64::from(i) + 0.5) / f64::from(steps)) * factor).min(max_s)
                    })
                    .sum::<f64>();
            }
            let slow = sum / f64::from(steps * noises);
            let exact = table.mean_s(Shaping { noise, max_s });
            assert!(
                (slow / exact - 1.0).abs() < 3e-3,
                "{noise} {max_s}: {slow} {exact}"
            );
        }
    }

    #[test]
    fn exponential_means_by_hand() {
        let durations = Durations::Exponential { mean_s: 100.0 };
        let mean = |max_s| durations.mean_s(4, Shaping { noise: 0.0, max_s });
        assert!((mean(f64::INFINITY) - 100.0).abs() < 1e-12);
        // 100 (1 - 1/e)
        assert!((mean(100.0) - 63.212_055_882_855_77).abs() < 1e-12);
        // Noise alone multiplies the mean by e^(0.5^2 / 2).
        let noisy = |max_s| durations.mean_s(1, Shaping { noise: 0.5, max_s });
        assert!((noisy(f64::INFINITY) - 113.314_845_306_682_63).abs() < 1e-9);
        assert!((noisy(1e9) - noisy(f64::INFINITY)).abs() < 1e-9);
        // The slow, obvious form: a midpoint sum over probabilities.
        let steps = 200_000;
        let sum: f64 = (0..steps)
            .map(|i| {
                let z = gangline_rng::inverse_normal((f64::from(i) + 0.5) / f64::from(steps));
                let mean = 100.0 * libm::exp(0.5 * z);
                mean * -libm::expm1(-80.0 / mean)
            })
            .sum();
        assert!((sum / f64::from(steps) / noisy(80.0) - 1.0).abs() < 1e-6);
        assert!((durations.at(1, 0.5) - 69.314_718_055_994_53).abs() < 1e-12);
    }
}
