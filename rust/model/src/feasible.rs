//! Decides which jobs can run on a cluster, and on which GPU types.

use crate::{ClusterSpec, GpuTypeId, JobFacts, JobId, RateTable};

/// The reason why a job can never run on a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InfeasibleReason {
    /// The job needs more GPUs than the cluster has of any allowed type.
    TooManyGpus,
    /// The job has rate 0 on every allowed type.
    NoRate,
    /// The job needs more memory per GPU than any allowed type has.
    Memory,
    /// The cluster has none of the GPU types that the job allows.
    NoType,
    /// The policy's placement rule finds no place for the job on the empty cluster.
    Placement,
    /// The gang is larger than the policy allows.
    Gang,
    /// The job needs more GPUs than the cluster has of all allowed types together; this reason is used if gangs may mix
    /// types.
    TooManyTogether,
    /// There is no server of an allowed type on which a copy of the job fits and makes progress.
    NoCopy,
    /// A reason from the policy, worded so that it can follow the name of the job.
    Policy(&'static str),
}

impl InfeasibleReason {
    /// Returns the reason in words that can follow the name of the job.
    pub fn text(self) -> &'static str {
        match self {
            Self::TooManyGpus => "asks for more GPUs than the cluster has of any type it may use",
            Self::NoRate => "has rate 0 on every GPU type it may use",
            Self::Memory => "needs more memory per GPU than any GPU type it may use has",
            Self::NoType => "allows no GPU type of this cluster",
            Self::Placement => {
                "has no place on the empty cluster under this policy and its placement rule"
            }
            Self::Gang => "asks for more GPUs than the policy gives to one job",
            Self::TooManyTogether => {
                "asks for more GPUs than the cluster has of all types it may use together"
            }
            Self::NoCopy => "has no copy that fits on a server and makes progress there",
            Self::Policy(words) => words,
        }
    }
}

/// A job that can never run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Infeasible {
    /// The job.
    pub job: JobId,
    /// The reason.
    pub reason: InfeasibleReason,
}

impl JobFacts {
    /// Returns the types that the job can use on this cluster. The job allows these types, their memory is enough for
    /// its full batch size, and its rate on them is above 0. Unless gangs may mix types, each of them also has enough
    /// GPUs for the gang.
    pub fn usable_types(
        &self,
        job: JobId,
        cluster: &ClusterSpec,
        rates: &RateTable,
        mixes_types: bool,
    ) -> u64 {
        let gpus_min = if mixes_types { 1 } else { self.gpus(job) };
        let memory = self.memory_bytes(job);
        let mut usable = 0;
        for (index, gpu_type) in cluster.gpu_types().iter().enumerate() {
            let id = GpuTypeId::new(index);
            if self.allowed_types(job) >> index & 1 == 1
                && cluster.gpus_by_type()[index] >= gpus_min
                && gpu_type.memory_bytes >= memory
                && rates.base(self, job, id) > 0.0
            {
                usable |= 1 << index;
            }
        }
        usable
    }

    /// Returns why the job can never run on this cluster, or `None` if it can. `mixes_types` indicates whether the
    /// policy builds gangs that span several GPU types.
    pub fn infeasible(
        &self,
        job: JobId,
        cluster: &ClusterSpec,
        rates: &RateTable,
        mixes_types: bool,
    ) -> Option<InfeasibleReason> {
        let exists = |index: &usize| cluster.gpus_by_type()[*index] > 0;
        let allowed: Vec<usize> = (0..cluster.gpu_types().len())
            .filter(exists)
            .filter(|index| self.allowed_types(job) >> index & 1 == 1)
            .collect();
        if allowed.is_empty() {
            return Some(InfeasibleReason::NoType);
        }
        let memory = self.memory_bytes(job);
        let roomy: Vec<usize> = allowed
            .into_iter()
            .filter(|&index| cluster.gpu_types()[index].memory_bytes >= memory)
            .collect();
        if roomy.is_empty() {
            return Some(InfeasibleReason::Memory);
        }
        let fast: Vec<usize> = roomy
            .into_iter()
            .filter(|&index| rates.base(self, job, GpuTypeId::new(index)) > 0.0)
            .collect();
        if fast.is_empty() {
            return Some(InfeasibleReason::NoRate);
        }
        let gpus = fast.iter().map(|&index| cluster.gpus_by_type()[index]);
        let (most, reason) = if mixes_types {
            (gpus.sum(), InfeasibleReason::TooManyTogether)
        } else {
            (gpus.max().unwrap_or(0), InfeasibleReason::TooManyGpus)
        };
        (self.gpus(job) > most).then_some(reason)
    }
}
