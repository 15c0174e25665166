//! The jobs of a run: a struct of arrays, sorted by arrival, immutable, shared between runs.

use crate::{GpuTypeId, JobId, ModelError, SimTime};
use std::ops::Deref;

/// Columns of a job table. Optional columns may be left out; then every job has the default.
#[derive(Clone, Debug, Default)]
pub struct JobColumns {
    /// Arrival instants, ascending.
    pub arrival: Vec<SimTime>,
    /// Gang sizes, 1 to 2^15.
    pub gpus: Vec<u32>,
    /// Iterations, or reference seconds where only a duration is known; positive.
    pub work: Vec<f64>,
    /// Iterations per second on a GPU of speed 1 (default 1: work is in reference seconds).
    pub ref_rate: Option<Vec<f64>>,
    /// Row in the rate table; `u32::MAX` = none, the type's speed counts.
    pub rate_class: Option<Vec<u32>>,
    /// Allowed GPU types: bit `t` = type `t`; default all.
    pub allowed_types: Option<Vec<u64>>,
    /// Memory per GPU at full batch; default 0.
    pub memory_bytes: Option<Vec<u64>>,
    /// Model label; `u32::MAX` = none.
    pub model: Option<Vec<u32>>,
    /// Names of the model labels.
    pub model_labels: Vec<String>,
    /// Samples per GPU; 0 = unknown.
    pub batch_size: Option<Vec<u32>>,
    /// User label; `u32::MAX` = none.
    pub user: Option<Vec<u32>>,
    /// Names of the user labels.
    pub user_labels: Vec<String>,
    /// Label of the virtual cluster; `u32::MAX` = none.
    pub vc: Option<Vec<u32>>,
    /// Names of the virtual clusters.
    pub vc_labels: Vec<String>,
    /// Weight; default 1.
    pub weight: Option<Vec<f64>>,
    /// Deadline on the arrival clock; `SimTime::NEVER` = none.
    pub deadline: Option<Vec<SimTime>>,
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

/// What every policy may know of the jobs: every column but the work.
#[derive(Clone, Debug)]
pub struct JobFacts {
    /// With an empty column of work.
    columns: JobColumns,
}

/// A validated job table: [`JobFacts`], and how much work each job is.
#[derive(Clone, Debug)]
pub struct JobTable {
    facts: JobFacts,
    work: Vec<f64>,
}

impl Deref for JobTable {
    type Target = JobFacts;

    #[inline]
    fn deref(&self) -> &JobFacts {
        &self.facts
    }
}

impl JobTable {
    /// Checks and keeps the columns.
    ///
    /// # Errors
    /// [`ModelError::Length`] for columns of unequal length, [`ModelError::Job`] for the first bad
    /// value: unsorted arrivals, a gang outside 1..=2^15, work or rates that are not positive.
    ///
    /// # Examples
    /// ```
    /// use gangline_model::{JobColumns, JobTable, SimTime};
    /// let columns = JobColumns {
    ///     arrival: vec![SimTime(0), SimTime(5)], gpus: vec![1, 8], work: vec![10.0, 20.0],
    ///     ..JobColumns::default()
    /// };
    /// assert_eq!(JobTable::new(columns).unwrap().len(), 2);
    /// ```
    pub fn new(mut columns: JobColumns) -> Result<Self, ModelError> {
        check_lengths(&columns)?;
        let fail = |row: usize, field, value: f64, expected| {
            Err(ModelError::Job {
                job: row as u32,
                field,
                value,
                expected,
            })
        };
        let latest = SimTime::from_seconds(crate::MAX_SECONDS)?;
        let mut last = SimTime(0);
        for (row, &arrival) in columns.arrival.iter().enumerate() {
            if arrival < last || arrival > latest {
                return fail(
                    row,
                    "arrival_s",
                    arrival.seconds(),
                    "ascending arrivals from 0 to 4e9",
                );
            }
            last = arrival;
        }
        for (row, &gpus) in columns.gpus.iter().enumerate() {
            if gpus == 0 || gpus > 1 << 15 {
                return fail(row, "gpus", f64::from(gpus), "1 to 32768");
            }
        }
        for (name, column) in [
            ("work", Some(&columns.work)),
            ("ref_rate", columns.ref_rate.as_ref()),
            ("weight", columns.weight.as_ref()),
        ] {
            for (row, &value) in column.into_iter().flatten().enumerate() {
                if !(value.is_finite() && value > 0.0) {
                    return fail(row, name, value, "a positive finite number");
                }
            }
        }
        Ok(Self {
            work: std::mem::take(&mut columns.work),
            facts: JobFacts { columns },
        })
    }

    /// Work: iterations or reference seconds.
    #[inline]
    pub fn work(&self, job: JobId) -> f64 {
        self.work[job.index()]
    }

    /// Work of every job.
    pub fn all_work(&self) -> &[f64] {
        &self.work
    }
}

impl JobFacts {
    /// Number of jobs.
    #[inline]
    pub fn len(&self) -> usize {
        self.columns.arrival.len()
    }

    /// Whether there is no job.
    pub fn is_empty(&self) -> bool {
        self.columns.arrival.is_empty()
    }

    /// All ids, in order of arrival.
    pub fn ids(&self) -> impl Iterator<Item = JobId> + use<> {
        (0..self.len() as u32).map(JobId)
    }

    /// The columns themselves; that of the work is empty.
    pub fn columns(&self) -> &JobColumns {
        &self.columns
    }

    /// Arrival instant.
    #[inline]
    pub fn arrival(&self, job: JobId) -> SimTime {
        self.columns.arrival[job.index()]
    }

    /// Gang size.
    #[inline]
    pub fn gpus(&self, job: JobId) -> u32 {
        self.columns.gpus[job.index()]
    }

    /// Model label, if the job has one.
    #[inline]
    pub fn model(&self, job: JobId) -> Option<u32> {
        let label = *self.columns.model.as_ref()?.get(job.index())?;
        (label != u32::MAX).then_some(label)
    }

    /// Name of the model label, if the job has one.
    pub fn model_name(&self, job: JobId) -> Option<&str> {
        let label = self.model(job)?;
        self.columns
            .model_labels
            .get(label as usize)
            .map(String::as_str)
    }

    /// The job's gang on a GPU type, as a locality model knows it.
    #[inline]
    pub fn gang(&self, job: JobId, gpu_type: GpuTypeId) -> Gang {
        Gang {
            model: self.model(job),
            batch_size: self.batch_size(job),
            gpu_type,
            gpus: self.gpus(job),
        }
    }

    /// Samples per GPU at full batch; 0 = unknown.
    #[inline]
    pub fn batch_size(&self, job: JobId) -> u32 {
        self.columns
            .batch_size
            .as_ref()
            .map_or(0, |column| column[job.index()])
    }

    /// Memory per GPU at full batch.
    #[inline]
    pub fn memory_bytes(&self, job: JobId) -> u64 {
        self.columns
            .memory_bytes
            .as_ref()
            .map_or(0, |column| column[job.index()])
    }

    /// GPU types the job allows: bit `t` = type `t`.
    #[inline]
    pub fn allowed_types(&self, job: JobId) -> u64 {
        self.columns
            .allowed_types
            .as_ref()
            .map_or(u64::MAX, |column| column[job.index()])
    }

    /// Whether jobs differ in nothing but gang and work: no types, memory or rates of their own.
    pub fn is_uniform(&self) -> bool {
        self.columns.allowed_types.is_none()
            && self.columns.ref_rate.is_none()
            && self.columns.memory_bytes.is_none()
            && self.columns.rate_class.is_none()
    }
}

fn check_lengths(columns: &JobColumns) -> Result<(), ModelError> {
    let rows = columns.arrival.len();
    if rows >= u32::MAX as usize {
        return Err(ModelError::Length {
            column: "arrival_s",
            found: rows,
            expected: u32::MAX as usize - 1,
        });
    }
    let optional = [
        ("gpus", Some(columns.gpus.len())),
        ("work", Some(columns.work.len())),
        ("ref_rate", columns.ref_rate.as_ref().map(Vec::len)),
        ("rate_class", columns.rate_class.as_ref().map(Vec::len)),
        (
            "allowed_types",
            columns.allowed_types.as_ref().map(Vec::len),
        ),
        ("memory_bytes", columns.memory_bytes.as_ref().map(Vec::len)),
        ("model", columns.model.as_ref().map(Vec::len)),
        ("batch_size", columns.batch_size.as_ref().map(Vec::len)),
        ("user", columns.user.as_ref().map(Vec::len)),
        ("vc", columns.vc.as_ref().map(Vec::len)),
        ("weight", columns.weight.as_ref().map(Vec::len)),
        ("deadline_s", columns.deadline.as_ref().map(Vec::len)),
    ];
    for (column, found) in optional {
        if let Some(found) = found.filter(|&found| found != rows) {
            return Err(ModelError::Length {
                column,
                found,
                expected: rows,
            });
        }
    }
    for (field, codes, labels) in [
        ("model", &columns.model, &columns.model_labels),
        ("user", &columns.user, &columns.user_labels),
        ("vc", &columns.vc, &columns.vc_labels),
    ] {
        check_labels(field, codes.as_deref().unwrap_or_default(), labels.len())?;
    }
    Ok(())
}

fn check_labels(field: &'static str, codes: &[u32], labels: usize) -> Result<(), ModelError> {
    let is_wrong = |code: u32| code != u32::MAX && code as usize >= labels;
    match codes.iter().position(|&code| is_wrong(code)) {
        None => Ok(()),
        Some(row) => Err(ModelError::Job {
            job: row as u32,
            field,
            value: f64::from(codes[row]),
            expected: "a code of the label table",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_arrivals_are_refused_before_time_can_overflow() {
        let columns = JobColumns {
            arrival: vec![SimTime::NEVER],
            gpus: vec![1],
            work: vec![1.0],
            ..JobColumns::default()
        };
        let refused = JobTable::new(columns).expect_err("beyond the end of time");
        assert!(matches!(
            refused,
            ModelError::Job {
                field: "arrival_s",
                ..
            }
        ));
    }
}
