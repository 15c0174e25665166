//! The decisions of `sjf-ffs` and `sjf-bsbf` by full scans: every waiting job, every GPU, every resident. It keeps
//! nothing between decisions, so there is nothing that it could miss.

mod floor;
mod search;

use super::params::{Key, SharingParams};
use super::search::{Reach, ladder};
use floor::{Floor, Resident, set_of};
use gangline_engine::{Changes, ClusterView, PolicyError};
use gangline_model::{Action, GpuTypeId, JobId, Terms, span_of_work};
use search::{Found, Newcomer};
use std::collections::BTreeSet;

/// What a decision comes to: its actions, and the newcomers that wait although there is room.
pub(super) struct Decided {
    pub(super) actions: Vec<Action>,
    pub(super) refused: u64,
}

/// One decision.
struct Scans<'a> {
    view: &'a ClusterView<'a>,
    params: &'a SharingParams,
    floor: Floor,
    actions: Vec<Action>,
}

/// Decides as the policy should.
pub(super) fn decide(
    view: &ClusterView<'_>,
    params: &SharingParams,
    changes: &Changes,
) -> Result<Decided, PolicyError> {
    let restored = restored(view, params);
    let actions = restored.iter().map(|&job| {
        let terms = Terms {
            sub_batch: Some(view.jobs().batch_size(job)),
            ..Terms::default()
        };
        Action::keep(job, terms)
    });
    let mut scans = Scans {
        view,
        params,
        floor: Floor::new(view, &restored),
        actions: actions.collect(),
    };
    let is_asked =
        |job: &JobId| params.retests_all || changes.has_room() || changes.arrived.contains(job);
    let mut queue = BTreeSet::new();
    for job in view.waiting().filter(is_asked) {
        queue.insert((length(view, params, job)?, job));
    }
    let mut started = BTreeSet::new();
    let mut blocked = None;
    for (_, job) in queue {
        if scans.try_job(job)? {
            started.insert(job);
        } else if params.block {
            blocked = Some(job);
            break;
        }
    }
    let mut refused = 0;
    for &job in &changes.arrived {
        let was_asked = !params.block || blocked == Some(job);
        // a job that can never run here does not wait
        let waits = view.waiting().any(|other| other == job) && !started.contains(&job);
        refused += u64::from(was_asked && waits && scans.has_room(job));
    }
    Ok(Decided {
        actions: scans.actions,
        refused,
    })
}

fn length(view: &ClusterView<'_>, params: &SharingParams, job: JobId) -> Result<i128, PolicyError> {
    let length = i128::from(params.seen.duration(view, job)?.0);
    Ok(match params.key {
        Key::Time => length,
        Key::GpuTime => length * i128::from(view.jobs().gpus(job)),
    })
}

/// Running jobs with a sub-batch and GPUs of their own.
fn restored(view: &ClusterView<'_>, params: &SharingParams) -> Vec<JobId> {
    if params.benefit.is_none_or(|rule| !rule.restore_sub_batch) {
        return Vec::new();
    }
    let is_alone = |&job: &JobId| {
        let part = view.run(job).expect("a running job").only();
        let batch = view.jobs().batch_size(job);
        part.sub_batch > 0 && part.sub_batch < batch && view.partners(job, part).is_empty()
    };
    view.running().filter(is_alone).collect()
}

impl Scans<'_> {
    /// Tries one job; whether it starts.
    fn try_job(&mut self, job: JobId) -> Result<bool, PolicyError> {
        let mut places = Vec::new();
        for gpu_type in self.view.types_of(job) {
            if let Some(found) = self.place(job, gpu_type)? {
                let added_s = match &self.params.benefit {
                    Some(rule) if rule.compare_types => {
                        self.newcomer(job, gpu_type).added_s(rule, &found)?
                    }
                    _ => 0.0,
                };
                places.push((added_s, found));
            }
        }
        // of equal ones the first
        let best = places.iter().min_by(|a, b| a.0.total_cmp(&b.0));
        let Some((_, found)) = best else {
            return Ok(false);
        };
        self.start_on(job, found)?;
        Ok(true)
    }

    fn newcomer(&self, job: JobId, gpu_type: GpuTypeId) -> Newcomer<'_> {
        Newcomer {
            view: self.view,
            floor: &self.floor,
            gather: self.params.gather,
            job,
            gpu_type,
            seen: self.params.seen,
        }
    }

    fn place(&self, job: JobId, gpu_type: GpuTypeId) -> Result<Option<Found>, PolicyError> {
        let need = self.view.jobs().gpus(job) as usize;
        let newcomer = self.newcomer(job, gpu_type);
        if let Some(gpus) = self.floor.exclusive(gpu_type, need, self.params.free_pick) {
            let is_spread = gpus.iter().any(|gpu| gpu.0 != gpus[0].0);
            let free = Found { gpus, sub_batch: 0 };
            let rule = self.params.benefit.filter(|rule| rule.compare_spread);
            let Some(rule) = rule.filter(|_| is_spread) else {
                return Ok(Some(free));
            };
            let near = newcomer.best_benefit(&rule, Reach::OneServer)?;
            let limit_s = newcomer.added_s(&rule, &free)?;
            return Ok(match near {
                Some(near) if newcomer.added_s(&rule, &near)? < limit_s => Some(near),
                _ => Some(free),
            });
        }
        if self.view.max_share() < 2 {
            return Ok(None);
        }
        match &self.params.benefit {
            None => Ok(newcomer.first_fit()),
            Some(rule) => newcomer.best_benefit(rule, Reach::All),
        }
    }

    fn start_on(&mut self, job: JobId, found: &Found) -> Result<(), PolicyError> {
        let view = self.view;
        let gpus = set_of(&found.gpus);
        let rate = view.rate_alone(job, &gpus) / view.inflation_on(job, found.sub_batch, &gpus);
        let span = span_of_work(view.remaining_work(job)?, rate);
        let resident = Resident {
            finish: view.now() + view.overhead(job) + span,
            xi: 1.0,
            bytes: view.memory_bytes(job, found.sub_batch),
        };
        self.floor.place(job, &found.gpus, resident);
        let terms = Terms {
            sub_batch: (found.sub_batch > 0).then_some(found.sub_batch),
            ..Terms::default()
        };
        self.actions.push(Action::start(job, gpus).with(terms));
        Ok(())
    }

    /// Whether there are GPUs for a job whether that pays or not.
    fn has_room(&self, job: JobId) -> bool {
        let view = self.view;
        let least = self.params.benefit.and_then(|rule| rule.min_sub_batch);
        let ladder = ladder(view.jobs().batch_size(job), least);
        let bytes = view.memory_bytes(job, ladder.last().copied().unwrap_or(0));
        let need = view.jobs().gpus(job) as usize;
        view.max_share() > 1
            && view.types_of(job).any(|gpu_type| {
                let capacity = view.cluster().gpu_types()[gpu_type.index()].memory_bytes;
                self.floor.usable(gpu_type, bytes, capacity) >= need
            })
    }
}
