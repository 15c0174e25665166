//! Finds the number of GPUs of each job. First, GPUs are assigned to jobs by gain per GPU; then single rungs move from
//! job to job. The search is our own; Pollux itself uses a genetic algorithm. The cost is O((G + J) log J) for G GPUs
//! and J jobs, and O(J) per move.

use super::racer::Objective;
use crate::kit::Total;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Minimum increase of the objective that counts as a gain.
const GAIN_MIN: f64 = 1e-9;
/// Number of jobs that are considered on each side of a move. This is our own choice.
const MOVE_JOBS: usize = 16;
/// GPU counts to try in addition to the minimum; those that do not exceed it are skipped.
const COUNTS: [u32; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

/// A job that wants GPUs.
#[derive(Clone, Debug)]
pub(super) struct Bidder {
    /// Possible numbers of GPUs in ascending order, each with its speed-up. The speed-ups are in ascending order as
    /// well.
    pub(super) ladder: Vec<(u32, f64)>,
    /// Number of GPUs that the job holds.
    pub(super) now: u32,
    /// Current speed-up of the job.
    pub(super) speedup_now: f64,
    /// Discount that applies if the job's GPUs change.
    pub(super) phi: f64,
    /// Maximum number of GPUs that the job may currently have.
    pub(super) most: u32,
    /// Number of GPUs assigned to the job.
    pub(super) count: u32,
}

impl Bidder {
    /// Returns the possible numbers of GPUs of a job: the minimum, then the larger ones of [`COUNTS`] up to `most`.
    /// Rungs on which the job cannot run are left out, and so are rungs that are no faster than a lower one.
    pub(super) fn ladder(least: u32, most: u32, speedup: impl Fn(u32) -> f64) -> Vec<(u32, f64)> {
        let above = COUNTS
            .into_iter()
            .filter(|&count| count > least && count <= most);
        let mut ladder: Vec<(u32, f64)> = Vec::new();
        let mut best = 0.0;
        for count in std::iter::once(least).chain(above) {
            let found = speedup(count);
            if found > best {
                best = found;
                ladder.push((count, found));
            }
        }
        ladder
    }

    /// Returns the speed-up with a number of GPUs, which must be a number on the ladder, the current number, or 0.
    pub(super) fn speedup(&self, count: u32) -> f64 {
        if count == 0 {
            return 0.0;
        }
        let found = self.ladder.iter().find(|rung| rung.0 == count);
        found.map_or(self.speedup_now, |rung| rung.1)
    }

    /// Returns the speed-up of the job with a number of GPUs. If this number differs from the number that the job
    /// holds, the discount for a change is applied.
    pub(super) fn felt(&self, count: u32) -> f64 {
        if count == self.now {
            self.speedup_now
        } else {
            self.speedup(count) * self.phi
        }
    }

    /// Returns the next higher rung.
    pub(super) fn up(&self) -> Option<u32> {
        let rungs = self.ladder.iter().map(|rung| rung.0);
        rungs.into_iter().find(|&rung| rung > self.count)
    }

    /// Returns the highest rung below the current one that frees at least `freed` GPUs, and at least one GPU. No rung
    /// has zero GPUs.
    pub(super) fn down(&self, freed: u32) -> Option<u32> {
        let most = self.count.checked_sub(freed.max(1))?;
        let rungs = self.ladder.iter().rev().map(|rung| rung.0);
        rungs.into_iter().find(|&rung| rung <= most)
    }

    /// Returns the next higher rung. Also returns the number of GPUs that the job currently holds, if this number is
    /// even higher.
    fn ups(&self) -> impl Iterator<Item = u32> {
        let up = self.up();
        let least = up.unwrap_or(self.count).max(self.count);
        up.into_iter().chain((self.now > least).then_some(self.now))
    }

    /// Returns the highest rung that frees at least `freed` GPUs. Also returns the number of GPUs that the job
    /// currently holds, if going back to it frees enough as well.
    fn downs(&self, freed: u32) -> impl Iterator<Item = u32> {
        let down = self.down(freed);
        let is_other = self.now != 0 && down != Some(self.now);
        let is_enough = self.now + freed.max(1) <= self.count;
        down.into_iter()
            .chain((is_other && is_enough).then_some(self.now))
    }
}

/// A rung to which a job may climb. Climbs are ordered by gain per GPU (largest first), then by job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Climb {
    gain: Total,
    bidder: Reverse<usize>,
    count: u32,
    extra: u32,
}

/// The bidders of a decision, and the GPUs that are not yet assigned.
#[derive(Debug)]
pub(super) struct Search<'a> {
    pub(super) bidders: &'a mut [Bidder],
    pub(super) spare: u32,
    pub(super) objective: Objective,
}

impl Search<'_> {
    /// Assigns to each job, in order, its minimum number of GPUs; then assigns the other GPUs by largest gain per GPU.
    /// Returns whether every job got GPUs.
    pub(super) fn give(&mut self) -> bool {
        let mut is_whole = true;
        for at in 0..self.bidders.len() {
            let least = self.bidders[at].ladder.first().map_or(0, |rung| rung.0);
            let fits = least > 0 && least <= self.spare;
            is_whole &= fits;
            self.bidders[at].count = if fits { least } else { 0 };
            self.spare -= self.bidders[at].count;
        }
        self.climb(|_| true);
        is_whole
    }

    fn next_of(&self, at: usize) -> Option<Climb> {
        let bidder = &self.bidders[at];
        let count = bidder.up()?;
        let extra = count - bidder.count;
        let worth = |count| self.objective.worth(bidder.speedup(count));
        let gain = worth(count) - worth(bidder.count);
        Some(Climb {
            gain: Total(gain / f64::from(extra)),
            bidder: Reverse(at),
            count,
            extra,
        })
    }

    /// Assigns spare GPUs by gain per GPU to the bidders for which `is_open` is true.
    fn climb(&mut self, is_open: impl Fn(&Bidder) -> bool) {
        let open = (0..self.bidders.len()).filter(|&at| is_open(&self.bidders[at]));
        let mut heap: BinaryHeap<Climb> = open.filter_map(|at| self.next_of(at)).collect();
        while let Some(best) = heap.pop() {
            if self.spare == 0 || best.gain.0 <= 0.0 {
                return;
            }
            if best.extra > self.spare {
                continue; // The job gets no further GPUs.
            }
            self.spare -= best.extra;
            self.bidders[best.bidder.0].count = best.count;
            heap.extend(self.next_of(best.bidder.0));
        }
    }

    /// Lets running jobs keep their GPUs if the new number of GPUs is not worth the change; GPUs that become free go to
    /// other jobs.
    pub(super) fn settle(&mut self) {
        // GPUs that a later job gives back may let an earlier job keep its count.
        for at in (0..self.bidders.len()).chain(0..self.bidders.len()) {
            let bidder = &mut self.bidders[at];
            let (now, count) = (bidder.now, bidder.count);
            if now == 0 || count == now {
                continue;
            }
            let is_better = bidder.felt(count) > bidder.speedup_now;
            let fits = now <= count || now - count <= self.spare;
            if !is_better && fits {
                bidder.count = now;
                self.spare = self.spare + count - now;
            }
        }
        self.climb(|bidder| bidder.now == 0 || bidder.count != bidder.now);
    }

    /// Moves single rungs from job to job while the objective increases.
    pub(super) fn improve(&mut self, moves: usize) {
        let offer = |one: &Bidder| Value::new(one, self.objective);
        let mut offers: Vec<Value> = self.bidders.iter().map(offer).collect();
        for _ in 0..moves {
            let Some(best) = self.best_move(&offers) else {
                return;
            };
            if !self.grows(&offers, best.gain) {
                return;
            }
            let freed = self.bidders[best.from].count - best.down;
            let needed = best.up - self.bidders[best.to].count;
            self.spare = self.spare + freed - needed;
            self.bidders[best.from].count = best.down;
            self.bidders[best.to].count = best.up;
            for at in [best.from, best.to] {
                offers[at] = Value::new(&self.bidders[at], self.objective);
            }
        }
    }

    /// Returns whether no move would bring a gain even if changes cost nothing. If so, no move will gain at any later
    /// time either.
    pub(super) fn is_at_rest(&self) -> bool {
        let free = |one: &Bidder| Bidder {
            phi: 1.0,
            ..one.clone()
        };
        let mut bidders: Vec<Bidder> = self.bidders.iter().map(free).collect();
        let offer = |one: &Bidder| Value::new(one, self.objective);
        let offers: Vec<Value> = bidders.iter().map(offer).collect();
        let search = Search {
            bidders: &mut bidders,
            ..*self
        };
        let best = search.best_move(&offers);
        best.is_none_or(|best| !search.grows(&offers, best.gain))
    }

    /// Returns whether the objective increases if the sum over the jobs increases by `gain`.
    fn grows(&self, offers: &[Value], gain: f64) -> bool {
        let sum = offers.iter().fold(0.0, |sum, offer| sum + offer.here);
        let mean = |sum| self.objective.mean(sum, offers.len());
        mean(sum + gain) - mean(sum) > GAIN_MIN
    }

    /// Returns the best move from one of the jobs that lose least to one of the jobs that gain most.
    fn best_move(&self, offers: &[Value]) -> Option<Move> {
        let numbered = || offers.iter().enumerate();
        let loss = |(at, offer): (usize, &Value)| Some((offer.here - offer.down?, at));
        let mut losses: Vec<(f64, usize)> = numbered().filter_map(loss).collect();
        let mut gains: Vec<(f64, usize, u32)> = Vec::with_capacity(offers.len());
        for (at, offer) in numbered() {
            let ups = offer.ups.iter().flatten();
            gains.extend(ups.map(|&(up, worth)| (offer.here - worth, at, up)));
        }
        keep_first(&mut losses, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        keep_first(&mut gains, |a, b| {
            a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2)))
        });
        let mut best: Option<Move> = None;
        for &(_, from) in &losses {
            for &(_, to, up) in gains.iter().filter(|gain| gain.1 != from) {
                let giver = &self.bidders[from];
                let needed = (up - self.bidders[to].count).saturating_sub(self.spare);
                let worth = |bidder: &Bidder, count| self.objective.worth(bidder.felt(count));
                for down in giver.downs(needed) {
                    let gain = worth(&self.bidders[to], up) - offers[to].here;
                    let gain = gain - (offers[from].here - worth(giver, down));
                    if best.is_none_or(|found| gain > found.gain) {
                        best = Some(Move {
                            gain,
                            from,
                            down,
                            to,
                            up,
                        });
                    }
                }
            }
        }
        best
    }
}

/// A job's contribution to the objective with its current number of GPUs, with the next lower rung, and with each of
/// [`Bidder::ups`].
#[derive(Clone, Copy, Debug)]
struct Value {
    here: f64,
    down: Option<f64>,
    ups: [Option<(u32, f64)>; 2],
}

impl Value {
    fn new(bidder: &Bidder, objective: Objective) -> Self {
        let worth = |count| objective.worth(bidder.felt(count));
        let mut ups = bidder.ups().map(|up| (up, worth(up)));
        Self {
            here: worth(bidder.count),
            down: bidder.down(1).map(worth),
            ups: [ups.next(), ups.next()],
        }
    }
}

/// A transfer of GPUs from one job to another.
#[derive(Clone, Copy, Debug)]
struct Move {
    gain: f64,
    from: usize,
    down: u32,
    to: usize,
    up: u32,
}

/// Sorts the entries in the given order and keeps only the first [`MOVE_JOBS`].
fn keep_first<T>(all: &mut Vec<T>, order: impl Fn(&T, &T) -> Ordering) {
    if all.len() > MOVE_JOBS {
        all.select_nth_unstable_by(MOVE_JOBS - 1, &order);
        all.truncate(MOVE_JOBS);
    }
    all.sort_by(&order);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;

    const SERVER: u32 = 4;

    /// Creates a bidder whose speed-up is concave in the number of GPUs, except for a drop beyond one server.
    fn bidder(slope: f64, loss: f64, most: u32, now: u32, phi: f64) -> Bidder {
        let speedup = |count: u32| {
            let spread = if count > SERVER { loss } else { 1.0 };
            libm::pow(f64::from(count), slope) * spread
        };
        Bidder {
            ladder: Bidder::ladder(1, most, speedup),
            now,
            speedup_now: if now == 0 { 0.0 } else { speedup(now) },
            phi,
            most,
            count: 0,
        }
    }

    fn total(bidders: &[Bidder]) -> f64 {
        let objective = Objective::new(-1.0, 0.001);
        let felt = |one: &Bidder| objective.worth(one.felt(one.count));
        let sum = bidders.iter().map(felt).sum();
        objective.mean(sum, bidders.len())
    }

    fn search(bidders: &mut [Bidder], gpus: u32) -> bool {
        let jobs = bidders.len();
        let mut search = Search {
            bidders,
            spare: gpus,
            objective: Objective::new(-1.0, 0.001),
        };
        let is_whole = search.give();
        search.settle();
        search.improve(2 * jobs);
        is_whole
    }

    /// Returns the best value of the objective over all possible counts.
    fn exhaustive(bidders: &mut [Bidder], at: usize, spare: u32) -> f64 {
        if at == bidders.len() {
            return total(bidders);
        }
        let rungs = bidders[at].ladder.clone();
        let (now, mut best) = (bidders[at].now, 0.0_f64);
        let counts = rungs.into_iter().map(|rung| rung.0).chain([0, now]);
        for count in counts.filter(|&count| count <= spare) {
            bidders[at].count = count;
            best = best.max(exhaustive(bidders, at + 1, spare - count));
        }
        best
    }

    fn drawn() -> impl Strategy<Value = (Vec<Bidder>, u32)> {
        let one = (0.1_f64..1.0, 0.4_f64..1.0, 1_u32..9, 0.3_f64..1.0);
        let jobs = prop::collection::vec(one, 1..5);
        (jobs, 1_u32..9).prop_map(|(jobs, gpus)| {
            let made = |(slope, loss, most, phi)| bidder(slope, loss, most, 0, phi);
            (jobs.into_iter().map(made).collect(), gpus)
        })
    }

    #[test]
    fn near_the_best_of_all_counts() {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let (mut sum, mut worst) = (0.0, 1.0_f64);
        for _ in 0..500 {
            let (mut bidders, gpus) = drawn().new_tree(&mut runner).expect("drawn").current();
            search(&mut bidders, gpus);
            let found = total(&bidders);
            let share = found / exhaustive(&mut bidders, 0, gpus);
            sum += share;
            worst = worst.min(share);
        }
        assert!(
            sum / 500.0 >= 0.95 && worst >= 0.8,
            "mean {}, worst {worst}",
            sum / 500.0
        );
    }

    proptest! {
        #[test]
        fn never_more_than_there_is((mut bidders, gpus) in drawn()) {
            let is_whole = search(&mut bidders, gpus);
            let given: u32 = bidders.iter().map(|one| one.count).sum();
            prop_assert!(given <= gpus);
            prop_assert!(!is_whole || bidders.iter().all(|one| one.count > 0));
            for one in &bidders {
                prop_assert!(one.count == 0 || one.ladder.iter().any(|rung| rung.0 == one.count));
            }
        }

        #[test]
        fn more_gpus_never_lower_the_objective_by_a_percent((bidders, gpus) in drawn()) {
            let with = |gpus| {
                let mut own = bidders.clone();
                search(&mut own, gpus);
                total(&own)
            };
            prop_assert!(with(gpus + 1) >= 0.99 * with(gpus));
        }
    }

    #[test]
    fn a_change_that_does_not_pay_is_not_made() {
        let mut bidders = vec![bidder(0.9, 1.0, 4, 2, 0.2)];
        search(&mut bidders, 4);
        assert_eq!(
            bidders[0].count, 2,
            "with the discount, four GPUs are slower"
        );
        bidders[0].phi = 0.9;
        search(&mut bidders, 4);
        assert_eq!(bidders[0].count, 4);
    }
}
