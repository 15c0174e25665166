//! Link presets and the built-in table of models. The numbers come from public simulators or are our own choices; the
//! documentation states the origin of each number.

use super::alphabeta::{Algorithms, Link, Links, Traffic};

const GIB: f64 = (1_u64 << 30) as f64;

/// Names of the link presets.
pub const PRESETS: [&str; 4] = ["dally-2024", "hgx-h100", "pcie-25g", "ideal"];

/// A preset: the links, and the bandwidth from a rack to the spine before division by the oversubscription.
#[derive(Clone, Copy, Debug)]
pub(super) struct Preset {
    pub(super) links: Links,
    /// Bandwidth of the uplink in bytes/s for each server in the rack, and the default of `oversubscription`.
    pub(super) uplink: Option<(f64, f64)>,
}

fn link(algorithms: Algorithms, alpha_s: f64, port_bw: f64) -> Link {
    Link {
        algorithms,
        alpha_s,
        port_bw,
    }
}

fn links(tiers: [Link; 3], server_bw: f64) -> Links {
    Links {
        tiers,
        server_bw,
        uplink_bw: f64::INFINITY,
        pipeline: true,
    }
}

/// Returns the links of a preset; `None` for `ideal` and for unknown names.
pub(super) fn preset(name: &str) -> Option<Preset> {
    use Algorithms as A;
    let (tiers, server_bw, uplink) = match name {
        "dally-2024" => (
            [
                link(A::DIRECT, 0.5e-6, 600.0 * GIB),
                link(A::RING, 5e-6, 200.0 * GIB),
                link(A::RING, 100e-6, 400.0 * GIB),
            ],
            f64::INFINITY,
            None,
        ),
        "hgx-h100" => (
            [
                link(A::DIRECT, 1.872e-6, 400.0 * GIB),
                link(A::RING, 1e-6, 50.0 * GIB),
                link(A::RING, 2e-6, 50.0 * GIB),
            ],
            f64::INFINITY,
            Some((400.0 * GIB, 2.0)),
        ),
        "pcie-25g" => (
            [
                link(A::RING, 3e-6, 12e9),
                link(A::RING, 15e-6, 3.125e9),
                link(A::RING, 30e-6, 3.125e9),
            ],
            3.125e9,
            Some((3.125e9, 4.0)),
        ),
        _ => return None,
    };
    Some(Preset {
        links: links(tiers, server_bw),
        uplink,
    })
}

/// One row in the table of models: label, C in s, V in bytes, K, o, last bucket in bytes, unscaled C in s.
type Row = (&'static str, f64, f64, u32, f64, Option<f64>, Option<f64>);

#[rustfmt::skip]
const MODELS: [Row; 6] = [
    ("AlexNet", 1032.341e-6, 244e6, 8, 0.641, Some(93e3), Some(60.7e-3)),
    ("MobileNetV3", 52.884e-6, 9.9e6, 52, 0.901, Some(1.7e3), Some(9.9e-3)),
    ("ResNet18", 149.479e-6, 46.7e6, 21, 0.739, Some(37.6e3), Some(147e-3)),
    ("ResNet50", 11646.646e-6, 102e6, 54, 0.548, Some(37.6e3), Some(348e-3)),
    ("VGG11", 3631.739e-6, 531e6, 11, 0.668, Some(7e3), Some(248e-3)),
    ("BERT-large", 1703.395e-6, 562e6, 66, 0.693, None, None),
];

/// Returns the built-in models, with either the compute times of the published simulator or unscaled times.
pub(super) fn models(is_scaled: bool) -> Vec<(String, Traffic)> {
    let model = |&(label, scaled_s, grad_bytes, buckets, overlap, last_bytes, unscaled_s): &Row| {
        let traffic = Traffic {
            compute_s: if is_scaled {
                Some(scaled_s)
            } else {
                unscaled_s
            },
            grad_bytes,
            buckets,
            overlap,
            last_bytes: last_bytes.unwrap_or(grad_bytes / f64::from(buckets)),
            layers: Vec::new(),
            skew: None,
        };
        (label.to_owned(), traffic)
    };
    MODELS.iter().map(model).collect()
}

/// Returns the labels of the built-in models.
pub fn network_models() -> Vec<String> {
    MODELS.iter().map(|row| row.0.to_owned()).collect()
}
