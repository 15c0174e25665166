//! `srtf` and `srsf`: the jobs with least left to do, as time or as time x gang size, hold the GPUs.
//!
//! A waiting job is listed by the time it has left, a running one by its finish: that does not change while it
//! runs, and its first one is the next event. A waiting job has the same left all the time and a running one
//! ever less, so no running job falls behind a head.

use std::marker::PhantomData;

use super::sorted::Sorted;
use super::{Class, Entry, Running, class, gpus, job, key};
use crate::workload::Jobs;

/// Who goes first among jobs that know what they have left.
pub(super) trait Order {
    /// Time does not change who of two running jobs goes first: they lie in one list, not in one per class.
    const STANDS: bool;

    /// Place in the order of a job by the time it has left.
    fn rank(left: Entry) -> u128;
}

/// Least time left, ties by job.
pub(super) struct Time;

impl Order for Time {
    const STANDS: bool = true;

    fn rank(left: Entry) -> u128 {
        left
    }
}

/// Least time left x gang size, ties by gang size, job.
pub(super) struct Service;

impl Order for Service {
    const STANDS: bool = false;

    fn rank(left: Entry) -> u128 {
        let service = (key(left) * gpus(left)) as u128;
        service << 64 | (class(left) as u128) << 32 | job(left) as u128
    }
}

/// Running jobs by finish, in one list or in one per class.
pub(super) struct Remaining<O> {
    lists: Vec<Sorted>,
    order: PhantomData<O>,
}

impl<O: Order> Remaining<O> {
    fn list(&mut self, entry: Entry) -> &mut Sorted {
        let at = if O::STANDS { 0 } else { class(entry) };
        &mut self.lists[at]
    }
}

/// How far the finish of a running job is ahead of the time it has left.
fn elapsed(now_ns: i64) -> Entry {
    (now_ns as Entry) << 64
}

impl<O: Order> Running for Remaining<O> {
    const LISTS: usize = 1;

    fn new(_jobs: &Jobs, sizes: &[u32]) -> Self {
        let lists = if O::STANDS { 1 } else { sizes.len() };
        Self {
            lists: (0..lists).map(|_| Sorted::default()).collect(),
            order: PhantomData,
        }
    }

    fn arrive(&mut self, job: u32, gpus: u32, class: u8, duration_ns: i64) -> Entry {
        super::entry(duration_ns, job, gpus, class)
    }

    fn list_of(_waiting: Entry) -> usize {
        0
    }

    fn rank(waiting: Entry) -> u128 {
        O::rank(waiting)
    }

    fn next_ns(&mut self, limit_ns: i64) -> i64 {
        let firsts = self.lists.iter().filter_map(Sorted::first);
        firsts.map(key).fold(limit_ns, i64::min)
    }

    #[inline]
    fn next_end(&mut self, now_ns: i64, _classes: &mut [Class]) -> Option<Entry> {
        for list in &mut self.lists {
            if let Some(first) = list.first()
                && key(first) == now_ns
            {
                list.pop_first();
                return Some(first);
            }
        }
        None
    }

    fn start(&mut self, waiting: Entry, now_ns: i64) {
        self.list(waiting).insert(waiting + elapsed(now_ns));
    }

    fn behind(&self, rank: u128, enough: i64, now_ns: i64) -> i64 {
        let elapsed = elapsed(now_ns);
        let mut behind = 0;
        for list in &self.lists {
            // nothing behind is the usual case
            if list
                .last()
                .is_none_or(|last| O::rank(last - elapsed) < rank)
            {
                continue;
            }
            list.walk_back(|entry| {
                let goes_on = behind < enough && O::rank(entry - elapsed) > rank;
                if goes_on {
                    behind += gpus(entry);
                }
                goes_on
            });
        }
        behind
    }

    fn pop_last(&mut self, now_ns: i64) -> Entry {
        let ends = self.lists.iter().enumerate();
        let rank = |entry| O::rank(entry - elapsed(now_ns));
        let ends = ends.filter_map(|(at, list)| Some((rank(list.last()?), at)));
        let (_, list) = ends.max().expect("running jobs hold the GPUs");
        self.lists[list].pop_last().expect("just seen")
    }

    fn put_back(&mut self, running: Entry) {
        self.list(running).insert(running);
    }

    fn stop(&mut self, running: Entry, now_ns: i64) -> Entry {
        running - elapsed(now_ns)
    }
}
