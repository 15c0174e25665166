//! Settings of `HadarE`, read from parameters.

use crate::hadar::Utility;
use crate::params::ParamReader;
use gangline_engine::{CopyGpus, PolicyError};
use gangline_model::SimSpan;
use gangline_model::words;

words! {
    /// Way in which the model parameters of a job's copies are combined.
    pub(crate) enum FanIn {
        /// All copies are combined at once.
        Parallel = "parallel",
        /// Copies are combined one after the other.
        Serial = "serial",
    }
}

words! {
    /// Names of the rate estimators.
    pub(crate) enum EstimatorName {
        /// The true rates.
        Oracle = "oracle",
        /// A moving average of the observed rates.
        Ewma = "ewma",
        /// The true rates times a random factor.
        Noisy = "noisy",
    }
}

/// Source of the rates that are used for planning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Estimator {
    /// The true rates.
    Oracle,
    /// A moving average of the observed rates.
    Ewma {
        /// Weight of the latest observation.
        alpha: f64,
    },
    /// The true rates times a log-normal factor, drawn for each pair of job and server.
    Noisy {
        /// Sigma of the log-normal factor.
        sigma: f64,
    },
}

impl Estimator {
    fn read(params: &ParamReader) -> Self {
        let sigma = params.number("estimator_sigma");
        match params.choice("estimator", EstimatorName::named) {
            EstimatorName::Ewma => Self::Ewma {
                alpha: params.number("estimator_alpha"),
            },
            EstimatorName::Noisy if sigma > 0.0 => Self::Noisy { sigma },
            EstimatorName::Noisy | EstimatorName::Oracle => Self::Oracle,
        }
    }

    /// Returns whether the rates for planning are the true ones.
    pub(super) fn is_exact(self) -> bool {
        self == Self::Oracle
    }

    /// Returns the name of the estimator as a parameter value.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Oracle => "oracle",
            Self::Ewma { .. } => "ewma",
            Self::Noisy { .. } => "noisy",
        }
    }
}

/// All settings of `HadarE`.
#[derive(Clone, Debug)]
pub(crate) struct HadarEParams {
    /// Name of the policy, for messages.
    pub policy: String,
    /// Maximum number of copies of a job; `None` means one copy per server.
    pub max_copies: Option<usize>,
    /// Number of GPUs of a copy.
    pub copy_gpus: CopyGpus,
    /// Length of a round.
    pub round: SimSpan,
    /// Fixed cost of a consolidation, in seconds.
    pub c0_s: f64,
    /// Bandwidth for transferring parameters, in bytes/s.
    pub bandwidth: f64,
    /// Way in which the model parameters of a job's copies are combined.
    pub fan_in: FanIn,
    /// Utility of a completion time.
    pub utility: Utility,
    /// Factor by which the lowest price is multiplied.
    pub umin_factor: f64,
    /// Whether idle servers get copies at any price.
    pub fill: bool,
    /// Whether copies are assigned by price.
    pub price_pass: bool,
    /// Minimum rate of a copy, relative to the rate of the job's fastest possible copy.
    pub min_share: f64,
    /// Minimum number of iterations that a further copy must do in a round.
    pub min_steps: f64,
    /// Source of the rates that are used for planning.
    pub estimator: Estimator,
}

impl HadarEParams {
    /// The supported utilities: those that do not depend on other jobs.
    pub(crate) const UTILITIES: &'static [&'static str] =
        &["effective_throughput", "normalised", "inverse_jct"];

    pub(crate) fn read(params: &ParamReader) -> Result<Self, PolicyError> {
        let (copies, gpus) = (params.number("max_copies"), params.number("gpus_per_copy"));
        let read = Self {
            policy: params.policy().to_owned(),
            max_copies: (copies > 0.0).then_some(copies as usize),
            copy_gpus: if gpus > 0.0 {
                CopyGpus::Fixed(gpus as u32)
            } else {
                CopyGpus::Server
            },
            round: params.period("round_s")?,
            c0_s: params.number("c0_s"),
            bandwidth: params.number("bandwidth"),
            fan_in: params.choice("fan_in", FanIn::named),
            utility: params.choice("utility", Utility::named),
            umin_factor: params.number("umin_factor"),
            fill: params.flag("fill"),
            price_pass: params.flag("price_pass"),
            min_share: params.number("min_share"),
            min_steps: params.number("min_steps"),
            estimator: Estimator::read(params),
        };
        let refuse = |field: &str, value: &str, expected: &str| {
            Err(PolicyError::Parameter {
                policy: params.policy().to_owned(),
                field: field.to_owned(),
                value: value.to_owned(),
                expected: expected.to_owned(),
            })
        };
        if params.number("estimator_alpha") <= 0.0 {
            return refuse("estimator_alpha", "0", "a number above 0 and at most 1");
        }
        if !read.fill && !read.price_pass {
            let expected = "true, or price_pass = true: at least one pass must assign copies";
            return refuse("fill", "false", expected);
        }
        Ok(read)
    }

    /// Returns the time that it takes to consolidate this many copies of a model; `bytes` is the size of the model.
    pub(super) fn consolidation(&self, copies: usize, bytes: f64) -> SimSpan {
        if copies < 2 {
            return SimSpan::ZERO;
        }
        let seconds = match self.fan_in {
            FanIn::Parallel => self.c0_s + bytes / self.bandwidth,
            FanIn::Serial => self.c0_s + copies as f64 * bytes / self.bandwidth,
        };
        // A time that is out of range is longer than any round, so the run is refused before it starts.
        SimSpan::from_seconds(seconds).unwrap_or(SimSpan(i64::MAX / 4))
    }
}
