//! The classic queues: fifo, sjf, ssf, srtf, srsf and their variants, and EASY backfilling.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | d | `gpus` | gang size |
//! | R | remaining span | time in nanoseconds that the remaining work takes at the best isolated rate |
//! | s, extra | `Shadow` | earliest instant at which enough GPUs are free for the blocked head; number of GPUs that are left over then |

mod easy;
mod fifo;
mod shortest_remaining;
mod skip;

pub(crate) use easy::Easy;
pub(crate) use fifo::Fifo;
pub(crate) use shortest_remaining::ShortestRemaining;
pub(crate) use skip::{Skip, SkipOrder};
