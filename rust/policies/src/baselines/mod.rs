//! The classic queues: fifo, sjf, ssf, srtf, srsf and their variants, and EASY backfilling.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | d | `gpus` | gang size |
//! | R | remaining span | time that the remaining work takes at the isolated best rate, in nanoseconds |
//! | s, extra | `Shadow` | earliest start of the blocked head by GPU count, and GPUs left over at that time |

mod easy;
mod fifo;
mod shortest_remaining;
mod skip;

pub(crate) use easy::Easy;
pub(crate) use fifo::Fifo;
pub(crate) use shortest_remaining::ShortestRemaining;
pub(crate) use skip::{Skip, SkipOrder};
