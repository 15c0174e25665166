//! Residents beside which a newcomer gains, the best first, without looking at the others.
//!
//! Within a kind the mean completion time grows with the time that the resident has left, and so does the gain of
//! sharing: those that gain are a tail of the kind, and the best is its first. Kinds are merged by a heap.
//! Cost: O(K log n) for K kinds, and O(log n) for each partner taken.

use super::pair::Pair;
use super::params::PartnerTime;
use super::residents::{Members, Residents};
use crate::kit::Seen;
use gangline_engine::ClusterView;
use gangline_model::{GpuTypeId, JobId, NANOS_PER_SECOND, SimSpan, SimTime};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The threshold is exact only to rounding: residents so close below it are asked by the rule itself.
const NEAR: f64 = 1e-12; // ours: thousands of times what the roundings come to

/// A newcomer at a sub-batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking<'a> {
    pub(super) view: &'a ClusterView<'a>,
    pub(super) job: JobId,
    pub(super) gpu_type: GpuTypeId,
    /// Time that it needs alone at full batch, as the policy sees it.
    pub(super) new_s: f64,
    /// Iteration time at the sub-batch over that at full batch.
    pub(super) inflation: f64,
    /// Most memory that a resident may hold beside it.
    pub(super) room: u64,
    pub(super) seen: Seen,
    pub(super) partner_time: PartnerTime,
}

/// A resident beside which the newcomer gains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Partner {
    pub(super) job: JobId,
    pub(super) t_con: f64,
}

/// Partners by mean completion time, then job.
#[derive(Debug)]
pub(super) struct Partners<'a> {
    now: SimTime,
    tails: Vec<Tail<'a>>,
    /// Mean completion time (positive, so its bits keep the order), job, finish, number of the tail.
    next: BinaryHeap<Reverse<(u64, JobId, SimTime, usize)>>,
}

/// The residents of a kind with which sharing pays.
#[derive(Debug)]
struct Tail<'a> {
    members: &'a Members,
    /// The newcomer beside one of them.
    beside: Beside,
    /// The last finish whose residents are in the heap.
    opened: SimTime,
}

/// A newcomer and a resident, whenever that ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside {
    pair: Pair,
    /// What the time until the end of the resident is divided by.
    pace: f64,
}

impl Beside {
    /// With a resident that ends at an instant.
    pub(super) fn until(&self, finish: SimTime, now: SimTime) -> Pair {
        Pair {
            resident_s: (finish - now).seconds() / self.pace,
            ..self.pair
        }
    }
}

impl Tail<'_> {
    /// The first finish that is late enough.
    fn first(&self, now: SimTime) -> Option<SimTime> {
        let Beside { pair, pace } = self.beside;
        let least_s = pair.threshold() * pair.new_s * pace * (1.0 - NEAR);
        // `as` saturates: then nothing is late enough
        let mut from = now + SimSpan((least_s.max(0.0) * NANOS_PER_SECOND).floor() as i64);
        loop {
            let finish = self.from(from)?.0;
            if self.beside.until(finish, now).shares() {
                return Some(finish);
            }
            from = after(finish)?;
        }
    }

    /// The first resident that ends at an instant or later.
    fn from(&self, finish: SimTime) -> Option<(SimTime, JobId)> {
        self.members.range((finish, JobId(0))..).next().copied()
    }
}

/// The next instant; none after the end of time.
fn after(finish: SimTime) -> Option<SimTime> {
    (finish < SimTime::NEVER).then_some(finish + SimSpan(1))
}

impl<'a> Partners<'a> {
    /// Finds the best of each kind.
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
            if asking.seen.is_exact() {
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

    /// Residents whose times are seen with an error of their own each have no order: all are looked at.
    fn add_each(&mut self, asking: &Asking<'_>, tail: &Tail<'_>) {
        for &(finish, job) in tail.members {
            let pair = asking.as_seen(job, tail.beside.until(finish, self.now));
            if pair.shares() {
                let entry = (pair.t_con().to_bits(), job, finish, usize::MAX);
                self.next.push(Reverse(entry));
            }
        }
    }

    /// Adds the first resident of a finish, and those of later ones with the same mean completion time: times that
    /// differ can have equal means, and then the job decides.
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
    /// The newcomer beside a resident with a present slowdown factor; `None` if the two may not share.
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

    /// With the time of the resident as the policy sees it.
    pub(super) fn as_seen(&self, resident: JobId, pair: Pair) -> Pair {
        Pair {
            resident_s: self.seen.seconds(self.view, resident, pair.resident_s),
            ..pair
        }
    }
}
