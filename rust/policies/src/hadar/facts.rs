//! The properties of a job that do not change after its arrival.

use super::params::Utility;
use crate::kit::Seen;
use gangline_engine::{ClusterView, PolicyError};
use gangline_model::{GpuTypeId, JobId, SimSpan, SimTime};
use smallvec::SmallVec;

/// Gang rates by GPU type.
pub(crate) type Rates = SmallVec<[(GpuTypeId, f64); 4]>;

/// A GPU type that a job can use, with the job's rate and run time on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TypeFacts {
    pub(crate) id: GpuTypeId,
    /// Rate of the whole gang on this type.
    pub(crate) rate: f64,
    /// `t_min`: time that all the work of the job takes on this type.
    pub(crate) time_s: f64,
}

/// The constants of one job.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) job: JobId,
    pub(crate) arrival: SimTime,
    pub(crate) gpus: u32,
    /// `A` of the utility `U = A / d`.
    pub(crate) numerator: f64,
    /// Usable types, sorted by the rate of one worker (fastest first), then by index.
    pub(crate) types: SmallVec<[TypeFacts; 4]>,
    /// Gang rate on the fastest usable type.
    pub(crate) best_rate: f64,
    /// `t_max`: number of time slots that the job needs on its slowest usable type.
    pub(super) slots_max: u128,
}

impl Facts {
    /// Computes the constants of a job from its rates on GPU types or on groups of servers.
    pub(crate) fn new(
        view: &ClusterView<'_>,
        (utility, round): (Utility, SimSpan),
        (job, gpus): (JobId, u32),
        mut rates: Rates,
        isolated_s: Option<f64>,
    ) -> Result<Self, PolicyError> {
        let work = Seen::AS_TOLD.work(view, job)?;
        let per_gpu = |rate: f64| rate / f64::from(gpus);
        rates.sort_by(|a, b| per_gpu(b.1).total_cmp(&per_gpu(a.1)).then(a.0.cmp(&b.0)));
        let all = || rates.iter().map(|&(_, rate)| rate);
        let best_rate = all().fold(0.0, f64::max);
        let slowest = all().fold(f64::INFINITY, f64::min);
        let slots_max = libm::ceil(work / (slowest * round.seconds()));
        let numerator = match utility {
            Utility::EffectiveThroughput => work,
            Utility::Normalised | Utility::Makespan => work / best_rate,
            Utility::InverseJct => 1.0,
            Utility::FinishTimeFairness => isolated_s.unwrap_or(work / best_rate),
        };
        let types = rates.iter().map(|&(id, rate)| TypeFacts {
            id,
            rate,
            time_s: work / rate,
        });
        Ok(Self {
            job,
            arrival: view.jobs().arrival(job),
            gpus,
            numerator,
            types: types.collect(),
            best_rate,
            slots_max: (slots_max as u128).max(1),
        })
    }

    /// Returns `t_max x W`, the GPU-slots that the job needs on its slowest usable type.
    #[inline]
    pub(super) fn gpu_slots_max(&self) -> f64 {
        self.slots_max.saturating_mul(u128::from(self.gpus)) as f64
    }

    /// Returns the usable types as a bit mask.
    pub(super) fn type_mask(&self) -> u64 {
        self.types
            .iter()
            .fold(0, |mask, one| mask | 1 << one.id.index())
    }

    /// Returns the values that determine the utility per GPU of a waiting job.
    pub(super) fn line(&self, remaining: f64) -> Line {
        Line {
            job: self.job,
            arrival: self.arrival,
            gpus: self.gpus,
            numerator: self.numerator,
            left_s: remaining / self.best_rate,
        }
    }
}

/// The inverse of a waiting job's utility per GPU is linear in time: `W (now - a + left) / A`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) job: JobId,
    pub(super) arrival: SimTime,
    pub(super) gpus: u32,
    pub(super) numerator: f64,
    /// Time that the remaining work takes on the fastest type.
    pub(super) left_s: f64,
}

impl Line {
    /// Returns the job's utility per GPU if it runs at its best rate from now on.
    #[inline]
    pub(super) fn density(&self, now: SimTime) -> f64 {
        let seconds = (now - self.arrival).seconds() + self.left_s;
        self.numerator / seconds / f64::from(self.gpus)
    }
}

/// Returns the gang's rates on the allowed types with enough memory, regardless of how many GPUs of each type exist.
pub(super) fn gang_rates(view: &ClusterView<'_>, job: JobId) -> Rates {
    let jobs = view.jobs();
    let (allowed, memory) = (jobs.allowed_types(job), jobs.memory_bytes(job));
    let types = view.cluster().gpu_types().iter().enumerate();
    let fits = types.filter(|(at, one)| allowed >> at & 1 == 1 && one.memory_bytes >= memory);
    fits.map(|(at, _)| GpuTypeId::new(at))
        .map(|id| (id, view.base_rate(job, id)))
        .filter(|&(_, rate)| rate > 0.0)
        .collect()
}
