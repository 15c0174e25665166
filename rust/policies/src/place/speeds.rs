//! The network model for the placement rules that use it. The model determines how distance slows a gang down, and
//! therefore which places the gang waits for.

use gangline_engine::{ClusterView, SharedFacts};
use gangline_model::{ClusterSpec, GpuSet, GpuTypeId, JobId, LocalityModel, Shape, Tier};
use std::sync::Arc;

/// Bit masks of the GPU types on which a gang waits for a narrow place; bit `t` stands for type `t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Skew {
    /// Types on which the gang waits for the fewest possible servers.
    pub server: u64,
    /// Types on which the gang waits for a place in one rack.
    pub rack: u64,
}

impl Skew {
    /// The gang accepts any place.
    pub const LOW: Self = Self { server: 0, rack: 0 };
    /// The gang waits for the fewest possible servers, on every type.
    pub const HIGH: Self = Self {
        server: u64::MAX,
        rack: 0,
    };

    /// Returns a number that identifies the place that the gang waits for on a type. Gangs with equal numbers wait for
    /// the same kind of place.
    pub fn kind_on(self, gpu_type: GpuTypeId) -> u8 {
        self.on(gpu_type) as u8
    }

    pub(super) fn on(self, gpu_type: GpuTypeId) -> Waits {
        if self.server >> gpu_type.index() & 1 == 1 {
            Waits::Server
        } else if self.rack >> gpu_type.index() & 1 == 1 {
            Waits::Rack
        } else {
            Waits::Nowhere
        }
    }
}

/// The place that a gang under rule `skew` waits for on one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    Server,
    Rack,
    Nowhere,
}

/// The network model of a run, and the data that its queries need.
#[derive(Clone, Debug)]
pub(super) struct Speeds {
    cluster: Arc<ClusterSpec>,
    jobs: SharedFacts,
    network: Arc<dyn LocalityModel>,
}

impl Speeds {
    /// Returns the network model of a run, or `None` if distance costs nothing.
    pub(super) fn of(view: &ClusterView<'_>) -> Option<Self> {
        let (cluster, jobs, network) = view.shared();
        network.map(|network| Self {
            cluster,
            jobs,
            network,
        })
    }

    /// Returns the locality factor of the gang on these GPUs.
    pub(super) fn locality(&self, job: JobId, gpus: &GpuSet) -> f64 {
        let gpu_type = self.cluster.server(gpus.by_server()[0].server).gpu_type;
        let gang = self.jobs.gang(job, gpu_type);
        self.network.locality(&gang, Shape::of(&self.cluster, gpus))
    }

    /// For each type, returns the place that a gang waits for if it accepts only locality factors of at least
    /// `accepts`. If even a single rack is too slow, the gang waits for the fewest servers. If only several racks are
    /// too slow, it waits for one rack.
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
