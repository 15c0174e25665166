//! Least attained service with queues, and the variant with a Gittins index (Tiresias-L and Tiresias-G).
//!
//! | symbol | here | meaning | source |
//! |---|---|---|---|
//! | A | attained | GPU time held since the last promotion, without overhead, in GPU-ns | paper |
//! | limits | `limits` | attained service at which a job moves to the next queue | public simulator |
//! | k | `promote_knob` | a job that has waited for k times its run time (without overhead) returns to the first queue | paper |
//! | D | `delta` | service quantum of the Gittins index | public simulator |

mod continuous;
mod gittins;
mod line;
mod queues;

pub(crate) use continuous::ContinuousLas;
pub(crate) use gittins::GittinsIndex;
pub(crate) use queues::{QueuedParams, QueuedService};
