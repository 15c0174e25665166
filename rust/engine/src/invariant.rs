//! The laws of a run as code: capacity and memory are kept, gangs are whole, no job is lost, no GPU leaks, the
//! counts are those of a recount. O(cluster + jobs) per instant, so only debug, fuzz and property runs check them.

use crate::run::Engine;
use crate::state::{Phase, slots};
use gangline_model::{GpuTypeId, JobId, ServerId};

impl Engine {
    /// Checks every law that can be seen at an instant.
    ///
    /// # Panics
    /// On the first law that is broken, naming it.
    pub fn assert_invariants(&mut self) {
        self.assert_jobs();
        self.assert_gpus();
        self.assert_uplinks();
        self.assert_queue();
        let totals = &self.recorder.totals;
        assert!(
            totals.busy_gpu_ns <= totals.up_gpu_ns,
            "utilisation above 1"
        );
        for id in 0..self.index.types() {
            self.index.pool_mut(GpuTypeId::new(id)).assert_consistent();
        }
    }

    fn assert_jobs(&self) {
        let state = &self.state;
        for job in state.jobs.ids() {
            let at = job.index();
            let phase = state.phase(job).expect("a job of the trace");
            assert_eq!(
                state.waiting.contains(at),
                phase == Phase::Waiting,
                "a waiting job is lost"
            );
            assert_eq!(
                state.running.contains(at),
                phase == Phase::Running,
                "a running job is lost"
            );
            assert_eq!(
                state.run(job).is_some(),
                phase == Phase::Running,
                "record of job {job}"
            );
            assert!(
                state
                    .first_start(job)
                    .is_none_or(|first| first >= state.jobs.arrival(job)),
                "start before arrival"
            );
            assert!(
                state.job.get(at).is_none_or(|job| job.run_ns >= 0),
                "negative run time"
            );
            if let Some(run) = state.run(job) {
                assert_eq!(run.job, job, "record of another job");
                assert_eq!(
                    run.gpus.gpus(),
                    state.jobs.gpus(job),
                    "gang of job {job} is not whole"
                );
                assert!(run.finish > state.now, "job {job} should have finished");
                let is_paused = state.is_paused(state.slot_of(job));
                assert!(run.rate > 0.0 || is_paused, "job {job} runs at rate 0");
                assert!(
                    run.segment_start <= state.now,
                    "a segment starts in the future"
                );
            }
        }
    }

    /// The queue knows how many of its events are stale.
    fn assert_queue(&self) {
        let live = self.queue.events().iter().filter(|&e| self.is_live(e));
        assert_eq!(live.count(), self.queue.live(), "stale events");
    }

    /// Up-links shared step by step are as if shared at once.
    fn assert_uplinks(&self) {
        let Some(uplinks) = &self.state.uplinks else {
            return;
        };
        assert!(!uplinks.is_unsettled(), "up-links wait to be shared");
        let fresh = uplinks.afresh();
        for (slot, job) in uplinks.senders() {
            let run = self.state.run(job).expect("only running jobs send");
            let kept = run.locality.to_bits();
            let at_once = fresh.locality(slot).map(f64::to_bits);
            assert_eq!(at_once, Some(kept), "share of job {job} in up-links");
        }
    }

    fn assert_gpus(&self) {
        let state = &self.state;
        let share = state.max_share as usize;
        let mut held = vec![0_usize; state.residents.len() / share.max(1)];
        for at in state.running.iter() {
            let run = state.run(JobId::new(at)).expect("a running job");
            for part in run.gpus.parts() {
                assert!(
                    state.is_up(part.server),
                    "a job runs on a server that is down"
                );
                for slot in slots(part.mask) {
                    held[state.gpu(part.server, slot)] += 1;
                    let lives = state
                        .residents_of(part.server, slot)
                        .any(|job| job == run.job);
                    assert!(lives, "a GPU does not know its resident");
                }
            }
        }
        let mut busy = vec![0_u32; state.busy_by_type.len()];
        let mut busy_servers = 0;
        for (at, spec) in state.cluster.servers().iter().enumerate() {
            let server = ServerId::new(at);
            let mut free = 0_u64;
            for slot in 0..spec.gpus {
                let gpu = state.gpu(server, slot);
                assert!(
                    held[gpu] <= share,
                    "capacity of server {server} slot {slot}"
                );
                let residents = state.residents_of(server, slot).count();
                assert_eq!(
                    residents, held[gpu],
                    "leaked GPU: server {server} slot {slot}"
                );
                self.assert_memory(server, slot);
                if held[gpu] == 0 {
                    free |= 1 << slot;
                } else {
                    busy[spec.gpu_type.index()] += 1;
                }
            }
            busy_servers += u32::from(free != state.cluster.full_mask(server));
            let expected = if state.is_up(server) { free } else { 0 };
            assert_eq!(
                state.servers[at].free, expected,
                "free mask of server {server}"
            );
            assert_eq!(
                self.index.free_mask(server),
                expected,
                "index of server {server}"
            );
        }
        assert_eq!(busy, state.busy_by_type, "busy GPUs");
        assert_eq!(
            busy.iter().sum::<u32>(),
            state.gpus_busy,
            "busy GPUs of all types"
        );
        assert_eq!(
            state.up_by_type.iter().sum::<u32>(),
            state.gpus_up,
            "GPUs of up servers"
        );
        assert_eq!(busy_servers, state.busy_servers, "busy servers");
    }

    fn assert_memory(&self, server: ServerId, slot: u32) {
        let state = &self.state;
        let gpu_type = state.cluster.server(server).gpu_type;
        let capacity = u128::from(state.cluster.gpu_types()[gpu_type.index()].memory_bytes);
        let used: u128 = state
            .residents_of(server, slot)
            .map(|job| {
                let sub_batch = state.run(job).map_or(0, |run| run.sub_batch);
                u128::from(state.memory_bytes(job, sub_batch))
            })
            .sum();
        assert!(used <= capacity, "memory of server {server} slot {slot}");
    }
}
