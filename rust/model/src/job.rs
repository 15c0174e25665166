//! The jobs of a run, as columns sorted by arrival. The columns are immutable, and several runs can share them.

use crate::{GpuTypeId, JobId, ModelError, SimSpan, SimTime};
use std::ops::Deref;

/// Columns of a job table. If an optional column is missing, every job has the default.
#[derive(Clone, Debug, Default)]
pub struct JobColumns {
    /// Arrival instants, ascending.
    pub arrival: Vec<SimTime>,
    /// Gang sizes, 1 to 2^15.
    pub gpus: Vec<u32>,
    /// Work in iterations or, if only a duration is known, in seconds on a GPU of speed 1; must be positive.
    pub work: Vec<f64>,
    /// Number of iterations per second on a GPU of speed 1; default 1, for jobs whose work is in seconds.
    pub ref_rate: Option<Vec<f64>>,
    /// Row in the rate table; `u32::MAX` means that there is no row and the speed of the GPU type applies.
    pub rate_class: Option<Vec<u32>>,
    /// Allowed GPU types: bit `t` stands for type `t`; default all.
    pub allowed_types: Option<Vec<u64>>,
    /// Memory per GPU at full batch size; default 0.
    pub memory_bytes: Option<Vec<u64>>,
    /// Model label; `u32::MAX` means that the job has none.
    pub model: Option<Vec<u32>>,
    /// Names of the model labels.
    pub model_labels: Vec<String>,
    /// Number of samples per GPU; 0 means unknown.
    pub batch_size: Option<Vec<u32>>,
    /// Owners of the jobs.
    pub labels: Labels,
    /// Requests that users make in addition to GPUs.
    pub requests: Requests,
    /// Weight; default 1.
    pub weight: Option<Vec<f64>>,
    /// Deadline as an instant of simulated time; `SimTime::NEVER` means that there is no deadline.
    pub deadline: Option<Vec<SimTime>>,
}

/// Labels of one kind, such as the user: one label for each job.
#[derive(Clone, Debug, Default)]
pub struct Label {
    /// For each job, an index into `names`; `u32::MAX` means that the job has no label.
    pub codes: Option<Vec<u32>>,
    /// The names.
    pub names: Vec<String>,
}

impl Label {
    /// Returns the name of a job's label, if it has one.
    #[inline]
    pub fn of(&self, job: JobId) -> Option<&str> {
        let code = self.codes.as_ref()?[job.index()];
        self.names.get(code as usize).map(String::as_str)
    }

    /// Returns whether any job has a label of this kind.
    pub fn is_used(&self) -> bool {
        let codes = self.codes.as_deref().unwrap_or_default();
        codes.iter().any(|&code| code != u32::MAX)
    }
}

/// Owners of the jobs; the names of the fields are those that batch schedulers use.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    /// The user.
    pub user: Label,
    /// The virtual cluster.
    pub vc: Label,
    /// The account that pays for the job.
    pub account: Label,
    /// The partition to which the job was submitted.
    pub partition: Label,
    /// The quality of service.
    pub qos: Label,
}

/// Requests that users make in addition to GPUs.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    /// Maximum run time of the job; [`SimSpan::ZERO`] means unlimited.
    pub time_limit: Option<Vec<SimSpan>>,
    /// Priority; default 0.
    pub priority: Option<Vec<f64>>,
    /// Amount by which the user lowers the job's priority; default 0.
    pub nice: Option<Vec<i32>>,
}

/// The properties of a gang that a locality model uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gang {
    /// Model label of the job, if it has one.
    pub model: Option<u32>,
    /// Number of samples per GPU; 0 means unknown.
    pub batch_size: u32,
    /// GPU type of the gang; if the gang mixes types, the type of its first server.
    pub gpu_type: GpuTypeId,
    /// Gang size.
    pub gpus: u32,
}

/// Columns of the job table that every policy may know: all columns except the work.
#[derive(Clone, Debug)]
pub struct JobFacts {
    /// Columns of the table; the work column is empty.
    columns: JobColumns,
}

/// A validated job table: [`JobFacts`], and the work of each job.
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
    /// Checks and stores the columns.
    ///
    /// # Errors
    /// Returns [`ModelError::Length`] for columns of unequal length, or [`ModelError::Job`] for the first invalid
    /// value: unsorted arrivals, a gang size outside 1..=2^15, or work or rates that are not positive.
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

    /// Returns the work of a job, in iterations or in seconds on a GPU of speed 1.
    #[inline]
    pub fn work(&self, job: JobId) -> f64 {
        self.work[job.index()]
    }

    /// Returns the work of every job.
    pub fn all_work(&self) -> &[f64] {
        &self.work
    }
}

impl JobFacts {
    /// Returns the number of jobs.
    #[inline]
    pub fn len(&self) -> usize {
        self.columns.arrival.len()
    }

    /// Returns whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.columns.arrival.is_empty()
    }

    /// Returns the ids of all jobs in order of arrival.
    pub fn ids(&self) -> impl Iterator<Item = JobId> + use<> {
        (0..self.len() as u32).map(JobId)
    }

    /// Returns the columns; the work column is empty.
    pub fn columns(&self) -> &JobColumns {
        &self.columns
    }

    /// Returns the instant at which a job arrives.
    #[inline]
    pub fn arrival(&self, job: JobId) -> SimTime {
        self.columns.arrival[job.index()]
    }

    /// Returns the gang size of a job.
    #[inline]
    pub fn gpus(&self, job: JobId) -> u32 {
        self.columns.gpus[job.index()]
    }

    /// Returns the model label of a job, if it has one.
    #[inline]
    pub fn model(&self, job: JobId) -> Option<u32> {
        let label = *self.columns.model.as_ref()?.get(job.index())?;
        (label != u32::MAX).then_some(label)
    }

    /// Returns the name of a job's model label, if it has one.
    pub fn model_name(&self, job: JobId) -> Option<&str> {
        let label = self.model(job)?;
        self.columns
            .model_labels
            .get(label as usize)
            .map(String::as_str)
    }

    /// Returns the properties that a locality model uses, for the job's gang on a GPU type.
    #[inline]
    pub fn gang(&self, job: JobId, gpu_type: GpuTypeId) -> Gang {
        Gang {
            model: self.model(job),
            batch_size: self.batch_size(job),
            gpu_type,
            gpus: self.gpus(job),
        }
    }

    /// Returns the number of samples per GPU at full batch size; 0 means unknown.
    #[inline]
    pub fn batch_size(&self, job: JobId) -> u32 {
        self.columns
            .batch_size
            .as_ref()
            .map_or(0, |column| column[job.index()])
    }

    /// Returns the maximum run time of the job, if its user set one.
    #[inline]
    pub fn time_limit(&self, job: JobId) -> Option<SimSpan> {
        let limit = self.columns.requests.time_limit.as_ref()?[job.index()];
        (limit > SimSpan::ZERO).then_some(limit)
    }

    /// Returns the priority of the job; 0 by default.
    #[inline]
    pub fn priority(&self, job: JobId) -> f64 {
        let priority = self.columns.requests.priority.as_ref();
        priority.map_or(0.0, |column| column[job.index()])
    }

    /// Returns the amount by which the user lowers the priority.
    #[inline]
    pub fn nice(&self, job: JobId) -> i32 {
        let nice = self.columns.requests.nice.as_ref();
        nice.map_or(0, |column| column[job.index()])
    }

    /// Returns the memory per GPU at full batch size.
    #[inline]
    pub fn memory_bytes(&self, job: JobId) -> u64 {
        self.columns
            .memory_bytes
            .as_ref()
            .map_or(0, |column| column[job.index()])
    }

    /// Returns the GPU types that the job allows, as a mask: bit `t` stands for type `t`.
    #[inline]
    pub fn allowed_types(&self, job: JobId) -> u64 {
        self.columns
            .allowed_types
            .as_ref()
            .map_or(u64::MAX, |column| column[job.index()])
    }

    /// Returns whether jobs differ only in gang size and work as far as the cluster is concerned: no job has its own
    /// GPU types, memory or rates.
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
    let Labels {
        user,
        vc,
        account,
        partition,
        qos,
    } = &columns.labels;
    let labels = [
        ("user", user),
        ("vc", vc),
        ("account", account),
        ("partition", partition),
        ("qos", qos),
    ];
    let requests = &columns.requests;
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
        ("weight", columns.weight.as_ref().map(Vec::len)),
        ("deadline_s", columns.deadline.as_ref().map(Vec::len)),
        ("time_limit_s", requests.time_limit.as_ref().map(Vec::len)),
        ("priority", requests.priority.as_ref().map(Vec::len)),
        ("nice", requests.nice.as_ref().map(Vec::len)),
    ];
    let coded = labels.map(|(field, label)| (field, label.codes.as_ref().map(Vec::len)));
    for (column, found) in optional.into_iter().chain(coded) {
        if let Some(found) = found.filter(|&found| found != rows) {
            return Err(ModelError::Length {
                column,
                found,
                expected: rows,
            });
        }
    }
    check_labels(
        "model",
        columns.model.as_deref(),
        columns.model_labels.len(),
    )?;
    for (field, label) in labels {
        check_labels(field, label.codes.as_deref(), label.names.len())?;
    }
    Ok(())
}

fn check_labels(
    field: &'static str,
    codes: Option<&[u32]>,
    labels: usize,
) -> Result<(), ModelError> {
    let codes = codes.unwrap_or_default();
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

    fn one_job(labels: Labels, requests: Requests) -> Result<JobTable, ModelError> {
        JobTable::new(JobColumns {
            arrival: vec![SimTime(0)],
            gpus: vec![1],
            work: vec![1.0],
            labels,
            requests,
            ..JobColumns::default()
        })
    }

    #[test]
    fn a_code_without_a_name_is_refused() {
        let qos = |code| Label {
            codes: Some(vec![code]),
            names: vec!["high".to_owned()],
        };
        let table = |code| {
            let labels = Labels {
                qos: qos(code),
                ..Labels::default()
            };
            one_job(labels, Requests::default())
        };
        let name = |code| table(code).map(|jobs| jobs.columns().labels.qos.of(JobId(0)).is_some());
        assert!(matches!((name(0), name(u32::MAX)), (Ok(true), Ok(false))));
        assert!(matches!(name(1), Err(ModelError::Job { field: "qos", .. })));
    }

    #[test]
    fn a_time_limit_of_zero_is_none() {
        let limit = |ns| {
            let requests = Requests {
                time_limit: Some(vec![SimSpan(ns)]),
                ..Requests::default()
            };
            one_job(Labels::default(), requests).map(|jobs| jobs.time_limit(JobId(0)))
        };
        assert!(matches!(
            (limit(0), limit(7)),
            (Ok(None), Ok(Some(SimSpan(7))))
        ));
        let requests = Requests {
            nice: Some(Vec::new()),
            ..Requests::default()
        };
        assert!(matches!(
            one_job(Labels::default(), requests),
            Err(ModelError::Length { column: "nice", .. })
        ));
    }
}
