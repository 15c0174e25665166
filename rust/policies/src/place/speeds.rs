//! What the network says of a gang, for the rules that ask it.

use super::Skew;
use gangline_engine::{ClusterView, SharedFacts};
use gangline_model::{ClusterSpec, GpuSet, GpuTypeId, JobId, LocalityModel, Shape, Tier};
use std::sync::Arc;

/// The network of a run and what it has to be asked with.
#[derive(Clone, Debug)]
pub(super) struct Speeds {
    cluster: Arc<ClusterSpec>,
    jobs: SharedFacts,
    network: Arc<dyn LocalityModel>,
}

impl Speeds {
    /// `None` where distance costs nothing.
    pub(super) fn of(view: &ClusterView<'_>) -> Option<Self> {
        let (cluster, jobs, network) = view.shared();
        network.map(|network| Self {
            cluster,
            jobs,
            network,
        })
    }

    /// Share of its base rate that the gang keeps on these GPUs.
    pub(super) fn locality(&self, job: JobId, gpus: &GpuSet) -> f64 {
        let gpu_type = self.cluster.server(gpus.by_server()[0].server).gpu_type;
        let gang = self.jobs.gang(job, gpu_type);
        self.network.locality(&gang, Shape::of(&self.cluster, gpus))
    }

    /// Where a gang waits that accepts no less than `accepts` of its speed: for the narrowest level
    /// whose loss it cannot accept.
    pub(super) fn skew(&self, job: JobId, accepts: f64) -> Skew {
        let mut skew = Skew::LOW;
        for index in 0..self.cluster.gpu_types().len() {
            let gang = self.jobs.gang(job, GpuTypeId::new(index));
            if self.network.at_tier(&gang, Tier::Rack) < accepts {
                skew.server |= 1 << index;
            } else if self.network.at_tier(&gang, Tier::Network) < accepts {
                skew.rack |= 1 << index;
            }
        }
        skew
    }
}
