//! Finds the most even plan among those that a heterogeneity-agnostic policy considers equal.
//!
//! A policy without rates treats all types on which a job can run as equal, so every split of the job's time among them
//! is optimal. A solution at a vertex would send a job to a single type, perhaps the slowest, for its whole life. This
//! module instead divides the time of each job among its types in proportion to their numbers of GPUs, which
//! corresponds to a mean rate over the cluster. This may give a type more time than its GPUs have, because some jobs
//! cannot run everywhere. The excess then moves along a shortest path of types to a type with spare GPUs. Each step of
//! the path shifts time of jobs that can run on both types of the step.

use super::program::within;
use std::collections::VecDeque;

/// Differences of up to this fraction of the GPUs of a type count as rounding errors.
const NOISE: f64 = 1e-12;

/// Classes of jobs, and where they can run. Tables are row-major, `classes x types`.
pub struct Spread<'a> {
    /// Rates; 0 where a class cannot run.
    pub rates: &'a [f64],
    /// Gang size of the jobs in each class.
    pub gangs: &'a [f64],
    /// Number of jobs in each class.
    pub members: &'a [f64],
    /// Number of GPUs of each type.
    pub capacity: &'a [f64],
}

impl Spread<'_> {
    /// Splits the time of each class evenly among its types without changing its total.
    ///
    /// # Examples
    /// ```
    /// use gangline_allocation::Spread;
    /// let one = [1.0, 1.0];
    /// // The second job cannot run on the second type, which has 3 of the 4 GPUs.
    /// let spread = Spread { rates: &[1.0, 9.0, 1.0, 0.0], gangs: &one, members: &one, capacity: &[1.0, 3.0] };
    /// let mut shares = [1.0, 0.0, 0.5, 0.0];
    /// spread.even(&mut shares);
    /// assert_eq!(shares, [0.25, 0.75, 0.5, 0.0]);
    /// ```
    pub fn even(&self, shares: &mut [f64]) {
        let types = self.capacity.len();
        for (class, row) in shares.chunks_exact_mut(types).enumerate() {
            let time: f64 = row.iter().sum();
            let own = |at: usize| {
                if self.can(class, at) {
                    self.capacity[at]
                } else {
                    0.0
                }
            };
            let gpus: f64 = (0..types).map(own).sum();
            if gpus > 0.0 {
                for (at, share) in row.iter_mut().enumerate() {
                    *share = time * (own(at) / gpus);
                }
            }
        }
        // Each path removes the excess of its first type, fills its last type, or exhausts one of its steps.
        for _ in 0..4 * types.pow(3) {
            let Some((way, amount)) = self.way_out(shares) else {
                break;
            };
            for step in way.windows(2) {
                self.shift(shares, step[0], step[1], amount);
            }
        }
        within(
            shares,
            &mut [],
            &[],
            self.gangs,
            self.members,
            self.capacity,
        );
    }

    fn can(&self, class: usize, gpu_type: usize) -> bool {
        let at = class * self.capacity.len() + gpu_type;
        self.rates[at] > 0.0 && self.capacity[gpu_type] > 0.0
    }

    /// Returns the mean number of GPUs of a type that a class holds.
    fn held(&self, shares: &[f64], class: usize, gpu_type: usize) -> f64 {
        let share = shares[class * self.capacity.len() + gpu_type];
        share * self.gangs[class] * self.members[class]
    }

    /// Returns the number of GPUs that could move from one type to another.
    fn movable(&self, shares: &[f64], from: usize, to: usize) -> f64 {
        let classes = (0..self.gangs.len()).filter(|&class| self.can(class, to));
        classes.map(|class| self.held(shares, class, from)).sum()
    }

    /// Returns the shortest path from the first type with too few GPUs to a type with spare GPUs, and the number of
    /// GPUs whose time moves along this path.
    fn way_out(&self, shares: &[f64]) -> Option<(Vec<usize>, f64)> {
        let types = self.capacity.len();
        let over: Vec<f64> = (0..types)
            .map(|at| {
                let held = (0..self.gangs.len()).map(|class| self.held(shares, class, at));
                held.sum::<f64>() - self.capacity[at]
            })
            .collect();
        let noise = |at: usize| NOISE * self.capacity[at];
        let first = (0..types).find(|&at| over[at] > noise(at))?;
        let mut before = vec![usize::MAX; types];
        before[first] = first;
        let mut next = VecDeque::from([(first, over[first])]);
        while let Some((from, most)) = next.pop_front() {
            if over[from] < -noise(from) {
                let mut way = vec![from];
                while way[0] != first {
                    way.insert(0, before[way[0]]);
                }
                return Some((way, most.min(-over[from])));
            }
            for (to, came_from) in before.iter_mut().enumerate() {
                if *came_from != usize::MAX {
                    continue;
                }
                let movable = self.movable(shares, from, to);
                if movable > noise(to) {
                    *came_from = from;
                    next.push_back((to, most.min(movable)));
                }
            }
        }
        None
    }

    /// Moves a number of GPUs from one type to another, in the same proportion for each class that can use both.
    fn shift(&self, shares: &mut [f64], from: usize, to: usize, amount: f64) {
        let part = (amount / self.movable(shares, from, to)).min(1.0);
        for class in 0..self.gangs.len() {
            if self.can(class, to) {
                let row = class * self.capacity.len();
                let moved = shares[row + from] * part;
                shares[row + from] -= moved;
                shares[row + to] += moved;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Spreads a plan that fits. Each class keeps its total time, the plan still fits the cluster, and the plan is
        /// even if all jobs can run anywhere.
        #[test]
        fn it_keeps_time_and_fits(
            classes in prop::collection::vec((1_u32..9, 1_u32..5, prop::collection::vec((any::<bool>(), 0.0_f64..1.0), 5)), 1..8),
            capacity in prop::collection::vec(0_u32..20, 5),
        ) {
            let capacity: Vec<f64> = capacity.into_iter().map(f64::from).collect();
            let gangs: Vec<f64> = classes.iter().map(|own| f64::from(own.0)).collect();
            let members: Vec<f64> = classes.iter().map(|own| f64::from(own.1)).collect();
            let cells = classes.iter().flat_map(|own| &own.2);
            let rates: Vec<f64> = cells.clone().map(|own| f64::from(u8::from(own.0))).collect();
            let cells = cells.zip(capacity.iter().cycle());
            let mut shares: Vec<f64> = cells
                .map(|(own, gpus)| if own.0 && *gpus > 0.0 { own.1 } else { 0.0 })
                .collect();
            within(&mut shares, &mut [], &[], &gangs, &members, &capacity);
            let times = |shares: &[f64]| -> Vec<f64> { shares.chunks_exact(5).map(|row| row.iter().sum()).collect() };
            let before = times(&shares);
            let spread = Spread { rates: &rates, gangs: &gangs, members: &members, capacity: &capacity };
            spread.even(&mut shares);
            for (own, other) in times(&shares).into_iter().zip(&before) {
                prop_assert!((own - other).abs() <= 1e-10, "{own} {other}");
            }
            let gpus: f64 = capacity.iter().sum();
            for (at, most) in capacity.iter().enumerate() {
                let held: f64 = (0..gangs.len()).map(|class| spread.held(&shares, class, at)).sum();
                prop_assert!(held <= most * (1.0 + 1e-12));
                for (class, time) in before.iter().enumerate() {
                    let share = shares[class * 5 + at];
                    prop_assert!(share == 0.0 || spread.can(class, at));
                    if rates.iter().all(|rate| *rate > 0.0) && gpus > 0.0 {
                        prop_assert!((share - time * most / gpus).abs() <= 1e-12);
                    }
                }
            }
        }
    }

    #[test]
    fn only_what_does_not_fit_is_moved() {
        // There are two types with one GPU each. One of the two jobs can use only the first type, so the other job
        // moves as far as necessary.
        let ones = [1.0, 1.0];
        let spread = Spread {
            rates: &[1.0, 1.0, 1.0, 0.0],
            gangs: &ones,
            members: &ones,
            capacity: &ones,
        };
        let mut shares = vec![0.5, 0.5, 0.5, 0.0];
        spread.even(&mut shares);
        assert_eq!(shares, [0.5, 0.5, 0.5, 0.0]);
        let mut shares = vec![0.25, 0.75, 0.75, 0.0];
        spread.even(&mut shares);
        assert_eq!(shares, [0.25, 0.75, 0.75, 0.0]);
    }

    #[test]
    fn a_way_may_lead_over_other_types() {
        // The first job can use one type, and each other job can use two. After the even split, the spare GPUs are on
        // the third type, two steps from the first.
        let (gangs, members) = ([1.0; 3], [1.0; 3]);
        let spread = Spread {
            rates: &[1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0],
            gangs: &gangs,
            members: &members,
            capacity: &[1.0, 1.0, 1.0],
        };
        let mut shares = vec![1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0];
        spread.even(&mut shares);
        assert_eq!(shares, [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
    }

    fn close(shares: &[f64], expected: &[f64]) {
        for (own, other) in shares.iter().zip(expected) {
            assert!((own - other).abs() < 1e-9, "{shares:?} {expected:?}");
        }
    }

    #[test]
    fn a_type_with_room_gets_no_more_than_fits() {
        // Two jobs can use only the first type and fill it. A quarter of the next job moves to each of the other types.
        // The last job, whose types have enough GPUs, does not move.
        let ones = [1.0; 3];
        let spread = Spread {
            rates: &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0],
            gangs: &ones,
            members: &[2.0, 1.0, 1.0],
            capacity: &[2.0, 1.0, 1.0],
        };
        let mut shares = vec![1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0];
        spread.even(&mut shares);
        close(&shares, &[1.0, 0.0, 0.0, 0.0, 0.5, 0.5, 0.0, 0.5, 0.5]);
    }

    #[test]
    fn the_shortest_way_is_taken() {
        // The first and the third type are full of jobs that can use nothing else. The second type has room for the
        // time that the next job must give up. The last job, which could make room on the third, does not move.
        let ones = [1.0; 4];
        let spread = Spread {
            rates: &[
                1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0,
            ],
            gangs: &ones,
            members: &ones,
            capacity: &ones,
        };
        let mut shares = vec![
            1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.6, 0.0, 0.6, 0.0, 0.0, 0.0, 0.0, 0.0, 0.4, 0.0,
        ];
        spread.even(&mut shares);
        let expected = [
            1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.6, 0.0, 0.0, 0.4, 0.2, 0.0, 0.0, 0.0, 0.2, 0.2,
        ];
        close(&shares, &expected);
    }
}
