//! Choices become places, and places a plan.

use super::choose::Walk;
use super::{Candidates, Choice, Holder, Rounds};
use crate::kit::GpuPick;
use gangline_engine::{ClusterView, Mark, Plan};
use gangline_model::{GpuSet, JobId, SimTime};
use std::cmp::Reverse;

/// A choice that has its GPUs, and the draft before it took them.
struct Placed {
    choice: Choice,
    gpus: GpuSet,
    before: Mark,
}

impl Rounds {
    /// Chooses and places until every choice has a place. What was chosen and placed before a refused choice stands.
    pub(super) fn fill(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        which: Candidates,
        left: Vec<u32>,
    ) -> Vec<(Choice, GpuSet)> {
        let mut walk = Walk::new(which, left);
        let mut placed: Vec<Placed> = Vec::new();
        loop {
            let mut chosen = self.choose(view, &mut walk);
            chosen.sort_by_key(|choice| {
                let gpus = view.jobs().gpus(choice.job);
                (choice.gpu_type, Reverse(gpus), choice.job)
            });
            let both = placed.iter().zip(&chosen);
            let same = both.take_while(|(own, choice)| own.choice == **choice);
            let same = same.count();
            if let Some(other) = placed.get(same) {
                plan.rollback(other.before);
                placed.truncate(same);
            }
            match self.place(view, plan, &chosen[same..], &mut placed) {
                Ok(()) => break,
                Err(choice) => self.refuse(&mut walk, choice),
            }
        }
        self.end_walk(walk);
        let placed = placed.into_iter().map(|own| (own.choice, own.gpus));
        placed.collect()
    }

    /// Places choices by type, largest gang first; a job that can keeps its GPUs. The choice without a place,
    /// if there is one.
    fn place(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        chosen: &[Choice],
        placed: &mut Vec<Placed>,
    ) -> Result<(), Choice> {
        for &choice in chosen {
            let Choice { job, gpu_type, .. } = choice;
            let own = choice.jobs().filter_map(|job| Some(view.run(job)?.gpus()));
            let kept = own.into_iter().find(|gpus| {
                let server = gpus.by_server()[0].server;
                view.cluster().server(server).gpu_type == gpu_type && plan.free().is_free(gpus)
            });
            let gpus = if let Some(gpus) = kept {
                gpus.clone()
            } else {
                let class = self.places.class_of(job);
                let found = self.places.place_on(plan, class, job, gpu_type);
                found.ok_or(choice)?
            };
            let before = plan.mark();
            plan.take(&gpus);
            placed.push(Placed {
                choice,
                gpus,
                before,
            });
        }
        Ok(())
    }

    /// Writes the plan of a whole round; whether all jobs run where they ran before.
    pub(super) fn write(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        placed: Vec<(Choice, GpuSet)>,
    ) -> bool {
        let now = view.now();
        let mut is_same = true;
        let mut stays: Vec<JobId> = placed
            .iter()
            .flat_map(|(choice, _)| choice.jobs())
            .collect();
        stays.sort_unstable();
        for job in view.running() {
            if stays.binary_search(&job).is_err() {
                is_same = false;
                plan.preempt(job);
            }
        }
        self.holders.clear();
        for (choice, gpus) in placed {
            for job in choice.jobs() {
                match view.run(job) {
                    Some(run) if *run.gpus() == gpus => {}
                    Some(_) => {
                        is_same = false;
                        let gpus = gpus.clone();
                        plan.move_to(job, gpus);
                    }
                    None => {
                        is_same = false;
                        plan.start(job, gpus.clone());
                    }
                }
            }
            self.hold(choice, now);
        }
        is_same
    }

    /// Gives GPUs that became free inside a round to jobs that wait.
    pub(super) fn backfill(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) {
        let left: Vec<u32> = super::ask::types(view).map(|t| view.gpus_free(t)).collect();
        for (choice, gpus) in self.fill(view, plan, Candidates::Waiting, left) {
            for job in choice.jobs() {
                plan.start(job, gpus.clone());
            }
            self.hold(choice, view.now());
        }
    }

    /// From now on time is counted for the jobs of a choice.
    fn hold(&mut self, choice: Choice, now: SimTime) {
        let group = |job| self.pairs.as_ref().map(|pairs| pairs.group(job));
        let holder = |job, beside| Holder {
            job,
            gpu_type: choice.gpu_type,
            beside,
            since: now,
        };
        let first = holder(choice.job, choice.partner.and_then(group));
        let second = choice.partner.map(|job| holder(job, group(choice.job)));
        self.holders.push(first);
        self.holders.extend(second);
    }

    /// Shares of a policy that never stops a job: all of its type to running jobs, then to waiting jobs in
    /// order of arrival all of the type that is picked for them, up to the first job without a place.
    pub(super) fn first_come(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        pick: GpuPick,
    ) -> Vec<f64> {
        let types = view.cluster().gpu_types().len();
        let mut shares = vec![0.0; self.active.len() * types];
        let mark = plan.mark();
        let mut is_blocked = false;
        let active: Vec<JobId> = self.active.iter().copied().collect();
        for (job, row) in active.into_iter().zip(shares.chunks_exact_mut(types)) {
            let own = if let Some(run) = view.run(job) {
                Some(run.gpus().clone())
            } else if is_blocked {
                None
            } else {
                let class = self.places.class_of(job);
                let found = pick.place(view, plan, &mut self.places, class, job);
                is_blocked = found.is_none();
                if let Some(gpus) = &found {
                    plan.take(gpus);
                }
                found
            };
            if let Some(gpus) = own {
                let gpu_type = view.cluster().server(gpus.by_server()[0].server).gpu_type;
                row[gpu_type.index()] = 1.0;
            }
        }
        plan.rollback(mark);
        shares
    }
}
