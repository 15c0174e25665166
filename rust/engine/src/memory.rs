//! Memory that cannot be had. Rust ends the process when an allocation fails, so whatever grows without bound in a run
//! asks first: the tables that it records, and before it begins what its jobs need.

/// The memory that must be left when a table grows: for the many small allocations of a run, and for the way out. Ours.
pub(crate) const SPARE_BYTES: usize = 1 << 24;
/// The memory of a run per job of its trace, without tables that grow: state, index of the policy, columns of the
/// result. Ours: about twice the growth of a process that `benches/python/memory.py` measures.
pub(crate) const BYTES_PER_JOB: usize = 512;

/// Whether the process can get this much memory now. It is given back at once, untouched, which costs microseconds.
pub(crate) fn is_available(bytes: usize) -> bool {
    let mut trial: Vec<u8> = Vec::new();
    let granted = trial.try_reserve_exact(bytes).is_ok();
    std::hint::black_box(&trial); // else the compiler may leave out an allocation that nothing uses
    granted
}
