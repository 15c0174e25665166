//! Finish-time fairness: rho is compared as an exact fraction, so that rounding neither creates nor hides ties. Ties
//! are broken by job index.

use gangline_engine::{Changes, ClusterView};
use gangline_model::{JobId, SimSpan, SimTime};
use std::cmp::Ordering;

/// A job that may get GPUs in an auction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub job: JobId,
    pub class: usize,
    /// Time since arrival.
    pub age: SimSpan,
    /// Remaining time if the job runs alone on the best type.
    pub left: SimSpan,
    /// Isolated duration.
    pub duration: SimSpan,
    /// Finish-time fairness rho (rounded) if the job runs alone from now on.
    pub rho: f64,
}

impl Standing {
    /// Returns v, the gain of a job from GPUs on which its work takes `stretch` times as long as on the best GPUs. v is
    /// the rho that results if the job gets GPUs only at the next auction, divided by the rho that results if it gets
    /// these GPUs now.
    pub(super) fn gain(&self, stretch: f64, lease_left: SimSpan) -> f64 {
        let age = self.age.0 as f64;
        // If the estimate is bad, the remaining time may reach the end of simulated time.
        let next = self.age.0 + lease_left.0;
        let waits = next.saturating_add(self.left.0) as f64;
        waits / (age + self.left.0 as f64 * stretch)
    }
}

/// If the relative difference of two floats exceeds this value, they have the same order as the exact fractions,
/// because each float is within 1e-14 of its fraction.
const CLEAR: f64 = 1e-12;

/// Compares two values of rho as floats; `None` if they are too close.
fn clear_order(one: f64, other: f64) -> Option<Ordering> {
    let is_clear = (one - other).abs() > CLEAR * one.max(other);
    is_clear.then(|| one.total_cmp(&other))
}

/// The value rho as a fraction: a time divided by the isolated duration. Under contention, the duration is multiplied
/// by `wanted` / `share`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rho {
    finish_ns: u64,
    ideal_ns: u64,
    wanted: u128,
    share: u128,
}

impl Rho {
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        let times = |one: &Self, two: &Self| u128::from(one.finish_ns) * u128::from(two.ideal_ns);
        let by_times = times(self, other).cmp(&times(other, self));
        if (self.wanted, self.share) == (other.wanted, other.share) {
            return by_times;
        }
        let cross = |one: &Self, two: &Self| product([times(one, two), one.share, two.wanted]);
        cross(self, other).cmp(&cross(other, self))
    }
}

/// Returns the exact product, most significant digit first.
fn product(factors: [u128; 3]) -> [u64; 6] {
    let mut digits = [0, 0, 0, 0, 0, 1];
    for factor in factors {
        // The carry has two digits: it is below 2^128, because a digit times the factor is below 2^192.
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

/// Counters from which the mean number of active jobs during a job's life is computed.
#[derive(Debug, Default)]
pub(super) struct Fairness {
    /// M, the number of GPUs of the cluster.
    gpus: u32,
    active: i64,
    last: SimTime,
    /// Integral of the number of active jobs, in job-nanoseconds.
    integral: i128,
    integral_at_arrival: Vec<i128>,
}

impl Fairness {
    pub(super) fn start(&mut self, view: &ClusterView<'_>) {
        let servers = view.cluster().servers().iter();
        self.gpus = servers.map(|server| server.gpus).sum();
        self.integral_at_arrival = vec![0; view.jobs().len()];
    }

    /// Updates the integral. Every arrival and completion wakes the policy, so the number of active jobs is constant
    /// between decisions.
    pub(super) fn update(&mut self, view: &ClusterView<'_>, changes: &Changes) {
        let now = view.now();
        self.integral += i128::from(self.active) * i128::from((now - self.last).0);
        self.last = now;
        for &job in &changes.arrived {
            self.integral_at_arrival[job.index()] = self.integral;
        }
        self.active += changes.arrived.len() as i64 - changes.finished.len() as i64;
    }

    /// Returns a job's age and the integral of the number of active jobs over this age. At age 0, returns the current
    /// number of active jobs and 1 instead.
    fn active_over(&self, job: JobId, age: SimSpan) -> (u128, u64) {
        if age.0 == 0 {
            return (u128::from(number(self.active)), 1);
        }
        let sum = self.integral - self.integral_at_arrival[job.index()];
        (sum.unsigned_abs(), number(age.0))
    }

    /// Returns rho = (age + time left) / (isolated duration x max(1, d n / M)), rounded. Here n is the mean number of
    /// active jobs since the job's arrival; at age 0, it is the current number. Times are at least 1 ns.
    pub(super) fn rho(
        &self,
        view: &ClusterView<'_>,
        job: JobId,
        age: SimSpan,
        (left, duration): (SimSpan, SimSpan),
    ) -> f64 {
        let (active, over) = self.active_over(job, age);
        let gang = f64::from(view.jobs().gpus(job));
        let contention = gang * (active as f64 / over as f64) / f64::from(self.gpus);
        let finish_ns = number(age.0) + number(left.0);
        finish_ns as f64 / (duration.0 as f64 * contention.max(1.0))
    }

    /// Returns rho as an exact fraction.
    pub(super) fn fraction(&self, view: &ClusterView<'_>, one: &Standing) -> Rho {
        let (active, over) = self.active_over(one.job, one.age);
        let mut wanted = u128::from(view.jobs().gpus(one.job)) * active;
        let mut share = u128::from(self.gpus) * u128::from(over);
        if wanted <= share {
            (wanted, share) = (1, 1);
        }
        Rho {
            finish_ns: number(one.age.0) + number(one.left.0),
            ideal_ns: number(one.duration.0),
            wanted,
            share,
        }
    }

    /// Compares two jobs. The job that is worse off comes first; ties are broken by job index.
    pub(super) fn order(&self, view: &ClusterView<'_>, one: &Standing, two: &Standing) -> Ordering {
        let exact = || self.fraction(view, two).compare(&self.fraction(view, one));
        let by_rho = clear_order(two.rho, one.rho).unwrap_or_else(exact);
        by_rho.then(one.job.cmp(&two.job))
    }
}

fn number(value: i64) -> u64 {
    value.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn products_by_hand() {
        assert_eq!(product([3, 5, 77]), [0, 0, 0, 0, 0, 1155]);
        assert_eq!(product([1 << 127, 1 << 127, 2]), [0, 0, 1 << 63, 0, 0, 0]);
        // The square is (2^128 - 1)^2 = 2^256 - 2^129 + 1.
        let most = u128::MAX;
        let square = [0, 0, u64::MAX, u64::MAX - 1, 0, 1];
        assert_eq!(product([most, most, 1]), square);
        assert_eq!(product([most; 3])[5], u64::MAX);
    }

    proptest! {
        /// Fractions that differ only by a common factor of numerator and denominator are equal. A fraction with the
        /// next larger numerator is greater.
        #[test]
        fn equal_fractions_tie_and_close_ones_do_not(
            finish_ns in 1..1_u64 << 32, ideal_ns in 1..1_u64 << 32, wanted in 1..1_u128 << 90,
            share in 1..1_u128 << 90, k in 1..1_u64 << 30,
        ) {
            let rho = |finish_ns: u64, ideal_ns: u64, wanted: u128, share: u128| Rho {
                finish_ns,
                ideal_ns,
                wanted,
                share,
            };
            let (one, by) = (rho(finish_ns, ideal_ns, wanted, share), u128::from(k));
            let same = rho(finish_ns * k, ideal_ns, wanted * by, share);
            prop_assert_eq!(one.compare(&same), Ordering::Equal);
            let same = rho(finish_ns, ideal_ns * k, wanted, share * by);
            prop_assert_eq!(one.compare(&same), Ordering::Equal);
            let more = rho(finish_ns * k + 1, ideal_ns, wanted * by, share);
            prop_assert_eq!(one.compare(&more), Ordering::Less);
            prop_assert_eq!(more.compare(&one), Ordering::Greater);
        }
    }
}
