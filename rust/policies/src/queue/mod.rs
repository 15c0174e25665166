//! Waiting jobs: their keys, queues by demand class, and one timer per job.

mod by_class;
mod classes;
mod key;
mod timers;

pub use by_class::ByClass;
pub use classes::{ClassQueues, QueueState};
pub use key::{Key, Measure, Rank};
pub use timers::JobTimers;
