//! What policies build on in a cluster and a trace: declared next to each policy, evaluated where both are known.

use crate::params::ParamDefault;
use gangline_model::words;

words! {
    /// Something that a cluster or a trace may have or lack.
    pub enum Fact {
        /// How much jobs slow each other down on a shared GPU.
        SlowdownFactors = "slowdown_factors",
        /// Slowdown factors that differ from pair to pair.
        FactorsByPair = "factors_by_pair",
        /// Distance between the GPUs of a gang costs speed.
        Network = "network",
        /// GPU types on which jobs run at different speeds.
        RatesByType = "rates_by_type",
        /// Jobs whose speed is known for other numbers of GPUs and other batches.
        ElasticJobs = "elastic_jobs",
        /// A price for every GPU type.
        Prices = "prices",
        /// Jobs with a deadline.
        Deadlines = "deadlines",
        /// Jobs with one GPU, and no others.
        OneGpuJobs = "one_gpu_jobs",
    }
}

/// What a policy builds on in the world of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Premise {
    /// What the world should have.
    pub fact: Fact,
    /// The value of a parameter that this depends on, if it does.
    pub only_if: Option<(&'static str, ParamDefault)>,
    /// The mechanism that gains nothing without the fact, as a noun phrase in the singular. Empty if the run fails
    /// without it.
    pub mechanism: &'static str,
}

impl Premise {
    /// The run fails in a world without the fact.
    pub(super) const fn required(fact: Fact) -> Self {
        Self {
            fact,
            only_if: None,
            mechanism: "",
        }
    }

    /// A mechanism gains nothing in a world without the fact.
    pub(super) const fn of(mechanism: &'static str, fact: Fact) -> Self {
        Self {
            mechanism,
            ..Self::required(fact)
        }
    }

    /// The same, where a flag is set.
    pub(super) const fn with(self, flag: &'static str) -> Self {
        Self {
            only_if: Some((flag, ParamDefault::Bool(true))),
            ..self
        }
    }
}

/// The choice of GPU types by the rates of each job.
pub(super) const TYPES: Premise = Premise::of(
    "choosing GPU types by the rates of each job",
    Fact::RatesByType,
);
/// Pairs on shared GPUs, chosen by what they cost each other.
pub(super) const PAIRS: Premise = Premise::of(
    "choosing which jobs share a GPU by their slowdown factors",
    Fact::FactorsByPair,
);
/// Pairs on shared GPUs.
pub(super) const SHARING: Premise = Premise::required(Fact::SlowdownFactors);
