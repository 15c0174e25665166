//! The order in which a decision looks at jobs, and the jobs that wait, kept so that it need not look at all of them.
//!
//! Jobs that wait are split into classes of the same types and gang size: one that finds no room proves that its class
//! has none until GPUs come free. Running jobs, at most one per GPU, are ranked anew in each decision. Cost of a
//! decision: O(running jobs + classes + (jobs looked at + lines that crossed) x log jobs).

use super::facts::Facts;
use super::kinetic::Lines;
use super::params::Sorting;
use super::rank::Rank;
use gangline_model::SimTime;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::Bound;

/// Types that a job may use, as a mask, and its gang size.
type Kind = (u64, u32);

fn kind_of(facts: &Facts) -> Kind {
    (facts.type_mask(), facts.gpus)
}

/// The jobs of a class that wait.
#[derive(Debug)]
enum Class {
    /// Their order does not change while they wait.
    Fixed {
        ranks: BTreeSet<Rank>,
        last: Option<Rank>,
    },
    /// It changes with time.
    Kinetic(Lines),
}

/// All jobs that wait.
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

    /// A job waits, with so much work left.
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

    /// A job with so much work left waits no more.
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

    /// All jobs in order, those that run and those that wait; `running` is sorted.
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
    /// Back to the first job.
    fn rewind(&mut self) {
        match self {
            Self::Fixed { last, .. } => *last = None,
            Self::Kinetic(lines) => lines.restore(),
        }
    }

    /// The next job.
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

/// One walk through the queue.
#[derive(Debug)]
pub(super) struct Merge<'a> {
    now: SimTime,
    running: &'a [Rank],
    classes: Vec<(&'a Kind, &'a mut Class)>,
    /// The next job of each class that may still find room.
    heads: BinaryHeap<Reverse<(Rank, usize)>>,
}

impl Merge<'_> {
    fn advance(&mut self, at: usize) {
        let next = self.classes[at].1.next(self.now);
        self.heads.extend(next.map(|rank| Reverse((rank, at))));
    }

    /// The next job of a class for which there is room; `fits` is asked with types and gang size. Running jobs come
    /// unasked.
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
