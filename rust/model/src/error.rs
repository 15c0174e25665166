//! What can be wrong with a description, before any run.

use crate::JobId;
use thiserror::Error;

/// A cluster, a job table or a rate table that cannot be right.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ModelError {
    /// A time that is not finite or too large.
    #[error("time {seconds:?} s is not finite or beyond 4e9 s")]
    Time {
        /// The offending value.
        seconds: f64,
    },
    /// A cluster with something missing or out of range.
    #[error("cluster: {what}")]
    Cluster {
        /// What is wrong, in words.
        what: String,
    },
    /// A server with a bad value.
    #[error("server {server}: {what}")]
    Server {
        /// Index of the server.
        server: u32,
        /// What is wrong, in words.
        what: String,
    },
    /// A job with a bad value.
    #[error("job at row {job}: {field} {value}: expected {expected}")]
    Job {
        /// Row in the job table.
        job: u32,
        /// Column name.
        field: &'static str,
        /// The offending value.
        value: f64,
        /// What would be right.
        expected: &'static str,
    },
    /// Columns of unequal length.
    #[error("column {column} has {found} rows, expected {expected}")]
    Length {
        /// Column name.
        column: &'static str,
        /// Its rows.
        found: usize,
        /// The table's rows.
        expected: usize,
    },
    /// A network with a bad value.
    #[error("network.{key}: expected {expected}, got {value}")]
    Network {
        /// Key path below `network`.
        key: String,
        /// The offending value.
        value: String,
        /// What would be right.
        expected: String,
    },
    /// Jobs of several GPUs whose model the network does not know.
    #[error(
        "network: no model {} ({count} {} of several GPUs); add it to `network.models`, or name a \
         `network.default_model`",
        label.as_ref().map_or("for jobs without a label".to_owned(), |label| format!("`{label}`")),
        if *count == 1 { "job" } else { "jobs" }
    )]
    UnknownModel {
        /// The first ten of them.
        jobs: Vec<JobId>,
        /// How many there are.
        count: usize,
        /// Label of the first one.
        label: Option<String>,
    },
    /// A gang without a measured pair of throughputs.
    #[error(
        "network: no pair of throughputs (server and spread) for `{model}` on {gpu_type} with {gpus} \
         GPUs; add rows, or set `network.on_missing`"
    )]
    MissingThroughput {
        /// The first such job.
        job: JobId,
        /// Name of the GPU type.
        gpu_type: String,
        /// Model label, empty for none.
        model: String,
        /// Gang size.
        gpus: u32,
    },
    /// A rate, locality or interference table with a bad value.
    #[error("{table}: {what}")]
    Table {
        /// Which table.
        table: &'static str,
        /// What is wrong, in words.
        what: String,
    },
}
