//! Runtime checks of the invariants of a run: capacity and memory are respected, gangs are whole, no job is lost, no
//! GPU leaks, and the counters match a recount. The checks cost O(cluster + jobs) per instant, so only debug, fuzz and
//! property runs call them.

use crate::run::Engine;
use crate::state::jobs::Phase;
use crate::state::running::{Part, Run};
use gangline_model::{GpuSet, JobId, ServerId};
use std::sync::Arc;

impl Engine {
    /// Checks all invariants that hold at every instant.
    ///
    /// # Panics
    /// Panics if an invariant is violated; the message names it.
    pub fn assert_invariants(&mut self) {
        self.assert_jobs();
        self.assert_occupancy();
        self.assert_uplinks();
        self.assert_queue();
        let totals = &self.motion.recorder.totals;
        assert!(
            totals.busy_gpu_ns <= totals.up_gpu_ns,
            "utilisation above 1"
        );
    }

    fn assert_jobs(&self) {
        let (state, lives) = (&self.motion.state, self.motion.state.lives());
        for job in state.jobs().ids() {
            let at = job.index();
            let phase = lives.phase(job).expect("a job of the trace");
            assert_eq!(
                lives.waiting().contains(at),
                phase == Phase::Waiting,
                "a waiting job is lost"
            );
            assert_eq!(
                lives.running().contains(at),
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
                    .is_none_or(|first| first >= state.jobs().arrival(job)),
                "start before arrival"
            );
            assert!(
                lives.get(job).is_none_or(|job| job.run_ns >= 0),
                "negative run time"
            );
            if let Some(run) = state.run(job) {
                assert_eq!(run.job, job, "record of another job");
                assert!(run.finish > state.now(), "job {job} should have finished");
                assert!(!run.parts().is_empty(), "job {job} runs without GPUs");
                assert!(
                    state.features().forks || run.parts().len() == 1,
                    "job {job} is forked by a policy that does not fork"
                );
                for part in run.parts() {
                    self.assert_part(job, part);
                }
                let servers = run.parts().windows(2);
                assert!(
                    servers
                        .map(|pair| (first_server(&pair[0]), first_server(&pair[1])))
                        .all(|(a, b)| a < b),
                    "two parts of job {job} on one server, or out of order"
                );
            }
        }
    }

    fn assert_part(&self, job: JobId, part: &Part) {
        let gpus = part.gpus.gpus();
        assert!(
            gpus == self.motion.state.gang_on(job, first_server(part))
                || self.motion.state.may_have(job, gpus),
            "gang of job {job} is not whole"
        );
        let pauses = part.is_paused();
        assert!(
            (part.rate > 0.0) != pauses,
            "job {job} runs at rate {}",
            part.rate
        );
        assert!(
            part.segment_start <= self.motion.state.now(),
            "a segment starts in the future"
        );
    }

    /// Checks the queue's count of stale events.
    fn assert_queue(&self) {
        let live = self
            .motion
            .queue
            .events()
            .iter()
            .filter(|&e| self.is_live(e));
        assert_eq!(live.count(), self.motion.queue.live(), "stale events");
    }

    /// Checks that the uplink shares, which are updated step by step, equal those of a full recomputation.
    fn assert_uplinks(&self) {
        let Some(uplinks) = self.motion.state.uplinks() else {
            return;
        };
        assert!(
            !uplinks.is_out_of_date(),
            "the uplink shares are not up to date"
        );
        let fresh = uplinks.afresh();
        for (record, job) in uplinks.senders() {
            let run = self.motion.state.run(job).expect("only running jobs send");
            let kept = run.only().locality.to_bits();
            let at_once = fresh.locality(record).map(f64::to_bits);
            assert_eq!(at_once, Some(kept), "share of job {job} in uplinks");
        }
    }

    /// Checks that the counters of the cluster match a recount.
    fn assert_occupancy(&mut self) {
        let state = &self.motion.state;
        let mut held: Vec<(JobId, GpuSet, u64)> = Vec::new();
        for at in state.lives().running().iter() {
            let job = JobId::new(at);
            for part in state.run(job).map_or(&[][..], Run::parts) {
                let bytes = state.bytes_of(job, part.sub_batch);
                held.push((job, part.gpus.clone(), bytes));
            }
        }
        let held = held.iter().map(|(job, gpus, bytes)| (*job, gpus, *bytes));
        let cluster = Arc::clone(self.motion.state.cluster());
        self.motion
            .state
            .occupancy_mut()
            .assert_holds(&cluster, held);
    }
}

fn first_server(part: &Part) -> ServerId {
    part.gpus.by_server()[0].server
}
