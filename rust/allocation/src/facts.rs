//! Facts that an objective needs in addition to the jobs.
use gangline_model::words;

/// The rates that an objective uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Each job has its own rate on each type.
    Own,
    /// Each job has the same rate on every type on which it can run: its mean rate over all GPUs.
    Mean,
    /// Each job has the same rate on every type on which it can run: its rate on the given type.
    Reference(usize),
}

words! {
    /// Rule by which an entity divides its weight.
    pub enum Inside {
        /// The weight is divided among all jobs that can still rise, in proportion to their weights.
        Fairness = "fairness",
        /// The whole weight goes to the first job that can still rise.
        Fifo = "fifo",
    }
}

/// Facts that an objective needs in addition to the jobs.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Price per GPU-hour for each type.
    pub prices: Vec<f64>,
    /// The reference type, whose rates are used for all types.
    pub reference: Option<usize>,
    /// Rule by which each entity divides its weight.
    pub inside: Vec<Inside>,
    /// GPU types, sorted by name.
    pub by_name: Vec<usize>,
}
