//! How many GPUs each job gets: first a count for each by gain per GPU, then moves of one rung from job to job. Our
//! search; Pollux itself uses a genetic algorithm.
//! Cost: O((G + J) log J) for G GPUs and J jobs, and O(J) per move.

use super::objective::Objective;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A gain in the objective that counts.
const GAIN_MIN: f64 = 1e-9;
/// Jobs on each side of a move that are looked at. Ours.
const MOVE_JOBS: usize = 16;
/// Counts that are tried beyond the least.
const COUNTS: [u32; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

/// A job that wants GPUs.
#[derive(Clone, Debug)]
pub(super) struct Bidder {
    /// Counts that it may have, ascending, each with its speed-up, which ascends too.
    pub(super) ladder: Vec<(u32, f64)>,
    /// GPUs that it holds.
    pub(super) now: u32,
    /// Its speed-up where it is.
    pub(super) speedup_now: f64,
    /// Discount for a change.
    pub(super) phi: f64,
    /// GPUs that it is to have.
    pub(super) count: u32,
}

impl Bidder {
    /// The counts of a job: the least, then those of the list up to a limit. Rungs that are no faster than the rung
    /// below are left out, and so are those on which it cannot run.
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

    /// Speed-up with a count of the ladder, with the one it has, or with none.
    fn speedup(&self, count: u32) -> f64 {
        if count == self.now {
            return self.speedup_now;
        }
        let found = self.ladder.iter().find(|rung| rung.0 == count);
        found.map_or(0.0, |rung| rung.1)
    }

    fn above(&self, count: u32) -> Option<(u32, f64)> {
        self.ladder.iter().copied().find(|rung| rung.0 > count)
    }

    fn below(&self, count: u32) -> Option<u32> {
        let rungs = self.ladder.iter().rev();
        rungs.map(|rung| rung.0).find(|&rung| rung < count)
    }

    /// What it adds to the objective with a count.
    fn worth(&self, objective: Objective, count: u32, with_phi: bool) -> f64 {
        let phi = if with_phi && count != self.now && self.now > 0 {
            self.phi
        } else {
            1.0
        };
        objective.worth(self.speedup(count) * phi)
    }
}

/// A rung that a job may climb.
#[derive(Clone, Copy)]
struct Climb {
    gain: f64,
    bidder: usize,
    count: u32,
    extra: u32,
}

impl Ord for Climb {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_gain = self.gain.total_cmp(&other.gain);
        by_gain.then(other.bidder.cmp(&self.bidder))
    }
}

impl PartialOrd for Climb {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Climb {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Climb {}

/// The bidders of a decision, and the GPUs that are not given out.
#[derive(Debug)]
pub(super) struct Search<'a> {
    pub(super) bidders: &'a mut [Bidder],
    pub(super) spare: u32,
    pub(super) objective: Objective,
}

impl Search<'_> {
    /// The least count for each in an order, then more for those that gain most per GPU. Whether every job got some.
    pub(super) fn give(&mut self, order: &[usize]) -> bool {
        let mut is_whole = true;
        for &at in order {
            let least = self.bidders[at].ladder.first().map_or(0, |rung| rung.0);
            let fits = least > 0 && least <= self.spare;
            is_whole &= fits;
            self.bidders[at].count = if fits { least } else { 0 };
            self.spare -= self.bidders[at].count;
        }
        let climbers = (0..self.bidders.len()).filter(|&at| self.bidders[at].count > 0);
        self.climb(climbers.collect());
        is_whole
    }

    fn next_of(&self, at: usize) -> Option<Climb> {
        let bidder = &self.bidders[at];
        let (count, speedup) = bidder.above(bidder.count)?;
        let own = bidder.ladder.iter().find(|rung| rung.0 == bidder.count);
        let before = own.map_or(bidder.speedup_now, |rung| rung.1);
        let extra = count - bidder.count;
        let gain = self.objective.worth(speedup) - self.objective.worth(before);
        Some(Climb {
            gain: gain / f64::from(extra),
            bidder: at,
            count,
            extra,
        })
    }

    /// Gives what is spare to some bidders by gain per GPU.
    fn climb(&mut self, climbers: Vec<usize>) {
        let next = climbers.into_iter().filter_map(|at| self.next_of(at));
        let mut heap: BinaryHeap<Climb> = next.collect();
        while let Some(best) = heap.pop() {
            if self.spare == 0 || best.gain <= 0.0 {
                return;
            }
            if best.extra > self.spare {
                continue; // this job has all that it will get
            }
            self.spare -= best.extra;
            self.bidders[best.bidder].count = best.count;
            heap.extend(self.next_of(best.bidder));
        }
    }

    /// A running job whose new count is not worth the change keeps what it has; what comes free goes to the others.
    pub(super) fn settle(&mut self, order: &[usize]) {
        let mut is_kept = vec![false; self.bidders.len()];
        for &at in order {
            let bidder = &mut self.bidders[at];
            let (now, count) = (bidder.now, bidder.count);
            if now == 0 || count == now {
                continue;
            }
            let is_better = bidder.speedup(count) * bidder.phi > bidder.speedup_now;
            let fits = now <= count || now - count <= self.spare;
            if !is_better && fits {
                bidder.count = now;
                self.spare = self.spare + count - now;
                is_kept[at] = true;
            }
        }
        let open = (0..self.bidders.len()).filter(|&at| !is_kept[at] && self.bidders[at].count > 0);
        if is_kept.contains(&true) {
            self.climb(open.collect());
        }
    }

    /// Moves single rungs from job to job while the objective grows.
    pub(super) fn improve(&mut self, moves: usize) {
        let jobs = self.bidders.len();
        if jobs < 2 {
            return;
        }
        let worth = |bidder: &Bidder| bidder.worth(self.objective, bidder.count, true);
        let mut sum: f64 = self.bidders.iter().map(worth).sum();
        for _ in 0..moves {
            let Some((from, to, gain)) = self.best_move(true) else {
                return;
            };
            let mean = |sum| self.objective.mean(sum, jobs);
            if mean(sum + gain) - mean(sum) <= GAIN_MIN {
                return;
            }
            sum += gain;
            self.carry_out(from, to);
        }
    }

    /// Whether no move would gain if changes were free: then none will at any later time.
    pub(super) fn is_at_rest(&self) -> bool {
        let worth = |bidder: &Bidder| bidder.worth(self.objective, bidder.count, false);
        let sum: f64 = self.bidders.iter().map(worth).sum();
        let mean = |sum| self.objective.mean(sum, self.bidders.len());
        let gain = self.best_move(false).map_or(0.0, |found| found.2);
        gain <= 0.0 || mean(sum + gain) - mean(sum) <= GAIN_MIN
    }

    fn carry_out(&mut self, from: usize, to: usize) {
        let giver = &mut self.bidders[from];
        let below = giver.below(giver.count).expect("a rung to give");
        self.spare += giver.count - below;
        giver.count = below;
        let taker = &mut self.bidders[to];
        let above = taker.above(taker.count).expect("a rung to climb").0;
        self.spare -= above - taker.count;
        taker.count = above;
    }

    /// The move that gains most among the jobs that lose least and those that gain most; its gain in the sum.
    fn best_move(&self, with_phi: bool) -> Option<(usize, usize, f64)> {
        let value = |bidder: &Bidder, count| bidder.worth(self.objective, count, with_phi);
        let (mut losses, mut gains) = (Vec::new(), Vec::new());
        for (at, bidder) in self.bidders.iter().enumerate() {
            let own = value(bidder, bidder.count);
            if let Some(below) = bidder.below(bidder.count) {
                losses.push((own - value(bidder, below), at, bidder.count - below));
            }
            if let Some((above, _)) = bidder.above(bidder.count) {
                gains.push((value(bidder, above) - own, at, above - bidder.count));
            }
        }
        keep_first(&mut losses, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        keep_first(&mut gains, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut best: Option<(usize, usize, f64)> = None;
        for &(loss, from, freed) in &losses {
            for &(gain, to, needed) in &gains {
                let total = gain - loss;
                let fits = needed <= freed + self.spare;
                if from != to && fits && best.is_none_or(|found| total > found.2) {
                    best = Some((from, to, total));
                }
            }
        }
        best
    }
}

/// Keeps the first few in an order.
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

    /// Concave in the GPUs, with a loss beyond a server.
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
            count: 0,
        }
    }

    fn total(bidders: &[Bidder]) -> f64 {
        let objective = Objective::new(-1.0);
        let sum = bidders
            .iter()
            .map(|one| one.worth(objective, one.count, true))
            .sum();
        objective.mean(sum, bidders.len())
    }

    fn search(bidders: &mut [Bidder], gpus: u32) -> bool {
        let order: Vec<usize> = (0..bidders.len()).collect();
        let mut search = Search {
            bidders,
            spare: gpus,
            objective: Objective::new(-1.0),
        };
        let is_whole = search.give(&order);
        search.settle(&order);
        search.improve(2 * order.len());
        is_whole
    }

    /// The best objective over all counts.
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
            "four GPUs, less the discount, are slower"
        );
        bidders[0].phi = 0.9;
        search(&mut bidders, 4);
        assert_eq!(bidders[0].count, 4);
    }
}
