//! `dally`: delay scheduling by topology level, with priority for the jobs that the network slows down most.
//!
//! A job first waits for a narrow place. It accepts a wider one only after a delay, which is tuned. Jobs hold their
//! GPUs for the length of a lease. When a lease ends, the jobs that have lost the most speed to distance have priority.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | d | `gpus` | gang size |
//! | L | `lease` | length of a lease |
//! | w | now - `since` | waiting time since the job arrived or lost its GPUs |
//! | `T_r`, `T_n` | [`tuner::Delays`] | waiting times after which a job accepts several servers in one rack (`T_r`), and several racks (`T_n`) |
//! | Nw | [`queue::Rank::score`] | mean locality factor so far, in units of 10^-12 |
//! | G, Gr | [`offer::Extent`] | number of healthy GPUs in the largest server, and in the largest rack |
//!
//! The modules are [`offer`] (one decision), [`rooms`] (the search for places, and claims), [`tuner`] (timers),
//! [`leases`] (ends of leases) and [`queue`] (waiting jobs). The policy itself is in [`walk`].

mod leases;
mod offer;
mod params;
mod queue;
mod rooms;
mod tuner;
mod walk;

pub(crate) use params::{DallyParams, Mode, Renewal};
pub(crate) use walk::Dally;
