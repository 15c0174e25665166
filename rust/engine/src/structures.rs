//! Sets and trees that the index and the policies are built of, and a counter of what they look at.

pub(crate) mod bits;
pub(crate) mod trees;
pub mod work;
