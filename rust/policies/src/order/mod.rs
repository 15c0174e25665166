//! Structures of the passes.

mod min_tree;
mod sum_tree;

pub use crate::queue::Key;
pub use min_tree::MinTree;
pub use sum_tree::SumTree;
