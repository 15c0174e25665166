//! The decision for one round: assigns copies of jobs to servers.

use super::params::HadarEParams;
use crate::hadar::facts::Facts;
use crate::hadar::price::price;
use crate::kit::{Seen, Servers, Total};
use gangline_engine::{BitSet, ClusterView, PolicyError};
use gangline_model::{JobId, SimSpan};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// The planning data of an unfinished job.
#[derive(Clone, Debug)]
pub(super) struct Parent {
    /// For each column of [`Nodes`], the rate that is used for planning a copy; 0 means that the job cannot run there.
    pub(super) rates: Vec<f64>,
    pub(super) best_rate: f64,
    /// Size of the job's parameters in bytes.
    pub(super) bytes: f64,
}

/// Sort key of jobs that compete for a node: the inverted bits of the normalised rate, the number of copies so far, and
/// the job. Because the bits are inverted, the largest rate comes first.
type Want = (u64, u32, JobId);

/// For each column, the unfinished jobs that can run there, sorted as if they had no copies. The sets are kept between
/// decisions.
#[derive(Debug, Default)]
pub(super) struct Standing {
    columns: Vec<BTreeSet<Want>>,
}

fn place(parent: &Parent, column: usize, copies: u32, job: JobId) -> Want {
    let share = parent.rates[column] / parent.best_rate;
    (!share.to_bits(), copies, job)
}

impl Standing {
    pub(super) fn new(columns: usize) -> Self {
        Self {
            columns: vec![BTreeSet::new(); columns],
        }
    }

    pub(super) fn insert(&mut self, job: JobId, parent: &Parent) {
        self.change(job, parent, None, Some(0));
    }

    pub(super) fn remove(&mut self, job: JobId, parent: &Parent) {
        self.change(job, parent, Some(0), None);
    }

    /// Changes the number of copies of a job from `from` to `to`. `None` means that the job is not in the sets.
    fn change(&mut self, job: JobId, parent: &Parent, from: Option<u32>, to: Option<u32>) {
        for (at, column) in self.columns.iter_mut().enumerate() {
            if parent.rates[at] <= 0.0 {
                continue;
            }
            if let Some(from) = from {
                column.remove(&place(parent, at, from, job));
            }
            if let Some(to) = to {
                column.insert(place(parent, at, to, job));
            }
        }
    }
}

/// The copies that a job gets in this round.
#[derive(Clone, Debug, Default)]
struct Grant {
    /// Number of copies in each group.
    groups: BTreeMap<usize, u32>,
    copies: u32,
    /// Sum of the copies' rates, added in the order of assignment.
    rate: f64,
}

/// A job's bid for one more copy on a group's first idle node. A greater bid is better. Bids are compared by worth
/// (largest first), normalised rate (highest first), number of copies (fewest first), then by job index and node index
/// (lowest first).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Bid {
    /// The gain in utility. When groups are compared, the price of the node is subtracted.
    worth: Total,
    /// Normalised rate of the copy.
    share: Total,
    /// Number of copies that the job had at the time of the bid. If this number has changed, the bid is void.
    copies: Reverse<u32>,
    job: Reverse<JobId>,
    node: Reverse<u32>,
    group: usize,
}

/// Inputs of the price pass, including the price bounds.
#[derive(Debug)]
struct Market<'a> {
    jobs: Vec<(&'a Facts, f64)>,
    floor: f64,
    /// For each group, the upper bound of the price.
    ceiling: &'a [f64],
}

/// A round under construction.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    view: &'a ClusterView<'a>,
    params: &'a HadarEParams,
    nodes: &'a mut Nodes,
    parents: &'a BTreeMap<JobId, Parent>,
    /// Nodes to which this decision has assigned a copy.
    given: Vec<u32>,
    claims: BTreeMap<JobId, Grant>,
    /// Nodes that each job holds, by group.
    held: BTreeMap<JobId, BTreeMap<usize, Vec<u32>>>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(
        view: &'a ClusterView<'a>,
        params: &'a HadarEParams,
        nodes: &'a mut Nodes,
        parents: &'a BTreeMap<JobId, Parent>,
    ) -> Self {
        let mut held: BTreeMap<JobId, BTreeMap<usize, Vec<u32>>> = BTreeMap::new();
        for run in view.running().filter_map(|job| view.run(job)) {
            let own = held.entry(run.job).or_default();
            for part in run.parts() {
                let node = part.gpus.by_server()[0].server.0;
                own.entry(nodes.servers.group(node)).or_default().push(node);
            }
        }
        Self {
            given: Vec::new(),
            claims: BTreeMap::new(),
            view,
            params,
            nodes,
            parents,
            held,
        }
    }

    fn copies(&self, job: JobId) -> u32 {
        self.claims.get(&job).map_or(0, |claim| claim.copies)
    }

    /// Returns the overhead of each copy of a job, given the copies assigned so far and, if `more` is set, one more in
    /// this group.
    fn overhead(&self, job: JobId, more: Option<usize>) -> SimSpan {
        let claim = self.claims.get(&job);
        let held = self.held.get(&job);
        let held_in = |group: usize| held.and_then(|held| held.get(&group)).map_or(0, Vec::len);
        let count = |group: usize| {
            let before = claim.and_then(|claim| claim.groups.get(&group));
            before.copied().unwrap_or(0) as usize + usize::from(more == Some(group))
        };
        let claimed = claim
            .into_iter()
            .flat_map(|claim| claim.groups.keys().copied());
        let has_new = claimed
            .chain(more)
            .any(|group| count(group) > held_in(group));
        let copies = self.copies(job) as usize + usize::from(more.is_some());
        let merge = self.params.consolidation(copies, self.parents[&job].bytes);
        if has_new {
            self.view.overhead(job).max(merge)
        } else {
            merge
        }
    }

    /// Returns whether a job with this many copies has reached the maximum number of copies.
    fn is_full(&self, copies: u32) -> bool {
        let most = self.params.max_copies;
        most.is_some_and(|most| copies as usize >= most)
    }

    /// Returns the rate that is used for planning a copy of a job on a node.
    fn rate(&self, job: JobId, node: u32) -> f64 {
        self.parents[&job].rates[self.nodes.column(node)]
    }

    /// Returns whether a job may have one more copy on a node.
    fn may_have(&self, job: JobId, node: u32) -> bool {
        let parent = &self.parents[&job];
        let (rate, copies) = (self.rate(job, node), self.copies(job));
        if self.is_full(copies) || rate <= 0.0 || rate < self.params.min_share * parent.best_rate {
            return false;
        }
        let overhead = || self.overhead(job, Some(self.nodes.servers.group(node))).0;
        let window = || SimSpan(self.params.round.0 - overhead()).seconds();
        copies == 0 || rate * window() >= self.params.min_steps
    }

    /// Assigns a copy of a job to an idle node.
    fn give(&mut self, job: JobId, node: u32) {
        let (group, rate) = (self.nodes.servers.group(node), self.rate(job, node));
        self.nodes.servers.take(node, 1);
        self.given.push(node);
        let claim = self.claims.entry(job).or_default();
        *claim.groups.entry(group).or_default() += 1;
        claim.copies += 1;
        claim.rate += rate;
    }

    /// Assigns copies in order of payoff, which is the gain in utility minus the price of a node. The price is the same
    /// for all bids in a group. A group therefore sorts its bids by gain, and a rising price does not change their
    /// order.
    pub(super) fn price_pass(
        &mut self,
        active: &BTreeMap<JobId, Facts>,
        (floor, ceiling): &(f64, Vec<f64>),
    ) -> Result<(), PolicyError> {
        let mut jobs = Vec::with_capacity(active.len());
        for facts in active.values() {
            jobs.push((facts, Seen::AS_TOLD.work_left(self.view, facts.job)?));
        }
        let market = Market {
            jobs,
            floor: *floor,
            ceiling,
        };
        let groups = 0..ceiling.len();
        let mut prices: Vec<f64> = groups.clone().map(|at| self.price(&market, at)).collect();
        let bids = groups.clone().map(|at| self.bids(&market, at, prices[at]));
        let mut bids: Vec<BinaryHeap<Bid>> = bids.collect();
        loop {
            let best = groups
                .clone()
                .filter_map(|at| self.best(&mut bids[at], at, prices[at]));
            let Some(bid) = best.max() else {
                return Ok(());
            };
            let (job, given) = (bid.job.0, bid.group);
            self.give(job, bid.node.0);
            prices[given] = self.price(&market, given);
            let at = market
                .jobs
                .binary_search_by_key(&job, |job| job.0.job)
                .expect("only active jobs bid");
            for group in groups.clone() {
                if group == given && self.nodes.are_unlike() {
                    // The group's first idle node has changed, so the rates of all jobs on it have changed too.
                    bids[group] = self.bids(&market, group, prices[group]);
                } else {
                    bids[group].extend(self.bid(market.jobs[at], group, prices[group]));
                }
            }
        }
    }

    /// Returns the price of a node in a group. The price is meaningless if no node of the group is up.
    fn price(&self, market: &Market<'_>, group: usize) -> f64 {
        let healthy = self.nodes.servers.groups[group].up;
        let given = healthy - self.nodes.idle(group).len() as u32;
        price(market.floor, market.ceiling[group], given, healthy)
    }

    /// Returns the bids of all jobs for the first idle node of a group.
    fn bids(&self, market: &Market<'_>, group: usize, price: f64) -> BinaryHeap<Bid> {
        let jobs = market.jobs.iter();
        jobs.filter_map(|job| self.bid(*job, group, price))
            .collect()
    }

    /// Returns the bid of a job for a node in a group, if the job may have a copy there and the payoff is above 0.
    fn bid(&self, (facts, left): (&Facts, f64), group: usize, price: f64) -> Option<Bid> {
        let (job, node) = (facts.job, self.nodes.first_idle(group)?);
        if !self.may_have(job, node) {
            return None;
        }
        let worth = self.gain(facts, left, node);
        (worth - price > 0.0).then(|| Bid {
            worth: Total(worth),
            share: Total(self.rate(job, node) / self.parents[&job].best_rate),
            copies: Reverse(self.copies(job)),
            job: Reverse(job),
            node: Reverse(node),
            group,
        })
    }

    /// Returns the bid with the largest payoff in a group. The field `worth` of this bid contains the payoff. All bids
    /// with the largest payoff are compared, because different gains may round to the same payoff.
    fn best(&self, bids: &mut BinaryHeap<Bid>, group: usize, price: f64) -> Option<Bid> {
        let node = self.nodes.first_idle(group)?;
        let (mut best, mut looked_at): (Option<Bid>, _) = (None, Vec::new());
        while let Some(bid) = bids.peek().copied() {
            let payoff = Total(bid.worth.0 - price);
            if bid.copies.0 == self.copies(bid.job.0) {
                if payoff.0 <= 0.0 || best.is_some_and(|best| best.worth > payoff) {
                    break;
                }
                looked_at.push(bid);
                best = best.max(Some(Bid {
                    worth: payoff,
                    node: Reverse(node),
                    ..bid
                }));
            }
            bids.pop();
        }
        bids.extend(looked_at);
        best
    }

    /// Returns the increase in utility that a further copy on a node brings.
    fn gain(&self, facts: &Facts, left: f64, node: u32) -> f64 {
        let job = facts.job;
        let waited_s = (self.view.now() - facts.arrival).seconds();
        let utility = |overhead: SimSpan, rate: f64| {
            facts.numerator / (waited_s + overhead.seconds() + left / rate)
        };
        let rate = self.claims.get(&job).map_or(0.0, |claim| claim.rate);
        let with = utility(
            self.overhead(job, Some(self.nodes.servers.group(node))),
            rate + self.rate(job, node),
        );
        let without = if self.copies(job) == 0 {
            0.0
        } else {
            utility(self.overhead(job, None), rate)
        };
        with - without
    }

    /// Assigns every idle node, in index order, to the job whose rate on it is highest relative to the job's best rate.
    pub(super) fn fill_pass(&mut self, standing: &mut Standing) {
        let wants = |draft: &Self, copies| (!draft.is_full(copies)).then_some(copies);
        for (&job, claim) in &self.claims {
            let to = wants(self, claim.copies);
            standing.change(job, &self.parents[&job], Some(0), to);
        }
        let groups = 0..self.nodes.servers.groups.len();
        let idle = groups.flat_map(|group| self.nodes.idle(group).iter());
        let mut nodes: Vec<u32> = idle.map(|node| node as u32).collect();
        nodes.sort_unstable();
        for node in nodes {
            let wanting = standing.columns[self.nodes.column(node)].iter();
            let next = wanting
                .map(|&(_, _, job)| job)
                .find(|&job| self.may_have(job, node));
            if let Some(job) = next {
                let copies = self.copies(job);
                self.give(job, node);
                let to = wants(self, copies + 1);
                standing.change(job, &self.parents[&job], Some(copies), to);
            }
        }
        for (&job, claim) in &self.claims {
            let from = wants(self, claim.copies);
            standing.change(job, &self.parents[&job], from, Some(0));
        }
    }

    /// Returns the jobs that have or had nodes, each with its new nodes in ascending order and the overhead of its
    /// copies. Jobs keep as many of their current nodes as their counts allow, starting with the lowest.
    pub(super) fn settle(mut self) -> Vec<(JobId, Vec<u32>, SimSpan)> {
        let mut placed: BTreeMap<JobId, Vec<u32>> = BTreeMap::new();
        for node in self.given.drain(..) {
            self.nodes.servers.give(node, 1);
        }
        for (&job, claim) in &self.claims {
            let own = placed.entry(job).or_default();
            for (&group, &count) in &claim.groups {
                let held = self.held.get(&job).and_then(|held| held.get(&group));
                let mut held = held.cloned().unwrap_or_default();
                held.sort_unstable();
                held.truncate(count as usize);
                for &node in &held {
                    self.nodes.servers.take(node, 1);
                }
                own.extend(held);
            }
        }
        for (&job, claim) in &self.claims {
            let own = placed.entry(job).or_default();
            for (&group, &count) in &claim.groups {
                let there = own
                    .iter()
                    .filter(|&&node| self.nodes.servers.group(node) == group);
                for _ in there.count()..count as usize {
                    let node = self.nodes.first_idle(group);
                    let node = node.expect("no more copies than nodes");
                    self.nodes.servers.take(node, 1);
                    own.push(node);
                }
            }
            own.sort_unstable();
        }
        for &node in placed.values().flatten() {
            self.nodes.servers.give(node, 1);
        }
        for &job in self.held.keys() {
            placed.entry(job).or_default();
        }
        let with_overhead = |(job, nodes)| (job, nodes, self.overhead(job, None));
        placed.into_iter().map(with_overhead).collect()
    }
}

// The following code treats servers as nodes, each of which can hold one copy. It also defines the columns of the rate
// table.

/// All nodes that can hold a copy.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    pub(super) servers: Servers,
    /// For each group, the number of GPUs of a copy.
    pub(super) copy_gpus: Vec<u32>,
    /// Number of servers if every node has its own column, otherwise 0.
    unlike: usize,
}

impl Nodes {
    pub(super) fn new(view: &ClusterView<'_>, params: &HadarEParams) -> Self {
        let copy_on = |gpus| params.copy_gpus.on(gpus, 1);
        let servers = Servers::new(view.cluster(), false, |server| {
            (copy_on(server.gpus) <= server.gpus).then_some(1)
        });
        Self {
            copy_gpus: servers.groups.iter().map(|one| copy_on(one.size)).collect(),
            unlike: if params.estimator.is_exact() {
                0
            } else {
                view.cluster().servers().len()
            },
            servers,
        }
    }

    /// Returns whether every node has its own column.
    pub(super) fn are_unlike(&self) -> bool {
        self.unlike > 0
    }

    /// Returns the number of columns in the table of planning rates: one per group, or one per node if rates are
    /// estimated.
    pub(super) fn columns(&self) -> usize {
        self.unlike.max(self.servers.groups.len())
    }

    pub(super) fn column(&self, node: u32) -> usize {
        if self.are_unlike() {
            node as usize
        } else {
            self.servers.group(node)
        }
    }

    /// Returns the group of each column; `None` for a server that cannot hold a copy.
    pub(super) fn group_by_column(&self) -> impl Iterator<Item = Option<usize>> {
        (0..self.columns()).map(|at| {
            if self.are_unlike() {
                self.servers.find_group(at as u32)
            } else {
                Some(at)
            }
        })
    }

    /// Returns the nodes of a group that are up and have no copy.
    pub(super) fn idle(&self, group: usize) -> &BitSet {
        &self.servers.groups[group].by_free[1]
    }

    pub(super) fn first_idle(&self, group: usize) -> Option<u32> {
        self.idle(group).first().map(|node| node as u32)
    }
}
