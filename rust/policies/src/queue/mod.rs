//! What policies with a queue are built of.
//!
//! - [`Key`], [`Rank`], [`Measure`]: how jobs are ordered. A key is kept in ordered structures; a rank is the place of a
//!   job at one instant; a measure turns the one into the other.
//! - [`ClassQueues`]: waiting jobs by demand class, and key and state of every job. [`preempt`](crate::preempt) is built
//!   on it.
//! - [`ByClass`]: the same without states, for policies that take out only the first job of a class and never change
//!   the key of a waiting one.
//! - [`JobTimers`]: a timer per job behind a single one of the engine.

mod by_class;
mod classes;
mod key;
mod timers;

pub use by_class::ByClass;
pub use classes::{ClassQueues, QueueState};
pub use key::{Key, Measure, Rank};
pub use timers::JobTimers;
