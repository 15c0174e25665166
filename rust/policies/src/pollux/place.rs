//! Which GPUs a job gets: one server where it fits, else whole idle servers and a rest. O(servers) per job.

use gangline_engine::ClusterView;
use gangline_model::{GpuSet, JobId, ServerId, mask_of_lowest};
use std::cmp::Reverse;

/// The servers as the decision leaves them so far.
#[derive(Debug)]
pub(super) struct Floor {
    free: Vec<u64>,
    full: Vec<u64>,
    /// Jobs over several servers that each server takes part in.
    spanning: Vec<u32>,
    avoids: bool,
}

impl Floor {
    /// As they are now, with the jobs that run.
    pub(super) fn new(view: &ClusterView<'_>, avoids: bool) -> Self {
        let servers = view.cluster().servers();
        let ids = || (0..servers.len()).map(ServerId::new);
        let mut floor = Self {
            free: ids().map(|id| view.free_mask(id)).collect(),
            full: servers
                .iter()
                .map(|one| mask_of_lowest(u64::MAX, one.gpus))
                .collect(),
            spanning: vec![0; servers.len()],
            avoids,
        };
        for job in view.running() {
            if let Some(run) = view.run(job) {
                floor.count(run.gpus(), 1);
            }
        }
        floor
    }

    fn count(&mut self, gpus: &GpuSet, by: i32) {
        let servers = gpus.by_server();
        if servers.len() > 1 {
            for one in servers {
                let count = &mut self.spanning[one.server.index()];
                *count = count.saturating_add_signed(by);
            }
        }
    }

    pub(super) fn release(&mut self, gpus: &GpuSet) {
        self.count(gpus, -1);
        for one in gpus.by_server() {
            self.free[one.server.index()] |= one.mask;
        }
    }

    pub(super) fn take(&mut self, gpus: &GpuSet) {
        self.count(gpus, 1);
        for one in gpus.by_server() {
            self.free[one.server.index()] &= !one.mask;
        }
    }

    /// Whether all of a set is free, and no rule is against it.
    pub(super) fn is_free(&self, gpus: &GpuSet) -> bool {
        let servers = gpus.by_server();
        let fits = |server: usize| servers.len() == 1 || !self.avoids || self.spanning[server] == 0;
        servers.iter().all(|one| {
            let at = one.server.index();
            self.free[at] & one.mask == one.mask && fits(at)
        })
    }

    fn is_usable(view: &ClusterView<'_>, job: JobId, server: usize) -> bool {
        let gpu_type = view.cluster().server(ServerId::new(server)).gpu_type;
        view.usable_types(job) >> gpu_type.index() & 1 == 1
    }

    /// The server with the fewest free GPUs that has so many, of equal ones the first.
    fn best_fit(&self, gpus: u32, is_open: impl Fn(usize) -> bool) -> Option<usize> {
        let free = |at: usize| self.free[at].count_ones();
        let all = 0..self.free.len();
        all.filter(|&at| free(at) >= gpus && is_open(at))
            .min_by_key(|&at| free(at))
    }

    /// GPUs for a job; `None` if there is no place.
    pub(super) fn find(&self, view: &ClusterView<'_>, job: JobId, gpus: u32) -> Option<GpuSet> {
        let is_usable = |at: usize| Self::is_usable(view, job, at);
        let lowest = |at: usize, count| (ServerId::new(at), mask_of_lowest(self.free[at], count));
        if let Some(at) = self.best_fit(gpus, is_usable) {
            return Some(std::iter::once(lowest(at, gpus)).collect());
        }
        let is_idle = |at: &usize| self.free[*at] == self.full[*at] && self.full[*at] != 0;
        let size = |at: usize| self.full[at].count_ones();
        let all = 0..self.free.len();
        let mut idle: Vec<usize> = all.filter(is_idle).filter(|&at| is_usable(at)).collect();
        idle.sort_by_key(|&at| (Reverse(size(at)), at));
        let (mut rest, mut taken) = (gpus, Vec::new());
        for at in idle {
            if size(at) <= rest {
                rest -= size(at);
                taken.push(at);
            }
        }
        let mut places: Vec<_> = taken.iter().map(|&at| lowest(at, size(at))).collect();
        if rest > 0 {
            let is_open = |at: usize| {
                is_usable(at) && !taken.contains(&at) && (!self.avoids || self.spanning[at] == 0)
            };
            places.push(lowest(self.best_fit(rest, is_open)?, rest));
        }
        Some(places.into_iter().collect())
    }
}
