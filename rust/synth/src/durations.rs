//! Durations as a function of the gang size and a probability.

use super::tables::{DurationClass, POINTS};

/// A piecewise log-linear quantile function. It is constant below a probability of 1 %.
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

    /// Returns the duration at probability `u`, for `0 <= u < 1`.
    fn at(&self, u: f64) -> f64 {
        let above = POINTS.partition_point(|point| *point <= u);
        if above == 0 {
            return self.seconds[0];
        }
        let below = above - 1;
        let part = (u - POINTS[below]) / (POINTS[above] - POINTS[below]);
        libm::exp(self.logs[below] + part * (self.logs[above] - self.logs[below]))
    }
}

/// Source of the durations.
pub(super) enum Durations {
    /// One table per class of gang sizes, in ascending order of size.
    Quantiles(Vec<QuantileTable>),
    /// The same exponential distribution for all gangs.
    Exponential { mean_s: f64 },
}

impl Durations {
    /// Returns the duration of a gang at probability `u`, before noise, limits and rounding.
    pub(super) fn at(&self, gpus: u32, u: f64) -> f64 {
        match self {
            Self::Quantiles(tables) => table_of(tables, gpus).at(u),
            Self::Exponential { mean_s } => -libm::log(1.0 - u) * mean_s,
        }
    }
}

fn table_of(tables: &[QuantileTable], gpus: u32) -> &QuantileTable {
    let index = tables.partition_point(|table| table.gpus_up_to < gpus);
    &tables[index]
}

#[cfg(test)]
mod tests {
    use super::super::tables::{HELIOS, PHILLY};
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
        // Halfway between 50 % (1117 s) and 75 % (2716 s), the quantile is the geometric mean of the two durations.
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
    fn exponential_median_by_hand() {
        let durations = Durations::Exponential { mean_s: 100.0 };
        assert!((durations.at(1, 0.5) - 69.314_718_055_994_53).abs() < 1e-12);
    }
}
