//! Estimators for the rates of copies. The estimates are used only for planning; jobs make progress at the true rates.

use super::params::Estimator as Choice;
use gangline_engine::ClusterView;
use gangline_model::JobId;
use gangline_rng::{Purpose, Stream};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// A copy of a job on a node, and its rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    pub(super) job: JobId,
    pub(super) node: u32,
    /// True rate of the copy.
    pub(super) rate: f64,
    /// Rate in the run's table, if the table has a rate for the job.
    pub(super) measured: Option<f64>,
}

/// An estimator of rates.
pub(super) trait Estimator: Debug + Send {
    /// Returns the estimated rate of a possible copy, in iterations per second. It is finite and at least 0.
    fn estimate(&self, copy: Copy) -> f64;

    /// Returns whether observations change the estimates.
    fn learns(&self) -> bool {
        false
    }

    /// Records that a copy has been placed, and the estimate of its rate.
    fn place(&mut self, _job: JobId, _node: u32, _estimate: f64) {}

    /// Records the observed rate of a copy after a round.
    fn observe(&mut self, _job: JobId, _node: u32, _rate: f64) {}
}

/// Creates the estimator that the parameter selects.
pub(super) fn estimator(choice: Choice, view: &ClusterView<'_>) -> Box<dyn Estimator> {
    match choice {
        Choice::Oracle => Box::new(Oracle),
        Choice::Noisy { sigma } => Box::new(Noisy {
            sigma,
            draws: Stream::new(view.seed(), Purpose::Estimates),
        }),
        Choice::Ewma { alpha } => Box::new(Ewma::new(alpha, view.cluster().servers().len())),
    }
}

#[derive(Debug, Default)]
pub(super) struct Oracle;

impl Estimator for Oracle {
    fn estimate(&self, copy: Copy) -> f64 {
        copy.rate
    }
}

/// An estimator that multiplies each true rate by a random factor.
#[derive(Debug)]
struct Noisy {
    sigma: f64,
    draws: Stream,
}

impl Estimator for Noisy {
    fn estimate(&self, copy: Copy) -> f64 {
        let draw = self.draws.draw(u64::from(copy.job.0), copy.node, 0);
        copy.rate * draw.log_normal(self.sigma)
    }
}

/// A number for each job, with running sums over the jobs in order of their index.
#[derive(Clone, Debug, Default)]
struct Means {
    /// Rows (job, the job's number, running sum up to this row). A new row usually goes near the end, so few sums
    /// change.
    rows: Vec<(JobId, f64, f64)>,
}

impl Means {
    fn get(&self, job: JobId) -> Option<f64> {
        let at = self.rows.binary_search_by_key(&job, |row| row.0).ok()?;
        Some(self.rows[at].1)
    }

    fn set(&mut self, job: JobId, number: f64) {
        let at = match self.rows.binary_search_by_key(&job, |row| row.0) {
            Ok(at) => {
                self.rows[at].1 = number;
                at
            }
            Err(at) => {
                self.rows.insert(at, (job, number, 0.0));
                at
            }
        };
        let mut sum = if at == 0 { 0.0 } else { self.rows[at - 1].2 };
        for row in &mut self.rows[at..] {
            sum += row.1;
            row.2 = sum;
        }
    }

    fn mean(&self) -> Option<f64> {
        let last = self.rows.last()?;
        Some(last.2 / self.rows.len() as f64)
    }
}

/// The observations on a node.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Estimates for the copies that were observed on the node.
    estimates: Means,
    /// Observed rates of these copies, each divided by the mean of the job's observed rates.
    speeds: Means,
}

/// An estimator that uses an exponentially weighted moving average of observed rates.
#[derive(Debug)]
struct Ewma {
    /// Weight of the latest observation.
    alpha: f64,
    nodes: Vec<Seen>,
    /// Observed rates of each job by node.
    rates: BTreeMap<JobId, BTreeMap<u32, f64>>,
    /// Estimates for copies that are placed but have not been observed yet.
    placed: BTreeMap<(JobId, u32), f64>,
}

impl Ewma {
    fn new(alpha: f64, servers: usize) -> Self {
        Self {
            alpha,
            nodes: vec![Seen::default(); servers],
            rates: BTreeMap::new(),
            placed: BTreeMap::new(),
        }
    }

    /// Returns the mean speed of a node for its jobs, relative to all nodes on which each job ran; 1 if no job has run
    /// on it.
    fn speed(&self, node: u32) -> f64 {
        self.nodes[node as usize].speeds.mean().unwrap_or(1.0)
    }
}

impl Estimator for Ewma {
    fn estimate(&self, copy: Copy) -> f64 {
        let node = &self.nodes[copy.node as usize];
        if let Some(estimate) = node.estimates.get(copy.job).or(copy.measured) {
            return estimate;
        }
        if let Some(own) = self.rates.get(&copy.job) {
            let here = self.speed(copy.node);
            let scaled = own.iter().map(|(&i, rate)| rate * here / self.speed(i));
            return scaled.fold(0.0, |sum, rate| sum + rate) / own.len() as f64;
        }
        node.estimates.mean().unwrap_or(1.0)
    }

    fn learns(&self) -> bool {
        true
    }

    fn place(&mut self, job: JobId, node: u32, estimate: f64) {
        if self.nodes[node as usize].estimates.get(job).is_none() {
            self.placed.insert((job, node), estimate);
        }
    }

    fn observe(&mut self, job: JobId, node: u32, rate: f64) {
        let placed = self.placed.remove(&(job, node));
        let seen = &mut self.nodes[node as usize].estimates;
        if let Some(before) = seen.get(job).or(placed) {
            seen.set(job, (1.0 - self.alpha) * before + self.alpha * rate);
        }
        let own = self.rates.entry(job).or_default();
        if own.insert(node, rate).is_none() {
            let mean = own.values().fold(0.0, |sum, rate| sum + rate) / own.len() as f64;
            for (&i, rate) in &*own {
                self.nodes[i as usize].speeds.set(job, rate / mean);
            }
        }
    }
}

/// Copies of the last plan, each with its true rate.
#[derive(Debug, Default)]
pub(super) struct LastPlan {
    copies: Vec<Copy>,
}

impl LastPlan {
    pub(super) fn push(&mut self, copy: Copy) {
        self.copies.push(copy);
    }

    /// Passes the observed rates to the estimator, except those of copies whose servers failed.
    pub(super) fn tell(&mut self, estimator: &mut dyn Estimator, failed: &BTreeSet<u32>) {
        for copy in self.copies.drain(..) {
            if !failed.contains(&copy.node) {
                estimator.observe(copy.job, copy.node, copy.rate);
            }
        }
    }
}
