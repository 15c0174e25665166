//! Time and state of a run: the event loop, the free-GPU index, and the port that policies plug into.
//!
//! Knows no concrete policy, no file, no clock and no Python. The meaning of a simulated second is
//! documented in the project's concepts pages; the parts are:
//!
//! - [`Engine`] gathers an instant, asks a [`Policy`], checks its [`Plan`] and carries it out;
//! - [`ClusterView`] and [`Changes`] are all that a policy may look at;
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
pub use segments::{EndReason, Segments};
pub use state::State;
pub use state::jobs::Phase;
pub use state::running::{Part, Run};
pub use structures::bits::BitSet;
pub use structures::trees::{Fenwick, MaxTree};
#[doc(hidden)]
pub use structures::work;
pub use timeline::Timeline;
pub use traits::{CopyGpus, Knowledge, Next, PolicyTraits, WakeOn};
pub use view::{Change, Changes, ClusterView, SharedFacts};
pub use watch::{Cause, Causes, Counted, Reason, Waited};
