//! What a run keeps of each GPU where several jobs may be on it: how many, and the memory they hold.

use gangline_model::{ClusterSpec, GpuTypeId};
use std::collections::BTreeMap;

use super::slots;

/// Residents and memory of every GPU, and the GPUs with one resident by free memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sharing {
    /// Residents of each GPU.
    counts: Vec<u8>,
    /// Memory that they hold.
    used: Vec<u64>,
    /// Memory of a GPU, by type.
    capacity: Vec<u64>,
    /// By type: free memory -> GPUs with exactly one resident that have it. Few values: one per kind of job.
    half_full: Vec<BTreeMap<u64, u32>>,
}

impl Sharing {
    pub(super) fn new(cluster: &ClusterSpec) -> Self {
        let gpus = cluster.gpus_total() as usize;
        Self {
            counts: vec![0; gpus],
            used: vec![0; gpus],
            capacity: cluster.gpu_types().iter().map(|t| t.memory_bytes).collect(),
            half_full: vec![BTreeMap::new(); cluster.gpu_types().len()],
        }
    }

    #[inline]
    pub(super) fn count(&self, gpu: usize) -> usize {
        usize::from(self.counts[gpu])
    }

    pub(super) fn free_bytes(&self, gpu: usize, gpu_type: GpuTypeId) -> u64 {
        self.capacity[gpu_type.index()].saturating_sub(self.used[gpu])
    }

    /// GPUs of a type with exactly one resident and at least `bytes` of free memory.
    pub(super) fn half_full(&self, gpu_type: GpuTypeId, bytes: u64) -> u32 {
        let by_free = &self.half_full[gpu_type.index()];
        by_free.range(bytes..).map(|(_, count)| count).sum()
    }

    /// A resident more; how many there were.
    pub(super) fn join(&mut self, gpu: usize, gpu_type: GpuTypeId, bytes: u64) -> usize {
        let count = self.count(gpu);
        self.change(gpu, gpu_type, |one, at| {
            one.counts[at] += 1;
            one.used[at] = one.used[at].saturating_add(bytes);
        });
        count
    }

    /// A resident less; how many are left.
    pub(super) fn leave(&mut self, gpu: usize, gpu_type: GpuTypeId, bytes: u64) -> usize {
        self.change(gpu, gpu_type, |one, at| {
            one.counts[at] -= 1;
            one.used[at] -= bytes;
        });
        self.count(gpu)
    }

    /// A resident of some GPUs of a server holds another amount of memory.
    pub(super) fn resize(
        &mut self,
        base: u32,
        gpu_type: GpuTypeId,
        mask: u64,
        before: u64,
        after: u64,
    ) {
        for slot in slots(mask) {
            self.change((base + slot) as usize, gpu_type, |one, at| {
                one.used[at] = one.used[at] - before + after;
            });
        }
    }

    /// Changes a GPU and keeps the map of half full ones in step.
    fn change(&mut self, gpu: usize, gpu_type: GpuTypeId, change: impl FnOnce(&mut Self, usize)) {
        if self.counts[gpu] == 1 {
            let free = self.free_bytes(gpu, gpu_type);
            let by_free = &mut self.half_full[gpu_type.index()];
            let count = by_free.get_mut(&free).expect("it was counted");
            *count -= 1;
            if *count == 0 {
                by_free.remove(&free);
            }
        }
        change(self, gpu);
        if self.counts[gpu] == 1 {
            let free = self.free_bytes(gpu, gpu_type);
            *self.half_full[gpu_type.index()].entry(free).or_default() += 1;
        }
    }

    /// Whether the jobs on a GPU hold no more memory than it has.
    pub(super) fn fits(&self, gpu: usize, gpu_type: GpuTypeId) -> bool {
        self.used[gpu] <= self.capacity[gpu_type.index()]
    }
}
