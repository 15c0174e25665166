//! Whole numbers of 256 bits: squares of waits outgrow 128 bits when thousands of jobs wait for weeks.

/// Limbs of 64 bits, lowest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wide([u64; 4]);

impl Wide {
    /// The square of a number.
    pub(super) fn square(value: u128) -> Self {
        let (low, high) = (value as u64, (value >> 64) as u64);
        let wide = |a: u64, b: u64| u128::from(a) * u128::from(b);
        let mut sum = Self::default();
        sum.add_at(0, wide(low, low));
        sum.add_at(1, wide(low, high));
        sum.add_at(1, wide(low, high));
        sum.add_at(2, wide(high, high));
        sum
    }

    /// So many times the number.
    pub(super) fn times(self, factor: u64) -> Self {
        let mut product = Self::default();
        for (at, &limb) in self.0.iter().enumerate() {
            product.add_at(at, u128::from(limb) * u128::from(factor));
        }
        product
    }

    fn add_at(&mut self, at: usize, value: u128) {
        let mut carry = value;
        for limb in self.0.iter_mut().skip(at) {
            let sum = u128::from(*limb) + (carry & u128::from(u64::MAX));
            *limb = sum as u64;
            carry = (carry >> 64) + (sum >> 64);
        }
        debug_assert!(carry == 0, "256 bits are enough");
    }

    pub(super) fn plus(mut self, other: Self) -> Self {
        for (at, &limb) in other.0.iter().enumerate() {
            self.add_at(at, u128::from(limb));
        }
        self
    }

    /// The difference; `other` is no larger.
    pub(super) fn minus(mut self, other: Self) -> Self {
        let mut borrow = false;
        for (limb, &less) in self.0.iter_mut().zip(&other.0) {
            let (rest, first) = limb.overflowing_sub(less);
            let (rest, second) = rest.overflowing_sub(u64::from(borrow));
            *limb = rest;
            borrow = first || second;
        }
        debug_assert!(!borrow, "the difference is not negative");
        self
    }

    /// The nearest float.
    pub(super) fn to_f64(self) -> f64 {
        let pair = |low: u64, high: u64| u128::from(high) << 64 | u128::from(low);
        let (low, high) = (pair(self.0[0], self.0[1]), pair(self.0[2], self.0[3]));
        if high == 0 {
            return low as f64;
        }
        // the upper 128 bits, the last of them set where anything was cut off: it decides no tie wrongly
        let shift = 128 - high.leading_zeros();
        let kept = if shift == 128 {
            high
        } else {
            high << (128 - shift) | low >> shift
        };
        let cut = low << (128 - shift) != 0;
        let scale = f64::from_bits((1023 + u64::from(shift)) << 52); // 2^shift, exact
        (kept | u128::from(cut)) as f64 * scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(value: u128) -> Wide {
        let mut wide = Wide::default();
        wide.add_at(0, value);
        wide
    }

    #[test]
    #[expect(clippy::float_cmp)] // powers of two are exact
    fn large_numbers_round_to_the_nearest() {
        assert_eq!(Wide::square(1 << 100).to_f64(), 2_f64.powi(200));
        assert_eq!(Wide::square(u128::MAX).to_f64(), 2_f64.powi(256));
        // 2^200 + 2^147 lies half way between two floats, and goes to the even one
        let half = Wide::square(1 << 100).plus(of(1 << 120).times(1 << 27));
        assert_eq!(half.to_f64(), 2_f64.powi(200));
        assert_eq!(half.plus(of(1)).to_f64(), 2_f64.powi(200) + 2_f64.powi(148));
    }

    proptest! {
        #[test]
        fn agrees_with_128_bits(a in 0_u64.., b in 0_u64.., n in 0_u64..1 << 32) {
            let (x, y) = (u128::from(a), u128::from(b));
            prop_assert_eq!(Wide::square(x), of(x * x));
            prop_assert_eq!(of(x).times(n), of(x * u128::from(n)));
            prop_assert_eq!(of(x).plus(of(y)), of(x + y));
            prop_assert_eq!(of(x.max(y)).minus(of(x.min(y))), of(x.max(y) - x.min(y)));
            prop_assert_eq!(of(x * y).to_f64().to_bits(), ((x * y) as f64).to_bits());
        }

        #[test]
        fn squares_of_sums_unfold(a in 0_u128..1 << 120, b in 0_u128..1 << 60) {
            let twice = Wide::square(a + b).plus(Wide::square(a.max(b) - a.min(b)));
            let sum = Wide::square(a).plus(Wide::square(b));
            prop_assert_eq!(twice, sum.times(2));
        }
    }
}
