//! `dally`: delay scheduling by level of the topology, priority by damage of the network.
//!
//! A job waits a tuned time for a narrow place before it accepts a wider one; GPUs are held by leases, at
//! whose ends the jobs that lost most of their speed to distance go first.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | d | `gpus` | gang size |
//! | L | `lease` | length of a lease |
//! | w | now - `since` | time waited since arrival or since the GPUs were lost |
//! | `T_r`, `T_n` | [`tuner::Delays`] | waits before a rack, before the network is accepted |
//! | Nw | [`queue::Rank::score`] | mean locality so far, in 10^-12 |
//! | G, Gr | [`offer::Extent`] | largest up server, most up GPUs of one rack |
//!
//! The rules: [`offer`] (one decision), [`rooms`] (where there is room, and the GPUs that jobs claim), [`tuner`]
//! (timers), [`leases`] (boundaries), [`queue`] (waiting jobs). The policy itself is in [`walk`].

mod leases;
mod offer;
mod params;
mod queue;
mod rooms;
mod tuner;
mod walk;

pub(crate) use params::{DallyParams, Mode, Renewal};
pub(crate) use walk::Dally;
