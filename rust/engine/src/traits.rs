//! Traits of a policy: the events that wake it, what it knows, and the features that it needs.

use gangline_model::SimSpan;
use std::ops::BitOr;

/// Kinds of events that wake a policy, as a set of bits. The set does not change during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WakeOn(pub u8);

impl WakeOn {
    /// A job arrived.
    pub const ARRIVAL: Self = Self(1);
    /// A job finished.
    pub const COMPLETION: Self = Self(2);
    /// A server failed or was repaired.
    pub const CAPACITY: Self = Self(4);
    /// One of the policy's timers fired.
    pub const TIMER: Self = Self(8);
    /// A round boundary.
    pub const ROUND: Self = Self(16);
    /// Arrivals, completions and capacity changes, which most policies need.
    pub const QUEUE: Self = Self(7);

    /// Returns whether the two sets have a kind of event in common.
    #[inline]
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for WakeOn {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Knowledge that a policy has about the remaining work of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// The policy sees only past events.
    Online,
    /// The policy knows the remaining work according to the run's estimates.
    Remaining,
}

/// Whether the policy wants to decide at the next round boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The policy decides again at the next round boundary.
    Ask,
    /// The plan would stay the same until the next event that is not a round, so the rounds before this event are
    /// skipped.
    Steady,
}

/// Rule for the number of GPUs that a copy of a forked job has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyGpus {
    /// The gang size of the job.
    #[default]
    Gang,
    /// All GPUs of the copy's server, regardless of the job.
    Server,
    /// A fixed number of GPUs, regardless of the job.
    Fixed(u32),
}

impl CopyGpus {
    /// Returns the number of GPUs that a copy has on a server with `server_gpus` GPUs, for a job with this gang size.
    #[inline]
    pub fn on(self, server_gpus: u32, gang: u32) -> u32 {
        match self {
            Self::Gang => gang,
            Self::Server => server_gpus,
            Self::Fixed(gpus) => gpus,
        }
    }
}

/// Features that a policy needs from the engine; they do not change during a run. A policy states only its differences
/// from the default.
#[expect(
    clippy::struct_excessive_bools,
    reason = "the flags are independent of each other"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyTraits {
    /// The events that wake the policy; by default, these are arrivals, completions and capacity changes.
    pub wake_on: WakeOn,
    /// `Some(R)` means that the policy works in rounds; the round boundaries at 0, R, 2R, ... are events of the run.
    pub round: Option<SimSpan>,
    /// Knowledge that the policy has about the remaining work.
    pub knowledge: Knowledge,
    /// Maximum number of jobs that the policy puts on one GPU.
    pub max_share: u32,
    /// Whether gangs may span several GPU types.
    pub mixes_types: bool,
    /// Maximum gang size that the policy accepts; jobs with a larger gang can never run.
    pub gang_max: Option<u32>,
    /// Whether jobs may hold several parts at once.
    pub forks: bool,
    /// Rule for the number of GPUs of each part, under a policy that forks jobs.
    pub copy_gpus: CopyGpus,
    /// Whether the policy may change the number of GPUs of elastic jobs. Only explanations use this field.
    pub resizes: bool,
    /// Overhead that every restart and move costs per GPU of the gang, in addition to the run's overhead.
    pub restart_per_gpu: SimSpan,
    /// Whether the policy uses the locality factors that jobs have had so far: [`crate::ClusterView::kept_ns`].
    pub watches_locality: bool,
    /// Whether the policy needs all events in a single order: [`crate::Changes::order`].
    pub orders_changes: bool,
}

impl Default for PolicyTraits {
    fn default() -> Self {
        Self {
            wake_on: WakeOn::QUEUE,
            round: None,
            knowledge: Knowledge::Online,
            max_share: 1,
            mixes_types: false,
            gang_max: None,
            forks: false,
            copy_gpus: CopyGpus::Gang,
            resizes: false,
            restart_per_gpu: SimSpan::ZERO,
            watches_locality: false,
            orders_changes: false,
        }
    }
}
