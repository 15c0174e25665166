//! The shape of a placement; a network model reads nothing else.

use crate::{ClusterSpec, GpuSet, Tier};
use smallvec::SmallVec;

/// The way in which a gang is spread over servers and racks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Maximum number of GPUs that the gang has on one server.
    pub server_gpus_max: u32,
    /// Minimum number of GPUs that the gang has on one of its servers.
    pub server_gpus_min: u32,
    /// Maximum number of servers that the gang has in one rack.
    pub rack_servers_max: u32,
    /// Minimum number of servers that the gang has in one of its racks.
    pub rack_servers_min: u32,
    /// Number of racks.
    pub racks: u32,
}

impl Shape {
    /// Returns the shape of a gang on one server.
    #[inline]
    pub fn one_server(gpus: u32) -> Self {
        Self {
            server_gpus_max: gpus,
            server_gpus_min: gpus,
            rack_servers_max: 1,
            rack_servers_min: 1,
            racks: 1,
        }
    }

    /// Returns the shape of a set of GPUs.
    pub fn of(cluster: &ClusterSpec, gpus: &GpuSet) -> Self {
        let parts = gpus.by_server();
        if let [only] = parts {
            return Self::one_server(only.mask.count_ones());
        }
        let counts = || parts.iter().map(|part| part.mask.count_ones());
        let mut racks: SmallVec<[u32; 16]> = parts
            .iter()
            .map(|part| cluster.server(part.server).rack.0)
            .collect();
        racks.sort_unstable();
        let servers = || racks.chunk_by(|a, b| a == b).map(|rack| rack.len() as u32);
        Self {
            server_gpus_max: counts().max().unwrap_or(0),
            server_gpus_min: counts().min().unwrap_or(0),
            rack_servers_max: servers().max().unwrap_or(0),
            rack_servers_min: servers().min().unwrap_or(0),
            racks: servers().count() as u32,
        }
    }

    /// Returns the tier of the gang.
    #[inline]
    pub fn tier(self) -> Tier {
        if self.racks > 1 {
            Tier::Network
        } else if self.rack_servers_max > 1 {
            Tier::Rack
        } else {
            Tier::Server
        }
    }
}

/// The sizes, in GPUs, of the largest server and the largest rack of one GPU type. The sizes come from the description
/// of the cluster, so failures do not change the meaning of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Number of GPUs on the largest server; at least 1.
    pub server: u32,
    /// Largest number of GPUs of the type in one rack; at least 1.
    pub rack: u32,
}

impl Extent {
    /// Returns the extent of each GPU type.
    pub fn by_type(cluster: &ClusterSpec) -> Vec<Self> {
        let types = cluster.gpu_types().len();
        let mut racks = vec![0_u32; cluster.racks() as usize * types];
        let mut extents = vec![Self { server: 1, rack: 1 }; types];
        for server in cluster.servers() {
            let kind = server.gpu_type.index();
            let rack = &mut racks[server.rack.index() * types + kind];
            *rack += server.gpus;
            extents[kind].server = extents[kind].server.max(server.gpus);
            extents[kind].rack = extents[kind].rack.max(*rack);
        }
        extents
    }

    /// Returns the maximum number of servers, of any type, in one rack.
    pub fn servers_per_rack(cluster: &ClusterSpec) -> u32 {
        let mut counts = vec![0_u32; cluster.racks() as usize];
        for server in cluster.servers() {
            counts[server.rack.index()] += 1;
        }
        counts.into_iter().max().unwrap_or(1)
    }

    /// Returns the shape that represents a tier if no placement is known.
    ///
    /// # Examples
    /// ```
    /// use gangline_model::{Extent, Tier};
    /// let extent = Extent { server: 4, rack: 8 };
    /// let shape = extent.canonical(9, Tier::Network);
    /// assert_eq!((shape.server_gpus_max, shape.server_gpus_min), (4, 2));
    /// assert_eq!((shape.rack_servers_max, shape.rack_servers_min, shape.racks), (2, 1, 2));
    /// ```
    pub fn canonical(self, gpus: u32, tier: Tier) -> Shape {
        match tier {
            Tier::Server => Shape::one_server(gpus),
            Tier::Rack => {
                let servers = gpus.div_ceil(self.server).max(2);
                Shape {
                    server_gpus_max: gpus.div_ceil(servers),
                    server_gpus_min: gpus / servers,
                    rack_servers_max: servers,
                    rack_servers_min: servers,
                    racks: 1,
                }
            }
            Tier::Network => self.over_racks(gpus),
        }
    }

    fn over_racks(self, gpus: u32) -> Shape {
        let racks = gpus.div_ceil(self.rack).max(2);
        let (most, least) = (gpus.div_ceil(racks), gpus / racks);
        let servers = |share: u32| share.div_ceil(self.server).max(1);
        let (wide, narrow) = (servers(most), servers(least));
        Shape {
            server_gpus_max: most.div_ceil(wide).max(least.div_ceil(narrow)),
            server_gpus_min: (most / wide).min(least / narrow),
            rack_servers_max: wide.max(narrow),
            rack_servers_min: wide.min(narrow),
            racks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_shapes_match_the_documentation() {
        let extent = Extent { server: 4, rack: 8 };
        let flat = |shape: Shape| {
            (
                shape.server_gpus_max,
                shape.server_gpus_min,
                shape.rack_servers_max,
                shape.rack_servers_min,
                shape.racks,
            )
        };
        assert_eq!(flat(extent.canonical(5, Tier::Network)), (3, 2, 1, 1, 2));
        assert_eq!(flat(extent.canonical(9, Tier::Network)), (4, 2, 2, 1, 2));
        assert_eq!(flat(extent.canonical(4, Tier::Rack)), (2, 2, 2, 2, 1));
        assert_eq!(flat(extent.canonical(7, Tier::Rack)), (4, 3, 2, 2, 1));
        assert_eq!(flat(extent.canonical(17, Tier::Network)), (3, 2, 2, 2, 3));
        assert_eq!(extent.canonical(3, Tier::Server), Shape::one_server(3));
    }
}
