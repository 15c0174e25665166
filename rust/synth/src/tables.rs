//! Measured statistics of the public traces: quantiles, shares and weights.
//!
//! The numbers are summary statistics that were measured on the public files (CC BY 4.0: Philly, Jeon et al. ATC 2019;
//! Helios Venus, Hu et al. SC 2021; PAI 2020, Weng et al. NSDI 2022). The files themselves are not part of this
//! project. The durations of Venus and PAI end at 172,800 s, because their files are capped there. The last points of
//! their tables therefore say nothing about the tail.

/// Probabilities at the points of every duration table.
pub(super) const POINTS: [f64; 9] = [0.01, 0.05, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 1.00];

/// Durations in seconds, at the probabilities of [`POINTS`], for gangs of up to `gpus_up_to` GPUs.
pub(super) struct DurationClass {
    pub(super) gpus_up_to: u32,
    pub(super) seconds: [f64; 9],
}

/// Arrival rates over the week, and sizes of bursts.
pub(super) struct ArrivalProfile {
    pub(super) rate_per_h: f64,
    /// Mean number of jobs in a burst; the number of jobs is geometrically distributed.
    pub(super) jobs_per_burst: f64,
    pub(super) hours: [f64; 24],
    /// Weights of the weekdays, starting with Monday.
    pub(super) weekdays: [f64; 7],
}

/// Mean gap in seconds between the jobs of a burst, for all shapes.
pub(super) const BURST_GAP_S: f64 = 3.0;

/// A shape that was measured on a public trace.
pub(super) struct Measured {
    /// Classes in ascending order of `gpus_up_to`; the last class includes all larger gangs.
    pub(super) durations: &'static [DurationClass],
    /// Gang sizes and their shares; the remaining probability belongs to single-GPU jobs.
    pub(super) gangs: &'static [(u32, f64)],
    pub(super) arrivals: ArrivalProfile,
}

const FLAT_HOURS: [f64; 24] = [1.0; 24];
const FLAT_WEEKDAYS: [f64; 7] = [1.0; 7];

pub(super) const PHILLY: Measured = Measured {
    durations: &[
        DurationClass {
            gpus_up_to: 1,
            seconds: [
                30.0,
                52.0,
                122.0,
                1117.0,
                2716.0,
                8512.0,
                19137.0,
                135_404.0,
                3_256_045.0,
            ],
        },
        DurationClass {
            gpus_up_to: 4,
            seconds: [
                6.0,
                11.0,
                21.0,
                367.0,
                45476.0,
                166_199.0,
                233_725.0,
                748_678.0,
                2_750_674.0,
            ],
        },
        DurationClass {
            gpus_up_to: 8,
            seconds: [
                33.0,
                125.0,
                1871.0,
                23683.0,
                173_288.0,
                352_409.0,
                525_631.0,
                1_066_894.0,
                4_628_226.0,
            ],
        },
        DurationClass {
            gpus_up_to: u32::MAX,
            seconds: [
                2.0,
                35.0,
                566.0,
                21137.0,
                104_218.0,
                252_560.0,
                446_126.0,
                1_152_387.0,
                1_710_643.0,
            ],
        },
    ],
    gangs: &[
        (2, 0.0221),
        (4, 0.0227),
        (8, 0.0200),
        (16, 0.0024),
        (32, 0.0008),
    ],
    arrivals: ArrivalProfile {
        rate_per_h: 31.5,
        jobs_per_burst: 2.2,
        hours: [
            1.27, 0.98, 1.12, 1.10, 0.70, 1.15, 1.67, 2.09, 1.11, 1.01, 1.02, 0.87, 0.75, 0.70,
            0.64, 0.65, 0.88, 0.67, 0.80, 0.73, 1.02, 0.92, 1.13, 1.01,
        ],
        weekdays: [0.86, 1.07, 1.14, 1.29, 1.44, 0.61, 0.59],
    },
};

pub(super) const HELIOS: Measured = Measured {
    durations: &[
        DurationClass {
            gpus_up_to: 1,
            seconds: [
                1.0, 6.0, 67.0, 190.0, 1179.0, 8425.0, 33380.0, 172_800.0, 172_800.0,
            ],
        },
        DurationClass {
            gpus_up_to: 4,
            seconds: [
                1.0, 6.0, 63.0, 193.0, 1840.0, 43915.0, 122_006.0, 172_800.0, 172_800.0,
            ],
        },
        DurationClass {
            gpus_up_to: 8,
            seconds: [
                1.0, 8.0, 98.0, 216.0, 1150.0, 25590.0, 65849.0, 172_800.0, 172_800.0,
            ],
        },
        DurationClass {
            gpus_up_to: u32::MAX,
            seconds: [
                1.0, 5.0, 65.0, 248.0, 2412.0, 49244.0, 107_624.0, 172_800.0, 172_800.0,
            ],
        },
    ],
    gangs: &[
        (2, 0.0554),
        (4, 0.0725),
        (8, 0.2515),
        (16, 0.0415),
        (24, 0.009),
        (32, 0.0272),
        (64, 0.0045),
        (128, 0.0055),
    ],
    arrivals: ArrivalProfile {
        rate_per_h: 29.0,
        jobs_per_burst: 1.3,
        hours: [
            0.90, 0.66, 0.60, 0.38, 0.27, 0.21, 0.19, 0.22, 0.37, 0.80, 1.29, 1.47, 1.16, 1.30,
            1.56, 1.66, 1.73, 1.73, 1.28, 1.31, 1.34, 1.36, 1.15, 1.04,
        ],
        weekdays: [1.03, 1.07, 1.28, 1.21, 0.95, 0.68, 0.78],
    },
};

pub(super) const PAI: Measured = Measured {
    durations: &[DurationClass {
        gpus_up_to: u32::MAX,
        seconds: [
            19.0, 29.0, 131.0, 618.0, 3699.0, 12201.0, 22752.0, 66192.0, 172_800.0,
        ],
    }],
    gangs: &[
        (2, 0.031),
        (3, 0.015),
        (4, 0.014),
        (5, 0.017),
        (8, 0.012),
        (10, 0.042),
        (16, 0.017),
        (20, 0.025),
        (32, 0.018),
        (50, 0.024),
        (100, 0.005),
    ],
    arrivals: ArrivalProfile {
        rate_per_h: 39.3,
        jobs_per_burst: 1.35,
        hours: FLAT_HOURS,
        weekdays: FLAT_WEEKDAYS,
    },
};

/// Our own shape `uniform`: a plain queueing model for benchmarks.
pub(super) mod uniform {
    use super::{ArrivalProfile, FLAT_HOURS, FLAT_WEEKDAYS};

    pub(crate) const GANGS: [(u32, f64); 4] = [(1, 0.5), (2, 0.2), (4, 0.2), (8, 0.1)];
    pub(crate) const MEAN_DURATION_S: f64 = 3600.0;
    pub(crate) const ARRIVALS: ArrivalProfile = ArrivalProfile {
        rate_per_h: 60.0,
        jobs_per_burst: 1.0,
        hours: FLAT_HOURS,
        weekdays: FLAT_WEEKDAYS,
    };
}
