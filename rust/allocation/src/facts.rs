//! Facts that an objective needs in addition to the jobs.
use gangline_model::words;

/// The rates that an objective uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The rates on each type.
    Own,
    /// For each job, the mean rate over all GPUs, wherever it can run.
    Mean,
    /// For each job, its rate on this type, wherever it can run.
    Reference(usize),
}

words! {
    /// How an entity divides its weight.
    pub enum Inside {
        /// Among all its jobs that can still rise, by their weights.
        Fairness = "fairness",
        /// All to the first job that can still rise.
        Fifo = "fifo",
    }
}

/// Facts that an objective needs in addition to the jobs.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Price per GPU-hour of each type.
    pub prices: Vec<f64>,
    /// The type whose rates are used on all types.
    pub reference: Option<usize>,
    /// How each entity divides its weight.
    pub inside: Vec<Inside>,
    /// Types in the order of their names.
    pub by_name: Vec<usize>,
}
