//! Useful time of shared GPUs (`docs/concepts/metrics.md`): each counts once, by its least affected resident.

use crate::occupancy::{NO_JOB, Pair, slots};
use crate::state::State;
use gangline_model::{GpuSet, JobId, ServerGpus, ServerId, SimTime};

/// Useful GPU time so far, and since when each GPU's residents stand.
#[derive(Debug)]
pub(crate) struct Useful {
    since: Vec<SimTime>,
    pub(crate) gpu_s: f64,
    /// Time of GPUs with two residents.
    pub(crate) shared_gpu_ns: i128,
}

impl Useful {
    pub(crate) fn new(gpus: usize) -> Self {
        Self {
            since: vec![SimTime::ZERO; gpus],
            gpu_s: 0.0,
            shared_gpu_ns: 0,
        }
    }
}

impl State {
    /// Adds the useful time of some GPUs up to now. To be called before their residents, or the rates of these, change.
    pub(crate) fn note_useful(&mut self, gpus: &GpuSet) {
        if let Some(mut useful) = self.useful.take() {
            for &one in gpus.by_server() {
                self.add_useful(&mut useful, one);
            }
            self.useful = Some(useful);
        }
    }

    /// The same for the GPUs of a part. To be called before its segment ends.
    pub(crate) fn note_useful_of(&mut self, slot: usize, at: usize) {
        if self.runs[slot].parts[at].segment_start == self.now {
            return; // it was called for them at this instant
        }
        if let Some(mut useful) = self.useful.take() {
            for &one in self.runs[slot].parts[at].gpus.by_server() {
                self.add_useful(&mut useful, one);
            }
            self.useful = Some(useful);
        }
    }

    fn add_useful(&self, useful: &mut Useful, ServerGpus { server, mask }: ServerGpus) {
        // the GPUs of a gang mostly have the same jobs on them, and for as long
        let (mut last, mut last_s) = ((self.now, [NO_JOB; 2]), 0.0);
        let base = self.occupancy.gpu(server, 0);
        for slot in slots(mask) {
            let gpu = base + slot as usize;
            let from = std::mem::replace(&mut useful.since[gpu], self.now);
            if from == self.now {
                continue;
            }
            let pair = self.occupancy.pair(gpu);
            if (from, pair) != last {
                last_s = self.useful_s(server, pair, from);
                last = (from, pair);
            }
            useful.gpu_s += last_s;
            if pair[1] != NO_JOB {
                useful.shared_gpu_ns += i128::from((self.now - from).0);
            }
        }
    }

    /// Useful seconds of a GPU since an instant: at each moment the largest share of its base rate that a resident with
    /// progress has.
    fn useful_s(&self, server: ServerId, pair: Pair, from: SimTime) -> f64 {
        let [mut one, mut other] = pair.map(|job| self.share_since(server, job, from));
        if other.0 < one.0 {
            (one, other) = (other, one);
        }
        (other.0 - one.0).seconds() * one.1 + (self.now - other.0).seconds() * one.1.max(other.1)
    }

    /// Since when, from an instant on, a resident of a server makes progress, and its share of its base rate.
    fn share_since(&self, server: ServerId, job: JobId, from: SimTime) -> (SimTime, f64) {
        if job == NO_JOB {
            return (self.now, 0.0);
        }
        let run = &self.runs[self.slot_of(job)];
        let part = match &run.parts[..] {
            [only] => only,
            parts => parts
                .iter()
                .find(|part| part.gpus.mask_on(server) != 0)
                .expect("a resident has a part here"),
        };
        if part.rate > 0.0 {
            let start = part.progress_start.max(from).min(self.now);
            (start, part.useful())
        } else {
            (self.now, 0.0)
        }
    }
}
