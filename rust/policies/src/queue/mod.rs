//! Waiting jobs: their keys, one queue per demand class with lazy deletion, one timer per job, and the pass without
//! preemption that every simple queue policy is made of.

mod classes;
mod key;
mod skip;
mod timers;

pub use classes::{ClassQueues, QueueState};
pub use key::{Key, Measure, Rank};
pub use skip::SkipPass;
pub use timers::JobTimers;
