//! Finish-time fairness: rho as an exact fraction, so that jobs that tie go by index.

use gangline_engine::{Changes, ClusterView};
use gangline_model::{JobId, SimSpan, SimTime};
use std::cmp::Ordering;

/// Floats further apart than this, relative to them, are in the order of the fractions that they stand for: each is
/// within 1e-14 of its own.
const CLEAR: f64 = 1e-12;

/// A fraction of products of two numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rho {
    near: f64,
    above: [u128; 2],
    below: [u128; 2],
}

impl Rho {
    fn new(above: [u128; 2], below: [u128; 2]) -> Self {
        let product = |factors: [u128; 2]| factors[0] as f64 * factors[1] as f64;
        Self {
            near: product(above) / product(below),
            above,
            below,
        }
    }

    /// Exact comparison: of the floats where they are clear, else of the cross products.
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        if (self.near - other.near).abs() > CLEAR * self.near.max(other.near) {
            return self.near.total_cmp(&other.near);
        }
        let cross = |one: &Self, two: &Self| {
            let [a, b] = one.above;
            let [c, d] = two.below;
            product([a, b, c, d])
        };
        cross(self, other).cmp(&cross(other, self))
    }
}

/// The exact product, most significant digit first.
fn product(factors: [u128; 4]) -> [u64; 8] {
    let mut digits = [0, 0, 0, 0, 0, 0, 0, 1];
    for factor in factors {
        // a carry of two digits: below 2^128, as a digit times the factor is below 2^192
        let (low, high) = (factor as u64, (factor >> 64) as u64);
        let mut carry: u128 = 0;
        for digit in digits.iter_mut().rev() {
            let by_low = u128::from(*digit) * u128::from(low) + u128::from(carry as u64);
            let by_high = u128::from(*digit) * u128::from(high);
            *digit = by_low as u64;
            carry = by_high + (by_low >> 64) + (carry >> 64);
        }
    }
    digits
}

/// The mean number of active jobs over the life of each of them.
#[derive(Debug, Default)]
pub(super) struct Fairness {
    /// GPUs of the cluster, M.
    gpus: u32,
    active: i64,
    last: SimTime,
    /// Active jobs summed over time, job-nanoseconds.
    integral: i128,
    integral_at_arrival: Vec<i128>,
}

impl Fairness {
    pub(super) fn start(&mut self, view: &ClusterView<'_>) {
        let servers = view.cluster().servers().iter();
        self.gpus = servers.map(|server| server.gpus).sum();
        self.integral_at_arrival = vec![0; view.jobs().len()];
    }

    /// Every arrival and completion wakes the policy, so the count stands still between decisions.
    pub(super) fn update(&mut self, view: &ClusterView<'_>, changes: &Changes) {
        let now = view.now();
        self.integral += i128::from(self.active) * i128::from((now - self.last).0);
        self.last = now;
        for &job in &changes.arrived {
            self.integral_at_arrival[job.index()] = self.integral;
        }
        self.active += changes.arrived.len() as i64 - changes.finished.len() as i64;
    }

    /// rho = (age + time left) / (isolated duration x max(1, d n / M)), with n = active jobs summed over the age, by
    /// the age; at age 0 those that are active now. Times are at least 1 ns.
    pub(super) fn rho(
        &self,
        view: &ClusterView<'_>,
        job: JobId,
        age: SimSpan,
        (left, duration): (SimSpan, SimSpan),
    ) -> Rho {
        let number = |value: i64| u128::from(value.unsigned_abs());
        let gang = u128::from(view.jobs().gpus(job));
        let (active, over) = if age.0 == 0 {
            (number(self.active), 1)
        } else {
            let sum = self.integral - self.integral_at_arrival[job.index()];
            (sum.unsigned_abs(), number(age.0))
        };
        let (share, wanted) = (u128::from(self.gpus) * over, gang * active);
        let finish = number(age.0) + number(left.0);
        if wanted > share {
            Rho::new([finish, share], [number(duration.0) * gang, active])
        } else {
            Rho::new([finish, 1], [number(duration.0), 1])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn products_by_hand() {
        assert_eq!(product([3, 5, 7, 11]), [0, 0, 0, 0, 0, 0, 0, 1155]);
        assert_eq!(
            product([1 << 127, 1 << 127, 1, 2]),
            [0, 0, 0, 0, 1 << 63, 0, 0, 0]
        );
        // (2^128 - 1)^2 = 2^256 - 2^129 + 1
        let most = u128::MAX;
        let square = [0, 0, 0, 0, u64::MAX, u64::MAX - 1, 0, 1];
        assert_eq!(product([most, most, 1, 1]), square);
        assert_eq!(product([most; 4])[7], 1);
    }

    proptest! {
        /// Fractions that are equal up to a common factor, and the next larger numerator.
        #[test]
        fn equal_fractions_tie_and_close_ones_do_not(
            a in 1..1_u128 << 62, b in 1..1_u128 << 62, c in 1..1_u128 << 60, d in 1..1_u128 << 60,
            k in 1..1_u128 << 30,
        ) {
            let one = Rho::new([a, c], [b, d]);
            prop_assert_eq!(one.compare(&Rho::new([a * k, c], [b, d * k])), Ordering::Equal);
            prop_assert_eq!(one.compare(&Rho::new([c * k, a], [d, b * k])), Ordering::Equal);
            let more = Rho::new([a * k + 1, c], [b, d * k]);
            prop_assert_eq!(one.compare(&more), Ordering::Less);
            prop_assert_eq!(more.compare(&one), Ordering::Greater);
        }
    }
}
