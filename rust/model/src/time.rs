//! Simulated time: i64 nanoseconds since the trace's origin. This is the only module that converts between seconds
//! and nanoseconds (`docs/concepts/simulated-second.md`).

use crate::ModelError;
use std::ops::{Add, AddAssign, Sub};

/// Number of nanoseconds in a second, as the float that every conversion uses.
pub const NANOS_PER_SECOND: f64 = 1e9;

/// Largest accepted number of seconds: about 126 years. This is less than half of the range of i64 nanoseconds, so a
/// sum of two times never overflows.
pub const MAX_SECONDS: f64 = 4e9;

/// An instant: nanoseconds since the trace's origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SimTime(pub i64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SimSpan(pub i64);

impl SimTime {
    /// The trace's origin.
    pub const ZERO: Self = Self(0);
    /// An instant that is later than every event.
    pub const NEVER: Self = Self(i64::MAX);

    /// Returns the instant nearest to `seconds`.
    ///
    /// # Errors
    /// Returns [`ModelError::Time`] if `seconds` is not finite or exceeds [`MAX_SECONDS`].
    ///
    /// # Examples
    /// ```
    /// use gangline_model::SimTime;
    /// assert_eq!(SimTime::from_seconds(1.5).unwrap(), SimTime(1_500_000_000));
    /// assert!(SimTime::from_seconds(f64::NAN).is_err());
    /// ```
    pub fn from_seconds(seconds: f64) -> Result<Self, ModelError> {
        nanos(seconds).map(Self)
    }

    /// Returns the time in seconds since the origin, which is the form used in results.
    #[inline]
    pub fn seconds(self) -> f64 {
        self.0 as f64 / NANOS_PER_SECOND
    }
}

impl SimSpan {
    /// A span of zero.
    pub const ZERO: Self = Self(0);

    /// Returns the span nearest to `seconds`.
    ///
    /// # Errors
    /// Returns [`ModelError::Time`] if `seconds` is not finite or exceeds [`MAX_SECONDS`].
    pub fn from_seconds(seconds: f64) -> Result<Self, ModelError> {
        nanos(seconds).map(Self)
    }

    /// Returns the length in seconds.
    #[inline]
    pub fn seconds(self) -> f64 {
        self.0 as f64 / NANOS_PER_SECOND
    }
}

fn nanos(seconds: f64) -> Result<i64, ModelError> {
    if seconds.is_finite() && seconds.abs() <= MAX_SECONDS {
        Ok((seconds * NANOS_PER_SECOND).round() as i64)
    } else {
        Err(ModelError::Time { seconds })
    }
}

/// Longest span that work can take, [`MAX_SECONDS`]. A longer span is reduced to this span, and the work never
/// finishes.
pub const SPAN_MAX: SimSpan = SimSpan(4_000_000_000_000_000_000);

/// Returns the time that `work` takes at `rate`, rounded to the nearest nanosecond (halves up); at least 1 ns and at
/// most [`SPAN_MAX`].
///
/// # Examples
/// ```
/// use gangline_model::{SimSpan, span_of_work};
/// assert_eq!(span_of_work(3.0, 2.0), SimSpan(1_500_000_000));
/// assert_eq!(span_of_work(0.0, 2.0), SimSpan(1));
/// ```
#[inline]
pub fn span_of_work(work: f64, rate: f64) -> SimSpan {
    let nanos = ((work / rate) * NANOS_PER_SECOND).min(SPAN_MAX.0 as f64);
    // The result equals that of `round`, for which the processor may have no instruction. The fraction is exact.
    let whole = nanos as i64;
    let is_half = nanos - whole as f64 >= 0.5;
    SimSpan((whole + i64::from(is_half)).max(1))
}

impl Add<SimSpan> for SimTime {
    type Output = Self;
    #[inline]
    fn add(self, span: SimSpan) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub for SimTime {
    type Output = SimSpan;
    #[inline]
    fn sub(self, earlier: Self) -> SimSpan {
        SimSpan(self.0 - earlier.0)
    }
}

impl Add for SimSpan {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for SimSpan {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_to_the_nearest_nanosecond_halves_up() {
        assert_eq!(SimTime::from_seconds(0.4e-9).unwrap(), SimTime(0));
        assert_eq!(SimTime::from_seconds(0.5e-9).unwrap(), SimTime(1));
        assert_eq!(SimTime::from_seconds(0.1).unwrap(), SimTime(100_000_000));
        assert!(SimTime::from_seconds(f64::INFINITY).is_err());
        assert!(SimTime::from_seconds(5e9).is_err());
    }

    #[test]
    fn spans_round_like_the_standard_library() {
        let round = |nanos: f64| (nanos.round() as i64).max(1);
        let bits = 0x3fe0_0000_0000_0000_u64;
        for step in 0..4000_u64 {
            // The values lie around halves and whole numbers of every size, and between them.
            for value in [
                f64::from_bits(bits + (step << 45)),
                (step as f64 + 0.5).next_down(),
                step as f64 + 0.5,
                (step as f64 + 0.5).next_up(),
                (1_u64 << 52) as f64 - step as f64 * 0.5,
                (1_u64 << 53) as f64 + step as f64 * 2.0,
            ] {
                let span = span_of_work(value, NANOS_PER_SECOND);
                let nanos = (value / NANOS_PER_SECOND) * NANOS_PER_SECOND;
                assert_eq!(span.0, round(nanos.min(4e18)), "{value}");
            }
        }
        assert_eq!(span_of_work(-0.7e-9, 1.0), SimSpan(1));
        assert_eq!(span_of_work(f64::NAN, 1.0).0, round(f64::NAN.min(4e18)));
    }

    #[test]
    fn work_takes_at_least_one_nanosecond() {
        assert_eq!(span_of_work(1e-30, 1.0), SimSpan(1));
        assert_eq!(span_of_work(1.5e-9, 1.0), SimSpan(2));
        assert_eq!(
            span_of_work(1e300, 1.0),
            SimSpan::from_seconds(MAX_SECONDS).unwrap()
        );
    }
}
