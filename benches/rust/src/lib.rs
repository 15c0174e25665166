//! What the benchmarks share: workloads from a seed, and the bare loop that is the limit.
//!
//! Nothing here may depend on the engine's own generators: a change there must not move the
//! workloads that speed and instruction counts are measured on.

pub mod bare;
pub mod case;
pub mod contender;
pub mod floor;
pub mod fork;
pub mod share;
pub mod uplinks;
pub mod workload;
pub mod worlds;
