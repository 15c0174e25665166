//! The order in which a decision examines jobs, and an index of the waiting jobs, so that a decision need not examine
//! all of them.
//!
//! Waiting jobs with the same usable types and gang size form a class. If one job of a class does not fit, no job of
//! the class fits until GPUs become free. Running jobs, at most one per GPU, are ranked again in each decision. A
//! decision costs O(running jobs + classes + (jobs examined + swaps in the order) x log jobs).

use super::facts::{Facts, Line};
use super::params::Sorting;
use crate::kit::Total;
use gangline_model::{JobId, NANOS_PER_SECOND, SimTime};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::Bound;

/// Usable types of a job (as a bit mask), and its gang size.
type Kind = (u64, u32);

fn kind_of(facts: &Facts) -> Kind {
    (facts.type_mask(), facts.gpus)
}

/// Waiting jobs of one class.
#[derive(Debug)]
enum Class {
    /// Jobs whose order does not change while they wait.
    Fixed {
        ranks: BTreeSet<Rank>,
        last: Option<Rank>,
    },
    /// Jobs whose order changes over time.
    Kinetic(Lines),
}

/// All waiting jobs.
#[derive(Debug)]
pub(super) struct Waiting {
    sorting: Sorting,
    classes: BTreeMap<Kind, Class>,
}

impl Waiting {
    pub(super) fn new(sorting: Sorting) -> Self {
        Self {
            sorting,
            classes: BTreeMap::new(),
        }
    }

    /// Adds a waiting job with its remaining work.
    pub(super) fn insert(&mut self, now: SimTime, facts: &Facts, remaining: f64) {
        let sorting = self.sorting;
        let empty = || match sorting {
            Sorting::Density => Class::Kinetic(Lines::default()),
            _ => Class::Fixed {
                ranks: BTreeSet::new(),
                last: None,
            },
        };
        match self.classes.entry(kind_of(facts)).or_insert_with(empty) {
            Class::Fixed { ranks, .. } => {
                ranks.insert(Rank::new(sorting, now, facts, remaining));
            }
            Class::Kinetic(lines) => lines.insert(facts.line(remaining)),
        }
    }

    /// Removes a job that no longer waits; `remaining` must be the work that the job had left when it was added.
    pub(super) fn remove(&mut self, now: SimTime, facts: &Facts, remaining: f64) {
        let sorting = self.sorting;
        let Some(class) = self.classes.get_mut(&kind_of(facts)) else {
            return;
        };
        match class {
            Class::Fixed { ranks, .. } => {
                ranks.remove(&Rank::new(sorting, now, facts, remaining));
            }
            Class::Kinetic(lines) => lines.remove(facts.job),
        }
    }

    /// Starts a walk over running and waiting jobs in order; `running` must be sorted.
    pub(super) fn merge<'a>(&'a mut self, now: SimTime, running: &'a [Rank]) -> Merge<'a> {
        let mut merge = Merge {
            now,
            running,
            classes: self.classes.iter_mut().collect(),
            heads: BinaryHeap::new(),
        };
        for at in 0..merge.classes.len() {
            merge.classes[at].1.rewind();
            merge.advance(at);
        }
        merge
    }
}

impl Class {
    /// Restarts the walk at the first job.
    fn rewind(&mut self) {
        match self {
            Self::Fixed { last, .. } => *last = None,
            Self::Kinetic(lines) => lines.restore(),
        }
    }

    fn next(&mut self, now: SimTime) -> Option<Rank> {
        match self {
            Self::Fixed { ranks, last } => {
                let from = last.map_or(Bound::Unbounded, Bound::Excluded);
                *last = ranks.range((from, Bound::Unbounded)).next().copied();
                *last
            }
            Self::Kinetic(lines) => lines.pop(now).map(|line| Rank::dense(&line, now)),
        }
    }
}

/// One walk over the queue.
#[derive(Debug)]
pub(super) struct Merge<'a> {
    now: SimTime,
    running: &'a [Rank],
    classes: Vec<(&'a Kind, &'a mut Class)>,
    /// The next job of each class that might still find room.
    heads: BinaryHeap<Reverse<(Rank, usize)>>,
}

impl Merge<'_> {
    fn advance(&mut self, at: usize) {
        let next = self.classes[at].1.next(self.now);
        self.heads.extend(next.map(|rank| Reverse((rank, at))));
    }

    /// Returns the next job: a running job, or a waiting job of a class for which there is room. `fits` receives the
    /// types and the gang size of a class of waiting jobs.
    pub(super) fn next(&mut self, fits: impl Fn(u64, u32) -> bool) -> Option<Rank> {
        loop {
            let head = self.heads.peek().map(|head| head.0);
            let is_running = match (self.running.first(), head) {
                (Some(running), Some((waiting, _))) => *running < waiting,
                (running, _) => running.is_some(),
            };
            if is_running {
                let (first, rest) = self.running.split_first()?;
                self.running = rest;
                return Some(*first);
            }
            let (rank, at) = head?;
            self.heads.pop();
            let &(types, gpus) = self.classes[at].0;
            if fits(types, gpus) {
                self.advance(at);
                return Some(rank);
            }
        }
    }
}

// The following code defines the position of a job in the queue.

/// The position of a job in the queue at one instant; a smaller rank comes first. Ranks are compared exactly, without a
/// tolerance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    main: Total,
    narrow: u32,
    /// Jobs are numbered in order of arrival.
    pub(super) job: JobId,
}

impl Rank {
    /// Computes the rank of a job from its remaining work.
    pub(super) fn new(sorting: Sorting, now: SimTime, facts: &Facts, remaining: f64) -> Self {
        // Times are rounded to whole nanoseconds, so that times that are equal as decimals tie.
        let left_ns = || (remaining / facts.best_rate * NANOS_PER_SECOND).round();
        let main = match sorting {
            Sorting::Density => return Self::dense(&facts.line(remaining), now),
            Sorting::Arrival => 0.0,
            Sorting::ShortestRemaining => left_ns(),
            Sorting::LongestRemaining => -left_ns(),
        };
        Self {
            main: Total(main),
            narrow: 0,
            job: facts.job,
        }
    }

    /// Creates a rank for the order by utility per GPU, then by gang size, both largest first.
    pub(super) fn dense(line: &Line, now: SimTime) -> Self {
        Self {
            main: Total(-line.density(now)),
            narrow: u32::MAX - line.gpus,
            job: line.job,
        }
    }
}

// The following code is a kinetic tournament. The utilities per GPU of the jobs fall at different speeds, and the
// tournament finds the job with the highest one.
//
// Each node of the tournament stores the instant until which its outcome is certain. The inverse of the utility per GPU
// is linear in time, so two jobs change places at most once. The outcomes are the same as if exact ranks were compared.
// Near a crossing, where rounding might decide, a node is recomputed each time. Nodes are computed lazily, so n jobs
// that arrive together cost O(n). The cost is O(log jobs) for each job that is added, removed or examined, and for each
// outcome that expires.

/// Two lines whose relative distance is below this might swap because of rounding. The value is our own choice; it is
/// far above the noise of a few operations.
const MARGIN: f64 = 1e-9;
const NONE: u32 = u32::MAX;
/// An instant before every time in a run.
const UNKNOWN: SimTime = SimTime(i64::MIN);

#[derive(Clone, Copy, Debug)]
struct Node {
    /// Leaf of the job that comes first in the queue, among the jobs of the subtree.
    best: u32,
    /// Instant until which that job certainly comes first.
    until: SimTime,
}

const EMPTY: Node = Node {
    best: NONE,
    until: SimTime::NEVER,
};

/// Waiting jobs of one class, ordered by utility per GPU.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Job in each leaf; a job stays in its leaf.
    jobs: Vec<Option<Line>>,
    leaf_of: FxHashMap<JobId, u32>,
    unused: Vec<u32>,
    /// A binary tree in an array. Node 1 is the root, and the children of n are 2 n and 2 n + 1. The second half of the
    /// array contains the leaves.
    nodes: Vec<Node>,
    /// Leaves that this walk has already returned.
    passed: Vec<u32>,
}

impl Lines {
    fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }

    pub(super) fn insert(&mut self, line: Line) {
        let leaf = self.unused.pop().unwrap_or_else(|| {
            self.jobs.push(None);
            self.jobs.len() as u32 - 1
        });
        self.leaf_of.insert(line.job, leaf);
        self.jobs[leaf as usize] = Some(line);
        if leaf as usize >= self.leaves() {
            self.grow();
        }
        self.set(leaf, leaf);
    }

    /// Removes a job if it is in the tree.
    pub(super) fn remove(&mut self, job: JobId) {
        if let Some(leaf) = self.leaf_of.remove(&job) {
            self.jobs[leaf as usize] = None;
            self.unused.push(leaf);
            self.set(leaf, NONE);
        }
    }

    /// Returns the first job that this walk has not returned before.
    pub(super) fn pop(&mut self, now: SimTime) -> Option<Line> {
        if self.nodes.is_empty() {
            return None;
        }
        self.refresh(1, now);
        let leaf = self.nodes[1].best;
        if leaf == NONE {
            return None;
        }
        self.passed.push(leaf);
        self.set(leaf, NONE);
        self.jobs[leaf as usize]
    }

    /// Resets the walk, so that all jobs can be returned again.
    pub(super) fn restore(&mut self) {
        for leaf in std::mem::take(&mut self.passed) {
            if self.jobs[leaf as usize].is_some() {
                self.set(leaf, leaf);
            }
        }
    }

    /// Doubles the number of leaves. The values of all nodes become unknown and are recomputed on demand.
    fn grow(&mut self) {
        let leaves = (2 * self.leaves()).max(2);
        self.nodes = vec![EMPTY; 2 * leaves];
        for node in &mut self.nodes[1..leaves] {
            node.until = UNKNOWN;
        }
        self.passed.clear();
        for (at, _) in self
            .jobs
            .iter()
            .enumerate()
            .filter(|(_, line)| line.is_some())
        {
            self.nodes[leaves + at].best = at as u32;
        }
    }

    /// Puts a job into a leaf or clears the leaf. The values of the nodes above the leaf become unknown.
    fn set(&mut self, leaf: u32, best: u32) {
        let mut at = self.leaves() + leaf as usize;
        self.nodes[at].best = best;
        at /= 2;
        // All ancestors of an unknown node are unknown.
        while at > 0 && self.nodes[at].until != UNKNOWN {
            self.nodes[at].until = UNKNOWN;
            at /= 2;
        }
    }

    /// Recomputes a node if its value is no longer certain. Before that, the nodes below it are treated in the same
    /// way.
    fn refresh(&mut self, at: usize, now: SimTime) {
        if self.nodes[at].until >= now {
            return;
        }
        self.refresh(2 * at, now);
        self.refresh(2 * at + 1, now);
        self.nodes[at] = self.play(at, now);
    }

    /// Computes a node from its children. The result is certain for no longer than the values of the children.
    fn play(&self, at: usize, now: SimTime) -> Node {
        let (left, right) = (self.nodes[2 * at], self.nodes[2 * at + 1]);
        let until = left.until.min(right.until);
        let line = |leaf: u32| self.jobs.get(leaf as usize).copied().flatten();
        let (best, limit) = match (line(left.best), line(right.best)) {
            (Some(a), Some(b)) if Rank::dense(&a, now) < Rank::dense(&b, now) => {
                (left.best, certain_until(&a, &b, now))
            }
            (Some(a), Some(b)) => (right.best, certain_until(&b, &a, now)),
            (Some(_), None) => (left.best, SimTime::NEVER),
            (None, _) => (right.best, SimTime::NEVER),
        };
        Node {
            best,
            until: until.min(limit),
        }
    }
}

/// Returns the instant until which `first` certainly comes before `second`, given that it comes first now.
fn certain_until(first: &Line, second: &Line, now: SimTime) -> SimTime {
    let same = |a: f64, b: f64| a.to_bits() == b.to_bits();
    if same(first.numerator, second.numerator)
        && same(first.left_s, second.left_s)
        && first.arrival == second.arrival
    {
        return SimTime::NEVER; // The two lines are equal for ever, so the index decides.
    }
    // `level` is the current inverse of the utility per GPU, and the slope is its increase per second.
    let level = |line: &Line| ((now - line.arrival).seconds() + line.left_s) / line.numerator;
    let (level_a, level_b) = (level(first), level(second));
    let (slope_a, slope_b) = (1.0 / first.numerator, 1.0 / second.numerator);
    let gap = level_b - level_a - MARGIN * (level_a + level_b);
    let closing = slope_a - slope_b + MARGIN * (slope_a + slope_b);
    if gap.is_nan() || gap <= 0.0 {
        return now;
    }
    let seconds = if closing > 0.0 {
        gap / closing
    } else {
        f64::INFINITY
    };
    // Casting a value that is too large saturates.
    SimTime(now.0.saturating_add((seconds * NANOS_PER_SECOND) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gangline_testkit::conformance::Numbers;

    #[test]
    fn a_walk_is_a_sort() {
        let second = 1_000_000_000;
        for seed in 0..60 {
            let mut numbers = Numbers::new(seed);
            let (mut lines, mut plain) = (Lines::default(), Vec::new());
            let mut now = SimTime::ZERO;
            for step in 0..120 {
                now = SimTime(now.0 + numbers.below(30) as i64 * second / 3);
                let is_common = numbers.once_in(3); // Many lines are similar, and some are equal.
                let line = Line {
                    job: JobId(step),
                    arrival: if is_common { SimTime::ZERO } else { now },
                    gpus: 2,
                    numerator: numbers.pick(&[1.0, 1.0, 2.0, 7.0, 1e4 / 3.0]),
                    left_s: numbers.pick(&[0.1, 3.0, 30.0, 1000.0 / 7.0]),
                };
                lines.insert(line);
                plain.push(line);
                if numbers.once_in(3) {
                    let at = numbers.below(plain.len() as u64) as usize;
                    lines.remove(plain.swap_remove(at).job);
                }
                lines.restore();
                let passed = 1 + numbers.below(12) as usize;
                let walked = (0..passed).map_while(|_| lines.pop(now));
                let walked: Vec<JobId> = walked.map(|line| line.job).collect();
                plain.sort_by_key(|line| Rank::dense(line, now));
                let sorted = plain.iter().take(passed).map(|line| line.job);
                assert_eq!(
                    walked,
                    sorted.collect::<Vec<_>>(),
                    "seed {seed}, step {step}"
                );
            }
        }
    }
}
