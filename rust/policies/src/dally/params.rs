//! Parameters of `dally`.

use crate::params::{ParamReader, ParamValue};
use crate::place::Fit;
use gangline_engine::PolicyError;
use gangline_model::{SimSpan, words};

words! {
    /// Where the delay timers come from.
    pub(crate) enum Mode {
        /// The timers are tuned from earlier waiting times of jobs of the same size.
        Auto = "auto",
        /// Both timers have fixed values.
        Manual = "manual",
        /// A job accepts any place at once.
        NoWait = "no_wait",
        /// A job never accepts a place that is wider than necessary for its gang.
        FullyConsolidated = "fully_consolidated",
    }
}

words! {
    /// What happens to a job at the end of a lease.
    pub(crate) enum Renewal {
        /// The job keeps its GPUs unless a more urgent job takes them.
        Keep = "keep",
        /// The job competes for GPUs like a new job.
        Redecide = "redecide",
    }
}

/// Parameters of [`super::Dally`].
#[derive(Clone, Debug)]
pub(crate) struct DallyParams {
    /// Length of a lease.
    pub lease: SimSpan,
    /// Where the delay timers come from.
    pub mode: Mode,
    /// Waiting time before a rack is accepted, in leases.
    pub rack_delay: f64,
    /// Waiting time before the network is accepted, in leases.
    pub network_delay: f64,
    /// Length of the tuner's window, which is also its maximum delay, in leases.
    pub history_leases: f64,
    /// Length of the tuner's window, in ns.
    pub window_ns: i64,
    /// Minimum tuned wait for a rack, in leases.
    pub rack_floor: f64,
    /// Minimum tuned wait for the network, in leases.
    pub network_floor: f64,
    /// Maximum tuned wait for a rack, as a share of the window.
    pub rack_cap_share: f64,
    /// Number of standard deviations by which a tuned wait exceeds the mean.
    pub sd_factor: f64,
    /// Rule that chooses among the places with room.
    pub fit: Fit,
    /// What happens to a job whose lease ends.
    pub renewal: Renewal,
    /// Whether a job may move to a narrower place at the end of a lease.
    pub upgrades: bool,
    /// Whether all leases end at multiples of their length.
    pub is_aligned: bool,
    /// Restart overhead for each GPU of a gang.
    pub overhead_per_gpu: SimSpan,
    /// Whether overhead counts as time without progress in the score.
    pub counts_overhead: bool,
}

impl Default for DallyParams {
    fn default() -> Self {
        let lease = SimSpan(3_600_000_000_000);
        Self {
            lease,
            mode: Mode::Auto,
            rack_delay: 6.0,
            network_delay: 12.0,
            history_leases: 24.0,
            window_ns: 24 * lease.0,
            rack_floor: 6.0,
            network_floor: 12.0,
            rack_cap_share: 0.8,
            sd_factor: 2.0,
            fit: Fit::Best,
            renewal: Renewal::Keep,
            upgrades: true,
            is_aligned: false,
            overhead_per_gpu: SimSpan::ZERO,
            counts_overhead: false,
        }
    }
}

impl DallyParams {
    pub(crate) fn read(params: &ParamReader) -> Result<Self, PolicyError> {
        let mut read = Self {
            lease: params.period("lease_s")?,
            mode: params.choice("mode", Mode::named),
            rack_delay: params.number("rack_delay"),
            network_delay: params.number("network_delay"),
            history_leases: params.number("history_leases"),
            window_ns: 0,
            rack_floor: params.number("rack_floor"),
            network_floor: params.number("network_floor"),
            rack_cap_share: params.number("rack_cap_share"),
            sd_factor: params.number("sd_factor"),
            fit: params.choice("fit", Fit::named),
            renewal: params.choice("renewal", Renewal::named),
            upgrades: params.flag("upgrade_on_renewal"),
            is_aligned: params.flag("align_leases"),
            overhead_per_gpu: params.span("overhead_per_gpu_s")?,
            counts_overhead: params.flag("score_includes_overhead"),
        };
        if read.rack_delay > read.network_delay {
            let expected = "no more than network_delay";
            return Err(Self::bad(params, "rack_delay", expected));
        }
        read.window_ns = read.leases(read.history_leases);
        Ok(read)
    }

    fn bad(params: &ParamReader, field: &str, expected: &str) -> PolicyError {
        PolicyError::Parameter {
            policy: params.policy().to_owned(),
            field: field.to_owned(),
            value: ParamValue::Float(params.number(field)).to_string(),
            expected: expected.to_owned(),
        }
    }

    /// Converts a number of leases to a length in ns, rounded to the nearest integer (halves up). A length that does
    /// not fit becomes `i64::MAX`, which counts as infinite.
    pub(super) fn leases(&self, count: f64) -> i64 {
        (count * self.lease.0 as f64).round() as i64
    }
}
