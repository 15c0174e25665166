//! The Gittins index over a distribution of the total service S of jobs, for attained service `a` and quantum D.
//!
//! The index is `index(a) = P(S - a <= D | S > a) / E[min(S - a, D) | S > a]`, computed exactly as a fraction of
//! integers. `a` is rounded down to a multiple of D, so there are only a few different indexes. The indexes are ranked
//! once, and policies then compare ranks. The cost is that of sorting the values of S and the multiples of D.

use std::cmp::Ordering;

/// Maximum number of multiples of D that are ranked.
const GRID_LIMIT: i128 = 1 << 24;

/// Ranks of the Gittins index at the multiples of D.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GittinsIndex {
    delta: i128,
    /// Rank of the index at `a = m x D`; smaller ranks come first.
    ranks: Vec<u32>,
    /// Rank of index 0, which applies to every `a` beyond the largest S.
    last: u32,
}

/// A Gittins index as a fraction, in 1 / GPU-ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fraction {
    /// Of the jobs with S > a, the number of those with S - a <= D.
    numerator: i128,
    /// Sum of min(S - a, D) over the jobs with S > a.
    denominator: i128,
}

impl GittinsIndex {
    /// Computes the ranks. `services` contains the total service of each job in ascending order; it and the quantum are
    /// in GPU-ns. The result is `None` if the largest service is at least 2^24 times the quantum.
    pub(crate) fn new(services: &[i128], delta: i128) -> Option<Self> {
        debug_assert!(services.is_sorted(), "services are sorted");
        let longest = services.last().copied().unwrap_or(0);
        if longest / delta >= GRID_LIMIT {
            return None;
        }
        let points = (longest + delta - 1) / delta;
        let sums = prefix_sums(services);
        let mut order: Vec<(Fraction, u32)> = (0..points)
            .map(|m| (index_at(services, &sums, m * delta, delta), m as u32))
            .collect();
        order.sort_by(|(a, m), (b, n)| b.compare(*a).then(m.cmp(n)));
        let mut ranks = vec![0; points as usize];
        let mut rank = 0;
        for (at, &(fraction, m)) in order.iter().enumerate() {
            if at > 0 && order[at - 1].0.compare(fraction) != Ordering::Equal {
                rank += 1;
            }
            ranks[m as usize] = rank;
        }
        // An index of 0 inside the grid has the same rank as an index beyond the grid.
        let is_zero = order
            .last()
            .is_some_and(|(fraction, _)| fraction.numerator == 0);
        let last = if is_zero || order.is_empty() {
            rank
        } else {
            rank + 1
        };
        Some(Self { delta, ranks, last })
    }

    /// Returns the rank of the index for this attained service in GPU-ns; smaller ranks come first.
    #[inline]
    pub(crate) fn rank(&self, attained: i128) -> u32 {
        let point = usize::try_from(attained / self.delta).unwrap_or(usize::MAX);
        self.ranks.get(point).copied().unwrap_or(self.last)
    }

    /// Returns the amount of service left until the next grid point.
    #[inline]
    pub(crate) fn to_next_point(&self, attained: i128) -> i128 {
        self.delta - attained % self.delta
    }
}

fn prefix_sums(services: &[i128]) -> Vec<i128> {
    let mut sums = Vec::with_capacity(services.len() + 1);
    let mut sum = 0;
    sums.push(sum);
    for service in services {
        sum += service;
        sums.push(sum);
    }
    sums
}

/// Returns the index at attained service `a`, using two binary searches.
fn index_at(services: &[i128], sums: &[i128], a: i128, delta: i128) -> Fraction {
    let longer = services.partition_point(|&service| service <= a);
    let beyond = services.partition_point(|&service| service <= a + delta);
    if longer == services.len() {
        return Fraction {
            numerator: 0,
            denominator: 1,
        };
    }
    let ending = (beyond - longer) as i128;
    let staying = (services.len() - beyond) as i128;
    let served = sums[beyond] - sums[longer] - a * ending + delta * staying;
    Fraction {
        numerator: ending,
        denominator: served,
    }
}

impl Fraction {
    /// Compares two fractions exactly. Numerators are job counts (below 2^32), and denominators are sums of at most
    /// that many values of S. If the cross products do not fit into the integer type, the inverses are compared
    /// instead.
    fn compare(self, other: Self) -> Ordering {
        let left = self.numerator.checked_mul(other.denominator);
        let right = other.numerator.checked_mul(self.denominator);
        match (left, right) {
            (Some(left), Some(right)) => left.cmp(&right),
            _ => self.compare_inverses(other),
        }
    }

    /// Compares two fractions by applying Euclid's algorithm to their inverses.
    fn compare_inverses(self, other: Self) -> Ordering {
        if self.numerator == 0 || other.numerator == 0 {
            return self.numerator.cmp(&other.numerator);
        }
        // The inverses are compared by their continued fractions. Each step inverts both numbers.
        let (mut left, mut right) = (
            (self.denominator, self.numerator),
            (other.denominator, other.numerator),
        );
        let mut order = Ordering::Greater;
        loop {
            let whole = (left.0 / left.1).cmp(&(right.0 / right.1));
            if whole != Ordering::Equal {
                return if whole == Ordering::Greater {
                    order.reverse()
                } else {
                    order
                };
            }
            left = (left.1, left.0 % left.1);
            right = (right.1, right.0 % right.1);
            match (left.1 == 0, right.1 == 0) {
                (true, true) => return Ordering::Equal,
                (true, false) => return order,
                (false, true) => return order.reverse(),
                (false, false) => order = order.reverse(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i128 = 1_000_000_000;

    fn value(services: &[i128], a: i128, delta: i128) -> f64 {
        let fraction = index_at(services, &prefix_sums(services), a, delta);
        fraction.numerator as f64 / fraction.denominator as f64 * 1e9
    }

    /// The expected values were computed by hand.
    #[test]
    fn golden_of_four_services() {
        let delta = 3250 * SECOND;
        let services = [delta, 2 * delta, 3 * delta, 10 * delta];
        for (attained, expected) in [
            (0, 0.25 / 3250.0),
            (3250, 1.0 / 3.0 / 3250.0),
            (6500, 0.5 / 3250.0),
            (9750, 0.0),
            (29250, 1.0 / 3250.0),
            (32500, 0.0),
        ] {
            let found = value(&services, attained * SECOND, delta);
            assert!(
                (found - expected).abs() < 1e-12,
                "index({attained}) = {found}"
            );
        }
        let index = GittinsIndex::new(&services, delta).expect("a short grid");
        let ranks: Vec<u32> = [29250, 6500, 3250, 0, 9750, 13000, 32500, 99999]
            .map(|a| index.rank(a * SECOND))
            .into();
        assert_eq!(ranks, [0, 1, 2, 3, 4, 4, 4, 4]);
    }

    #[test]
    fn two_points_prefer_short_so_far_correctly() {
        // There are many 10-second jobs and few 1000-second jobs, so after 10 s a job is known to be long.
        let mut services = vec![10 * SECOND; 9];
        services.push(1000 * SECOND);
        let index = GittinsIndex::new(&services, 10 * SECOND).expect("a short grid");
        assert!(index.rank(0) < index.rank(10 * SECOND));
        // When a long job is within one quantum of its end, its index is the best of all.
        assert!(index.rank(990 * SECOND) < index.rank(0));
    }

    #[test]
    fn euclid_agrees_with_cross_products() {
        let all: Vec<Fraction> = (1..12)
            .flat_map(|numerator| {
                (1..12).map(move |denominator| Fraction {
                    numerator,
                    denominator,
                })
            })
            .collect();
        for (&x, &y) in all.iter().flat_map(|x| all.iter().map(move |y| (x, y))) {
            assert_eq!(x.compare(y), x.compare_inverses(y), "{x:?} and {y:?}");
        }
    }

    #[test]
    fn too_fine_a_grid_is_refused() {
        assert_eq!(GittinsIndex::new(&[1 << 60], 1), None);
    }
}
