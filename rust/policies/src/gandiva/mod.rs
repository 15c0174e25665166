//! Gandiva (OSDI 2018): no job waits for GPUs that others of its size hold; they take turns on them
//! (`docs/policies/gandiva.md`).
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | d | `gpus` | gang size |
//! | G | `server_gpus_max` | size of the largest up server of a type |
//! | group | [`group::Group`] | d GPUs and the residents that take turns on them |
//! | size class | `kind` | GPU type, gang size and what the placement rule is asked: who may share a group |
//! | xi | [`pairs::Pairs`] | slow-down beside another job; known of a pair once a trial has measured it |
//!
//! The rules: [`walk`] (one decision), [`turns`] (who of a group runs, and until when), [`moves`] (migration),
//! [`homes`] (which servers a size class has claimed), [`crowd`] (the groups, by what is asked of them).
//! A decision costs what the groups it touches cost, and O(classes); it scans neither queue nor servers.

mod crowd;
mod group;
mod homes;
mod moves;
mod pairs;
mod params;
#[cfg(test)]
mod tests;
mod turns;
mod walk;

pub use params::GandivaParams;
pub use walk::Gandiva;
