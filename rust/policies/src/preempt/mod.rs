//! Preemption: each decision chooses anew which jobs run, based on the order of all waiting and running jobs.
//!
//! A policy (`srtf`, `srsf`, `las`, `gittins` and those built on them) gives each job a key ([`Key`]) and reports
//! changes to its jobs: [`Pass::leave`], [`Pass::wait`], [`Pass::rekey`], [`Pass::servers_changed`]. [`Pass::decide`]
//! then fills the plan.
//!
//! # The rule
//! 1. *Count.* The jobs are taken in order. A job is admitted if enough GPUs of one of its types are left, regardless
//!    of where they are. The type on which the job already runs is tried first, then its other types in order. The GPUs
//!    of an admitted job are no longer available to the jobs behind it.
//! 2. Running jobs that are admitted on the type on which they run keep their GPUs. All other running jobs give up
//!    their GPUs.
//! 3. The placement rule goes through the admitted jobs without GPUs in order. It gives each of them GPUs of the type
//!    for which the job was admitted. A job that was running moves. A placement rule such as `yarn` may refuse a gang
//!    although enough GPUs are free; the job is then *unplaced*.
//! 4. In order, each job without GPUs is tried. A job that was running keeps its old GPUs if all of them are still
//!    free. A waiting job gets GPUs if the placement rule finds any for it. Jobs that get GPUs in this step run
//!    *backfilled*, without admission. A job that was running and now has no GPUs is preempted.
//!
//! # The algorithms
//! All algorithms give the same plans. [`Pass`] chooses an algorithm at the start of a run; `backfilling` changes to
//! `walk` permanently when a demand class is non-monotone (see below).
//!
//! | | used for | a decision costs |
//! |---|---|---|
//! | `walk`: applies the rule to the running jobs and the first job of each demand class | all other runs | O(running log running + classes log classes); O(free GPUs) if the placement rule never refuses a gang and all waiting jobs fit next to the running ones |
//! | `incremental`: updates the set of jobs that the last decision admitted | one GPU type, a placement rule that never refuses a gang, an order in which running jobs of the same gang size never overtake each other | O((changes + classes) log n) |
//! | `backfilling`: the incremental count, then steps 3 and 4 with a profile of the free capacity at each point of the order | one GPU type, a placement rule that may refuse a gang, an order that does not change merely because time passes ([`Measure::is_fixed`]) | O((changes x classes) log n); O(backfilled) for a gang on several servers |
//!
//! It is enough to check one job per class, because free capacity only decreases along the order. If the first waiting
//! job of a demand class does not fit, no other job of its class fits. The exceptions are the non-monotone classes:
//! [`Places::is_non_monotone`](crate::kit::Places::is_non_monotone).
//!
//! # Changing the rule
//! `repack` in `tests/reference/policies.py` defines the rule for all active jobs and must be changed first;
//! `tests/parity` compares the engine with it. The other algorithms must follow this rule. `tests/rust/policies.rs` and
//! `tests/rust/wide.rs` compare the plans of the other algorithms with those of `walk`. To make `walk` run, they add a
//! second GPU type that no job may use.

mod backfilling;
mod incremental;
mod jobs;
mod pass;
mod profile;
mod running;
mod walk;

pub(crate) use crate::kit::Protection;
pub use jobs::Rank;
pub(crate) use jobs::{Key, Measure};
pub(crate) use pass::Pass;
