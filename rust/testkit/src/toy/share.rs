//! `toy-share`: a job gets free GPUs if there are enough; otherwise, it gets the lowest-numbered GPUs that hold at most
//! one job.

use gangline_engine::{Changes, ClusterView, Next, Phase, Plan, Policy, PolicyError, PolicyTraits};
use gangline_model::{GpuSet, GpuTypeId, JobId, ServerId, Terms};
use gangline_policies::kit::Places;
use gangline_policies::place::Level;
use std::collections::BTreeMap;

/// A first-come, first-served queue that shares GPUs between two jobs.
#[derive(Debug)]
pub struct ToyShare {
    halve: bool,
    places: Places,
    /// Residents that this plan adds to each GPU.
    added: BTreeMap<(ServerId, u32), Vec<JobId>>,
    sub_batches: BTreeMap<JobId, u32>,
}

impl ToyShare {
    /// Creates the policy; if `halve` is set, co-runners run at half of their batch size.
    pub fn new(halve: bool) -> Self {
        Self {
            halve,
            places: super::places::places(Level::Network),
            added: BTreeMap::new(),
            sub_batches: BTreeMap::new(),
        }
    }

    fn residents(&self, view: &ClusterView<'_>, gpu: (ServerId, u32)) -> Vec<JobId> {
        let added = self.added.get(&gpu).into_iter().flatten().copied();
        view.residents(gpu.0, gpu.1).chain(added).collect()
    }

    fn sub_batch(&self, view: &ClusterView<'_>, job: JobId) -> u32 {
        self.sub_batches
            .get(&job)
            .copied()
            .unwrap_or_else(|| view.sub_batch(job))
    }

    /// Returns whether a job may share a GPU with the job that holds it.
    fn is_open(
        &self,
        view: &ClusterView<'_>,
        job: JobId,
        sub_batch: u32,
        gpu: (ServerId, u32),
        gpu_type: GpuTypeId,
    ) -> bool {
        let here = self.residents(view, gpu);
        if here.len() >= view.max_share() as usize {
            return false;
        }
        let used: u64 = here
            .iter()
            .map(|&other| view.memory_bytes(other, self.sub_batch(view, other)))
            .sum();
        let room = view.cluster().gpu_types()[gpu_type.index()].memory_bytes;
        used.saturating_add(view.memory_bytes(job, sub_batch)) <= room
            && here
                .iter()
                .all(|&other| view.xi(job, other, gpu_type).is_some())
    }

    /// Returns the lowest-numbered GPUs of a type that hold at most one job.
    fn share(
        &self,
        view: &ClusterView<'_>,
        job: JobId,
        sub_batch: u32,
        gpu_type: GpuTypeId,
    ) -> Option<GpuSet> {
        let need = view.jobs().gpus(job);
        let mut found = GpuSet::new();
        for (index, server) in view.cluster().servers().iter().enumerate() {
            let id = ServerId::new(index);
            if server.gpu_type != gpu_type || !view.is_up(id) {
                continue;
            }
            for slot in 0..server.gpus {
                if self.is_open(view, job, sub_batch, (id, slot), gpu_type) {
                    found.insert(id, 1 << slot);
                    if found.gpus() == need {
                        return Some(found);
                    }
                }
            }
        }
        None
    }

    fn start_on(&mut self, plan: &mut Plan<'_>, job: JobId, gpus: GpuSet, sub_batch: u32) {
        for part in gpus.by_server() {
            for slot in (0..64).filter(|slot| part.mask >> slot & 1 == 1) {
                self.added.entry((part.server, slot)).or_default().push(job);
            }
        }
        self.sub_batches.insert(job, sub_batch);
        let terms = Terms {
            sub_batch: (sub_batch > 0).then_some(sub_batch),
            ..Terms::default()
        };
        plan.start_on(job, gpus, terms);
    }

    /// Restores the full batch size of jobs that run alone.
    fn restore(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) {
        for job in view.running() {
            let run = view.run(job).expect("a running job").only();
            let batch = view.jobs().batch_size(job);
            let is_alone = run.gpus.by_server().iter().all(|part| {
                (0..64)
                    .filter(|slot| part.mask >> slot & 1 == 1)
                    .all(|slot| view.residents(part.server, slot).count() == 1)
            });
            if is_alone && run.sub_batch > 0 && run.sub_batch < batch {
                self.sub_batches.insert(job, batch);
                let terms = Terms {
                    sub_batch: Some(batch),
                    ..Terms::default()
                };
                plan.keep(job, terms);
            }
        }
    }
}

impl Policy for ToyShare {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            max_share: 2,
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        self.places.start(view, plan)
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        _changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        self.added.clear();
        self.sub_batches.clear();
        if self.halve {
            self.restore(view, plan);
        }
        for job in view.waiting() {
            debug_assert_eq!(view.phase(job), Phase::Waiting);
            let class = self.places.classes().of(job);
            let batch = view.jobs().batch_size(job);
            let shared = if self.halve { batch.div_ceil(2) } else { batch };
            for gpu_type in view.types_of(job) {
                if let Some(gpus) = self.places.place_on(plan, class, job, gpu_type) {
                    self.start_on(plan, job, gpus, batch);
                    break;
                }
                if let Some(gpus) = self.share(view, job, shared, gpu_type) {
                    self.start_on(plan, job, gpus, shared);
                    break;
                }
            }
        }
        Ok(Next::Ask)
    }
}
