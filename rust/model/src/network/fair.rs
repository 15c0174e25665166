//! Max-min fair shares of links of one capacity, by progressive filling (spec network section 6).
//!
//! All rates rise together; a flow stops at its demand, or when one of its links is full. Instead of
//! raising a level step by step, each turn takes the link whose equal share of what is left is least:
//! no flow that asks for less than that share is held back by any link, and the flows of that link get
//! exactly that share. Every number of a link comes from the flows on it alone, in the order of their
//! rates, so a part of the graph solved by itself gives the same bits as the whole.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | d | `demands` | rate that a flow would have alone |
//! | b | result | its max-min fair rate, at most d |
//! | level | [`MaxMin::level`] | what each flow still open on a link would get of what is left |

use crate::ModelError;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Flows over links: flow `i` uses `links[ends[i - 1]..ends[i]]`, each link once.
#[derive(Clone, Debug, Default)]
pub struct Flows {
    /// Rate that each flow would have alone, > 0.
    pub demands: Vec<f64>,
    /// Where the links of a flow end.
    pub ends: Vec<u32>,
    /// Links of all flows, one flow after the other.
    pub links: Vec<u32>,
}

impl Flows {
    /// Adds a flow.
    pub fn push(&mut self, demand: f64, links: impl IntoIterator<Item = u32>) {
        self.demands.push(demand);
        self.links.extend(links);
        self.ends.push(self.links.len() as u32);
    }

    /// Forgets all flows.
    pub fn clear(&mut self) {
        self.demands.clear();
        self.ends.clear();
        self.links.clear();
    }

    fn links_of(&self, flow: usize) -> &[u32] {
        let start = flow.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.links[start as usize..self.ends[flow] as usize]
    }

    /// Checks flows that come from outside.
    ///
    /// # Errors
    /// [`ModelError::Table`] for a demand that is not a positive number, or a link named twice or that
    /// does not exist.
    pub fn validate(&self, links: usize) -> Result<(), ModelError> {
        let fail = |what: String| {
            Err(ModelError::Table {
                table: "flows",
                what,
            })
        };
        for (flow, &demand) in self.demands.iter().enumerate() {
            if !(demand.is_finite() && demand > 0.0) {
                return fail(format!("demand {demand} of flow {flow} is not above 0"));
            }
            let mut named = self.links_of(flow).to_vec();
            named.sort_unstable();
            if named.last().is_some_and(|&link| link as usize >= links) {
                return fail(format!("flow {flow} names a link beyond the {links} given"));
            }
            if named.windows(2).any(|pair| pair[0] == pair[1]) {
                return fail(format!("flow {flow} names a link twice"));
            }
        }
        Ok(())
    }
}

/// Solver with its scratch, reused.
#[derive(Debug, Default)]
pub struct MaxMin {
    /// Flows by (demand, index).
    by_demand: Vec<u32>,
    /// By link: what is not given away yet, and the flows without a rate.
    left: Vec<f64>,
    open: Vec<u32>,
    /// Flows by link: those of `l` are `members[starts[l]..starts[l + 1]]`, ascending.
    starts: Vec<u32>,
    members: Vec<u32>,
    /// (bits of the level, link, open flows when it was pushed): out of date if these have changed since.
    heap: BinaryHeap<Reverse<(u64, u32, u32)>>,
    rates: Vec<f64>,
}

/// No rate yet.
const OPEN: f64 = -1.0;

impl MaxMin {
    /// Rates of the flows over `links` links of a capacity > 0. O(n log n) in the flows' links.
    ///
    /// # Examples
    /// Three racks of capacity 10; flows over the first two, the last two and the outer two:
    /// ```
    /// use gangline_model::{Flows, MaxMin};
    /// let mut flows = Flows::default();
    /// flows.push(8.0, [0, 1]);
    /// flows.push(6.0, [1, 2]);
    /// flows.push(3.0, [0, 2]);
    /// assert_eq!(MaxMin::default().solve(10.0, 3, &flows), [5.0, 5.0, 3.0]);
    /// ```
    pub fn solve(&mut self, capacity: f64, links: usize, flows: &Flows) -> &[f64] {
        self.prepare(capacity, links, flows);
        let mut next = 0;
        while let Some(level) = self.least() {
            let (bits, link) = level;
            let share = f64::from_bits(bits);
            while next < self.by_demand.len() && self.rates[self.by_demand[next] as usize] >= 0.0 {
                next += 1;
            }
            let modest = self.by_demand.get(next).copied();
            match modest.filter(|&flow| flows.demands[flow as usize] <= share) {
                Some(flow) => self.fix(flow, flows.demands[flow as usize], flows),
                None => self.fill(link, share, flows),
            }
        }
        // flows on no link, or on none that is still open
        for (rate, &demand) in self.rates.iter_mut().zip(&flows.demands) {
            if *rate < 0.0 {
                *rate = demand;
            }
        }
        &self.rates
    }

    fn prepare(&mut self, capacity: f64, links: usize, flows: &Flows) {
        let count = flows.demands.len();
        self.rates.clear();
        self.rates.resize(count, OPEN);
        self.by_demand.clear();
        self.by_demand.extend(0..count as u32);
        let demand = |flow: &u32| flows.demands[*flow as usize];
        self.by_demand
            .sort_unstable_by(|a, b| demand(a).total_cmp(&demand(b)).then(a.cmp(b)));
        self.left.clear();
        self.left.resize(links, capacity);
        self.open.clear();
        self.open.resize(links, 0);
        for &link in &flows.links {
            self.open[link as usize] += 1;
        }
        self.starts.clear();
        self.starts.push(0);
        let mut end = 0;
        for &open in &self.open {
            end += open;
            self.starts.push(end);
        }
        self.members.clear();
        self.members.resize(flows.links.len(), 0);
        let mut free: Vec<u32> = self.starts[..links].to_vec();
        for flow in 0..count {
            for &link in flows.links_of(flow) {
                let at = &mut free[link as usize];
                self.members[*at as usize] = flow as u32;
                *at += 1;
            }
        }
        self.heap.clear();
        for link in 0..links as u32 {
            self.push(link);
        }
    }

    /// What each open flow of a link would get of what is left.
    fn level(&self, link: u32) -> f64 {
        let at = link as usize;
        (self.left[at] / f64::from(self.open[at])).max(0.0)
    }

    fn push(&mut self, link: u32) {
        let open = self.open[link as usize];
        if open > 0 {
            // bits of numbers >= 0 are ordered as the numbers
            let bits = self.level(link).to_bits();
            self.heap.push(Reverse((bits, link, open)));
        }
    }

    /// The link of the least level, the first of equal ones.
    fn least(&mut self) -> Option<(u64, u32)> {
        while let Some(&Reverse((bits, link, open))) = self.heap.peek() {
            if self.open[link as usize] == open {
                return Some((bits, link));
            }
            self.heap.pop();
        }
        None
    }

    /// Gives a flow its rate.
    fn fix(&mut self, flow: u32, rate: f64, flows: &Flows) {
        self.rates[flow as usize] = rate;
        for &link in flows.links_of(flow as usize) {
            self.left[link as usize] -= rate;
            self.open[link as usize] -= 1;
            self.push(link);
        }
    }

    /// A link is full: its open flows get equal shares.
    fn fill(&mut self, link: u32, share: f64, flows: &Flows) {
        let at = link as usize;
        for member in self.starts[at]..self.starts[at + 1] {
            let flow = self.members[member as usize];
            if self.rates[flow as usize] < 0.0 {
                self.fix(flow, share, flows);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solve(capacity: f64, links: usize, flows: &[(f64, &[u32])]) -> Vec<f64> {
        let mut all = Flows::default();
        for (demand, links) in flows {
            all.push(*demand, links.iter().copied());
        }
        all.validate(links).expect("sound flows");
        MaxMin::default().solve(capacity, links, &all).to_vec()
    }

    #[test]
    fn golden_of_the_text() {
        let rates = solve(10.0, 3, &[(8.0, &[0, 1]), (6.0, &[1, 2]), (3.0, &[0, 2])]);
        assert_eq!(rates, [5.0, 5.0, 3.0]);
    }

    #[test]
    fn what_one_link_leaves_goes_to_the_next() {
        // the first link gives 10/3 each; the second has 20/3 left for one that wants 9
        let one = 10.0 / 3.0;
        let flows: &[(f64, &[u32])] = &[(9.0, &[0]), (9.0, &[0]), (9.0, &[0, 1]), (9.0, &[1])];
        assert_eq!(solve(10.0, 2, flows), [one, one, one, 10.0 - one]);
    }

    #[test]
    fn a_flow_on_no_link_and_no_flow_at_all() {
        assert_eq!(solve(1.0, 1, &[(7.0, &[])]), [7.0]);
        assert!(solve(1.0, 3, &[]).is_empty());
        assert_eq!(solve(1.0, 1, &[(7.0, &[0])]), [1.0]);
    }

    #[test]
    fn bad_flows_are_refused() {
        let check = |demand: f64, links: &[u32]| {
            let mut flows = Flows::default();
            flows.push(demand, links.iter().copied());
            flows.validate(2).is_err()
        };
        assert!(!check(1.0, &[0, 1]));
        assert!(check(0.0, &[0]));
        assert!(check(f64::NAN, &[0]));
        assert!(check(1.0, &[2]));
        assert!(check(1.0, &[1, 0, 1]));
    }
}
