//! The keys of a network description, and their checks.

use super::alphabeta::{Algorithms, Link, Links, Traffic};
use super::layers::Order;
use super::presets::{PRESETS, Preset, models, preset};
use gangline_model::ModelError;

/// The network model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NetworkKind {
    /// Distance costs nothing.
    #[default]
    Free,
    /// A closed form for hierarchical all-reduce.
    AlphaBeta,
    /// Measured pairs of throughputs.
    Table,
    /// Three factors per model.
    Levels,
}

/// Level of detail at which the model distinguishes placements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Detail {
    /// Only the tier matters: the canonical shape of the tier represents all other shapes.
    Tier,
    /// The shape matters.
    #[default]
    Shape,
    /// The shape matters, and communication is computed layer by layer.
    Layers,
}

/// Rule by which jobs share the uplinks of racks, if they share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Contention {
    /// Each job sends as if it were alone.
    #[default]
    Off,
    /// Jobs get max-min fair shares, computed from their average rates.
    MaxMin,
    /// Jobs get max-min fair shares, computed from their rates while they send data.
    Peak,
}

impl Contention {
    /// Returns the variant with a given name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "off" => Some(Self::Off),
            "maxmin" => Some(Self::MaxMin),
            "peak" => Some(Self::Peak),
            _ => None,
        }
    }

    /// Returns the name that cluster files use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::MaxMin => "maxmin",
            Self::Peak => "peak",
        }
    }
}

/// Links of a tier as a cluster file describes them; missing values come from the preset.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct LinkChange {
    /// Collective algorithms.
    pub algorithms: Option<Algorithms>,
    /// Time in seconds of one step.
    pub alpha_s: Option<f64>,
    /// Bandwidth of a port in bytes/s.
    pub port_bw: Option<f64>,
    /// Bandwidth of a server's NICs in bytes/s; used only for the tier `rack`.
    pub server_bw: Option<f64>,
    /// Bandwidth of a rack's uplink in bytes/s; used only for the tier `network`.
    pub uplink_bw: Option<f64>,
}

impl LinkChange {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A model as a cluster file describes it.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ModelGiven {
    /// Compute time per iteration in seconds.
    pub compute_s: f64,
    /// Number of bytes that are reduced per iteration.
    pub grad_bytes: f64,
    /// Number of all-reduce calls per iteration.
    pub buckets: u32,
    /// Share of the compute time that can overlap with communication.
    pub overlap: Option<f64>,
    /// Size of the last bucket in bytes.
    pub last_bytes: Option<f64>,
    /// Backward time in seconds and gradient size in bytes for each layer, last layer first.
    pub layers: Vec<(f64, f64)>,
    /// Size of the largest gradient tensor divided by the size of all gradients.
    pub skew: Option<f64>,
}

/// The measured throughputs of a gang: when it is consolidated and, if measured, when it is spread over more servers.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Index of the GPU type.
    pub gpu_type: u32,
    /// Model label.
    pub model: String,
    /// Number of samples per GPU; 0 means any number.
    pub batch_size: u32,
    /// Gang size.
    pub gpus: u32,
    /// Rate in iterations/s on as few servers as possible.
    pub consolidated: f64,
    /// Rate in iterations/s on more servers.
    pub spread: Option<f64>,
}

/// Rule for gangs for which a table has no pair of throughputs.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum OnMissing {
    /// The run is rejected.
    #[default]
    Error,
    /// Distance costs the gang nothing.
    One,
    /// The alpha-beta model with the named preset applies to the gang.
    Preset(String),
}

impl OnMissing {
    /// Returns the rule with a given name; any other string is taken as the name of a preset.
    pub fn parse(name: &str) -> Self {
        match name {
            "error" => Self::Error,
            "one" => Self::One,
            other => Self::Preset(other.to_owned()),
        }
    }
}

/// Description of a network.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct NetworkConfig {
    /// The network model; if absent, the other keys determine it.
    pub kind: Option<NetworkKind>,
    /// Name of a link preset.
    pub preset: Option<String>,
    /// Level of detail of a placement.
    pub detail: Detail,
    /// Order in which a channel serves buckets, if communication is computed layer by layer.
    pub order: Order,
    /// Whether tiers work one after the other, instead of at the same time on different buckets.
    pub is_serial: bool,
    /// Whether the built-in models use their unscaled compute times.
    pub is_unscaled: bool,
    /// Divisor for the capacity of the uplinks.
    pub oversubscription: Option<f64>,
    /// Rule by which jobs share uplinks.
    pub contention: Contention,
    /// Share of an uplink's capacity that other traffic leaves free; if absent, 1.
    pub background: Option<f64>,
    /// Label whose model is used for jobs with an unknown label.
    pub default_model: Option<String>,
    /// Changes to the links of the tiers `server`, `rack` and `network`.
    pub tiers: [LinkChange; 3],
    /// Models by label; they extend or replace the built-in models.
    pub models: Vec<(String, ModelGiven)>,
    /// Factors by label; `*` stands for all other labels.
    pub levels: Vec<(String, [f64; 3])>,
    /// Measured throughputs.
    pub measured: Vec<Measured>,
    /// Rule for gangs for which `measured` has no pair of throughputs.
    pub on_missing: OnMissing,
    /// Additional factor for a measured pair if the gang spans racks; if absent, 1.
    pub network_extra: Option<f64>,
    /// Whether factors from a table are adjusted so that a larger gang never loses less speed than a smaller gang.
    pub is_monotone: bool,
}

const TIERS: [&str; 3] = ["server", "rack", "network"];

/// Creates the error for a key that has an invalid value.
pub(super) fn bad(key: impl Into<String>, value: &impl ToString, expected: &str) -> ModelError {
    ModelError::Network {
        key: key.into(),
        value: value.to_string(),
        expected: expected.to_owned(),
    }
}

fn within(key: &str, value: f64, (least, most): (f64, f64), what: &str) -> Result<f64, ModelError> {
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(bad(key, &value, what))
    }
}

impl NetworkConfig {
    /// Returns the network model that the keys select.
    ///
    /// # Errors
    /// Returns [`ModelError::Network`] for keys that exclude each other.
    pub fn resolved_kind(&self) -> Result<NetworkKind, ModelError> {
        let has_links = self.preset.is_some() || self.tiers.iter().any(|tier| !tier.is_empty());
        let implied = if has_links {
            NetworkKind::AlphaBeta
        } else if self.levels.is_empty() {
            NetworkKind::Free
        } else {
            NetworkKind::Levels
        };
        let kind = self.kind.unwrap_or(implied);
        if has_links && kind != NetworkKind::AlphaBeta {
            return Err(bad(
                "kind",
                &kind.name(),
                "alphabeta, because links are given",
            ));
        }
        if (kind == NetworkKind::Levels) == self.levels.is_empty() {
            let expected = "`levels` if and only if kind = levels";
            return Err(bad("levels", &kind.name(), expected));
        }
        if self.preset.as_deref() == Some("ideal") {
            if self.tiers.iter().any(|tier| !tier.is_empty()) || self.oversubscription.is_some() {
                return Err(bad(
                    "preset",
                    &"ideal",
                    "no links and no oversubscription, because this preset has no links",
                ));
            }
            self.check_contention(NetworkKind::Free)?;
            return Ok(NetworkKind::Free);
        }
        self.check_contention(kind)?;
        Ok(kind)
    }

    /// Returns the links of the alpha-beta model.
    ///
    /// # Errors
    /// Returns [`ModelError::Network`] for an unknown preset, or a missing or invalid number.
    pub(super) fn links(&self, servers_per_rack: u32) -> Result<Links, ModelError> {
        let base = match &self.preset {
            None => None,
            Some(name) => Some(preset(name).ok_or_else(|| {
                let expected = format!("one of {}", PRESETS.join(", "));
                bad("preset", name, &expected)
            })?),
        };
        let mut tiers = [None; 3];
        for (at, change) in self.tiers.iter().enumerate() {
            let link = base.map(|preset| preset.links.tiers[at]);
            tiers[at] = Some(changed(TIERS[at], change, link)?);
        }
        let [server, rack, network] = tiers.map(|tier| tier.expect("just filled"));
        let limit = |key: &str, given: Option<f64>, base: f64| match given {
            None => Ok(base),
            Some(value) => within(key, value, BANDWIDTHS, "bytes/s from 1e-3 to 1e18"),
        };
        let server_bw = base.map_or(f64::INFINITY, |preset| preset.links.server_bw);
        let uplink = self.uplink(base.as_ref(), servers_per_rack)?;
        Ok(Links {
            tiers: [server, rack, network],
            server_bw: limit("rack.server_bw", self.tiers[1].server_bw, server_bw)?,
            uplink_bw: limit("network.uplink_bw", self.tiers[2].uplink_bw, uplink)?,
            pipeline: !self.is_serial,
        })
    }

    fn uplink(&self, base: Option<&Preset>, servers_per_rack: u32) -> Result<f64, ModelError> {
        let preset = base.and_then(|preset| preset.uplink);
        if let Some(ratio) = self.oversubscription {
            within("oversubscription", ratio, (1.0, 1e9), "a number >= 1")?;
            if preset.is_none() || self.tiers[2].uplink_bw.is_some() {
                let expected = "a preset with an uplink, and no `uplink_bw`";
                return Err(bad("oversubscription", &ratio, expected));
            }
        }
        Ok(preset.map_or(f64::INFINITY, |(per_server, divisor)| {
            f64::from(servers_per_rack) * per_server / self.oversubscription.unwrap_or(divisor)
        }))
    }

    /// Returns the bandwidth of every uplink in bytes/s, if jobs share uplinks.
    ///
    /// # Errors
    /// Returns [`ModelError::Network`] for uplinks without a limit, or for a share outside (0, 1].
    pub(super) fn shared_bw(&self, links: &Links) -> Result<Option<f64>, ModelError> {
        if self.contention == Contention::Off {
            return Ok(None);
        }
        if links.uplink_bw.is_infinite() {
            let expected =
                "off, or uplinks with a limit: `network.uplink_bw`, or a preset that has one";
            return Err(bad("contention", &self.contention.name(), expected));
        }
        let part = self.background.unwrap_or(1.0);
        within(
            "background",
            part,
            (1e-6, 1.0),
            "the share of an uplink, from 1e-6 to 1",
        )?;
        Ok(Some(links.uplink_bw * part))
    }

    /// Rejects shared uplinks if the network model has no uplinks.
    fn check_contention(&self, kind: NetworkKind) -> Result<(), ModelError> {
        if self.contention == Contention::Off {
            return match self.background {
                None => Ok(()),
                Some(part) => Err(bad("background", &part, "a `contention` other than off")),
            };
        }
        if kind == NetworkKind::AlphaBeta {
            return Ok(());
        }
        let expected = format!("off, because kind = {} has no links to share", kind.name());
        Err(bad("contention", &self.contention.name(), &expected))
    }

    /// Returns the table of models: first the built-in models, then the user's models.
    ///
    /// # Errors
    /// Returns [`ModelError::Network`] for an invalid number.
    pub(super) fn traffic(&self) -> Result<Vec<(String, Traffic)>, ModelError> {
        let mut all = models(!self.is_unscaled);
        for (label, given) in &self.models {
            let traffic = given.checked(label)?;
            match all.iter_mut().find(|(known, _)| known == label) {
                Some(known) => known.1 = traffic,
                None => all.push((label.clone(), traffic)),
            }
        }
        Ok(all)
    }

    /// Checks the factors of kind `levels`.
    ///
    /// # Errors
    /// Returns [`ModelError::Network`] for a factor that is outside (0, 1] or rises with distance.
    pub(super) fn check_levels(&self) -> Result<(), ModelError> {
        for (label, row) in &self.levels {
            let mut before = 1.0;
            for (tier, &value) in row.iter().enumerate() {
                if !(value > 0.0 && value <= before) {
                    let key = format!("levels.{label}[{tier}]");
                    let expected = "factors in (0, 1] that do not rise with distance";
                    return Err(bad(key, &value, expected));
                }
                before = value;
            }
        }
        Ok(())
    }
}

const BANDWIDTHS: (f64, f64) = (1e-3, 1e18);

impl Detail {
    /// Returns the level of detail with a given name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "tier" => Some(Self::Tier),
            "shape" => Some(Self::Shape),
            "layers" => Some(Self::Layers),
            _ => None,
        }
    }
}

impl NetworkKind {
    /// Returns the variant with a given name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "none" => Some(Self::Free),
            "alphabeta" => Some(Self::AlphaBeta),
            "table" => Some(Self::Table),
            "levels" => Some(Self::Levels),
            _ => None,
        }
    }

    /// Returns the name that cluster files use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Free => "none",
            Self::AlphaBeta => "alphabeta",
            Self::Table => "table",
            Self::Levels => "levels",
        }
    }
}

fn changed(tier: &str, change: &LinkChange, base: Option<Link>) -> Result<Link, ModelError> {
    let lacks = |field: &str| {
        let expected = "this key, or a `preset` that includes it";
        bad(format!("{tier}.{field}"), &"nothing", expected)
    };
    let alpha = change.alpha_s.or(base.map(|link| link.alpha_s));
    let port = change.port_bw.or(base.map(|link| link.port_bw));
    let algorithms = change.algorithms.or(base.map(|link| link.algorithms));
    let alpha_key = format!("{tier}.alpha_s");
    let port_key = format!("{tier}.port_bw");
    for (field, given, home) in [
        ("server_bw", change.server_bw, "rack"),
        ("uplink_bw", change.uplink_bw, "network"),
    ] {
        if let Some(value) = given.filter(|_| tier != home) {
            let expected = format!("this key in tier {home} only");
            return Err(bad(format!("{tier}.{field}"), &value, &expected));
        }
    }
    Ok(Link {
        algorithms: algorithms.ok_or_else(|| lacks("algo"))?,
        alpha_s: within(
            &alpha_key,
            alpha.ok_or_else(|| lacks("alpha_s"))?,
            (0.0, 1e6),
            "seconds from 0 to 1e6",
        )?,
        port_bw: within(
            &port_key,
            port.ok_or_else(|| lacks("port_bw"))?,
            BANDWIDTHS,
            "bytes/s from 1e-3 to 1e18",
        )?,
    })
}

impl ModelGiven {
    fn checked(&self, label: &str) -> Result<Traffic, ModelError> {
        let check = |field: &str, value: f64, range: (f64, f64), what: &str| {
            within(&format!("models.{label}.{field}"), value, range, what)
        };
        let bytes = (0.0, 1e18);
        check(
            "compute_s",
            self.compute_s,
            (1e-12, 1e9),
            "seconds from 1e-12 to 1e9",
        )?;
        check("grad_bytes", self.grad_bytes, bytes, "bytes from 0 to 1e18")?;
        let buckets = f64::from(self.buckets);
        check("buckets", buckets, (1.0, 1e6), "a number from 1 to 1e6")?;
        let overlap = self.overlap.unwrap_or(Traffic::OVERLAP);
        check("overlap", overlap, (0.0, 1.0), "a share from 0 to 1")?;
        let last = self.last_bytes.unwrap_or(self.grad_bytes / buckets);
        check("last_bytes", last, bytes, "bytes from 0 to 1e18")?;
        if let Some(skew) = self.skew {
            check("skew", skew, (0.0, 1.0), "a share from 0 to 1")?;
        }
        let (mut seconds, mut total) = (0.0, 0.0);
        for &(compute, gradients) in &self.layers {
            check(
                "layers",
                compute,
                (0.0, 1e9),
                "pairs of seconds and bytes, >= 0",
            )?;
            check(
                "layers",
                gradients,
                bytes,
                "pairs of seconds and bytes, >= 0",
            )?;
            seconds += compute;
            total += gradients;
        }
        if !self.layers.is_empty() {
            let slack = 1.0 + 1e-6;
            check(
                "layers",
                seconds,
                (0.0, self.compute_s * slack),
                "no more than compute_s",
            )?;
            let near = (self.grad_bytes / slack, self.grad_bytes * slack);
            check("layers", total, near, "bytes that add up to grad_bytes")?;
        }
        Ok(Traffic {
            compute_s: Some(self.compute_s),
            grad_bytes: self.grad_bytes,
            buckets: self.buckets,
            overlap,
            last_bytes: last,
            layers: self.layers.clone(),
            skew: self.skew,
        })
    }
}
