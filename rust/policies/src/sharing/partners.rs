//! Finds the residents with which a new job gains by sharing, best first, without examining the other residents.
//!
//! Within a kind, both the mean completion time and the gain from sharing grow with the resident's remaining time. The
//! residents with a gain therefore form the tail of the kind, and the first of them is the best. A heap merges the
//! tails of the kinds. The cost is O(K log n) for K kinds, and O(log n) for each partner taken.

use super::params::PartnerTime;
use super::residents::{Members, Residents};
use crate::kit::Seen;
use gangline_engine::ClusterView;
use gangline_model::{GpuTypeId, JobId, NANOS_PER_SECOND, SimSpan, SimTime};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The threshold is exact only up to rounding. Residents that are below it by less than this fraction are therefore
/// tested with the rule itself.
const NEAR: f64 = 1e-12; // This is our own choice; it is far larger than rounding errors.

/// A new job that looks for a partner, with the sub-batch that is being tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking<'a> {
    pub(super) view: &'a ClusterView<'a>,
    pub(super) job: JobId,
    pub(super) gpu_type: GpuTypeId,
    /// Time that the new job would need alone with its full batch, as the policy sees it.
    pub(super) new_s: f64,
    /// Iteration time with the sub-batch divided by the iteration time with the full batch.
    pub(super) inflation: f64,
    /// Maximum memory that a resident may hold and still leave enough for the new job.
    pub(super) room: u64,
    pub(super) seen: Seen,
    pub(super) partner_time: PartnerTime,
}

/// A resident whose GPUs the new job should share rather than wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Partner {
    pub(super) job: JobId,
    pub(super) t_con: f64,
}

/// Possible partners, sorted by mean completion time, then by job.
#[derive(Debug)]
pub(super) struct Partners<'a> {
    now: SimTime,
    tails: Vec<Tail<'a>>,
    /// Tuples (mean completion time, job, finish, index of the tail). The mean is stored as its bits, because the bits
    /// of positive numbers are in the same order as the numbers.
    next: BinaryHeap<Reverse<(u64, JobId, SimTime, usize)>>,
}

/// The residents of a kind with which sharing pays off.
#[derive(Debug)]
struct Tail<'a> {
    members: &'a Members,
    /// Pair of the new job with a resident of the kind.
    beside: Beside,
    /// The latest finish from which a resident was put into the heap. Residents with the same finish follow one by one.
    opened: SimTime,
}

/// A pair of the new job and a resident whose remaining time is not set yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside {
    pair: Pair,
    /// Divisor that turns the time until the resident's end into the remaining time that the pair rule uses.
    pace: f64,
}

impl Beside {
    /// Returns the pair with a resident that ends at the given instant.
    pub(super) fn until(&self, finish: SimTime, now: SimTime) -> Pair {
        Pair {
            resident_s: (finish - now).seconds() / self.pace,
            ..self.pair
        }
    }
}

impl Tail<'_> {
    /// Returns the first finish that is late enough for sharing to bring a gain.
    fn first(&self, now: SimTime) -> Option<SimTime> {
        let Beside { pair, pace } = self.beside;
        let least_s = pair.threshold() * pair.new_s * pace * (1.0 - NEAR);
        // If the value is too large, `as` saturates, and no finish is late enough.
        let mut from = now + SimSpan((least_s.max(0.0) * NANOS_PER_SECOND).floor() as i64);
        loop {
            let finish = self.from(from)?.0;
            if self.beside.until(finish, now).shares() {
                return Some(finish);
            }
            from = after(finish)?;
        }
    }

    /// Returns the first resident that ends at the given instant or later.
    fn from(&self, finish: SimTime) -> Option<(SimTime, JobId)> {
        self.members.range((finish, JobId(0))..).next().copied()
    }
}

/// Returns the next instant; `None` if there is no later instant.
fn after(finish: SimTime) -> Option<SimTime> {
    (finish < SimTime::NEVER).then_some(finish + SimSpan(1))
}

impl<'a> Partners<'a> {
    /// Finds the best resident of each kind.
    pub(super) fn of(asking: &Asking<'_>, residents: &'a Residents) -> Self {
        let now = asking.view.now();
        let mut found = Self {
            now,
            tails: Vec::new(),
            next: BinaryHeap::new(),
        };
        for (kind, members) in residents.kinds(asking.gpu_type) {
            let any = members.first().filter(|_| kind.bytes <= asking.room);
            let Some(beside) = any.and_then(|&(_, any)| asking.beside(any, kind.xi())) else {
                continue;
            };
            let tail = Tail {
                members,
                beside,
                opened: SimTime::NEVER,
            };
            if asking.seen.is_exact(asking.view) {
                let first = tail.first(now);
                found.tails.push(tail);
                if let Some(finish) = first {
                    found.open(found.tails.len() - 1, finish);
                }
            } else {
                found.add_each(asking, &tail);
            }
        }
        found
    }

    /// Adds all residents of a kind with which sharing pays off. This method is used if the policy sees remaining times
    /// with individual errors. The residents are then not in the order of these times, so each of them is examined.
    fn add_each(&mut self, asking: &Asking<'_>, tail: &Tail<'_>) {
        for &(finish, job) in tail.members {
            let pair = asking.as_seen(job, tail.beside.until(finish, self.now));
            if pair.shares() {
                let entry = (pair.t_con().to_bits(), job, finish, usize::MAX);
                self.next.push(Reverse(entry));
            }
        }
    }

    /// Adds the first resident that finishes at `first` or later, and the following residents with the same mean
    /// completion time. Different times can give equal means; the job index then decides.
    fn open(&mut self, index: usize, first: SimTime) {
        let now = self.now;
        let tail = &mut self.tails[index];
        let mut from = Some(first);
        let mut mean = None;
        while let Some((finish, job)) = from.and_then(|from| tail.from(from)) {
            let bits = tail.beside.until(finish, now).t_con().to_bits();
            if mean.is_some_and(|mean| mean != bits) {
                break;
            }
            mean = Some(bits);
            tail.opened = finish;
            self.next.push(Reverse((bits, job, finish, index)));
            from = after(finish);
        }
    }
}

impl Iterator for Partners<'_> {
    type Item = Partner;

    fn next(&mut self) -> Option<Partner> {
        let Reverse((bits, job, finish, index)) = self.next.pop()?;
        if let Some(tail) = self.tails.get(index) {
            let same = (finish, JobId(job.0 + 1))..=(finish, JobId(u32::MAX));
            if let Some(&(_, other)) = tail.members.range(same).next() {
                self.next.push(Reverse((bits, other, finish, index)));
            }
            if let Some(later) = after(finish).filter(|_| tail.opened == finish) {
                self.open(index, later);
            }
        }
        Some(Partner {
            job,
            t_con: f64::from_bits(bits),
        })
    }
}

impl Asking<'_> {
    /// Returns the pair of the new job and a resident, given the resident's current slowdown factor; `None` if the two
    /// may not share.
    pub(super) fn beside(&self, resident: JobId, xi: f64) -> Option<Beside> {
        let (pace, present) = match self.partner_time {
            PartnerTime::Exclusive => (xi, 1.0),
            PartnerTime::Current => (1.0, 1.0),
            PartnerTime::Shared => (1.0, xi),
        };
        let xi_new = self.view.xi(self.job, resident, self.gpu_type)?;
        let xi_resident = self.view.xi(resident, self.job, self.gpu_type)?;
        let pair = Pair {
            new_s: self.new_s,
            resident_s: 0.0,
            xi_new,
            xi_resident: (xi_resident / present).max(1.0),
            inflation: self.inflation,
        };
        Some(Beside { pair, pace })
    }

    /// Returns the pair with the resident's remaining time as the policy sees it.
    pub(super) fn as_seen(&self, resident: JobId, pair: Pair) -> Pair {
        Pair {
            resident_s: self.seen.seconds(self.view, resident, pair.resident_s),
            ..pair
        }
    }
}

// The following code is the pair rule of SJF-BSBF, which decides whether two jobs should share a GPU.

/// Maximum relative difference at which two times count as equal; it allows for decimals that are inexact as floats.
const ROUNDING: f64 = 1e-12; // This is our own choice; it is far larger than rounding errors.

/// A new job that could join a resident, and the slowdown factors of both. All times are in seconds.
///
/// # Examples
/// ```
/// use gangline_policies::sharing::Pair;
/// let pair = Pair { new_s: 40.0, resident_s: 100.0, xi_new: 2.0, xi_resident: 2.0, inflation: 1.0 };
/// assert_eq!((pair.t_con(), pair.t_seq()), (110.0, 120.0));
/// assert!(pair.shares());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// Time that the new job would need alone with its full batch (A).
    pub new_s: f64,
    /// Time that the resident would still need alone (B).
    pub resident_s: f64,
    /// Slowdown factor of the new job next to the resident, at least 1.
    pub xi_new: f64,
    /// Slowdown factor of the resident next to the new job, at least 1.
    pub xi_resident: f64,
    /// Iteration time of the new job with its sub-batch divided by its iteration time with the full batch (g), at least
    /// 1.
    pub inflation: f64,
}

impl Pair {
    /// Returns the mean completion time of the two jobs, counted from now, if the new job starts at once.
    ///
    /// Either job may end first, and there is a formula for each of these two cases. Outside its own case, a formula
    /// never gives the smaller value, so the minimum of the two is correct. The minimum is monotone in the times, down
    /// to the last bit.
    pub fn t_con(&self) -> f64 {
        let (a, b, g) = (self.new_s, self.resident_s, self.inflation);
        let (xi_a, xi_b) = (self.xi_new, self.xi_resident);
        let resident_first = (g * a) / 2.0 + (1.0 - 1.0 / (2.0 * xi_a)) * (xi_b * b);
        let newcomer_first = b / 2.0 + (1.0 - 1.0 / (2.0 * xi_b)) * ((xi_a * g) * a);
        resident_first.min(newcomer_first)
    }

    /// Returns the mean completion time of the two jobs, counted from now, if the new job waits until the resident
    /// ends.
    pub fn t_seq(&self) -> f64 {
        self.resident_s + self.new_s / 2.0
    }

    /// Returns the value c for which sharing pays off if and only if B > c A. The value depends only on the slowdown
    /// factors and the inflation.
    pub fn threshold(&self) -> f64 {
        let (xi_a, xi_b, g) = (self.xi_new, self.xi_resident, self.inflation);
        let q = (xi_b * (2.0 * xi_a - 1.0)) / (2.0 * xi_a);
        let newcomer_first = (g * xi_a) * (2.0 - 1.0 / xi_b) - 1.0;
        if q < 1.0 {
            ((g - 1.0) / (2.0 * (1.0 - q))).min(newcomer_first)
        } else {
            newcomer_first
        }
    }

    /// Returns whether sharing lowers the mean completion time. A tie counts as no gain.
    pub fn shares(&self) -> bool {
        let (a, b) = (self.new_s, self.resident_s);
        b - self.threshold() * a > ROUNDING * (a + b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gangline_rng::{Purpose, Stream};

    fn pair(new_s: f64, resident_s: f64, xi_new: f64, xi_resident: f64, inflation: f64) -> Pair {
        Pair {
            new_s,
            resident_s,
            xi_new,
            xi_resident,
            inflation,
        }
    }

    /// Cases that were computed by hand. Each case lists A, B, both slowdown factors and g, followed by the mean
    /// completion times, the threshold and the expected decision.
    const GOLDEN: [([f64; 5], [f64; 3], bool); 16] = [
        ([100.0, 100.0, 1.2, 1.2, 1.0], [120.0, 150.0, 0.0], true),
        ([100.0, 100.0, 1.5, 1.5, 1.0], [150.0, 150.0, 1.0], false),
        ([100.0, 100.0, 1.6, 1.6, 1.0], [160.0, 150.0, 1.2], false),
        ([40.0, 100.0, 2.0, 2.0, 1.0], [110.0, 120.0, 2.0], true),
        ([50.0, 100.0, 2.0, 2.0, 1.0], [125.0, 125.0, 2.0], false),
        ([60.0, 100.0, 2.0, 2.0, 1.0], [140.0, 130.0, 2.0], false),
        ([300.0, 100.0, 1.4, 1.4, 1.0], [240.0, 250.0, 0.0], true),
        (
            [300.0, 100.0, 1.2, 1.8, 1.0],
            [255.0, 250.0, 0.733_333],
            false,
        ),
        (
            [300.0, 100.0, 1.8, 1.2, 1.0],
            [236.666_667, 250.0, 0.0],
            true,
        ),
        ([10.0, 1000.0, 3.0, 3.0, 1.0], [525.0, 1005.0, 4.0], true),
        (
            [400.0, 1000.0, 3.0, 1.1, 1.0],
            [1_116.666_667, 1200.0, 0.0],
            true,
        ),
        ([100.0, 100.0, 1.0, 1.0, 1.0], [100.0, 150.0, 0.0], true),
        (
            [100.0, 100.0, 1.2, 1.2, 1.2],
            [130.0, 150.0, 0.333_333],
            true,
        ),
        (
            [100.0, 300.0, 1.2, 1.2, 2.0],
            [290.0, 350.0, 1.666_667],
            true,
        ),
        ([100.0, 30.0, 1.1, 1.1, 1.2], [78.0, 80.0, 0.25], true),
        ([100.0, 20.0, 1.1, 1.1, 1.2], [72.0, 70.0, 0.25], false),
    ];

    /// The cases are exact ties in decimal arithmetic: B = c A, with c = 2 xi - 2 for equal slowdown factors of at
    /// least 1.5 and g = 1.
    #[test]
    fn a_tie_in_decimals_does_not_share() {
        for (xi, a, b) in [
            (1.7, 1.5, 2.1),
            (1.7, 7.0, 9.8),
            (1.6, 5.0, 6.0),
            (1.9, 0.5, 0.9),
        ] {
            assert!(!pair(a, b, xi, xi, 1.0).shares(), "{xi} {a} {b}");
            assert!(pair(a, b + 1e-9, xi, xi, 1.0).shares(), "{xi} {a} {b}");
        }
    }

    #[test]
    fn golden_pairs() {
        for ([a, b, xi_a, xi_b, g], [t_con, t_seq, c], shares) in GOLDEN {
            let pair = pair(a, b, xi_a, xi_b, g);
            let near = |found: f64, expected: f64| (found - expected).abs() < 1e-6;
            assert!(near(pair.t_con(), t_con), "{pair:?}: {}", pair.t_con());
            assert!(near(pair.t_seq(), t_seq), "{pair:?}: {}", pair.t_seq());
            assert!(near(pair.threshold(), c), "{pair:?}: {}", pair.threshold());
            assert_eq!(pair.shares(), shares, "{pair:?}");
        }
    }

    /// Computes, step by step, the mean completion time if the new job joins after `kappa` seconds.
    fn mean_at(pair: &Pair, kappa: f64) -> f64 {
        let work_a = pair.inflation * pair.new_s;
        let left_b = pair.resident_s - kappa;
        let (end_a, end_b) = (pair.xi_new * work_a, pair.xi_resident * left_b);
        let (last_a, last_b) = if end_a >= end_b {
            (end_b + (work_a - end_b / pair.xi_new), end_b)
        } else {
            (end_a, end_a + (left_b - end_a / pair.xi_resident))
        };
        kappa + f64::midpoint(last_a, last_b)
    }

    #[test]
    fn the_rule_takes_the_better_end_and_no_instant_between_is_better() {
        let stream = Stream::new(7, Purpose::Estimates);
        for at in 0..4_000 {
            let uniform = |slot| stream.draw(at, slot, 0).uniform();
            let pair = pair(
                1.0 + 500.0 * uniform(0),
                1.0 + 500.0 * uniform(1),
                1.0 + 2.0 * uniform(2),
                1.0 + 2.0 * uniform(3),
                1.0 + if at % 2 == 0 { 0.0 } else { 2.0 * uniform(4) },
            );
            // After the resident ends, the new job runs with its full batch only if it has waited until then.
            let now = mean_at(&pair, 0.0);
            assert!((pair.t_con() - now).abs() <= 1e-9 * now, "{pair:?}");
            let gain = pair.t_seq() - pair.t_con();
            if gain.abs() > 1e-9 * pair.t_seq() {
                assert_eq!(pair.shares(), gain > 0.0, "{pair:?}");
            }
            let best = pair.t_con().min(pair.t_seq());
            for step in 0..=50 {
                let mean = mean_at(&pair, pair.resident_s * f64::from(step) / 50.0);
                assert!(mean >= best * (1.0 - 1e-12), "{pair:?} at {step}");
            }
        }
    }
}
