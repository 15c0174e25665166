//! `toy-mixed`: first come, first served. If no single GPU type has enough GPUs for a gang, the gang is placed on
//! several types.

use gangline_engine::{
    Changes, ClusterView, FreeIndex, Next, Plan, Policy, PolicyError, PolicyTraits,
};
use gangline_model::{GpuSet, GpuTypeId, JobId, mask_of_lowest};
use gangline_policies::kit::Places;
use gangline_policies::place::Level;

/// A first-come, first-served queue whose gangs may mix GPU types.
#[derive(Debug)]
pub struct ToyMixed {
    places: Places,
}

impl ToyMixed {
    /// Creates the policy.
    pub fn new() -> Self {
        Self {
            places: super::places::places(Level::Network),
        }
    }

    fn place(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>, job: JobId) -> Option<GpuSet> {
        let class = self.places.classes().of(job);
        let types: Vec<GpuTypeId> = view.types_of(job).collect();
        for &gpu_type in &types {
            if let Some(gpus) = self.places.place_on(plan, class, job, gpu_type) {
                return Some(gpus);
            }
        }
        place_mixed(plan.free(), &types, view.jobs().gpus(job))
    }
}

impl Default for ToyMixed {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for ToyMixed {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            mixes_types: true,
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        // A gang without a place on one type might have a place on several types.
        self.places.start(view, plan).map(|_| Vec::new())
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        _changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        for job in view.waiting() {
            let Some(gpus) = self.place(view, plan, job) else {
                break;
            };
            plan.start(job, gpus);
        }
        Ok(Next::Ask)
    }
}

/// Returns GPUs of several types for one gang, or `None` if all types together have too few GPUs. The types are used in
/// the given order. Within a type, the servers with the most free GPUs come first. Each server contributes all of its
/// free GPUs until the gang is complete. The gang runs at the rate of its slowest type. The cost is O(s log n) if the
/// gang is placed on s servers.
///
/// # Examples
/// ```
/// use gangline_engine::FreeIndex;
/// use gangline_model::{ClusterSpec, GpuType, GpuTypeId, RackId, Server};
/// use gangline_testkit::toy::place_mixed;
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
