//! Small policies that use features of the engine: rounds, timers, shared GPUs, parts, and gangs on several GPU types.
//!
//! These policies are for tests, not for comparisons. Each of them examines every active job at each decision, which is
//! fast enough for the small worlds that tests use. All of them place jobs with the rule `consolidate` and best fit.

mod fork;
mod mixed;
mod places;
mod registry;
mod round;
mod share;
mod timer;

pub use fork::{ForkParams, ToyFork};
pub use mixed::{ToyMixed, place_mixed};
pub use registry::TOYS;
pub use round::ToyRound;
pub use share::ToyShare;
pub use timer::ToyTimer;
