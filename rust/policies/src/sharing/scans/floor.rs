//! Which jobs are on which GPU, after the actions of the plan so far.

use crate::sharing::params::FreePick;
use gangline_engine::ClusterView;
use gangline_model::{GpuSet, GpuTypeId, JobId, ServerId, SimTime, span_of_work};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// A job on GPUs, as the policy counts it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resident {
    /// When it will be done at its rate.
    pub(super) finish: SimTime,
    /// Slowdown factor that this finish rests on.
    pub(super) xi: f64,
    /// Its memory per GPU.
    pub(super) bytes: u64,
}

/// A GPU.
pub(super) type Gpu = (ServerId, u32);

/// One server that is up.
#[derive(Clone, Debug)]
pub(super) struct Site {
    pub(super) server: ServerId,
    gpu_type: GpuTypeId,
    slots: Vec<SmallVec<[JobId; 2]>>,
}

impl Site {
    /// Free slots, ascending.
    pub(super) fn free(&self) -> impl Iterator<Item = u32> + '_ {
        (0..)
            .zip(&self.slots)
            .filter(|(_, on)| on.is_empty())
            .map(|(slot, _)| slot)
    }

    /// Slots with one resident, ascending, and that resident.
    pub(super) fn one(&self) -> impl Iterator<Item = (u32, JobId)> + '_ {
        (0..)
            .zip(&self.slots)
            .filter(|(_, on)| on.len() == 1)
            .map(|(slot, on)| (slot, on[0]))
    }

    /// Number of free GPUs.
    pub(super) fn free_count(&self) -> usize {
        self.free().count()
    }

    /// Number of different jobs on its GPUs.
    pub(super) fn residents(&self) -> usize {
        let jobs: BTreeSet<JobId> = self.slots.iter().flatten().copied().collect();
        jobs.len()
    }
}

/// All servers that are up, and the residents.
#[derive(Clone, Debug, Default)]
pub(super) struct Floor {
    sites: Vec<Site>,
    pub(super) residents: BTreeMap<JobId, Resident>,
}

impl Floor {
    /// The state that the decision finds; jobs of `restored` count with their full batch.
    pub(super) fn new(view: &ClusterView<'_>, restored: &[JobId]) -> Self {
        let mut floor = Self::default();
        for (index, server) in view.cluster().servers().iter().enumerate() {
            let id = ServerId::new(index);
            if view.is_up(id) {
                floor.sites.push(Site {
                    server: id,
                    gpu_type: server.gpu_type,
                    slots: (0..server.gpus)
                        .map(|slot| view.residents(id, slot).collect())
                        .collect(),
                });
            }
        }
        for job in view.running() {
            let run = view.run(job).expect("a running job");
            let part = run.only();
            let resident = if restored.contains(&job) {
                let work = view.remaining_work(job).expect("it knows durations");
                let begin = part.progress_start.max(view.now());
                Resident {
                    finish: begin + span_of_work(work, view.rate_alone(job, &part.gpus)),
                    xi: 1.0,
                    bytes: view.memory_bytes(job, 0),
                }
            } else {
                Resident {
                    finish: run.done_at(),
                    xi: part.xi,
                    bytes: view.memory_bytes(job, part.sub_batch),
                }
            };
            floor.residents.insert(job, resident);
        }
        floor
    }

    /// Servers of a type by index.
    pub(super) fn of_type(&self, gpu_type: GpuTypeId) -> impl Iterator<Item = &Site> + Clone {
        self.sites
            .iter()
            .filter(move |site| site.gpu_type == gpu_type)
    }

    /// Free GPUs of a type.
    pub(super) fn free(&self, gpu_type: GpuTypeId) -> usize {
        self.of_type(gpu_type).map(Site::free_count).sum()
    }

    /// All free GPUs of a type, by server and slot.
    pub(super) fn free_gpus(&self, gpu_type: GpuTypeId) -> Vec<Gpu> {
        self.of_type(gpu_type).flat_map(free_of).collect()
    }

    /// GPUs of a type with one resident, by resident; those of each by server and slot.
    pub(super) fn open(&self, gpu_type: GpuTypeId) -> BTreeMap<JobId, Vec<Gpu>> {
        let mut open: BTreeMap<JobId, Vec<Gpu>> = BTreeMap::new();
        for site in self.of_type(gpu_type) {
            for (slot, job) in site.one() {
                open.entry(job).or_default().push((site.server, slot));
            }
        }
        open
    }

    /// Whether a job of so many bytes fits beside a resident on a GPU with this capacity.
    pub(super) fn has_room(&self, resident: JobId, bytes: u64, capacity: u64) -> bool {
        self.residents[&resident].bytes.saturating_add(bytes) <= capacity
    }

    /// GPUs of a type that are free or have one resident and room.
    pub(super) fn usable(&self, gpu_type: GpuTypeId, bytes: u64, capacity: u64) -> usize {
        let open = self.open(gpu_type).into_iter();
        let shared: usize = open
            .filter(|&(job, _)| self.has_room(job, bytes, capacity))
            .map(|(_, gpus)| gpus.len())
            .sum();
        self.free(gpu_type) + shared
    }

    /// Free GPUs for a gang, if there are enough.
    pub(super) fn exclusive(
        &self,
        gpu_type: GpuTypeId,
        need: usize,
        pick: FreePick,
    ) -> Option<Vec<Gpu>> {
        if self.free(gpu_type) < need {
            return None;
        }
        let mut sites: Vec<&Site> = self.of_type(gpu_type).collect();
        match pick {
            FreePick::BestFit => {
                let fits = sites.iter().filter(|site| site.free_count() >= need);
                if let Some(best) = fits.min_by_key(|site| site.free_count()) {
                    return Some(free_of(best).take(need).collect());
                }
                sites.sort_by_key(|site| std::cmp::Reverse(site.free_count()));
            }
            FreePick::FewResidents => sites.sort_by_key(|site| site.residents()),
        }
        Some(sites.into_iter().flat_map(free_of).take(need).collect())
    }

    /// Puts a job on GPUs.
    pub(super) fn place(&mut self, job: JobId, gpus: &[Gpu], resident: Resident) {
        for &(server, slot) in gpus {
            let at = self
                .sites
                .binary_search_by_key(&server, |site| site.server)
                .expect("a server that is up");
            self.sites[at].slots[slot as usize].push(job);
        }
        self.residents.insert(job, resident);
    }
}

/// Free GPUs of a server.
pub(super) fn free_of(site: &Site) -> impl Iterator<Item = Gpu> + '_ {
    site.free().map(|slot| (site.server, slot))
}

/// As the engine wants them.
pub(super) fn set_of(gpus: &[Gpu]) -> GpuSet {
    let mut set = GpuSet::new();
    let mut by_server: BTreeMap<ServerId, u64> = BTreeMap::new();
    for &(server, slot) in gpus {
        *by_server.entry(server).or_default() |= 1 << slot;
    }
    for (server, mask) in by_server {
        set.insert(server, mask);
    }
    set
}
