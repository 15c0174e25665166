//! Gandiva (OSDI 2018): jobs of one gang size take turns on the same GPUs instead of waiting for free ones
//! (`docs/policies/gandiva.md`).
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | d | `gpus` | gang size |
//! | G | `server_gpus_max` | size of the largest up server of a type |
//! | group | [`groups::Group`] | d GPUs and the residents that take turns on them |
//! | size class | `kind` | GPU type, gang size and what the placement rule is asked: which jobs may share a group |
//! | xi | [`turns::Pairs`] | slowdown by a co-runner; known of a pair of models once a trial has measured it |
//!
//! The rules: [`policy`] (one decision, migration), [`turns`] (which residents run, and until when), [`affinity`]
//! (which servers a size class has claimed), [`groups`] (their index).
//! A decision costs what the groups it touches cost, and O(classes); it scans neither queue nor servers.

mod affinity;
mod groups;
mod params;
mod policy;
mod turns;

pub(crate) use params::GandivaParams;
pub(crate) use policy::Gandiva;
