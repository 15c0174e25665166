//! This is the only module that stores which jobs hold which GPUs, and which GPUs are free. The fields of [`Occupancy`]
//! are private.
//!
//! Only four methods change the assignment: [`Occupancy::take`], [`Occupancy::give`], [`Occupancy::fail`] and
//! [`Occupancy::repair`]. This module knows jobs only by their numbers, and knows nothing about rates, times or
//! policies. The occupancy contains the free-GPU index. A policy makes its plan on the index, so the occupancy lends
//! the index to the policy for each decision ([`Occupancy::lend`]). The entries that have changed are updated before
//! the index is next used ([`Occupancy::update_index`]).

mod free_index;
mod sharing;

use crate::structures::bits::slots;
use gangline_model::{ClusterSpec, GpuSet, GpuTypeId, JobId, ServerGpus, ServerId, gpus_in};
use sharing::{Place, Sharing};

pub use free_index::{FreeIndex, Mark, TypePool};

/// Placeholder in an empty entry of a [`Pair`].
pub(crate) const NO_JOB: JobId = JobId(u32::MAX);

/// The residents of a GPU; empty entries contain [`NO_JOB`] and are at the end.
pub(crate) type Pair = [JobId; 2];

/// A server. All data needed to start or stop a job on the server are in one place.
#[derive(Clone, Copy, Debug)]
struct ServerState {
    /// Mask of the free slots; 0 if the server is down.
    free: u64,
    full: u64,
    /// Number of the server's first GPU; GPUs are numbered across the whole cluster.
    gpu_base: u32,
    gpu_type: GpuTypeId,
    is_up: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Occupancy {
    servers: Vec<ServerState>,
    max_share: u32,
    /// The residents of each GPU, in the order in which they started there: at most two
    /// ([`crate::RunConfig::max_share`]).
    residents: Vec<Pair>,
    /// Data that are needed only if a run puts several jobs on one GPU.
    sharing: Option<Box<Sharing>>,
    busy_by_type: Vec<u32>,
    up_by_type: Vec<u32>,
    gpus_busy: u32,
    gpus_up: u32,
    busy_servers: u32,
    /// `None` while the index is lent.
    index: Option<Box<FreeIndex>>,
}

impl Occupancy {
    /// Creates an empty cluster with all servers up.
    pub(crate) fn new(cluster: &ClusterSpec, max_share: u32) -> Self {
        let gpus = cluster.gpus_total() as usize;
        Self {
            servers: server_states(cluster),
            max_share,
            residents: vec![[NO_JOB; 2]; gpus],
            sharing: (max_share > 1).then(|| Box::new(Sharing::new(cluster))),
            busy_by_type: vec![0; cluster.gpu_types().len()],
            up_by_type: cluster.gpus_by_type().to_vec(),
            gpus_busy: 0,
            gpus_up: cluster.gpus_total(),
            busy_servers: 0,
            index: Some(Box::new(FreeIndex::new(cluster))),
        }
    }

    /// Puts a job on GPUs. The job holds `bytes` of memory on each GPU. The plan has been checked, so the job fits on
    /// these GPUs.
    #[inline]
    pub(crate) fn take(&mut self, job: JobId, gpus: &GpuSet, bytes: u64) {
        for &ServerGpus { server: id, mask } in gpus.by_server() {
            let server = &mut self.servers[id.index()];
            let free = server.free & mask;
            let newly = gpus_in(free);
            self.busy_servers += u32::from(server.free == server.full);
            server.free &= !mask;
            self.busy_by_type[server.gpu_type.index()] += newly;
            self.gpus_busy += newly;
            let base = server.gpu_base as usize;
            if self.sharing.is_some() {
                self.join(job, self.place(id, mask), free, bytes);
            } else {
                set_residents(&mut self.residents, base, mask, job);
            }
            self.index().note_change(id);
        }
    }

    /// Removes a job from its GPUs; `bytes` is the memory that the job held on each GPU.
    #[inline]
    pub(crate) fn give(&mut self, job: JobId, gpus: &GpuSet, bytes: u64) {
        for &ServerGpus { server: id, mask } in gpus.by_server() {
            let emptied = if self.sharing.is_some() {
                self.leave(job, self.place(id, mask), bytes)
            } else {
                let base = self.servers[id.index()].gpu_base as usize;
                set_residents(&mut self.residents, base, mask, NO_JOB);
                mask
            };
            if emptied == 0 {
                continue;
            }
            let server = &mut self.servers[id.index()];
            server.free |= emptied;
            self.busy_servers -= u32::from(server.free == server.full);
            let gpus = gpus_in(emptied);
            self.busy_by_type[server.gpu_type.index()] -= gpus;
            self.gpus_busy -= gpus;
            self.index().note_change(id);
        }
    }

    /// Marks a server as down. The caller must already have removed its residents.
    pub(crate) fn fail(&mut self, id: ServerId) {
        self.update_index();
        let server = &mut self.servers[id.index()];
        server.is_up = false;
        server.free = 0;
        let gpus = gpus_in(server.full);
        self.up_by_type[server.gpu_type.index()] -= gpus;
        self.gpus_up -= gpus;
        self.index().set_up(id, false);
    }

    /// Marks a server as up again, with all its GPUs free.
    pub(crate) fn repair(&mut self, id: ServerId) {
        let server = &mut self.servers[id.index()];
        server.is_up = true;
        server.free = server.full;
        let gpus = gpus_in(server.full);
        self.up_by_type[server.gpu_type.index()] += gpus;
        self.gpus_up += gpus;
        self.index().set_up(id, true);
    }

    /// Changes the amount of memory that a running job holds on each of its GPUs.
    pub(crate) fn resize(&mut self, gpus: &GpuSet, before: u64, after: u64) {
        for &ServerGpus { server, mask } in gpus.by_server() {
            let place = self.place(server, mask);
            if let Some(sharing) = &mut self.sharing {
                sharing.resize(place, before, after);
            }
        }
    }

    #[inline]
    fn place(&self, server: ServerId, mask: u64) -> Place {
        let ServerState {
            gpu_base: base,
            gpu_type,
            ..
        } = self.servers[server.index()];
        Place {
            server,
            base,
            gpu_type,
            mask,
        }
    }

    /// Adds a resident to GPUs; the GPUs in `free` had no residents before.
    #[inline(never)]
    fn join(&mut self, job: JobId, place: Place, free: u64, bytes: u64) {
        let sharing = self
            .sharing
            .as_mut()
            .expect("only runs with shared GPUs call this");
        sharing.join(place, free, bytes);
        for slot in slots(place.mask) {
            let pair = &mut self.residents[(place.base + slot) as usize];
            let is_second = free >> slot & 1 == 0;
            pair[usize::from(is_second)] = job;
        }
    }

    /// Removes a resident from GPUs. Returns the slots that are empty now.
    #[inline(never)]
    fn leave(&mut self, job: JobId, place: Place, bytes: u64) -> u64 {
        let sharing = self
            .sharing
            .as_mut()
            .expect("only runs with shared GPUs call this");
        let emptied = place.mask & !sharing.co_located(place.server);
        sharing.leave(place, emptied, bytes);
        for slot in slots(place.mask) {
            let pair = &mut self.residents[(place.base + slot) as usize];
            if pair[0] == job {
                pair[0] = pair[1];
            }
            pair[1] = NO_JOB;
        }
        emptied
    }

    /// Lends the up-to-date index to a policy for one decision. The state must not change before the index is returned.
    #[inline]
    #[expect(clippy::unnecessary_box_returns, reason = "the box itself is lent")]
    pub(crate) fn lend(&mut self) -> Box<FreeIndex> {
        self.update_index();
        self.index.take().expect("one decision at a time")
    }

    /// Takes the index back, with the changes that the policy made to it.
    #[inline]
    pub(crate) fn take_back(&mut self, index: Box<FreeIndex>) {
        self.index = Some(index);
    }

    /// Updates the index entry of every server that has changed in the policy's draft or in the state.
    #[inline]
    pub(crate) fn update_index(&mut self) {
        let Some(index) = &mut self.index else {
            unreachable!("the index is lent only while a policy decides");
        };
        let servers = &self.servers;
        index.end_draft(|server| servers[server.index()].free);
    }

    #[inline]
    fn index(&mut self) -> &mut FreeIndex {
        self.index.as_mut().expect("no decision is being made")
    }

    #[inline]
    pub(crate) fn servers(&self) -> usize {
        self.servers.len()
    }

    /// Returns the free slots of a server; 0 if the server is down.
    #[inline]
    pub(crate) fn free_mask(&self, server: ServerId) -> u64 {
        self.servers[server.index()].free
    }

    /// Returns all slots of a server; `None` if the server does not exist.
    #[inline]
    pub(crate) fn full_mask(&self, server: ServerId) -> Option<u64> {
        Some(self.servers.get(server.index())?.full)
    }

    #[inline]
    pub(crate) fn type_of(&self, server: ServerId) -> GpuTypeId {
        self.servers[server.index()].gpu_type
    }

    /// Returns whether a server exists and is up.
    #[inline]
    pub(crate) fn is_up(&self, server: ServerId) -> bool {
        let state = self.servers.get(server.index());
        state.is_some_and(|state| state.is_up)
    }

    /// Returns the number of a GPU; GPUs are numbered across the whole cluster.
    #[inline]
    pub(crate) fn gpu(&self, server: ServerId, slot: u32) -> usize {
        (self.servers[server.index()].gpu_base + slot) as usize
    }

    /// Returns the residents of a GPU, in the order in which they started there.
    #[inline]
    pub(crate) fn residents(&self, server: ServerId, slot: u32) -> &[JobId] {
        let pair = &self.residents[self.gpu(server, slot)];
        let count = pair.iter().filter(|&&job| job != NO_JOB).count();
        &pair[..count]
    }

    /// Returns the residents of a GPU as one comparable value; the GPU is given by its number ([`Self::gpu`]).
    #[inline]
    pub(crate) fn pair(&self, gpu: usize) -> Pair {
        self.residents[gpu]
    }

    /// Returns the jobs that hold GPUs on a server, in ascending order of id.
    pub(crate) fn residents_of(&self, server: ServerId) -> Vec<JobId> {
        let full = self.servers[server.index()].full;
        let mut found: Vec<JobId> = slots(full)
            .flat_map(|slot| self.residents(server, slot).iter().copied())
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Returns the slots in `mask` that have exactly one resident. If GPUs are not shared, it returns `mask` itself.
    #[inline]
    pub(crate) fn alone_mask(&self, server: ServerId, mask: u64) -> u64 {
        match &self.sharing {
            None => mask,
            Some(_) => self.held_mask(server, mask) & !self.co_located_mask(server),
        }
    }

    /// Returns the slots of a server that have several residents.
    #[inline]
    pub(crate) fn co_located_mask(&self, server: ServerId) -> u64 {
        let sharing = self.sharing.as_ref();
        sharing.map_or(0, |sharing| sharing.co_located(server))
    }

    /// Returns the slots in `mask` that have a resident.
    #[inline]
    pub(crate) fn held_mask(&self, server: ServerId, mask: u64) -> u64 {
        let state = &self.servers[server.index()];
        if state.is_up { mask & !state.free } else { 0 }
    }

    /// Returns how many GPUs of the given type either are free, or have one resident and at least `bytes` of free
    /// memory. The cost is O(distinct amounts of free memory).
    pub(crate) fn open_gpus(&self, gpu_type: GpuTypeId, bytes: u64) -> u32 {
        let free = self.up(gpu_type) - self.busy(gpu_type);
        let shared = self.sharing.as_ref();
        free + shared.map_or(0, |sharing| sharing.half_full(gpu_type, bytes))
    }

    /// Returns the free memory of a GPU in bytes, or `None` if GPUs are not shared.
    pub(crate) fn free_bytes(&self, server: ServerId, slot: u32) -> Option<u64> {
        let sharing = self.sharing.as_ref()?;
        Some(sharing.free_bytes(self.gpu(server, slot), self.type_of(server)))
    }

    /// Returns the number of GPUs of the given type that have a resident.
    #[inline]
    pub(crate) fn busy(&self, gpu_type: GpuTypeId) -> u32 {
        self.busy_by_type[gpu_type.index()]
    }

    /// Returns the number of GPUs of the given type on servers that are up.
    #[inline]
    pub(crate) fn up(&self, gpu_type: GpuTypeId) -> u32 {
        self.up_by_type[gpu_type.index()]
    }

    /// Returns, for each type, the number of GPUs that have a resident.
    #[inline]
    pub(crate) fn busy_by_type(&self) -> &[u32] {
        &self.busy_by_type
    }

    /// Returns the number of GPUs that have a resident.
    #[inline]
    pub(crate) fn gpus_busy(&self) -> u32 {
        self.gpus_busy
    }

    /// Returns the number of GPUs on servers that are up.
    #[inline]
    pub(crate) fn gpus_up(&self) -> u32 {
        self.gpus_up
    }

    /// Returns the number of servers with at least one resident.
    #[inline]
    pub(crate) fn busy_servers(&self) -> u32 {
        self.busy_servers
    }

    /// Compares all counts with a recount. `held` lists the GPUs of each job, and the bytes of memory that the job
    /// holds on each GPU.
    ///
    /// # Panics
    /// Panics if a count is wrong; the message names the count.
    pub(crate) fn assert_holds<'a>(
        &mut self,
        cluster: &ClusterSpec,
        held: impl Iterator<Item = (JobId, &'a GpuSet, u64)>,
    ) {
        self.update_index();
        let mut fresh = Self::new(cluster, self.max_share);
        for id in (0..self.servers.len()).map(ServerId::new) {
            if !self.is_up(id) {
                fresh.fail(id);
            }
        }
        let mut expected: Vec<Vec<JobId>> = vec![Vec::new(); cluster.gpus_total() as usize];
        for (job, gpus, bytes) in held {
            for &ServerGpus { server, mask } in gpus.by_server() {
                assert!(self.is_up(server), "a job runs on a server that is down");
                for slot in slots(mask) {
                    let there = &mut expected[self.gpu(server, slot)];
                    there.push(job);
                    assert!(
                        there.len() <= self.max_share as usize,
                        "capacity of server {server} slot {slot}"
                    );
                }
            }
            fresh.take(job, gpus, bytes);
        }
        fresh.update_index();
        for (at, spec) in cluster.servers().iter().enumerate() {
            let server = ServerId::new(at);
            for slot in 0..spec.gpus {
                let mut found = self.residents(server, slot).to_vec();
                found.sort_unstable();
                let expected = &mut expected[self.gpu(server, slot)];
                expected.sort_unstable();
                assert_eq!(&found, expected, "residents of server {server} slot {slot}");
                let gpu = self.gpu(server, slot);
                let fits = self
                    .sharing
                    .as_ref()
                    .is_none_or(|s| s.fits(gpu, spec.gpu_type));
                assert!(fits, "memory of server {server} slot {slot}");
            }
            let (own, other) = (self.servers[at].free, fresh.servers[at].free);
            assert_eq!(own, other, "free mask of server {server}");
            let indexed = self.index().free_mask(server);
            assert_eq!(indexed, own, "index of server {server}");
        }
        let counts = |one: &Self| {
            let types = (one.busy_by_type.clone(), one.up_by_type.clone());
            (types, one.gpus_busy, one.gpus_up, one.busy_servers)
        };
        assert_eq!(counts(self), counts(&fresh), "counts of GPUs and servers");
        assert_eq!(self.sharing, fresh.sharing, "memory and shared GPUs");
        for id in 0..self.index().types() {
            self.index()
                .pool_mut(GpuTypeId::new(id))
                .assert_consistent();
        }
    }
}

/// Makes a job the only resident of some GPUs on a server.
#[inline]
fn set_residents(residents: &mut [Pair], base: usize, mask: u64, resident: JobId) {
    let mut rest = mask;
    while rest != 0 {
        residents[base + rest.trailing_zeros() as usize][0] = resident;
        rest &= rest - 1;
    }
}

/// Returns all servers of a cluster, up and with all their GPUs free.
fn server_states(cluster: &ClusterSpec) -> Vec<ServerState> {
    let mut next = 0;
    let states = cluster.servers().iter().map(|server| {
        let gpu_base = next;
        next += server.gpus;
        let full = u64::MAX >> (64 - server.gpus);
        ServerState {
            free: full,
            full,
            gpu_base,
            gpu_type: server.gpu_type,
            is_up: true,
        }
    });
    states.collect()
}
