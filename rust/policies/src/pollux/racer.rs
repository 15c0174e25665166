//! A job that competes for GPUs in a decision.

use super::params::Batch;
use gangline_engine::ClusterView;
use gangline_model::{Configuration, ElasticModel, JobId, SimSpan, Terms};

/// An equal share of the cluster.
#[derive(Clone, Copy)]
pub(super) struct Fair {
    pub(super) gpus: u32,
    /// GPUs of the largest server that is up.
    pub(super) server: u32,
}

/// An active job in a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Racer<'a> {
    pub(super) job: JobId,
    pub(super) model: Option<&'a ElasticModel>,
    pub(super) phase: usize,
    pub(super) gang: u32,
    /// Whether it keeps its GPUs in any case: its present run has kept no progress yet.
    pub(super) is_bound: bool,
    pub(super) batch: Batch,
    /// Its goodput on an equal share.
    pub(super) fair: f64,
}

impl<'a> Racer<'a> {
    pub(super) fn new(view: &ClusterView<'a>, job: JobId, batch: Batch, fair: Fair) -> Self {
        let mut racer = Self {
            job,
            model: view.elastic(job),
            phase: view.noise_phase(job),
            gang: view.jobs().gpus(job),
            is_bound: is_bound(view, job),
            batch,
            fair: f64::from(fair.gpus),
        };
        if let Some(model) = racer.model {
            let most = fair.gpus.min(model.class().max_gpus);
            let mut rates = (1..=most).rev().map(|gpus| racer.goodput(gpus, false));
            racer.fair = rates.find(|&rate| rate > 0.0).unwrap_or(1.0);
        }
        racer
    }

    pub(super) fn is_elastic(&self) -> bool {
        self.model.is_some()
    }

    /// The configuration on so many GPUs; `None` for a job that is not elastic. Where the model has no batch, that of
    /// the trace: else a job that cannot shrink would wait for ever.
    pub(super) fn configuration(&self, gpus: u32, spans: bool) -> Option<Configuration> {
        let model = self.model?;
        let best = model.best(self.phase, gpus, spans);
        let is_best = self.batch == Batch::Best && best.rate > 0.0;
        Some(if is_best {
            best
        } else {
            model.frozen(self.phase, gpus, spans)
        })
    }

    /// What a plan says of the batch: nothing where it is that of the trace and the model has none like it.
    pub(super) fn terms(&self, gpus: u32, spans: bool) -> Terms {
        let found = self.configuration(gpus, spans);
        let passes = found.map(|one| (one.pass_batch, one.accum));
        let is_named = |&passes: &(u32, u32)| {
            self.model
                .is_some_and(|model| model.rate(self.phase, gpus, spans, passes).is_some())
        };
        let named = passes.filter(is_named);
        Terms {
            sub_batch: named.map(|one| one.0),
            accum: named.map(|one| one.1),
            ..Terms::default()
        }
    }

    /// Goodput on so many GPUs; in proportion to the GPUs for a job that is not elastic.
    pub(super) fn goodput(&self, gpus: u32, spans: bool) -> f64 {
        let found = self.configuration(gpus, spans);
        found.map_or(f64::from(gpus), |found| found.rate)
    }

    /// Goodput over that of an equal share.
    pub(super) fn speedup(&self, gpus: u32, spans: bool) -> f64 {
        self.goodput(gpus, spans) / self.fair
    }

    /// Fewest and most GPUs.
    pub(super) fn range(&self) -> (u32, u32) {
        self.model.map_or((self.gang, self.gang), |model| {
            (model.class().min_gpus, model.class().max_gpus)
        })
    }
}

/// Whether a job runs and would lose all that it did since its last start if it were stopped now. Such jobs could take
/// turns for ever.
pub(super) fn is_bound(view: &ClusterView<'_>, job: JobId) -> bool {
    let least = view.checkpoint_interval().unwrap_or(SimSpan(1));
    view.run(job)
        .is_some_and(|run| view.now() - run.only().progress_start < least)
}
