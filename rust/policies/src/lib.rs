//! What to run where: queue orders, placement rules and the scheduling policies.
//!
//! A policy is an order (keys and queues: `queue/`, with preemption `preempt/`) together with a placement rule
//! (`place/`); the registry is the only list of their names. Nothing here changes the state of a run: a policy
//! reads a view and fills a plan.
#![forbid(unsafe_code)]

pub mod baselines;
pub mod class;
pub mod dally;
pub mod gandiva;
pub mod gavel_timing;
pub mod hadar;
pub mod hadare;
pub mod params;
pub mod place;
pub mod pollux;
pub mod preempt;
pub mod queue;
mod registry;
pub mod round;
pub mod sharing;
pub mod themis;
pub mod tiresias;
mod turns;
mod why;
pub mod yarn;

pub use params::{ParamDefault, ParamKind, ParamReader, ParamSpec, ParamValue, Params};
#[doc(hidden)]
pub use registry::with_shares;
pub use registry::{
    Fact, MakePolicy, POLICIES, PolicyInfo, Premise, Preset, ReadObjective, Services, Stops, build,
    find,
};
