//! `sjf-ffs` and `sjf-bsbf`: shortest job first without preemption. If a job does not find enough free GPUs, it may
//! share GPUs with running jobs. Under SJF-FFS, jobs share wherever there is room. Under SJF-BSBF, two jobs share where
//! that lowers their mean completion time (arXiv 2407.13088). `docs/policies/sjf-bsbf.md` separates the paper's rules
//! from our own choices.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | `L` | `Sharing::queue` | isolated duration, which is the key of the queue |
//! | `A`, `B` | `Pair::{new_s, resident_s}` | time that the new job and the resident would each need alone |
//! | `xi_A`, `xi_B` | `Pair::{xi_new, xi_resident}` | slowdown factors of the two jobs |
//! | `g` | `Pair::inflation` | iteration time with the sub-batch divided by the iteration time with the full batch |
//! | `c` | `Pair::threshold` | sharing pays off if and only if B > c A |
//!
//! A decision tries the first job of each class of waiting jobs ([`waiting`]) and finds partners by searches in ordered
//! sets ([`partners`]). A decision never scans all residents or all GPUs. `tests/reference/sjf_bsbf.py` implements the
//! same rules with full scans.

mod params;
mod partners;
mod residents;
mod search;
mod waiting;

pub use params::{
    BenefitParams, FreePick, Gather, PartnerTime, QueueKey, Retest, SharingParams, SubBatchRule,
};
pub use partners::Pair;

use crate::kit::why::{BEHIND, NO_PLACE};
use gangline_engine::{
    Cause, Changes, ClusterView, Knowledge, Next, Plan, Policy, PolicyError, PolicyTraits, Reason,
};
use gangline_model::{GpuTypeId, JobId, Terms};
use residents::{Residents, Stay};
use search::{Found, Newcomer, Reach, ladder};
use std::cmp::Reverse;
use waiting::{Queue, Waiter};

/// Some running jobs have room on their GPUs, but the policy lets the job share with none of them.
pub(crate) static NO_PARTNER: Reason = Reason::new(
    "no partner",
    "some running jobs have room on their GPUs, but the policy lets it share with none of them",
    "some running jobs had room on their GPUs, but the policy's rule did not let it share with any of them",
);

/// The policy `sjf-ffs` or `sjf-bsbf`, depending on the parameters.
#[derive(Debug)]
pub struct Sharing {
    params: SharingParams,
    queue: Queue,
    residents: Residents,
    /// Number of jobs that had to wait on arrival although other jobs had room on their GPUs.
    refused: u64,
}

impl Sharing {
    /// Creates a policy with these parameters.
    pub fn new(params: SharingParams) -> Self {
        Self {
            params,
            queue: Queue::default(),
            residents: Residents::default(),
            refused: 0,
        }
    }

    /// Updates the records of the residents that have started or whose rates have changed, and removes the jobs that
    /// have left. Returns the jobs that lost a co-runner; a job may be listed more than once.
    fn follow(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
    ) -> Result<Vec<JobId>, PolicyError> {
        for &job in changes.started.iter().chain(&changes.retimed) {
            if let (Some(run), Some(finish)) = (view.run(job), view.finish(job)?) {
                let part = run.only();
                let stay = Stay {
                    finish,
                    xi: part.xi,
                    bytes: view.memory_bytes(job, part.sub_batch),
                };
                self.residents.set_stay(job, stay);
            }
        }
        let mut left = Vec::new();
        for &job in changes.finished.iter().chain(&changes.requeued) {
            self.residents.end(view, job, &mut left);
        }
        Ok(left)
    }

    /// Restores the full batch of the jobs whose last co-runner has left. From this decision on, these jobs need the
    /// memory and the time of the full batch.
    fn restore(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        mut left: Vec<JobId>,
    ) -> Result<(), PolicyError> {
        let rule = self.params.benefit.as_ref();
        if !rule.is_some_and(|rule| rule.restore_sub_batch) {
            return Ok(());
        }
        left.sort_unstable();
        left.dedup();
        for job in left {
            let batch = view.jobs().batch_size(job);
            let sub_batch = view.sub_batch(job);
            if sub_batch == 0 || sub_batch >= batch || !self.residents.is_alone(job) {
                continue;
            }
            let terms = Terms {
                sub_batch: Some(batch),
                ..Terms::default()
            };
            plan.keep(job, terms);
            let part = view.run(job).expect("a running job").only();
            let rate = view.rate_alone(job, &part.gpus);
            let stay = Stay {
                finish: part.progress_start.max(view.now()) + view.span_at(job, rate)?,
                xi: 1.0,
                bytes: view.memory_bytes(job, 0),
            };
            self.residents.set_stay(job, stay);
        }
        Ok(())
    }

    /// Tries to start one job. Returns whether the job starts.
    fn try_job(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        job: JobId,
    ) -> Result<bool, PolicyError> {
        let rule = self.params.benefit.as_ref();
        let rule = rule.filter(|rule| rule.compare_types);
        let mut best: Option<(f64, Found)> = None;
        for gpu_type in view.types_of(job) {
            let newcomer = self.newcomer(view, plan, job, gpu_type);
            let Some(found) = self.place(newcomer)? else {
                continue;
            };
            let Some(rule) = rule else {
                self.start_on(view, plan, job, found)?;
                return Ok(true);
            };
            let added_s = newcomer.added_s(rule, &found)?;
            if best.as_ref().is_none_or(|&(least, _)| added_s < least) {
                best = Some((added_s, found));
            }
        }
        let Some((_, found)) = best else {
            return Ok(false);
        };
        self.start_on(view, plan, job, found)?;
        Ok(true)
    }

    fn newcomer<'a>(
        &'a self,
        view: &'a ClusterView<'a>,
        plan: &'a mut Plan<'_>,
        job: JobId,
        gpu_type: GpuTypeId,
    ) -> Newcomer<'a> {
        Newcomer {
            view,
            free: plan.free(),
            residents: &self.residents,
            gather: self.params.gather,
            seen: self.params.seen,
            job,
            gpu_type,
        }
    }

    /// Returns a place on one type: free GPUs if there are enough, otherwise shared GPUs.
    fn place(&self, newcomer: Newcomer<'_>) -> Result<Option<Found>, PolicyError> {
        if let Some(gpus) = newcomer.exclusive(self.params.free_pick) {
            let free = Found { gpus, sub_batch: 0 };
            let rule = self.params.benefit.filter(|rule| rule.compare_spread);
            if let Some(rule) = rule.filter(|_| free.gpus.by_server().len() > 1)
                && let Some(near) = newcomer.best_benefit(&rule, Reach::OneServer)?
                && newcomer.added_s(&rule, &near)? < newcomer.added_s(&rule, &free)?
            {
                return Ok(Some(near));
            }
            return Ok(Some(free));
        }
        if newcomer.view.max_share() < 2 {
            return Ok(None);
        }
        match &self.params.benefit {
            None => Ok(newcomer.first_fit()),
            Some(rule) => newcomer.best_benefit(rule, Reach::All),
        }
    }

    /// Starts a job. Until the next decision, the records ignore that the job and its co-runners slow each other down.
    fn start_on(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        job: JobId,
        found: Found,
    ) -> Result<(), PolicyError> {
        let Found { gpus, sub_batch } = found;
        let rate = view.rate_alone(job, &gpus) / view.inflation_on(job, sub_batch, &gpus);
        let span = view.span_at(job, rate)?;
        let stay = Stay {
            finish: view.now() + view.overhead_at(job, &gpus) + span,
            xi: 1.0,
            bytes: view.memory_bytes(job, sub_batch),
        };
        let class = view.pair_class(job);
        self.residents.start(job, &gpus, (class, stay));
        let terms = Terms {
            sub_batch: (sub_batch > 0).then_some(sub_batch),
            ..Terms::default()
        };
        plan.start_on(job, gpus, terms);
        Ok(())
    }

    /// Tries every class of waiting jobs, the shortest job first. Returns the job that could not start and therefore
    /// ended the decision, if there is one.
    fn try_all(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Option<JobId>, PolicyError> {
        let mut heads = self.queue.heads();
        while let Some(Reverse(waiter)) = heads.pop() {
            if self.try_job(view, plan, waiter.job)? {
                self.queue.remove(waiter);
                heads.extend(self.queue.first(waiter.class).map(Reverse));
            } else if self.params.block {
                return Ok(Some(waiter.job));
            }
        }
        Ok(None)
    }

    /// Tries the jobs that have just arrived. No GPUs were released, so jobs that were already waiting continue to
    /// wait.
    fn try_some(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        arrived: &mut [Waiter],
    ) -> Result<(), PolicyError> {
        arrived.sort_unstable();
        let mut refused = Vec::new();
        for &mut waiter in arrived {
            if refused.contains(&waiter.class) {
                continue;
            }
            if self.try_job(view, plan, waiter.job)? {
                self.queue.remove(waiter);
            } else {
                refused.push(waiter.class);
            }
        }
        Ok(())
    }

    /// Counts the newly arrived jobs that wait although other jobs have room on their GPUs.
    fn count_refused(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        arrived: &[Waiter],
        blocked: Option<JobId>,
    ) {
        if view.max_share() < 2 {
            return;
        }
        let least = self.params.benefit.and_then(|rule| rule.min_sub_batch);
        for &waiter in arrived {
            let job = waiter.job;
            let was_asked = !self.params.block || blocked == Some(job);
            if !was_asked || !self.queue.contains(waiter) {
                continue;
            }
            let ladder = ladder(view.jobs().batch_size(job), least);
            let sub_batch = ladder.last().copied().unwrap_or(0);
            let mut types = view.types_of(job);
            let has_room = types.any(|gpu_type| {
                let newcomer = self.newcomer(view, plan, job, gpu_type);
                newcomer.has_room(sub_batch)
            });
            self.refused += u64::from(has_room);
        }
    }
}

impl Policy for Sharing {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            knowledge: Knowledge::Remaining,
            max_share: 2,
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        _plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        if self.params.benefit.is_some() && view.max_share() < 2 {
            return Err(PolicyError::Parameter {
                policy: "sjf-bsbf".to_owned(),
                field: "max_share".to_owned(),
                value: view.max_share().to_string(),
                expected:
                    "2, because its pair rule needs two jobs on a GPU (sjf and sjf-ffs run without sharing)"
                        .to_owned(),
            });
        }
        let rule = self.params.benefit.as_ref();
        let by_slowdown = rule.is_none_or(|rule| rule.partner_time != PartnerTime::Current);
        let orders_servers = rule.is_none() || self.params.free_pick == FreePick::FewResidents;
        self.residents = Residents::new(view, by_slowdown, orders_servers);
        Ok(Vec::new())
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        let left = self.follow(view, changes)?;
        self.restore(view, plan, left)?;
        for &job in &changes.requeued {
            self.queue.add(view, &self.params, job)?;
        }
        let arrived = changes.arrived.iter();
        let mut arrived: Vec<Waiter> = arrived
            .map(|&job| self.queue.add(view, &self.params, job))
            .collect::<Result<_, _>>()?;
        let mut blocked = None;
        if self.params.retests_all || changes.has_room() {
            blocked = self.try_all(view, plan)?;
        } else {
            self.try_some(view, plan, &mut arrived)?;
        }
        self.count_refused(view, plan, &arrived, blocked);
        Ok(Next::Ask)
    }

    fn reasons(&self) -> Vec<&'static Reason> {
        vec![&BEHIND, &NO_PLACE, &NO_PARTNER]
    }

    fn why(&self, view: &ClusterView<'_>, job: JobId) -> Option<Cause> {
        if self.params.block {
            let head = self.queue.heads().pop().map(|Reverse(first)| first.job);
            if let Some(head) = head.filter(|&head| head != job) {
                return Some(Cause::of(&BEHIND, head));
            }
        }
        let least = self.params.benefit.and_then(|rule| rule.min_sub_batch);
        let smallest = ladder(view.jobs().batch_size(job), least).last().copied();
        let bytes = view.memory_bytes(job, smallest.unwrap_or(0));
        let gang = view.jobs().gpus(job);
        let has_room = |gpu_type| view.open_gpus(gpu_type, bytes) >= gang;
        let may_share = view.max_share() > 1 && view.types_of(job).any(has_room);
        Some(if may_share {
            Cause::new(&NO_PARTNER)
        } else {
            Cause::new(&NO_PLACE)
        })
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("shares_refused", self.refused)]
    }
}
