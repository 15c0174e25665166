//! Affinity: the servers that each size class has claimed.
//!
//! The first group on a server claims it for the group's size class (`kind`), until no group is left on the server.
//! Each query costs O(log servers).

use crate::place::Fit;
use gangline_engine::FreeIndex;
use gangline_model::{GpuSet, GpuTypeId, ServerId};
use std::collections::BTreeSet;

/// Servers, sorted by free GPUs, then by position in the pool of their type.
type ByFree = BTreeSet<(u32, u32)>;

#[derive(Clone, Copy, Debug, Default)]
struct Host {
    /// Number of groups on the server.
    hosts: u32,
    kind: Option<usize>,
    /// The list that contains the server, and the number of free GPUs under which it is listed.
    listed: Option<(At, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// The list of servers of this type that have no group.
    Idle(GpuTypeId),
    /// The list of servers that this kind has claimed.
    Claimed(usize),
}

/// Servers, grouped by the kind that has claimed them; empty if affinity is off.
#[derive(Debug, Default)]
pub(super) struct Affinity {
    servers: Vec<Host>,
    idle: Vec<ByFree>,
    claimed: Vec<ByFree>,
}

impl Affinity {
    /// Creates the initial state, in which no server has a group.
    pub(super) fn new(free: &FreeIndex, count: usize, kinds: usize) -> Self {
        let mut affinity = Self {
            servers: vec![Host::default(); count],
            idle: vec![ByFree::new(); free.types()],
            claimed: vec![ByFree::new(); kinds],
        };
        for index in 0..count {
            affinity.refresh(free, ServerId::new(index));
        }
        affinity
    }

    fn list(&mut self, at: At) -> &mut ByFree {
        match at {
            At::Idle(gpu_type) => &mut self.idle[gpu_type.index()],
            At::Claimed(kind) => &mut self.claimed[kind],
        }
    }

    /// Updates the number of free GPUs of a server.
    pub(super) fn refresh(&mut self, free: &FreeIndex, server: ServerId) {
        let Some(&Host { kind, listed, .. }) = self.servers.get(server.index()) else {
            return;
        };
        let (gpu_type, position) = (free.type_of(server), free.position(server));
        let count = free.pool(gpu_type).free(position);
        let place = kind.map_or(At::Idle(gpu_type), At::Claimed);
        // A server that is down has no free GPUs.
        let wanted = (count > 0).then_some((place, count));
        if wanted == listed {
            return;
        }
        if let Some((list, count)) = listed {
            self.list(list).remove(&(count, position as u32));
        }
        if let Some((list, count)) = wanted {
            self.list(list).insert((count, position as u32));
        }
        self.servers[server.index()].listed = wanted;
    }

    /// Records that a group of the given kind has taken its GPUs.
    pub(super) fn claim(&mut self, free: &FreeIndex, kind: usize, gpus: &GpuSet) {
        for part in gpus.by_server() {
            if let Some(server) = self.servers.get_mut(part.server.index()) {
                server.hosts += 1;
                server.kind.get_or_insert(kind);
                self.refresh(free, part.server);
            }
        }
    }

    /// Records that a group has released its GPUs.
    pub(super) fn release(&mut self, free: &FreeIndex, gpus: &GpuSet) {
        for part in gpus.by_server() {
            if let Some(server) = self.servers.get_mut(part.server.index()) {
                server.hosts -= 1;
                if server.hosts == 0 {
                    server.kind = None;
                }
                self.refresh(free, part.server);
            }
        }
    }

    /// Finds a server that has room for a group of the given kind, and returns its position in the pool of the GPU
    /// type. Servers that the kind has claimed come first, then servers without a group.
    pub(super) fn find(
        &self,
        fit: Fit,
        kind: usize,
        gpu_type: GpuTypeId,
        gpus: u32,
    ) -> Option<usize> {
        let own = self.claimed.get(kind)?;
        let idle = self.idle.get(gpu_type.index())?;
        least(own, fit, gpus).or_else(|| least(idle, fit, gpus))
    }
}

/// Returns the server that the fit rule prefers, among those in a list with at least `gpus` free GPUs.
fn least(list: &ByFree, fit: Fit, gpus: u32) -> Option<usize> {
    let mut best = None;
    let mut from = gpus;
    while let Some(&(free, at)) = list.range((from, 0)..).next() {
        if fit == Fit::Best {
            return Some(at as usize);
        }
        best = Some(best.map_or(at, |best: u32| best.min(at)));
        from = free + 1;
    }
    best.map(|at| at as usize)
}
