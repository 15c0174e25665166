//! Useful time of shared GPUs (`docs/concepts/metrics.md`): each counts once, by its least affected resident.

use crate::occupancy::slots;
use crate::state::State;
use gangline_model::{GpuSet, ServerGpus, ServerId, SimTime};
use smallvec::SmallVec;

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
        for &one in gpus.by_server() {
            self.note_useful_on(one);
        }
    }

    /// The same for the GPUs of a part.
    pub(crate) fn note_useful_of(&mut self, slot: usize, at: usize) {
        if self.useful.is_none() {
            return;
        }
        for number in 0..self.runs[slot].parts[at].gpus.by_server().len() {
            self.note_useful_on(self.runs[slot].parts[at].gpus.by_server()[number]);
        }
    }

    #[inline(never)]
    fn note_useful_on(&mut self, ServerGpus { server, mask }: ServerGpus) {
        let Some(mut useful) = self.useful.take() else {
            return;
        };
        for slot in slots(mask) {
            let gpu = self.occupancy.gpu(server, slot);
            let from = std::mem::replace(&mut useful.since[gpu], self.now);
            if from < self.now {
                self.add_useful(&mut useful, (server, slot), from);
            }
        }
        self.useful = Some(useful);
    }

    /// Adds the useful seconds of a GPU since an instant: at each moment the largest share of its base rate that a
    /// resident with progress has.
    fn add_useful(&self, useful: &mut Useful, (server, slot): (ServerId, u32), from: SimTime) {
        let mut starts: SmallVec<[(SimTime, f64); 2]> = SmallVec::new();
        let mut residents = 0;
        for job in self.occupancy.residents(server, slot) {
            residents += 1;
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
                starts.push((start, part.useful()));
            }
        }
        if residents > 1 {
            useful.shared_gpu_ns += i128::from((self.now - from).0);
            starts.sort_by_key(|start| start.0);
        }
        let (mut best, mut sum) = (0.0_f64, 0.0);
        for (at, &(start, share)) in starts.iter().enumerate() {
            best = best.max(share);
            let end = starts.get(at + 1).map_or(self.now, |next| next.0);
            sum += (end - start).seconds() * best;
        }
        useful.gpu_s += sum;
    }
}
