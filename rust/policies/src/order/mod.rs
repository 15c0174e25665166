//! The pass with preemption and its structures.

mod ledger;
mod line;
mod min_tree;
mod protection;
mod repack;
mod running;
mod sum_tree;

pub use crate::queue::{JobTimers, Key, Measure, Rank};
pub use ledger::{Ledger, Stand};
pub(crate) use line::Line;
pub use min_tree::MinTree;
pub use protection::Protection;
pub use repack::Repack;
pub use running::Running;
pub use sum_tree::SumTree;
