//! A counter for the work of the free-GPU index, used in tests of its cost. A clock would also measure other work on
//! the machine.
//!
//! With debug assertions, the counter counts the bit-set words, tree nodes and list entries that a thread reads.
//! Without them, it counts nothing.

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

/// Returns this thread's count so far.
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
