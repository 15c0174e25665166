//! What can be wrong with a description, before any run.

use thiserror::Error;

/// A cluster, a job table or a rate table that cannot be right.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ModelError {
    /// A time that is not finite or too large.
    #[error("time {seconds} s is not finite or beyond 4e9 s")]
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
    /// A rate, locality or interference table with a bad value.
    #[error("{table}: {what}")]
    Table {
        /// Which table.
        table: &'static str,
        /// What is wrong, in words.
        what: String,
    },
}
