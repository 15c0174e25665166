//! Errors in the description of a run; they are found before the run starts.

use crate::JobId;
use thiserror::Error;

/// An invalid cluster, job table or rate table.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ModelError {
    /// A time that is not finite or is too large.
    #[error("time {seconds:?} s is not finite, or exceeds 4e9 s")]
    Time {
        /// The offending value.
        seconds: f64,
    },
    /// A cluster with a missing or invalid value.
    #[error("cluster: {what}")]
    Cluster {
        /// Description of the problem.
        what: String,
    },
    /// A server with an invalid value.
    #[error("server {server}: {what}")]
    Server {
        /// Index of the server.
        server: u32,
        /// Description of the problem.
        what: String,
    },
    /// A job with an invalid value.
    #[error("job at row {job}: {field} {value}: expected {expected}")]
    Job {
        /// Row in the job table.
        job: u32,
        /// Column name.
        field: &'static str,
        /// The offending value.
        value: f64,
        /// Description of the accepted values.
        expected: &'static str,
    },
    /// Columns of unequal length.
    #[error("column {column} has {found} rows, expected {expected}")]
    Length {
        /// Column name.
        column: &'static str,
        /// Number of rows in the column.
        found: usize,
        /// Number of rows in the table.
        expected: usize,
    },
    /// A network with an invalid value.
    #[error("network.{key}: expected {expected}, got {value}")]
    Network {
        /// Key path below `network`.
        key: String,
        /// The offending value.
        value: String,
        /// Description of the accepted values.
        expected: String,
    },
    /// Multi-GPU jobs whose model is missing from the network description.
    #[error(
        "network: no model {} ({count} multi-GPU {}); add it to `network.models`, or name a \
         `network.default_model`",
        label.as_ref().map_or("for jobs without a label".to_owned(), |label| format!("`{label}`")),
        if *count == 1 { "job" } else { "jobs" }
    )]
    UnknownModel {
        /// The first ten of these jobs.
        jobs: Vec<JobId>,
        /// Number of these jobs.
        count: usize,
        /// Label of the first of these jobs.
        label: Option<String>,
    },
    /// A gang for which no pair of throughputs was measured.
    #[error(
        "network: no pair of throughputs (server and spread) for `{model}` on {gpu_type} with {gpus} \
         GPUs; add rows, or set `network.on_missing`"
    )]
    MissingThroughput {
        /// The first job without a measured pair.
        job: JobId,
        /// Name of the GPU type.
        gpu_type: String,
        /// Model label; empty if the job has none.
        model: String,
        /// Gang size.
        gpus: u32,
    },
    /// A table of rates, locality factors or slowdown factors with an invalid value.
    #[error("{table}: {what}")]
    Table {
        /// Name of the table.
        table: &'static str,
        /// Description of the problem.
        what: String,
    },
}
