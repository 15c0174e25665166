//! The bare loop: the cost of a simulation of this workload without any other feature. It is the limit to which the
//! engine is compared.
//!
//! It has arrays, one binary heap of completions, buckets of servers by free GPUs (best fit), and a queue. It has no
//! policy interface, no checks, no plan, and no records except start and finish times. Free GPUs are counted but not
//! identified, and ties between servers are not broken by index. There is one GPU type and one rack, without failures
//! or overheads. This module must not know the engine. The benchmarks print the factor by which the engine takes more
//! time.
//!
//! The cost is O(log running) per event, plus O(log waiting) under shortest job first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use crate::workload::{Cluster, Jobs};

/// Start and finish of each job, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    /// Start of each job.
    pub start_ns: Vec<i64>,
    /// Finish of each job.
    pub finish_ns: Vec<i64>,
}

impl Times {
    fn new(jobs: usize) -> Self {
        Self {
            start_ns: vec![-1; jobs],
            finish_ns: vec![-1; jobs],
        }
    }
}

/// Runs first in, first out, with head-of-line blocking.
pub fn fifo(jobs: &Jobs, cluster: Cluster) -> Times {
    let mut bare = Loop::new(jobs, cluster);
    // The queue is the range of jobs that have arrived and not started.
    let mut head = 0;
    while let Some(arrived) = bare.next_instant() {
        while head < arrived && jobs.gpus[head] <= bare.free.total {
            bare.start(head as u32);
            head += 1;
        }
    }
    bare.times
}

/// Runs shortest job first; jobs that do not fit are skipped.
pub fn sjf(jobs: &Jobs, cluster: Cluster) -> Times {
    let mut bare = Loop::new(jobs, cluster);
    let mut queue = ShortestFirst::new(&jobs.gpus);
    let mut queued = 0;
    while let Some(arrived) = bare.next_instant() {
        for job in queued..arrived {
            queue.push(jobs, job as u32);
        }
        queued = arrived;
        while let Some(job) = queue.pop_fitting(bare.free.total) {
            bare.start(job);
        }
    }
    bare.times
}

struct Loop<'a> {
    jobs: &'a Jobs,
    arrived: usize,
    completions: BinaryHeap<Reverse<(i64, u32)>>,
    free: FreeGpus,
    now_ns: i64,
    times: Times,
}

impl<'a> Loop<'a> {
    fn new(jobs: &'a Jobs, cluster: Cluster) -> Self {
        Self {
            jobs,
            arrived: 0,
            completions: BinaryHeap::new(),
            free: FreeGpus::new(cluster, jobs.len()),
            now_ns: 0,
            times: Times {
                ..Times::new(jobs.len())
            },
        }
    }

    /// Applies all completions and arrivals of the next instant. Returns the number of jobs that have arrived.
    fn next_instant(&mut self) -> Option<usize> {
        let completion = self.completions.peek().map_or(i64::MAX, |next| next.0.0);
        let arrival = self
            .jobs
            .arrival_ns
            .get(self.arrived)
            .copied()
            .unwrap_or(i64::MAX);
        self.now_ns = completion.min(arrival);
        if self.now_ns == i64::MAX {
            return None;
        }
        while let Some(next) = self.completions.peek_mut()
            && next.0.0 == self.now_ns
        {
            let Reverse((at, job)) = PeekMut::pop(next);
            self.times.finish_ns[job as usize] = at;
            self.free.give(job, self.jobs.gpus[job as usize]);
        }
        while self.jobs.arrival_ns.get(self.arrived) == Some(&self.now_ns) {
            self.arrived += 1;
        }
        Some(self.arrived)
    }

    fn start(&mut self, job: u32) {
        let at = job as usize;
        self.free.take(job, self.jobs.gpus[at]);
        self.times.start_ns[at] = self.now_ns;
        self.completions
            .push(Reverse((self.now_ns + self.jobs.duration_ns[at], job)));
    }
}

/// One binary heap per gang size, ordered by duration, then job.
struct ShortestFirst {
    sizes: Vec<u32>,
    class_of: Vec<u8>,
    heaps: Vec<BinaryHeap<Reverse<(i64, u32)>>>,
}

impl ShortestFirst {
    fn new(gpus: &[u32]) -> Self {
        let mut sizes = gpus.to_vec();
        sizes.sort_unstable();
        sizes.dedup();
        let mut class_of = vec![0; sizes.last().map_or(0, |&widest| widest as usize + 1)];
        for (class, &size) in sizes.iter().enumerate() {
            class_of[size as usize] = class as u8;
        }
        let heaps = sizes.iter().map(|_| BinaryHeap::new()).collect();
        Self {
            sizes,
            class_of,
            heaps,
        }
    }

    fn push(&mut self, jobs: &Jobs, job: u32) {
        let class = self.class_of[jobs.gpus[job as usize] as usize];
        self.heaps[class as usize].push(Reverse((jobs.duration_ns[job as usize], job)));
    }

    fn pop_fitting(&mut self, gpus_free: u32) -> Option<u32> {
        let fitting = self
            .sizes
            .iter()
            .take_while(|&&size| size <= gpus_free)
            .count();
        let class = (0..fitting)
            .filter(|&class| !self.heaps[class].is_empty())
            .min_by_key(|&class| self.heaps[class].peek().map(|key| key.0))?;
        self.heaps[class].pop().map(|Reverse((_, job))| job)
    }
}

/// Servers in buckets by free GPUs, and the servers of each job.
struct FreeGpus {
    total: u32,
    free: Vec<u32>,
    bucket: Vec<Vec<u32>>,
    position: Vec<u32>,
    /// Bit f - 1 is set if some server has f free GPUs.
    mask: u64,
    /// Server of a job on a single server; otherwise the index of its list in `wide`, with the top bit set.
    place: Vec<u32>,
    wide: Vec<Vec<(u32, u32)>>,
    wide_unused: Vec<u32>,
}

const WIDE: u32 = 1 << 31;

impl FreeGpus {
    fn new(cluster: Cluster, jobs: usize) -> Self {
        let mut bucket = vec![Vec::new(); cluster.gpus_per_server as usize + 1];
        bucket[cluster.gpus_per_server as usize] = (0..cluster.servers).collect();
        Self {
            total: cluster.gpus(),
            free: vec![cluster.gpus_per_server; cluster.servers as usize],
            bucket,
            position: (0..cluster.servers).collect(),
            mask: 1 << (cluster.gpus_per_server - 1),
            place: vec![0; jobs],
            wide: Vec::new(),
            wide_unused: Vec::new(),
        }
    }

    /// Places a job by best fit on one server, or otherwise on the fullest servers first. The caller knows that it
    /// fits.
    fn take(&mut self, job: u32, gpus: u32) {
        self.total -= gpus;
        if let Some(server) = self.best_fit(gpus) {
            self.place[job as usize] = server;
            self.set(server, self.free[server as usize] - gpus);
            return;
        }
        let slot = self.wide_unused.pop().unwrap_or_else(|| {
            self.wide.push(Vec::new());
            self.wide.len() as u32 - 1
        });
        self.place[job as usize] = WIDE | slot;
        let mut rest = gpus;
        while rest > 0 {
            let most = 64 - self.mask.leading_zeros();
            let server = if rest >= most {
                self.any_with(most)
            } else {
                self.best_fit(rest)
            };
            let server = server.expect("the caller counted enough free GPUs");
            let part = rest.min(self.free[server as usize]);
            self.set(server, self.free[server as usize] - part);
            self.wide[slot as usize].push((server, part));
            rest -= part;
        }
    }

    fn give(&mut self, job: u32, gpus: u32) {
        self.total += gpus;
        let place = self.place[job as usize];
        if place & WIDE == 0 {
            self.set(place, self.free[place as usize] + gpus);
            return;
        }
        let slot = place & !WIDE;
        while let Some((server, part)) = self.wide[slot as usize].pop() {
            self.set(server, self.free[server as usize] + part);
        }
        self.wide_unused.push(slot);
    }

    fn best_fit(&self, gpus: u32) -> Option<u32> {
        let fitting = self.mask.checked_shr(gpus - 1).unwrap_or(0);
        if fitting == 0 {
            None
        } else {
            self.any_with(gpus + fitting.trailing_zeros())
        }
    }

    fn any_with(&self, free: u32) -> Option<u32> {
        self.bucket[free as usize].last().copied()
    }

    /// Moves a server to the bucket of its new number of free GPUs.
    fn set(&mut self, server: u32, free: u32) {
        let old = std::mem::replace(&mut self.free[server as usize], free);
        let at = self.position[server as usize];
        let bucket = &mut self.bucket[old as usize];
        bucket.swap_remove(at as usize);
        if let Some(&moved) = bucket.get(at as usize) {
            self.position[moved as usize] = at;
        }
        if bucket.is_empty() && old > 0 {
            self.mask &= !(1 << (old - 1));
        }
        let bucket = &mut self.bucket[free as usize];
        self.position[server as usize] = bucket.len() as u32;
        bucket.push(server);
        if free > 0 {
            self.mask |= 1 << (free - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::philly_like;

    /// Returns the maximum number of jobs that wait at one time.
    fn peak_waiting(jobs: &Jobs, times: &Times) -> usize {
        let mut starts = times.start_ns.clone();
        starts.sort_unstable();
        let mut peak = 0;
        let mut started = 0;
        for (job, &now) in jobs.arrival_ns.iter().enumerate() {
            while started <= job && starts[started] <= now {
                started += 1;
            }
            peak = peak.max(job + 1 - started);
        }
        peak
    }

    /// Scans everything at every instant. It shares no code with the loop above.
    fn plain(jobs: &Jobs, gpus: u32, shortest_first: bool) -> Times {
        let n = jobs.len();
        let mut times = Times::new(n);
        let mut instants = jobs.arrival_ns.clone();
        while let Some(&now) = instants.iter().min() {
            instants.retain(|&at| at > now);
            let held: u32 = (0..n)
                .filter(|&job| times.start_ns[job] >= 0 && times.finish_ns[job] > now)
                .map(|job| jobs.gpus[job])
                .sum();
            let mut free = gpus - held;
            let mut waiting: Vec<usize> = (0..n)
                .filter(|&job| times.start_ns[job] < 0 && jobs.arrival_ns[job] <= now)
                .collect();
            if shortest_first {
                waiting.sort_by_key(|&job| (jobs.duration_ns[job], job));
            }
            for job in waiting {
                if jobs.gpus[job] <= free {
                    free -= jobs.gpus[job];
                    times.start_ns[job] = now;
                    times.finish_ns[job] = now + jobs.duration_ns[job];
                    instants.push(times.finish_ns[job]);
                } else if !shortest_first {
                    break;
                }
            }
        }
        times
    }

    #[test]
    fn both_loops_agree_with_a_walk_over_everything() {
        let cluster = Cluster {
            servers: 12,
            gpus_per_server: 8,
        };
        for offered in [0.5, 2.0] {
            let jobs = philly_like(600, cluster, offered, 3);
            assert_eq!(fifo(&jobs, cluster), plain(&jobs, cluster.gpus(), false));
            assert_eq!(sjf(&jobs, cluster), plain(&jobs, cluster.gpus(), true));
        }
    }

    #[test]
    fn every_gpu_is_given_back() {
        let cluster = Cluster {
            servers: 5,
            gpus_per_server: 8,
        };
        let jobs = philly_like(300, cluster, 2.0, 4);
        let mut bare = Loop::new(&jobs, cluster);
        let mut head = 0;
        while let Some(arrived) = bare.next_instant() {
            while head < arrived && jobs.gpus[head] <= bare.free.total {
                bare.start(head as u32);
                head += 1;
            }
            assert_eq!(bare.free.free.iter().sum::<u32>(), bare.free.total);
        }
        assert_eq!(bare.free.total, cluster.gpus());
        assert_eq!(bare.free.bucket[8].len(), 5);
        assert_eq!(bare.free.mask, 1 << 7);
    }

    #[test]
    fn a_saturated_run_keeps_a_long_queue() {
        let cluster = Cluster {
            servers: 20,
            gpus_per_server: 8,
        };
        let jobs = philly_like(20_000, cluster, 2.5, 5);
        assert!(peak_waiting(&jobs, &fifo(&jobs, cluster)) > 8_000);
        assert!(peak_waiting(&jobs, &sjf(&jobs, cluster)) > 2_000);
        let light = philly_like(20_000, Cluster::PUBLISHED, 0.5, 5);
        assert!(peak_waiting(&light, &fifo(&light, Cluster::PUBLISHED)) <= 1);
    }
}
