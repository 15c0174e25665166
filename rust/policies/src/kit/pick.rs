//! Chooses the GPU type of a gang, among the types on which the placement rule finds a place.

use super::places::Places;
use gangline_engine::{ClusterView, FreeIndex, Plan};
use gangline_model::words;
use gangline_model::{GpuSet, GpuTypeId, JobId};
use gangline_rng::{Purpose, Stream};
use smallvec::SmallVec;
use std::cmp::Reverse;

type Order = SmallVec<[GpuTypeId; 8]>;

words! {
    /// Rule that chooses the GPU type; ties go to the lowest index.
    pub enum GpuPick {
        /// The type with the most free GPUs.
        MostFree = "most_free",
        /// The type of the lowest-index server with a free GPU.
        FirstFit = "first_fit",
        /// The type on which the gang is fastest.
        Fastest = "fastest",
        /// The type on which the gang is slowest.
        Slowest = "slowest",
        /// A random type, drawn for each start.
        Random = "random",
    }
}

impl GpuPick {
    /// Returns the GPUs for a job; `None` if no type has a place for it.
    pub(crate) fn place(
        self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        places: &mut Places,
        class: usize,
        job: JobId,
    ) -> Option<GpuSet> {
        let types = self.order(view, plan.free(), places, class, job);
        if self != Self::Random || types.len() == 1 {
            return types
                .iter()
                .find_map(|&gpu_type| places.place_on(plan, class, job, gpu_type));
        }
        let mut found: SmallVec<[GpuSet; 4]> = types
            .iter()
            .filter_map(|&gpu_type| places.place_on(plan, class, job, gpu_type))
            .collect();
        if found.is_empty() {
            return None;
        }
        let draw =
            Stream::new(view.seed(), Purpose::Policy).draw(u64::from(job.0), plan.starts(job), 0);
        Some(found.swap_remove(draw.below(found.len() as u64) as usize))
    }

    /// Returns the types of the class in the order in which the policy tries them; types without a free GPU may be
    /// missing.
    fn order(
        self,
        view: &ClusterView<'_>,
        free: &mut FreeIndex,
        places: &Places,
        class: usize,
        job: JobId,
    ) -> Order {
        // Types are ordered by rate, fastest first, then by index.
        let mut types: Order = places.classes().get(class).types.iter().copied().collect();
        match self {
            Self::Fastest => {}
            Self::MostFree => types.sort_by_key(|&t| (Reverse(free.pool(t).free_total()), t)),
            Self::FirstFit => {
                types.retain(|&mut t| free.pool(t).free_total() > 0);
                types.sort_by_cached_key(|&t| {
                    let pool = free.pool_mut(t);
                    pool.next_free(0).map(|at| pool.server(at))
                });
            }
            Self::Slowest => types.sort_by(|&a, &b| {
                let rate = |t| view.base_rate(job, t);
                rate(a).total_cmp(&rate(b)).then(a.cmp(&b))
            }),
            Self::Random => types.sort_unstable(),
        }
        types
    }
}
