//! Counter-based random numbers: every draw is a pure function of five numbers, which form its address.
//!
//! The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
//! It has no state, so no draw depends on earlier draws. One draw costs one block (about 10 ns).
//! `tests/reference/philox.py` implements the same generator in Python.
//!
//! # Layout
//! The address of a draw is `(seed, purpose, id0, id1, counter)`. The words of a block are:
//!
//! | word | bits | holds |
//! |---|---|---|
//! | key 0, key 1 | 32 + 32 | `seed`, low half, high half |
//! | counter 0, 1 | 32 + 32 | `id0`, low half, high half |
//! | counter 2 | 32 | `id1` |
//! | counter 3 | 8 + 24 | purpose code (high 8 bits), `counter` (low 24 bits) |
//!
//! These fields fill exactly the 192 input bits of a block, and no two fields share a bit. Two addresses therefore
//! never share a block. The price is that `id1` has only 32 bits and `counter` only 24 bits. The four words of the
//! output form two lanes: `a = word 0 + 2^32 word 1`, and `b` in the same way from words 2 and 3. All samplers use lane
//! `a`; only [`Draw::below`] may need more bits.
#![forbid(unsafe_code)]

/// Purpose of a draw; each purpose has a stream of its own. The codes affect the results, so they never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum Purpose {
    /// Arrivals of jobs.
    Arrivals = 1,
    /// Durations of jobs.
    Durations = 2,
    /// Models that jobs train.
    Models = 3,
    /// Gang sizes.
    Gangs = 4,
    /// Users of jobs.
    Users = 5,
    /// Virtual clusters of jobs.
    Vcs = 6,
    /// Failures and repairs of servers: `id0` is the server; an even `id1` stands for an up period, and an odd `id1`
    /// for a down period.
    Failures = 7,
    /// Errors of the durations and rates that a policy knows.
    Estimates = 8,
    /// Random placement rules: `id0` is the job index, and `id1` is the number of starts so far.
    Placement = 9,
    /// Random choices of a policy.
    Policy = 10,
    /// Any other draws that a caller needs.
    Extra = 11,
    /// Parameters that randomised tests draw once per world.
    Population = 12,
    /// Reserved; no code uses this purpose.
    Repairs = 13,
    /// Log-normal noise factors for durations.
    Noise = 14,
    /// Ratio of the actual run time of a whole job to the time that policies expect: `id0` is the job index.
    JobPace = 15,
    /// Ratio of actual to expected time for one stretch of a part: `id0` is the job index, `id1` is the stretch, and
    /// `counter` is the part.
    RunPace = 16,
    /// Ratio of actual to expected time for each of a gang's servers except the first: `id0` is the job index, `id1` is
    /// the stretch, and `counter` is the server, counted from 1.
    Stragglers = 17,
}

impl Purpose {
    /// All purposes, in the order of their codes.
    pub const ALL: [Self; 17] = [
        Self::Arrivals,
        Self::Durations,
        Self::Models,
        Self::Gangs,
        Self::Users,
        Self::Vcs,
        Self::Failures,
        Self::Estimates,
        Self::Placement,
        Self::Policy,
        Self::Extra,
        Self::Population,
        Self::Repairs,
        Self::Noise,
        Self::JobPace,
        Self::RunPace,
        Self::Stragglers,
    ];

    /// Returns the code of the purpose, 1 to 255, which never changes.
    pub const fn code(self) -> u8 {
        self as u8
    }
}

const ROUNDS: usize = 10;
// Multipliers and key increments from the paper.
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Computes one block of Philox4x32-10.
///
/// ```
/// # use gangline_rng::philox4x32;
/// assert_eq!(philox4x32([0; 4], [0; 2])[0], 0x6627_e8d5);
/// ```
#[inline]
pub const fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    let mut round = 0;
    while round < ROUNDS {
        let p0 = MULTIPLIERS[0] as u64 * c0 as u64;
        let p1 = MULTIPLIERS[1] as u64 * c2 as u64;
        (c0, c1, c2, c3) = (
            (p1 >> 32) as u32 ^ c1 ^ k0,
            p1 as u32,
            (p0 >> 32) as u32 ^ c3 ^ k1,
            p0 as u32,
        );
        k0 = k0.wrapping_add(KEY_STEPS[0]);
        k1 = k1.wrapping_add(KEY_STEPS[1]);
        round += 1;
    }
    [c0, c1, c2, c3]
}

/// The stream of all draws for one purpose and one seed. A stream takes 16 bytes and is `Copy`.
///
/// ```
/// # use gangline_rng::{Purpose, Stream};
/// let failures = Stream::new(7, Purpose::Failures);
/// let (server, changes_so_far) = (12, 0);
/// let hours = failures.draw(server, changes_so_far, 0).exponential(1000.0);
/// assert!(hours >= 0.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    key: [u32; 2],
    purpose: u32,
}

impl Stream {
    /// Exclusive upper limit for the `counter` of a draw.
    pub const COUNTER_LIMIT: u32 = 1 << 24;

    /// Returns the stream for `purpose` and `seed`.
    pub const fn new(seed: u64, purpose: Purpose) -> Self {
        Self {
            key: [seed as u32, (seed >> 32) as u32],
            purpose: (purpose.code() as u32) << 24,
        }
    }

    /// Returns draw number `counter` for the pair `(id0, id1)`.
    ///
    /// # Panics
    /// Panics if `counter` is not below [`Stream::COUNTER_LIMIT`], because its bits would then overlap the bits of the
    /// purpose.
    #[inline]
    pub const fn draw(self, id0: u64, id1: u32, counter: u32) -> Draw {
        assert!(
            counter < Self::COUNTER_LIMIT,
            "a draw's counter has 24 bits"
        );
        let words = [id0 as u32, (id0 >> 32) as u32, id1, self.purpose | counter];
        Draw {
            block: philox4x32(words, self.key),
            key: self.key,
        }
    }
}

/// One draw: 128 random bits. Each method turns these bits into a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    block: [u32; 4],
    key: [u32; 2],
}

impl Draw {
    const fn lane(self, lane: usize) -> u64 {
        self.block[2 * lane] as u64 | (self.block[2 * lane + 1] as u64) << 32
    }

    /// Returns a number that is uniformly distributed over all 64-bit integers (lane `a`).
    #[inline]
    pub const fn uniform_u64(self) -> u64 {
        self.lane(0)
    }

    /// Returns a uniformly distributed number in `[0, 1)`: the upper 53 bits of lane `a`, times 2^-53.
    #[inline]
    pub fn uniform(self) -> f64 {
        (self.lane(0) >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// Returns a uniformly distributed number in `0..n`, without bias.
    ///
    /// The method is multiply and reject (Lemire 2019). The result is the high half of the 128-bit product `lane * n`,
    /// unless the low half is below `2^64 mod n`. In that case, lane `b` is tried; if it fails too, the block is
    /// enciphered again with the same key. For `n` below 2^32, the probability of a second try is below 2^-32.
    ///
    /// # Panics
    /// Panics if `n` is 0.
    #[inline]
    pub const fn below(self, n: u64) -> u64 {
        assert!(n > 0, "there is no integer below 0");
        let mut draw = self;
        let mut lane = 0;
        loop {
            let product = draw.lane(lane) as u128 * n as u128;
            // The threshold is below n, so the modulo is computed only if the low half is below n.
            if product as u64 >= n || product as u64 >= n.wrapping_neg() % n {
                return (product >> 64) as u64;
            }
            lane += 1;
            if lane == 2 {
                draw.block = philox4x32(draw.block, draw.key);
                lane = 0;
            }
        }
    }

    /// Returns an exponentially distributed number with the given mean: `-mean ln(1 - u)`. The number can be 0 but is
    /// never infinite.
    #[inline]
    pub fn exponential(self, mean: f64) -> f64 {
        -libm::log(1.0 - self.uniform()) * mean
    }

    /// Returns a standard normal number: [`inverse_normal`] of (the upper 52 bits of lane `a` plus one half) times
    /// 2^-52. The argument is distributed symmetrically around 1/2 and is never 0 or 1. The absolute value of the
    /// result is at most about 8.2.
    #[inline]
    pub fn normal(self) -> f64 {
        let midpoint = (self.lane(0) >> 12) as f64 + 0.5;
        inverse_normal(midpoint * (1.0 / 4_503_599_627_370_496.0))
    }

    /// Returns a log-normally distributed number with median 1: `exp(sigma * normal)`.
    #[inline]
    pub fn log_normal(self, sigma: f64) -> f64 {
        libm::exp(sigma * self.normal())
    }

    /// Returns a log-normally distributed number; values below 1 are raised to 1: `exp(sigma * max(normal, 0))`.
    #[inline]
    pub fn log_normal_from_one(self, sigma: f64) -> f64 {
        libm::exp(sigma * self.normal().max(0.0))
    }

    /// Returns a geometrically distributed number with mean `mean >= 1`: the number of trials 1, 2, 3, ... up to and
    /// including the first success.
    #[inline]
    pub fn geometric(self, mean: f64) -> u64 {
        if mean <= 1.0 {
            return 1;
        }
        let failures = libm::floor(libm::log(1.0 - self.uniform()) / libm::log(1.0 - 1.0 / mean));
        1 + failures as u64
    }

    /// Returns an index in `table`; the probability of each index is proportional to its weight.
    #[inline]
    pub fn index(self, table: &WeightTable) -> usize {
        table.index_at(self.uniform())
    }
}

/// Weights that are prepared for fast draws. A draw costs one multiplication and one binary search.
///
/// ```
/// # use gangline_rng::{Purpose, Stream, WeightTable};
/// let sizes = WeightTable::new(&[3.0, 0.0, 1.0]).expect("two weights are above 0");
/// assert_eq!((sizes.index_at(0.74), sizes.index_at(0.75)), (0, 2));
/// let drawn = Stream::new(1, Purpose::Gangs).draw(0, 0, 0).index(&sizes);
/// assert!(drawn == 0 || drawn == 2);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct WeightTable {
    cumulative: Vec<f64>,
    last: usize,
}

impl WeightTable {
    /// Sums the weights once, in order. Returns `None` unless all weights are finite and >= 0, and at least one weight
    /// is above 0.
    pub fn new(weights: &[f64]) -> Option<Self> {
        if weights
            .iter()
            .any(|weight| !weight.is_finite() || *weight < 0.0)
        {
            return None;
        }
        let last = weights.iter().rposition(|weight| *weight > 0.0)?;
        let mut total = 0.0;
        let cumulative: Vec<f64> = weights
            .iter()
            .map(|weight| {
                total += weight;
                total
            })
            .collect();
        total.is_finite().then_some(Self { cumulative, last })
    }

    /// Creates Zipf weights: item `k` of `1..=items` has weight `k^-exponent`, so index 0 is the most frequent. Returns
    /// `None` if `items` is 0 or `exponent` is not a number.
    pub fn zipf(items: u32, exponent: f64) -> Option<Self> {
        let weights: Vec<f64> = (1..=items)
            .map(|rank| libm::pow(f64::from(rank), -exponent))
            .collect();
        Self::new(&weights)
    }

    /// Returns the first index whose cumulative weight is above `u` times the total, for `0 <= u < 1`.
    #[inline]
    pub fn index_at(&self, u: f64) -> usize {
        let target = u * self.cumulative[self.last];
        // Rounding may make the product equal to the total.
        self.cumulative
            .partition_point(|sum| *sum <= target)
            .min(self.last)
    }
}

// Coefficients, lowest degree first, of Wichura's algorithm AS 241 (PPND16), Applied Statistics 37 (1988) 477-484:
// numerator and denominator for the centre, the middle range and the tails.
const CENTRE: [[f64; 8]; 2] = [
    [
        3.387_132_872_796_366_5,
        133.141_667_891_784_38,
        1_971.590_950_306_551_3,
        13_731.693_765_509_46,
        45_921.953_931_549_87,
        67_265.770_927_008_7,
        33_430.575_583_588_13,
        2_509.080_928_730_122_7,
    ],
    [
        1.0,
        42.313_330_701_600_91,
        687.187_007_492_057_9,
        5_394.196_021_424_751,
        21_213.794_301_586_597,
        39_307.895_800_092_71,
        28_729.085_735_721_943,
        5_226.495_278_852_854,
    ],
];
const SHOULDER: [[f64; 8]; 2] = [
    [
        1.423_437_110_749_683_5,
        4.630_337_846_156_546,
        5.769_497_221_460_691,
        3.647_848_324_763_204_5,
        1.270_458_252_452_368_4,
        0.241_780_725_177_450_6,
        0.022_723_844_989_269_184,
        7.745_450_142_783_414e-4,
    ],
    [
        1.0,
        2.053_191_626_637_759,
        1.676_384_830_183_803_8,
        0.689_767_334_985_1,
        0.148_103_976_427_480_08,
        0.015_198_666_563_616_457,
        5.475_938_084_995_345e-4,
        1.050_750_071_644_416_9e-9,
    ],
];
const TAIL: [[f64; 8]; 2] = [
    [
        6.657_904_643_501_103,
        5.463_784_911_164_114,
        1.784_826_539_917_291_3,
        0.296_560_571_828_504_87,
        0.026_532_189_526_576_124,
        0.001_242_660_947_388_078_4,
        2.711_555_568_743_487_6e-5,
        2.010_334_399_292_288_1e-7,
    ],
    [
        1.0,
        0.599_832_206_555_888,
        0.136_929_880_922_735_8,
        0.014_875_361_290_850_615,
        7.868_691_311_456_133e-4,
        1.846_318_317_510_054_8e-5,
        1.421_511_758_316_446e-7,
        2.044_263_103_389_939_8e-15,
    ],
];

fn rational(coefficients: &[[f64; 8]; 2], x: f64) -> f64 {
    let horner = |terms: &[f64; 8]| terms.iter().rev().fold(0.0, |sum, term| sum * x + term);
    horner(&coefficients[0]) / horner(&coefficients[1])
}

/// Returns the standard normal quantile of `p`, for `0 < p < 1`, computed with algorithm AS 241.
///
/// The relative error is below 1e-15 at every point that a draw can reach. The largest error at 20,000 points, compared
/// with 40-digit arithmetic, was 6.9e-16.
pub fn inverse_normal(p: f64) -> f64 {
    let centred = p - 0.5;
    if libm::fabs(centred) <= 0.425 {
        return centred * rational(&CENTRE, 0.180_625 - centred * centred);
    }
    let tail = if centred < 0.0 { p } else { 1.0 - p };
    let depth = libm::sqrt(-libm::log(tail));
    let size = if depth <= 5.0 {
        rational(&SHOULDER, depth - 1.6)
    } else {
        rational(&TAIL, depth - 5.0)
    };
    if centred < 0.0 { -size } else { size }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "goldens are exact")]
    use super::*;

    #[test]
    fn published_vectors_of_philox4x32_10() {
        // Known answers of Random123, the authors' library, for philox4x32 with 10 rounds.
        assert_eq!(
            philox4x32([0; 4], [0; 2]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox4x32([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        let digits_of_pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        assert_eq!(
            philox4x32(digits_of_pi, [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn layout_puts_each_field_in_its_own_bits() {
        let draw = Stream::new(0x2222_2222_1111_1111, Purpose::Gangs).draw(
            0x4444_4444_3333_3333,
            0x5555_5555,
            0x66_6666,
        );
        let words = [0x3333_3333, 0x4444_4444, 0x5555_5555, 0x0466_6666];
        assert_eq!(draw.block, philox4x32(words, [0x1111_1111, 0x2222_2222]));
    }

    #[test]
    fn codes_are_stable_and_distinct() {
        let codes: Vec<u8> = Purpose::ALL.iter().map(|purpose| purpose.code()).collect();
        assert_eq!(codes, (1..=17).collect::<Vec<u8>>());
    }

    struct Golden {
        draw: Draw,
        bits: u64,
        below_10: u64,
        below_odd: u64,
        exponential_3: f64,
        normal: f64,
        geometric: u64,
    }

    /// The values come from `tests/reference/philox.py`, which `tests/unit/policies/test_philox.py` checks against the
    /// same table of values.
    fn goldens() -> [Golden; 5] {
        let at =
            |seed, purpose, id0, id1, counter| Stream::new(seed, purpose).draw(id0, id1, counter);
        let row = |draw, bits, below, exponential_3, normal, geometric| {
            let (below_10, below_odd) = below;
            Golden {
                draw,
                bits,
                below_10,
                below_odd,
                exponential_3,
                normal,
                geometric,
            }
        };
        [
            row(
                at(0, Purpose::Arrivals, 0, 0, 0),
                0x2994_6dd3_9102_23a1,
                (1, 1_498_070_203_773_293_008),
                0.531_719_421_358_996_6,
                -0.984_556_035_756_701_5,
                1,
            ),
            row(
                at(1, Purpose::Gangs, 2, 3, 5),
                0x09fa_5768_c809_95e1,
                (0, 359_491_599_031_651_056),
                0.119_268_179_947_527_09,
                -1.762_692_807_320_229,
                1,
            ),
            row(
                at(
                    0xdead_beef_1234_5678,
                    Purpose::Placement,
                    (1 << 40) + 17,
                    7,
                    (1 << 24) - 1,
                ),
                0x0b69_a473_556a_ff77,
                (0, 411_184_611_116_548_027),
                0.136_815_009_882_526_04,
                -1.699_837_744_253_818_6,
                1,
            ),
            row(
                at(u64::MAX, Purpose::Noise, u64::MAX, u32::MAX, 0),
                0x22b6_7ec9_0bdf_cb26,
                (1, 5_282_945_224_206_729_540),
                0.437_149_094_731_647_87,
                -1.100_316_344_474_587_6,
                1,
            ),
            row(
                at(42, Purpose::Durations, 999_999, 0, 1),
                0xfcab_2d84_ef05_7c73,
                (9, 8_792_219_327_145_554_788),
                13.025_411_445_944_83,
                2.225_822_578_723_803_4,
                8,
            ),
        ]
    }

    #[test]
    fn samplers_give_the_goldens() {
        for golden in goldens() {
            assert_eq!(golden.draw.uniform_u64(), golden.bits);
            assert_eq!(
                golden.draw.uniform(),
                (golden.bits >> 11) as f64 / (1_u64 << 53) as f64
            );
            assert_eq!(golden.draw.below(10), golden.below_10);
            assert_eq!(golden.draw.below((1 << 63) + 1), golden.below_odd);
            assert_eq!(golden.draw.exponential(3.0), golden.exponential_3);
            assert_eq!(golden.draw.normal(), golden.normal);
            assert_eq!(golden.draw.log_normal(0.5), libm::exp(0.5 * golden.normal));
            assert_eq!(golden.draw.geometric(2.2), golden.geometric);
        }
    }

    #[test]
    fn below_goes_on_when_both_lanes_are_refused() {
        // For this n, nearly half of all lanes are rejected; ids 2, 9 and 10 reject both lanes.
        let stream = Stream::new(7, Purpose::Policy);
        let n = (1 << 63) + 1;
        let drawn: Vec<u64> = [2, 6, 9, 10]
            .map(|id| stream.draw(id, 0, 0).below(n))
            .to_vec();
        let expected: [u64; 4] = [
            6_451_708_932_607_085_206,
            7_743_799_874_805_691_774,
            6_400_687_313_555_975_875,
            8_812_414_927_686_712_636,
        ];
        assert_eq!(drawn, expected);
        assert_eq!(stream.draw(0, 0, 0).below(1), 0);
    }

    #[test]
    fn below_is_uniform() {
        // The 99.9 % point of chi-square with 6 degrees of freedom is 22.46.
        let stream = Stream::new(11, Purpose::Placement);
        let mut counts = [0_u32; 7];
        for id in 0..70_000 {
            counts[stream.draw(id, 0, 0).below(7) as usize] += 1;
        }
        let chi: f64 = counts
            .iter()
            .map(|count| (f64::from(*count) - 10_000.0).powi(2) / 10_000.0)
            .sum();
        assert!(chi < 22.46, "{chi}");
    }

    #[test]
    fn inverse_normal_meets_its_error_bound() {
        // The values were computed with mpmath 1.3 to 40 digits and truncated to 25 digits, which is enough for an f64.
        let points = [
            (1.110_223_024_625_156_5e-16, -8.209_536_151_601_387),
            (1e-10, -6.361_340_902_404_056),
            (0.001, -3.090_232_306_167_813_5),
            (0.024_25, -1.972_961_051_311_885),
            (0.07, -1.475_791_028_179_170_7),
            (0.08, -1.405_071_560_309_632_5),
            (0.25, -0.674_489_750_196_081_7),
            (0.4999, -2.506_628_300_880_074e-4),
            (0.6, 0.253_347_103_135_799_7),
            (0.925, 1.439_531_470_938_456_3),
            (0.93, 1.475_791_028_179_171),
            (0.975, 1.959_963_984_540_053_9),
            (0.999_999_999_999_999_9, 8.209_536_151_601_387),
        ];
        for (p, exact) in points {
            let relative: f64 = (inverse_normal(p) - exact) / exact;
            assert!(relative.abs() < 1e-15, "{p}: {relative:e}");
        }
        assert_eq!(inverse_normal(0.5), 0.0);
    }

    #[test]
    fn normal_and_exponential_have_their_moments() {
        // The tolerance is five standard errors of 100,000 draws.
        let stream = Stream::new(5, Purpose::Extra);
        let normal: Vec<f64> = (0..100_000)
            .map(|id| stream.draw(id, 0, 0).normal())
            .collect();
        let mean = normal.iter().sum::<f64>() / 1e5;
        let square = normal.iter().map(|z| z * z).sum::<f64>() / 1e5;
        assert!(
            mean.abs() < 0.016 && (square - 1.0).abs() < 0.023,
            "{mean} {square}"
        );
        let waits = (0..100_000)
            .map(|id| stream.draw(id, 1, 0).exponential(4.0))
            .sum::<f64>();
        assert!((waits / 1e5 - 4.0).abs() < 0.064, "{waits}");
        let trials: u64 = (0..100_000)
            .map(|id| stream.draw(id, 2, 0).geometric(2.2))
            .sum();
        assert!((trials as f64 / 1e5 - 2.2).abs() < 0.026, "{trials}");
    }

    #[test]
    fn samplers_stay_in_range_at_both_ends() {
        let lowest = Draw {
            block: [0; 4],
            key: [0; 2],
        };
        let highest = Draw {
            block: [u32::MAX; 4],
            key: [0; 2],
        };
        assert_eq!(lowest.uniform(), 0.0);
        assert!(highest.uniform() < 1.0);
        assert_eq!(lowest.exponential(2.0), 0.0);
        assert!(highest.exponential(2.0) < 74.0);
        assert!((highest.normal() - 8.209_536_151_601_387).abs() < 1e-14);
        assert_eq!(lowest.normal(), -highest.normal());
        assert_eq!(lowest.geometric(3.0), 1);
        assert_eq!(highest.geometric(1.0), 1);
    }

    #[test]
    fn zipf_golden_and_table_edges() {
        let zipf = WeightTable::zipf(1000, 1.2).expect("1000 items");
        let stream = Stream::new(3, Purpose::Users);
        let drawn: Vec<usize> = (0..12)
            .map(|id| stream.draw(id, 0, 0).index(&zipf))
            .collect();
        assert_eq!(drawn, [1, 0, 0, 5, 310, 4, 0, 38, 0, 0, 0, 110]);
        let table = WeightTable::new(&[0.0, 1.0, 0.0, 3.0, 0.0]).expect("weights above 0");
        let at = |u| table.index_at(u);
        assert_eq!(
            [at(0.0), at(0.249), at(0.25), at(0.999_999_999_999_999_9)],
            [1, 1, 3, 3]
        );
        for bad in [&[][..], &[0.0], &[1.0, -1.0], &[f64::NAN], &[f64::INFINITY]] {
            assert!(WeightTable::new(bad).is_none(), "{bad:?}");
        }
        assert!(WeightTable::zipf(0, 1.2).is_none());
    }
}
