//! Elastic jobs (`docs/concepts/elastic-jobs.md`): the rate of a job on any number of GPUs and at any batch size, and
//! the value of its progress. Goodput is throughput times statistical efficiency.
//!
//! All values that a policy compares are computed before the run. These values depend on the class of jobs, the number
//! of GPUs, the noise phase, and whether the gang is on one or several servers. A query during the run is a table
//! lookup.
//!
//! | symbol | here |
//! |---|---|
//! | `M0`, `M_max` | `init_batch`, `max_batch` |
//! | `m`, `a` | `Configuration::{pass_batch, accum}` |
//! | `k`, `N` | `gpus`, `spans` (several servers) |
//! | `sqr`, `var` | `Gradient::{sqr, var}` |

use crate::{JobId, ModelError, StepFit};

/// Number of total batch sizes that are tried in the search for the best configuration, as in the public code of
/// Pollux.
const CANDIDATES: i32 = 50;
/// A number of passes or samples counts as a whole number if it exceeds that number by at most this limit, as in the
/// public code of Pollux.
const ROUNDING: f64 = 1e-8;

fn is_sound(fit: &StepFit) -> bool {
    let times = [fit.pass_s, fit.servers_s, fit.server_s].concat();
    let are_times = times.iter().all(|time| time.is_finite() && *time >= 0.0);
    are_times && times[0] + times[1] > 0.0 && (1.0..=10.0).contains(&fit.gamma)
}

/// Noise of the gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gradient {
    /// Squared norm of the gradient.
    pub sqr: f64,
    /// Variance of the gradient at the initial batch size.
    pub var: f64,
}

impl Gradient {
    /// Returns the statistical efficiency, in (0, 1], of a batch size that is `scale` times the initial batch size.
    /// This is the progress per sample, relative to the progress per sample at the initial batch size.
    ///
    /// # Examples
    /// ```
    /// use gangline_model::Gradient;
    /// let gradient = Gradient { sqr: 0.01, var: 0.05 };
    /// assert!((gradient.efficiency(4.0) - 2.0 / 3.0).abs() < 1e-12);
    /// ```
    pub fn efficiency(self, scale: f64) -> f64 {
        let below = self.var / scale + self.sqr;
        let gain = if below > 0.0 {
            (self.var + self.sqr) / below
        } else {
            1.0
        };
        gain / scale
    }
}

/// Gradient noise from a given point of a job's progress onwards.
#[derive(Clone, Debug, PartialEq)]
pub struct NoisePhase {
    /// Share of the work that is done when the phase starts, in [0, 1); 0 for the first phase.
    pub progress: f64,
    /// Noise at each batch size at which it was measured for the class, or a single value for all batch sizes.
    pub gradients: Vec<Gradient>,
}

/// Properties that all jobs of a class share: their model, its limits, and the size that the jobs have in the trace.
#[derive(Clone, Debug, PartialEq)]
pub struct ElasticClass {
    /// Fitted times of the components of a step.
    pub fit: StepFit,
    /// Initial total batch size, in samples.
    pub init_batch: u32,
    /// Largest total batch size, in samples.
    pub max_batch: u32,
    /// Minimum number of samples per GPU and pass.
    pub min_pass_batch: u32,
    /// Maximum number of samples per GPU and pass.
    pub max_pass_batch: u32,
    /// Minimum number of GPUs.
    pub min_gpus: u32,
    /// Maximum number of GPUs.
    pub max_gpus: u32,
    /// Number of GPUs that each job has in the trace.
    pub gpus: u32,
    /// Number of samples per GPU that each job has in the trace.
    pub batch_size: u32,
    /// Whether a gang of `gpus` GPUs fits on one server of the cluster.
    pub fits_server: bool,
    /// Total batch sizes at which noise was measured, in ascending order; empty if the noise is the same for all batch
    /// sizes.
    pub noise_batches: Vec<u32>,
    /// Noise phases in ascending order of progress.
    pub phases: Vec<NoisePhase>,
}

/// A way to divide a batch among some number of GPUs, and the resulting rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Configuration {
    /// Number of samples per GPU and pass.
    pub pass_batch: u32,
    /// Number of passes beyond the first.
    pub accum: u32,
    /// Progress per second, in iterations at the initial batch size; 0 means that the configuration is not possible.
    pub rate: f64,
}

/// A batch size that might be the best one on a given number of GPUs.
#[derive(Clone, Copy)]
struct Candidate {
    pass_batch: u32,
    accum: u32,
    samples: f64,
    step_s: f64,
}

impl Candidate {
    /// Creates a candidate for a batch size, with the step time that a fit predicts.
    fn new(fit: &StepFit, (gpus, spans): (u32, bool), (pass_batch, accum): (u32, u32)) -> Self {
        let passes = f64::from(gpus) * f64::from(pass_batch);
        Self {
            pass_batch,
            accum,
            samples: passes * (f64::from(accum) + 1.0),
            step_s: fit.step_s(gpus, 1 + u32::from(spans), pass_batch, accum),
        }
    }
}

impl ElasticClass {
    fn check(&self, row: usize) -> Result<(), ModelError> {
        let starts = self
            .phases
            .first()
            .is_some_and(|first| first.progress == 0.0);
        let ascend = self
            .phases
            .windows(2)
            .all(|two| two[0].progress < two[1].progress);
        let is_number = |x: f64| x.is_finite() && x >= 0.0;
        let is_noise = |phase: &NoisePhase| {
            let gradients = &phase.gradients;
            is_number(phase.progress)
                && phase.progress < 1.0
                && gradients.len() == self.noise_batches.len().max(1)
                && gradients
                    .iter()
                    .all(|one| is_number(one.sqr) && is_number(one.var))
        };
        let are_batches = self.noise_batches.first().is_none_or(|&first| first > 0)
            && self.noise_batches.windows(2).all(|two| two[0] < two[1]);
        let total = u64::from(self.gpus) * u64::from(self.batch_size);
        let wrong = if !is_sound(&self.fit) {
            "times must be >= 0, the time of a pass > 0, and gamma from 1 to 10"
        } else if self.init_batch == 0 || self.init_batch > self.max_batch {
            "init_batch must be at least 1 and at most max_batch"
        } else if self.min_pass_batch == 0 || self.min_pass_batch > self.max_pass_batch {
            "min_pass_batch must be at least 1 and at most max_pass_batch"
        } else if self.min_gpus == 0 || !(self.min_gpus..=self.max_gpus).contains(&self.gpus) {
            "the number of GPUs in the trace must be at least min_gpus and at most max_gpus"
        } else if total < u64::from(self.init_batch) {
            "the total batch of the trace must be at least init_batch"
        } else if !(starts && ascend && self.phases.iter().all(is_noise)) {
            "the first phase must begin at progress 0, and each later phase at a higher progress below 1; each phase needs noise >= 0 for each noise batch"
        } else if !are_batches {
            "noise batches must be at least 1 and strictly increasing"
        } else {
            return Ok(());
        };
        let what = format!("class {row}: {wrong}");
        Err(ModelError::Table {
            table: "elastic",
            what,
        })
    }

    /// Returns the number of samples per GPU and pass, and the number of passes beyond the first, for `share` samples
    /// per GPU.
    fn passes(&self, gpus: u32, share: f64) -> (u32, u32) {
        let mut accum = ((share / f64::from(self.max_pass_batch) - ROUNDING).ceil() - 1.0).max(0.0);
        if gpus == 1 && share > f64::from(self.init_batch) {
            accum = accum.max(1.0);
        }
        let pass_batch = (share / (accum + 1.0) - ROUNDING).ceil();
        (pass_batch as u32, accum as u32)
    }

    fn is_allowed(&self, one: &Candidate) -> bool {
        (self.min_pass_batch..=self.max_pass_batch).contains(&one.pass_batch)
            && one.samples >= f64::from(self.init_batch)
    }

    fn candidates(&self, fit: &StepFit, (gpus, spans): (u32, bool)) -> Vec<Candidate> {
        let least =
            f64::from(self.init_batch).max(f64::from(self.min_pass_batch) * f64::from(gpus));
        let most = f64::from(self.max_batch);
        if least > most {
            return Vec::new();
        }
        let steps = f64::from(CANDIDATES - 1);
        let batch = |at: i32| least * libm::pow(most / least, f64::from(at) / steps);
        let of = |at| self.passes(gpus, batch(at) / f64::from(gpus));
        let mut passes: Vec<(u32, u32)> = (0..CANDIDATES).map(of).collect();
        passes.dedup();
        let all = passes
            .into_iter()
            .map(|one| Candidate::new(fit, (gpus, spans), one));
        all.filter(|one| self.is_allowed(one)).collect()
    }

    /// Returns how the total batch of the trace is divided among this number of GPUs, if this is possible.
    fn traced(&self, fit: &StepFit, (gpus, spans): (u32, bool)) -> Option<Candidate> {
        let total = f64::from(self.gpus) * f64::from(self.batch_size);
        let passes = self.passes(gpus, total / f64::from(gpus));
        let one = Candidate::new(fit, (gpus, spans), passes);
        (gpus == self.gpus || self.is_allowed(&one)).then_some(one)
    }

    /// Returns the number of samples per GPU and pass, and the number of passes beyond the first, for the smallest
    /// total batch size on this number of GPUs. Returns `None` if the class does not allow these numbers.
    pub fn smallest(&self, gpus: u32) -> Option<(u32, u32)> {
        let least =
            f64::from(self.init_batch).max(f64::from(self.min_pass_batch) * f64::from(gpus));
        let total = least.min(f64::from(self.max_batch));
        let passes = self.passes(gpus, total / f64::from(gpus));
        let one = Candidate::new(&self.fit, (gpus, false), passes);
        self.is_allowed(&one).then_some(passes)
    }

    /// Returns the best configuration for a number of GPUs on one or several servers, given the times of a step and the
    /// noise.
    pub fn best_by(&self, fit: &StepFit, noise: &NoisePhase, on: (u32, bool)) -> Configuration {
        self.best_of(&self.candidates(fit, on), noise)
    }

    /// Returns the configuration with the total batch size of the trace, given the times of a step and the noise.
    pub fn frozen_by(&self, fit: &StepFit, noise: &NoisePhase, on: (u32, bool)) -> Configuration {
        let traced = self.traced(fit, on);
        traced.map_or_else(Configuration::default, |one| {
            self.configuration(&one, noise)
        })
    }

    fn best_of(&self, candidates: &[Candidate], noise: &NoisePhase) -> Configuration {
        let mut best = Configuration::default();
        for one in candidates {
            let found = self.configuration(one, noise);
            if found.rate > best.rate {
                best = found;
            }
        }
        best
    }

    /// Returns the noise at a total batch size, interpolated between the two nearest batch sizes at which noise was
    /// measured.
    pub fn gradient(&self, phase: &NoisePhase, samples: f64) -> Gradient {
        if let [all] = phase.gradients[..] {
            return all;
        }
        let at = |place: usize| phase.gradients[place];
        let batches = &self.noise_batches;
        let above = batches.partition_point(|&batch| f64::from(batch) <= samples);
        if above == 0 {
            return at(0);
        }
        if above == batches.len() {
            return at(above - 1);
        }
        let (low, high) = (f64::from(batches[above - 1]), f64::from(batches[above]));
        let (own, next) = (at(above - 1), at(above));
        let mean = |own, next| ((samples - low) * next + (high - samples) * own) / (high - low);
        Gradient {
            sqr: mean(own.sqr, next.sqr),
            var: mean(own.var, next.var),
        }
    }

    fn configuration(&self, one: &Candidate, phase: &NoisePhase) -> Configuration {
        let init = f64::from(self.init_batch);
        let gradient = self.gradient(phase, one.samples);
        let goodput = (one.samples / one.step_s) * gradient.efficiency(one.samples / init);
        Configuration {
            pass_batch: one.pass_batch,
            accum: one.accum,
            rate: goodput / init,
        }
    }
}

/// A class and its tables.
#[derive(Clone, Debug, PartialEq)]
pub struct ElasticModel {
    class: ElasticClass,
    /// The best configuration for each combination of phase, number of GPUs and spread (one or several servers), sorted
    /// in this order.
    best: Vec<Configuration>,
    /// Configurations with the total batch size of the trace, in the same order.
    frozen: Vec<Configuration>,
}

impl ElasticModel {
    fn new(class: ElasticClass) -> Self {
        let width = class.max_gpus as usize * 2;
        let mut best = vec![Configuration::default(); width * class.phases.len()];
        let mut frozen = best.clone();
        for gpus in 1..=class.max_gpus {
            for spans in [false, gpus > 1] {
                let candidates = class.candidates(&class.fit, (gpus, spans));
                let own = class.traced(&class.fit, (gpus, spans));
                for (phase, noise) in class.phases.iter().enumerate() {
                    let at = phase * width + (gpus as usize - 1) * 2 + usize::from(spans);
                    best[at] = class.best_of(&candidates, noise);
                    if let Some(own) = &own {
                        frozen[at] = class.configuration(own, noise);
                    }
                }
            }
        }
        Self {
            class,
            best,
            frozen,
        }
    }

    /// Returns the class.
    pub fn class(&self) -> &ElasticClass {
        &self.class
    }

    fn at(&self, phase: usize, gpus: u32, spans: bool) -> usize {
        let spans = usize::from(spans && gpus > 1);
        (phase * self.class.max_gpus as usize + gpus as usize - 1) * 2 + spans
    }

    /// Returns the best configuration on this number of GPUs, on one or several servers.
    #[inline]
    pub fn best(&self, phase: usize, gpus: u32, spans: bool) -> Configuration {
        self.best[self.at(phase, gpus, spans)]
    }

    /// Returns the configuration with the total batch size of the trace.
    #[inline]
    pub fn frozen(&self, phase: usize, gpus: u32, spans: bool) -> Configuration {
        self.frozen[self.at(phase, gpus, spans)]
    }

    /// Returns the rate of a configuration that a plan names, or `None` if its batch size is outside the model's
    /// limits.
    pub fn rate(&self, phase: usize, gpus: u32, spans: bool, passes: (u32, u32)) -> Option<f64> {
        let (class, spans) = (&self.class, spans && gpus > 1);
        let one = Candidate::new(&class.fit, (gpus, spans), passes);
        let known = class.is_allowed(&one);
        known.then(|| class.configuration(&one, &class.phases[phase]).rate)
    }

    /// Returns the mean rate over all of the work, for a consolidated gang with the number of GPUs and the batch size
    /// of the trace.
    pub fn mean_rate(&self) -> f64 {
        let class = &self.class;
        let rate = |phase| self.frozen(phase, class.gpus, !class.fits_server).rate;
        if class.phases.len() == 1 {
            return rate(0);
        }
        let mut time = 0.0;
        for (at, phase) in class.phases.iter().enumerate() {
            let end = class.phases.get(at + 1).map_or(1.0, |next| next.progress);
            time += (end - phase.progress) / rate(at);
        }
        1.0 / time
    }

    /// Returns the remaining work at the start of a phase.
    fn left_at(&self, phase: usize, work: f64) -> f64 {
        let progress = self
            .class
            .phases
            .get(phase)
            .map_or(1.0, |phase| phase.progress);
        work * (1.0 - progress)
    }

    /// Returns the phase of a job, given its total and its remaining work.
    pub fn phase(&self, work: f64, left: f64) -> usize {
        let later = 1..self.class.phases.len();
        later
            .take_while(|&phase| left <= self.left_at(phase, work))
            .count()
    }

    /// Returns the remaining work at the start of the next phase, or 0 if this is the last phase.
    pub fn knot(&self, work: f64, phase: usize) -> f64 {
        self.left_at(phase + 1, work)
    }
}

/// The elastic jobs of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct ElasticTable {
    /// Class of each job; `u32::MAX` means that its gang size is fixed.
    row: Vec<u32>,
    models: Vec<ElasticModel>,
}

impl ElasticTable {
    /// Checks the classes and computes their tables. `row` contains the class of each job; `u32::MAX` means that the
    /// job is not elastic.
    ///
    /// # Errors
    /// Returns [`ModelError::Table`], which names the first invalid class, or an entry of `row` that refers to a
    /// missing class.
    pub fn new(row: Vec<u32>, classes: Vec<ElasticClass>) -> Result<Self, ModelError> {
        for (at, class) in classes.iter().enumerate() {
            class.check(at)?;
        }
        let named = row.iter().filter(|&&row| row != u32::MAX).max();
        if let Some(row) = named.filter(|&&row| row as usize >= classes.len()) {
            let what = format!(
                "a job names row {row}, but the number of rows is {}",
                classes.len()
            );
            return Err(ModelError::Table {
                table: "elastic",
                what,
            });
        }
        let models = classes.into_iter().map(ElasticModel::new).collect();
        Ok(Self { row, models })
    }

    /// Returns the number of jobs in the table.
    pub fn jobs(&self) -> usize {
        self.row.len()
    }

    /// Returns the model of a job, if it is elastic.
    #[inline]
    pub fn get(&self, job: JobId) -> Option<&ElasticModel> {
        self.models.get(self.row[job.index()] as usize)
    }

    /// Returns all models, in the order of classes.
    pub fn models(&self) -> &[ElasticModel] {
        &self.models
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a class with the fit for cifar10 to the public placement tables.
    fn cifar10() -> ElasticClass {
        ElasticClass {
            fit: StepFit {
                pass_s: [0.01733, 0.000_701_8],
                servers_s: [0.1211, 0.002_392],
                server_s: [0.031_68, 0.000_981_9],
                gamma: 1.999,
            },
            init_batch: 128,
            max_batch: 4096,
            min_pass_batch: 32,
            max_pass_batch: 1024,
            min_gpus: 1,
            max_gpus: 64,
            gpus: 1,
            batch_size: 128,
            fits_server: true,
            noise_batches: Vec::new(),
            phases: vec![phase(0.0, &[(0.01, 0.05)])],
        }
    }

    fn phase(progress: f64, gradients: &[(f64, f64)]) -> NoisePhase {
        let gradient = |&(sqr, var): &(f64, f64)| Gradient { sqr, var };
        NoisePhase {
            progress,
            gradients: gradients.iter().map(gradient).collect(),
        }
    }

    #[test]
    fn noise_lies_between_that_of_the_two_next_batches() {
        let mut class = cifar10();
        class.noise_batches = vec![128, 512];
        class.phases = vec![phase(0.0, &[(1.0, 2.0), (0.5, 4.0)])];
        class.check(0).expect("valid");
        let at = |samples| class.gradient(&class.phases[0], samples);
        assert_eq!(at(64.0), Gradient { sqr: 1.0, var: 2.0 });
        assert_eq!(at(512.0), Gradient { sqr: 0.5, var: 4.0 });
        assert_eq!(at(900.0), Gradient { sqr: 0.5, var: 4.0 });
        // The values are (128 x 0.5 + 256 x 1) / 384 and (128 x 4 + 256 x 2) / 384.
        close(at(256.0).sqr, 0.833_333);
        close(at(256.0).var, 2.666_667);
        close(at(256.0).efficiency(2.0), 0.807_692);
        class.noise_batches.pop();
        assert!(class.check(0).is_err(), "two pairs for one batch");
    }

    fn close(found: f64, expected: f64) {
        assert!(
            (found / expected - 1.0).abs() < 1e-5,
            "{found} is not {expected}"
        );
    }

    #[test]
    fn goodput_by_hand() {
        let table = ElasticTable::new(vec![0], vec![cifar10()]).expect("valid");
        let model = table.get(JobId(0)).expect("elastic");
        for (scale, expected) in [(1.0, 1.0), (4.0, 0.666_667), (8.0, 0.461_538)] {
            close(
                model.class().phases[0].gradients[0].efficiency(scale),
                expected,
            );
        }
        for (gpus, spans, goodput) in [
            (1, false, 1194.4711),
            (4, false, 3038.7701),
            (8, true, 2735.9269),
        ] {
            let rate = model.rate(0, gpus, spans, (128, 0)).expect("allowed");
            close(rate * 128.0, goodput);
        }
        assert_eq!(
            model.rate(0, 1, false, (16, 0)),
            None,
            "the batch is below the smallest pass"
        );
        assert!(
            model.best(0, 4, false).rate >= model.rate(0, 4, false, (128, 0)).expect("allowed")
        );
    }

    #[test]
    fn a_job_of_the_traced_size_takes_its_traced_time() {
        let mut class = cifar10();
        class.phases.push(phase(0.25, &[(0.01, 0.5)]));
        (class.gpus, class.batch_size) = (4, 256);
        let table = ElasticTable::new(vec![0, u32::MAX], vec![class]).expect("valid");
        assert!(table.get(JobId(1)).is_none());
        let model = table.get(JobId(0)).expect("elastic");
        let work = 1000.0 * model.mean_rate();
        assert_eq!(
            [model.phase(work, work), model.phase(work, 0.75 * work)],
            [0, 1]
        );
        let rates = [0, 1].map(|phase| model.frozen(phase, 4, false).rate);
        assert!(
            rates[1] > rates[0],
            "more noise makes large batches worth more"
        );
        let first = work - model.knot(work, 0);
        close(first / rates[0] + (work - first) / rates[1], 1000.0);
        assert_eq!(model.knot(work, 1).to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn efficiency_falls_with_the_batch_and_rises_with_noise() {
        let mut last = 1.0;
        for step in 0_i32..40 {
            let scale = 1.2_f64.powi(step);
            let at = |var| Gradient { sqr: 0.3, var }.efficiency(scale);
            let found = at(0.7);
            assert!(found > 0.0 && found <= last && found <= at(0.9) + 1e-15);
            last = found;
        }
    }

    #[test]
    fn bad_classes_are_refused() {
        let bad = |change: fn(&mut ElasticClass)| {
            let mut class = cifar10();
            change(&mut class);
            ElasticTable::new(vec![0], vec![class]).is_err()
        };
        assert!(bad(|class| class.fit.gamma = 0.5));
        assert!(bad(|class| class.fit.pass_s[0] = -1.0));
        assert!(bad(|class| class.max_batch = 64));
        assert!(bad(|class| class.min_pass_batch = 2000));
        assert!(bad(|class| class.min_gpus = 2));
        assert!(bad(|class| class.batch_size = 8));
        assert!(bad(|class| class.phases[0].progress = 0.5));
        assert!(ElasticTable::new(vec![1], vec![cifar10()]).is_err());
    }
}
