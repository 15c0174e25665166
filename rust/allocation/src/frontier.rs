//! Finds the cheapest way to reach a rate when GPU time has a price.
//!
//! A class has a point (rate, cost) for each type, and one point for idling. By dividing its time between points, a
//! class can reach every point of their lower convex hull. Between two adjacent corners of the hull, the cost grows at
//! a constant price per unit of rate.

/// One end of a hull edge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Corner {
    /// Rate in steps per second.
    pub rate: f64,
    /// Cost at the current prices.
    pub cost: f64,
    /// GPU type; `None` means idling.
    pub gpu_type: Option<u32>,
}

/// The hulls of all classes; each hull goes from idling to the fastest type of the class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hulls {
    corners: Vec<Corner>,
    ends: Vec<usize>,
}

impl Hulls {
    pub(crate) fn clear(&mut self) {
        self.corners.clear();
        self.ends.clear();
    }

    /// Adds the hull of a class, given its points in ascending order of rate.
    ///
    /// If two types have the same rate, the cheaper one is kept; if their costs are equal too, the first one is kept.
    pub(crate) fn push(&mut self, points: impl Iterator<Item = Corner>) {
        let hull = &mut self.corners;
        let start = hull.len();
        hull.push(Corner {
            rate: 0.0,
            cost: 0.0,
            gpu_type: None,
        });
        for point in points {
            let last = hull[hull.len() - 1];
            if point.rate <= last.rate {
                if point.cost >= last.cost {
                    continue;
                }
                hull.pop();
            }
            while let [.., left, middle] = hull[start..]
                && !turns_up(left, middle, point)
            {
                hull.pop();
            }
            hull.push(point);
        }
        self.ends.push(hull.len());
    }

    pub(crate) fn of(&self, class: usize) -> &[Corner] {
        let start = class.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.corners[start..self.ends[class]]
    }
}

/// Returns whether the price per unit of rate is higher after `middle` than before it.
fn turns_up(left: Corner, middle: Corner, right: Corner) -> bool {
    (middle.cost - left.cost) * (right.rate - middle.rate)
        < (right.cost - middle.cost) * (middle.rate - left.rate)
}

/// Returns the price per unit of rate on the edge that ends at corner `end`.
pub(crate) fn edge_price(hull: &[Corner], end: usize) -> f64 {
    let (left, right) = (hull[end - 1], hull[end]);
    (right.cost - left.cost) / (right.rate - left.rate)
}

/// Finds the hull edge that contains `rate`. Returns the index of the edge's end corner. Also returns the weight of
/// this corner in the mix of both corners that reaches `rate`.
pub(crate) fn reach(hull: &[Corner], rate: f64) -> (usize, f64) {
    let end = (1..hull.len())
        .find(|&end| hull[end].rate >= rate)
        .unwrap_or(hull.len() - 1);
    let (left, right) = (hull[end - 1], hull[end]);
    let weight = (rate - left.rate) / (right.rate - left.rate);
    (end, weight.clamp(0.0, 1.0))
}

/// Returns the minimum cost of a rate, and the marginal cost per unit of rate.
pub(crate) fn cost_of(hull: &[Corner], rate: f64) -> (f64, f64) {
    let end = (1..hull.len())
        .find(|&end| hull[end].rate > rate)
        .unwrap_or(hull.len() - 1);
    let left = hull[end - 1];
    let rise = edge_price(hull, end);
    (left.cost + (rate - left.rate) * rise, rise)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corners(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
        let mut hulls = Hulls::default();
        let all = points.iter().zip(0..).map(|(&(rate, cost), kind)| Corner {
            rate,
            cost,
            gpu_type: Some(kind),
        });
        hulls.push(all);
        hulls
            .of(0)
            .iter()
            .map(|corner| (corner.rate, corner.cost))
            .collect()
    }

    #[test]
    fn a_dear_type_between_two_others_is_never_used() {
        // Half of (4, 4) gives a rate of 2 at cost 2, so the type with cost 3 is left out.
        assert_eq!(corners(&[(2.0, 3.0), (4.0, 4.0)]), [(0.0, 0.0), (4.0, 4.0)]);
        assert_eq!(
            corners(&[(2.0, 1.0), (4.0, 4.0)]),
            [(0.0, 0.0), (2.0, 1.0), (4.0, 4.0)]
        );
    }

    #[test]
    fn of_equal_rates_the_cheaper_stays() {
        assert_eq!(corners(&[(2.0, 3.0), (2.0, 1.0)]), [(0.0, 0.0), (2.0, 1.0)]);
        assert_eq!(corners(&[(2.0, 1.0), (2.0, 3.0)]), [(0.0, 0.0), (2.0, 1.0)]);
    }

    #[test]
    fn free_types_leave_only_the_fastest() {
        assert_eq!(corners(&[(1.0, 0.0), (3.0, 0.0)]), [(0.0, 0.0), (3.0, 0.0)]);
    }

    #[test]
    fn a_rate_between_corners_is_a_mix() {
        let mut hulls = Hulls::default();
        let points = [(2.0, 1.0), (4.0, 4.0)].map(|(rate, cost)| Corner {
            rate,
            cost,
            gpu_type: Some(0),
        });
        hulls.push(points.into_iter());
        let hull = hulls.of(0);
        assert_eq!(reach(hull, 3.0), (2, 0.5));
        assert_eq!(reach(hull, 1.0), (1, 0.5));
        assert_eq!(reach(hull, 4.0), (2, 1.0));
        assert!((edge_price(hull, 2) - 1.5).abs() < 1e-15);
    }
}
