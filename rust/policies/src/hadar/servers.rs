//! Servers by (GPU type, size, free GPUs): what `FIND_ALLOC` looks at instead of servers one by one.
//!
//! Between decisions every server that is up counts as wholly free, for at a boundary everything is preemptible. A
//! decision takes and gives GPUs and goes back to that state at its end, so nothing is ever rebuilt. Taking or giving
//! GPUs of one server costs O(log64 servers).

use gangline_engine::BitSet;
use gangline_model::{ClusterSpec, GpuTypeId, ServerId};
use smallvec::SmallVec;

/// GPUs of a gang: servers, ascending, each with a number of GPUs.
pub(crate) type Places = SmallVec<[(u32, u32); 4]>;

/// Servers alike in GPU type and size.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) gpu_type: GpuTypeId,
    pub(super) capacity: u32,
    /// Servers that are up, by free GPUs.
    pub(super) by_free: Vec<BitSet>,
}

/// The working state of a decision.
#[derive(Clone, Debug, Default)]
pub(super) struct Servers {
    pub(super) groups: Vec<Group>,
    group_of: Vec<u32>,
    free: Vec<u32>,
    is_up: Vec<bool>,
    free_of_type: Vec<u32>,
    up_of_type: Vec<u32>,
    free_total: u32,
    racks: Vec<Rack>,
    rack_of: Vec<u32>,
}

/// A rack; kept only where gangs may prefer one.
#[derive(Clone, Debug, Default)]
struct Rack {
    servers: Vec<u32>,
    free_of_type: Vec<u32>,
}

impl Servers {
    /// All servers of a cluster, up and free.
    pub(super) fn new(cluster: &ClusterSpec, rack_aware: bool) -> Self {
        let (types, servers) = (cluster.gpu_types().len(), cluster.servers().len());
        let mut all = Self {
            free_of_type: vec![0; types],
            up_of_type: vec![0; types],
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
            let is_like =
                |group: &Group| group.gpu_type == server.gpu_type && group.capacity == server.gpus;
            let group = all.groups.iter().position(is_like).unwrap_or_else(|| {
                all.groups.push(Group {
                    gpu_type: server.gpu_type,
                    capacity: server.gpus,
                    by_free: vec![BitSet::new(servers); server.gpus as usize + 1],
                });
                all.groups.len() - 1
            });
            all.group_of.push(group as u32);
            if let Some(rack) = all.racks.get_mut(server.rack.index()) {
                rack.servers.push(index as u32);
                all.rack_of.push(server.rack.0);
            }
            all.repair(ServerId::new(index));
        }
        all
    }

    /// A server came back.
    pub(super) fn repair(&mut self, server: ServerId) {
        if !std::mem::replace(&mut self.is_up[server.index()], true) {
            let group = &self.groups[self.group_of[server.index()] as usize];
            let (gpu_type, capacity) = (group.gpu_type.index(), group.capacity);
            self.up_of_type[gpu_type] += capacity;
            self.groups[self.group_of[server.index()] as usize].by_free[0].insert(server.index());
            self.give(server.0, capacity);
        }
    }

    /// A server failed. All its GPUs are free: no decision is under way.
    pub(super) fn fail(&mut self, server: ServerId) {
        if std::mem::replace(&mut self.is_up[server.index()], false) {
            let group = &self.groups[self.group_of[server.index()] as usize];
            let (gpu_type, capacity) = (group.gpu_type.index(), group.capacity);
            self.up_of_type[gpu_type] -= capacity;
            self.take(server.0, capacity);
            self.groups[self.group_of[server.index()] as usize].by_free[0].remove(server.index());
        }
    }

    /// Takes GPUs of a server.
    pub(super) fn take(&mut self, server: u32, gpus: u32) {
        self.set_free(server, self.free[server as usize] - gpus);
    }

    /// Gives GPUs of a server back.
    pub(super) fn give(&mut self, server: u32, gpus: u32) {
        self.set_free(server, self.free[server as usize] + gpus);
    }

    /// Takes the GPUs of a gang.
    pub(super) fn take_all(&mut self, places: &Places) {
        for &(server, gpus) in places {
            self.take(server, gpus);
        }
    }

    /// Gives the GPUs of a gang back.
    pub(super) fn give_all(&mut self, places: &Places) {
        for &(server, gpus) in places {
            self.give(server, gpus);
        }
    }

    /// Goes from one set of GPUs given out to another; both are sorted by server.
    pub(super) fn shift(&mut self, from: &[(u32, u32)], to: &[(u32, u32)]) {
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

    /// Free GPUs of a server.
    #[inline]
    pub(super) fn free(&self, server: u32) -> u32 {
        self.free[server as usize]
    }

    /// Free GPUs of a type.
    #[inline]
    pub(super) fn free_of_type(&self, gpu_type: GpuTypeId) -> u32 {
        self.free_of_type[gpu_type.index()]
    }

    /// Free GPUs by type.
    #[inline]
    pub(super) fn free_by_type(&self) -> &[u32] {
        &self.free_of_type
    }

    /// All free GPUs.
    #[inline]
    pub(super) fn free_total(&self) -> u32 {
        self.free_total
    }

    /// GPUs of a type on servers that are up.
    #[inline]
    pub(super) fn up_of_type(&self) -> &[u32] {
        &self.up_of_type
    }

    /// GPUs on servers that are up.
    pub(super) fn up_total(&self) -> u32 {
        self.up_of_type.iter().sum()
    }

    /// Type of a server.
    #[inline]
    pub(super) fn type_of(&self, server: u32) -> GpuTypeId {
        self.groups[self.group(server)].gpu_type
    }

    /// Its group.
    #[inline]
    pub(super) fn group(&self, server: u32) -> usize {
        self.group_of[server as usize] as usize
    }

    /// Servers of the rack with the most free GPUs of these types, the lowest of equal ones. Looks at every rack.
    pub(super) fn roomiest_rack(&self, types: &[GpuTypeId]) -> &[u32] {
        let room =
            |rack: &Rack| -> u32 { types.iter().map(|id| rack.free_of_type[id.index()]).sum() };
        // of equal ones `max_by_key` takes the last
        let best = self.racks.iter().rev().max_by_key(|rack| room(rack));
        best.map_or(&[], |rack| &rack.servers)
    }
}
