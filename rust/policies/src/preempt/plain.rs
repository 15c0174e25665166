//! The rule of [`super`] carried out as it is stated, over all active jobs: the test oracle of the other algorithms.

use super::Pass;
use crate::class::Places;
use crate::queue::{QueueState, Rank};
use gangline_engine::{ClusterView, Plan};
use gangline_model::{GpuSet, GpuTypeId, JobId};

impl Pass {
    /// Walks every active job. O(active log active).
    pub(super) fn plain(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) {
        let now = view.now().0;
        let jobs = view.jobs();
        let waiting = view.waiting().map(|job| {
            (
                self.measure.waiting(self.queues.key(job), jobs.gpus(job)),
                false,
            )
        });
        let running = view.running().map(|job| {
            (
                self.measure
                    .running(self.queues.key(job), jobs.gpus(job), now),
                true,
            )
        });
        let mut order: Vec<(Rank, bool)> = waiting.chain(running).collect();
        order.sort_unstable();
        let admitted_on = count_pass(view, &self.places, &order);
        let own = |job| view.run(job).expect("a running job").gpu_type();
        let keeps = |at: usize| {
            let (rank, is_running) = order[at];
            is_running && admitted_on[at] == Some(own(JobId(rank.job)))
        };
        for at in (0..order.len()).filter(|&at| order[at].1 && !keeps(at)) {
            plan.release(JobId(order[at].0.job));
        }
        let mut has_gpus: Vec<bool> = (0..order.len()).map(keeps).collect();
        for (at, &(rank, is_running)) in order.iter().enumerate() {
            let (Some(gpu_type), false) = (admitted_on[at], has_gpus[at]) else {
                continue;
            };
            let job = JobId(rank.job);
            let class = self.places.classes().of(job);
            let Some(gpus) = self.places.place_on(plan.free(), class, job, gpu_type) else {
                continue;
            };
            has_gpus[at] = true;
            if is_running {
                plan.take(&gpus);
                plan.move_to(job, gpus);
                self.moved.push(job);
            } else {
                self.start_plain(plan, job, gpus, now);
            }
        }
        for (at, &(rank, is_running)) in order.iter().enumerate() {
            let job = JobId(rank.job);
            if has_gpus[at] {
                continue;
            }
            if !is_running {
                let class = self.places.classes().of(job);
                if let Some(gpus) = self.places.place(plan.free(), class, job) {
                    self.start_plain(plan, job, gpus, now);
                }
                continue;
            }
            let old = view.run(job).expect("a running job").gpus();
            if plan.free().is_free(old) {
                plan.take(old);
            } else {
                self.stop_job(plan, job);
            }
        }
    }

    fn start_plain(&mut self, plan: &mut Plan<'_>, job: JobId, gpus: GpuSet, now: i64) {
        let key = self.running_key(self.queues.key(job), now);
        self.start_job(plan, key, gpus, QueueState::Running);
    }
}

/// The type that admits each job, by count alone.
fn count_pass(
    view: &ClusterView<'_>,
    places: &Places,
    order: &[(Rank, bool)],
) -> Vec<Option<GpuTypeId>> {
    let types = view.cluster().gpu_types().len();
    let mut left: Vec<u32> = (0..types)
        .map(|at| view.gpus_up(GpuTypeId::new(at)))
        .collect();
    order
        .iter()
        .map(|&(rank, is_running)| {
            let job = JobId(rank.job);
            let of = places.classes().get(places.classes().of(job));
            let own = is_running.then(|| view.run(job).expect("a running job").gpu_type());
            let others = of.types.iter().copied().filter(|&t| Some(t) != own);
            let found = own
                .into_iter()
                .chain(others)
                .find(|t| left[t.index()] >= of.gpus)?;
            left[found.index()] -= of.gpus;
            Some(found)
        })
        .collect()
}
