//! The port through which rounds get their shares: arrays of the active jobs in, shares out.
//!
//! What computes them is not known here. An allocator may keep memory of earlier asks; jobs are named by their ids.

use gangline_engine::PolicyError;
use gangline_model::{GpuType, GpuTypeId, JobId, SimTime};

/// The active jobs, in order of their ids; tables are row by row, `jobs x types`.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// The round that asks.
    pub now: SimTime,
    /// Seed of the run.
    pub seed: u64,
    /// The jobs.
    pub jobs: Vec<JobId>,
    /// Work per second of the whole gang; 0 where a job cannot run.
    pub rates: Vec<f64>,
    /// GPUs of each gang.
    pub gangs: Vec<f64>,
    /// Weights.
    pub weights: Vec<f64>,
    /// Work left as the run tells it; empty for a policy that may not know it.
    pub remaining: Vec<f64>,
    /// Work that is really left, where the run tells something else; else empty.
    pub true_remaining: Vec<f64>,
    /// Seconds since arrival.
    pub age_s: Vec<f64>,
    /// Seconds to the deadline, infinite for none; empty if no job of the trace has one.
    pub time_left_s: Vec<f64>,
    /// The type on which a job runs by its share; a job that only fills a gap has none.
    pub running: Vec<Option<GpuTypeId>>,
    /// GPUs of each type on servers that are up.
    pub capacity: Vec<f64>,
    /// Entity of each job; empty if there are none.
    pub entities: Vec<u32>,
    /// Weight of each entity of the trace.
    pub entity_weights: Vec<f64>,
    /// Kind of each job, from 0; empty unless jobs may share GPUs.
    pub kinds: Vec<u32>,
    /// Number of kinds.
    pub kind_count: usize,
    /// Rate of a job of one kind beside one of another, `kinds x kinds x types`; 0 if they may not share.
    pub pair_rates: Vec<f64>,
}

/// Share of a job's time on the same GPUs as another job, or as any job of a kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairShare {
    /// Place of the job in the ask.
    pub row: usize,
    /// Kind of the other, as in the ask; its row if the policy pairs single jobs.
    pub beside: u32,
    /// Where.
    pub gpu_type: GpuTypeId,
    /// Fraction of time.
    pub share: f64,
}

/// What each job gets.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    /// Time alone, `jobs x types`.
    pub alone: Vec<f64>,
    /// Time on the same GPUs as another job.
    pub pair_shares: Vec<PairShare>,
}

/// Gives each job a share of its time on each type.
pub trait Allocator: Send {
    /// Meets the GPU types of the cluster, once, before the first ask.
    ///
    /// # Errors
    /// [`PolicyError`] if it cannot serve this cluster.
    fn start(&mut self, types: &[GpuType]) -> Result<(), PolicyError> {
        let _ = types;
        Ok(())
    }

    /// Shares of the active jobs, `jobs x types`, each in 0..=1.
    ///
    /// # Errors
    /// [`PolicyError`] if there are none; the run ends.
    fn allocate(&mut self, ask: &Ask) -> Result<Vec<f64>, PolicyError>;

    /// The same where jobs may share GPUs; none does unless the allocator knows how.
    ///
    /// # Errors
    /// Those of [`Self::allocate`].
    fn allocate_packed(&mut self, ask: &Ask) -> Result<Shares, PolicyError> {
        Ok(Shares {
            alone: self.allocate(ask)?,
            pair_shares: Vec::new(),
        })
    }
}
