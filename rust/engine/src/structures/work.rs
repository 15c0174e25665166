//! How much the index looks at, for tests of cost: a clock would measure the machine's other work as well.
//!
//! Counts words of bit sets, nodes of trees and entries of lists, by thread, where debug assertions are on;
//! nothing elsewhere.

#[cfg(debug_assertions)]
thread_local! {
    static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts so many looks.
#[cfg(debug_assertions)]
#[inline]
pub(crate) fn looked(times: usize) {
    LOOKS.set(LOOKS.get() + times as u64);
}

/// Counts nothing in a release build.
#[cfg(not(debug_assertions))]
#[inline]
pub(crate) fn looked(_times: usize) {}

/// Looks of this thread so far.
///
/// # Examples
/// ```
/// use gangline_engine::{BitSet, work};
/// let mut set = BitSet::new(1000);
/// set.insert(999);
/// let before = work::looks();
/// set.next_from(0);
/// assert!(work::looks() - before < 5);
/// ```
#[cfg(debug_assertions)]
pub fn looks() -> u64 {
    LOOKS.get()
}
