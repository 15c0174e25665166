//! Elastic jobs (`docs/concepts/elastic-jobs.md`): their rates on any number of GPUs, and the phases of their gradient
//! noise.

use crate::state::State;
use crate::state::running::NewPart;
use gangline_model::{Action, ElasticModel, GpuSet, JobId};

impl State {
    /// Returns the model of a job, if the job is elastic in this run.
    #[inline]
    pub(crate) fn elastic_model(&self, job: JobId) -> Option<&ElasticModel> {
        self.elastic.as_ref()?.get(job)
    }

    /// Returns whether a job is elastic and may hold this number of GPUs.
    #[cold]
    pub(crate) fn may_have(&self, job: JobId, gpus: u32) -> bool {
        self.elastic_model(job).is_some_and(|model| {
            let class = model.class();
            (class.min_gpus..=class.max_gpus).contains(&gpus)
        })
    }

    /// Returns whether an action may give a job a number of GPUs other than its gang size. If the action names no
    /// batch, the batch size in the trace must be possible on these GPUs.
    #[cold]
    pub(crate) fn may_take(&self, action: &Action, gpus: &GpuSet) -> bool {
        let (count, spans) = (gpus.gpus(), gpus.by_server().len() > 1);
        let is_batch = |model: &ElasticModel| {
            action.terms.accum.is_some() || model.frozen(0, count, spans).rate > 0.0
        };
        self.may_have(action.job, count) && self.elastic_model(action.job).is_some_and(is_batch)
    }

    /// Returns the relative speed of the slowest GPU type in a set.
    fn speed_on(&self, gpus: &GpuSet) -> f64 {
        let speed =
            |one: &gangline_model::ServerGpus| self.rates.speed(self.occupancy.type_of(one.server));
        gpus.by_server()
            .iter()
            .map(speed)
            .fold(f64::INFINITY, f64::min)
    }

    /// Returns the rate of an elastic job with this remaining work, at the batch size that a plan names; `None` if the
    /// job's model does not allow this batch size.
    pub(crate) fn elastic_rate(
        &self,
        job: JobId,
        gpus: &GpuSet,
        passes: (u32, u32),
        left: f64,
    ) -> Option<f64> {
        let model = self.elastic_model(job)?;
        let spans = gpus.by_server().len() > 1;
        let phase = model.phase(self.jobs.work(job), left);
        let rate = model.rate(phase, gpus.gpus(), spans, passes)?;
        Some(rate * self.speed_on(gpus))
    }

    /// Returns the base rate of an elastic job on these GPUs with this remaining work.
    pub(crate) fn elastic_base_at(
        &self,
        job: JobId,
        gpus: &GpuSet,
        passes: Option<(u32, u32)>,
        left: f64,
    ) -> Option<f64> {
        let model = self.elastic_model(job)?;
        if passes.is_some() {
            return self.elastic_rate(job, gpus, passes?, left);
        }
        let spans = gpus.by_server().len() > 1;
        let phase = model.phase(self.jobs.work(job), left);
        let frozen = model.frozen(phase, gpus.gpus(), spans);
        Some(frozen.rate * self.speed_on(gpus))
    }

    /// Returns the base rate of a part that is about to start; `None` if the job is not elastic.
    #[cold]
    pub(crate) fn elastic_base(&self, job: JobId, new: &NewPart<'_>) -> Option<f64> {
        let left = self.lives.get(job).map_or(0.0, |state| state.remaining);
        let passes = new.accum.map(|accum| (new.sub_batch, accum));
        self.elastic_base_at(job, new.gpus, passes, left)
    }

    /// Returns the base rate of a run's only part, in its current phase and at its current batch size.
    pub(super) fn base_now(&self, record: usize) -> f64 {
        let run = &self.runs[record];
        let part = &run.parts[0];
        let passes = part.accum.map(|accum| (part.sub_batch, accum));
        self.elastic_base_at(run.job, &part.gpus, passes, run.left)
            .unwrap_or_else(|| self.base_in_phase(run.job, self.base_on(run.job, &part.gpus)))
    }

    /// Returns the remaining work that a job has at the start of its next phase; 0 if it has no further phase.
    #[cold]
    pub(super) fn next_knot(&self, record: usize) -> f64 {
        let run = &self.runs[record];
        let work = self.jobs.work(run.job);
        if let Some(phases) = self.phases_of(run.job) {
            return phases.knot(work, run.phase as usize);
        }
        self.elastic_model(run.job)
            .map_or(0.0, |model| model.knot(work, model.phase(work, run.left)))
    }

    /// Returns the current noise phase of a job.
    pub(crate) fn noise_phase(&self, job: JobId) -> usize {
        let Some(model) = self.elastic_model(job) else {
            return 0;
        };
        // Work is settled at each change of phase, so the phase is constant between two settlements.
        let left = match self.run(job) {
            Some(run) => run.left,
            None => self.lives.get(job).map_or(0.0, |state| state.remaining),
        };
        model.phase(self.jobs.work(job), left)
    }

    /// Returns the memory per GPU that an elastic job needs if each pass has this many samples. This number may be
    /// larger than the batch size in the trace.
    pub(crate) fn pass_bytes(&self, job: JobId, pass_batch: u32) -> u64 {
        let full = self.jobs.memory_bytes(job);
        let batch = self.jobs.batch_size(job);
        if full == 0 || batch == 0 {
            return full;
        }
        let fixed = self.config.memory_fixed_fraction;
        let share = f64::from(pass_batch) / f64::from(batch);
        (full as f64 * (fixed + (1.0 - fixed) * share)).round() as u64
    }
}
