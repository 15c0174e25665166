//! Network models (`docs/concepts/network.md`): closed forms and tables that give locality factors through the trait
//! [`LocalityModel`].
//!
//! A factor depends only on the model, the GPU type, the gang size and the shape. Each factor is computed on first use
//! and cached. The parameters never change, so the cache stays valid.
#![forbid(unsafe_code)]

mod alphabeta;
mod config;
mod fair;
mod fitted;
mod layers;
mod presets;
mod table;

pub use alphabeta::{Algorithms, Link, Links, Traffic};
pub use config::{
    Contention, Detail, LinkChange, Measured, ModelGiven, NetworkConfig, NetworkKind, OnMissing,
};
pub use fair::{Filling, Flows, MaxMin, Stop};
pub use fitted::Fitted;
pub use layers::{BucketTimes, Order};
pub use presets::{PRESETS, network_models};

use config::bad;
use gangline_model::{
    ClusterSpec, Extent, Gang, GpuTypeId, JobId, JobTable, Load, LocalityModel, ModelError,
    RateTable, Shape, Tier, TierTable,
};
use rustc_hash::FxHashMap;
use std::sync::{Mutex, PoisonError};
use table::{Found, RatioTable};

/// A network that gives the locality factors of gangs.
#[derive(Debug)]
pub struct Network {
    answer: Answer,
    extents: Vec<Extent>,
    labels: Vec<String>,
    skews: Vec<Option<f64>>,
    /// Total gradient size in bytes for each model label; 0 for an unknown model.
    grad_bytes: Vec<f64>,
}

#[derive(Debug)]
enum Answer {
    Free,
    AlphaBeta(AlphaBeta),
    Table {
        ratios: RatioTable,
        /// Label that is used for jobs whose own label has no series.
        default: Option<u32>,
        on_missing: OnMissing,
        fallback: Option<AlphaBeta>,
    },
    Levels {
        table: TierTable,
        known: Vec<bool>,
        has_rest: bool,
    },
}

/// A placement whose factor was reduced to the factor of a narrower tier.
#[derive(Clone, Debug, PartialEq)]
pub struct Clamp {
    /// Model label.
    pub model: String,
    /// GPU type.
    pub gpu_type: GpuTypeId,
    /// Gang size.
    pub gpus: u32,
    /// Tier of the canonical shape.
    pub tier: Tier,
    /// Factor according to the closed form.
    pub raw: f64,
    /// Factor after the clamp.
    pub clamped: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    model: u32,
    gpu_type: u32,
    gpus: u32,
    shape: Shape,
}

/// The closed form, with its table of models.
#[derive(Debug)]
struct AlphaBeta {
    links: Links,
    contention: Contention,
    /// Bandwidth of every uplink in bytes/s, if jobs share uplinks.
    shared_bw: Option<f64>,
    detail: Detail,
    order: Order,
    models: Vec<(String, Traffic)>,
    /// Model for each job label; the last entry is for jobs without a label.
    of_label: Vec<Option<u32>>,
    cache: Mutex<FxHashMap<Key, f64>>,
}

impl AlphaBeta {
    fn new(
        config: &NetworkConfig,
        cluster: &ClusterSpec,
        labels: &[String],
    ) -> Result<Self, ModelError> {
        let models = config.traffic()?;
        let find = |label: &String| {
            let at = models.iter().position(|(known, _)| known == label);
            at.map(|at| at as u32)
        };
        let rest = match &config.default_model {
            None => None,
            Some(label) => {
                let known: Vec<&str> = models.iter().map(|(label, _)| label.as_str()).collect();
                let expected = format!("one of {}", known.join(", "));
                Some(find(label).ok_or_else(|| bad("default_model", label, &expected))?)
            }
        };
        let mut of_label: Vec<_> = labels.iter().map(|label| find(label).or(rest)).collect();
        of_label.push(rest);
        let links = config.links(Extent::servers_per_rack(cluster))?;
        Ok(Self {
            shared_bw: config.shared_bw(&links)?,
            links,
            contention: config.contention,
            detail: config.detail,
            order: config.order,
            models,
            of_label,
            cache: Mutex::default(),
        })
    }

    fn model_of(&self, label: Option<u32>) -> Option<u32> {
        let last = self.of_label.len() - 1;
        let at = label.map_or(last, |label| (label as usize).min(last));
        self.of_label[at]
    }

    /// Returns the factor that the closed form gives for one shape, before the clamp.
    fn raw(&self, model: u32, shape: Shape) -> f64 {
        let traffic = &self.models[model as usize].1;
        let compute_s = traffic.compute_s.unwrap_or(f64::INFINITY);
        let exposed = if self.detail == Detail::Layers {
            self.links
                .exposed_by_layer(shape, traffic, compute_s, self.order)
        } else {
            self.links.exposed(shape, traffic, compute_s)
        };
        compute_s / (compute_s + exposed)
    }

    /// Returns the factor of a placement. The factor is at most that of the canonical shape in each narrower tier in
    /// which the gang would fit.
    fn factor(&self, key: Key, extent: Extent) -> f64 {
        let tier = key.shape.tier();
        let canonical = |tier| extent.canonical(key.gpus, tier);
        let shape = if self.detail == Detail::Tier {
            canonical(tier)
        } else {
            key.shape
        };
        let mut factor = self.raw(key.model, shape);
        if tier > Tier::Server && key.gpus <= extent.server {
            factor = factor.min(self.raw(key.model, canonical(Tier::Server)));
        }
        if tier > Tier::Rack && key.gpus <= extent.rack {
            factor = factor.min(self.raw(key.model, canonical(Tier::Rack)));
        }
        factor
    }

    fn locality(&self, gang: &Gang, shape: Shape, extents: &[Extent]) -> f64 {
        // Every label without a model was refused before the run.
        let Some(model) = self.model_of(gang.model) else {
            return 1.0;
        };
        let key = Key {
            model,
            gpu_type: gang.gpu_type.0,
            gpus: gang.gpus,
            shape,
        };
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        *cache
            .entry(key)
            .or_insert_with(|| self.factor(key, extents[gang.gpu_type.index()]))
    }

    /// Returns the load that a gang across several racks puts on the uplink of each rack. If the gang is alone, an
    /// iteration takes C / S, where S is the locality factor. This holds whether the closed form, a table or the clamp
    /// determines S.
    fn load(&self, gang: &Gang, shape: Shape, extents: &[Extent]) -> Option<Load> {
        let (model, _) = (self.model_of(gang.model)?, self.shared_bw?);
        if shape.tier() < Tier::Network {
            return None;
        }
        let traffic = &self.models[model as usize].1;
        let compute_s = traffic.compute_s?;
        let counted = if self.detail == Detail::Tier {
            extents[gang.gpu_type.index()].canonical(gang.gpus, Tier::Network)
        } else {
            shape
        };
        let racks = f64::from(counted.racks);
        let bytes = 2.0 * traffic.grad_bytes * (racks - 1.0) / racks;
        if bytes <= 0.0 {
            return None;
        }
        let seconds = if self.contention == Contention::Peak {
            let is_by_layer = self.detail == Detail::Layers;
            self.links.sending(counted, traffic, is_by_layer)
        } else {
            compute_s / self.locality(gang, shape, extents)
        };
        // A job cannot send more than the capacity of an uplink, and rounding must not exceed this capacity.
        let demand = (bytes / seconds).min(self.links.uplink_bw);
        (demand > 0.0).then_some(Load {
            bytes,
            compute_s,
            demand,
        })
    }

    /// Returns whether the network has data for jobs with this label.
    fn check(&self, label: Option<u32>) -> Result<bool, ModelError> {
        let Some(model) = self.model_of(label) else {
            return Ok(false);
        };
        let (name, traffic) = &self.models[model as usize];
        if traffic.compute_s.is_none() {
            let expected = "scaled, or a `compute_s` for this model, because its unscaled time is not published";
            return Err(bad(
                format!("models.{name}.compute_s"),
                &"unscaled",
                expected,
            ));
        }
        Ok(true)
    }
}

impl Network {
    /// Creates the network of a cluster for jobs with these model labels.
    ///
    /// # Errors
    /// Returns [`ModelError::Network`], which names the key of the first invalid value.
    pub fn new(
        config: &NetworkConfig,
        cluster: &ClusterSpec,
        labels: &[String],
    ) -> Result<Self, ModelError> {
        let traffic = config.traffic()?;
        let find = |label: &String| traffic.iter().find(|(known, _)| known == label);
        let rest = config.default_model.as_ref().and_then(find);
        let skew = |label: &String| find(label).or(rest).and_then(|(_, traffic)| traffic.skew);
        let bytes = |label: &String| find(label).map_or(0.0, |(_, traffic)| traffic.grad_bytes);
        let grad_bytes = labels.iter().map(bytes).collect();
        let answer = match config.resolved_kind()? {
            NetworkKind::Free => Answer::Free,
            NetworkKind::AlphaBeta => Answer::AlphaBeta(AlphaBeta::new(config, cluster, labels)?),
            NetworkKind::Levels => levels(config, labels)?,
            NetworkKind::Table => measured(config, cluster, labels)?,
        };
        Ok(Self {
            answer,
            extents: Extent::by_type(cluster),
            skews: labels.iter().map(skew).collect(),
            grad_bytes,
            labels: labels.to_vec(),
        })
    }

    /// Returns the total gradient size in bytes for each model label; 0 for unknown models.
    pub fn grad_bytes(&self) -> &[f64] {
        &self.grad_bytes
    }

    /// Returns whether distance costs nothing.
    pub fn is_free(&self) -> bool {
        matches!(self.answer, Answer::Free)
    }

    /// Returns whether the network has any data about jobs: a cost of distance, or the tensor sizes of a model.
    pub fn is_informative(&self) -> bool {
        !self.is_free() || self.skews.iter().any(Option::is_some)
    }

    /// Checks that there is data for every multi-GPU job on every type that it may use.
    ///
    /// # Errors
    /// Returns [`ModelError::UnknownModel`], which lists jobs with an unknown label, or [`ModelError::Network`] for a
    /// model or pair that lacks a required number.
    pub fn check_jobs(
        &self,
        cluster: &ClusterSpec,
        jobs: &JobTable,
        rates: &RateTable,
    ) -> Result<(), ModelError> {
        if self.is_free() {
            return Ok(());
        }
        let mut known: Vec<Option<bool>> = vec![None; self.labels.len() + 1];
        let mut unknown = Vec::new();
        for job in jobs.ids().filter(|&job| jobs.gpus(job) > 1) {
            let label = jobs.model(job);
            let at = label.map_or(self.labels.len(), |label| label as usize);
            let is_known = match known[at] {
                Some(is_known) => is_known,
                None => *known[at].insert(self.knows(label)?),
            };
            if !is_known {
                unknown.push(job);
            } else if let Answer::Table { .. } = &self.answer {
                self.check_pairs(cluster, jobs, rates, job)?;
            }
        }
        if unknown.is_empty() {
            return Ok(());
        }
        let name = unknown.first().and_then(|&job| jobs.model_name(job));
        Err(ModelError::UnknownModel {
            count: unknown.len(),
            label: name.map(str::to_owned),
            jobs: unknown.into_iter().take(10).collect(),
        })
    }

    fn knows(&self, label: Option<u32>) -> Result<bool, ModelError> {
        Ok(match &self.answer {
            Answer::Free => true,
            Answer::AlphaBeta(model) => model.check(label)?,
            Answer::Table { default, .. } => label.is_some() || default.is_some(),
            Answer::Levels {
                known, has_rest, ..
            } => *has_rest || label.is_some_and(|label| known[label as usize]),
        })
    }

    fn check_pairs(
        &self,
        cluster: &ClusterSpec,
        jobs: &JobTable,
        rates: &RateTable,
        job: JobId,
    ) -> Result<(), ModelError> {
        let Answer::Table {
            ratios,
            default,
            on_missing,
            fallback,
        } = &self.answer
        else {
            return Ok(());
        };
        let label = jobs.model(job);
        let usable = jobs.usable_types(job, cluster, rates, false);
        for index in (0..cluster.gpu_types().len()).filter(|index| usable >> index & 1 == 1) {
            let gang = jobs.gang(job, GpuTypeId::new(index));
            if find(ratios, *default, &gang) != Found::Missing {
                continue;
            }
            let is_answered = match (on_missing, fallback) {
                (OnMissing::One, _) => true,
                (_, Some(model)) => model.check(label)?,
                _ => false,
            };
            if !is_answered {
                return Err(ModelError::MissingThroughput {
                    job,
                    gpu_type: cluster.gpu_types()[index].name.clone(),
                    model: jobs.model_name(job).unwrap_or("").to_owned(),
                    gpus: gang.gpus,
                });
            }
        }
        Ok(())
    }

    /// Returns the factor that the closed form gives for a placement, before the clamp; `None` if the network model has
    /// no closed form.
    pub fn raw(&self, model: Option<u32>, shape: Shape) -> Option<f64> {
        match &self.answer {
            Answer::AlphaBeta(form) => form.model_of(model).map(|at| form.raw(at, shape)),
            Answer::Free | Answer::Table { .. } | Answer::Levels { .. } => None,
        }
    }

    /// Checks the canonical shapes of these gang sizes for all labels and types. Returns the placements whose factor
    /// the clamp reduces.
    pub fn check(&self, sizes: &[u32]) -> Vec<Clamp> {
        let mut found = Vec::new();
        for label in 0..self.labels.len() as u32 {
            for gpu_type in (0..self.extents.len()).map(GpuTypeId::new) {
                for &gpus in sizes.iter().filter(|&&gpus| gpus > 1) {
                    let gang = Gang {
                        model: Some(label),
                        batch_size: 0,
                        gpu_type,
                        gpus,
                    };
                    let clamps = [Tier::Rack, Tier::Network].map(|tier| self.clamp(&gang, tier));
                    found.extend(clamps.into_iter().flatten());
                }
            }
        }
        found
    }

    fn clamp(&self, gang: &Gang, tier: Tier) -> Option<Clamp> {
        let raw = self.raw(gang.model, self.canonical(gang.gpu_type, gang.gpus, tier))?;
        let clamped = self.at_tier(gang, tier);
        (clamped < raw).then(|| Clamp {
            model: gang
                .model
                .map_or("", |label| &self.labels[label as usize])
                .to_owned(),
            gpu_type: gang.gpu_type,
            gpus: gang.gpus,
            tier,
            raw,
            clamped,
        })
    }
}

fn levels(config: &NetworkConfig, labels: &[String]) -> Result<Answer, ModelError> {
    config.check_levels()?;
    let find = |label: &str| config.levels.iter().find(|(known, _)| known == label);
    let default = config.default_model.as_deref();
    if let Some(label) = default.filter(|label| find(label).is_none()) {
        return Err(bad("default_model", &label, "a label of `levels`"));
    }
    let rest = find("*").or(default.and_then(find));
    let row = |label: &String| find(label).or(rest).map_or([1.0; 3], |row| row.1);
    let mut rows: Vec<[f64; 3]> = labels.iter().map(row).collect();
    rows.push(rest.map_or([1.0; 3], |row| row.1));
    Ok(Answer::Levels {
        table: TierTable::new(rows)?,
        known: labels.iter().map(|label| find(label).is_some()).collect(),
        has_rest: rest.is_some(),
    })
}

fn measured(
    config: &NetworkConfig,
    cluster: &ClusterSpec,
    labels: &[String],
) -> Result<Answer, ModelError> {
    let fallback = match &config.on_missing {
        OnMissing::Preset(name) => {
            if name == "ideal" || !PRESETS.contains(&name.as_str()) {
                let expected = "error, one, or a preset with links";
                return Err(bad("on_missing", name, expected));
            }
            let own = config.default_model.clone();
            let traffic = config.traffic()?;
            let other = NetworkConfig {
                preset: Some(name.clone()),
                default_model: own.filter(|own| traffic.iter().any(|(label, _)| label == own)),
                ..config.clone()
            };
            Some(AlphaBeta::new(&other, cluster, labels)?)
        }
        OnMissing::Error | OnMissing::One => None,
    };
    // The default label also needs an index in the table, even if no job has this label.
    let mut known = labels.to_vec();
    let default = match &config.default_model {
        None => None,
        Some(label) => {
            if !known.contains(label) {
                known.push(label.clone());
            }
            known.iter().position(|other| other == label)
        }
    };
    Ok(Answer::Table {
        ratios: RatioTable::new(config, &known)?,
        default: default.map(|at| at as u32),
        on_missing: config.on_missing.clone(),
        fallback,
    })
}

/// Finds the pair for the job's label or, if there is none, the pair for the default label.
fn find(ratios: &RatioTable, default: Option<u32>, gang: &Gang) -> Found {
    let ask = |label: Option<u32>| {
        label.map_or(Found::Missing, |label| {
            ratios.find(gang.gpu_type.0, label, gang.batch_size, gang.gpus)
        })
    };
    match ask(gang.model) {
        Found::Missing => ask(default),
        found @ Found::Ratio(_) => found,
    }
}

impl LocalityModel for Network {
    fn locality(&self, gang: &Gang, shape: Shape) -> f64 {
        if gang.gpus == 1 {
            return 1.0;
        }
        match &self.answer {
            Answer::Free => 1.0,
            Answer::AlphaBeta(model) => model.locality(gang, shape, &self.extents),
            Answer::Levels { table, .. } => table.locality(gang, shape),
            Answer::Table {
                ratios,
                default,
                fallback,
                ..
            } => match (find(ratios, *default, gang), shape.tier()) {
                (Found::Ratio(_), Tier::Server) => 1.0,
                (Found::Ratio(ratio), Tier::Rack) => ratio,
                (Found::Ratio(ratio), Tier::Network) => ratio * ratios.network_extra,
                (Found::Missing, _) => fallback
                    .as_ref()
                    .map_or(1.0, |model| model.locality(gang, shape, &self.extents)),
            },
        }
    }

    fn canonical(&self, gpu_type: GpuTypeId, gpus: u32, tier: Tier) -> Shape {
        self.extents[gpu_type.index()].canonical(gpus, tier)
    }

    fn shared_bw(&self) -> Option<f64> {
        match &self.answer {
            Answer::AlphaBeta(model) => model.shared_bw,
            Answer::Free | Answer::Table { .. } | Answer::Levels { .. } => None,
        }
    }

    fn load(&self, gang: &Gang, shape: Shape) -> Option<Load> {
        match &self.answer {
            Answer::AlphaBeta(model) => model.load(gang, shape, &self.extents),
            Answer::Free | Answer::Table { .. } | Answer::Levels { .. } => None,
        }
    }

    fn skew(&self, model: Option<u32>) -> Option<f64> {
        self.skews.get(model? as usize).copied().flatten()
    }
}
