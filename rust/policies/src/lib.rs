//! Scheduling decisions: queue orders, placement rules and scheduling policies.
//!
//! A policy combines an order with a placement rule (`place/`). `kit/` contains building blocks that several policies
//! use, and a table of the indexes. `preempt/` contains the rules and algorithms for preemption. The registry is the
//! only list of policy names. Nothing in this crate changes the state of a run: a policy reads a view and fills a plan.
#![forbid(unsafe_code)]

mod baselines;
mod dally;
mod gandiva;
mod gavel_timing;
mod hadar;
mod hadare;
mod kai;
pub mod kit;
mod kueue;
mod optimus;
pub mod params;
pub mod place;
mod pollux;
mod preempt;
mod registry;
mod round;
pub mod sharing;
mod slurm;
pub mod themis;
mod tiresias;
mod yarn;

pub use hadar::{Allocation, Goal, HadarParams, Market, Quote};
pub use params::{ParamDefault, ParamKind, ParamReader, ParamSpec, ParamValue, Params};
pub use preempt::Rank;
#[doc(hidden)]
pub use registry::with_shares;
pub use registry::{
    Fact, MakePolicy, POLICIES, PolicyInfo, Premise, Preset, ReadObjective, Services, Stops, build,
    find,
};
