//! Durations as a policy sees them: exact, or off by a factor that is drawn once per job.

use gangline_engine::{ClusterView, PolicyError};
use gangline_model::{JobId, SimSpan};
use gangline_rng::{Purpose, Stream};

/// The error of the durations that a policy sees (parameter `estimate_error`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    sigma: f64,
}

impl Seen {
    /// Durations are multiplied by exp(N(0, sigma)).
    pub fn new(sigma: f64) -> Self {
        Self { sigma }
    }

    /// Whether times are seen as they are.
    #[inline]
    pub fn is_exact(self) -> bool {
        self.sigma <= 0.0
    }

    /// A time as seen: the nearest nanosecond, halves up.
    #[inline]
    pub fn span(self, view: &ClusterView<'_>, job: JobId, span: SimSpan) -> SimSpan {
        if self.is_exact() {
            return span;
        }
        let draw = Stream::new(view.seed(), Purpose::Estimates).draw(u64::from(job.0), 0, 0);
        // `as` saturates, which is long enough: simulated time ends before
        SimSpan((span.0 as f64 * draw.log_normal(self.sigma)).round() as i64)
    }

    /// A time in seconds as seen.
    #[inline]
    pub fn seconds(self, view: &ClusterView<'_>, job: JobId, seconds: f64) -> f64 {
        if self.is_exact() {
            return seconds;
        }
        let draw = Stream::new(view.seed(), Purpose::Estimates).draw(u64::from(job.0), 0, 0);
        seconds * draw.log_normal(self.sigma)
    }

    /// Total isolated duration as seen.
    ///
    /// # Errors
    /// [`PolicyError::NotAllowedToKnow`] for an online policy.
    #[inline]
    pub fn duration(self, view: &ClusterView<'_>, job: JobId) -> Result<SimSpan, PolicyError> {
        Ok(self.span(view, job, view.duration(job)?))
    }

    /// Isolated time for the work left, as seen.
    ///
    /// # Errors
    /// [`PolicyError::NotAllowedToKnow`] for an online policy.
    #[inline]
    pub fn remaining(self, view: &ClusterView<'_>, job: JobId) -> Result<SimSpan, PolicyError> {
        Ok(self.span(view, job, view.remaining(job)?))
    }
}
