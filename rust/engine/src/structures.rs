//! Sets and trees for the free-GPU index and the policies, and a counter of their work.

pub(crate) mod bits;
pub(crate) mod trees;
pub mod work;
