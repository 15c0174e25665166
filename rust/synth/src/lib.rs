//! Generates synthetic traces from a seed. Their statistics resemble those of public traces.
//!
//! Every column has its own random stream, and the index of a job is the address of its draws. A change of one option
//! therefore never changes the draws for another column, and a request for more jobs only appends rows. The exception
//! is `load`: with this option, the arrivals depend on the work of all drawn jobs. Logarithms and exponentials come
//! from `libm`, so a seed gives the same bytes on every platform. Generating one job takes about 150 ns. This crate
//! needs neither the engine nor Python, and does no file I/O.
#![forbid(unsafe_code)]

mod arrivals;
mod codes;
mod durations;
mod error;
mod extras;
mod parameters;
mod spec;
mod tables;
mod value;

use std::collections::BTreeMap;

use self::arrivals::Clock;
use self::codes::draw_zipf;
use self::durations::{Durations, QuantileTable};
use self::tables::Measured;
use gangline_rng::{Purpose, Stream, WeightTable};

pub use self::codes::SynthCodes;
pub use self::error::SynthError;
pub use self::extras::{Law, SynthExtras, draws, extras};
pub use self::parameters::{Parameter, parameters};
pub use self::spec::{Arrivals, Shape, SynthModel, SynthSpec};
pub use self::value::{ParameterKind, SynthValue};

const GANG_REDRAWS: u32 = 100;
/// Step size of durations, in seconds: durations are whole milliseconds, and at least one millisecond.
const DURATION_STEP_S: f64 = 0.001;
/// Latest arrival, in seconds. Simulated time ends near 9.22e9 s (64-bit nanoseconds), so this limit leaves enough time
/// for the run itself.
const LAST_ARRIVAL_S: f64 = 4.0e9;
/// Shortest time in seconds from the first to the last arrival. This is our own choice: at this length, rounding
/// arrivals to whole microseconds changes the load by 0.05 %.
const SHORTEST_SPAN_S: f64 = 1e-3;

/// A generated trace: columns of equal length, ordered by arrival.
#[derive(Clone, Debug, PartialEq)]
pub struct SynthTrace {
    /// Arrivals in seconds since the first arrival (a Monday, 00:00), in whole microseconds.
    pub arrival_s: Vec<f64>,
    /// Gang sizes.
    pub gpus: Vec<u32>,
    /// Durations in seconds, above 0, in whole milliseconds.
    pub duration_s: Vec<f64>,
    /// Models; present if the spec has models.
    pub model: Option<SynthCodes>,
    /// Users; present if `users` is above 0. The names `user-1`, `user-2`, ... are in descending order of frequency.
    pub user: Option<SynthCodes>,
    /// Virtual clusters; present if `vcs` is above 0. The names `vc-1`, `vc-2`, ... are in descending order of
    /// frequency.
    pub vc: Option<SynthCodes>,
    /// Numbers of jobs that were redrawn, capped or left out. All of these counters are always present.
    pub notes: BTreeMap<&'static str, u64>,
}

/// Generates the trace that `spec` describes.
///
/// # Errors
/// Returns [`SynthError`] if a value is out of range, if values exclude each other, or if arrivals would be later than
/// 4e9 s.
///
/// ```
/// # use gangline_synth::{Shape, SynthSpec, generate};
/// let spec = SynthSpec { jobs: 100, seed: 7, ..SynthSpec::new(Shape::Philly) };
/// let trace = generate(&spec)?;
/// assert_eq!(trace.arrival_s.len(), 100);
/// assert_eq!(trace, generate(&spec)?);
/// # Ok::<(), gangline_synth::SynthError>(())
/// ```
pub fn generate(spec: &SynthSpec) -> Result<SynthTrace, SynthError> {
    spec.check_ranges()?;
    spec.check_together()?;
    let world = World::new(spec);
    let mut notes = BTreeMap::new();
    let gpus = world.draw_gpus(spec, &mut notes);
    let duration_s = world.draw_durations(spec, &gpus, &mut notes);
    let arrival_s = arrival_seconds(spec, &gpus, &duration_s)?;
    let model = (!spec.models.is_empty()).then(|| draw_models(spec, &gpus, &mut notes));
    Ok(SynthTrace {
        arrival_s,
        gpus,
        duration_s,
        model,
        user: draw_zipf(spec, Purpose::Users, spec.users, "user"),
        vc: draw_zipf(spec, Purpose::Vcs, spec.vcs, "vc"),
        notes,
    })
}

/// The prepared distributions of one spec.
struct World {
    sizes: Vec<u32>,
    weights: Vec<f64>,
    gangs: WeightTable,
    gpus_limit: u32,
    durations: Durations,
}

impl World {
    fn new(spec: &SynthSpec) -> Self {
        let shares = gang_shares(spec);
        let sizes: Vec<u32> = shares.iter().map(|(gpus, _)| *gpus).collect();
        let weights: Vec<f64> = shares.iter().map(|(_, share)| *share).collect();
        let gangs = WeightTable::new(&weights).expect("the checks require a share above 0");
        let durations = match measured(spec.shape) {
            Some(shape) => {
                Durations::Quantiles(shape.durations.iter().map(QuantileTable::new).collect())
            }
            None => Durations::Exponential {
                mean_s: spec.mean_duration_s,
            },
        };
        Self {
            sizes,
            weights,
            gangs,
            gpus_limit: spec.gpus_limit(),
            durations,
        }
    }

    /// Returns the size to use for a job if every redraw is too large.
    fn largest_that_fits(&self) -> u32 {
        let drawable = self
            .sizes
            .iter()
            .zip(&self.weights)
            .filter(|(_, weight)| **weight > 0.0);
        let fitting = drawable
            .map(|(gpus, _)| *gpus)
            .filter(|gpus| *gpus <= self.gpus_limit);
        fitting
            .max()
            .expect("the checks require that the smallest size fits")
    }

    /// Draws the gang sizes. The draw for each job has the address `(job, 0, number of redraws so far)`.
    fn draw_gpus(&self, spec: &SynthSpec, notes: &mut BTreeMap<&'static str, u64>) -> Vec<u32> {
        let stream = Stream::new(spec.seed, Purpose::Gangs);
        let fallback = self.largest_that_fits();
        let (mut redrawn, mut cut) = (0, 0);
        let gpus = (0..spec.jobs)
            .map(|job| {
                let draw = |attempt| {
                    self.sizes[stream.draw(u64::from(job), 0, attempt).index(&self.gangs)]
                };
                let first = draw(0);
                if first <= self.gpus_limit {
                    return first;
                }
                redrawn += 1;
                let fitting = (1..=GANG_REDRAWS)
                    .map(draw)
                    .find(|size| *size <= self.gpus_limit);
                fitting.unwrap_or_else(|| {
                    cut += 1;
                    fallback
                })
            })
            .collect();
        notes.insert("gpus_redrawn", redrawn);
        notes.insert("gpus_cut", cut);
        gpus
    }

    /// Draws the durations. The draws for a job's duration and for its noise both have the address `(job, 0, 0)`, but
    /// under two different purposes.
    fn draw_durations(
        &self,
        spec: &SynthSpec,
        gpus: &[u32],
        notes: &mut BTreeMap<&'static str, u64>,
    ) -> Vec<f64> {
        let stream = Stream::new(spec.seed, Purpose::Durations);
        let noise = Stream::new(spec.seed, Purpose::Noise);
        let longest_s = spec.max_duration_s.unwrap_or(f64::INFINITY);
        let mut cut = 0;
        let durations = (0_u64..)
            .zip(gpus)
            .map(|(job, gpus)| {
                let mut seconds = self.durations.at(*gpus, stream.draw(job, 0, 0).uniform());
                if spec.noise > 0.0 {
                    seconds *= noise.draw(job, 0, 0).log_normal(spec.noise);
                }
                if seconds > longest_s {
                    cut += 1;
                    seconds = longest_s;
                }
                (libm::floor(seconds * 1000.0 + 0.5) / 1000.0).max(DURATION_STEP_S)
            })
            .collect();
        notes.insert("durations_cut", cut);
        durations
    }
}

const fn measured(shape: Shape) -> Option<&'static Measured> {
    match shape {
        Shape::Philly => Some(&tables::PHILLY),
        Shape::Helios => Some(&tables::HELIOS),
        Shape::Pai => Some(&tables::PAI),
        Shape::Uniform => None,
    }
}

fn gang_shares(spec: &SynthSpec) -> Vec<(u32, f64)> {
    let Some(shape) = measured(spec.shape) else {
        return spec.gang_shares.clone();
    };
    let rest = 1.0 - shape.gangs.iter().map(|(_, share)| share).sum::<f64>();
    std::iter::once((1, rest))
        .chain(shape.gangs.iter().copied())
        .collect()
}

fn arrival_seconds(
    spec: &SynthSpec,
    gpus: &[u32],
    duration_s: &[f64],
) -> Result<Vec<f64>, SynthError> {
    if spec.arrivals == Arrivals::Batch {
        return Ok(vec![0.0; spec.jobs as usize]);
    }
    let profile = spec.shape.profile();
    let is_steady = spec.arrivals == Arrivals::Poisson;
    let clock = if is_steady {
        Clock::steady()
    } else {
        Clock::of_week(profile)
    };
    let span_s = load_span_s(spec, gpus, duration_s)?;
    let rate_per_h = match span_s {
        Some(span_s) => f64::from(spec.jobs - 1) * 3600.0 / clock.weighted_s(span_s),
        None => spec.rate_per_h.unwrap_or(profile.rate_per_h),
    };
    let mut micros = if is_steady {
        arrivals::poisson(spec.seed, spec.jobs, rate_per_h)
    } else {
        arrivals::diurnal(spec.seed, spec.jobs, rate_per_h, profile, &clock)
    };
    if let Some(span_s) = span_s {
        arrivals::stretch(&mut micros, span_s, &clock);
    }
    let arrival_s: Vec<f64> = micros.into_iter().map(|at| at as f64 / 1e6).collect();
    if arrival_s.last().is_some_and(|last| *last > LAST_ARRIVAL_S) {
        return Err(too_low("rate_per_h", spec.jobs));
    }
    Ok(arrival_s)
}

/// Returns the time in seconds from the first to the last arrival at which the offered load equals `load`; `None` if
/// the spec sets no load.
fn load_span_s(
    spec: &SynthSpec,
    gpus: &[u32],
    duration_s: &[f64],
) -> Result<Option<f64>, SynthError> {
    let (Some(load), Some(cluster_gpus)) = (spec.load, spec.cluster_gpus) else {
        return Ok(None);
    };
    let jobs = gpus.iter().zip(duration_s);
    let work: f64 = jobs.map(|(gpus, seconds)| f64::from(*gpus) * seconds).sum();
    let span_s = work / (load * f64::from(cluster_gpus));
    if span_s > LAST_ARRIVAL_S {
        return Err(too_low("load", spec.jobs));
    }
    if span_s < SHORTEST_SPAN_S {
        return Err(SynthError::OutOfRange {
            key: "load",
            value: format!("too high for {} jobs", spec.jobs),
            allowed: format!("at least {SHORTEST_SPAN_S} s from the first to the last arrival"),
        });
    }
    Ok(Some(span_s))
}

fn too_low(key: &'static str, jobs: u32) -> SynthError {
    SynthError::OutOfRange {
        key,
        value: format!("too low for {jobs} jobs"),
        allowed: format!("arrivals up to {LAST_ARRIVAL_S:e} s"),
    }
}

/// Draws the models. The draw for each job has the address `(job, 0, 0)`. It selects one of the models that accept the
/// job's size.
fn draw_models(
    spec: &SynthSpec,
    gpus: &[u32],
    notes: &mut BTreeMap<&'static str, u64>,
) -> SynthCodes {
    let stream = Stream::new(spec.seed, Purpose::Models);
    let knows = |model: &SynthModel, size| {
        model
            .gpus
            .as_ref()
            .is_none_or(|sizes| sizes.contains(&size))
    };
    let mut by_size: BTreeMap<u32, Vec<i32>> = BTreeMap::new();
    let mut absent = 0;
    let codes = (0_u64..)
        .zip(gpus)
        .map(|(job, size)| {
            let able = by_size.entry(*size).or_insert_with(|| {
                (0..)
                    .zip(&spec.models)
                    .filter(|(_, model)| knows(model, *size))
                    .map(|m| m.0)
                    .collect()
            });
            if able.is_empty() {
                absent += 1;
                return -1;
            }
            able[stream.draw(job, 0, 0).below(able.len() as u64) as usize]
        })
        .collect();
    notes.insert("models_absent", absent);
    SynthCodes {
        codes,
        names: spec.models.iter().map(|model| model.name.clone()).collect(),
    }
}

#[cfg(test)]
mod tests;
