//! The alpha-beta model: hierarchical all-reduce in closed form.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | C | `compute_s` | compute time of one iteration |
//! | V, K | `grad_bytes`, `buckets` | bytes that are reduced per iteration, and number of all-reduce calls |
//! | o | `overlap` | share of C that can overlap with communication |
//! | alpha | `alpha_s` | time in seconds of one step of the algorithm |
//! | tau | [`Links::tau`] | time that one bucket takes in one tier |

use super::layers::{self, BucketTimes, Order};
use gangline_model::{Shape, Tier};

/// A set of algorithms for a collective operation; the fastest of them is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Algorithms(u8);

impl Algorithms {
    /// A ring, in 2 (n - 1) steps.
    pub const RING: Self = Self(1);
    /// Recursive halving and doubling, in 2 ceil(log2 n) steps.
    pub const HALVING: Self = Self(2);
    /// Direct exchange between all members, in 2 steps.
    pub const DIRECT: Self = Self(4);
    /// All three algorithms.
    pub const ALL: Self = Self(7);

    /// Returns the set for a name, which is the name of one algorithm or `auto`.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "ring" => Some(Self::RING),
            "halving" => Some(Self::HALVING),
            "direct" => Some(Self::DIRECT),
            "auto" => Some(Self::ALL),
            _ => None,
        }
    }

    /// Returns the union of two sets.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the minimum number of steps that any algorithm in the set needs for `n` >= 2 members.
    fn steps(self, n: u32) -> u32 {
        let has = |one: Self| self.0 & one.0 != 0;
        let ceil_log2 = 32 - (n - 1).leading_zeros();
        let mut least = u32::MAX;
        if has(Self::RING) {
            least = least.min(2 * (n - 1));
        }
        if has(Self::HALVING) {
            least = least.min(2 * ceil_log2);
        }
        if has(Self::DIRECT) {
            least = least.min(2);
        }
        least
    }
}

/// Links of one tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Collective algorithms.
    pub algorithms: Algorithms,
    /// Time in seconds of one step of the algorithm, including all hops.
    pub alpha_s: f64,
    /// Bandwidth of one GPU's port in bytes/s.
    pub port_bw: f64,
}

/// Links of all tiers; a limit that does not exist is infinite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Links {
    /// Links within a server, within a rack, and between racks.
    pub tiers: [Link; 3],
    /// Bandwidth of all NICs of one server in bytes/s.
    pub server_bw: f64,
    /// Bandwidth of a rack's uplink in bytes/s.
    pub uplink_bw: f64,
    /// Whether the tiers work at the same time on different buckets.
    pub pipeline: bool,
}

/// A model's demand on the network.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// Compute time per iteration in seconds; `None` if it is unknown at the chosen scale.
    pub compute_s: Option<f64>,
    /// Number of bytes that are reduced per iteration.
    pub grad_bytes: f64,
    /// Number of all-reduce calls per iteration.
    pub buckets: u32,
    /// Share of the compute time that can overlap with communication.
    pub overlap: f64,
    /// Size of the last bucket in bytes. The communication of this bucket cannot overlap with compute.
    pub last_bytes: f64,
    /// Backward time in seconds and gradient size in bytes for each layer, last layer first; empty means unknown.
    pub layers: Vec<(f64, f64)>,
    /// Size of the largest gradient tensor divided by the size of all gradients.
    pub skew: Option<f64>,
}

impl Traffic {
    /// Default for the share of an iteration that the backward pass takes.
    pub const OVERLAP: f64 = 2.0 / 3.0;
}

impl Links {
    /// Returns the time of an all-reduce among `n` members of a tier; `seconds` is the number of bytes divided by the
    /// bandwidth.
    fn tau(&self, tier: Tier, n: u32, seconds: f64) -> f64 {
        if n <= 1 {
            return 0.0;
        }
        let link = &self.tiers[tier as usize];
        let steps = f64::from(link.algorithms.steps(n));
        let n = f64::from(n);
        steps * link.alpha_s + (2.0 * (n - 1.0) / n) * seconds
    }

    /// Returns the time that one bucket of `bytes` takes in each tier, for a gang of a given shape. In an uneven gang,
    /// the server with the fewest GPUs and the rack with the fewest servers are the bottlenecks, because each of their
    /// ports carries the most traffic.
    pub fn bucket(&self, shape: Shape, bytes: f64) -> BucketTimes {
        let port = |tier: Tier| self.tiers[tier as usize].port_bw;
        let (p, s) = (
            f64::from(shape.server_gpus_min),
            f64::from(shape.rack_servers_min),
        );
        let inside = bytes / port(Tier::Server);
        let rack = (bytes / p / port(Tier::Rack)).max(bytes / self.server_bw);
        let network = (bytes / (p * s) / port(Tier::Network))
            .max(bytes / s / self.server_bw)
            .max(bytes / self.uplink_bw);
        [
            self.tau(Tier::Server, shape.server_gpus_max, inside),
            self.tau(Tier::Rack, shape.rack_servers_max, rack),
            self.tau(Tier::Network, shape.racks, network),
        ]
    }

    /// Returns the communication time per iteration, in seconds, that does not overlap with compute.
    pub fn exposed(&self, shape: Shape, model: &Traffic, compute_s: f64) -> f64 {
        let bucket = self.bucket(shape, model.grad_bytes / f64::from(model.buckets));
        let last = self.bucket(shape, model.last_bytes);
        let (b, l) = (total(bucket), total(last));
        let more = f64::from(model.buckets - 1);
        let all = if self.pipeline {
            b + more * bucket[0].max(bucket[1]).max(bucket[2])
        } else {
            f64::from(model.buckets) * b
        };
        l.max(all - model.overlap * compute_s)
    }

    /// Returns the time in seconds, per iteration, during which a gang across several racks sends data through
    /// uplinks. If communication is computed layer by layer, this is the sum over the layers.
    pub fn sending(&self, shape: Shape, model: &Traffic, is_by_layer: bool) -> f64 {
        let network = |bytes: f64| self.bucket(shape, bytes)[Tier::Network as usize];
        if is_by_layer && !model.layers.is_empty() {
            let layers = model.layers.iter();
            return layers.fold(0.0, |sum, layer| sum + network(layer.1));
        }
        let buckets = f64::from(model.buckets);
        buckets * network(model.grad_bytes / buckets)
    }

    /// Returns the same time as [`Self::exposed`], but computed layer by layer. A model without layers is treated as if
    /// it had one layer per bucket, all of equal size.
    pub fn exposed_by_layer(
        &self,
        shape: Shape,
        model: &Traffic,
        compute_s: f64,
        order: Order,
    ) -> f64 {
        let equal;
        let layers = if model.layers.is_empty() {
            let count = f64::from(model.buckets);
            let layer = (model.overlap * compute_s / count, model.grad_bytes / count);
            equal = vec![layer; model.buckets as usize];
            &equal
        } else {
            &model.layers
        };
        let mut ready = 0.0;
        let jobs: Vec<(f64, BucketTimes)> = layers
            .iter()
            .map(|&(compute, bytes)| {
                ready += compute;
                (ready, self.bucket(shape, bytes))
            })
            .collect();
        (layers::last_end(&jobs, order) - ready).max(0.0)
    }
}

fn total(times: BucketTimes) -> f64 {
    times[0] + times[1] + times[2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_those_of_the_algorithms() {
        for n in 2..40_u32 {
            assert_eq!(Algorithms::RING.steps(n), 2 * (n - 1));
            let log = f64::from(n).log2().ceil() as u32;
            assert_eq!(Algorithms::HALVING.steps(n), 2 * log);
            assert_eq!(Algorithms::DIRECT.steps(n), 2);
            let both = Algorithms::RING.or(Algorithms::HALVING);
            assert_eq!(both.steps(n), 2 * log.min(n - 1));
        }
    }
}
