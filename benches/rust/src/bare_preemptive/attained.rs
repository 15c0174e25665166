//! `las`: queues by GPU time attained, within a queue the first start, newcomers last.
//!
//! A job runs in phases: as long as it may stay in its queue, or to its end. So a running job has one event
//! before it, the end of its phase, and knows nothing of GPU time. Where it stands in the order
//! changes only then, so lists by queue and first start stand: a newcomer that starts comes last in the first one.
//! A job that ends or falls to the next queue stays in its list until it is met there.

use super::sorted::Sorted;
use super::wheel::Wheel;
use super::{Class, Entry, Running, class, gpus, job, key};
use crate::workload::Jobs;

/// GPU-nanoseconds at which a job leaves each queue but the last.
pub(super) const LIMITS_GPU_NS: [i64; 2] = [3_250_000_000_000, 7_200_000_000_000];
pub(super) const QUEUES: usize = LIMITS_GPU_NS.len() + 1;

/// A key is the queue and in the lower bits the first start, of newcomers this.
const NEVER_NS: i64 = (1 << QUEUE_SHIFT) - 1;
const QUEUE_SHIFT: u32 = 60;

/// A job between its arrival and its end.
#[derive(Clone, Copy, Default)]
#[repr(align(32))]
struct Job {
    /// End of the phase while it runs; less what is left of the phase while it waits.
    until_ns: i64,
    /// Time to run after this phase.
    rest_ns: i64,
    /// Key in the lists.
    key: i64,
}

/// No key of a list.
const DONE: i64 = -1;

pub(super) struct Attained {
    jobs: Vec<Job>,
    /// Per class the length of a stay in each queue.
    stays_ns: Vec<[i64; QUEUES]>,
    timers: Wheel,
    queues: [Queue; QUEUES],
}

/// Running jobs of a queue, and some that have left it.
#[derive(Default)]
struct Queue {
    list: Sorted,
    listed: usize,
    left: usize,
}

impl Queue {
    /// The last job of the list, without those that have left the queue.
    fn last_running(&mut self, is_running: impl Fn(Entry) -> bool) -> Option<Entry> {
        loop {
            let last = self.list.last()?;
            if is_running(last) {
                return Some(last);
            }
            self.list.pop_last();
            self.listed -= 1;
            self.left -= 1;
        }
    }
}

/// How long a gang of this size stays in each queue.
pub(super) fn stays_ns(gpus: u32) -> [i64; QUEUES] {
    let gpus = i64::from(gpus);
    let limits = LIMITS_GPU_NS.map(|limit| (limit + gpus - 1) / gpus);
    [limits[0], limits[1] - limits[0], i64::MAX]
}

fn queue_of(key: i64) -> usize {
    (key >> QUEUE_SHIFT) as usize
}

fn with_key(entry: Entry, key: i64) -> Entry {
    (key as Entry) << 64 | Entry::from(entry as u64)
}

impl Attained {
    fn is_running(&self, entry: Entry) -> bool {
        self.jobs[job(entry)].key == key(entry)
    }

    fn list(&mut self, entry: Entry) {
        let queue = &mut self.queues[queue_of(key(entry))];
        queue.list.insert(entry);
        queue.listed += 1;
    }

    /// A running job falls to the next queue.
    fn fall(&mut self, from: Entry, now_ns: i64) -> Entry {
        let state = &mut self.jobs[job(from)];
        state.key += 1 << QUEUE_SHIFT;
        let to = with_key(from, state.key);
        let stay_ns = self.stays_ns[class(from)][queue_of(state.key)];
        let phase_ns = state.rest_ns.min(stay_ns);
        state.rest_ns -= phase_ns;
        state.until_ns = now_ns + phase_ns;
        self.timers.push(with_key(from, state.until_ns));
        self.leave(key(from));
        self.list(to);
        to
    }

    /// Counts a job out; once most of the list have left it is made anew.
    fn leave(&mut self, key_ns: i64) {
        let queue = &mut self.queues[queue_of(key_ns)];
        queue.left += 1;
        if queue.left > 1_000 && queue.left > queue.listed / 2 {
            let jobs = &self.jobs;
            queue
                .list
                .retain(|entry| jobs[job(entry)].key == key(entry));
            queue.listed -= queue.left;
            queue.left = 0;
        }
    }
}

impl Running for Attained {
    const LISTS: usize = QUEUES;

    fn new(jobs: &Jobs, sizes: &[u32]) -> Self {
        Self {
            jobs: vec![Job::default(); jobs.len()],
            stays_ns: sizes.iter().map(|&gpus| stays_ns(gpus)).collect(),
            timers: Wheel::new(jobs),
            queues: Default::default(),
        }
    }

    fn arrive(&mut self, job: u32, gpus: u32, class: u8, duration_ns: i64) -> Entry {
        let phase_ns = duration_ns.min(self.stays_ns[usize::from(class)][0]);
        self.jobs[job as usize] = Job {
            until_ns: -phase_ns,
            rest_ns: duration_ns - phase_ns,
            key: NEVER_NS,
        };
        super::entry(NEVER_NS, job, gpus, class)
    }

    fn list_of(waiting: Entry) -> usize {
        queue_of(key(waiting))
    }

    fn rank(waiting: Entry) -> u128 {
        waiting
    }

    fn next_ns(&mut self, limit_ns: i64) -> i64 {
        let jobs = &self.jobs;
        let next = self
            .timers
            .peek(limit_ns, |timer| jobs[job(timer)].until_ns == key(timer));
        next.map_or(limit_ns, key)
    }

    #[inline]
    fn next_end(&mut self, now_ns: i64, classes: &mut [Class]) -> Option<Entry> {
        loop {
            let jobs = &self.jobs;
            let is_live = |timer| jobs[job(timer)].until_ns == key(timer);
            let timer = self.timers.peek(now_ns + 1, is_live)?;
            self.timers.pop();
            let state = &mut self.jobs[job(timer)];
            let from = with_key(timer, state.key);
            if state.rest_ns == 0 {
                (state.until_ns, state.key) = (0, DONE);
                self.leave(key(from));
                return Some(timer);
            }
            let to = self.fall(from, now_ns);
            for class in classes.iter_mut() {
                if from < class.rank && class.rank < to {
                    class.needs_room -= gpus(to);
                }
            }
        }
    }

    fn start(&mut self, waiting: Entry, now_ns: i64) {
        let state = &mut self.jobs[job(waiting)];
        if state.key == NEVER_NS {
            state.key = now_ns;
        }
        state.until_ns = now_ns - state.until_ns;
        let (key, until_ns) = (state.key, state.until_ns);
        self.timers.push(with_key(waiting, until_ns));
        self.list(with_key(waiting, key));
    }

    fn behind(&self, rank: u128, enough: i64, _now_ns: i64) -> i64 {
        let mut behind = 0;
        for queue in self.queues.iter().rev() {
            // nothing behind is the usual case
            if queue.list.last().is_some_and(|last| last < rank) {
                break;
            }
            let went_on = queue.list.walk_back(|entry| {
                let goes_on = behind < enough && entry > rank;
                if goes_on && self.is_running(entry) {
                    behind += gpus(entry);
                }
                goes_on
            });
            if !went_on {
                break;
            }
        }
        behind
    }

    fn pop_last(&mut self, _now_ns: i64) -> Entry {
        let jobs = &self.jobs;
        let is_running = |entry| jobs[job(entry)].key == key(entry);
        for queue in self.queues.iter_mut().rev() {
            if let Some(last) = queue.last_running(is_running) {
                queue.list.pop_last();
                queue.listed -= 1;
                return last;
            }
        }
        unreachable!("running jobs hold the GPUs")
    }

    fn put_back(&mut self, running: Entry) {
        self.list(running);
    }

    fn stop(&mut self, running: Entry, now_ns: i64) -> Entry {
        let state = &mut self.jobs[job(running)];
        state.until_ns = now_ns - state.until_ns;
        running
    }
}
