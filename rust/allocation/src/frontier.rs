//! The cheapest way to reach a rate when GPU time has a price.
//!
//! A class has a point (rate, cost) for each type and one for idling; mixing them in time reaches the
//! lower convex hull. Between two adjacent points of the hull, cost grows by a constant price per rate.

use smallvec::SmallVec;

/// One end of a hull edge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Corner {
    /// Rate, in the unit of the objective.
    pub rate: f64,
    /// Cost at the present prices.
    pub cost: f64,
    /// GPU type; `None` is idling.
    pub gpu_type: Option<u32>,
}

/// Hull of a class, from idling to its fastest type; at most one corner per type and idling.
pub(crate) type Hull = SmallVec<[Corner; 9]>;

/// Builds the hull of points in ascending order of rate.
///
/// Of two types with the same rate the cheaper stays; at the same cost, the first.
pub(crate) fn lower_hull(points: impl Iterator<Item = Corner>, hull: &mut Hull) {
    hull.clear();
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
        while hull.len() >= 2 && !turns_up(hull[hull.len() - 2], hull[hull.len() - 1], point) {
            hull.pop();
        }
        hull.push(point);
    }
}

/// Whether the price per rate is larger after `middle` than before it.
fn turns_up(left: Corner, middle: Corner, right: Corner) -> bool {
    (middle.cost - left.cost) * (right.rate - middle.rate)
        < (right.cost - middle.cost) * (middle.rate - left.rate)
}

/// Price per rate of the edge that ends at corner `end`.
pub(crate) fn edge_price(hull: &Hull, end: usize) -> f64 {
    let (left, right) = (hull[end - 1], hull[end]);
    (right.cost - left.cost) / (right.rate - left.rate)
}

/// The edge that reaches `rate` and how far along it that is: (end corner, weight of the end).
pub(crate) fn reach(hull: &Hull, rate: f64) -> (usize, f64) {
    let end = (1..hull.len())
        .find(|&end| hull[end].rate >= rate)
        .unwrap_or(hull.len() - 1);
    let (left, right) = (hull[end - 1], hull[end]);
    let weight = (rate - left.rate) / (right.rate - left.rate);
    (end, weight.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corners(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
        let mut hull = Hull::new();
        let all = points.iter().zip(0..).map(|(&(rate, cost), kind)| Corner {
            rate,
            cost,
            gpu_type: Some(kind),
        });
        lower_hull(all, &mut hull);
        hull.iter()
            .map(|corner| (corner.rate, corner.cost))
            .collect()
    }

    #[test]
    fn a_dear_type_between_two_others_is_never_used() {
        // Half of (4, 4) gives 2 for 2; the type that gives 2 for 3 is left out.
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
        let mut hull = Hull::new();
        let points = [(2.0, 1.0), (4.0, 4.0)].map(|(rate, cost)| Corner {
            rate,
            cost,
            gpu_type: Some(0),
        });
        lower_hull(points.into_iter(), &mut hull);
        assert_eq!(reach(&hull, 3.0), (2, 0.5));
        assert_eq!(reach(&hull, 1.0), (1, 0.5));
        assert_eq!(reach(&hull, 4.0), (2, 1.0));
        assert!((edge_price(&hull, 2) - 1.5).abs() < 1e-15);
    }
}
