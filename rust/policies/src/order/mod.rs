//! Orders: keys, queues by demand class, and the two passes that every queue policy is made of.

mod key;
mod ledger;
mod line;
mod min_tree;
mod protection;
mod queues;
mod repack;
mod running;
mod skip;
mod sum_tree;
mod timers;

pub use key::{Key, Measure, Rank};
pub use ledger::{Ledger, Stand};
pub use min_tree::MinTree;
pub use protection::Protection;
pub use queues::ClassQueues;
pub use repack::Repack;
pub use running::Running;
pub use skip::SkipPass;
pub use sum_tree::SumTree;
pub use timers::JobTimers;
