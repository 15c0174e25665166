//! Affinity: which servers a size class has claimed.
//!
//! A server is claimed by the kind of the first group that is made on it, until it hosts none. Each question
//! costs O(log servers).

use crate::place::Fit;
use gangline_engine::FreeIndex;
use gangline_model::{GpuSet, GpuTypeId, ServerId};
use std::collections::BTreeSet;

/// Servers by free GPUs, then position in the pool of their type.
type Shelf = BTreeSet<(u32, u32)>;

/// What is kept of a server.
#[derive(Clone, Copy, Debug, Default)]
struct Home {
    /// Groups on it.
    hosts: u32,
    claim: Option<usize>,
    /// The shelf it is on, and with how many free GPUs.
    listed: Option<(At, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Of a type, without a group.
    Idle(GpuTypeId),
    /// Claimed by a kind.
    Claimed(usize),
}

/// Servers by who has claimed them; empty where affinity is not asked for.
#[derive(Debug, Default)]
pub(super) struct Homes {
    servers: Vec<Home>,
    idle: Vec<Shelf>,
    claimed: Vec<Shelf>,
}

impl Homes {
    /// All servers of the index, none with a group.
    pub(super) fn new(free: &FreeIndex, count: usize, kinds: usize) -> Self {
        let mut homes = Self {
            servers: vec![Home::default(); count],
            idle: vec![Shelf::new(); free.types()],
            claimed: vec![Shelf::new(); kinds],
        };
        for index in 0..count {
            homes.refresh(free, ServerId::new(index));
        }
        homes
    }

    fn shelf(&mut self, at: At) -> &mut Shelf {
        match at {
            At::Idle(gpu_type) => &mut self.idle[gpu_type.index()],
            At::Claimed(kind) => &mut self.claimed[kind],
        }
    }

    /// Notes how many GPUs of a server are free now.
    pub(super) fn refresh(&mut self, free: &FreeIndex, server: ServerId) {
        let Some(&Home { claim, listed, .. }) = self.servers.get(server.index()) else {
            return;
        };
        let (gpu_type, position) = (free.type_of(server), free.position(server));
        let count = free.pool(gpu_type).free(position);
        let place = claim.map_or(At::Idle(gpu_type), At::Claimed);
        // a server that is down has no free GPU
        let wanted = (count > 0).then_some((place, count));
        if wanted == listed {
            return;
        }
        if let Some((shelf, count)) = listed {
            self.shelf(shelf).remove(&(count, position as u32));
        }
        if let Some((shelf, count)) = wanted {
            self.shelf(shelf).insert((count, position as u32));
        }
        self.servers[server.index()].listed = wanted;
    }

    /// A group of a kind has taken its GPUs.
    pub(super) fn host(&mut self, free: &FreeIndex, kind: usize, gpus: &GpuSet) {
        for part in gpus.by_server() {
            if let Some(home) = self.servers.get_mut(part.server.index()) {
                home.hosts += 1;
                home.claim.get_or_insert(kind);
                self.refresh(free, part.server);
            }
        }
    }

    /// A group has given its GPUs back.
    pub(super) fn leave(&mut self, free: &FreeIndex, gpus: &GpuSet) {
        for part in gpus.by_server() {
            if let Some(home) = self.servers.get_mut(part.server.index()) {
                home.hosts -= 1;
                if home.hosts == 0 {
                    home.claim = None;
                }
                self.refresh(free, part.server);
            }
        }
    }

    /// Position of the server for a group of a kind, of those it has claimed or else of those without a group.
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

/// The server of a shelf with at least `gpus` free that the fit prefers.
fn least(shelf: &Shelf, fit: Fit, gpus: u32) -> Option<usize> {
    let mut best = None;
    let mut from = gpus;
    while let Some(&(free, at)) = shelf.range((from, 0)..).next() {
        if fit == Fit::Best {
            return Some(at as usize);
        }
        best = Some(best.map_or(at, |best: u32| best.min(at)));
        from = free + 1;
    }
    best.map(|at| at as usize)
}
