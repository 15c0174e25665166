//! The free-GPU index (spec placement section 5): questions about free GPUs in O(1) or O(log n).
//!
//! One pool per GPU type. It mirrors the free masks of the state; policies plan on it as a scratch
//! and the engine puts it right for every server that a plan touched. Structures that only some
//! rules need are built when they are first asked for and kept up to date from then on.

mod pool;
mod racks;
mod servers;

use gangline_model::{ClusterSpec, GpuSet, GpuTypeId, RackId, ServerId, Tier};
pub use pool::TypePool;

/// Free GPUs of every server, by type.
#[derive(Debug)]
pub struct FreeIndex {
    pools: Vec<TypePool>,
    /// Server -> position in its pool.
    local: Vec<u32>,
    server_type: Vec<GpuTypeId>,
    /// What a scratch change overwrote: server, its free mask before.
    undo: Vec<(ServerId, u64)>,
}

/// A place to come back to: see [`FreeIndex::mark`].
#[derive(Clone, Copy, Debug)]
pub struct Mark(usize);

impl FreeIndex {
    /// Index of a cluster with all servers up and all GPUs free.
    pub fn new(cluster: &ClusterSpec) -> Self {
        let mut members: Vec<Vec<ServerId>> = vec![Vec::new(); cluster.gpu_types().len()];
        let mut local = Vec::with_capacity(cluster.servers().len());
        let mut server_type = Vec::with_capacity(cluster.servers().len());
        for (index, server) in cluster.servers().iter().enumerate() {
            let pool = &mut members[server.gpu_type.index()];
            local.push(pool.len() as u32);
            server_type.push(server.gpu_type);
            pool.push(ServerId::new(index));
        }
        let pools = members
            .into_iter()
            .map(|servers| TypePool::new(cluster, servers))
            .collect();
        Self {
            pools,
            local,
            server_type,
            undo: Vec::new(),
        }
    }

    /// Index of a cluster with some servers down and all other GPUs free.
    pub fn with_down(cluster: &ClusterSpec, down: &[ServerId]) -> Self {
        let mut index = Self::new(cluster);
        for &server in down {
            index.set_up(server, false);
        }
        index
    }

    /// The pool of a GPU type.
    #[inline]
    pub fn pool(&self, gpu_type: GpuTypeId) -> &TypePool {
        &self.pools[gpu_type.index()]
    }

    /// The pool of a GPU type, for questions that may have to build a structure first.
    #[inline]
    pub fn pool_mut(&mut self, gpu_type: GpuTypeId) -> &mut TypePool {
        &mut self.pools[gpu_type.index()]
    }

    /// Number of GPU types.
    pub fn types(&self) -> usize {
        self.pools.len()
    }

    /// GPU type of a server.
    #[inline]
    pub fn type_of(&self, server: ServerId) -> GpuTypeId {
        self.server_type[server.index()]
    }

    /// Free mask of a server as the index has it; 0 when it is down.
    #[inline]
    pub fn free_mask(&self, server: ServerId) -> u64 {
        self.pools[self.server_type[server.index()].index()].masks
            [self.local[server.index()] as usize]
    }

    /// Whether every GPU of the set is free.
    pub fn is_free(&self, gpus: &GpuSet) -> bool {
        gpus.parts()
            .iter()
            .all(|part| part.mask & !self.free_mask(part.server) == 0)
    }

    /// Tier of a set of GPUs of one type.
    pub fn tier(&self, gpus: &GpuSet) -> Tier {
        let mut racks = gpus.parts().iter().map(|part| self.rack_of(part.server));
        let Some(first) = racks.next().filter(|_| gpus.parts().len() > 1) else {
            return Tier::Server;
        };
        if racks.all(|rack| rack == first) {
            Tier::Rack
        } else {
            Tier::Network
        }
    }

    fn rack_of(&self, server: ServerId) -> RackId {
        let pool = self.pool(self.type_of(server));
        pool.rack_ids[pool.racks_of[self.local[server.index()] as usize] as usize]
    }

    /// Sets the free mask of an up server; remembered, so that [`Self::rollback`] undoes it.
    #[inline]
    pub fn set_free_mask(&mut self, server: ServerId, mask: u64) {
        let pool = &mut self.pools[self.server_type[server.index()].index()];
        let before = pool.set_mask(self.local[server.index()] as usize, mask);
        self.undo.push((server, before));
    }

    /// Remembers the present state of the scratch.
    #[inline]
    pub fn mark(&self) -> Mark {
        Mark(self.undo.len())
    }

    /// Undoes every change since `mark`.
    pub fn rollback(&mut self, mark: Mark) {
        while self.undo.len() > mark.0 {
            let (server, before) = self.undo.pop().expect("longer than the mark");
            self.sync(server, before);
        }
    }

    /// Servers changed since the last [`Self::forget_changes`], with repeats.
    pub(crate) fn changed(&self) -> &[(ServerId, u64)] {
        &self.undo
    }

    /// Makes the present state the one that later rollbacks come back to.
    #[inline]
    pub(crate) fn forget_changes(&mut self) {
        self.undo.clear();
    }

    /// Puts one server right without remembering.
    #[inline]
    pub(crate) fn sync(&mut self, server: ServerId, mask: u64) {
        let pool = &mut self.pools[self.server_type[server.index()].index()];
        pool.set_mask(self.local[server.index()] as usize, mask);
    }

    /// Takes a server out of its pool, or puts it back with all its GPUs free.
    pub(crate) fn set_up(&mut self, server: ServerId, up: bool) {
        let pool = &mut self.pools[self.server_type[server.index()].index()];
        pool.set_up(self.local[server.index()] as usize, up);
    }
}

#[cfg(test)]
mod tests;
