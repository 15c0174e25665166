//! How long a job would take on a fair share of the cluster.

use gangline_engine::{Changes, ClusterView};
use gangline_model::{JobId, SimSpan, SimTime};

/// The mean number of active jobs over the life of each of them.
#[derive(Debug, Default)]
pub(super) struct Fairness {
    /// GPUs of the cluster, M.
    gpus: f64,
    active: i64,
    last: SimTime,
    /// Active jobs summed over time, job-nanoseconds.
    integral: i128,
    integral_at_arrival: Vec<i128>,
}

impl Fairness {
    pub(super) fn start(&mut self, view: &ClusterView<'_>) {
        let servers = view.cluster().servers().iter();
        self.gpus = f64::from(servers.map(|server| server.gpus).sum::<u32>());
        self.integral_at_arrival = vec![0; view.jobs().len()];
    }

    /// Every arrival and completion wakes the policy, so the count stands still between decisions.
    pub(super) fn update(&mut self, view: &ClusterView<'_>, changes: &Changes) {
        let now = view.now();
        self.integral += i128::from(self.active) * i128::from((now - self.last).0);
        self.last = now;
        for &job in &changes.arrived {
            self.integral_at_arrival[job.index()] = self.integral;
        }
        self.active += changes.arrived.len() as i64 - changes.finished.len() as i64;
    }

    /// `T_id`: isolated duration x max(1, d n / M), nanoseconds.
    pub(super) fn ideal_ns(
        &self,
        view: &ClusterView<'_>,
        job: JobId,
        age: SimSpan,
        duration: SimSpan,
    ) -> f64 {
        let active = if age.0 == 0 {
            self.active as f64
        } else {
            (self.integral - self.integral_at_arrival[job.index()]) as f64 / age.0 as f64
        };
        let contention = f64::from(view.jobs().gpus(job)) * active / self.gpus;
        duration.0 as f64 * contention.max(1.0)
    }
}
