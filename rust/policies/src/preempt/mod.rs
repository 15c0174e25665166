//! Preemption: who runs is decided anew at each decision, from the order of all jobs, waiting or running.
//!
//! # The rule
//! 1. *Count.* In order, a job is admitted if enough GPUs of one of its types are left by number, wherever they are:
//!    first of the type it runs on, then of its other types in their order. They are counted as its own.
//! 2. Running jobs that are admitted on the type they run on keep their GPUs. All other running jobs give theirs up.
//! 3. In order, each admitted job without GPUs gets some by the placement rule, on the type that admitted it; one that
//!    ran moves. A strict placement rule, which asks for more than a number of GPUs, may leave it *unplaced*.
//! 4. In order, each job without GPUs: one that ran keeps its old GPUs if all of them are still free, a waiting one
//!    gets any that the rule finds for it. Both run *backfilled*, without admission. A job that ran and has no GPUs
//!    now is preempted.
//!
//! # The algorithms
//! All give the same plans; [`Pass`] chooses one at the start of a run.
//!
//! | | for | a decision costs |
//! |---|---|---|
//! | `plain`: the rule as it is stated, over all active jobs | tests, as the oracle | O(active log active) |
//! | `walk`: the same over the running jobs and the first job of each demand class | every run | O(running log running + classes) |
//! | `incremental`: changes what the last decision admitted | one GPU type, the order of two running jobs of a size stands still | O((changes + classes) log n) |
//! | `strict`: the incremental count, then steps 3 and 4 with a profile of the free capacity along the order | the same, the order stands still, a strict placement rule | O((changes x classes) log n); O(backfilled) for a gang on several servers |
//!
//! Why classes are enough: free capacity only shrinks along the order. Where the first waiting job of a demand class does
//! not fit, none of its class behind it does. The exceptions are [`Places::is_non_monotone`](crate::class::Places::is_non_monotone).

mod incremental;
mod pass;
mod plain;
mod profile;
mod protection;
mod running;
mod strict;
mod walk;

pub use pass::Pass;
pub use protection::Protection;
