//! What an objective knows besides the jobs.
use gangline_model::words;

/// The rates that an objective knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Those of each type.
    Own,
    /// Of each job the mean over all GPUs, wherever it can run.
    Mean,
    /// Of each job that on this type, wherever it can run.
    Reference(usize),
}

words! {
    /// How an entity divides its weight.
    pub enum Inside {
        /// Among all its jobs that can rise, by their weights.
        Fairness = "fairness",
        /// All to the first job that can rise.
        Fifo = "fifo",
    }
}

/// What an objective has to know besides the jobs.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Prices per GPU-hour and type.
    pub prices: Vec<f64>,
    /// The type whose rates stand for all.
    pub reference: Option<usize>,
    /// How each entity divides its weight.
    pub inside: Vec<Inside>,
    /// Types by name.
    pub by_name: Vec<usize>,
}
