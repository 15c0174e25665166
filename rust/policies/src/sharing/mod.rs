//! `sjf-ffs` and `sjf-bsbf`: shortest job first without preemption; a job that finds no free GPUs may share those of
//! running jobs. SJF-FFS shares wherever there is room, SJF-BSBF where that lowers the mean completion time of the
//! two (arXiv 2407.13088). What is the paper's and what is ours: `docs/policies/sjf-bsbf.md`.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | `L` | `Sharing::queue` | isolated duration, the key of the queue |
//! | `A`, `B` | `Pair::{new_s, resident_s}` | time alone of newcomer and resident |
//! | `xi_A`, `xi_B` | `Pair::{xi_new, xi_resident}` | slowdown factors of the two |
//! | `g` | `Pair::inflation` | iteration time at the sub-batch over that at full batch |
//! | `c` | `Pair::threshold` | sharing pays if and only if B > c A |
//!
//! A decision looks at every GPU once, and for each job that is tried at all residents of its GPU types.

mod floor;
mod pair;
mod params;
mod search;

pub use pair::Pair;
pub use params::{
    BenefitParams, FreePick, Gather, Key, PartnerTime, Retest, SharingParams, SubBatchRule,
};

use floor::{Floor, Resident, set_of};
use gangline_engine::{
    Changes, ClusterView, Knowledge, Next, Plan, Policy, PolicyError, PolicyTraits,
};
use gangline_model::{Action, GpuTypeId, JobId, Terms, span_of_work};
use search::{Found, Newcomer, ladder};
use std::collections::BTreeSet;

/// The policies.
#[derive(Debug)]
pub struct Sharing {
    params: SharingParams,
    /// Waiting jobs by length, then arrival.
    queue: BTreeSet<(i128, JobId)>,
    /// Newcomers that have to wait although there would be room beside others.
    refused: u64,
}

impl Sharing {
    /// A queue.
    pub fn new(params: SharingParams) -> Self {
        Self {
            params,
            queue: BTreeSet::new(),
            refused: 0,
        }
    }

    fn length(&self, view: &ClusterView<'_>, job: JobId) -> Result<i128, PolicyError> {
        let length = i128::from(self.params.seen.duration(view, job)?.0);
        Ok(match self.params.key {
            Key::Time => length,
            Key::GpuTime => length * i128::from(view.jobs().gpus(job)),
        })
    }

    /// Sub-batches that a job may take; the last needs the least memory.
    fn ladder(&self, view: &ClusterView<'_>, job: JobId) -> Vec<u32> {
        let least = self.params.benefit.and_then(|rule| rule.min_sub_batch);
        ladder(view.jobs().batch_size(job), least)
    }

    /// Running jobs with a sub-batch and GPUs of their own.
    fn alone(&self, view: &ClusterView<'_>) -> Vec<JobId> {
        if self
            .params
            .benefit
            .is_none_or(|rule| !rule.restore_sub_batch)
        {
            return Vec::new();
        }
        let is_alone = |&job: &JobId| {
            let part = view.run(job).expect("a running job").only();
            let batch = view.jobs().batch_size(job);
            part.sub_batch > 0 && part.sub_batch < batch && view.partners(job, part).is_empty()
        };
        view.running().filter(is_alone).collect()
    }

    /// Tries one job; whether it starts.
    fn try_job(
        &self,
        view: &ClusterView<'_>,
        floor: &mut Floor,
        plan: &mut Plan<'_>,
        job: JobId,
    ) -> Result<bool, PolicyError> {
        for gpu_type in view.types_of(job) {
            if let Some(found) = self.place(view, floor, job, gpu_type)? {
                start_on(view, floor, plan, job, &found)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn place(
        &self,
        view: &ClusterView<'_>,
        floor: &Floor,
        job: JobId,
        gpu_type: GpuTypeId,
    ) -> Result<Option<Found>, PolicyError> {
        let need = view.jobs().gpus(job) as usize;
        if let Some(gpus) = floor.exclusive(gpu_type, need, self.params.free_pick) {
            return Ok(Some(Found { gpus, sub_batch: 0 }));
        }
        if view.max_share() < 2 {
            return Ok(None);
        }
        let newcomer = Newcomer {
            view,
            floor,
            gather: self.params.gather,
            job,
            gpu_type,
            seen: self.params.seen,
        };
        match &self.params.benefit {
            None => Ok(newcomer.first_fit()),
            Some(rule) => newcomer.best_benefit(rule),
        }
    }

    /// Whether there are GPUs for a job if nobody asks whether that pays.
    fn has_room(&self, view: &ClusterView<'_>, floor: &Floor, job: JobId) -> bool {
        let least = self.ladder(view, job).last().copied().unwrap_or(0);
        let bytes = view.memory_bytes(job, least);
        let need = view.jobs().gpus(job) as usize;
        view.types_of(job).any(|gpu_type| {
            let capacity = view.cluster().gpu_types()[gpu_type.index()].memory_bytes;
            floor.usable(gpu_type, bytes, capacity) >= need
        })
    }

    /// Counts the arrivals that wait although there is room beside others.
    fn count_refused(
        &mut self,
        view: &ClusterView<'_>,
        floor: &Floor,
        changes: &Changes,
        blocked: Option<JobId>,
    ) -> Result<(), PolicyError> {
        if view.max_share() < 2 {
            return Ok(());
        }
        for &job in &changes.arrived {
            let waits = self.queue.contains(&(self.length(view, job)?, job));
            let was_asked = !self.params.block || blocked == Some(job);
            if waits && was_asked && self.has_room(view, floor, job) {
                self.refused += 1;
            }
        }
        Ok(())
    }
}

/// Starts a job; until its rate is settled it counts as if alone.
fn start_on(
    view: &ClusterView<'_>,
    floor: &mut Floor,
    plan: &mut Plan<'_>,
    job: JobId,
    found: &Found,
) -> Result<(), PolicyError> {
    let gpus = set_of(&found.gpus);
    let rate = view.rate_alone(job, &gpus) / view.inflation(job, found.sub_batch);
    let span = span_of_work(view.remaining_work(job)?, rate);
    let resident = Resident {
        finish: view.now() + view.overhead(job) + span,
        xi: 1.0,
        bytes: view.memory_bytes(job, found.sub_batch),
    };
    floor.place(job, &found.gpus, resident);
    let terms = Terms {
        sub_batch: (found.sub_batch > 0).then_some(found.sub_batch),
        ..Terms::default()
    };
    plan.push(Action::start(job, gpus).with(terms));
    Ok(())
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
                    "2, as its pair rule is for two jobs (sjf and sjf-ffs run without sharing)"
                        .to_owned(),
            });
        }
        Ok(Vec::new())
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        for &job in changes.requeued.iter().chain(&changes.arrived) {
            self.queue.insert((self.length(view, job)?, job));
        }
        let restored = self.alone(view);
        for &job in &restored {
            let terms = Terms {
                sub_batch: Some(view.jobs().batch_size(job)),
                ..Terms::default()
            };
            plan.keep(job, terms);
        }
        let mut floor = Floor::new(view, &restored);
        let candidates: Vec<(i128, JobId)> = if self.params.retests_all || changes.has_room() {
            self.queue.iter().copied().collect()
        } else {
            let arrived = changes.arrived.iter();
            let found: Result<BTreeSet<_>, PolicyError> = arrived
                .map(|&job| Ok((self.length(view, job)?, job)))
                .collect();
            found?.into_iter().collect()
        };
        let mut blocked = None;
        for entry in candidates {
            if self.try_job(view, &mut floor, plan, entry.1)? {
                self.queue.remove(&entry);
            } else if self.params.block {
                blocked = Some(entry.1);
                break;
            }
        }
        self.count_refused(view, &floor, changes, blocked)?;
        Ok(Next::Ask)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("shares_refused", self.refused)]
    }
}
