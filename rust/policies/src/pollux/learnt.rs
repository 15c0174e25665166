//! Models that are learnt while jobs run (`models = learnt`): for each job, a profile, step times fitted to the
//! profile, and the most recently observed gradient noise. Profiles and tie-breaking follow the public code of Pollux.
//! The fit uses closed-form expressions and a single search over the overlap, because a general optimiser might not
//! give bit-identical results on all platforms.

use gangline_engine::ClusterView;
use gangline_model::{
    Configuration, ElasticClass, ElasticModel, JobId, NoisePhase, StepFit, overlapped,
};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

/// Lower bound for every fitted time.
const LEAST: f64 = 1e-8;
/// Share of the interval that remains after each step of the golden-section search.
const GOLDEN: f64 = 0.618_033_988_749_894_9;
/// Number of steps in the search for the overlap.
const SECTIONS: usize = 30;

/// A configuration with which a job has run, and the times that were observed with it.
#[derive(Clone, Copy, Debug)]
struct Sight {
    /// Whether the GPUs were on several servers.
    spans: bool,
    gpus: u32,
    /// Number of samples that each GPU processes per pass.
    pass_batch: u32,
    pass_s: f64,
    /// Time of a single-pass step.
    step_s: f64,
}

/// The observations of a job that has run, and the models fitted to them.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    sights: Vec<Sight>,
    fit: StepFit,
    /// The most recently observed gradient noise; it is assumed for every batch size.
    noise: NoisePhase,
    /// Cache of the best configuration for each number of GPUs, on one server and on several servers.
    best: Vec<[Cell<Option<Configuration>>; 2]>,
}

impl Profile {
    /// Maximum number of GPUs on which the job has run.
    pub(super) fn most(&self) -> u32 {
        let gpus = self.sights.iter().map(|sight| sight.gpus);
        gpus.max().unwrap_or(0)
    }

    fn best(&self, class: &ElasticClass, (gpus, spans): (u32, bool)) -> Configuration {
        let find = || class.best_by(&self.fit, &self.noise, (gpus, spans));
        let Some(known) = self.best.get(gpus as usize) else {
            return find(); // The cache ends at the job's maximum number of GPUs.
        };
        let cell = &known[usize::from(spans)];
        let found = cell.get().unwrap_or_else(find);
        cell.set(Some(found));
        found
    }
}

/// The policy's assumption about an elastic job.
#[derive(Clone, Copy, Debug)]
pub(super) enum Belief<'a> {
    /// The true model.
    Known,
    /// There is no model yet, so progress is assumed to be proportional to the number of GPUs.
    Nothing,
    /// The model that is fitted to the job's profile.
    Learnt(&'a Profile),
}

impl Belief<'_> {
    pub(super) fn is_learnt(self) -> bool {
        !matches!(self, Self::Known)
    }

    /// Returns the best configuration with this number of GPUs, on one server or on several servers.
    pub(super) fn best(
        self,
        model: &ElasticModel,
        phase: usize,
        on @ (gpus, spans): (u32, bool),
    ) -> Configuration {
        let class = model.class();
        match self {
            Self::Known if gpus <= class.max_gpus => model.best(phase, gpus, spans),
            Self::Known => class.best_by(&class.fit, &class.phases[phase], on),
            Self::Nothing => {
                class
                    .smallest(gpus)
                    .map_or_else(Configuration::default, |(pass_batch, accum)| {
                        Configuration {
                            pass_batch,
                            accum,
                            rate: f64::from(gpus),
                        }
                    })
            }
            Self::Learnt(profile) => profile.best(class, on),
        }
    }

    /// Returns the configuration with the total batch from the trace.
    pub(super) fn frozen(
        self,
        model: &ElasticModel,
        phase: usize,
        on @ (gpus, spans): (u32, bool),
    ) -> Configuration {
        let class = model.class();
        match self {
            Self::Known if gpus <= class.max_gpus => model.frozen(phase, gpus, spans),
            Self::Known => class.frozen_by(&class.fit, &class.phases[phase], on),
            Self::Nothing => {
                let frozen = model.frozen(phase, gpus, spans);
                let is_possible = frozen.rate > 0.0;
                Configuration {
                    rate: if is_possible { f64::from(gpus) } else { 0.0 },
                    ..frozen
                }
            }
            Self::Learnt(profile) => class.frozen_by(&profile.fit, &profile.noise, on),
        }
    }
}

/// Profiles of the active jobs.
#[derive(Debug, Default)]
pub(super) struct Learnt {
    profiles: BTreeMap<JobId, Profile>,
}

impl Learnt {
    pub(super) fn of(&self, job: JobId) -> Belief<'_> {
        let profile = self.profiles.get(&job);
        profile.map_or(Belief::Nothing, Belief::Learnt)
    }

    /// Updates the profiles of the running jobs that have made progress since their last start. The profiles of jobs
    /// that are no longer active are dropped.
    pub(super) fn look(&mut self, view: &ClusterView<'_>, active: &[JobId]) {
        let active: BTreeSet<JobId> = active.iter().copied().collect();
        self.profiles.retain(|job, _| active.contains(job));
        for job in active {
            if let (Some(run), Some(model)) = (view.run(job), view.elastic(job)) {
                let part = run.only();
                if part.progress_start < view.now() {
                    let on = (part.gpus.gpus(), part.gpus.by_server().len() > 1);
                    let named = part.accum.map(|accum| (part.sub_batch, accum));
                    self.see(job, model, view.noise_phase(job), on, named);
                }
            }
        }
    }

    /// Adds a configuration to the profile of a job, unless the profile already contains it. `named` contains the pass
    /// batch and the number of accumulated passes that a plan has set; if it is `None`, the job runs with the batch
    /// from the trace.
    fn see(
        &mut self,
        job: JobId,
        model: &ElasticModel,
        phase: usize,
        (gpus, spans): (u32, bool),
        named: Option<(u32, u32)>,
    ) {
        let class = model.class();
        let (pass_batch, accum) = named.unwrap_or_else(|| {
            let frozen = model.frozen(phase, gpus, spans);
            (frozen.pass_batch, frozen.accum)
        });
        let passes = f64::from(gpus) * f64::from(pass_batch);
        let samples = passes * (f64::from(accum) + 1.0);
        let gradients = vec![class.gradient(&class.phases[phase], samples)];
        let noise = NoisePhase {
            progress: 0.0,
            gradients,
        };
        let profile = self.profiles.entry(job).or_insert_with(|| Profile {
            sights: Vec::new(),
            fit: class.fit,
            noise: noise.clone(),
            best: Vec::new(),
        });
        let is_new = !profile
            .sights
            .iter()
            .any(|sight| (sight.spans, sight.gpus, sight.pass_batch) == (spans, gpus, pass_batch));
        if is_new {
            profile.sights.push(Sight {
                spans,
                gpus,
                pass_batch,
                pass_s: class.fit.pass(pass_batch),
                step_s: class.fit.step_s(gpus, 1 + u32::from(spans), pass_batch, 0),
            });
            profile.fit = fit(&profile.sights);
        }
        if is_new || profile.noise != noise {
            profile.noise = noise;
            let none = || [Cell::new(None), Cell::new(None)];
            profile.best.clear();
            profile.best.resize_with(class.max_gpus as usize + 1, none);
        }
    }
}

/// Minimises sum (q a + r b - v)^2 over a, b >= [`LEAST`].
fn least_squares(rows: impl Iterator<Item = (f64, f64, f64)>) -> [f64; 2] {
    let (mut qq, mut qr, mut rr, mut qv, mut rv) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (q, r, v) in rows {
        qq += q * q;
        qr += q * r;
        rr += r * r;
        qv += q * v;
        rv += r * v;
    }
    let det = qq * rr - qr * qr;
    let mut a = (qv * rr - rv * qr) / det;
    let mut b = (rv * qq - qv * qr) / det;
    if a < LEAST {
        a = LEAST;
        b = (rv - LEAST * qr) / rr;
    } else if b < LEAST {
        b = LEAST;
        a = (qv - LEAST * qr) / qq;
    }
    [a.max(LEAST), b.max(LEAST)]
}

/// Fits the constant part and the per-sample part of the time of a pass. If only one number of samples has been
/// observed, half of the time is assumed to be constant.
fn fit_pass(sights: &[Sight]) -> [f64; 2] {
    let first = sights[0].pass_batch;
    if sights.iter().all(|sight| sight.pass_batch == first) {
        let sum = sights.iter().fold(0.0, |sum, sight| sum + sight.pass_s);
        let half = sum / sights.len() as f64 / 2.0;
        return [half, half / f64::from(first)];
    }
    least_squares(sights.iter().map(|sight| {
        let samples = f64::from(sight.pass_batch);
        (1.0 / sight.pass_s, samples / sight.pass_s, 1.0)
    }))
}

/// Fits the time of the gradient exchange, on one server or on several servers, given the fitted pass time and the
/// overlap.
fn fit_exchange(sights: &[Sight], spans: bool, pass_s: [f64; 2], gamma: f64) -> [f64; 2] {
    // Each row contains the number of GPUs beyond two, the inverse of the step time, and the time of the exchange.
    let row = |sight: &Sight| {
        let (pass_s, step_s) = (pass_of(pass_s, sight), sight.step_s);
        let rest = if pass_s < step_s {
            1.0 - libm::pow(pass_s / step_s, gamma)
        } else {
            0.0
        };
        let exchange_s = if rest > 0.0 {
            step_s * libm::pow(rest, 1.0 / gamma)
        } else {
            0.0
        };
        let above = f64::from(sight.gpus - 2);
        (above, 1.0 / step_s, exchange_s.max(LEAST))
    };
    let own = |sight: &&Sight| sight.gpus > 1 && sight.spans == spans;
    let rows: Vec<(f64, f64, f64)> = sights.iter().filter(own).map(row).collect();
    let Some(first) = rows.first() else {
        return [LEAST; 2];
    };
    if rows.iter().all(|row| row.0.total_cmp(&first.0).is_eq()) {
        let (mut sum, mut weights) = (0.0, 0.0);
        for &(above, weight, exchange_s) in &rows {
            sum += weight * weight * (exchange_s - LEAST * above);
            weights += weight * weight;
        }
        return [(sum / weights).max(LEAST), LEAST];
    }
    let weighted = |&(above, weight, exchange_s): &(f64, f64, f64)| {
        (weight, weight * above, weight * exchange_s)
    };
    least_squares(rows.iter().map(weighted))
}

fn pass_of(pass_s: [f64; 2], sight: &Sight) -> f64 {
    pass_s[0] + pass_s[1] * f64::from(sight.pass_batch)
}

/// Returns the best fit for this overlap.
fn with_overlap(sights: &[Sight], pass_s: [f64; 2], gamma: f64) -> StepFit {
    StepFit {
        pass_s,
        servers_s: fit_exchange(sights, true, pass_s, gamma),
        server_s: fit_exchange(sights, false, pass_s, gamma),
        gamma,
    }
}

/// Returns the error of the fitted step times, plus the penalties of the public code.
fn loss(sights: &[Sight], pass_s: [f64; 2], gamma: f64) -> f64 {
    let fit = with_overlap(sights, pass_s, gamma);
    let mut sum = 0.0;
    for sight in sights {
        let sync_s = fit.sync(sight.gpus, 1 + u32::from(sight.spans));
        let found = overlapped(pass_of(pass_s, sight), sync_s, gamma);
        let error = libm::log(found / sight.step_s);
        sum += error * error;
    }
    let square = |x: f64| x * x;
    let ratio = |[all, per_gpu]: [f64; 2]| square(per_gpu / all);
    (sum / sights.len() as f64).sqrt()
        + 0.001 * square(gamma - 1.0)
        + 0.01 * (ratio(fit.servers_s) + ratio(fit.server_s))
}

/// Returns the step times that best fit a profile.
fn fit(sights: &[Sight]) -> StepFit {
    let pass_s = fit_pass(sights);
    if sights.iter().all(|sight| sight.gpus == 1) {
        return StepFit {
            pass_s,
            servers_s: [LEAST; 2],
            server_s: [LEAST; 2],
            gamma: 1.0,
        };
    }
    let loss = |gamma| loss(sights, pass_s, gamma);
    let (mut best, mut least) = (1.0, loss(1.0));
    for step in 1..=36 {
        let gamma = 1.0 + f64::from(step) / 4.0;
        let found = loss(gamma);
        if found < least {
            (best, least) = (gamma, found);
        }
    }
    let (mut low, mut high) = ((best - 0.25_f64).max(1.0), (best + 0.25_f64).min(10.0));
    for _ in 0..SECTIONS {
        let left = high - GOLDEN * (high - low);
        let right = low + GOLDEN * (high - low);
        if loss(left) <= loss(right) {
            high = right;
        } else {
            low = left;
        }
    }
    let middle = f64::midpoint(low, high);
    let gamma = if loss(middle) < least { middle } else { best };
    let mut found = with_overlap(sights, pass_s, gamma);
    if !sights.iter().any(|sight| sight.spans) {
        for at in 0..2 {
            found.servers_s[at] = found.servers_s[at].max(1.1 * found.server_s[at]);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates an observation of a job on one server. A pass takes 0.1 s plus 0.01 s per sample, and the exchange takes
    /// 0.3 s plus 0.05 s per GPU above two.
    fn sight(gpus: u32, pass_batch: u32) -> Sight {
        let truth = StepFit {
            pass_s: [0.1, 0.01],
            servers_s: [0.5, 0.05],
            server_s: [0.3, 0.05],
            gamma: 1.0,
        };
        Sight {
            spans: false,
            gpus,
            pass_batch,
            pass_s: truth.pass(pass_batch),
            step_s: truth.step_s(gpus, 1, pass_batch, 0),
        }
    }

    fn close(found: [f64; 2], expected: [f64; 2], relative: f64) {
        for (found, expected) in found.iter().zip(expected) {
            assert!(
                (found / expected - 1.0).abs() < relative,
                "{found} is not {expected}"
            );
        }
    }

    #[test]
    fn fits_by_hand() {
        let one = fit(&[sight(1, 10)]);
        close(one.pass_s, [0.1, 0.01], 1e-12);
        close(one.server_s, [1e-8, 1e-8], 1e-12);
        close(fit(&[sight(1, 40)]).pass_s, [0.25, 0.00625], 1e-12);
        let mut sights = vec![sight(1, 10), sight(1, 40)];
        close(fit(&sights).pass_s, [0.1, 0.01], 1e-9);
        sights.push(sight(2, 10));
        let two = fit(&sights);
        close(two.server_s, [0.3, 1e-8], 1e-6);
        close(two.servers_s, [0.33, 1.1e-8], 1e-6);
        assert!((two.gamma - 1.0).abs() < 1e-6, "{}", two.gamma);
        sights.push(sight(4, 10));
        let four = fit(&sights);
        // These times are consistent with every overlap. A search over 100,000 values finds the smallest penalty at
        // 1.1291.
        assert!((four.gamma - 1.1291).abs() < 1e-4, "{}", four.gamma);
        close(four.server_s, [0.338_908, 0.052_258], 1e-4);
        close(four.servers_s, [0.372_799, 0.057_484], 1e-4);
    }
}
