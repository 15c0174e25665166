//! Delay timers: fixed, absent, infinite, or tuned from earlier waiting times of jobs of the same size.

use super::params::{DallyParams, Mode};
use gangline_model::SimTime;
use std::collections::VecDeque;

/// Times in ns for which a job waits before it accepts a wider place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delays {
    /// Waiting time before the job accepts several servers in one rack.
    pub(super) rack: i64,
    /// Waiting time before the job accepts several racks.
    pub(super) network: i64,
}

impl Delays {
    pub(super) const NEVER: i64 = i64::MAX;

    /// Returns the shorter delay. A job that accepts the network also accepts a rack.
    pub(super) fn least(self) -> i64 {
        self.rack.min(self.network)
    }
}

/// Completed waiting times in a sliding window, with exact sums.
#[derive(Clone, Debug, Default)]
struct History {
    /// For each wait, the instant at which the job accepted a place, and the waiting time in ns.
    entries: VecDeque<(i64, i64)>,
    sum: u128,
    squares: Wide,
}

impl History {
    fn push(&mut self, now: i64, wait: i64) {
        self.entries.push_back((now, wait));
        let wait = wait as u128; // Waiting times are not negative.
        self.sum += wait;
        self.squares = self.squares.plus(Wide::square(wait));
    }

    /// Drops entries before `oldest`. Returns whether any entries were dropped.
    fn slide(&mut self, oldest: i64) -> bool {
        let mut dropped = false;
        while let Some(&(at, wait)) = self.entries.front() {
            if at >= oldest {
                break;
            }
            self.entries.pop_front();
            let wait = wait as u128;
            self.sum -= wait;
            self.squares = self.squares.minus(Wide::square(wait));
            dropped = true;
        }
        dropped
    }

    /// Returns the mean waiting time plus `factor` population standard deviations, in leases; 1 if there are no
    /// entries.
    fn bound(&self, factor: f64, lease_ns: i64) -> f64 {
        let n = self.entries.len() as u64;
        if n == 0 {
            return 1.0;
        }
        let spread = self.squares.times(n).minus(Wide::square(self.sum));
        let leases = i128::from(n) * i128::from(lease_ns);
        (self.sum as f64 + factor * spread.to_f64().sqrt()) / leases as f64
    }
}

/// The delay timers of one gang size.
#[derive(Clone, Debug)]
pub(super) struct Tuner {
    server: History,
    rack: History,
    delays: Delays,
    is_stale: bool,
}

impl Tuner {
    pub(super) fn new(params: &DallyParams) -> Self {
        let delays = match params.mode {
            Mode::NoWait => Delays {
                rack: 0,
                network: 0,
            },
            Mode::FullyConsolidated => Delays {
                rack: Delays::NEVER,
                network: Delays::NEVER,
            },
            Mode::Manual | Mode::Auto => Delays {
                rack: params.leases(params.rack_delay),
                network: params.leases(params.network_delay),
            },
        };
        Self {
            server: History::default(),
            rack: History::default(),
            delays,
            is_stale: true,
        }
    }

    /// Returns the delays that were computed last, without updating them.
    pub(super) fn known(&self) -> Delays {
        self.delays
    }

    /// Returns the delays at the instant `now`.
    pub(super) fn delays(&mut self, params: &DallyParams, now: SimTime) -> Delays {
        if params.mode != Mode::Auto {
            return self.delays;
        }
        let oldest = now.0.saturating_sub(params.window_ns);
        let server = self.server.slide(oldest);
        let rack = self.rack.slide(oldest);
        if server || rack || self.is_stale {
            self.is_stale = false;
            self.delays = self.tuned(params);
        }
        self.delays
    }

    fn tuned(&self, params: &DallyParams) -> Delays {
        let lease = params.lease.0;
        let server = self.server.bound(params.sd_factor, lease).ceil();
        let rack = self.rack.bound(params.sd_factor, lease).ceil();
        // Decimals such as 0.07 are inexact as floats: 100 x 0.07 should be 7, but is 7.000000000000001.
        let cap = params.rack_cap_share * params.history_leases;
        let cap = (cap * (1.0 - 4.0 * f64::EPSILON)).ceil();
        Delays {
            rack: params.leases(cap.min(params.rack_floor.max(server))),
            network: params.leases(params.history_leases.min(params.network_floor.max(rack))),
        }
    }

    /// Records a waiting time if it is at least one lease. `on_server` says whether the wait ended with a place on one
    /// server; otherwise, it ended with a place in one rack.
    pub(super) fn record(&mut self, on_server: bool, now: SimTime, wait: i64, lease_ns: i64) {
        if wait < lease_ns {
            return;
        }
        let history = if on_server {
            &mut self.server
        } else {
            &mut self.rack
        };
        history.push(now.0, wait);
        self.is_stale = true;
    }
}

// The following integers have 256 bits, because sums of squares of waiting times exceed 128 bits if thousands of jobs
// wait for weeks.

/// A 256-bit integer as 64-bit limbs, lowest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wide([u64; 4]);

impl Wide {
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

    /// Returns `self - other`; `other` must not be larger than `self`.
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

    /// Returns the nearest float.
    pub(super) fn to_f64(self) -> f64 {
        let pair = |low: u64, high: u64| u128::from(high) << 64 | u128::from(low);
        let (low, high) = (pair(self.0[0], self.0[1]), pair(self.0[2], self.0[3]));
        if high == 0 {
            return low as f64;
        }
        // The number is reduced to its upper 128 bits. The last of these bits is set if any of the lower bits was set,
        // so that ties are rounded correctly.
        let shift = 128 - high.leading_zeros();
        let kept = if shift == 128 {
            high
        } else {
            high << (128 - shift) | low >> shift
        };
        let cut = low << (128 - shift) != 0;
        let scale = f64::from_bits((1023 + u64::from(shift)) << 52); // The result is exactly 2^shift.
        (kept | u128::from(cut)) as f64 * scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gangline_model::SimSpan;
    use proptest::prelude::*;

    const LEASE: i64 = 3_600_000_000_000;

    fn params(history_leases: f64) -> DallyParams {
        DallyParams {
            lease: SimSpan(LEASE),
            history_leases,
            window_ns: (history_leases * LEASE as f64) as i64,
            ..DallyParams::default()
        }
    }

    /// Computes the timers from these waiting times; all times are in leases.
    fn after(history_leases: f64, server: &[f64], rack: &[f64]) -> (f64, f64) {
        let params = params(history_leases);
        let mut tuner = Tuner::new(&params);
        for (waits, on_server) in [(server, true), (rack, false)] {
            for wait in waits {
                tuner.record(on_server, SimTime(0), (wait * LEASE as f64) as i64, LEASE);
            }
        }
        let delays = tuner.delays(&params, SimTime(1));
        let leases = |ns: i64| ns as f64 / LEASE as f64;
        (leases(delays.rack), leases(delays.network))
    }

    #[test]
    fn tunes_as_worked_out_by_hand() {
        assert_eq!(after(24.0, &[], &[]), (6.0, 12.0));
        assert_eq!(after(24.0, &[8.0; 4], &[]), (8.0, 12.0));
        assert_eq!(after(24.0, &[2.0, 4.0, 6.0, 8.0], &[]), (10.0, 12.0));
        assert_eq!(after(24.0, &[30.0], &[]), (20.0, 12.0));
        assert_eq!(after(24.0, &[], &[10.0, 14.0]), (6.0, 16.0));
        assert_eq!(after(24.0, &[], &[40.0, 40.0]), (6.0, 24.0));
        assert_eq!(after(10.0, &[], &[]), (6.0, 10.0));
        assert_eq!(after(24.0, &[0.99; 50], &[0.99; 50]), (6.0, 12.0));
        assert_eq!(after(24.0, &[1.0, 13.0], &[]), (19.0, 12.0));
    }

    #[test]
    fn a_wait_counts_up_to_the_end_of_the_window() {
        let params = params(24.0);
        let mut tuner = Tuner::new(&params);
        tuner.record(true, SimTime(0), 8 * LEASE, LEASE);
        let rack = |tuner: &mut Tuner, now| tuner.delays(&params, SimTime(now)).rack;
        assert_eq!(rack(&mut tuner, 24 * LEASE), 8 * LEASE);
        assert_eq!(rack(&mut tuner, 24 * LEASE + 1), 6 * LEASE);
    }

    #[test]
    fn the_cap_is_the_given_share_of_the_history() {
        let rack = |share| {
            let params = DallyParams {
                rack_cap_share: share,
                ..params(24.0)
            };
            let mut tuner = Tuner::new(&params);
            tuner.record(true, SimTime(0), 30 * LEASE, LEASE);
            tuner.delays(&params, SimTime(1)).rack
        };
        assert_eq!(
            [0.5, 0.51, 1.0].map(rack),
            [12, 13, 24].map(|leases| leases * LEASE)
        );
    }

    proptest! {
        /// The running sums of a sliding window equal recomputed sums, and the timers stay within their bounds.
        #[test]
        fn a_sliding_window_does_not_drift(
            steps in prop::collection::vec((0_i64..5, 0_i64..40, any::<bool>()), 1..80),
            history in prop::sample::select(vec![3.0, 10.0, 24.0]),
        ) {
            let params = params(history);
            let mut tuner = Tuner::new(&params);
            let mut kept: Vec<(i64, i64, bool)> = Vec::new();
            let mut now = 0;
            for (gap, wait, on_server) in steps {
                now += gap * LEASE / 2;
                let wait = wait * LEASE / 3;
                let got = tuner.delays(&params, SimTime(now));
                kept.retain(|entry| entry.0 >= now - params.window_ns);
                let mut fresh = Tuner::new(&params);
                for &(at, wait, on_server) in &kept {
                    fresh.record(on_server, SimTime(at), wait, LEASE);
                }
                prop_assert_eq!(got, fresh.delays(&params, SimTime(now)));
                let cap = (params.rack_cap_share * history).ceil();
                let leases = |ns: i64| ns as f64 / LEASE as f64;
                prop_assert!(leases(got.rack) >= cap.min(6.0) && leases(got.rack) <= cap);
                prop_assert!(leases(got.network) >= history.min(12.0));
                prop_assert!(leases(got.network) <= history);
                tuner.record(on_server, SimTime(now), wait, LEASE);
                if wait >= LEASE {
                    kept.push((now, wait, on_server));
                }
            }
        }
    }

    fn of(value: u128) -> Wide {
        let mut wide = Wide::default();
        wide.add_at(0, value);
        wide
    }

    #[test]
    #[expect(clippy::float_cmp)] // Powers of two are exact.
    fn large_numbers_round_to_the_nearest() {
        assert_eq!(Wide::square(1 << 100).to_f64(), 2_f64.powi(200));
        assert_eq!(Wide::square(u128::MAX).to_f64(), 2_f64.powi(256));
        // 2^200 + 2^147 lies halfway between two floats, and rounds to the even one.
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
