//! The rule of the pass with preemption, carried out as it is stated, over all active jobs. It is the test oracle of
//! the incremental form.
//!
//! 1. *Count.* In key order, a job is admitted if enough GPUs of one of its types are left by number, wherever they
//!    are: first of the type it runs on, then of its other types in their order. They are counted as its own.
//! 2. Running jobs that are admitted on the type they run on keep their GPUs. All other running jobs give theirs up.
//! 3. In key order, each admitted job without GPUs gets some by the placement rule, on the type that admitted it; one
//!    that ran moves. A rule that may refuse a gang can leave it without.
//! 4. In key order, each job without GPUs: one that ran keeps its old GPUs if all of them are still free, a waiting
//!    one gets any that the rule finds for it. Whoever ran and has no GPUs now is preempted.

use super::Repack;
use crate::class::Places;
use crate::order::{Rank, Stand};
use gangline_engine::{ClusterView, Plan};
use gangline_model::{GpuTypeId, JobId};

impl Repack {
    /// Walks every active job. O(active log active); for tests.
    pub(super) fn walk_all(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        places: &mut Places,
    ) {
        let now = view.now().0;
        let jobs = view.jobs();
        let waiting = view.waiting().map(|job| {
            (
                self.measure.waiting(self.ledger.key(job), jobs.gpus(job)),
                false,
            )
        });
        let running = view.running().map(|job| {
            (
                self.measure
                    .running(self.ledger.key(job), jobs.gpus(job), now),
                true,
            )
        });
        let mut order: Vec<(Rank, bool)> = waiting.chain(running).collect();
        order.sort_unstable();
        let admitted_on = count_pass(view, places, &order);
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
            let class = places.classes().of(job);
            let Some(gpus) = places.place_on(plan.free(), class, job, gpu_type) else {
                continue;
            };
            has_gpus[at] = true;
            plan.take(&gpus);
            if is_running {
                plan.move_to(job, gpus);
                self.moved.push(job);
            } else {
                self.start_plain(plan, places, job, gpus, now);
            }
        }
        for (at, &(rank, is_running)) in order.iter().enumerate() {
            let job = JobId(rank.job);
            if has_gpus[at] {
                continue;
            }
            if !is_running {
                let class = places.classes().of(job);
                if let Some(gpus) = places.place(plan.free(), class, job) {
                    plan.take(&gpus);
                    self.start_plain(plan, places, job, gpus, now);
                }
                continue;
            }
            let old = view.run(job).expect("a running job").gpus();
            if plan.free().is_free(old) {
                plan.take(old);
            } else {
                plan.preempt(job);
                self.stopped.push(job);
                self.running.remove(self.ledger.key(job), jobs.gpus(job));
                self.ledger.set(self.ledger.key(job), Stand::Nowhere);
            }
        }
    }

    fn start_plain(
        &mut self,
        plan: &mut Plan<'_>,
        places: &mut Places,
        job: JobId,
        gpus: gangline_model::GpuSet,
        now: i64,
    ) {
        places.note_start(job);
        let size = gpus.gpus();
        plan.start(job, gpus);
        self.started.push(job);
        let key = self.ledger.key(job);
        self.count_in(key, size, now);
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
