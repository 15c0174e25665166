//! What to run where: queue orders, placement rules and the scheduling policies.
//!
//! A policy is an order (keys and queues, `order/`) together with a placement rule (`place/`); the registry
//! is the only list of their names. Nothing here changes the state of a run: a policy reads a view and
//! fills a plan.
#![forbid(unsafe_code)]

pub mod class;
pub mod order;
pub mod params;
pub mod place;

pub mod baselines;
