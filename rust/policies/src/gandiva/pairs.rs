//! Which models make good co-runners: learned by trials, remembered by pair.

use gangline_engine::ClusterView;
use gangline_model::{GpuTypeId, JobId};
use rustc_hash::FxHashMap;

/// Sums of speeds that are equal in decimals, which floats are not, differ by less.
const ROUNDING: f64 = 1e-12; // ours: thousands of times what the roundings come to

/// What is known of a pair before it runs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It may not share a GPU, or is not worth it.
    Apart,
    /// It is worth it.
    Together,
    /// A trial will tell.
    Unknown,
}

/// GPU type, gang size and the two model labels, the smaller one first; no label is a label of its own.
type Key = (GpuTypeId, u32, u32, u32);

/// Sums of speeds by pair of models.
#[derive(Debug)]
pub(super) struct Pairs {
    /// Relative speeds of the two added up: 2 if they do not slow each other at all.
    sums: FxHashMap<Key, f64>,
    gain: f64,
    /// Pairs found worth it, and not.
    pub(super) kept: u64,
    pub(super) undone: u64,
}

impl Pairs {
    pub(super) fn new(gain: f64) -> Self {
        Self {
            sums: FxHashMap::default(),
            gain,
            kept: 0,
            undone: 0,
        }
    }

    fn key(view: &ClusterView<'_>, a: JobId, b: JobId, gpu_type: GpuTypeId) -> Key {
        let label = |job| view.jobs().model(job).unwrap_or(u32::MAX);
        let (a_label, b_label) = (label(a), label(b));
        let gpus = view.jobs().gpus(a);
        (gpu_type, gpus, a_label.min(b_label), a_label.max(b_label))
    }

    /// Whether two jobs of one gang size should run together on a type.
    pub(super) fn verdict(
        &self,
        view: &ClusterView<'_>,
        a: JobId,
        b: JobId,
        gpu_type: GpuTypeId,
    ) -> Verdict {
        let memory = view
            .memory_bytes(a, 0)
            .saturating_add(view.memory_bytes(b, 0));
        let room = view.cluster().gpu_types()[gpu_type.index()].memory_bytes;
        let is_allowed = view.xi(a, b, gpu_type).is_some() && view.xi(b, a, gpu_type).is_some();
        if memory > room || !is_allowed {
            return Verdict::Apart;
        }
        match self.sums.get(&Self::key(view, a, b, gpu_type)) {
            None => Verdict::Unknown,
            Some(&sum) if self.is_worth(sum) => Verdict::Together,
            Some(_) => Verdict::Apart,
        }
    }

    fn is_worth(&self, sum: f64) -> bool {
        sum - self.gain > ROUNDING
    }

    /// Measures a pair that runs together; whether it is worth it. The first measurement stays.
    pub(super) fn measure(
        &mut self,
        view: &ClusterView<'_>,
        a: JobId,
        b: JobId,
        gpu_type: GpuTypeId,
    ) -> bool {
        let speed = |job| {
            let run = view.run(job).expect("both run until the trial ends");
            run.rate / view.rate_alone(job, run.gpus())
        };
        let (first, second) = (a.min(b), a.max(b));
        let sum = speed(first) + speed(second);
        let known = self.sums.entry(Self::key(view, a, b, gpu_type));
        let sum = *known.or_insert(sum);
        let is_worth = self.is_worth(sum);
        if is_worth {
            self.kept += 1;
        } else {
            self.undone += 1;
        }
        is_worth
    }
}
