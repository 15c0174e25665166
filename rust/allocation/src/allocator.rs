//! The interface through which round-based policies obtain shares: it accepts arrays that describe the active jobs, and
//! returns the shares of these jobs.
//!
//! The interface does not depend on the method that computes the shares. An allocator may remember earlier requests;
//! jobs are identified by their ids.

use gangline_engine::PolicyError;
use gangline_model::{GpuType, GpuTypeId, JobId, SimTime};

/// A request: the active jobs, in the order of their ids. Tables are row-major, `jobs x types`.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// Time of the round.
    pub now: SimTime,
    /// Seed of the run.
    pub seed: u64,
    /// The jobs.
    pub jobs: Vec<JobId>,
    /// Rate of each whole gang, in work per second; 0 where a job cannot run.
    pub rates: Vec<f64>,
    /// Number of GPUs of each gang.
    pub gangs: Vec<f64>,
    /// Weights of the jobs.
    pub weights: Vec<f64>,
    /// Remaining work according to the run's estimates; empty for a policy that is not allowed to know it.
    pub remaining: Vec<f64>,
    /// True remaining work, if the estimates differ from it; otherwise empty.
    pub true_remaining: Vec<f64>,
    /// Time in seconds since arrival.
    pub age_s: Vec<f64>,
    /// Time in seconds until each job's deadline, infinite for a job without one; empty if no job in the trace has a
    /// deadline.
    pub time_left_s: Vec<f64>,
    /// GPU type on which each job runs because of its share; `None` for a job that waits, or that only fills idle GPUs.
    pub running: Vec<Option<GpuTypeId>>,
    /// Number of GPUs of each type on servers that are up.
    pub capacity: Vec<f64>,
    /// Entity of each job; empty if the trace has no entities.
    pub entities: Vec<u32>,
    /// Weight of each entity in the trace.
    pub entity_weights: Vec<f64>,
    /// Kind of each job, numbered from 0; empty unless jobs may share GPUs.
    pub kinds: Vec<u32>,
    /// Number of kinds.
    pub kind_count: usize,
    /// Rate of a job with a co-runner, by the job's kind, the co-runner's kind and the GPU type, `kinds x kinds x
    /// types`; 0 if jobs of the two kinds may not share GPUs.
    pub pair_rates: Vec<f64>,
}

/// Share of its time that a job spends on the same GPUs as a certain other job, or as any job of a certain kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairShare {
    /// Row of the job in the request.
    pub row: usize,
    /// Kind of the other job, as in the request; if the policy pairs single jobs, this is the row of the other job.
    pub beside: u32,
    /// GPU type on which the two jobs share GPUs.
    pub gpu_type: GpuTypeId,
    /// Fraction of time.
    pub share: f64,
}

/// Shares of all jobs.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    /// Share of time that each job spends without a co-runner, `jobs x types`.
    pub alone: Vec<f64>,
    /// Shares of time that jobs spend with co-runners.
    pub pair_shares: Vec<PairShare>,
}

/// Gives each job a share of its time on each GPU type.
pub trait Allocator: Send {
    /// Receives the GPU types of the cluster. This method is called once, before the first request.
    ///
    /// # Errors
    /// Returns [`PolicyError`] if the allocator does not support this cluster.
    fn start(&mut self, types: &[GpuType]) -> Result<(), PolicyError> {
        let _ = types;
        Ok(())
    }

    /// Returns the shares of the active jobs, `jobs x types`, each in 0..=1.
    ///
    /// # Errors
    /// Returns [`PolicyError`] if no shares can be found; the run then ends.
    fn allocate(&mut self, ask: &Ask) -> Result<Vec<f64>, PolicyError>;

    /// Returns the shares in a run in which jobs may share GPUs. By default, these are the shares of
    /// [`Self::allocate`], and no jobs share GPUs.
    ///
    /// # Errors
    /// Returns the errors of [`Self::allocate`].
    fn allocate_packed(&mut self, ask: &Ask) -> Result<Shares, PolicyError> {
        Ok(Shares {
            alone: self.allocate(ask)?,
            pair_shares: Vec::new(),
        })
    }
}
