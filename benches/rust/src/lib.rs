//! Code that the benchmarks share: workloads from a seed, and the bare loop to which the engine is compared.
//!
//! Nothing here may depend on the project's own trace generators, because a change of these must not change the
//! workloads on which speed and instruction counts are measured.

pub mod bare;
pub mod case;
pub mod contender;
pub mod floor;
pub mod fork;
pub mod share;
pub mod uplinks;
pub mod workload;
pub mod worlds;
