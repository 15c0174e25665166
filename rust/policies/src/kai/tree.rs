//! The tree of queues. Each queue has a limit, the GPUs that it holds, and a fair share.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | d, L | `Node::quota`, `Node::limit` | guaranteed GPUs, maximum number of GPUs |
//! | a, n | `Node::held`, `Node::fixed` | GPUs of all running jobs, and of those that cannot be preempted |
//! | r | `Node::wanted` | GPUs of running and waiting jobs, capped at the limit |
//! | F | `Node::fair` | fair share, computed at the beginning of a cycle |
//! | U | `Node::past` | past usage, as a share of the past capacity of the cluster |
//!
//! Node 0 is the root, which stands for the cluster; the queues follow in the order of their rows.

use super::params::{KaiParams, Row, UsageParams};
use crate::params::{circle, nearest};
use gangline_engine::PolicyError;
use gangline_model::{SimSpan, SimTime};
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

/// Maximum number of queues on a path from a top queue to a leaf. The depth is limited because walks down the tree are
/// recursive.
const MOST_LEVELS: usize = 100;

/// The node that stands for the cluster.
pub(super) const ROOT: usize = 0;

/// A queue.
#[derive(Debug)]
pub(super) struct Node {
    pub parent: Option<usize>,
    pub children: Vec<usize>,
    depth: usize,
    pub quota: i64,
    pub limit: i64,
    weight: f64,
    priority: i64,
    /// Time for which jobs of the queue are protected from preemption; inherited from the queue above if it is not set.
    pub preempt_min_run: SimSpan,
    /// Time for which jobs of the queue are protected from reclaim; inherited from the queue above if it is not set.
    pub reclaim_min_run: SimSpan,
    pub held: i64,
    pub fixed: i64,
    /// GPUs of running and waiting jobs, regardless of the limit.
    asked: i64,
    wanted: i64,
    pub fair: i64,
    past: Past,
}

/// The GPU usage of a node so far.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    /// GPU-seconds used up to the last sample, with decay applied.
    gpu_s: f64,
    /// GPU-nanoseconds used since the last sample.
    gpu_ns: i128,
}

impl Past {
    fn sample(&mut self, decay: f64, is_reset: bool) {
        self.gpu_s = self.gpu_s * decay + self.gpu_ns as f64 / 1e9;
        self.gpu_ns = 0;
        if is_reset {
            self.gpu_s = 0.0;
        }
    }
}

/// All queues.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    usage: UsageParams,
    /// Number of healthy GPUs.
    capacity: i64,
    capacity_past: Past,
    /// Instant up to which usage has been counted.
    counted: SimTime,
}

/// Compares two ratios exactly.
fn ratio(over: i64, under: i64, other_over: i64, other_under: i64) -> Ordering {
    (i128::from(over) * i128::from(other_under)).cmp(&(i128::from(other_over) * i128::from(under)))
}

impl Tree {
    /// Creates the tree from the rows of the parameter `queues`.
    ///
    /// # Errors
    /// Returns [`PolicyError::Parameter`] for a parent that no row names, for a cycle, and for a queue on too deep a
    /// level.
    pub(super) fn new(params: &KaiParams, rows: &[Row]) -> Result<Self, PolicyError> {
        let numbers: BTreeMap<&str, usize> = rows
            .iter()
            .enumerate()
            .map(|(at, row)| (row.name.as_str(), at + 1))
            .collect();
        let refuse = |row: &Row, expected: &str| {
            let reader = row.reader.as_ref().unwrap_or(&params.reader);
            reader.refuse("parent", expected)
        };
        let mut nodes = vec![Node::new(&Row::plain(""), None)];
        for row in rows {
            let parent = match &row.parent {
                None => ROOT,
                Some(name) => *numbers.get(name.as_str()).ok_or_else(|| {
                    let known: Vec<&str> = numbers.keys().copied().collect();
                    let near = nearest(name, &known);
                    let expected = format!(
                        "a name in `queues` (the nearest is `{near}`), or no parent for a top queue"
                    );
                    refuse(row, &expected)
                })?,
            };
            nodes.push(Node::new(row, Some(parent)));
        }
        let parents: Vec<Option<usize>> = nodes.iter().map(|node| node.parent).collect();
        for (node, row) in (1..).zip(rows) {
            if let Some(expected) = circle(node, &parents, |at| rows[at - 1].name.clone()) {
                return Err(refuse(row, &expected));
            }
        }
        for (node, row) in (1..).zip(rows) {
            let depth = std::iter::successors(parents[node], |&at| parents[at]).count();
            if depth > MOST_LEVELS {
                let expected = format!(
                    "a parent on level {} at most, because the tree may have at most {MOST_LEVELS} levels",
                    MOST_LEVELS - 1
                );
                return Err(refuse(row, &expected));
            }
            nodes[node].depth = depth;
            nodes[parents[node].unwrap_or(ROOT)].children.push(node);
        }
        let mut by_depth: Vec<usize> = (1..nodes.len()).collect();
        by_depth.sort_by_key(|&node| nodes[node].depth);
        for node in by_depth {
            let (row, parent) = (&rows[node - 1], nodes[node].parent.unwrap_or(ROOT));
            nodes[node].preempt_min_run =
                row.preempt_min_run.unwrap_or(nodes[parent].preempt_min_run);
            nodes[node].reclaim_min_run =
                row.reclaim_min_run.unwrap_or(nodes[parent].reclaim_min_run);
        }
        Ok(Self {
            nodes,
            usage: params.usage,
            capacity: 0,
            capacity_past: Past::default(),
            counted: SimTime(0),
        })
    }

    pub(super) fn node(&self, node: usize) -> &Node {
        &self.nodes[node]
    }

    /// Returns the number of nodes, including the root.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns a queue and all its ancestors except the root.
    pub(super) fn path(&self, leaf: usize) -> impl Iterator<Item = usize> {
        let up = |&node: &usize| self.nodes[node].parent;
        std::iter::successors(Some(leaf), up).filter(|&node| node != ROOT)
    }

    /// Returns the lengths of the protection periods that may apply after a job of the leaf has started.
    pub(super) fn protections(&self, leaf: usize) -> Vec<SimSpan> {
        let reclaim = self.path(leaf).map(|node| self.nodes[node].reclaim_min_run);
        let mut spans: Vec<SimSpan> = reclaim.chain([self.nodes[leaf].preempt_min_run]).collect();
        spans.retain(|&span| span > SimSpan::ZERO);
        spans.sort_unstable();
        spans.dedup();
        spans
    }

    /// Returns, for each of two leaves, the queue on its path just below their lowest common ancestor.
    pub(super) fn sides(&self, leaf: usize, other: usize) -> (usize, usize) {
        let (mut x, mut z) = (leaf, other);
        let up = |node: usize| self.nodes[node].parent.unwrap_or(ROOT);
        while self.nodes[x].depth > self.nodes[z].depth {
            x = up(x);
        }
        while self.nodes[z].depth > self.nodes[x].depth {
            z = up(z);
        }
        while up(x) != up(z) {
            (x, z) = (up(x), up(z));
        }
        (x, z)
    }

    /// Adds `gpus`, which may be negative, to the number of GPUs that a leaf and all nodes above it hold.
    pub(super) fn hold(&mut self, leaf: usize, gpus: i64, is_fixed: bool) {
        let mut at = Some(leaf);
        while let Some(node) = at {
            self.nodes[node].held += gpus;
            if is_fixed {
                self.nodes[node].fixed += gpus;
            }
            at = self.nodes[node].parent;
        }
    }

    /// Adds `gpus`, which may be negative, to the number of GPUs that the jobs of a leaf ask for.
    pub(super) fn ask(&mut self, leaf: usize, gpus: i64) {
        self.nodes[leaf].asked += gpus;
    }

    /// Returns whether limits and quotas allow a leaf to hold the GPUs of one more job; `is_fixed` means that the job
    /// cannot be preempted.
    pub(super) fn may_hold(&self, leaf: usize, gpus: i64, is_fixed: bool) -> bool {
        self.path(leaf).all(|node| {
            let node = &self.nodes[node];
            node.held + gpus <= node.limit && !(is_fixed && node.fixed + gpus > node.quota)
        })
    }

    /// Returns whether the quotas allow a leaf to hold the GPUs of one more job that cannot be preempted.
    pub(super) fn has_quota(&self, leaf: usize, gpus: i64) -> bool {
        let mut path = self.path(leaf);
        path.all(|node| self.nodes[node].fixed + gpus <= self.nodes[node].quota)
    }

    /// Returns whether limits and quotas would allow a job if the cluster were empty.
    pub(super) fn could_hold(&self, leaf: usize, gpus: i64, is_fixed: bool) -> bool {
        self.path(leaf).all(|node| {
            let node = &self.nodes[node];
            gpus <= node.limit && !(is_fixed && gpus > node.quota)
        })
    }

    /// Returns the saturation of a node that holds this many GPUs.
    pub(super) fn saturation(&self, node: usize, held: i64) -> f64 {
        match self.nodes[node].fair {
            0 if held > 0 => f64::INFINITY,
            0 => 0.0,
            fair => held as f64 / fair as f64,
        }
    }

    /// Compares two children of a node, given the number of GPUs that each child's next job needs. The lesser child
    /// starts its job first.
    pub(super) fn order(&self, x: (usize, i64), y: (usize, i64)) -> Ordering {
        let key = |(node, gpus): (usize, i64)| {
            let node = &self.nodes[node];
            (
                node.held > node.fair,
                node.held + gpus > node.quota,
                Reverse(node.priority),
                node.fair == 0,
            )
        };
        let (left, right) = (&self.nodes[x.0], &self.nodes[y.0]);
        let share = |more: (i64, i64)| {
            if left.fair == 0 || right.fair == 0 {
                return (left.held + more.0).cmp(&(right.held + more.1));
            }
            let (held, other) = (left.held + more.0, right.held + more.1);
            ratio(held, left.fair, other, right.fair)
        };
        key(x)
            .cmp(&key(y))
            .then_with(|| share((x.1, y.1)))
            .then_with(|| share((0, 0)))
            .then(left.fair.cmp(&right.fair))
            .then(x.0.cmp(&y.0))
    }

    /// Compares two children of a node for eviction. The greater child loses a job first.
    pub(super) fn victim_order(&self, x: usize, y: usize) -> Ordering {
        self.order((x, 0), (y, 0))
    }

    /// Returns whether queue `x` has a higher priority than queue `z`.
    pub(super) fn outranks(&self, x: usize, z: usize) -> bool {
        self.nodes[x].priority > self.nodes[z].priority
    }
}

// These methods count past usage.
impl Tree {
    /// Counts usage up to now, then sets the number of healthy GPUs.
    pub(super) fn count(&mut self, now: SimTime, capacity: i64) {
        if self.usage.weight > 0.0 {
            while let Some(tick) = Some(self.next_tick()).filter(|&tick| tick <= now) {
                self.add_up(tick);
                let (period, window) = (self.usage.period.0, self.usage.window.0);
                let is_reset = tick.0 / window > (tick.0 - period) / window;
                let decay = self.usage.decay;
                self.capacity_past.sample(decay, is_reset);
                for node in &mut self.nodes {
                    node.past.sample(decay, is_reset);
                }
            }
            self.add_up(now);
        }
        self.capacity = capacity;
    }

    /// Returns the instant at which usage is sampled next; `NEVER` if past usage does not count.
    pub(super) fn next_sample(&self) -> SimTime {
        if self.usage.weight > 0.0 {
            self.next_tick()
        } else {
            SimTime::NEVER
        }
    }

    fn next_tick(&self) -> SimTime {
        let period = self.usage.period.0;
        SimTime(
            (self.counted.0 / period)
                .saturating_add(1)
                .saturating_mul(period),
        )
    }

    fn add_up(&mut self, until: SimTime) {
        let span = i128::from(until.0 - self.counted.0);
        self.counted = until;
        self.capacity_past.gpu_ns += i128::from(self.capacity) * span;
        for node in &mut self.nodes {
            node.past.gpu_ns += i128::from(node.held) * span;
        }
    }

    fn past(&self, node: usize) -> f64 {
        if self.capacity_past.gpu_s == 0.0 {
            return 0.0;
        }
        self.nodes[node].past.gpu_s / self.capacity_past.gpu_s
    }
}

// These methods compute fair shares.
impl Tree {
    /// Computes all fair shares.
    pub(super) fn share_out(&mut self) {
        self.want(ROOT);
        self.divide(ROOT, self.capacity);
    }

    fn want(&mut self, node: usize) {
        let children = std::mem::take(&mut self.nodes[node].children);
        let mut asked = if children.is_empty() {
            self.nodes[node].asked
        } else {
            0
        };
        for &child in &children {
            self.want(child);
            asked += self.nodes[child].wanted;
        }
        self.nodes[node].children = children;
        self.nodes[node].wanted = asked.min(self.nodes[node].limit);
    }

    /// Divides GPUs among the children of a node, then each child's GPUs among its own children, and so on.
    fn divide(&mut self, node: usize, gpus: i64) {
        let children = std::mem::take(&mut self.nodes[node].children);
        let mut left = gpus;
        for &child in &children {
            let child = &mut self.nodes[child];
            let quota = if child.quota == super::params::NO_LIMIT {
                gpus
            } else {
                child.quota
            };
            child.fair = quota.min(child.wanted);
            left -= child.fair;
        }
        if left > 0 {
            let mut groups: BTreeMap<Reverse<i64>, Vec<usize>> = BTreeMap::new();
            for &child in &children {
                let priority = Reverse(self.nodes[child].priority);
                groups.entry(priority).or_default().push(child);
            }
            let mut rests = Vec::new();
            for group in groups.values() {
                rests.push(self.share_surplus(group, &mut left));
            }
            for rest in rests {
                for (child, _) in rest {
                    if left > 0 {
                        self.nodes[child].fair += 1;
                        left -= 1;
                    }
                }
            }
        }
        for &child in &children {
            self.divide(child, self.nodes[child].fair);
        }
        self.nodes[node].children = children;
    }

    /// Divides the remaining GPUs among a group of children by weight and past usage. The shares are whole GPUs, and no
    /// child gets more than it wants. Returns the children that lost a fraction by rounding, each with its fraction,
    /// largest fractions first.
    fn share_surplus(&mut self, group: &[usize], left: &mut i64) -> Vec<(usize, f64)> {
        let mut rests = vec![None; group.len()];
        let mut goes_on = true;
        while goes_on && *left > 0 {
            goes_on = false;
            let parts = self.parts(group);
            let total: f64 = parts.iter().flatten().sum();
            if total <= 0.0 {
                break;
            }
            let round = *left as f64;
            for (at, part) in parts.iter().enumerate() {
                let Some(part) = part else { continue };
                let node = &mut self.nodes[group[at]];
                let fair = round * part / total;
                let missing = node.wanted - node.fair;
                let given = if missing as f64 <= fair {
                    goes_on |= (missing as f64) < fair;
                    rests[at] = None;
                    missing
                } else {
                    let whole = fair.floor();
                    if fair - whole > 0.0 {
                        rests[at] = Some(fair - whole);
                    }
                    whole as i64
                };
                node.fair += given;
                *left -= given;
            }
        }
        let pairs = group.iter().zip(rests);
        let mut found: Vec<(usize, f64)> = pairs
            .filter_map(|(&node, rest)| Some((node, rest?)))
            .collect();
        found.sort_by(|x, y| y.1.total_cmp(&x.1));
        found
    }

    /// Returns the weight of each child in the division of the surplus; `None` for a child that wants no more GPUs or
    /// has no weight.
    fn parts(&self, group: &[usize]) -> Vec<Option<f64>> {
        let is_open = |&node: &usize| {
            let node = &self.nodes[node];
            node.fair < node.wanted && node.weight > 0.0
        };
        let open = group.iter().filter(|node| is_open(node));
        let total: f64 = open.map(|&node| self.nodes[node].weight).sum();
        let k = self.usage.weight;
        let part = |node: &usize| {
            let weight = self.nodes[*node].weight;
            if k == 0.0 {
                return weight;
            }
            let due = weight / total;
            (due + k * (due - self.past(*node))).max(0.0)
        };
        let parts = group.iter().map(|node| is_open(node).then(|| part(node)));
        parts.collect()
    }
}

impl Node {
    fn new(row: &Row, parent: Option<usize>) -> Self {
        Self {
            parent,
            children: Vec::new(),
            depth: 0,
            quota: row.quota,
            limit: row.limit,
            weight: row.weight,
            priority: row.priority,
            preempt_min_run: SimSpan::ZERO,
            reclaim_min_run: SimSpan::ZERO,
            held: 0,
            fixed: 0,
            asked: 0,
            wanted: 0,
            fair: 0,
            past: Past::default(),
        }
    }
}
