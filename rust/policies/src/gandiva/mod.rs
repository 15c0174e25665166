//! Gandiva (OSDI 2018): jobs of the same gang size take turns on the same GPUs instead of waiting for free ones
//! (`docs/policies/gandiva.md`).
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | d | `gpus` | gang size |
//! | G | `server_gpus_max` | size of the largest healthy server of a type |
//! | group | [`groups::Group`] | d GPUs, and the residents that take turns on them |
//! | size class | `kind` | GPU type, gang size, and the demand that the placement rule reads; jobs that agree in all three may share a group |
//! | xi | [`turns::Pairs`] | slowdown caused by a co-runner; known for a pair of models after a trial |
//!
//! The modules are [`policy`] (decisions and migration), [`turns`] (which residents run and when turns end),
//! [`affinity`] (servers claimed by a size class) and [`groups`] (groups and their indexes). The cost of a decision is
//! proportional to the number of groups that it touches, plus O(classes). A decision scans neither the queue nor the
//! servers.

mod affinity;
mod groups;
mod params;
mod policy;
mod turns;

pub(crate) use params::GandivaParams;
pub(crate) use policy::Gandiva;
