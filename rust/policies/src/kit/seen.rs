//! Durations as a policy sees them. They are either the run's estimates, or the true durations times a random factor
//! that the policy draws once for each job.

use gangline_engine::{ClusterView, Estimate, PolicyError, noise};
use gangline_model::{JobId, SimSpan};

/// Durations as a policy sees them. If the parameter `estimate_error` is above 0, the policy draws an error for each
/// job; otherwise, it uses the run's estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    sigma: f64,
}

impl Seen {
    /// The run's estimates, unchanged.
    pub const AS_TOLD: Self = Self { sigma: 0.0 };

    /// Multiplies exact durations by exp(N(0, sigma)) for each job. If sigma is 0, the run's estimates are used.
    pub fn new(sigma: f64) -> Self {
        Self { sigma }
    }

    /// Returns whether the policy sees true durations.
    #[inline]
    pub fn is_exact(self, view: &ClusterView<'_>) -> bool {
        self.sigma <= 0.0 && view.tells_exactly()
    }

    #[inline]
    fn estimate(self, view: &ClusterView<'_>, job: JobId) -> Result<Estimate, PolicyError> {
        if self.sigma > 0.0 {
            return Ok(Estimate::Times(noise(view.seed(), job, self.sigma)));
        }
        view.estimate(job)
    }

    /// Returns the total isolated duration, as the policy sees it.
    ///
    /// # Errors
    /// Returns [`PolicyError::NotAllowedToKnow`] for an online policy.
    #[inline]
    pub fn duration(self, view: &ClusterView<'_>, job: JobId) -> Result<SimSpan, PolicyError> {
        Ok(self.estimate(view, job)?.of(view.duration(job)?))
    }

    /// Returns the isolated time that the remaining work takes, as the policy sees it.
    ///
    /// # Errors
    /// Returns [`PolicyError::NotAllowedToKnow`] for an online policy.
    #[inline]
    pub fn remaining(self, view: &ClusterView<'_>, job: JobId) -> Result<SimSpan, PolicyError> {
        Ok(self.estimate(view, job)?.of(view.remaining(job)?))
    }

    /// Returns the factor that the policy applies to the remaining work, and to the time that this work takes at any
    /// rate.
    ///
    /// # Errors
    /// Returns [`PolicyError::NotAllowedToKnow`] for an online policy.
    #[inline]
    pub fn factor(self, view: &ClusterView<'_>, job: JobId) -> Result<f64, PolicyError> {
        match self.estimate(view, job)? {
            Estimate::Exact => Ok(1.0),
            Estimate::Times(factor) => Ok(factor),
            told @ Estimate::Plus(_) => Ok(told.factor(view.isolated_left(job)?)),
        }
    }

    /// Converts the true time that the remaining work takes at some rate into the policy's estimate, rounded to the
    /// nearest nanosecond (halves up).
    ///
    /// # Errors
    /// Returns [`PolicyError::NotAllowedToKnow`] for an online policy.
    #[inline]
    pub fn span(
        self,
        view: &ClusterView<'_>,
        job: JobId,
        span: SimSpan,
    ) -> Result<SimSpan, PolicyError> {
        if self.is_exact(view) {
            return Ok(span);
        }
        Ok(Estimate::Times(self.factor(view, job)?).of(span))
    }

    /// Returns the time in seconds that the remaining work takes at a rate, as the policy sees it. Jobs with equal
    /// estimates get equal times.
    ///
    /// # Errors
    /// Returns [`PolicyError::NotAllowedToKnow`] for an online policy.
    #[inline]
    pub fn seconds_at(
        self,
        view: &ClusterView<'_>,
        job: JobId,
        rate: f64,
    ) -> Result<f64, PolicyError> {
        let seconds = view.seconds_at(job, rate)?;
        Ok(match self.estimate(view, job)? {
            Estimate::Exact => seconds,
            Estimate::Times(factor) => seconds * factor,
            told @ Estimate::Plus(_) => {
                told.of(view.isolated_left(job)?).seconds() * (view.best_rate(job) / rate)
            }
        })
    }

    /// Converts the true remaining time of a job at its current rate, in seconds, into the policy's estimate. Only
    /// policies that know durations may use this method.
    #[inline]
    pub fn seconds(self, view: &ClusterView<'_>, job: JobId, seconds: f64) -> f64 {
        self.factor(view, job)
            .map_or(seconds, |factor| seconds * factor)
    }

    /// Returns the remaining work in iterations, as the policy sees it.
    ///
    /// # Errors
    /// Returns [`PolicyError::NotAllowedToKnow`] for an online policy.
    #[inline]
    pub fn work_left(self, view: &ClusterView<'_>, job: JobId) -> Result<f64, PolicyError> {
        Ok(view.remaining_work(job)? * self.factor(view, job)?)
    }

    /// Returns the total work in iterations, as the policy sees it.
    ///
    /// # Errors
    /// Returns [`PolicyError::NotAllowedToKnow`] for an online policy.
    pub fn work(self, view: &ClusterView<'_>, job: JobId) -> Result<f64, PolicyError> {
        let factor = self.estimate(view, job)?.factor(view.duration(job)?);
        Ok(view.work(job)? * factor)
    }
}
