//! The port through which rounds get their shares: arrays of the active jobs in, shares out.
//!
//! What computes them is not known here: a closed form of this crate, or a solver on the other side of
//! the binding. An allocator may keep memory of earlier asks; jobs are named by their ids.

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
    /// Work left; empty for a policy that may not know it.
    pub remaining: Vec<f64>,
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

/// An equal split: (GPUs of the type / jobs) / gang, a row at most 1.
///
/// # Examples
/// ```
/// use gangline_allocation::{Allocator, Ask, EqualSplit};
/// use gangline_model::JobId;
/// let ask = Ask {
///     jobs: vec![JobId(0), JobId(1)], gangs: vec![2.0, 1.0], capacity: vec![2.0],
///     ..Ask::default()
/// };
/// assert_eq!(EqualSplit.allocate(&ask).unwrap(), [0.5, 1.0]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct EqualSplit;

impl Allocator for EqualSplit {
    fn allocate(&mut self, ask: &Ask) -> Result<Vec<f64>, PolicyError> {
        let jobs = ask.jobs.len() as f64;
        let rows = ask.gangs.iter();
        Ok(rows
            .flat_map(|gang| equal_split(&ask.capacity, jobs, *gang))
            .collect())
    }
}

/// The shares of a gang under an equal split over so many jobs.
pub(crate) fn equal_split(capacity: &[f64], jobs: f64, gang: f64) -> impl Iterator<Item = f64> {
    let shares = move || capacity.iter().map(move |gpus| gpus / jobs / gang);
    let total: f64 = shares().sum();
    let most = total.max(1.0); // division by 1 changes nothing
    shares().map(move |share| share / most)
}

/// All of its fastest type with room for each job, in order of arrival; the first job that fits nowhere
/// ends the walk, a job that cannot run on its pick is passed over. All jobs are placed anew each time.
///
/// # Examples
/// ```
/// use gangline_allocation::{Allocator, Ask, FastestFirst};
/// use gangline_model::JobId;
/// let ask = Ask {
///     jobs: vec![JobId(0), JobId(1)], gangs: vec![2.0, 1.0], capacity: vec![1.0, 2.0],
///     rates: vec![9.0, 3.0, 1.0, 8.0], ..Ask::default()
/// };
/// assert_eq!(FastestFirst::default().allocate(&ask).unwrap(), [0.0, 1.0, 1.0, 0.0]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct FastestFirst {
    /// Types by name: of equally fast ones the first is taken.
    by_name: Vec<usize>,
}

impl Allocator for FastestFirst {
    fn start(&mut self, types: &[GpuType]) -> Result<(), PolicyError> {
        self.by_name = (0..types.len()).collect();
        self.by_name.sort_by_key(|&at| &types[at].name);
        Ok(())
    }

    fn allocate(&mut self, ask: &Ask) -> Result<Vec<f64>, PolicyError> {
        let mut free = ask.capacity.clone();
        if self.by_name.len() != free.len() {
            self.by_name = (0..free.len()).collect();
        }
        let mut shares = vec![0.0; ask.rates.len()];
        let rows = ask.rates.chunks_exact(free.len());
        for ((&gang, rates), own) in ask
            .gangs
            .iter()
            .zip(rows)
            .zip(shares.chunks_exact_mut(free.len()))
        {
            let room = self.by_name.iter().copied().filter(|&at| free[at] >= gang);
            let better = |a: usize, b: usize| if rates[b] > rates[a] { b } else { a };
            let Some(pick) = room.reduce(better) else {
                break;
            };
            if rates[pick] > 0.0 {
                own[pick] = 1.0;
                free[pick] -= gang;
            }
        }
        Ok(shares)
    }
}

/// Stands where no solver was given; says so when it is asked.
#[derive(Clone, Copy, Debug)]
pub struct NoSolver;

impl Allocator for NoSolver {
    fn allocate(&mut self, _ask: &Ask) -> Result<Vec<f64>, PolicyError> {
        Err(PolicyError::Failed {
            message: "this policy needs a solver: run it through the Python package".to_owned(),
        })
    }
}
