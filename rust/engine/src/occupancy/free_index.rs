//! The free-GPU index: questions about free GPUs in O(1) or O(log n).
//!
//! One pool per GPU type. It mirrors the free masks of the servers. Policies plan on it as a *draft*:
//! what they take and give back there is theirs alone, and [`super::Occupancy`] puts it right
//! afterwards for every server that changed. Structures that only some rules need are built when
//! they are first asked for and kept up to date from then on.
//! Which questions placement rules ask: `docs/concepts/placement.md`.

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
    /// Changes since the last draft ended, in order: the server, and its free mask before a change of the draft; `None`
    /// where a plan or an event changed it.
    changes: Vec<(ServerId, Option<u64>)>,
}

/// Where a server is: the pool of its type, and its position there.
#[derive(Clone, Copy, Debug)]
struct Place {
    gpu_type: GpuTypeId,
    local: u32,
}

/// A place to come back to: see [`FreeIndex::mark`].
#[derive(Clone, Copy, Debug)]
pub struct Mark(usize);

impl FreeIndex {
    /// Index of a cluster with all servers up and all GPUs free.
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

    /// Index of a cluster with some servers down and all other GPUs free.
    pub fn with_down(cluster: &ClusterSpec, down: impl Iterator<Item = ServerId>) -> Self {
        let mut index = Self::new(cluster);
        for server in down {
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

    /// Position of a server in the pool of its type.
    #[inline]
    pub fn position(&self, server: ServerId) -> usize {
        self.places[server.index()].local as usize
    }

    /// GPU type of a server.
    #[inline]
    pub fn type_of(&self, server: ServerId) -> GpuTypeId {
        self.places[server.index()].gpu_type
    }

    /// Free mask of a server as the index has it; 0 when it is down.
    #[inline]
    pub fn free_mask(&self, server: ServerId) -> u64 {
        let place = self.places[server.index()];
        self.pools[place.gpu_type.index()].mask(place.local as usize)
    }

    /// Whether every GPU of the set is free.
    pub fn is_free(&self, gpus: &GpuSet) -> bool {
        gpus.by_server()
            .iter()
            .all(|part| part.mask & !self.free_mask(part.server) == 0)
    }

    /// Tier of a set of GPUs of one type.
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

    /// Draft: takes GPUs. Those that are not free, or on a server that is down, stay as they are.
    #[inline]
    pub fn take(&mut self, gpus: &GpuSet) {
        for &ServerGpus { server, mask } in gpus.by_server() {
            let place = self.places[server.index()];
            let before = self.pools[place.gpu_type.index()].take(place.local as usize, mask);
            self.changes.push((server, Some(before)));
        }
    }

    /// Draft: gives GPUs back that no other job holds. Those on a server that is down stay as they are.
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

    /// Remembers the present state of the draft.
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

    /// Notes a server whose free mask is another now, for [`Self::end_draft`].
    #[inline]
    pub(super) fn note_change(&mut self, server: ServerId) {
        // the draft of a policy mostly took what the verb takes
        if self.changes.last().is_none_or(|last| last.0 != server) {
            self.changes.push((server, None));
        }
    }

    /// Ends a draft: every server that it changed, or that was noted since, gets the free mask that `free` tells, and
    /// that is the state to come back to.
    #[inline]
    pub(super) fn end_draft(&mut self, free: impl Fn(ServerId) -> u64) {
        let mut changes = std::mem::take(&mut self.changes);
        for &(server, _) in &changes {
            self.sync(server, free(server));
        }
        changes.clear();
        self.changes = changes;
    }

    /// Sets the free mask of a server for good: [`Self::rollback`] does not undo it.
    #[inline]
    pub fn sync(&mut self, server: ServerId, mask: u64) {
        self.replace(server, mask);
    }

    /// Takes a server out of its pool, or puts it back with all its GPUs free.
    pub fn set_up(&mut self, server: ServerId, up: bool) {
        let place = self.places[server.index()];
        self.pools[place.gpu_type.index()].set_up(place.local as usize, up);
    }
}

#[cfg(test)]
mod tests;
