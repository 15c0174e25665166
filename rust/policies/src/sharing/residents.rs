//! The running jobs, sorted by remaining time, and the GPUs with one resident.
//!
//! The records are updated from decision to decision. Starts are recorded when they are planned, ends when they are
//! reported, and new rates when they are known for certain. Residents of the same kind progress at the same speed, so
//! their order by finish changes only if their rates change. Each change costs O(GPUs of the gang x log n).

use gangline_engine::ClusterView;
use gangline_model::{GpuSet, GpuTypeId, JobId, ServerGpus, ServerId, SimTime, gpus_in};
use std::collections::{BTreeMap, BTreeSet};

/// The facts about a resident that may change: its memory, and its finish at the current rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stay {
    /// Instant at which the job will finish at its current rate.
    pub(super) finish: SimTime,
    /// Slowdown factor with which the finish was computed.
    pub(super) xi: f64,
    /// Memory per GPU.
    pub(super) bytes: u64,
}

#[derive(Clone, Debug)]
struct Resident {
    gpus: GpuSet,
    gpu_type: GpuTypeId,
    /// Sharing class; see [`ClusterView::pair_class`].
    class: u32,
    stay: Stay,
    /// Number of GPUs on which the job is alone.
    alone: u32,
}

/// A kind of residents, which have the same GPU type, sharing class, memory and slowdown factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    gpu_type: GpuTypeId,
    class: u32,
    pub(super) bytes: u64,
    xi_bits: u64,
}

impl Kind {
    /// Returns the current slowdown factor, or 1 if the factor is not needed.
    pub(super) fn xi(&self) -> f64 {
        f64::from_bits(self.xi_bits)
    }

    /// Creates the kind that comes before all other kinds of the given GPU type.
    fn first_of(gpu_type: GpuTypeId) -> Self {
        Self {
            gpu_type,
            class: 0,
            bytes: 0,
            xi_bits: 0,
        }
    }
}

/// Residents of a kind that are alone on at least one GPU, sorted by finish, then by job.
pub(super) type Members = BTreeSet<(SimTime, JobId)>;

#[derive(Clone, Copy, Debug)]
struct Spot {
    /// Slots with exactly one resident.
    one: u64,
    /// Index of the first GPU of the server.
    gpu_base: u32,
    gpu_type: GpuTypeId,
    /// Number of different jobs on the server.
    jobs: u32,
}

/// The GPUs of one type that have exactly one resident.
#[derive(Clone, Debug, Default)]
struct Open {
    total: u32,
    /// Number of these GPUs for each amount of memory that a resident holds.
    by_bytes: BTreeMap<u64, u32>,
}

/// All running jobs.
#[derive(Clone, Debug, Default)]
pub(super) struct Residents {
    /// Whether the rule needs the current slowdown of residents.
    by_slowdown: bool,
    spots: Vec<Spot>,
    /// The resident of each GPU that has exactly one resident.
    sole: Vec<JobId>,
    /// The record of each running job. The entries are boxed, because only a few of all jobs run at a time.
    running: Vec<Option<Box<Resident>>>,
    kinds: BTreeMap<Kind, Members>,
    open: Vec<Open>,
    /// Servers of each type, sorted by the number of different jobs on them. The lists are `None` if no rule needs this
    /// order.
    by_jobs: Option<Vec<BTreeSet<(u32, ServerId)>>>,
}

impl Residents {
    /// Creates the records for a cluster without running jobs.
    pub(super) fn new(view: &ClusterView<'_>, by_slowdown: bool, orders_servers: bool) -> Self {
        let cluster = view.cluster();
        let mut gpu_base = 0;
        let spots: Vec<Spot> = cluster
            .servers()
            .iter()
            .map(|server| {
                let spot = Spot {
                    one: 0,
                    gpu_base,
                    gpu_type: server.gpu_type,
                    jobs: 0,
                };
                gpu_base += server.gpus;
                spot
            })
            .collect();
        let types = cluster.gpu_types().len();
        let by_jobs = orders_servers.then(|| {
            let mut sets = vec![BTreeSet::new(); types];
            for (index, spot) in spots.iter().enumerate() {
                sets[spot.gpu_type.index()].insert((0, ServerId::new(index)));
            }
            sets
        });
        Self {
            by_slowdown,
            spots,
            sole: vec![JobId(u32::MAX); gpu_base as usize],
            running: vec![None; view.jobs().len()],
            open: vec![Open::default(); types],
            by_jobs,
            ..Self::default()
        }
    }

    // These methods change the residents.

    /// Records the start of a job on GPUs that are free or have one resident.
    pub(super) fn start(&mut self, job: JobId, gpus: &GpuSet, (class, stay): (u32, Stay)) {
        let mut alone = 0;
        for &ServerGpus { server, mask } in gpus.by_server() {
            let spot = self.spots[server.index()];
            for slot in slots(mask & spot.one) {
                let other = self.sole[(spot.gpu_base + slot) as usize];
                self.change_alone(other, -1);
            }
            let fresh = mask & !spot.one;
            for slot in slots(fresh) {
                self.sole[(spot.gpu_base + slot) as usize] = job;
            }
            alone += gpus_in(fresh) as i32;
            self.spots[server.index()].one ^= mask;
            self.count_job(server, 1);
        }
        let first = gpus.by_server().first().expect("a gang has GPUs");
        let resident = Resident {
            gpus: gpus.clone(),
            gpu_type: self.spots[first.server.index()].gpu_type,
            class,
            stay,
            alone: 0,
        };
        self.running[job.index()] = Some(Box::new(resident));
        self.change_alone(job, alone);
    }

    /// Records that a job has left its GPUs; its co-runners are added to `left`, once for each GPU.
    pub(super) fn end(&mut self, view: &ClusterView<'_>, job: JobId, left: &mut Vec<JobId>) {
        let alone = self.resident(job).map_or(0, |one| one.alone as i32);
        self.change_alone(job, -alone);
        let Some(resident) = self.running[job.index()].take() else {
            return;
        };
        for &ServerGpus { server, mask } in resident.gpus.by_server() {
            let spot = self.spots[server.index()];
            self.spots[server.index()].one ^= mask;
            self.count_job(server, -1);
            for slot in slots(mask & !spot.one) {
                // If a co-runner has also ended, it is reported later and clears the bit then.
                if let Some(other) = view.residents(server, slot).next() {
                    self.sole[(spot.gpu_base + slot) as usize] = other;
                    self.change_alone(other, 1);
                    left.push(other);
                }
            }
        }
    }

    /// Records that the rate or the memory of a running job has changed.
    pub(super) fn set_stay(&mut self, job: JobId, stay: Stay) {
        let Some(resident) = self.resident(job).filter(|one| one.stay != stay) else {
            return;
        };
        let alone = resident.alone as i32;
        self.change_alone(job, -alone);
        if let Some(resident) = &mut self.running[job.index()] {
            resident.stay = stay;
        }
        self.change_alone(job, alone);
    }

    /// Adds `change` to the number of GPUs on which a job is alone. The job stays in its kind as long as this number is
    /// above 0.
    fn change_alone(&mut self, job: JobId, change: i32) {
        let resident = self.running[job.index()].as_mut();
        let Some(resident) = resident.filter(|_| change != 0) else {
            return;
        };
        let before = resident.alone;
        resident.alone = before.saturating_add_signed(change);
        let after = resident.alone;
        let (stay, gpu_type) = (resident.stay, resident.gpu_type);
        let xi = if self.by_slowdown { stay.xi } else { 1.0 };
        let kind = Kind {
            gpu_type,
            class: resident.class,
            bytes: stay.bytes,
            xi_bits: xi.to_bits(),
        };
        let open = &mut self.open[gpu_type.index()];
        open.total = open.total.saturating_add_signed(change);
        let count = open.by_bytes.entry(stay.bytes).or_default();
        *count = count.saturating_add_signed(change);
        if *count == 0 {
            open.by_bytes.remove(&stay.bytes);
        }
        let entry = (stay.finish, job);
        if before == 0 {
            self.kinds.entry(kind).or_default().insert(entry);
        } else if after == 0 {
            let members = self
                .kinds
                .get_mut(&kind)
                .expect("the job is in the set of its kind");
            members.remove(&entry);
            if members.is_empty() {
                self.kinds.remove(&kind);
            }
        }
    }

    fn count_job(&mut self, server: ServerId, change: i32) {
        let spot = &mut self.spots[server.index()];
        let before = spot.jobs;
        spot.jobs = before.saturating_add_signed(change);
        if let Some(by_jobs) = &mut self.by_jobs {
            let servers = &mut by_jobs[spot.gpu_type.index()];
            servers.remove(&(before, server));
            servers.insert((spot.jobs, server));
        }
    }

    // These methods are queries.

    fn resident(&self, job: JobId) -> Option<&Resident> {
        self.running[job.index()].as_deref()
    }

    /// Returns the finish, slowdown factor and memory of a running job.
    pub(super) fn stay(&self, job: JobId) -> Option<Stay> {
        self.resident(job).map(|resident| resident.stay)
    }

    pub(super) fn is_alone(&self, job: JobId) -> bool {
        let resident = self.resident(job);
        resident.is_some_and(|one| one.alone == one.gpus.gpus())
    }

    /// Returns the residents of a GPU type that are alone on at least one GPU, grouped by kind.
    pub(super) fn kinds(&self, gpu_type: GpuTypeId) -> impl Iterator<Item = (&Kind, &Members)> {
        let from = self.kinds.range(Kind::first_of(gpu_type)..);
        from.take_while(move |(kind, _)| kind.gpu_type == gpu_type)
    }

    /// Returns, for each server, the slots where a job is alone.
    pub(super) fn alone_of(&self, job: JobId) -> impl Iterator<Item = (ServerId, u64)> {
        let gpus = self.resident(job).map(|one| one.gpus.by_server());
        let gpus = gpus.into_iter().flatten();
        gpus.map(|one| (one.server, one.mask & self.one_on(one.server)))
            .filter(|&(_, mask)| mask != 0)
    }

    /// Returns the slots of a server that have exactly one resident.
    pub(super) fn one_on(&self, server: ServerId) -> u64 {
        self.spots[server.index()].one
    }

    /// Returns the resident of a GPU that has exactly one resident.
    pub(super) fn sole(&self, server: ServerId, slot: u32) -> JobId {
        self.sole[(self.spots[server.index()].gpu_base + slot) as usize]
    }

    /// Returns the number of different jobs on a server.
    pub(super) fn jobs_on(&self, server: ServerId) -> u32 {
        self.spots[server.index()].jobs
    }

    /// Returns the servers of a type, ordered by number of jobs, then by index.
    pub(super) fn servers_by_jobs(&self, gpu_type: GpuTypeId) -> impl Iterator<Item = ServerId> {
        let by_jobs = self.by_jobs.as_ref().map(|all| &all[gpu_type.index()]);
        by_jobs.into_iter().flatten().map(|&(_, server)| server)
    }

    /// Returns the number of GPUs of a type that have exactly one resident.
    pub(super) fn open(&self, gpu_type: GpuTypeId) -> u32 {
        self.open[gpu_type.index()].total
    }

    /// Returns the number of GPUs of a type whose only resident holds at most `bytes` bytes.
    pub(super) fn open_below(&self, gpu_type: GpuTypeId, bytes: u64) -> u32 {
        let by_bytes = &self.open[gpu_type.index()].by_bytes;
        by_bytes.range(..=bytes).map(|(_, count)| count).sum()
    }
}

/// Returns the positions of the set bits of a mask, lowest first.
pub(super) fn slots(mask: u64) -> impl Iterator<Item = u32> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let slot = rest.trailing_zeros();
        rest &= rest.wrapping_sub(1);
        (slot < 64).then_some(slot)
    })
}
