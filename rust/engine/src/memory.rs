//! Checks for available memory. Rust ends the process when a memory allocation fails. A run therefore checks the
//! available memory before its recorded tables grow, and before it creates the state of its jobs.

/// Memory in bytes that must remain free when a table grows; small allocations and the error path need it. The size is
/// our own choice.
pub(crate) const SPARE_BYTES: usize = 1 << 24;
/// Memory in bytes that a run needs for each job in the trace: for its state, the policy's index and the columns of the
/// result. Tables that grow during the run are not included. The number is our own choice; it is about twice the growth
/// per job that `benches/python/memory.py` measures.
pub(crate) const BYTES_PER_JOB: usize = 512;

/// Returns whether the process can allocate this much memory now. The function allocates the memory and frees it at
/// once without touching it, which takes microseconds.
pub(crate) fn is_available(bytes: usize) -> bool {
    let mut trial: Vec<u8> = Vec::new();
    let granted = trial.try_reserve_exact(bytes).is_ok();
    // Without `black_box`, the compiler may remove an allocation that nothing uses.
    std::hint::black_box(&trial);
    granted
}
