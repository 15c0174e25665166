//! Owners of jobs, identified by index: the users or virtual clusters of a trace.

use gangline_model::words;
use gangline_model::{JobFacts, JobId};
use std::collections::BTreeSet;

words! {
    /// The label that defines the queues.
    pub enum QueueBy {
        /// No label: all jobs are in one queue.
        None = "none",
        /// The user.
        User = "user",
        /// The virtual cluster.
        Vc = "vc",
    }
}

/// Name of the owner of jobs without a label, and of all jobs if there is only one queue.
const DEFAULT: &str = "default";

/// The owners of a trace, in order of their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners {
    pub names: Vec<String>,
    /// For each job, the index of its owner in `names`.
    pub number: Vec<u32>,
}

impl Owners {
    /// Returns the owners of the jobs; `None` if a label defines the owners but no job has one.
    pub(crate) fn of(jobs: &JobFacts, by: QueueBy) -> Option<Self> {
        let labels = &jobs.columns().labels;
        let label = match by {
            QueueBy::None => None,
            QueueBy::User => Some(&labels.user),
            QueueBy::Vc => Some(&labels.vc),
        };
        if label.is_some_and(|label| !label.is_used()) {
            return None;
        }
        let name_of = |job: JobId| label.and_then(|label| label.of(job)).unwrap_or(DEFAULT);
        let names: BTreeSet<&str> = jobs.ids().map(name_of).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let number = |job| names.binary_search(&name_of(job)).expect("one of all") as u32;
        Some(Self {
            number: jobs.ids().map(number).collect(),
            names: names.iter().map(ToString::to_string).collect(),
        })
    }
}
