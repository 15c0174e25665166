//! How fast a gang goes (`docs/concepts/jobs-and-rates.md`): base rate, locality factor, slow-down by co-runners.
//!
//! The three are ports: a table serves each of them here, other models plug in without touching the
//! engine.

use crate::{ClusterSpec, Extent, GpuTypeId, JobFacts, JobId, ModelError, Shape, Tier};

/// Base rates: iterations per second of a whole gang, alone and consolidated, on one GPU type.
#[derive(Clone, Debug, PartialEq)]
pub struct RateTable {
    speeds: Vec<f64>,
    classes: Vec<f64>,
    copies: Option<CopyRates>,
}

/// Measured rates of gangs of every size, for policies that run copies of a job on other numbers of GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyRates {
    /// Row of each job; `u32::MAX` = none.
    pub row: Vec<u32>,
    /// Sizes 1, 2, ... up to this one.
    pub sizes: usize,
    /// Row-major (rows, sizes, types); a rate of 0 means "cannot run there".
    pub rates: Vec<f64>,
}

impl RateTable {
    /// Rates from the types' relative speeds only.
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
        }
    }

    /// Adds measured rates: row-major (classes, types); a rate of 0 means "cannot run there".
    ///
    /// # Errors
    /// [`ModelError::Table`] if the length is no multiple of the types or a rate is negative or not
    /// finite, or if a job names a row that does not exist.
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
                "{} rates are no rows of {types} types",
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
                return fail(format!("row {class} of {rows} rows"));
            }
        }
        self.classes = classes;
        Ok(self)
    }

    /// Adds measured rates of gangs of every size.
    ///
    /// # Errors
    /// [`ModelError::Table`] if the rates are no whole rows, or a job names a row that does not exist.
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
            return fail(format!("{rates} rates do not form rows of {sizes} sizes"));
        }
        if copies.row.len() != jobs.len() {
            return fail(format!("{} rows, {} jobs", copies.row.len(), jobs.len()));
        }
        let rows = (copies.rates.len() / width) as u32;
        let named = copies.row.iter().filter(|&&row| row != u32::MAX);
        if let Some(row) = named.max().filter(|&&row| row >= rows) {
            return fail(format!("row {row} of {rows} rows"));
        }
        self.copies = Some(copies);
        Ok(self)
    }

    /// Base rate of a copy of the job on so many GPUs of a type: the job's own if that is its gang; else that of the
    /// table for jobs that have a row there, and in proportion to the GPUs for all others.
    pub fn of_copy(&self, jobs: &JobFacts, job: JobId, gpu_type: GpuTypeId, gpus: u32) -> f64 {
        let (base, gang) = (self.base(jobs, job, gpu_type), jobs.gpus(job));
        if gpus == gang {
            return base;
        }
        let classes = jobs.columns().rate_class.as_ref();
        if classes.is_none_or(|classes| classes[job.index()] == u32::MAX) {
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

    /// Base rate of the job's gang on a type.
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

/// A gang as a locality model knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gang {
    /// Model label of the job, if any.
    pub model: Option<u32>,
    /// Samples per GPU; 0 = unknown.
    pub batch_size: u32,
    /// GPU type of the gang (its first server's, where types mix).
    pub gpu_type: GpuTypeId,
    /// Gang size.
    pub gpus: u32,
}

/// What a gang over several racks asks of the up-link of each of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Bytes that it sends through each per iteration, > 0.
    pub bytes: f64,
    /// Seconds of compute per iteration.
    pub compute_s: f64,
    /// Bytes/s that it would send alone, > 0.
    pub demand: f64,
}

impl Load {
    /// Locality of the gang at a rate of so many bytes/s, given its locality alone.
    #[inline]
    pub fn locality(&self, alone: f64, rate: f64) -> f64 {
        if rate >= self.demand {
            return alone;
        }
        (self.compute_s / (self.bytes / rate)).min(alone)
    }
}

/// Locality factor of a placement, in (0, 1]; pure and deterministic.
pub trait LocalityModel: Send + Sync + std::fmt::Debug {
    /// Factor that multiplies the base rate of a gang on GPUs of a shape.
    fn locality(&self, gang: &Gang, shape: Shape) -> f64;

    /// The shape that stands for a tier where no placement is given.
    fn canonical(&self, gpu_type: GpuTypeId, gpus: u32, tier: Tier) -> Shape {
        let _ = gpu_type;
        let (server, rack) = (gpus, gpus);
        Extent { server, rack }.canonical(gpus, tier)
    }

    /// Factor in a tier where no placement is given.
    fn at_tier(&self, gang: &Gang, tier: Tier) -> f64 {
        self.locality(gang, self.canonical(gang.gpu_type, gang.gpus, tier))
    }

    /// Bytes/s that the jobs of the run may send through the up-link of a rack; `None` = each job goes as
    /// if alone.
    fn shared_bw(&self) -> Option<f64> {
        None
    }

    /// What a gang on GPUs of a shape asks of up-links; `None` = nothing.
    fn load(&self, gang: &Gang, shape: Shape) -> Option<Load> {
        let _ = (gang, shape);
        None
    }

    /// Bytes of the largest gradient tensor of a model over all its bytes, if known.
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
    /// One row per model label, and a last row for every other job; columns server, rack, network.
    ///
    /// # Errors
    /// [`ModelError::Table`] if there is no row or a factor is outside (0, 1].
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

/// Slow-downs by co-runners, resolved before the run: per GPU type a square of model labels, the
/// last row and column for jobs without a label. `None` of a pair = the two may not share.
#[derive(Clone, Debug, PartialEq)]
pub struct Interference {
    classes: usize,
    xi: Vec<f64>,
    needs_all_pairs: bool,
}

impl Interference {
    /// The same slow-down for every pair.
    ///
    /// # Errors
    /// [`ModelError::Table`] if `xi` is not a finite number >= 1.
    pub fn constant(xi: f64, types: usize) -> Result<Self, ModelError> {
        Self::new(vec![xi; types], 1)
    }

    /// A table: `xi[type][slowed label][co-runner's label]`, row-major; NaN = may not share.
    ///
    /// # Errors
    /// [`ModelError::Table`] on a wrong length or a value that is neither NaN nor finite and >= 1.
    pub fn new(xi: Vec<f64>, classes: usize) -> Result<Self, ModelError> {
        let fail = |what: String| {
            Err(ModelError::Table {
                table: "interference",
                what,
            })
        };
        if classes == 0 || xi.is_empty() || !xi.len().is_multiple_of(classes * classes) {
            return fail(format!(
                "{} values are no squares of {classes} labels",
                xi.len()
            ));
        }
        if let Some(bad) = xi.iter().find(|xi| xi.is_infinite() || **xi < 1.0) {
            return fail(format!("slow-down {bad} is below 1 or infinite"));
        }
        Ok(Self {
            classes,
            xi,
            needs_all_pairs: false,
        })
    }

    /// Makes a missing pair an error of the run instead of a pair that may not share.
    #[must_use]
    pub fn with_all_pairs_needed(mut self) -> Self {
        self.needs_all_pairs = true;
        self
    }

    /// Pairs (slowed, co-runner) of labels that the table lacks and these jobs could form, if every
    /// pair is needed: a label that only one job has forms no pair with itself. `None` = no label.
    pub fn missing_pairs(&self, jobs: &JobFacts) -> Vec<(Option<u32>, Option<u32>)> {
        if !self.needs_all_pairs {
            return Vec::new();
        }
        let last = self.classes - 1;
        let mut count = vec![0_usize; self.classes];
        match &jobs.columns().model {
            None => count[last] = jobs.len(),
            Some(model) => {
                for &label in model {
                    count[(label as usize).min(last)] += 1;
                }
            }
        }
        let label = |class: usize| (class < last).then_some(class as u32);
        let square = self.classes * self.classes;
        let mut missing = Vec::new();
        for (slowed, &here) in count.iter().enumerate() {
            for (other, &there) in count.iter().enumerate() {
                let can_meet = here > 0 && there > usize::from(slowed == other);
                let at = slowed * self.classes + other;
                let is_absent = || {
                    self.xi
                        .iter()
                        .skip(at)
                        .step_by(square)
                        .any(|xi| xi.is_nan())
                };
                if can_meet && is_absent() {
                    missing.push((label(slowed), label(other)));
                }
            }
        }
        missing
    }

    /// Slow-down of a job of label `slowed` next to one of label `co_runner`; `None` if one of the two
    /// directions forbids the pair.
    #[inline]
    pub fn xi(
        &self,
        slowed: Option<u32>,
        co_runner: Option<u32>,
        gpu_type: GpuTypeId,
    ) -> Option<f64> {
        let last = self.classes - 1;
        let row = slowed.map_or(last, |label| (label as usize).min(last));
        let column = co_runner.map_or(last, |label| (label as usize).min(last));
        let base = gpu_type.index() * self.classes * self.classes;
        let there = self.xi[base + row * self.classes + column];
        let back = self.xi[base + column * self.classes + row];
        (!there.is_nan() && !back.is_nan()).then_some(there)
    }
}
