//! Queues with shares: assigns jobs to queues and determines the order in which queues are served.

use crate::kit::{ByClass, Owners, QueueBy};
use gangline_engine::PolicyError;
use gangline_model::{JobFacts, JobId};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Parameters of the queues.
#[derive(Clone, Debug)]
pub(crate) struct QueueParams {
    /// The label that defines the queues.
    pub by: QueueBy,
    /// Shares, keyed by name; `None` means equal shares for all queues of the trace.
    pub shares: Option<BTreeMap<String, f64>>,
}

#[derive(Debug)]
struct Queue {
    share: Share,
    used: u32,
}

/// A share in whole units; it has at least one unit.
type Share = u64;

/// Number of units of the whole cluster: 10^6 times the least common multiple of 1 to 15. Decimals with six digits are
/// whole numbers of units, and so are halves, thirds and so on up to fifteenths.
const UNITS: f64 = 360_360e6;

/// The load of a queue: the number of GPUs that it uses divided by its share. Loads are ordered by the exact quotient.
#[derive(Clone, Copy, Debug)]
struct Load(u32, Share);

impl Ord for Load {
    fn cmp(&self, other: &Self) -> Ordering {
        let cross = |one: &Self, two: &Self| u128::from(one.0) * u128::from(two.1);
        cross(self, other).cmp(&cross(other, self))
    }
}

impl PartialOrd for Load {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Load {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Load {}

/// Sort key of a queue that may be served: its load, then its index (indexes are in order of names).
type Position = (Load, u32);

/// The queues of a trace, numbered in order of their names.
#[derive(Debug, Default)]
pub(super) struct Queues {
    list: Vec<Queue>,
    /// Waiting jobs of each queue, in order of arrival.
    waiting: ByClass<JobId>,
    /// Queue of each job.
    of: Vec<u32>,
    /// Queues whose first waiting job might have a place.
    ready: BTreeSet<Position>,
    /// Queues whose first job has no place.
    blocked: BTreeSet<u32>,
}

impl Queues {
    /// Determines the queues of the trace.
    pub(super) fn new(params: &QueueParams, jobs: &JobFacts) -> Result<Self, PolicyError> {
        let Some(owners) = Owners::of(jobs, params.by) else {
            let name = params.by.name();
            let expected = format!("a trace that names a {name} for its jobs, or queue_by = none");
            return Err(bad("queue_by", name, expected));
        };
        let names = &owners.names;
        let list: Result<Vec<Queue>, PolicyError> = names
            .iter()
            .map(|name| {
                Ok(Queue {
                    share: share_of(name, params)?,
                    used: 0,
                })
            })
            .collect();
        Ok(Self {
            waiting: ByClass::new(names.len()),
            list: list?,
            of: owners.number,
            ready: BTreeSet::new(),
            blocked: BTreeSet::new(),
        })
    }

    fn place(&self, queue: u32) -> Position {
        let entry = &self.list[queue as usize];
        (Load(entry.used, entry.share), queue)
    }

    fn head(&self, queue: u32) -> Option<JobId> {
        self.waiting.first(queue as usize)
    }

    /// Changes the usage or the waiting jobs of a queue, and updates its position.
    fn change(&mut self, queue: u32, change: impl FnOnce(&mut Self)) {
        self.ready.remove(&self.place(queue));
        let head = self.head(queue);
        change(self);
        if self.head(queue) != head {
            self.blocked.remove(&queue);
        }
        if self.head(queue).is_some() && !self.blocked.contains(&queue) {
            self.ready.insert(self.place(queue));
        }
    }

    pub(super) fn are_several(&self) -> bool {
        self.list.len() > 1
    }

    /// Returns the first waiting job in the queue of a job, and the number of GPUs that the queue holds.
    pub(super) fn before(&self, job: JobId) -> Option<(JobId, u32)> {
        let queue = self.of[job.index()];
        Some((self.head(queue)?, self.list[queue as usize].used))
    }

    pub(super) fn join(&mut self, job: JobId) {
        let queue = self.of[job.index()];
        self.change(queue, |all| all.waiting.push(queue as usize, job));
    }

    /// Records that a job has released its GPUs.
    pub(super) fn give_back(&mut self, job: JobId, gpus: u32) {
        let queue = self.of[job.index()];
        self.change(queue, |all| all.list[queue as usize].used -= gpus);
    }

    /// Unblocks the queues for whose heads `may` returns true; these heads might have a place now.
    pub(super) fn retry(&mut self, mut may: impl FnMut(JobId) -> bool) {
        let heads: Vec<(u32, JobId)> = self
            .blocked
            .iter()
            .filter_map(|&queue| Some((queue, self.head(queue)?)))
            .collect();
        for (queue, head) in heads {
            if may(head) {
                self.blocked.remove(&queue);
                self.ready.insert(self.place(queue));
            }
        }
    }

    /// Returns the queue to serve next, and its head.
    pub(super) fn next(&self) -> Option<(u32, JobId)> {
        let &(_, queue) = self.ready.first()?;
        Some((queue, self.head(queue)?))
    }

    /// Records that the head of a queue has no place.
    pub(super) fn block(&mut self, queue: u32) {
        self.ready.remove(&self.place(queue));
        self.blocked.insert(queue);
    }

    /// Removes the head of a queue, because it gets its GPUs.
    pub(super) fn start(&mut self, queue: u32, gpus: u32) {
        self.change(queue, |all| {
            all.waiting.pop(queue as usize);
            all.list[queue as usize].used += gpus;
        });
    }
}

fn bad(field: &str, value: &str, expected: String) -> PolicyError {
    PolicyError::Parameter {
        policy: "yarn-cs".to_owned(),
        field: field.to_owned(),
        value: value.to_owned(),
        expected,
    }
}

fn share_of(name: &str, params: &QueueParams) -> Result<Share, PolicyError> {
    let Some(shares) = &params.shares else {
        return Ok(1);
    };
    // Only ratios matter, and multiplying by powers of 2 keeps whole numbers whole.
    let (sum, mut scale) = (shares.values().sum::<f64>(), UNITS);
    while sum * scale < UNITS / 2.0 {
        scale *= 2.0;
    }
    let units = |share: &f64| ((share * scale).round() as Share).max(1);
    shares.get(name).map(units).ok_or_else(|| {
        let known: Vec<&str> = shares.keys().map(String::as_str).collect();
        let expected =
            format!("a share for queue `{name}` as well, because the trace has jobs of this queue");
        bad("queue_shares", &known.join(", "), expected)
    })
}
