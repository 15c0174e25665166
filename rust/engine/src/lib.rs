//! Time and state of a run: the event loop, the free-GPU index, and the traits that policies implement.
//!
//! This crate contains no concrete policy, reads no wall clock, does no file I/O and does not depend on Python. The
//! concepts pages of the documentation define the meaning of a simulated second. The parts are:
//!
//! - [`Engine`] advances to the next instant, asks a [`Policy`] for a [`Plan`], checks the plan and applies it;
//! - [`ClusterView`] and [`Changes`] contain everything that a policy can see;
//! - [`FreeIndex`] answers questions about free GPUs in O(1) or O(log n).
#![forbid(unsafe_code)]

mod accounts;
mod apply;
mod capacity;
mod commit;
mod config;
mod error;
mod estimates;
mod features;
mod instant;
mod invariant;
mod livelock;
mod memory;
mod metrics;
mod occupancy;
mod plan;
mod policy;
mod queue;
mod record;
mod run;
mod run_time;
mod segments;
mod state;
mod structures;
mod timeline;
mod timers;
mod traits;
mod uplinks;
mod view;
mod watch;

pub use config::{FailureRow, Failures, GangXi, OnInfeasible, RunConfig, TimelineMode, World};
pub use error::{EngineError, PlanError, PolicyError, Rule};
pub use estimates::{Estimate, Estimates, History, Statistic, noise};
pub use metrics::{Output, quantile};
pub use occupancy::{FreeIndex, Mark, TypePool};
pub use plan::Plan;
pub use policy::Policy;
pub use queue::{Event, EventClass, EventQueue};
pub use record::LogHash;
pub use run::{Advance, Control, Engine, Outcome, Silent, Stopwatch};
pub use run_time::{Cost, Costs, Kind, RunTime};
pub use segments::{EndReason, Segments};
pub use state::State;
pub use state::jobs::Phase;
pub use state::phases::PresentPhase;
pub use state::running::{Part, Run};
pub use structures::bits::BitSet;
pub use structures::trees::{Fenwick, MaxTree};
#[doc(hidden)]
pub use structures::work;
pub use timeline::Timeline;
pub use traits::{CopyGpus, Knowledge, Next, PolicyTraits, WakeOn};
pub use view::{Change, Changes, ClusterView, SharedFacts};
pub use watch::{Cause, Causes, Counted, Reason, Waited};
