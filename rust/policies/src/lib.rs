//! What to run where: queue orders, placement rules and the scheduling policies.
//!
//! A policy is an order together with a placement rule (`place/`). What several policies are built of is in `kit/`, with
//! a page that says which book answers which question; preemption is in `preempt/`; the registry is the only list of
//! their names. Nothing here changes the state of a run: a policy reads a view and fills a plan.
#![forbid(unsafe_code)]

pub mod baselines;
pub mod dally;
pub mod gandiva;
pub mod gavel_timing;
pub mod hadar;
pub mod hadare;
pub mod kit;
pub mod params;
pub mod place;
pub mod pollux;
pub mod preempt;
mod registry;
pub mod round;
pub mod sharing;
pub mod themis;
pub mod tiresias;
pub mod yarn;

pub use params::{ParamDefault, ParamKind, ParamReader, ParamSpec, ParamValue, Params};
#[doc(hidden)]
pub use registry::with_shares;
pub use registry::{
    Fact, MakePolicy, POLICIES, PolicyInfo, Premise, Preset, ReadObjective, Services, Stops, build,
    find,
};
