//! Data about each GPU in runs where GPUs may be shared: whether several jobs share the GPU, and the memory that they
//! hold.

use crate::structures::bits::slots;
use gangline_model::{ClusterSpec, GpuTypeId, ServerId};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sharing {
    /// Slots with several residents, for each server.
    co_located: Vec<u64>,
    /// Memory that the residents of each GPU hold.
    used: Vec<u64>,
    /// Memory of one GPU of each type.
    capacity: Vec<u64>,
    /// For each type, the number of GPUs with exactly one resident, by free memory. There are only a few different
    /// amounts of free memory: one for each kind of job.
    half_full: Vec<BTreeMap<u64, u32>>,
}

/// Some GPUs on a server.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) server: ServerId,
    /// Number of the server's first GPU.
    pub(super) base: u32,
    pub(super) gpu_type: GpuTypeId,
    pub(super) mask: u64,
}

impl Sharing {
    pub(super) fn new(cluster: &ClusterSpec) -> Self {
        Self {
            co_located: vec![0; cluster.servers().len()],
            used: vec![0; cluster.gpus_total() as usize],
            capacity: cluster.gpu_types().iter().map(|t| t.memory_bytes).collect(),
            half_full: vec![BTreeMap::new(); cluster.gpu_types().len()],
        }
    }

    /// Returns the slots of a server that have several residents.
    #[inline]
    pub(super) fn co_located(&self, server: ServerId) -> u64 {
        self.co_located[server.index()]
    }

    pub(super) fn free_bytes(&self, gpu: usize, gpu_type: GpuTypeId) -> u64 {
        self.capacity[gpu_type.index()].saturating_sub(self.used[gpu])
    }

    /// Returns how many GPUs of the given type have exactly one resident and at least `bytes` of free memory.
    pub(super) fn half_full(&self, gpu_type: GpuTypeId, bytes: u64) -> u32 {
        let by_free = &self.half_full[gpu_type.index()];
        by_free.range(bytes..).map(|(_, count)| count).sum()
    }

    /// Adds a resident to some GPUs; the GPUs in `free` had no residents before.
    #[inline]
    pub(super) fn join(&mut self, place: Place, free: u64, bytes: u64) {
        self.co_located[place.server.index()] |= place.mask & !free;
        self.change(place, (place.mask & !free, free), |used| {
            used.saturating_add(bytes)
        });
    }

    /// Removes a resident from some GPUs; the GPUs in `emptied` have no residents afterwards.
    #[inline]
    pub(super) fn leave(&mut self, place: Place, emptied: u64, bytes: u64) {
        self.co_located[place.server.index()] &= !place.mask;
        self.change(place, (emptied, place.mask & !emptied), |used| used - bytes);
    }

    /// Changes the amount of memory that a resident holds on some GPUs.
    pub(super) fn resize(&mut self, place: Place, before: u64, after: u64) {
        let alone = place.mask & !self.co_located(place.server);
        self.change(place, (alone, alone), |used| used - before + after);
    }

    /// Changes the memory in use; `before` and `after` are the slots with exactly one resident before and after the
    /// change.
    #[inline]
    fn change(&mut self, place: Place, (before, after): (u64, u64), change: impl Fn(u64) -> u64) {
        let capacity = self.capacity[place.gpu_type.index()];
        let by_free = &mut self.half_full[place.gpu_type.index()];
        for slot in slots(place.mask) {
            let used = &mut self.used[(place.base + slot) as usize];
            if before >> slot & 1 == 1 {
                let free = capacity.saturating_sub(*used);
                let count = by_free.get_mut(&free).expect("it was counted");
                *count -= 1;
                if *count == 0 {
                    by_free.remove(&free);
                }
            }
            *used = change(*used);
            if after >> slot & 1 == 1 {
                let free = capacity.saturating_sub(*used);
                *by_free.entry(free).or_default() += 1;
            }
        }
    }

    /// Returns whether a GPU has enough memory for its jobs.
    pub(super) fn fits(&self, gpu: usize, gpu_type: GpuTypeId) -> bool {
        self.used[gpu] <= self.capacity[gpu_type.index()]
    }
}
