//! An index of servers by group (the same GPU type and size) and by free capacity. It is meant for policies that
//! compute a complete allocation at a round boundary and consider groups of servers rather than single servers.
//!
//! Between decisions, every server that is up counts as completely free, because at a boundary every job can be
//! preempted. A decision takes and returns capacity and restores this state at the end, so nothing is rebuilt. Taking
//! or returning capacity costs O(log64 servers).

use gangline_engine::BitSet;
use gangline_model::{ClusterSpec, GpuTypeId, Server, ServerId};
use smallvec::SmallVec;

/// The GPUs of a gang: servers in ascending order, each with a number of GPUs.
pub(crate) type Counts = SmallVec<[(u32, u32); 4]>;

/// Servers with the same GPU type and size.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) gpu_type: GpuTypeId,
    /// Number of GPUs in each server.
    pub(crate) size: u32,
    /// Capacity of one server: its number of GPUs, or 1 if capacity counts copies of jobs.
    pub(crate) capacity: u32,
    /// The first server of the group in the cluster description, whether it is up or down. It represents the group.
    pub(crate) first: ServerId,
    /// Number of servers of the group in the cluster description.
    pub(crate) servers: u32,
    /// Number of servers that are up.
    pub(crate) up: u32,
    /// For each amount of free capacity, the servers that are up and have exactly this much.
    pub(crate) by_free: Vec<BitSet>,
}

/// The free capacity of all usable servers, by group, GPU type and rack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Servers {
    pub(crate) groups: Vec<Group>,
    /// Group of each server; `NONE` means that the server is not usable.
    group_of: Vec<u32>,
    free: Vec<u32>,
    is_up: Vec<bool>,
    free_of_type: Vec<u32>,
    free_total: u32,
    racks: Vec<Rack>,
    rack_of: Vec<u32>,
}

const NONE: u32 = u32::MAX;

/// A rack; racks are recorded only if gangs may prefer a single rack.
#[derive(Clone, Debug, Default)]
struct Rack {
    servers: Vec<u32>,
    free_of_type: Vec<u32>,
}

impl Servers {
    /// Creates the state of a cluster in which all servers are up and free. `capacity` returns the capacity of a
    /// server; `None` means that the server is not usable.
    pub(crate) fn new(
        cluster: &ClusterSpec,
        rack_aware: bool,
        capacity: impl Fn(&Server) -> Option<u32>,
    ) -> Self {
        let (types, servers) = (cluster.gpu_types().len(), cluster.servers().len());
        let mut all = Self {
            free_of_type: vec![0; types],
            free: vec![0; servers],
            is_up: vec![false; servers],
            ..Self::default()
        };
        if rack_aware {
            let empty = Rack {
                free_of_type: vec![0; types],
                ..Rack::default()
            };
            all.racks = vec![empty; cluster.racks() as usize];
        }
        for (index, server) in cluster.servers().iter().enumerate() {
            let Some(capacity) = capacity(server) else {
                all.group_of.push(NONE);
                continue;
            };
            let is_like =
                |group: &Group| group.gpu_type == server.gpu_type && group.size == server.gpus;
            let group = all.groups.iter().position(is_like).unwrap_or_else(|| {
                all.groups.push(Group {
                    gpu_type: server.gpu_type,
                    size: server.gpus,
                    capacity,
                    first: ServerId::new(index),
                    servers: 0,
                    up: 0,
                    by_free: vec![BitSet::new(servers); capacity as usize + 1],
                });
                all.groups.len() - 1
            });
            all.groups[group].servers += 1;
            all.group_of.push(group as u32);
            if let Some(rack) = all.racks.get_mut(server.rack.index()) {
                rack.servers.push(index as u32);
                all.rack_of.push(server.rack.0);
            }
            all.set_up(ServerId::new(index), true);
        }
        all
    }

    /// Records that a server was repaired or has failed. It must be called between decisions, when all of the server's
    /// GPUs count as free.
    pub(crate) fn set_up(&mut self, server: ServerId, is_up: bool) {
        let (index, group) = (server.index(), self.group_of[server.index()]);
        if group == NONE || std::mem::replace(&mut self.is_up[index], is_up) == is_up {
            return;
        }
        let group = &mut self.groups[group as usize];
        let capacity = group.capacity;
        if is_up {
            group.up += 1;
            group.by_free[0].insert(index);
            self.give(server.0, capacity);
        } else {
            group.up -= 1;
            self.take(server.0, capacity);
            self.groups[self.group_of[index] as usize].by_free[0].remove(index);
        }
    }

    pub(crate) fn take(&mut self, server: u32, gpus: u32) {
        self.set_free(server, self.free[server as usize] - gpus);
    }

    pub(crate) fn give(&mut self, server: u32, gpus: u32) {
        self.set_free(server, self.free[server as usize] + gpus);
    }

    pub(crate) fn take_all(&mut self, places: &Counts) {
        for &(server, gpus) in places {
            self.take(server, gpus);
        }
    }

    pub(crate) fn give_all(&mut self, places: &Counts) {
        for &(server, gpus) in places {
            self.give(server, gpus);
        }
    }

    /// Gives back the GPUs in `from` and takes those in `to`. Both lists must be sorted by server.
    pub(crate) fn shift(&mut self, from: &[(u32, u32)], to: &[(u32, u32)]) {
        let (mut from, mut to) = (from.iter().peekable(), to.iter().peekable());
        loop {
            let next = [from.peek(), to.peek()].into_iter().flatten();
            let Some(server) = next.map(|one| one.0).min() else {
                return;
            };
            let before = from.next_if(|one| one.0 == server).map_or(0, |one| one.1);
            let after = to.next_if(|one| one.0 == server).map_or(0, |one| one.1);
            if before != after {
                self.set_free(server, self.free(server) + before - after);
            }
        }
    }

    fn set_free(&mut self, server: u32, now: u32) {
        let before = std::mem::replace(&mut self.free[server as usize], now);
        let group = &mut self.groups[self.group_of[server as usize] as usize];
        group.by_free[before as usize].remove(server as usize);
        group.by_free[now as usize].insert(server as usize);
        let gpu_type = group.gpu_type.index();
        let moved = |total: u32| total - before + now;
        self.free_of_type[gpu_type] = moved(self.free_of_type[gpu_type]);
        self.free_total = moved(self.free_total);
        if let Some(&rack) = self.rack_of.get(server as usize) {
            let there = &mut self.racks[rack as usize].free_of_type[gpu_type];
            *there = moved(*there);
        }
    }

    #[inline]
    pub(crate) fn free(&self, server: u32) -> u32 {
        self.free[server as usize]
    }

    /// Returns the number of servers in the cluster description.
    pub(crate) fn count(&self) -> usize {
        self.free.len()
    }

    /// Returns the capacity that was taken from a server.
    pub(crate) fn taken(&self, server: u32) -> u32 {
        let up = self.is_up[server as usize];
        if up {
            self.groups[self.group(server)].capacity - self.free(server)
        } else {
            0
        }
    }

    #[inline]
    pub(crate) fn free_of_type(&self, gpu_type: GpuTypeId) -> u32 {
        self.free_of_type[gpu_type.index()]
    }

    #[inline]
    pub(crate) fn free_by_type(&self) -> &[u32] {
        &self.free_of_type
    }

    #[inline]
    pub(crate) fn free_total(&self) -> u32 {
        self.free_total
    }

    /// Returns, for each type, the capacity of the servers that are up.
    pub(crate) fn up_by_type(&self) -> SmallVec<[u32; 4]> {
        let mut up = SmallVec::from_elem(0, self.free_of_type.len());
        for group in &self.groups {
            up[group.gpu_type.index()] += group.up * group.capacity;
        }
        up
    }

    /// Returns the total capacity of the servers that are up.
    pub(crate) fn up_total(&self) -> u32 {
        self.groups.iter().map(|one| one.up * one.capacity).sum()
    }

    #[inline]
    pub(crate) fn type_of(&self, server: u32) -> GpuTypeId {
        self.groups[self.group(server)].gpu_type
    }

    /// Returns the group of a server that is usable.
    #[inline]
    pub(crate) fn group(&self, server: u32) -> usize {
        self.group_of[server as usize] as usize
    }

    /// Returns the group of a server, if it is usable.
    pub(crate) fn find_group(&self, server: u32) -> Option<usize> {
        let group = self.group_of[server as usize];
        (group != NONE).then_some(group as usize)
    }

    /// Returns the servers of the rack with the most free GPUs of these types; ties go to the lowest rack. The search
    /// visits every rack.
    pub(crate) fn roomiest_rack(&self, types: &[GpuTypeId]) -> &[u32] {
        let room =
            |rack: &Rack| -> u32 { types.iter().map(|id| rack.free_of_type[id.index()]).sum() };
        // On a tie, `max_by_key` returns the last element.
        let best = self.racks.iter().rev().max_by_key(|rack| room(rack));
        best.map_or(&[], |rack| &rack.servers)
    }
}
