//! The description of a trace to generate, and the checks on this description.

use std::fmt;

use super::error::{SynthError, near_names};
use super::tables::{self, ArrivalProfile};

/// The family of a synthetic trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Microsoft Philly, 2017: bursts, mostly single-GPU jobs, durations of up to many days.
    Philly,
    /// `SenseTime` Helios (Venus), 2020: many eight-GPU gangs, and durations capped at 48 h.
    Helios,
    /// Alibaba PAI, 2020: short jobs, and gangs of up to 100 GPUs.
    Pai,
    /// Our own shape: Poisson arrivals, exponential durations, and a small table of gang sizes.
    Uniform,
}

impl Shape {
    /// All shapes, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Philly, Self::Helios, Self::Pai, Self::Uniform];

    /// Returns the name that files and the command line use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Philly => "philly",
            Self::Helios => "helios",
            Self::Pai => "pai",
            Self::Uniform => "uniform",
        }
    }

    /// Returns the shape called `name`.
    ///
    /// # Errors
    /// Returns [`SynthError::UnknownShape`], which suggests similar names.
    pub fn from_name(name: &str) -> Result<Self, SynthError> {
        Self::ALL
            .into_iter()
            .find(|shape| shape.name() == name)
            .ok_or_else(|| {
                let near = near_names(name, Self::ALL.iter().map(|shape| shape.name()));
                SynthError::UnknownShape {
                    name: name.to_owned(),
                    near,
                }
            })
    }

    pub(super) const fn profile(self) -> &'static ArrivalProfile {
        match self {
            Self::Philly => &tables::PHILLY.arrivals,
            Self::Helios => &tables::HELIOS.arrivals,
            Self::Pai => &tables::PAI.arrivals,
            Self::Uniform => &tables::uniform::ARRIVALS,
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Pattern of the arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// All jobs arrive at 0.
    Batch,
    /// Gaps between arrivals are exponential.
    Poisson,
    /// Jobs arrive in bursts that follow the hour and the weekday.
    Diurnal,
}

impl Arrivals {
    /// All patterns, in the order of the documentation.
    pub const ALL: [Self; 3] = [Self::Batch, Self::Poisson, Self::Diurnal];

    /// Returns the name that files and the command line use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Poisson => "poisson",
            Self::Diurnal => "diurnal",
        }
    }
}

/// A model that jobs may train.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SynthModel {
    /// Name in the trace.
    pub name: String,
    /// Gang sizes with which jobs may train the model; `None` means all sizes.
    pub gpus: Option<Vec<u32>>,
}

/// A trace to generate. Create it with [`SynthSpec::new`]; [`super::generate`] checks the spec.
#[derive(Clone, Debug, PartialEq)]
pub struct SynthSpec {
    /// Family of the trace.
    pub shape: Shape,
    /// Number of jobs, 1 to [`SynthSpec::MAX_JOBS`].
    pub jobs: u32,
    /// Seed of all streams.
    pub seed: u64,
    /// Pattern of the arrivals.
    pub arrivals: Arrivals,
    /// Mean number of jobs per hour; `None` means the default rate of the shape or, if `load` is set, the rate that it
    /// implies.
    pub rate_per_h: Option<f64>,
    /// Offered load: GPU-seconds of the drawn jobs, divided by the GPU-seconds that `cluster_gpus` has from the first
    /// to the last arrival.
    pub load: Option<f64>,
    /// Number of GPUs in the cluster. `load` is relative to this number, and no gang is larger than it.
    pub cluster_gpus: Option<u32>,
    /// Maximum gang size; larger gangs are drawn again.
    pub max_gpus: Option<u32>,
    /// Maximum duration in seconds; longer durations are capped.
    pub max_duration_s: Option<f64>,
    /// Number of users; 0 means no column.
    pub users: u32,
    /// Number of virtual clusters; 0 means no column.
    pub vcs: u32,
    /// Models to draw from; empty means no column.
    pub models: Vec<SynthModel>,
    /// Standard deviation of the logarithm of the noise factor that multiplies durations.
    pub noise: f64,
    /// Mean duration in seconds; used only by `uniform`.
    pub mean_duration_s: f64,
    /// Gang sizes and their weights; used only by `uniform`.
    pub gang_shares: Vec<(u32, f64)>,
}

impl SynthSpec {
    /// Maximum number of jobs in one trace. The columns of a trace of this size take about 2 GB.
    pub const MAX_JOBS: u32 = 100_000_000;
    /// Maximum number of users or virtual clusters.
    pub const MAX_NAMES: u32 = 1_000_000;

    /// Creates the default spec for a shape: 10,000 jobs, seed 0, and the arrivals of the public trace.
    pub fn new(shape: Shape) -> Self {
        let is_uniform = shape == Shape::Uniform;
        Self {
            shape,
            jobs: 10_000,
            seed: 0,
            arrivals: if is_uniform {
                Arrivals::Poisson
            } else {
                Arrivals::Diurnal
            },
            rate_per_h: None,
            load: None,
            cluster_gpus: None,
            max_gpus: None,
            max_duration_s: None,
            users: 0,
            vcs: 0,
            models: Vec::new(),
            noise: 0.0,
            mean_duration_s: tables::uniform::MEAN_DURATION_S,
            gang_shares: tables::uniform::GANGS.to_vec(),
        }
    }

    /// Returns the largest gang that may be drawn.
    pub(super) fn gpus_limit(&self) -> u32 {
        self.max_gpus
            .unwrap_or(u32::MAX)
            .min(self.cluster_gpus.unwrap_or(u32::MAX))
    }

    /// Checks each value on its own.
    pub(super) fn check_ranges(&self) -> Result<(), SynthError> {
        let within = |key, value: f64, low: f64, high: f64| {
            if value >= low && value <= high {
                return Ok(());
            }
            let allowed = format!("{low} to {high}");
            Err(SynthError::OutOfRange {
                key,
                value: value.to_string(),
                allowed,
            })
        };
        within("jobs", f64::from(self.jobs), 1.0, f64::from(Self::MAX_JOBS))?;
        within("rate_per_h", self.rate_per_h.unwrap_or(1.0), 1e-6, 1e12)?;
        within("load", self.load.unwrap_or(1.0), 1e-6, 1e6)?;
        within(
            "cluster_gpus",
            f64::from(self.cluster_gpus.unwrap_or(1)),
            1.0,
            1e9,
        )?;
        within("max_gpus", f64::from(self.max_gpus.unwrap_or(1)), 1.0, 1e9)?;
        within(
            "max_duration_s",
            self.max_duration_s.unwrap_or(1.0),
            1e-3,
            1e9,
        )?;
        within(
            "users",
            f64::from(self.users),
            0.0,
            f64::from(Self::MAX_NAMES),
        )?;
        within("vcs", f64::from(self.vcs), 0.0, f64::from(Self::MAX_NAMES))?;
        within("noise", self.noise, 0.0, 5.0)?;
        within("mean_duration_s", self.mean_duration_s, 1e-3, 1e9)?;
        self.check_shares()
    }

    fn check_shares(&self) -> Result<(), SynthError> {
        let fits = |&(gpus, share): &(u32, f64)| {
            (1..=1_000_000).contains(&gpus) && share.is_finite() && share >= 0.0
        };
        let total: f64 = self.gang_shares.iter().map(|(_, share)| share).sum();
        if self.gang_shares.iter().all(fits) && total > 0.0 && total.is_finite() {
            return Ok(());
        }
        Err(SynthError::OutOfRange {
            key: "gang_shares",
            value: format!("{:?}", self.gang_shares),
            allowed:
                "sizes from 1 to 1000000 GPUs, and shares of at least 0, at least one of them above 0"
                    .to_owned(),
        })
    }

    /// Checks the values against each other.
    pub(super) fn check_together(&self) -> Result<(), SynthError> {
        let conflict = |first, second, reason| {
            Err(SynthError::Conflict {
                first,
                second,
                reason,
            })
        };
        if self.load.is_some() && self.rate_per_h.is_some() {
            return conflict(
                "load",
                "rate_per_h",
                "each of them determines the arrival rate",
            );
        }
        if self.arrivals == Arrivals::Batch && self.load.is_some() {
            return conflict("load", "arrivals", "a batch has no rate");
        }
        if self.arrivals == Arrivals::Batch && self.rate_per_h.is_some() {
            return conflict("rate_per_h", "arrivals", "a batch has no rate");
        }
        if self.load.is_some() && self.cluster_gpus.is_none() {
            return Err(SynthError::Missing {
                key: "cluster_gpus",
                needed_by: "load",
            });
        }
        if self.load.is_some() && self.jobs < 2 {
            return Err(SynthError::OutOfRange {
                key: "jobs",
                value: self.jobs.to_string(),
                allowed: "at least 2 with `load`".to_owned(),
            });
        }
        if self.shape == Shape::Uniform {
            if self.arrivals == Arrivals::Diurnal {
                return conflict("arrivals", "shape", "`uniform` has no daily pattern");
            }
            let smallest = self.gang_shares.iter().filter(|(_, share)| *share > 0.0);
            if smallest.map(|(gpus, _)| *gpus).min() > Some(self.gpus_limit()) {
                return conflict(
                    "gang_shares",
                    "max_gpus",
                    "no size fits within both the cluster and the limit",
                );
            }
        }
        Ok(())
    }
}
