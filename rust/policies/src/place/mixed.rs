//! Gangs over several GPU types: for policies that mix them (`PolicyTraits::mixes_types`).

use gangline_engine::FreeIndex;
use gangline_model::{GpuSet, GpuTypeId, mask_of_lowest};

/// GPUs of several types for one gang: the types in the order given, in each the servers with the most free GPUs
/// first, all of a server's free GPUs until the gang is complete. `None` if they are too few together. The gang goes at
/// the pace of its slowest type. O(servers taken x log n).
///
/// # Examples
/// ```
/// use gangline_engine::FreeIndex;
/// use gangline_model::{ClusterSpec, GpuType, GpuTypeId, RackId, Server};
/// use gangline_policies::place::place_mixed;
/// let kind = |name: &str| GpuType {
///     name: name.to_owned(), memory_bytes: u64::MAX, price_per_hour: 0.0, speed: 1.0,
/// };
/// let server = |gpu_type| Server { gpu_type: GpuTypeId(gpu_type), gpus: 2, rack: RackId(0) };
/// let cluster = ClusterSpec::new(vec![kind("a"), kind("b")], vec![server(0), server(1)]).unwrap();
/// let types = [GpuTypeId(1), GpuTypeId(0)];
/// let gang = place_mixed(&FreeIndex::new(&cluster), &types, 3).unwrap();
/// let masks: Vec<u64> = gang.by_server().iter().map(|one| one.mask).collect();
/// assert_eq!(masks, [0b01, 0b11]);
/// ```
pub fn place_mixed(free: &FreeIndex, types: &[GpuTypeId], gpus: u32) -> Option<GpuSet> {
    let all = types.iter().map(|&t| free.pool(t).free_total());
    if all.sum::<u32>() < gpus {
        return None;
    }
    let (mut set, mut missing) = (GpuSet::new(), gpus);
    for &gpu_type in types {
        let pool = free.pool(gpu_type);
        for (at, here) in pool.all_servers().descending() {
            if missing == 0 {
                return Some(set);
            }
            let count = here.min(missing);
            set.insert(pool.server(at), mask_of_lowest(pool.mask(at), count));
            missing -= count;
        }
    }
    (missing == 0).then_some(set)
}
