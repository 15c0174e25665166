//! The immutable description of a cluster: GPU types, servers and racks.

use crate::{GpuSet, GpuTypeId, ModelError, RackId, ServerId};

/// A GPU type.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuType {
    /// Name of the type, unique in the cluster.
    pub name: String,
    /// Memory of one GPU; `u64::MAX` if unknown.
    pub memory_bytes: u64,
    /// Price of one GPU per hour; 0 if unknown.
    pub price_per_hour: f64,
    /// Relative speed, needed for traces that record only durations; the reference type has speed 1.
    pub speed: f64,
}

/// A server: GPUs of one type in one rack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Type of all GPUs on the server.
    pub gpu_type: GpuTypeId,
    /// Number of GPUs, 1 to 64.
    pub gpus: u32,
    /// Rack of the server.
    pub rack: RackId,
}

/// Distance between the GPUs of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Tier {
    /// All GPUs are on one server.
    Server = 0,
    /// The GPUs are on several servers of one rack.
    Rack = 1,
    /// The GPUs are in several racks.
    Network = 2,
}

/// A validated cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterSpec {
    gpu_types: Vec<GpuType>,
    servers: Vec<Server>,
    racks: u32,
    gpus_by_type: Vec<u32>,
    gpus_total: u32,
}

impl ClusterSpec {
    /// Checks and stores a description.
    ///
    /// # Errors
    /// Returns [`ModelError::Cluster`] unless there are 1 to 64 types and 1 to 2^24 servers, and each speed is positive
    /// and finite. Returns [`ModelError::Server`] for an unknown type, a GPU count outside 1..=64 or a rack index of
    /// 2^24 or more.
    ///
    /// # Examples
    /// ```
    /// use gangline_model::{ClusterSpec, GpuType, GpuTypeId, RackId, Server};
    /// let v100 = GpuType { name: "V100".into(), memory_bytes: 16 << 30, price_per_hour: 0.0, speed: 1.0 };
    /// let server = Server { gpu_type: GpuTypeId(0), gpus: 4, rack: RackId(0) };
    /// let cluster = ClusterSpec::new(vec![v100], vec![server; 3]).unwrap();
    /// assert_eq!(cluster.gpus_total(), 12);
    /// ```
    pub fn new(gpu_types: Vec<GpuType>, servers: Vec<Server>) -> Result<Self, ModelError> {
        let bad = |what: String| Err(ModelError::Cluster { what });
        if gpu_types.is_empty() || gpu_types.len() > 64 {
            return bad(format!("{} GPU types, expected 1 to 64", gpu_types.len()));
        }
        if servers.is_empty() || servers.len() > 1 << 24 {
            return bad(format!("{} servers, expected 1 to 2^24", servers.len()));
        }
        for gpu_type in &gpu_types {
            if !(gpu_type.speed.is_finite() && gpu_type.speed > 0.0) {
                return bad(format!(
                    "GPU type {}: speed must be positive",
                    gpu_type.name
                ));
            }
        }
        let mut gpus_by_type = vec![0_u32; gpu_types.len()];
        let mut racks = 0;
        for (index, server) in servers.iter().enumerate() {
            let fail = |what: &str| {
                Err(ModelError::Server {
                    server: index as u32,
                    what: what.to_owned(),
                })
            };
            if server.gpu_type.index() >= gpu_types.len() {
                return fail("unknown GPU type");
            }
            if server.gpus == 0 || server.gpus > 64 {
                return fail("the number of GPUs must be from 1 to 64");
            }
            if server.rack.index() >= 1 << 24 {
                return fail("the rack index must be below 2^24");
            }
            gpus_by_type[server.gpu_type.index()] += server.gpus;
            racks = racks.max(server.rack.0 + 1);
        }
        let gpus_total = gpus_by_type.iter().sum();
        Ok(Self {
            gpu_types,
            servers,
            racks,
            gpus_by_type,
            gpus_total,
        })
    }

    /// Returns the GPU types, in the order of the description.
    pub fn gpu_types(&self) -> &[GpuType] {
        &self.gpu_types
    }

    /// Returns the servers, in the order of the description.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Returns the description of one server.
    #[inline]
    pub fn server(&self, server: ServerId) -> Server {
        self.servers[server.index()]
    }

    /// Returns the number of racks, which is the largest rack index plus one.
    pub fn racks(&self) -> u32 {
        self.racks
    }

    /// Returns the number of GPUs in the cluster.
    pub fn gpus_total(&self) -> u32 {
        self.gpus_total
    }

    /// Returns the number of GPUs of each type.
    pub fn gpus_by_type(&self) -> &[u32] {
        &self.gpus_by_type
    }

    /// Returns a mask of all slots of a server.
    #[inline]
    pub fn full_mask(&self, server: ServerId) -> u64 {
        u64::MAX >> (64 - self.servers[server.index()].gpus)
    }

    /// Returns the tier of a set of GPUs; `Server` for the empty set.
    pub fn tier(&self, gpus: &GpuSet) -> Tier {
        let parts = gpus.by_server();
        let Some((first, rest)) = parts.split_first() else {
            return Tier::Server;
        };
        if rest.is_empty() {
            return Tier::Server;
        }
        let rack = self.server(first.server).rack;
        if rest
            .iter()
            .all(|part| self.server(part.server).rack == rack)
        {
            Tier::Rack
        } else {
            Tier::Network
        }
    }
}
