//! The free-GPU index: queries about free GPUs in O(1) or O(log n).
//!
//! There is one pool per GPU type, with a copy of the free masks of its servers. Policies use the index as a *draft*:
//! they take GPUs from it and return GPUs to it without changing the state. Afterwards, [`super::Occupancy`] restores
//! every server that changed. Structures that only some placement rules need are built when they are first used, and
//! kept up to date from then on. `docs/concepts/placement.md` lists the queries of placement rules.

mod pool;
mod racks;
mod servers;

use gangline_model::{ClusterSpec, GpuSet, GpuTypeId, RackId, ServerGpus, ServerId, Tier};
pub use pool::TypePool;

/// Free GPUs of every server, by type.
#[derive(Clone, Debug, Default)]
pub struct FreeIndex {
    pools: Vec<TypePool>,
    places: Vec<Place>,
    /// Changes since the last draft ended, in order. Each entry contains the server and, if the draft made the change,
    /// the free mask before the change; `None` means that a plan or an event made the change.
    changes: Vec<(ServerId, Option<u64>)>,
}

/// The pool to which a server belongs, and the server's position in this pool.
#[derive(Clone, Copy, Debug)]
struct Place {
    gpu_type: GpuTypeId,
    local: u32,
}

/// A state to which the draft can return; see [`FreeIndex::mark`].
#[derive(Clone, Copy, Debug)]
pub struct Mark(usize);

impl FreeIndex {
    /// Creates the index of a cluster in which all servers are up and all GPUs are free.
    pub fn new(cluster: &ClusterSpec) -> Self {
        let mut members: Vec<Vec<ServerId>> = vec![Vec::new(); cluster.gpu_types().len()];
        let mut places = Vec::with_capacity(cluster.servers().len());
        for (index, server) in cluster.servers().iter().enumerate() {
            let pool = &mut members[server.gpu_type.index()];
            places.push(Place {
                gpu_type: server.gpu_type,
                local: pool.len() as u32,
            });
            pool.push(ServerId::new(index));
        }
        let pools = members
            .into_iter()
            .map(|servers| TypePool::new(cluster, servers))
            .collect();
        Self {
            pools,
            places,
            changes: Vec::new(),
        }
    }

    /// Creates the index of a cluster in which some servers are down and all other GPUs are free.
    pub fn with_down(cluster: &ClusterSpec, down: impl Iterator<Item = ServerId>) -> Self {
        let mut index = Self::new(cluster);
        for server in down {
            index.set_up(server, false);
        }
        index
    }

    /// Returns the pool of a GPU type.
    #[inline]
    pub fn pool(&self, gpu_type: GpuTypeId) -> &TypePool {
        &self.pools[gpu_type.index()]
    }

    /// Returns the pool of a GPU type, for queries that may build a structure first.
    #[inline]
    pub fn pool_mut(&mut self, gpu_type: GpuTypeId) -> &mut TypePool {
        &mut self.pools[gpu_type.index()]
    }

    /// Returns the number of GPU types.
    pub fn types(&self) -> usize {
        self.pools.len()
    }

    /// Returns the position of a server in the pool of its type.
    #[inline]
    pub fn position(&self, server: ServerId) -> usize {
        self.places[server.index()].local as usize
    }

    /// Returns the GPU type of a server.
    #[inline]
    pub fn type_of(&self, server: ServerId) -> GpuTypeId {
        self.places[server.index()].gpu_type
    }

    /// Returns the free mask of a server in the index; 0 if the server is down.
    #[inline]
    pub fn free_mask(&self, server: ServerId) -> u64 {
        let place = self.places[server.index()];
        self.pools[place.gpu_type.index()].mask(place.local as usize)
    }

    /// Returns whether all GPUs of a set are free.
    pub fn is_free(&self, gpus: &GpuSet) -> bool {
        gpus.by_server()
            .iter()
            .all(|part| part.mask & !self.free_mask(part.server) == 0)
    }

    /// Returns the tier of a set of GPUs of one type.
    pub fn tier(&self, gpus: &GpuSet) -> Tier {
        let mut racks = gpus
            .by_server()
            .iter()
            .map(|part| self.rack_of(part.server));
        let Some(first) = racks.next().filter(|_| gpus.by_server().len() > 1) else {
            return Tier::Server;
        };
        if racks.all(|rack| rack == first) {
            Tier::Rack
        } else {
            Tier::Network
        }
    }

    fn rack_of(&self, server: ServerId) -> RackId {
        let place = self.places[server.index()];
        let pool = self.pool(place.gpu_type);
        pool.rack_ids[pool.rack_of(place.local as usize)]
    }

    /// Sets the free mask of a server that is up; [`Self::rollback`] can undo it.
    #[inline]
    pub fn set_free_mask(&mut self, server: ServerId, mask: u64) {
        let before = self.replace(server, mask);
        self.changes.push((server, Some(before)));
    }

    #[inline]
    fn replace(&mut self, server: ServerId, mask: u64) -> u64 {
        let place = self.places[server.index()];
        self.pools[place.gpu_type.index()].set_mask(place.local as usize, mask)
    }

    /// Removes GPUs from the draft, except those that are not free or are on a server that is down.
    #[inline]
    pub fn take(&mut self, gpus: &GpuSet) {
        for &ServerGpus { server, mask } in gpus.by_server() {
            let place = self.places[server.index()];
            let before = self.pools[place.gpu_type.index()].take(place.local as usize, mask);
            self.changes.push((server, Some(before)));
        }
    }

    /// Puts GPUs back into the draft. No other job may hold these GPUs. GPUs on a server that is down are skipped.
    #[inline]
    pub fn give(&mut self, gpus: &GpuSet) {
        for &ServerGpus { server, mask } in gpus.by_server() {
            let place = self.places[server.index()];
            let pool = &mut self.pools[place.gpu_type.index()];
            if pool.is_up(place.local as usize) {
                let before = pool.give(place.local as usize, mask);
                self.changes.push((server, Some(before)));
            }
        }
    }

    /// Marks the current state of the draft, to which [`Self::rollback`] can return.
    #[inline]
    pub fn mark(&self) -> Mark {
        Mark(self.changes.len())
    }

    /// Undoes every change since `mark`.
    pub fn rollback(&mut self, mark: Mark) {
        while self.changes.len() > mark.0 {
            let (server, before) = self.changes.pop().expect("longer than the mark");
            self.sync(server, before.expect("a change of the draft"));
        }
    }

    /// Records for [`Self::end_draft`] that a server's free mask has changed.
    #[inline]
    pub(super) fn note_change(&mut self, server: ServerId) {
        // Usually, the policy's draft has already recorded a change of this server.
        if self.changes.last().is_none_or(|last| last.0 != server) {
            self.changes.push((server, None));
        }
    }

    /// Ends a draft. Every server that the draft changed, or that [`Self::note_change`] recorded since the draft began,
    /// gets the free mask that `free` returns. Later drafts start from this state.
    #[inline]
    pub(super) fn end_draft(&mut self, free: impl Fn(ServerId) -> u64) {
        let mut changes = std::mem::take(&mut self.changes);
        for &(server, _) in &changes {
            self.sync(server, free(server));
        }
        changes.clear();
        self.changes = changes;
    }

    /// Sets the free mask of a server permanently; [`Self::rollback`] does not undo it.
    #[inline]
    pub fn sync(&mut self, server: ServerId, mask: u64) {
        self.replace(server, mask);
    }

    /// Removes a server from its pool, or puts it back with all its GPUs free.
    pub fn set_up(&mut self, server: ServerId, up: bool) {
        let place = self.places[server.index()];
        self.pools[place.gpu_type.index()].set_up(place.local as usize, up);
    }
}

#[cfg(test)]
mod tests;
