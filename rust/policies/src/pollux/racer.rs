//! A job that competes for GPUs in a decision.

use super::learnt::Belief;
use super::params::{Batch, Share};
use gangline_engine::ClusterView;
use gangline_model::{Configuration, ElasticModel, JobId, SimSpan, Terms};

/// The equal share of the cluster.
#[derive(Clone, Copy)]
pub(super) struct Fair {
    pub(super) gpus: u32,
    pub(super) share: Share,
    /// Number of GPUs of the largest healthy server.
    pub(super) server: u32,
}

/// An active job in a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Racer<'a> {
    pub(super) job: JobId,
    pub(super) model: Option<&'a ElasticModel>,
    pub(super) belief: Belief<'a>,
    pub(super) phase: usize,
    pub(super) gang: u32,
    /// Whether the job keeps its GPUs in any case, because its current run has saved no progress yet.
    pub(super) is_bound: bool,
    pub(super) batch: Batch,
    /// Goodput of the job on an equal share.
    pub(super) fair: f64,
}

impl<'a> Racer<'a> {
    pub(super) fn new(
        view: &ClusterView<'a>,
        (job, belief): (JobId, Belief<'a>),
        batch: Batch,
        fair: Fair,
    ) -> Self {
        let mut racer = Self {
            job,
            model: view.elastic(job),
            belief,
            phase: view.noise_phase(job),
            gang: view.jobs().gpus(job),
            is_bound: is_bound(view, job),
            batch,
            fair: f64::from(fair.gpus),
        };
        if let Some(model) = racer.model {
            let class = model.class();
            if belief.is_learnt() && class.min_gpus == class.max_gpus {
                racer.batch = Batch::Traced;
            }
            let most = match fair.share {
                Share::Server => fair.gpus.min(class.max_gpus),
                Share::Cluster => fair.gpus,
            };
            let mut rates = (1..=most).rev().map(|gpus| racer.goodput(gpus, false));
            racer.fair = match belief {
                Belief::Nothing => f64::from(most),
                _ => rates.find(|&rate| rate > 0.0).unwrap_or(1.0),
            };
        }
        racer
    }

    pub(super) fn is_elastic(&self) -> bool {
        self.model.is_some()
    }

    /// Returns the configuration on this number of GPUs; `None` for a job that is not elastic. If the model has no
    /// batch for this number, the configuration has the batch from the trace. Without this fallback, a job that cannot
    /// shrink would wait for ever.
    pub(super) fn configuration(&self, gpus: u32, spans: bool) -> Option<Configuration> {
        let model = self.model?;
        let best = match self.batch {
            Batch::Best => self.belief.best(model, self.phase, (gpus, spans)),
            Batch::Traced => Configuration::default(),
        };
        Some(if best.rate > 0.0 {
            best
        } else {
            self.belief.frozen(model, self.phase, (gpus, spans))
        })
    }

    /// Returns the terms with which a plan sets the batch. The terms are empty if the job runs with the batch from the
    /// trace although the model does not allow this batch.
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

    /// Returns the goodput on this number of GPUs. For a job that is not elastic, the result is the number of GPUs.
    pub(super) fn goodput(&self, gpus: u32, spans: bool) -> f64 {
        let found = self.configuration(gpus, spans);
        found.map_or(f64::from(gpus), |found| found.rate)
    }

    /// Returns the goodput relative to the goodput on an equal share.
    pub(super) fn speedup(&self, gpus: u32, spans: bool) -> f64 {
        self.goodput(gpus, spans) / self.fair
    }

    /// Returns the job's minimum and maximum number of GPUs.
    pub(super) fn range(&self) -> (u32, u32) {
        self.model.map_or((self.gang, self.gang), |model| {
            (model.class().min_gpus, model.class().max_gpus)
        })
    }
}

/// Returns whether a job is running and, if stopped now, would lose all progress since its last start. If jobs in this
/// state could be stopped, they might take turns for ever.
pub(crate) fn is_bound(view: &ClusterView<'_>, job: JobId) -> bool {
    let least = view.checkpoint_interval().unwrap_or(SimSpan(1));
    view.run(job)
        .is_some_and(|run| view.now() - run.only().progress_start < least)
}

// The following code defines the objective of the policy: the power mean over jobs of (speed-up x discount + floor).

/// The power mean over jobs: its exponent, and the number that is added to every speed-up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Objective {
    p: f64,
    floor: f64,
}

impl Objective {
    pub(super) fn new(p: f64, floor: f64) -> Self {
        Self { p, floor }
    }

    /// Returns what a job contributes to the sum. For every exponent, the contribution increases with the speed-up.
    pub(super) fn worth(self, speedup: f64) -> f64 {
        let value = speedup + self.floor;
        if self.p == 0.0 {
            return libm::log(value);
        }
        self.p.signum() * libm::pow(value, self.p)
    }

    /// Returns the mean, given the sum over `jobs` jobs.
    pub(super) fn mean(self, sum: f64, jobs: usize) -> f64 {
        let mean = sum / jobs as f64;
        if self.p == 0.0 {
            libm::exp(mean)
        } else {
            libm::pow(mean.abs(), 1.0 / self.p)
        }
    }
}

/// Returns the discount for a job whose GPUs change. The discount is (age - cost of earlier changes) / (age + cost of
/// this change). The age is the time since the job's arrival, and each change costs `delay_s` seconds.
pub(super) fn discount(age_s: f64, restarts: u32, delay_s: f64) -> f64 {
    let lived = (age_s - delay_s * f64::from(restarts)).max(0.0);
    if age_s + delay_s > 0.0 {
        lived / (age_s + delay_s)
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discounts_by_hand() {
        for (age_s, restarts, expected) in
            [(0.0, 0, 0.0), (60.0, 0, 0.666_667), (600.0, 2, 0.857_143)]
        {
            assert!((discount(age_s, restarts, 30.0) - expected).abs() < 1e-6);
        }
        assert!(discount(0.0, 3, 0.0).abs() < 1e-15);
    }

    #[test]
    fn the_mean_of_equal_values_is_that_value() {
        for p in [-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0] {
            let objective = Objective::new(p, 0.001);
            let sum = 4.0 * objective.worth(2.0);
            assert!((objective.mean(sum, 4) - 2.001).abs() < 1e-12, "{p}");
            assert!(objective.worth(1.0) < objective.worth(1.1), "{p}");
        }
    }

    #[test]
    fn the_harmonic_mean_favours_the_worst_off() {
        let objective = Objective::new(-1.0, 0.001);
        let even = 2.0 * objective.worth(1.0);
        let uneven = objective.worth(0.1) + objective.worth(3.0);
        assert!(objective.mean(even, 2) > objective.mean(uneven, 2));
    }
}
