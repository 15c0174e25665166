//! A tree of queues and cohorts with quotas. For each node, the tree computes the number of GPUs that are left, lent
//! and borrowed.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | left | `Tree::left` | for a queue: nominal quota minus usage; for a cohort: its own nominal quota plus what its children lend, each at most its lending limit |
//! | lendable | `Node::lendable` | value of `left` while no job runs |
//! | reach | `Node::reach` | maximum usage of a node, including everything that it may borrow |
//! | share | `Tree::share` | number of GPUs that a node borrows, divided by the reach of its parent and by its own weight |
//!
//! A node borrows if `left` is negative. A quota is a number of GPUs of one type, whereas a share covers all types. A
//! change of usage propagates from the queue towards the root until it changes nothing more, which costs O(depth).

use super::params::{Flavor, Group, KueueParams, Weight};
use crate::params::circle;
use gangline_engine::PolicyError;
use gangline_model::{ClusterSpec, GpuTypeId};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A number of GPUs that is larger than any sum of quotas.
const NO_LIMIT: i64 = i64::MAX / 4;

/// The quota of a node for the GPUs of one type.
#[derive(Clone, Copy, Debug)]
struct Quota {
    nominal: i64,
    borrowing: i64,
    lending: i64,
}

impl Quota {
    const NONE: Self = Self {
        nominal: 0,
        borrowing: NO_LIMIT,
        lending: NO_LIMIT,
    };
}

/// A node: a queue, or a cohort of queues and other cohorts.
#[derive(Debug)]
struct Node {
    parent: Option<usize>,
    children: Vec<usize>,
    /// Rank of the node by name; a cohort comes before a queue of the same name.
    name_rank: usize,
    /// The preorder numbers of the node and of all nodes below it, as a half-open range.
    span: (usize, usize),
    weight: Weight,
    /// Quota of each GPU type.
    quotas: Vec<Quota>,
    lendable: Vec<i64>,
    reach: Vec<i64>,
    left: Vec<i64>,
}

/// A borrowed share as an exact fraction, which is infinite if the denominator is 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    borrowed: i128,
    whole: i128,
}

impl Share {
    const NONE: Self = Self {
        borrowed: 0,
        whole: 1,
    };
}

impl Ord for Share {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.borrowed * other.whole).cmp(&(other.borrowed * self.whole))
    }
}

impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Share {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Share {}

/// Trees of queues and cohorts. The queues are the first nodes, in the order in which they are given.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    queues: usize,
}

impl Tree {
    /// Creates the trees that the parameters describe.
    pub(super) fn new(params: &KueueParams, cluster: &ClusterSpec) -> Result<Self, PolicyError> {
        let mut all: Vec<Group> = params.queues.clone();
        let queues = all.len();
        all.extend_from_slice(&params.cohorts);
        let cohorts = params.cohorts.iter().enumerate();
        let mut numbers: BTreeMap<String, usize> = cohorts
            .map(|(at, cohort)| (cohort.name.clone(), queues + at))
            .collect();
        let mut parents = Vec::new();
        for group in &all {
            // A cohort without a row of its own has no nominal quota.
            let next = queues + numbers.len();
            let above = group.above.as_ref();
            let number = above.map(|name| *numbers.entry(name.clone()).or_insert(next));
            parents.push(number);
        }
        let mut names: Vec<(&str, bool)> = vec![("", false); queues + numbers.len()];
        for (number, queue) in params.queues.iter().enumerate() {
            names[number] = (&queue.name, true);
        }
        for (name, &number) in &numbers {
            names[number] = (name, false);
        }
        parents.resize(names.len(), None);
        check_circles(params, queues, &parents)?;
        let mut sorted: Vec<usize> = (0..names.len()).collect();
        sorted.sort_by(|&a, &b| names[a].cmp(&names[b]));
        let mut nodes = Vec::with_capacity(names.len());
        for (number, &parent) in parents.iter().enumerate() {
            let group = all.get(number);
            nodes.push(Node {
                parent,
                children: Vec::new(),
                name_rank: 0,
                span: (0, 0),
                weight: group.map_or(Weight::ONE, |group| group.weight),
                quotas: quotas(group, cluster)?,
                lendable: Vec::new(),
                reach: Vec::new(),
                left: Vec::new(),
            });
        }
        for (rank, &number) in sorted.iter().enumerate() {
            nodes[number].name_rank = rank;
        }
        for (number, &parent) in parents.iter().enumerate() {
            if let Some(parent) = parent {
                nodes[parent].children.push(number);
            }
        }
        let mut tree = Self { nodes, queues };
        tree.derive(cluster.gpu_types().len());
        Ok(tree)
    }

    /// Computes the values that stay constant during a run: spans, lendable quotas and reaches.
    fn derive(&mut self, types: usize) {
        let mut order = Vec::with_capacity(self.nodes.len());
        let mut stack: Vec<usize> = self.roots().collect();
        while let Some(at) = stack.pop() {
            self.nodes[at].span = (order.len(), 0);
            order.push(at);
            stack.extend(&self.nodes[at].children);
        }
        for &at in order.iter().rev() {
            let below = self.nodes[at].children.iter();
            let last = below.map(|&child| self.nodes[child].span.1).max();
            let first = self.nodes[at].span.0;
            self.nodes[at].span.1 = last.unwrap_or(first + 1);
            self.nodes[at].lendable = (0..types).map(|t| self.lent_to(at, t)).collect();
        }
        for &at in &order {
            let reach = (0..types).map(|t| {
                let node = &self.nodes[at];
                let (quota, own) = (node.quotas[t], node.lendable[t]);
                let Some(parent) = node.parent else {
                    return own;
                };
                let kept = (own - quota.lending).max(0);
                (kept + self.nodes[parent].reach[t]).min(own + quota.borrowing)
            });
            let reach = reach.collect();
            let node = &mut self.nodes[at];
            node.reach = reach;
            node.left.clone_from(&node.lendable);
        }
    }

    fn lent_to(&self, at: usize, t: usize) -> i64 {
        let node = &self.nodes[at];
        let below = node.children.iter().map(|&child| &self.nodes[child]);
        let lent = below.map(|child| child.lendable[t].min(child.quotas[t].lending));
        node.quotas[t].nominal + lent.sum::<i64>()
    }

    fn roots(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|&at| self.nodes[at].parent.is_none())
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn is_queue(&self, node: usize) -> bool {
        node < self.queues
    }

    pub(super) fn parent(&self, node: usize) -> Option<usize> {
        self.nodes[node].parent
    }

    pub(super) fn children(&self, node: usize) -> &[usize] {
        &self.nodes[node].children
    }

    pub(super) fn name_rank(&self, node: usize) -> usize {
        self.nodes[node].name_rank
    }

    /// Returns the path from a node to its root, including both.
    pub(super) fn path(&self, node: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(node), |&at| self.nodes[at].parent)
    }

    pub(super) fn root(&self, node: usize) -> usize {
        self.path(node).last().expect("a path contains its start")
    }

    /// Returns whether `other` is the node itself or lies below it.
    pub(super) fn holds(&self, node: usize, other: usize) -> bool {
        let (first, last) = self.nodes[node].span;
        (first..last).contains(&self.nodes[other].span.0)
    }

    /// Returns the highest node on the path from `node` to its root that is not above `other`.
    pub(super) fn side(&self, node: usize, other: usize) -> usize {
        let side = self.path(node).take_while(|&at| !self.holds(at, other));
        side.last().unwrap_or(node)
    }

    /// Returns the remaining quota of a node for a type; it is negative if the node borrows.
    pub(super) fn left(&self, node: usize, t: GpuTypeId) -> i64 {
        self.nodes[node].left[t.index()]
    }

    /// Returns the number of GPUs of the given type that the jobs of a queue hold.
    pub(super) fn usage(&self, queue: usize, t: GpuTypeId) -> i64 {
        self.nodes[queue].quotas[t.index()].nominal - self.left(queue, t)
    }

    /// Returns whether a queue would borrow if it used this many more GPUs.
    pub(super) fn borrows(&self, queue: usize, t: GpuTypeId, gpus: i64) -> bool {
        self.left(queue, t) < gpus
    }

    /// Adds this number of GPUs, which may be negative, to the usage of a queue.
    pub(super) fn take(&mut self, queue: usize, t: GpuTypeId, gpus: i64) {
        let (mut next, mut by) = (Some(queue), gpus);
        while let Some(at) = next.filter(|_| by != 0) {
            let node = &mut self.nodes[at];
            let (before, lending) = (node.left[t.index()], node.quotas[t.index()].lending);
            node.left[t.index()] = before - by;
            by = before.min(lending) - (before - by).min(lending);
            next = node.parent;
        }
    }

    /// For each node from a queue up to its root, returns the quota that would remain if the queue used this many more
    /// GPUs. `state` selects the quotas to start from.
    fn climb<'a>(
        &'a self,
        queue: usize,
        t: GpuTypeId,
        gpus: i64,
        state: impl Fn(&'a Node) -> &'a [i64] + 'a,
    ) -> impl Iterator<Item = (usize, i64)> + 'a {
        let mut next = Some((queue, gpus));
        std::iter::from_fn(move || {
            let (at, by) = next?;
            let node = &self.nodes[at];
            let (before, lending) = (state(node)[t.index()], node.quotas[t.index()].lending);
            let after = before - by;
            let felt = before.min(lending) - after.min(lending);
            next = node.parent.map(|parent| (parent, felt));
            Some((at, after))
        })
    }

    fn is_within(&self, (node, left): (usize, i64), t: GpuTypeId) -> bool {
        let node = &self.nodes[node];
        let limit = match node.parent {
            Some(_) => node.quotas[t.index()].borrowing,
            None => 0,
        };
        left >= -limit
    }

    /// Returns whether a queue may use this many more GPUs without exceeding its borrowing limit or that of a cohort
    /// above it.
    pub(super) fn has_quota(&self, queue: usize, t: GpuTypeId, gpus: i64) -> bool {
        let mut path = self.climb(queue, t, gpus, |node| &node.left);
        path.all(|at| self.is_within(at, t))
    }

    /// Returns what `has_quota` would return if no other job ran.
    pub(super) fn could_have(&self, queue: usize, t: GpuTypeId, gpus: i64) -> bool {
        let mut path = self.climb(queue, t, gpus, |node| &node.lendable);
        path.all(|at| self.is_within(at, t))
    }

    /// Returns the quota that would remain for a node above a queue if the queue used this many more GPUs.
    pub(super) fn left_with(&self, node: usize, queue: usize, t: GpuTypeId, gpus: i64) -> i64 {
        let mut path = self.climb(queue, t, gpus, |node| &node.left);
        let found = path.find(|&(at, _)| at == node);
        found.map_or_else(|| self.left(node, t), |(_, left)| left)
    }

    /// Returns what `left_with` would return if no other job ran.
    pub(super) fn left_alone(&self, node: usize, queue: usize, t: GpuTypeId, gpus: i64) -> i64 {
        let mut path = self.climb(queue, t, gpus, |node| &node.lendable);
        let found = path.find(|&(at, _)| at == node);
        found.map_or_else(|| self.nodes[node].lendable[t.index()], |(_, left)| left)
    }

    /// Returns the share of a node: its borrowed GPUs, divided by the reach of its parent and by its weight.
    pub(super) fn share(&self, node: usize) -> Share {
        let node = &self.nodes[node];
        let borrowed: i64 = node.left.iter().map(|&left| (-left).max(0)).sum();
        let Some(parent) = node.parent.filter(|_| borrowed > 0) else {
            return Share::NONE;
        };
        let whole: i64 = self.nodes[parent].reach.iter().sum();
        Share {
            borrowed: i128::from(borrowed) * node.weight.under,
            whole: i128::from(whole) * node.weight.over,
        }
    }

    /// Returns whether all nodes on the path from `other` to its lowest common cohort with `queue` are borrowing. The
    /// path includes `other`, but not the common cohort.
    pub(super) fn lends(&self, queue: usize, other: usize, t: GpuTypeId) -> bool {
        let mut apart = self.path(other).take_while(|&at| !self.holds(at, queue));
        apart.all(|at| self.left(at, t) < 0)
    }

    /// Returns the queues from which a queue may reclaim GPUs: the other queues of its tree for which `lends` is true.
    pub(super) fn borrowers(&self, queue: usize, t: GpuTypeId) -> Vec<usize> {
        let (mut found, mut stack) = (Vec::new(), Vec::new());
        for above in self.path(queue).skip(1) {
            let beside = self.children(above).iter().copied();
            stack.extend(beside.filter(|&child| !self.holds(child, queue)));
        }
        while let Some(at) = stack.pop() {
            if self.left(at, t) >= 0 {
                continue;
            }
            if self.is_queue(at) {
                found.push(at);
            }
            stack.extend(self.children(at));
        }
        found
    }
}

fn quotas(group: Option<&Group>, cluster: &ClusterSpec) -> Result<Vec<Quota>, PolicyError> {
    let types = cluster.gpu_types();
    let mut quotas = vec![Quota::NONE; types.len()];
    for flavor in group.map_or(&[][..], |group| &group.flavors) {
        quotas[type_of(flavor, cluster)?.index()] = Quota {
            nominal: flavor.nominal,
            borrowing: flavor.borrowing.unwrap_or(NO_LIMIT),
            lending: flavor.lending.unwrap_or(NO_LIMIT),
        };
    }
    Ok(quotas)
}

pub(super) fn type_of(flavor: &Flavor, cluster: &ClusterSpec) -> Result<GpuTypeId, PolicyError> {
    let types = cluster.gpu_types();
    let found = types.iter().position(|kind| kind.name == flavor.gpu);
    found.map(GpuTypeId::new).ok_or_else(|| {
        let known: Vec<&str> = types.iter().map(|kind| kind.name.as_str()).collect();
        let expected = format!("a GPU type of the cluster: {}", known.join(", "));
        flavor.row.refuse("gpu", &expected)
    })
}

fn check_circles(
    params: &KueueParams,
    queues: usize,
    parents: &[Option<usize>],
) -> Result<(), PolicyError> {
    let (all, rows) = (parents.len(), params.reader.tables("cohorts"));
    for (node, row) in (queues..all).zip(&rows) {
        let name = |at: usize| params.cohorts[at - queues].name.clone();
        if let Some(expected) = circle(node, parents, name) {
            return Err(row.refuse("parent", &expected));
        }
    }
    Ok(())
}
