//! The steps of `consolidate` one by one, for policies that offer one level at a time.

pub(crate) use super::Pick;
pub(crate) use super::consolidate::{at_level, fill, rack, server, take_rack};
