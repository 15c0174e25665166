//! Structures of the passes.

mod line;
mod min_tree;
mod sum_tree;

pub use crate::queue::Key;
pub(crate) use line::Line;
pub use min_tree::MinTree;
pub use sum_tree::SumTree;
