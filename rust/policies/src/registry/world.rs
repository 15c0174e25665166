//! Premises of policies: assumptions about the cluster and the trace. Each policy declares its premises, and they are
//! checked before a run.

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
        /// For some jobs, the speeds with other numbers of GPUs and other batches are known.
        ElasticJobs = "elastic_jobs",
        /// Every GPU type has a price.
        Prices = "prices",
        /// Some jobs have a deadline.
        Deadlines = "deadlines",
        /// Every job has exactly one GPU.
        OneGpuJobs = "one_gpu_jobs",
    }
}

/// An assumption of a policy about the cluster and the trace of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Premise {
    /// The fact that is assumed to hold.
    pub fact: Fact,
    /// Parameter value with which the premise applies; `None` means that it always applies.
    pub only_if: Option<(&'static str, ParamDefault)>,
    /// The mechanism that gains nothing if the fact does not hold, as a singular noun phrase; empty if the run would
    /// fail without the fact.
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

    /// Creates a premise without which a mechanism brings no gain. It should hold, but the policy runs without it.
    pub(super) const fn of(mechanism: &'static str, fact: Fact) -> Self {
        Self {
            mechanism,
            ..Self::required(fact)
        }
    }

    /// Returns this premise, restricted to runs in which a flag is set.
    pub(super) const fn with(self, flag: &'static str) -> Self {
        Self {
            only_if: Some((flag, ParamDefault::Bool(true))),
            ..self
        }
    }
}

/// The premise for choosing GPU types by the rates of each job.
pub(super) const TYPES: Premise = Premise::of(
    "choosing GPU types by the rates of each job",
    Fact::RatesByType,
);
/// The premise for choosing pairs on shared GPUs by their slowdown factors.
pub(super) const PAIRS: Premise = Premise::of(
    "choosing which jobs share a GPU by their slowdown factors",
    Fact::FactorsByPair,
);
/// The premise for sharing GPUs: without slowdown factors, the run would fail.
pub(super) const SHARING: Premise = Premise::required(Fact::SlowdownFactors);
