//! Gandiva (OSDI 2018): jobs of one gang size take turns on the same GPUs instead of waiting for free ones
//! (`docs/policies/gandiva.md`).
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | d | `gpus` | gang size |
//! | G | `server_gpus_max` | size of the largest up server of a type |
//! | group | [`group::Group`] | d GPUs and the residents that take turns on them |
//! | size class | `kind` | GPU type, gang size and what the placement rule is asked: which jobs may share a group |
//! | xi | [`pairs::Pairs`] | slowdown by a co-runner; known of a pair of models once a trial has measured it |
//!
//! The rules: [`policy`] (one decision), [`turns`] (which residents run, and until when), [`migration`],
//! [`affinity`] (which servers a size class has claimed), [`groups`] (their index).
//! A decision costs what the groups it touches cost, and O(classes); it scans neither queue nor servers.

mod affinity;
mod group;
mod groups;
mod migration;
mod pairs;
mod params;
mod policy;
#[cfg(test)]
mod tests;
mod turns;

pub use params::GandivaParams;
pub use policy::Gandiva;
