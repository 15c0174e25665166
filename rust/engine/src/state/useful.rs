//! Useful time of shared GPUs (`docs/concepts/metrics.md`): each counts once, by its least affected resident.

use crate::occupancy::slots;
use crate::state::State;
use gangline_model::{GpuSet, ServerId, SimTime};
use smallvec::SmallVec;

/// Useful GPU time so far, and since when each GPU's residents stand.
#[derive(Debug)]
pub(crate) struct Useful {
    since: Vec<SimTime>,
    pub(crate) gpu_s: f64,
}

impl Useful {
    pub(crate) fn new(gpus: usize) -> Self {
        Self {
            since: vec![SimTime::ZERO; gpus],
            gpu_s: 0.0,
        }
    }
}

impl State {
    /// Adds the useful time of some GPUs up to now. To be called before their residents, or the rates of these, change.
    #[inline(never)]
    pub(crate) fn note_useful(&mut self, gpus: &GpuSet) {
        let Some(mut useful) = self.useful.take() else {
            return;
        };
        for one in gpus.by_server() {
            for slot in slots(one.mask) {
                let gpu = self.occupancy.gpu(one.server, slot);
                let from = std::mem::replace(&mut useful.since[gpu], self.now);
                if from < self.now {
                    useful.gpu_s += self.useful_on(one.server, slot, from);
                }
            }
        }
        self.useful = Some(useful);
    }

    /// Useful seconds of a GPU since an instant: at each moment the largest share of its base rate that a resident
    /// with progress has.
    fn useful_on(&self, server: ServerId, slot: u32, from: SimTime) -> f64 {
        let mut starts: SmallVec<[(SimTime, f64); 2]> = SmallVec::new();
        for job in self.occupancy.residents(server, slot) {
            let run = &self.runs[self.slot_of(job)];
            let mut parts = run.parts.iter();
            let part = parts.find(|part| part.gpus.mask_on(server) != 0);
            let part = part.expect("a resident has a part here");
            if part.rate > 0.0 {
                let start = part.progress_start.max(from).min(self.now);
                starts.push((start, part.useful()));
            }
        }
        starts.sort_by_key(|start| start.0);
        let (mut best, mut sum) = (0.0_f64, 0.0);
        for (at, &(start, share)) in starts.iter().enumerate() {
            best = best.max(share);
            let end = starts.get(at + 1).map_or(self.now, |next| next.0);
            sum += (end - start).seconds() * best;
        }
        sum
    }
}
