//! The GPUs that are free for each job in a policy's order, under a placement rule that might refuse a gang.
//!
//! At a key in the order, a GPU is free if neither an admitted job nor an earlier backfilled job holds it. Along the
//! order, the number of free GPUs of a server only decreases. For each n, a server therefore has at least n free GPUs
//! up to a certain position in the order and fewer behind it. One ordered set for each n shows which servers have at
//! least n free GPUs at a key.

use super::jobs::Key;
use gangline_engine::{ClusterView, FreeIndex, Plan};
use gangline_model::{GpuSet, JobId, ServerId, Verb};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// A key that comes after the keys of all jobs.
const END: Key = Key {
    lead: u64::MAX,
    main: i64::MAX,
    job: u32::MAX,
};

/// The way in which a job holds its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    None,
    Admitted,
    Backfilled(Key),
}

/// The free GPUs at every position in the order.
#[derive(Debug)]
pub(super) struct FreeProfile {
    /// GPUs that no admitted job holds, so they are free before the first job.
    pub(super) start: FreeIndex,
    /// GPUs of each running job.
    held: FxHashMap<JobId, GpuSet>,
    servers: Vec<Server>,
    /// For each number of GPUs (the index is the number minus 1), the servers that have at least this many free at some
    /// key, sorted by the last such key.
    last_with: Vec<BTreeSet<(Key, u32)>>,
}

#[derive(Clone, Debug, Default)]
struct Server {
    /// GPUs of backfilled jobs, in the order of the jobs' keys.
    backfilled: SmallVec<[(Key, u64); 8]>,
    /// For each number of GPUs (the index is the number minus 1), the last key at which at least this many are free.
    last_with: SmallVec<[Key; 8]>,
}

impl FreeProfile {
    /// Creates a profile in which all running jobs, and all jobs that the plan starts, are admitted.
    pub(super) fn new(view: &ClusterView<'_>, plan: Option<&Plan<'_>>) -> Self {
        let all = (0..view.cluster().servers().len()).map(ServerId::new);
        let down = all.clone().filter(|&server| !view.is_up(server));
        let sizes = view.cluster().servers().iter().map(|server| server.gpus);
        let mut profile = Self {
            start: FreeIndex::with_down(view.cluster(), down),
            held: FxHashMap::default(),
            servers: vec![Server::default(); all.len()],
            last_with: vec![BTreeSet::new(); sizes.max().unwrap_or(0) as usize],
        };
        for job in view.running() {
            let run = view.run(job).expect("a running job");
            profile.admit(job, run.gpus().clone());
        }
        for action in plan.into_iter().flat_map(Plan::actions) {
            if let Verb::Start(gpus) = &action.verb {
                profile.admit(action.job, gpus.clone());
            }
        }
        all.for_each(|server| profile.refresh(server));
        profile
    }

    fn admit(&mut self, job: JobId, gpus: GpuSet) {
        for part in gpus.by_server() {
            let mask = self.start.free_mask(part.server) & !part.mask;
            self.start.sync(part.server, mask);
        }
        self.held.insert(job, gpus);
    }

    pub(super) fn jobs(&self) -> usize {
        self.held.len()
    }

    /// Records that a job gets GPUs.
    pub(super) fn take(&mut self, job: JobId, gpus: GpuSet, hold: Hold) {
        self.change_gpus(&gpus, Hold::None, hold);
        self.held.insert(job, gpus);
    }

    /// Records that a job has given up its GPUs.
    pub(super) fn give(&mut self, job: JobId, hold: Hold) -> GpuSet {
        let gpus = self.held.remove(&job).expect("the job runs");
        self.change_gpus(&gpus, hold, Hold::None);
        gpus
    }

    /// Changes how a job holds its GPUs.
    pub(super) fn change(&mut self, job: JobId, old: Hold, hold: Hold) {
        let gpus = self.held.remove(&job).expect("the job runs");
        self.change_gpus(&gpus, old, hold);
        self.held.insert(job, gpus);
    }

    fn change_gpus(&mut self, gpus: &GpuSet, old: Hold, hold: Hold) {
        for part in gpus.by_server() {
            let mut start = self.start.free_mask(part.server);
            let backfilled = &mut self.servers[part.server.index()].backfilled;
            match old {
                Hold::None => {}
                Hold::Admitted => start |= part.mask,
                Hold::Backfilled(key) => backfilled.retain(|other| other.0 != key),
            }
            match hold {
                Hold::None => {}
                Hold::Admitted => start &= !part.mask,
                Hold::Backfilled(key) => {
                    let at = backfilled.partition_point(|other| other.0 < key);
                    backfilled.insert(at, (key, part.mask));
                }
            }
            self.start.sync(part.server, start);
            self.refresh(part.server);
        }
    }

    /// Records that a server has failed or was repaired. No job may hold a GPU on this server at that time.
    pub(super) fn set_up(&mut self, server: ServerId, is_up: bool) {
        self.start.set_up(server, false);
        self.start.set_up(server, is_up);
        self.refresh(server);
    }

    /// Recomputes, for each number of GPUs, the last key at which a server has that many free.
    fn refresh(&mut self, server: ServerId) {
        let mut free = self.start.free_mask(server).count_ones() as usize;
        let at = server.index();
        let mut last_with: SmallVec<[Key; 8]> = SmallVec::from_elem(END, free);
        for &(key, mask) in &self.servers[at].backfilled {
            let left = free - mask.count_ones() as usize;
            last_with[left..free].fill(key);
            free = left;
        }
        let old = std::mem::replace(&mut self.servers[at].last_with, last_with);
        let new = &self.servers[at].last_with;
        for number in 0..old.len().max(new.len()) {
            let (old, new) = (old.get(number), new.get(number));
            if old == new {
                continue;
            }
            let servers = &mut self.last_with[number];
            if let Some(old) = old {
                servers.remove(&(*old, at as u32));
            }
            if let Some(new) = new {
                servers.insert((*new, at as u32));
            }
        }
    }

    /// Returns whether, at the given key, at least `servers` servers have at least `gpus` free GPUs each. The cost is
    /// O(servers).
    pub(super) fn has(&self, servers: u32, gpus: u32, key: Key) -> bool {
        let Some(with) = self.last_with.get(gpus as usize - 1) else {
            return false;
        };
        let at = servers as usize - 1;
        with.iter()
            .rev()
            .nth(at)
            .is_some_and(|(last, _)| *last >= key)
    }

    /// Returns the server for a gang at the given key, and its free GPUs. Of the servers with room, this is the one
    /// with the fewest free GPUs, or the first one if `is_first_fit` is set. The cost is O(servers with enough free
    /// GPUs).
    pub(super) fn find(&self, gpus: u32, key: Key, is_first_fit: bool) -> Option<(ServerId, u64)> {
        let with = self.last_with.get(gpus as usize - 1)?;
        let fitting = with.range((key, 0)..).map(|&(_, server)| server);
        let server = fitting.min_by_key(|&server| {
            let last_with = self.servers[server as usize].last_with.iter();
            let free = last_with.take_while(|last| **last >= key);
            (if is_first_fit { 0 } else { free.count() }, server)
        });
        let server = ServerId(server?);
        Some((server, self.free_at(server, key)))
    }

    /// Returns the free GPUs of a server at the given key.
    fn free_at(&self, server: ServerId, key: Key) -> u64 {
        let backfilled = self.servers[server.index()].backfilled.iter();
        let before = backfilled.take_while(|job| job.0 < key);
        before.fold(self.start.free_mask(server), |free, job| free & !job.1)
    }

    /// Runs a query on all GPUs that are free at a key; `before` must contain the backfilled jobs before this key. The
    /// cost is O(length of `before`).
    pub(super) fn at<T>(
        &mut self,
        before: impl Iterator<Item = JobId>,
        ask: impl FnOnce(&mut FreeIndex) -> T,
    ) -> T {
        let mut taken: Vec<(ServerId, u64)> = Vec::new();
        for part in before.flat_map(|job| self.held[&job].by_server()) {
            let mask = self.start.free_mask(part.server);
            taken.push((part.server, mask));
            self.start.sync(part.server, mask & !part.mask);
        }
        let answer = ask(&mut self.start);
        for (server, mask) in taken.into_iter().rev() {
            self.start.sync(server, mask);
        }
        answer
    }

    /// Returns the first backfilled job that holds some of these GPUs.
    pub(super) fn holder(&self, gpus: &GpuSet) -> Option<Key> {
        gpus.by_server().iter().find_map(|part| {
            let backfilled = &self.servers[part.server.index()].backfilled;
            let found = backfilled.iter().find(|job| job.1 & part.mask != 0);
            found.map(|job| job.0)
        })
    }
}
