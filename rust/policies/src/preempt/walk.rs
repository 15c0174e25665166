//! The general version of the pass, which works for every run. It applies the rule to the running jobs and to the first
//! waiting job of each demand class. If the placement rule never refuses a gang and all waiting jobs fit next to the
//! running jobs, the waiting jobs are started without examining the running jobs.

use super::Pass;
use super::jobs::QueueState;
use super::jobs::{Key, Rank};
use gangline_engine::{ClusterView, Plan};
use gangline_model::{GpuTypeId, JobId};
use std::cmp::Reverse;

/// An entry of the order: a running job, or a waiting job that the count admitted.
#[derive(Clone, Copy, Debug)]
struct Ranked {
    rank: Rank,
    class: usize,
    is_running: bool,
    admitted_on: Option<GpuTypeId>,
    /// Whether the job keeps or gets GPUs.
    has_gpus: bool,
}

impl Ranked {
    fn job(&self) -> JobId {
        JobId(self.rank.job)
    }
}

impl Pass {
    /// Applies the four steps of the rule, or only starts the waiting jobs if all of them fit. The cost is O(running
    /// log running + classes log classes).
    pub(super) fn walk(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) {
        if self.all_fit(view, plan) {
            self.start_all(view, plan);
            return;
        }
        let mut order = self.count_all(view);
        let has_lost = |entry: &&Ranked| entry.is_running && !entry.has_gpus;
        for entry in order.iter().filter(has_lost) {
            plan.release(entry.job());
        }
        self.place_admitted(view, plan, &mut order);
        order.retain(|entry| !entry.has_gpus);
        if order.iter().all(|entry| entry.admitted_on.is_none()) {
            // All admitted jobs have GPUs, and too few are left for any other job.
            for entry in order {
                self.stop_job(plan, entry.job());
            }
        } else {
            self.backfill(view, plan, order);
        }
    }

    /// Returns whether all waiting jobs fit next to the running jobs, each on the first of its types, under a placement
    /// rule that never refuses a gang. If they do, all jobs are admitted, regardless of their order. The cost is O(free
    /// GPUs).
    fn all_fit(&self, view: &ClusterView<'_>, plan: &mut Plan<'_>) -> bool {
        if self.queues.is_empty() {
            return true;
        }
        let types = (0..view.cluster().gpu_types().len()).map(GpuTypeId::new);
        let free = plan.free();
        let mut left: Vec<u32> = types.map(|t| free.pool(t).free_total()).collect();
        let mut take = |job| {
            let of = self.places.class(job);
            let left = of.types.first().map(|first| &mut left[first.index()]);
            left.is_some_and(|left| match left.checked_sub(of.gpus) {
                Some(rest) => {
                    *left = rest;
                    true
                }
                None => false,
            })
        };
        !self.may_refuse() && view.waiting().all(&mut take)
    }

    fn start_all(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) {
        self.list_heads();
        while let Some(Reverse((_, class))) = self.heads.pop() {
            let key = self.queues.pop(class).expect("the class has a waiting job");
            self.push_head(class);
            let gpu_type = self.places.classes().get(class).types[0];
            let found = self.places.place_on(plan, class, key.job(), gpu_type);
            let gpus = found.expect("enough GPUs are free, and the rule asks for no more");
            let key = self.running_key(key, view.now().0);
            self.start_job(plan, key, gpus, QueueState::Running);
        }
    }

    /// Performs step 1. Returns, in order, all running jobs and those waiting jobs that are admitted.
    fn count_all(&mut self, view: &ClusterView<'_>) -> Vec<Ranked> {
        let types = view.cluster().gpu_types().len();
        let mut left: Vec<u32> = (0..types)
            .map(|at| view.gpus_up(GpuTypeId::new(at)))
            .collect();
        let mut running: Vec<Rank> = view
            .running()
            .map(|job| self.running_rank(view, job))
            .collect();
        running.sort_unstable();
        self.list_heads();
        let mut order = Vec::with_capacity(running.len());
        let mut running = running.into_iter().peekable();
        loop {
            let head = self.heads.peek().map(|&Reverse(head)| head);
            let next = running.next_if(|rank| head.is_none_or(|(head, _)| *rank < head));
            if let Some(rank) = next {
                let job = JobId(rank.job);
                let class = self.places.class_of(job);
                let own = view.run(job).expect("a running job").gpu_type();
                let admitted_on = self.admit_on(class, Some(own), &mut left);
                order.push(Ranked {
                    rank,
                    class,
                    is_running: true,
                    admitted_on,
                    has_gpus: admitted_on == Some(own),
                });
                continue;
            }
            let Some((rank, class)) = head else {
                return order;
            };
            self.heads.pop();
            let admitted_on = self.admit_on(class, None, &mut left);
            if admitted_on.is_some() {
                self.queues.pop(class);
                self.push_head(class);
                order.push(Ranked {
                    rank,
                    class,
                    is_running: false,
                    admitted_on,
                    has_gpus: false,
                });
            }
        }
    }

    fn running_rank(&self, view: &ClusterView<'_>, job: JobId) -> Rank {
        let gpus = view.jobs().gpus(job);
        self.measure
            .running(self.queues.key(job), gpus, view.now().0)
    }

    /// Returns the type on which a gang is admitted, if enough GPUs of one of its types are left, and deducts its GPUs
    /// from `left`. The type on which the gang already runs is tried first.
    fn admit_on(
        &self,
        class: usize,
        own: Option<GpuTypeId>,
        left: &mut [u32],
    ) -> Option<GpuTypeId> {
        let of = self.places.classes().get(class);
        let others = of.types.iter().copied().filter(|&t| Some(t) != own);
        let found = own
            .into_iter()
            .chain(others)
            .find(|t| left[t.index()] >= of.gpus)?;
        left[found.index()] -= of.gpus;
        Some(found)
    }

    /// Performs step 3. A waiting job that has no place goes back to its queue.
    fn place_admitted(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        order: &mut [Ranked],
    ) {
        for entry in order.iter_mut().filter(|entry| !entry.has_gpus) {
            let Some(gpu_type) = entry.admitted_on else {
                continue;
            };
            let job = entry.job();
            let key = self.queues.key(job);
            let found = self.places.place_on(plan, entry.class, job, gpu_type);
            entry.has_gpus = found.is_some();
            match found {
                Some(gpus) if entry.is_running => {
                    plan.move_to(job, gpus);
                }
                Some(gpus) => {
                    let key = self.running_key(key, view.now().0);
                    self.start_job(plan, key, gpus, QueueState::Running);
                }
                None if entry.is_running => {}
                None => self.queues.push(entry.class, key),
            }
        }
    }

    /// Performs step 4 for the jobs that gave up their GPUs and for the first waiting job of each class.
    fn backfill(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>, order: Vec<Ranked>) {
        self.list_heads();
        self.list_non_monotone(view);
        let lost = order.into_iter().filter(|entry| entry.is_running);
        let mut lost = lost.peekable();
        loop {
            let head = self.heads.peek().map(|&Reverse(head)| head);
            let next = lost.next_if(|entry| head.is_none_or(|(head, _)| entry.rank < head));
            if let Some(entry) = next {
                let run = view.run(entry.job()).expect("a running job");
                let old = run.gpus();
                if plan.free().is_free(old) {
                    plan.take(old);
                } else {
                    self.stop_job(plan, entry.job());
                }
                continue;
            }
            let Some((rank, class)) = head else {
                return;
            };
            self.heads.pop();
            let job = JobId(rank.job);
            let key = self.queues.key(job);
            if let Some(gpus) = self.places.place(plan, class, job) {
                let key = self.running_key(key, view.now().0);
                self.start_job(plan, key, gpus, QueueState::Running);
                if !self.non_monotone[class] {
                    self.push_head(class);
                }
            }
        }
    }

    /// Fills `heads` with the first waiting job of each class.
    fn list_heads(&mut self) {
        self.heads.clear();
        let mut from = 0;
        while let Some(class) = self.queues.next_class(from) {
            self.push_head(class);
            from = class + 1;
        }
    }

    /// Puts all waiting jobs of non-monotone classes into `heads`, not only the first job of each class.
    fn list_non_monotone(&mut self, view: &ClusterView<'_>) {
        if !self.non_monotone.contains(&true) {
            return;
        }
        let non_monotone = &self.non_monotone;
        self.heads
            .retain(|Reverse((_, class))| !non_monotone[*class]);
        for job in view.waiting() {
            let class = self.places.class_of(job);
            if self.non_monotone[class] && self.queues.is_waiting(job) {
                let key: Key = self.queues.key(job);
                let rank = self.measure.waiting(key, self.gpus(class));
                self.heads.push(Reverse((rank, class)));
            }
        }
    }
}
