//! The rate of a gang (`docs/concepts/jobs-and-rates.md`): its base rate, its locality factor, and the slowdown factor
//! that its co-runners cause.
//!
//! This module contains a table for each of these three quantities. New models can be added without a change to the
//! engine.

use crate::{
    ClusterSpec, ElasticTable, Extent, Gang, GpuTypeId, JobFacts, JobId, ModelError, PhaseTable,
    Shape, Tier,
};
use std::sync::Arc;

/// Base rates. A base rate is the number of iterations per second of a whole gang that runs alone and consolidated on
/// one GPU type.
#[derive(Clone, Debug, PartialEq)]
pub struct RateTable {
    speeds: Vec<f64>,
    classes: Vec<f64>,
    copies: Option<CopyRates>,
    elastic: Option<Arc<ElasticTable>>,
    phases: Option<Arc<PhaseTable>>,
}

/// Measured rates for gangs of every size, for policies that run copies of a job on numbers of GPUs other than the gang
/// size.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyRates {
    /// Row of each job; `u32::MAX` means that the job has no row.
    pub row: Vec<u32>,
    /// Largest gang size; the table contains all sizes 1, 2, ... up to this size.
    pub sizes: usize,
    /// Row-major (rows, sizes, types); a rate of 0 means "cannot run there".
    pub rates: Vec<f64>,
}

impl RateTable {
    /// Creates rates only from the relative speeds of the types.
    pub fn from_speeds(cluster: &ClusterSpec) -> Self {
        let speeds = cluster
            .gpu_types()
            .iter()
            .map(|gpu_type| gpu_type.speed)
            .collect();
        Self {
            speeds,
            classes: Vec::new(),
            copies: None,
            elastic: None,
            phases: None,
        }
    }

    /// Adds measured rates: row-major (classes, types); a rate of 0 means "cannot run there".
    ///
    /// # Errors
    /// Returns [`ModelError::Table`] if the length is not a multiple of the number of types, if a rate is negative or
    /// not finite, or if a job names a row that does not exist.
    pub fn with_classes(mut self, classes: Vec<f64>, jobs: &JobFacts) -> Result<Self, ModelError> {
        let types = self.speeds.len();
        let fail = |what: String| {
            Err(ModelError::Table {
                table: "throughput",
                what,
            })
        };
        if !classes.len().is_multiple_of(types) {
            return fail(format!(
                "{} rates cannot be divided into rows of {types} rates, one for each GPU type",
                classes.len()
            ));
        }
        if let Some(bad) = classes
            .iter()
            .find(|rate| !(rate.is_finite() && **rate >= 0.0))
        {
            return fail(format!("rate {bad} is not a finite number >= 0"));
        }
        let rows = (classes.len() / types) as u32;
        for &class in jobs.columns().rate_class.iter().flatten() {
            if class != u32::MAX && class >= rows {
                return fail(format!(
                    "a job names row {class}, but the number of rows is {rows}"
                ));
            }
        }
        self.classes = classes;
        Ok(self)
    }

    /// Adds measured rates of gangs of all sizes.
    ///
    /// # Errors
    /// Returns [`ModelError::Table`] if the rates do not form whole rows, or if a job names a row that does not exist.
    pub fn with_copies(mut self, copies: CopyRates, jobs: &JobFacts) -> Result<Self, ModelError> {
        let fail = |what: String| {
            Err(ModelError::Table {
                table: "throughput of copies",
                what,
            })
        };
        let width = copies.sizes * self.speeds.len();
        if width == 0 || !copies.rates.len().is_multiple_of(width) {
            let (rates, sizes) = (copies.rates.len(), copies.sizes);
            return fail(format!(
                "{rates} rates cannot be divided into rows with one rate for each GPU type and each of {sizes} sizes"
            ));
        }
        if copies.row.len() != jobs.len() {
            return fail(format!(
                "expected one row per job, got {} rows for {} jobs",
                copies.row.len(),
                jobs.len()
            ));
        }
        let rows = (copies.rates.len() / width) as u32;
        let named = copies.row.iter().filter(|&&row| row != u32::MAX);
        if let Some(row) = named.max().filter(|&&row| row >= rows) {
            return fail(format!(
                "a job names row {row}, but the number of rows is {rows}"
            ));
        }
        self.copies = Some(copies);
        Ok(self)
    }

    /// Adds the rates of elastic jobs on any number of GPUs. The base rate of a job remains the rate for its gang size
    /// in the trace.
    ///
    /// # Errors
    /// Returns [`ModelError::Table`] if the table has a different number of jobs.
    pub fn with_elastic(
        mut self,
        elastic: Arc<ElasticTable>,
        jobs: &JobFacts,
    ) -> Result<Self, ModelError> {
        if elastic.jobs() != jobs.len() {
            let what = format!(
                "expected one row per job, got {} rows for {} jobs",
                elastic.jobs(),
                jobs.len()
            );
            return Err(ModelError::Table {
                table: "elastic",
                what,
            });
        }
        self.elastic = Some(elastic);
        Ok(self)
    }

    /// Adds the phases of jobs whose rate changes with their progress. The base rate of a job with phases is its mean
    /// rate.
    ///
    /// # Errors
    /// Returns [`ModelError::Table`] if the table has a different number of jobs, or if an elastic job has phases.
    pub fn with_phases(
        mut self,
        phases: Arc<PhaseTable>,
        jobs: &JobFacts,
    ) -> Result<Self, ModelError> {
        let is_both = |job: &JobId| {
            let elastic = self.elastic.as_ref();
            phases.get(*job).is_some() && elastic.is_some_and(|table| table.get(*job).is_some())
        };
        let what = if phases.jobs() != jobs.len() {
            format!(
                "expected one row per job, got {} rows for {} jobs",
                phases.jobs(),
                jobs.len()
            )
        } else if let Some(job) = jobs.ids().find(is_both) {
            format!("job {job} is elastic, and its model has phases of its own")
        } else {
            self.phases = Some(phases);
            return Ok(self);
        };
        Err(ModelError::Table {
            table: "phases",
            what,
        })
    }

    /// Returns the table of jobs whose rate changes with their progress, if there are any.
    pub fn phases(&self) -> Option<&Arc<PhaseTable>> {
        self.phases.as_ref()
    }

    /// Returns the table of elastic jobs, if there are any.
    pub fn elastic(&self) -> Option<&Arc<ElasticTable>> {
        self.elastic.as_ref()
    }

    /// Returns the relative speed of a type, for jobs without measured rates.
    pub fn speed(&self, gpu_type: GpuTypeId) -> f64 {
        self.speeds[gpu_type.index()]
    }

    /// Returns the base rate of a copy of the job on this number of GPUs of a type. For the gang size, this is the
    /// job's base rate. For other sizes, the rate of a job with measured rates comes from the table of copies; it is 0
    /// if the table does not contain it. For all other jobs, the rate is proportional to the number of GPUs.
    pub fn of_copy(&self, jobs: &JobFacts, job: JobId, gpu_type: GpuTypeId, gpus: u32) -> f64 {
        let (base, gang) = (self.base(jobs, job, gpu_type), jobs.gpus(job));
        if gpus == gang {
            return base;
        }
        if !self.is_measured(jobs, job) {
            return base * f64::from(gpus) / f64::from(gang);
        }
        let Some(copies) = &self.copies else {
            return 0.0;
        };
        let row = copies.row[job.index()];
        if row == u32::MAX || gpus == 0 || gpus as usize > copies.sizes {
            return 0.0;
        }
        let at = row as usize * copies.sizes + gpus as usize - 1;
        copies.rates[at * self.speeds.len() + gpu_type.index()]
    }

    /// Returns whether the job's rates come from the table of measured rates.
    pub fn is_measured(&self, jobs: &JobFacts, job: JobId) -> bool {
        let classes = jobs.columns().rate_class.as_ref();
        classes.is_some_and(|classes| classes[job.index()] != u32::MAX)
    }

    /// Returns the base rate of the job's gang on a type.
    #[inline]
    pub fn base(&self, jobs: &JobFacts, job: JobId, gpu_type: GpuTypeId) -> f64 {
        let columns = jobs.columns();
        if let Some(classes) = &columns.rate_class {
            let class = classes[job.index()];
            if class != u32::MAX {
                return self.classes[class as usize * self.speeds.len() + gpu_type.index()];
            }
        }
        let speed = self.speeds[gpu_type.index()];
        columns
            .ref_rate
            .as_ref()
            .map_or(speed, |rates| rates[job.index()] * speed)
    }
}

/// Load that a gang across several racks puts on the uplink of each rack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Number of bytes, > 0, that the gang sends through each uplink per iteration.
    pub bytes: f64,
    /// Compute time per iteration, in seconds.
    pub compute_s: f64,
    /// Rate in bytes/s, > 0, at which the gang would send data if it were alone.
    pub demand: f64,
}

impl Load {
    /// Returns the locality factor when the gang sends `rate` bytes/s; `alone` is the factor without other jobs.
    #[inline]
    pub fn locality(&self, alone: f64, rate: f64) -> f64 {
        if rate >= self.demand {
            return alone;
        }
        (self.compute_s / (self.bytes / rate)).min(alone)
    }
}

/// A model that gives the locality factor, in (0, 1], of a placement. All methods are pure and deterministic.
pub trait LocalityModel: Send + Sync + std::fmt::Debug {
    /// Returns the factor that multiplies the base rate of a gang if it is placed with this shape.
    fn locality(&self, gang: &Gang, shape: Shape) -> f64;

    /// Returns the shape that represents a tier if no placement is known.
    fn canonical(&self, gpu_type: GpuTypeId, gpus: u32, tier: Tier) -> Shape {
        let _ = gpu_type;
        let (server, rack) = (gpus, gpus);
        Extent { server, rack }.canonical(gpus, tier)
    }

    /// Returns the factor that represents a tier if no placement is known.
    fn at_tier(&self, gang: &Gang, tier: Tier) -> f64 {
        self.locality(gang, self.canonical(gang.gpu_type, gang.gpus, tier))
    }

    /// Returns the maximum rate, in bytes/s, at which all jobs of the run together may send data through a rack's
    /// uplink. `None` means that each job sends as if it were alone.
    fn shared_bw(&self) -> Option<f64> {
        None
    }

    /// Returns the load that a gang placed with this shape puts on uplinks, or `None` if it sends nothing through
    /// them.
    fn load(&self, gang: &Gang, shape: Shape) -> Option<Load> {
        let _ = (gang, shape);
        None
    }

    /// Returns the size of a model's largest gradient tensor divided by the size of all its gradients, if known.
    fn skew(&self, model: Option<u32>) -> Option<f64> {
        let _ = model;
        None
    }
}

/// A locality factor per model label and tier.
#[derive(Clone, Debug, PartialEq)]
pub struct TierTable {
    rows: Vec<[f64; 3]>,
}

impl TierTable {
    /// Creates the table from one row per model label and a last row for all other jobs. The columns are server, rack
    /// and network.
    ///
    /// # Errors
    /// Returns [`ModelError::Table`] if there is no row or a factor is outside (0, 1].
    pub fn new(rows: Vec<[f64; 3]>) -> Result<Self, ModelError> {
        let fail = |what: String| {
            Err(ModelError::Table {
                table: "locality",
                what,
            })
        };
        if rows.is_empty() {
            return fail("no row for jobs without a label".to_owned());
        }
        if let Some(bad) = rows
            .iter()
            .flatten()
            .find(|value| !(**value > 0.0 && **value <= 1.0))
        {
            return fail(format!("factor {bad} is outside (0, 1]"));
        }
        Ok(Self { rows })
    }
}

impl LocalityModel for TierTable {
    fn locality(&self, gang: &Gang, shape: Shape) -> f64 {
        let last = self.rows.len() - 1;
        let row = gang.model.map_or(last, |label| (label as usize).min(last));
        if gang.gpus == 1 {
            1.0
        } else {
            self.rows[row][shape.tier() as usize]
        }
    }
}

/// Slowdown factors that co-runners impose, computed before the run. Each GPU type has a square table whose rows and
/// columns are classes of jobs with equal factors. A pair that may not share GPUs has no factor.
#[derive(Clone, Debug, PartialEq)]
pub struct Interference {
    classes: usize,
    /// Class of each job; empty means that all jobs are in one class.
    of_job: Vec<u32>,
    /// `xi[type][slowed class][co-runner's class]`, row-major; NaN in both directions means that jobs of the two
    /// classes may not share GPUs.
    xi: Vec<f64>,
    absent: Vec<(String, String)>,
}

impl Interference {
    /// Creates a table with the same factor for every pair.
    ///
    /// # Errors
    /// Returns [`ModelError::Table`] if `xi` is not a finite number >= 1.
    pub fn constant(xi: f64, types: usize) -> Result<Self, ModelError> {
        if xi.is_nan() {
            return Err(bad_interference(format!("factor {xi} is not a number")));
        }
        Self::build(Vec::new(), 1, vec![xi; types])
    }

    /// Creates a table from the class of each job and `xi[type][slowed class][co-runner's class]`, row-major. NaN in
    /// one of the two directions of a pair means that the pair may not share GPUs.
    ///
    /// # Errors
    /// Returns [`ModelError::Table`] for a wrong length, a class that does not exist, or a factor that is neither NaN
    /// nor a finite number >= 1.
    pub fn by_class(of_job: Vec<u32>, classes: usize, xi: Vec<f64>) -> Result<Self, ModelError> {
        if let Some(bad) = of_job.iter().find(|&&class| class as usize >= classes) {
            return Err(bad_interference(format!(
                "a job names class {bad}, but the number of classes is {classes}"
            )));
        }
        Self::build(of_job, classes, xi)
    }

    fn build(of_job: Vec<u32>, classes: usize, mut xi: Vec<f64>) -> Result<Self, ModelError> {
        let square = classes * classes;
        if classes == 0 || xi.is_empty() || !xi.len().is_multiple_of(square) {
            let what = format!(
                "{} values cannot be divided into square tables of {classes} classes",
                xi.len()
            );
            return Err(bad_interference(what));
        }
        if let Some(bad) = xi.iter().find(|xi| xi.is_infinite() || **xi < 1.0) {
            return Err(bad_interference(format!(
                "factor {bad} is below 1 or infinite"
            )));
        }
        for on_type in xi.chunks_exact_mut(square) {
            for row in 0..classes {
                for column in 0..row {
                    let (there, back) = (row * classes + column, column * classes + row);
                    if on_type[there].is_nan() || on_type[back].is_nan() {
                        (on_type[there], on_type[back]) = (f64::NAN, f64::NAN);
                    }
                }
            }
        }
        Ok(Self {
            classes,
            of_job,
            xi,
            absent: Vec::new(),
        })
    }

    /// Sets the first few pairs (slowed job, co-runner) that lack a factor although a run with GPU sharing would need
    /// one. Such a run is rejected.
    #[must_use]
    pub fn with_absent(mut self, pairs: Vec<(String, String)>) -> Self {
        self.absent = pairs;
        self
    }

    /// Returns the first pairs that have no factor although a run that shares GPUs would need it.
    pub fn absent(&self) -> &[(String, String)] {
        &self.absent
    }

    /// Returns whether the table's dimensions match this number of jobs and GPU types.
    pub fn covers(&self, jobs: usize, types: usize) -> bool {
        let square = self.classes * self.classes;
        (self.of_job.is_empty() || self.of_job.len() == jobs) && self.xi.len() == types * square
    }

    /// Returns the class of a job. Two jobs of one class have the same factors with every co-runner.
    #[inline]
    pub fn class(&self, job: JobId) -> u32 {
        self.of_job.get(job.index()).copied().unwrap_or(0)
    }

    /// Returns the slowdown factor that a co-runner imposes on a job, or `None` if the two may not share GPUs.
    #[inline]
    pub fn xi(&self, slowed: JobId, co_runner: JobId, gpu_type: GpuTypeId) -> Option<f64> {
        let (row, column) = (self.class(slowed) as usize, self.class(co_runner) as usize);
        let xi = self.xi[(gpu_type.index() * self.classes + row) * self.classes + column];
        (!xi.is_nan()).then_some(xi)
    }
}

fn bad_interference(what: String) -> ModelError {
    ModelError::Table {
        table: "interference",
        what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a table for two classes, a and b, on two GPU types. On the second type, the factor that b imposes on a
    /// is NaN, so the pair may not share GPUs there.
    fn table() -> Interference {
        let xi = vec![1.0, 1.5, 2.0, 1.1, 1.2, f64::NAN, 3.0, 1.3];
        Interference::by_class(vec![0, 1, 0], 2, xi).expect("valid")
    }

    #[test]
    fn a_factor_is_looked_up_by_the_classes_and_the_type() {
        let table = table();
        let on = |a, b, t| table.xi(JobId(a), JobId(b), GpuTypeId::new(t));
        assert_eq!(on(0, 1, 0), Some(1.5));
        assert_eq!(on(1, 0, 0), Some(2.0));
        assert_eq!(on(0, 2, 0), Some(1.0), "two jobs of one class");
        assert_eq!(on(1, 1, 1), Some(1.3));
        assert_eq!(
            [on(0, 1, 1), on(1, 0, 1)],
            [None, None],
            "one way is enough"
        );
        assert_eq!(table.class(JobId(1)), 1);
        assert!(table.covers(3, 2) && !table.covers(2, 2) && !table.covers(3, 1));
    }

    #[test]
    fn one_factor_is_for_any_number_of_jobs() {
        let table = Interference::constant(1.25, 2).expect("valid");
        assert_eq!(table.xi(JobId(7), JobId(9), GpuTypeId::new(1)), Some(1.25));
        assert!(table.covers(10, 2) && !table.covers(10, 3));
    }

    #[test]
    fn bad_tables_are_refused() {
        let table = |of_job, classes, xi| Interference::by_class(of_job, classes, xi);
        assert!(table(vec![0], 1, vec![0.9]).is_err());
        assert!(table(vec![0], 1, vec![f64::INFINITY]).is_err());
        assert!(table(vec![1], 1, vec![1.0]).is_err(), "no such class");
        assert!(table(vec![0], 2, vec![1.0; 3]).is_err());
        assert!(table(vec![], 0, vec![]).is_err());
        for xi in [0.5, f64::NAN, f64::INFINITY] {
            assert!(Interference::constant(xi, 1).is_err());
        }
    }
}
