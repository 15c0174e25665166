//! One round: which servers get copies of which jobs.

use super::Parent;
use super::nodes::Nodes;
use super::params::HadarEParams;
use crate::hadar::facts::Facts;
use crate::hadar::price::price;
use gangline_engine::{ClusterView, PolicyError};
use gangline_model::{JobId, SimSpan};
use std::collections::{BTreeMap, BTreeSet};

/// Place of a job among those that want a node of a group: normalised rate, largest first, as bits of a number >= 0;
/// copies so far; job.
type Place = (u64, u32, JobId);

/// All unfinished jobs by how much they want a node of each group; kept between decisions, with no copies.
#[derive(Debug, Default)]
pub(super) struct Standing {
    groups: Vec<BTreeSet<Place>>,
}

fn place(parent: &Parent, group: usize, copies: u32, job: JobId) -> Place {
    let share = parent.rates[group] / parent.best_rate;
    (!share.to_bits(), copies, job)
}

impl Standing {
    pub(super) fn new(groups: usize) -> Self {
        Self {
            groups: vec![BTreeSet::new(); groups],
        }
    }

    pub(super) fn insert(&mut self, job: JobId, parent: &Parent) {
        self.change(job, parent, None, Some(0));
    }

    pub(super) fn remove(&mut self, job: JobId, parent: &Parent) {
        self.change(job, parent, Some(0), None);
    }

    /// A job has another number of copies now.
    fn change(&mut self, job: JobId, parent: &Parent, from: Option<u32>, to: Option<u32>) {
        for (at, group) in self.groups.iter_mut().enumerate() {
            if parent.rates[at] <= 0.0 {
                continue;
            }
            if let Some(from) = from {
                group.remove(&place(parent, at, from, job));
            }
            if let Some(to) = to {
                group.insert(place(parent, at, to, job));
            }
        }
    }
}

/// Copies that a job gets in this round.
#[derive(Clone, Debug, Default)]
struct Claim {
    /// Number of copies by group.
    groups: BTreeMap<usize, u32>,
    copies: u32,
    /// Sum of their rates, in the order in which they were given.
    rate: f64,
}

/// A round under construction.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    view: &'a ClusterView<'a>,
    params: &'a HadarEParams,
    nodes: &'a Nodes,
    parents: &'a BTreeMap<JobId, Parent>,
    /// Nodes that are up and have no copy, by group.
    idle: Vec<BTreeSet<u32>>,
    claims: BTreeMap<JobId, Claim>,
    /// Nodes that jobs hold, by group.
    held: BTreeMap<JobId, BTreeMap<usize, Vec<u32>>>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(
        view: &'a ClusterView<'a>,
        params: &'a HadarEParams,
        nodes: &'a Nodes,
        parents: &'a BTreeMap<JobId, Parent>,
    ) -> Self {
        let mut held: BTreeMap<JobId, BTreeMap<usize, Vec<u32>>> = BTreeMap::new();
        for run in view.running().filter_map(|job| view.run(job)) {
            let own = held.entry(run.job).or_default();
            for part in run.parts() {
                let node = part.gpus.by_server()[0].server.0;
                own.entry(nodes.group(node)).or_default().push(node);
            }
        }
        Self {
            idle: nodes.groups.iter().map(|group| group.up.clone()).collect(),
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

    /// Time without progress of each copy of a job that has its claim, and one more in a group if given.
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

    /// Whether a job may have one more copy, in a group.
    fn may_have(&self, job: JobId, group: usize) -> bool {
        let parent = &self.parents[&job];
        let (rate, copies) = (parent.rates[group], self.copies(job));
        let fits = self
            .params
            .max_copies
            .is_none_or(|most| (copies as usize) < most);
        if !fits || rate <= 0.0 || rate < self.params.min_share * parent.best_rate {
            return false;
        }
        let overhead = || self.overhead(job, Some(group)).0;
        let window = || SimSpan(self.params.round.0 - overhead()).seconds();
        copies == 0 || rate * window() >= self.params.min_steps
    }

    /// Gives a job a copy on the idle node of lowest index in a group.
    fn give(&mut self, job: JobId, group: usize) {
        self.idle[group].pop_first();
        let claim = self.claims.entry(job).or_default();
        *claim.groups.entry(group).or_default() += 1;
        claim.copies += 1;
        claim.rate += self.parents[&job].rates[group];
    }

    /// Gives out copies by payoff: the gain in utility less the price of a node.
    pub(super) fn price_pass(
        &mut self,
        active: &BTreeMap<JobId, Facts>,
        (floor, ceiling): &(f64, Vec<f64>),
    ) -> Result<(), PolicyError> {
        let mut left: BTreeMap<JobId, f64> = BTreeMap::new();
        for &job in active.keys() {
            left.insert(job, self.view.remaining_work(job)?);
        }
        loop {
            let mut best: Option<(f64, f64, u32, JobId, usize)> = None;
            for (&job, facts) in active {
                for (group, &ceiling) in ceiling.iter().enumerate() {
                    if self.idle[group].is_empty() || !self.may_have(job, group) {
                        continue;
                    }
                    let healthy = self.nodes.groups[group].up.len() as u32;
                    let given = healthy - self.idle[group].len() as u32;
                    let price = price(*floor, ceiling, given, healthy);
                    let payoff = self.gain(facts, left[&job], group) - price;
                    let parent = &self.parents[&job];
                    let share = parent.rates[group] / parent.best_rate;
                    let found = (payoff, share, self.copies(job), job, group);
                    if payoff > 0.0 && best.is_none_or(|best| self.is_before(found, best)) {
                        best = Some(found);
                    }
                }
            }
            let Some((_, _, _, job, group)) = best else {
                return Ok(());
            };
            self.give(job, group);
        }
    }

    /// Payoff, normalised rate, fewer copies, job, node.
    fn is_before(
        &self,
        a: (f64, f64, u32, JobId, usize),
        b: (f64, f64, u32, JobId, usize),
    ) -> bool {
        let node = |group: usize| self.idle[group].first();
        let floats = b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1));
        let rest = (a.2, a.3, node(a.4)).cmp(&(b.2, b.3, node(b.4)));
        floats.then(rest).is_lt()
    }

    /// What a further copy adds to the utility of a job.
    fn gain(&self, facts: &Facts, left: f64, group: usize) -> f64 {
        let job = facts.job;
        let waited_s = (self.view.now() - facts.arrival).seconds();
        let utility = |overhead: SimSpan, rate: f64| {
            facts.numerator / (waited_s + overhead.seconds() + left / rate)
        };
        let rate = self.claims.get(&job).map_or(0.0, |claim| claim.rate);
        let with = utility(
            self.overhead(job, Some(group)),
            rate + self.parents[&job].rates[group],
        );
        let without = if self.copies(job) == 0 {
            0.0
        } else {
            utility(self.overhead(job, None), rate)
        };
        with - without
    }

    /// Gives every idle node, by index, to the job that is relatively fastest there.
    pub(super) fn fill_pass(&mut self, standing: &mut Standing) {
        let claimed: Vec<(JobId, u32)> = self
            .claims
            .iter()
            .map(|(&job, claim)| (job, claim.copies))
            .collect();
        for &(job, copies) in &claimed {
            standing.change(job, &self.parents[&job], Some(0), Some(copies));
        }
        let mut nodes: Vec<u32> = self.idle.iter().flatten().copied().collect();
        nodes.sort_unstable();
        for node in nodes {
            let group = self.nodes.group(node);
            let wanting = standing.groups[group].iter();
            let next = wanting
                .map(|&(_, _, job)| job)
                .find(|&job| self.may_have(job, group));
            if let Some(job) = next {
                let copies = self.copies(job);
                self.give(job, group);
                standing.change(job, &self.parents[&job], Some(copies), Some(copies + 1));
            }
        }
        for (&job, claim) in &self.claims {
            standing.change(job, &self.parents[&job], Some(claim.copies), Some(0));
        }
    }

    /// Every unfinished job with its nodes, ascending, and the overhead of its copies: jobs keep the nodes they hold as
    /// far as their counts go, lowest first.
    pub(super) fn settle(mut self) -> Vec<(JobId, Vec<u32>, SimSpan)> {
        let mut placed: BTreeMap<JobId, Vec<u32>> = BTreeMap::new();
        for (group, idle) in self.idle.iter_mut().enumerate() {
            idle.clone_from(&self.nodes.groups[group].up);
        }
        for (&job, claim) in &self.claims {
            for (&group, &count) in &claim.groups {
                let held = self.held.get(&job).and_then(|held| held.get(&group));
                let mut held = held.cloned().unwrap_or_default();
                held.sort_unstable();
                held.truncate(count as usize);
                for node in &held {
                    self.idle[group].remove(node);
                }
                placed.entry(job).or_default().extend(held);
            }
        }
        for (&job, claim) in &self.claims {
            for (&group, &count) in &claim.groups {
                let nodes = placed.entry(job).or_default();
                let there = nodes
                    .iter()
                    .filter(|&&node| self.nodes.group(node) == group);
                for _ in there.count()..count as usize {
                    let node = self.idle[group].pop_first();
                    nodes.push(node.expect("no more copies than nodes"));
                }
            }
        }
        let overhead: Vec<SimSpan> = (self.parents.keys())
            .map(|&job| self.overhead(job, None))
            .collect();
        let jobs = self.parents.keys().zip(overhead);
        jobs.map(|(&job, overhead)| {
            let mut nodes = placed.remove(&job).unwrap_or_default();
            nodes.sort_unstable();
            (job, nodes, overhead)
        })
        .collect()
    }
}
