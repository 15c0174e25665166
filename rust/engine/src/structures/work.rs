//! A counter of the work of the free-GPU index, for tests of cost. A clock would also measure other work of the
//! machine.
//!
//! If debug assertions are on, the counter counts the words of bit sets, the nodes of trees and the entries of lists
//! that a thread reads. Otherwise it counts nothing.

#[cfg(debug_assertions)]
thread_local! {
    static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Adds to the counter.
#[cfg(debug_assertions)]
#[inline]
pub(crate) fn looked(times: usize) {
    LOOKS.set(LOOKS.get() + times as u64);
}

/// Counts nothing in a release build.
#[cfg(not(debug_assertions))]
#[inline]
pub(crate) fn looked(_times: usize) {}

/// Returns the count of this thread so far.
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
