//! Steps 2 to 4 of the pass ([`super::plain`]): GPUs for the admitted, and what follows if the rule refuses one.

use super::{Admission, Dropped, Repack};
use crate::class::Places;
use crate::order::{Rank, Stand};
use gangline_engine::{ClusterView, Plan};
use gangline_model::JobId;
use std::cmp::Reverse;

impl Repack {
    /// Gives the admitted their GPUs; whether each got some.
    pub(super) fn settle(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        places: &mut Places,
    ) -> bool {
        if !places.is_strict() && !self.admitted.iter().any(|admission| admission.is_running) {
            self.settle_all(plan, places);
            return true;
        }
        let admitted = std::mem::take(&mut self.admitted);
        for job in self.dropped.iter().map(|dropped| dropped.key.job()) {
            plan.release(job);
        }
        for admission in admitted.iter().filter(|admission| admission.is_running) {
            plan.release(admission.key.job());
        }
        let mut is_settled = true;
        for admission in &admitted {
            let Admission {
                class,
                gpu_type,
                key,
                ..
            } = *admission;
            let job = key.job();
            match places.place_on(plan.free(), class, job, gpu_type) {
                Some(gpus) if admission.is_running => {
                    plan.take(&gpus);
                    plan.move_to(job, gpus);
                    self.moved.push(job);
                }
                Some(gpus) => {
                    places.note_start(job);
                    plan.take(&gpus);
                    plan.start(job, gpus);
                    self.started.push(job);
                }
                None => {
                    is_settled = false;
                    self.refuse(admission);
                }
            }
        }
        self.admitted = admitted;
        if is_settled {
            for dropped in &self.dropped {
                plan.preempt(dropped.key.job());
                self.stopped.push(dropped.key.job());
            }
        } else {
            self.rehome(view, plan, places);
        }
        is_settled
    }

    /// The same where the rule refuses nobody and nobody moves: the dropped stop, the admitted start.
    fn settle_all(&mut self, plan: &mut Plan<'_>, places: &mut Places) {
        for dropped in &self.dropped {
            plan.release(dropped.key.job());
            plan.preempt(dropped.key.job());
            self.stopped.push(dropped.key.job());
        }
        for &Admission {
            class,
            gpu_type,
            key,
            ..
        } in &self.admitted
        {
            let found = places.place_on(plan.free(), class, key.job(), gpu_type);
            let gpus = found.expect("enough GPUs are free, and the rule asks for no more");
            places.note_start(key.job());
            plan.take(&gpus);
            plan.start(key.job(), gpus);
            self.started.push(key.job());
        }
    }

    /// The placement rule has no place for an admitted job: it has no GPUs, as before or from now on.
    fn refuse(&mut self, admission: &Admission) {
        let &Admission {
            class,
            key,
            is_running,
            ..
        } = admission;
        if is_running {
            self.dropped.push(Dropped {
                key,
                is_counted: true,
            });
            return;
        }
        let gpus = self.gpus(key.job());
        self.running.remove(self.ledger.key(key.job()), gpus);
        self.ledger.push(class, key);
    }

    /// Step 4 over the dropped jobs and the heads of the classes.
    fn rehome(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>, places: &mut Places) {
        let now = view.now().0;
        let ranked = self.dropped.drain(..).map(|dropped| {
            let gpus = view.jobs().gpus(dropped.key.job());
            (self.measure.running(dropped.key, gpus, now), dropped)
        });
        let mut dropped: Vec<(Rank, Dropped)> = ranked.collect();
        dropped.sort_unstable_by_key(|(rank, _)| *rank);
        let free = plan.free();
        self.collect_heads(places, |class| places.can(free, class));
        let mut homeless = dropped.into_iter().peekable();
        loop {
            let head = self.heads.peek().map(|&Reverse(head)| head);
            match (homeless.peek().copied(), head) {
                (None, None) => break,
                (Some((own, next)), head) if head.is_none_or(|(head, _)| own < head) => {
                    homeless.next();
                    self.keep_or_stop(view, plan, next);
                }
                (_, Some((rank, class))) => {
                    self.heads.pop();
                    let job = JobId(rank.job);
                    if places.start_job(plan, class, job) {
                        let key = self.ledger.pop(class).expect("its head has just started");
                        self.count_in(key, places.classes().get(class).gpus, now);
                        self.started.push(job);
                        self.push_head(class, places);
                    }
                }
                (Some(_), None) => unreachable!("without a head the dropped job comes first"),
            }
        }
    }

    fn keep_or_stop(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>, dropped: Dropped) {
        let job = dropped.key.job();
        let gpus = view.jobs().gpus(job);
        let old = view.run(job).expect("a running job").gpus();
        if plan.free().is_free(old) {
            plan.take(old);
            if !dropped.is_counted {
                self.ledger.set(dropped.key, Stand::Running);
                self.running.insert(dropped.key, gpus);
            }
            return;
        }
        if dropped.is_counted {
            self.running.remove(dropped.key, gpus);
            self.ledger.set(self.ledger.key(job), Stand::Nowhere);
        }
        plan.preempt(job);
        self.stopped.push(job);
    }
}
