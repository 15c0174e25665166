//! Sets and trees that the free-GPU index and the policies use, and a counter of their work.

pub(crate) mod bits;
pub(crate) mod trees;
pub mod work;
