//! The classic queues: fifo, sjf, ssf, srtf, srsf and their variants, and EASY backfill.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | d | `gpus` | gang size |
//! | R | remaining span | work left at the isolated best rate, nanoseconds |
//! | s, extra | `Shadow` | when the blocked head can start by count, and what is free besides |

mod blocking;
mod easy;
mod fifo;
mod shortest_remaining;
mod skip;

pub use blocking::Blocking;
pub use easy::Easy;
pub use fifo::Fifo;
pub use shortest_remaining::ShortestRemaining;
pub use skip::{Skip, SkipOrder};
