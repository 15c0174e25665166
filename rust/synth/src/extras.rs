//! Columns for traces whose jobs come from another source: users, virtual clusters, noise and plain random numbers.

use super::codes::{SynthCodes, draw_zipf};
use super::error::SynthError;
use super::spec::{Shape, SynthSpec};
use gangline_rng::{Purpose, Stream};

/// Users and virtual clusters of the jobs `0..jobs`, and a noise factor for each duration.
#[derive(Clone, Debug, PartialEq)]
pub struct SynthExtras {
    /// Users; present if `users` is above 0.
    pub user: Option<SynthCodes>,
    /// Virtual clusters; present if `vcs` is above 0.
    pub vc: Option<SynthCodes>,
    /// Log-normal factors with median 1; empty if there is no noise.
    pub noise: Vec<f64>,
}

/// Draws the extras of a spec. Only the fields `jobs`, `seed`, `users`, `vcs` and `noise` are used.
///
/// # Errors
/// Returns [`SynthError::OutOfRange`] if a value is out of range.
pub fn extras(spec: &SynthSpec) -> Result<SynthExtras, SynthError> {
    spec.check_ranges()?;
    let stream = Stream::new(spec.seed, Purpose::Noise);
    let factor = |job| stream.draw(job, 0, 0).log_normal(spec.noise);
    let noise = if spec.noise > 0.0 {
        (0..u64::from(spec.jobs)).map(factor).collect()
    } else {
        Vec::new()
    };
    Ok(SynthExtras {
        user: draw_zipf(spec, Purpose::Users, spec.users, "user"),
        vc: draw_zipf(spec, Purpose::Vcs, spec.vcs, "vc"),
        noise,
    })
}

/// Distribution of plain random numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// Uniform on `[0, 1)`.
    Uniform,
    /// Exponential with mean 1.
    Exponential,
    /// Log-normal with median 1.
    LogNormal {
        /// Standard deviation of the logarithm, at least 0.
        sigma: f64,
    },
}

/// Returns one random number for each of the jobs `0..jobs`. It is drawn for the given purpose at the address `(job, 0,
/// counter)` and has the given distribution.
///
/// # Errors
/// Returns [`SynthError::OutOfRange`] for an unknown purpose or too many jobs.
pub fn draws(
    seed: u64,
    purpose: &str,
    jobs: u32,
    counter: u8,
    law: Law,
) -> Result<Vec<f64>, SynthError> {
    let purpose = match purpose {
        "arrivals" => Purpose::Arrivals,
        "durations" => Purpose::Durations,
        "models" => Purpose::Models,
        "gangs" => Purpose::Gangs,
        "extra" => Purpose::Extra,
        other => {
            return Err(SynthError::OutOfRange {
                key: "purpose",
                value: other.to_owned(),
                allowed: "arrivals, durations, models, gangs, extra".to_owned(),
            });
        }
    };
    SynthSpec {
        jobs,
        ..SynthSpec::new(Shape::Uniform)
    }
    .check_ranges()?;
    let stream = Stream::new(seed, purpose);
    let at = |job| stream.draw(job, 0, u32::from(counter));
    let jobs = 0..u64::from(jobs);
    Ok(match law {
        Law::Uniform => jobs.map(|job| at(job).uniform()).collect(),
        Law::Exponential => jobs.map(|job| at(job).exponential(1.0)).collect(),
        Law::LogNormal { sigma } => jobs.map(|job| at(job).log_normal(sigma)).collect(),
    })
}
