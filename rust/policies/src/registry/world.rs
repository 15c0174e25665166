//! Premises of policies about the cluster and the trace, which are declared with each policy and evaluated before a
//! run.

use crate::params::ParamDefault;
use gangline_model::words;

words! {
    /// A fact about a cluster or a trace.
    pub enum Fact {
        /// Jobs have slowdown factors on shared GPUs.
        SlowdownFactors = "slowdown_factors",
        /// Slowdown factors differ from pair to pair.
        FactorsByPair = "factors_by_pair",
        /// Distance between the GPUs of a gang reduces its speed.
        Network = "network",
        /// Jobs run at different speeds on different GPU types.
        RatesByType = "rates_by_type",
        /// Some jobs have known speeds for other numbers of GPUs and other batches.
        ElasticJobs = "elastic_jobs",
        /// Every GPU type has a price.
        Prices = "prices",
        /// Some jobs have a deadline.
        Deadlines = "deadlines",
        /// All jobs have one GPU.
        OneGpuJobs = "one_gpu_jobs",
    }
}

/// An assumption of a policy about the cluster and the trace of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Premise {
    /// The fact that should hold.
    pub fact: Fact,
    /// Value of a parameter under which the premise applies; `None` means always.
    pub only_if: Option<(&'static str, ParamDefault)>,
    /// The mechanism that gains nothing without the fact, as a noun phrase in the singular; empty if the run fails
    /// without the fact.
    pub mechanism: &'static str,
}

impl Premise {
    /// Creates a premise that must hold, because a run would fail otherwise.
    pub(super) const fn required(fact: Fact) -> Self {
        Self {
            fact,
            only_if: None,
            mechanism: "",
        }
    }

    /// Creates a premise that should hold, because a mechanism would gain nothing otherwise.
    pub(super) const fn of(mechanism: &'static str, fact: Fact) -> Self {
        Self {
            mechanism,
            ..Self::required(fact)
        }
    }

    /// Returns this premise, limited to runs in which a flag is set.
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
/// The choice of pairs on shared GPUs by their slowdown factors.
pub(super) const PAIRS: Premise = Premise::of(
    "choosing which jobs share a GPU by their slowdown factors",
    Fact::FactorsByPair,
);
/// Pairs on shared GPUs.
pub(super) const SHARING: Premise = Premise::required(Fact::SlowdownFactors);
