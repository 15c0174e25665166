//! `dally`: delay scheduling by topology level, with priority for the jobs that the network slows most.
//!
//! A job waits a tuned time for a narrow place before it accepts a wider one. Jobs hold their GPUs under leases. At the
//! end of a lease, jobs that have lost the most speed to distance have priority.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | d | `gpus` | gang size |
//! | L | `lease` | length of a lease |
//! | w | now - `since` | time waited since arrival or since the GPUs were lost |
//! | `T_r`, `T_n` | [`tuner::Delays`] | waiting times before a rack and before the network is accepted |
//! | Nw | [`queue::Rank::score`] | mean locality so far, in 10^-12 |
//! | G, Gr | [`offer::Extent`] | number of GPUs that are up in the largest server, and in the largest rack |
//!
//! The modules are [`offer`] (one decision), [`rooms`] (places with room, and the GPUs that jobs claim), [`tuner`]
//! (timers), [`leases`] (boundaries) and [`queue`] (waiting jobs). The policy itself is in [`walk`].

mod leases;
mod offer;
mod params;
mod queue;
mod rooms;
mod tuner;
mod walk;

pub(crate) use params::{DallyParams, Mode, Renewal};
pub(crate) use walk::Dally;
