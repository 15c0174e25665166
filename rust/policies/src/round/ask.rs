//! The request to an allocator, and the order of GPU types that follows from it.

use crate::kit::{Owners, Places, QueueBy, Seen};
use gangline_allocation::Ask;
use gangline_engine::{ClusterView, PolicyError, PresentPhase};
use gangline_model::{GpuTypeId, JobFacts, JobId, SimTime};
use std::collections::BTreeMap;

pub(crate) fn types(view: &ClusterView<'_>) -> impl Iterator<Item = GpuTypeId> + use<> {
    (0..view.cluster().gpu_types().len()).map(GpuTypeId::new)
}

/// The rates and steps of the jobs, from which shares are computed.
#[derive(Clone, Copy)]
pub(crate) struct Planned<'a> {
    pub(crate) view: &'a ClusterView<'a>,
    pub(crate) places: &'a Places,
    /// Whether jobs whose rate changes are described by the rate and the steps of their current phase.
    pub(crate) follows_phases: bool,
}

impl<'a> Planned<'a> {
    #[inline]
    fn phase(self, job: JobId) -> Option<PresentPhase> {
        if self.follows_phases {
            self.view.present_phase(job)
        } else {
            None
        }
    }

    /// Returns the rate of a gang on a type; 0 if the gang can have no place there.
    #[inline]
    pub(super) fn rate(self, job: JobId, gpu_type: GpuTypeId) -> f64 {
        let base = self.places.rate(self.view, job, gpu_type);
        let phase = self.phase(job);
        phase.map_or(base, |phase| base * (phase.factor / phase.step_size))
    }

    fn steps(self, job: JobId, work: f64) -> f64 {
        let phase = self.phase(job);
        phase.map_or(work, |phase| work / phase.step_size)
    }

    /// Returns the index of each job's current phase if plans depend on phases; otherwise an empty list.
    pub(super) fn phases(self, jobs: &'a [JobId]) -> impl Iterator<Item = usize> + 'a {
        let jobs = if self.follows_phases { jobs } else { &[] };
        let number = move |&job: &JobId| self.phase(job).map_or(0, |phase| phase.number);
        jobs.iter().map(number)
    }
}

/// Describes the active jobs to the allocator; `running` returns the type on which a job runs because of its share.
pub(crate) fn ask(
    planned: Planned<'_>,
    active: impl ExactSizeIterator<Item = JobId>,
    knows_work: bool,
    running: impl Fn(JobId) -> Option<GpuTypeId>,
) -> Result<Ask, PolicyError> {
    let view = planned.view;
    let columns = view.jobs().columns();
    let (now, jobs) = (view.now(), active.len());
    let mut ask = Ask {
        now,
        seed: view.seed(),
        jobs: Vec::with_capacity(jobs),
        rates: Vec::with_capacity(jobs * view.cluster().gpu_types().len()),
        gangs: Vec::with_capacity(jobs),
        weights: Vec::with_capacity(jobs),
        age_s: Vec::with_capacity(jobs),
        running: Vec::with_capacity(jobs),
        capacity: types(view).map(|t| f64::from(view.gpus_up(t))).collect(),
        ..Ask::default()
    };
    for job in active {
        ask.jobs.push(job);
        let rates = types(view).map(|t| planned.rate(job, t));
        ask.rates.extend(rates);
        ask.gangs.push(f64::from(view.jobs().gpus(job)));
        let weight = columns.weight.as_ref().map_or(1.0, |all| all[job.index()]);
        ask.weights.push(weight);
        let age = now.0 - view.jobs().arrival(job).0;
        ask.age_s.push(age as f64 / 1e9);
        if knows_work {
            let left = Seen::AS_TOLD.work_left(view, job)?;
            ask.remaining.push(planned.steps(job, left));
            if !view.tells_exactly() {
                let left = view.remaining_work(job)?;
                ask.true_remaining.push(planned.steps(job, left));
            }
        }
        if let Some(deadlines) = &columns.deadline {
            let deadline = deadlines[job.index()];
            ask.time_left_s.push(if deadline == SimTime::NEVER {
                f64::INFINITY
            } else {
                (deadline.0 - now.0) as f64 / 1e9
            });
        }
        ask.running.push(running(job));
    }
    Ok(ask)
}

/// Returns the types in order of total speedup. The total speedup of a type is the sum, over all jobs, of a job's rate
/// on the type divided by its average rate. Ties are broken by index. `rates` is a row-major table, `jobs x types`.
pub(super) fn order_of_types(capacity: &[f64], rates: impl Iterator<Item = f64>) -> Vec<GpuTypeId> {
    let types = capacity.len();
    let gpus: f64 = capacity.iter().sum();
    let mut better = vec![0.0; types];
    let (mut rates, mut row) = (rates, Vec::with_capacity(types));
    loop {
        row.clear();
        row.extend(rates.by_ref().take(types));
        if row.is_empty() {
            break;
        }
        let mut average = 0.0;
        for (rate, own) in row.iter().zip(capacity) {
            average += rate * own;
        }
        average = if gpus > 0.0 { average / gpus } else { 0.0 }; // Every server may be down.
        if average > 0.0 {
            for (sum, rate) in better.iter_mut().zip(&row) {
                *sum += rate / average;
            }
        }
    }
    let mut order: Vec<usize> = (0..types).collect();
    // With this rounding, sums of the same numbers in different orders compare equal.
    let rank = |at: usize| (better[at] * 1e9).round();
    order.sort_by(|&a, &b| rank(b).total_cmp(&rank(a)).then(a.cmp(&b)));
    order.into_iter().map(GpuTypeId::new).collect()
}

// An entity is a group of jobs of one user or virtual cluster that share one weight.

/// Parameters of the entities.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EntityParams {
    /// The label that defines an entity.
    pub by: QueueBy,
    /// Weights, keyed by name; `None` means equal weights.
    pub weights: Option<BTreeMap<String, f64>>,
}

/// The entities of a trace; empty if the policy has none.
#[derive(Debug, Default)]
pub(super) struct Entities {
    of: Vec<u32>,
    weights: Vec<f64>,
}

impl Entities {
    /// Determines the entities of the trace.
    pub(super) fn new(
        params: &EntityParams,
        policy: &str,
        jobs: &JobFacts,
    ) -> Result<Self, PolicyError> {
        let bad = |field: &str, value: String, expected: String| PolicyError::Parameter {
            policy: policy.to_owned(),
            field: field.to_owned(),
            value,
            expected,
        };
        let Some(owners) = Owners::of(jobs, params.by) else {
            let name = params.by.name();
            let expected =
                format!("a trace that names a {name} for its jobs, or hierarchical = false");
            return Err(bad("entity_by", name.to_owned(), expected));
        };
        let weights = match &params.weights {
            None => vec![1.0; owners.names.len()],
            Some(table) => {
                let lacks = owners.names.iter().find(|&name| !table.contains_key(name));
                if let Some(name) = lacks {
                    let known: Vec<&str> = table.keys().map(String::as_str).collect();
                    let expected = format!(
                        "a weight for entity `{name}` as well, because the trace has jobs of this entity"
                    );
                    return Err(bad("entity_weight", known.join(", "), expected));
                }
                owners.names.iter().map(|name| table[name]).collect()
            }
        };
        Ok(Self {
            of: owners.number,
            weights,
        })
    }

    /// Adds the entities to an allocator's request.
    pub(super) fn tell(&self, ask: &mut Ask) {
        if !self.of.is_empty() {
            ask.entities = ask.jobs.iter().map(|job| self.of[job.index()]).collect();
            ask.entity_weights.clone_from(&self.weights);
        }
    }
}
