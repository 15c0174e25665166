//! Computes max-min fair shares of links that all have the same capacity, by progressive filling.
//!
//! All rates rise together. A flow stops at its limit, or when one of its links is full. The common rate does not rise
//! in small steps. Instead, each step goes directly to the next stop: either the flow with the smallest limit stops, or
//! the link with the least remaining capacity per open flow becomes full.
//!
//! Stops have a strict order: by rate; at equal rates, demands come before links; and links are ordered by name. Even
//! if rates are rounded, the next stop of a link comes after the last stop at which a flow took capacity from this
//! link. Therefore, exactly one set of stops is consistent at every link, and its rates are reproducible bit for bit.
//! The stops do not depend on the order or the groups in which they are computed. The model is described in
//! `docs/concepts/network.md`.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | d | [`Flows::limits`] | rate that a flow would have alone |
//! | b | [`Stop::rate`] | max-min fair rate of a flow, at most d |
//! | level | [`Filling::next`] | share of the remaining capacity for each open flow on a link |

use gangline_model::ModelError;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The rate at which a flow or link stops rising, and the cause of the stop. Stops are compared in the order of their
/// fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stop {
    /// Bits of the rate. Floats >= 0 have the same order as their bits.
    bits: u64,
    /// Cause of the stop: 0 for a demand; for a link, its name plus 1.
    by: u32,
}

impl Stop {
    /// The stop of a link that never becomes full; it comes after all other stops.
    pub const NEVER: Self = Self {
        bits: f64::INFINITY.to_bits(),
        by: u32::MAX,
    };

    /// Creates the stop of a flow that has reached its demand, which is >= 0.
    pub fn demand(rate: f64) -> Self {
        let bits = rate.to_bits();
        Self { bits, by: 0 }
    }

    /// Creates the stop of a link that becomes full.
    fn link(rate: f64, name: u32) -> Self {
        Self {
            bits: rate.to_bits(),
            by: name + 1,
        }
    }

    /// Returns the rate.
    pub fn rate(self) -> f64 {
        f64::from_bits(self.bits)
    }
}

/// State of a link while rates rise.
#[derive(Clone, Copy, Debug)]
pub struct Filling {
    /// Capacity that has not been assigned yet.
    left: f64,
    /// Number of flows that have no rate yet.
    open: u32,
    /// The stop of the flow that last got a rate.
    last: Stop,
}

impl Filling {
    /// Creates the state of a link with this number of open flows, before any capacity is assigned.
    pub fn new(capacity: f64, flows: u32) -> Self {
        Self {
            left: capacity,
            open: flows,
            last: Stop::demand(0.0),
        }
    }

    /// Returns the stop at which the open flows use up the remaining capacity of the link; [`Stop::NEVER`] if no flow
    /// is open.
    pub fn next(&self, name: u32) -> Stop {
        if self.open == 0 {
            return Stop::NEVER;
        }
        let level = (self.left / f64::from(self.open)).max(self.last.rate());
        let next = Stop::link(level, name);
        if next > self.last {
            return next;
        }
        Stop::link(self.last.rate().next_up(), name)
    }

    /// Records that an open flow stops.
    pub fn give(&mut self, stop: Stop) {
        self.left -= stop.rate();
        self.open -= 1;
        self.last = stop;
    }
}

/// Flows that use links. Flow `i` uses `links[ends[i - 1]..ends[i]]`, each link once.
#[derive(Clone, Debug, Default)]
pub struct Flows {
    /// Upper limit of each flow, with a rate > 0: the demand of the flow, or the stop of a link that `links` does not
    /// contain.
    pub limits: Vec<Stop>,
    /// For each flow, the end of its links in `links`.
    pub ends: Vec<u32>,
    /// Links of all flows, one flow after the other.
    pub links: Vec<u32>,
}

impl Flows {
    /// Adds a flow.
    pub fn push(&mut self, limit: Stop, links: impl IntoIterator<Item = u32>) {
        self.limits.push(limit);
        self.links.extend(links);
        self.ends.push(self.links.len() as u32);
    }

    /// Removes all flows.
    pub fn clear(&mut self) {
        self.limits.clear();
        self.ends.clear();
        self.links.clear();
    }

    fn links_of(&self, flow: usize) -> &[u32] {
        let start = flow.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.links[start as usize..self.ends[flow] as usize]
    }

    /// Checks flows that come from outside this module.
    ///
    /// # Errors
    /// Returns [`ModelError::Table`] for a demand that is not a positive number, for a link that a flow names twice, or
    /// for a link that does not exist.
    pub fn validate(&self, links: usize) -> Result<(), ModelError> {
        let fail = |what: String| {
            Err(ModelError::Table {
                table: "flows",
                what,
            })
        };
        for (flow, limit) in self.limits.iter().enumerate() {
            let demand = limit.rate();
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

/// A solver that reuses its buffers.
#[derive(Debug, Default)]
pub struct MaxMin {
    /// Flows in ascending order of their limits.
    by_limit: Vec<u32>,
    /// State of each link.
    links: Vec<Filling>,
    fills: Vec<Stop>,
    /// The flows of link `l` are `members[starts[l]..starts[l + 1]]`.
    starts: Vec<u32>,
    members: Vec<u32>,
    /// Entries (next stop of a link, link, number of open flows when the entry was pushed). An entry is outdated if the
    /// number of open flows has changed since.
    heap: BinaryHeap<Reverse<(Stop, u32, u32)>>,
    stops: Vec<Stop>,
}

impl MaxMin {
    /// Returns the stops of the flows over links of a capacity > 0. `names` contains the names of the links in
    /// ascending order. The cost is O(n log n), where n is the total number of links of all flows.
    ///
    /// # Examples
    /// Three rack uplinks have a capacity of 10 each. The first flow uses the first two links, the second flow uses
    /// the last two, and the third flow uses the outer two:
    /// ```
    /// use gangline_network::{Flows, MaxMin, Stop};
    /// let mut flows = Flows::default();
    /// flows.push(Stop::demand(8.0), [0, 1]);
    /// flows.push(Stop::demand(6.0), [1, 2]);
    /// flows.push(Stop::demand(3.0), [0, 2]);
    /// let mut solver = MaxMin::default();
    /// let stops = solver.solve(10.0, &[0, 1, 2], &flows);
    /// let rates: Vec<f64> = stops.iter().map(|stop| stop.rate()).collect();
    /// assert_eq!(rates, [5.0, 5.0, 3.0]);
    /// assert_eq!(solver.fills()[2], Stop::NEVER);
    /// ```
    pub fn solve(&mut self, capacity: f64, names: &[u32], flows: &Flows) -> &[Stop] {
        self.prepare(capacity, names, flows);
        let mut next = 0;
        while let Some((fill, link)) = self.least() {
            while next < self.by_limit.len() && self.is_stopped(self.by_limit[next]) {
                next += 1;
            }
            let modest = self.by_limit.get(next).copied();
            match modest.filter(|&flow| flows.limits[flow as usize] < fill) {
                Some(flow) => self.stop(flow, flows.limits[flow as usize], names, flows),
                None => self.fill(link, fill, names, flows),
            }
        }
        // The flows that are left use no link, or only links that are never full.
        for (stop, &limit) in self.stops.iter_mut().zip(&flows.limits) {
            if *stop == Stop::NEVER {
                *stop = limit;
            }
        }
        &self.stops
    }

    /// Returns the stops of the links in the last solution. The stop is [`Stop::NEVER`] for a link that did not become
    /// full, because all its flows stopped for other reasons.
    pub fn fills(&self) -> &[Stop] {
        &self.fills
    }

    fn is_stopped(&self, flow: u32) -> bool {
        self.stops[flow as usize] != Stop::NEVER
    }

    fn prepare(&mut self, capacity: f64, names: &[u32], flows: &Flows) {
        let count = flows.limits.len();
        self.stops.clear();
        self.stops.resize(count, Stop::NEVER);
        self.by_limit.clear();
        self.by_limit.extend(0..count as u32);
        self.by_limit
            .sort_unstable_by_key(|&flow| flows.limits[flow as usize]);
        self.fills.clear();
        self.fills.resize(names.len(), Stop::NEVER);
        self.gather(names.len(), flows);
        self.links.clear();
        self.heap.clear();
        for (link, &name) in names.iter().enumerate() {
            let open = self.starts[link + 1] - self.starts[link];
            self.links.push(Filling::new(capacity, open));
            self.push(link as u32, name);
        }
    }

    /// Lists the flows of each link.
    fn gather(&mut self, links: usize, flows: &Flows) {
        self.starts.clear();
        self.starts.resize(links + 1, 0);
        for &link in &flows.links {
            self.starts[link as usize] += 1;
        }
        let mut end = 0;
        for start in &mut self.starts {
            end += *start;
            *start = end;
        }
        self.members.clear();
        self.members.resize(flows.links.len(), 0);
        for flow in 0..flows.limits.len() {
            for &link in flows.links_of(flow) {
                // The end of each link's range of flows is decremented until it is the start of the range.
                let at = &mut self.starts[link as usize];
                *at -= 1;
                self.members[*at as usize] = flow as u32;
            }
        }
    }

    fn push(&mut self, link: u32, name: u32) {
        let filling = &self.links[link as usize];
        if filling.open > 0 {
            let entry = (filling.next(name), link, filling.open);
            self.heap.push(Reverse(entry));
        }
    }

    /// Returns the link that becomes full next.
    fn least(&mut self) -> Option<(Stop, u32)> {
        while let Some(&Reverse((stop, link, open))) = self.heap.peek() {
            if self.links[link as usize].open == open {
                return Some((stop, link));
            }
            self.heap.pop();
        }
        None
    }

    /// Fixes the rate of a flow.
    fn stop(&mut self, flow: u32, stop: Stop, names: &[u32], flows: &Flows) {
        self.stops[flow as usize] = stop;
        for &link in flows.links_of(flow as usize) {
            let filling = &mut self.links[link as usize];
            // A full link stops all of its flows at once.
            if filling.open > 0 {
                filling.give(stop);
                self.push(link, names[link as usize]);
            }
        }
    }

    /// Fills a link: its open flows get equal shares.
    fn fill(&mut self, link: u32, stop: Stop, names: &[u32], flows: &Flows) {
        let at = link as usize;
        self.fills[at] = stop;
        self.links[at].open = 0;
        for member in self.starts[at]..self.starts[at + 1] {
            let flow = self.members[member as usize];
            if !self.is_stopped(flow) {
                self.stop(flow, stop, names, flows);
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
            all.push(Stop::demand(*demand), links.iter().copied());
        }
        all.validate(links).expect("sound flows");
        let names: Vec<u32> = (0..links as u32).collect();
        let mut solver = MaxMin::default();
        let stops = solver.solve(capacity, &names, &all);
        stops.iter().map(|stop| stop.rate()).collect()
    }

    #[test]
    fn rates_match_the_example_of_the_documentation() {
        let rates = solve(10.0, 3, &[(8.0, &[0, 1]), (6.0, &[1, 2]), (3.0, &[0, 2])]);
        assert_eq!(rates, [5.0, 5.0, 3.0]);
    }

    #[test]
    fn what_one_link_leaves_goes_to_the_next() {
        // The first link gives 10/3 to each flow. The second then has 20/3 left for the flow with demand 9.
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
            flows.push(Stop::demand(demand), links.iter().copied());
            flows.validate(2).is_err()
        };
        assert!(!check(1.0, &[0, 1]));
        assert!(check(0.0, &[0]));
        assert!(check(f64::NAN, &[0]));
        assert!(check(1.0, &[2]));
        assert!(check(1.0, &[1, 0, 1]));
    }

    #[test]
    fn the_next_offer_of_a_link_comes_after_the_last_amount_taken() {
        // A third of 1 is rounded, so the last two flows share less than two thirds and get less than a third each.
        let third = 1.0 / 3.0;
        let mut link = Filling::new(1.0, 3);
        link.give(Stop::link(third, 7));
        assert!(link.next(9) >= Stop::link(third, 9));
        // A link with a smaller name also stops later, at the next float.
        let mut link = Filling::new(2.0 * third, 2);
        link.give(Stop::link(third, 7));
        assert_eq!(link.next(9), Stop::link(third, 9));
        assert_eq!(link.next(3), Stop::link(third.next_up(), 3));
        // If rounding makes the remainder negative, nothing is taken back from other flows.
        let mut link = Filling::new(third, 2);
        link.give(Stop::demand(third.next_up()));
        assert_eq!(link.next(0), Stop::link(third.next_up(), 0));
        link.give(link.next(0));
        assert_eq!(link.next(0), Stop::NEVER);
    }

    #[test]
    fn a_limit_from_an_external_link_keeps_its_place_in_the_order() {
        // Both links stop at 5. The external link comes before link 4 and after link 2.
        let solve = |name: u32| {
            let mut flows = Flows::default();
            flows.push(Stop::link(5.0, 3), [0]);
            flows.push(Stop::demand(9.0), [0]);
            let mut solver = MaxMin::default();
            let stops = solver.solve(10.0, &[name], &flows).to_vec();
            (stops, solver.fills()[0])
        };
        let full = |name| Stop::link(5.0, name);
        assert_eq!(solve(4), (vec![full(3), full(4)], full(4)));
        assert_eq!(solve(2), (vec![full(2), full(2)], full(2)));
    }
}
