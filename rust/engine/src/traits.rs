//! What a policy tells the engine about itself: what wakes it, what it may know, what it needs.

use gangline_model::SimSpan;
use std::ops::BitOr;

/// Kinds of events that wake a policy: a set of bits, fixed for the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WakeOn(pub u8);

impl WakeOn {
    /// A job arrived.
    pub const ARRIVAL: Self = Self(1);
    /// A job finished.
    pub const COMPLETION: Self = Self(2);
    /// A server failed or came back.
    pub const CAPACITY: Self = Self(4);
    /// One of the policy's timers fired.
    pub const TIMER: Self = Self(8);
    /// A round boundary.
    pub const ROUND: Self = Self(16);
    /// Arrivals, completions and changes of capacity: what most policies wait for.
    pub const QUEUE: Self = Self(7);

    /// Whether the two sets have a kind in common.
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

/// What a policy may know of the work that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// Nothing: it sees only what has happened.
    Online,
    /// How much work is left (through the run's estimates).
    Remaining,
}

/// What a policy says about the next round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Ask again at the next round boundary.
    Ask,
    /// The plan would repeat until the next event that is not a round: skip the rounds up to it.
    Steady,
}

/// How many GPUs a copy of a forked job has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyGpus {
    /// As many as the job asks for.
    #[default]
    Gang,
    /// All of its server, whatever the job asks for.
    Server,
    /// So many, whatever the job asks for.
    Fixed(u32),
}

impl CopyGpus {
    /// GPUs of a copy on a server of so many, of a job with such a gang.
    #[inline]
    pub fn on(self, server_gpus: u32, gang: u32) -> u32 {
        match self {
            Self::Gang => gang,
            Self::Server => server_gpus,
            Self::Fixed(gpus) => gpus,
        }
    }
}

/// What a policy needs of the engine, fixed for the run. A policy states what differs from the default.
#[expect(clippy::struct_excessive_bools, reason = "each is a need of its own")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyTraits {
    /// The events that wake it; by default arrivals, completions and changes of capacity.
    pub wake_on: WakeOn,
    /// `Some(R)`: it works in rounds, and boundaries at 0, R, 2R, ... are events of the run.
    pub round: Option<SimSpan>,
    /// Whether it may read how much work is left.
    pub knowledge: Knowledge,
    /// Most jobs it puts on one GPU.
    pub max_share: u32,
    /// Whether it builds gangs over several GPU types.
    pub mixes_types: bool,
    /// Largest gang it serves; jobs with a larger one can never run.
    pub gang_max: Option<u32>,
    /// Whether its jobs may hold several parts at once.
    pub forks: bool,
    /// How many GPUs each part has, under a policy that forks jobs.
    pub copy_gpus: CopyGpus,
    /// Whether it gives elastic jobs other numbers of GPUs than they ask for. Only explanations look at it.
    pub resizes: bool,
    /// Overhead of every restart and move on top of the run's, per GPU of the gang.
    pub restart_per_gpu: SimSpan,
    /// Whether it reads how much of their speed jobs kept so far: [`ClusterView::kept_ns`].
    pub watches_locality: bool,
    /// Whether it needs what happened in one order: [`Changes::order`].
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
