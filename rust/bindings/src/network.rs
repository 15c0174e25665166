//! Converts the network keys of a cluster file to a [`Network`], and answers queries about this network.

use crate::convert::{Cluster, Jobs};
use crate::error::CoreError;
use gangline_model::{Gang, GpuTypeId, LocalityModel, ModelError, Shape, Tier};
use gangline_network::{
    Algorithms, Contention, Detail, Flows, LinkChange, MaxMin, Measured, ModelGiven,
    Network as Model, NetworkConfig, NetworkKind, OnMissing, Order, PRESETS, Stop,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::sync::Arc;

const TIERS: [&str; 3] = ["server", "rack", "network"];

fn bad(key: impl Into<String>, value: &Bound<'_, PyAny>, expected: &str) -> PyErr {
    CoreError::from(ModelError::Network {
        key: key.into(),
        value: value.to_string(),
        expected: expected.to_owned(),
    })
    .into()
}

/// Reads a value that must be one of the given strings.
fn word<T>(
    key: &str,
    value: &Bound<'_, PyAny>,
    parse: impl Fn(&str) -> Option<T>,
    words: &str,
) -> PyResult<T> {
    let name: String = value.extract().map_err(|_| bad(key, value, words))?;
    parse(&name).ok_or_else(|| bad(key, value, words))
}

fn number(key: impl Into<String>, value: &Bound<'_, PyAny>) -> PyResult<f64> {
    value.extract().map_err(|_| bad(key, value, "a number"))
}

fn config(keys: &Bound<'_, PyDict>) -> PyResult<NetworkConfig> {
    let mut config = NetworkConfig::default();
    for (key, value) in keys.iter() {
        let key: String = key.extract()?;
        if !value.is_none() {
            set(&mut config, &key, &value)?;
        }
    }
    Ok(config)
}

fn set(config: &mut NetworkConfig, key: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    match key {
        "kind" => {
            let words = "none, alphabeta, table or levels";
            config.kind = Some(word(key, value, NetworkKind::parse, words)?);
        }
        "preset" => config.preset = Some(value.extract()?),
        "detail" => config.detail = word(key, value, Detail::parse, "tier, shape or layers")?,
        "order" => config.order = word(key, value, Order::parse, "lifo or fifo")?,
        "pipeline" => config.is_serial = !value.extract::<bool>()?,
        "compute" => {
            let parse = |name: &str| match name {
                "scaled" => Some(false),
                "unscaled" => Some(true),
                _ => None,
            };
            config.is_unscaled = word(key, value, parse, "scaled or unscaled")?;
        }
        "oversubscription" => config.oversubscription = Some(number(key, value)?),
        "contention" => {
            let words = "off, maxmin or peak";
            config.contention = word(key, value, Contention::parse, words)?;
        }
        "background" => config.background = Some(number(key, value)?),
        "default_model" => config.default_model = Some(value.extract()?),
        "network_extra" => config.network_extra = Some(number(key, value)?),
        "on_missing" => config.on_missing = OnMissing::parse(&value.extract::<String>()?),
        "monotone_n" => config.is_monotone = value.extract()?,
        "models" => {
            for (label, model) in value.cast::<PyDict>()?.iter() {
                let label: String = label.extract()?;
                let model = read_model(&label, model.cast::<PyDict>()?)?;
                config.models.push((label, model));
            }
        }
        "levels" => {
            for (label, row) in value.cast::<PyDict>()?.iter() {
                let label: String = label.extract()?;
                let three = "factors for server, rack and network";
                let levels = row
                    .extract()
                    .map_err(|_| bad(format!("levels.{label}"), &row, three))?;
                config.levels.push((label, levels));
            }
        }
        "measured" => config.measured = read_measured(value.cast::<PyList>()?)?,
        tier => {
            let Some(at) = TIERS.iter().position(|known| *known == tier) else {
                return Err(bad(key, value, "a known key"));
            };
            config.tiers[at] = read_link(tier, value.cast::<PyDict>()?)?;
        }
    }
    Ok(())
}

fn read_link(tier: &str, keys: &Bound<'_, PyDict>) -> PyResult<LinkChange> {
    let mut link = LinkChange::default();
    for (key, value) in keys.iter() {
        if value.is_none() {
            continue;
        }
        let key: String = key.extract()?;
        let path = format!("{tier}.{key}");
        match key.as_str() {
            "algo" => link.algorithms = Some(algorithms(&path, &value)?),
            "alpha_s" => link.alpha_s = Some(number(path, &value)?),
            "port_bw" => link.port_bw = Some(number(path, &value)?),
            "server_bw" => link.server_bw = Some(number(path, &value)?),
            "uplink_bw" => link.uplink_bw = Some(number(path, &value)?),
            _ => return Err(bad(path, &value, "a known key")),
        }
    }
    Ok(link)
}

/// Reads an algorithm's name, or a list of names. If there are several algorithms, the fastest is used.
fn algorithms(key: &str, value: &Bound<'_, PyAny>) -> PyResult<Algorithms> {
    let words = "ring, halving, direct or auto, or a list of them";
    let names: Vec<String> = match value.extract::<String>() {
        Ok(name) => vec![name],
        Err(_) => value.extract().map_err(|_| bad(key, value, words))?,
    };
    let mut found: Option<Algorithms> = None;
    for name in names {
        let one = Algorithms::parse(&name).ok_or_else(|| bad(key, value, words))?;
        found = Some(found.map_or(one, |all| all.or(one)));
    }
    found.ok_or_else(|| bad(key, value, words))
}

fn read_model(label: &str, keys: &Bound<'_, PyDict>) -> PyResult<ModelGiven> {
    let mut model = ModelGiven::default();
    for (key, value) in keys.iter() {
        if value.is_none() {
            continue;
        }
        let key: String = key.extract()?;
        let path = format!("models.{label}.{key}");
        match key.as_str() {
            "compute_s" => model.compute_s = number(path, &value)?,
            "grad_bytes" => model.grad_bytes = number(path, &value)?,
            "buckets" => {
                let count = "a whole number from 1 to 1e6";
                model.buckets = value.extract().map_err(|_| bad(path, &value, count))?;
            }
            "overlap" => model.overlap = Some(number(path, &value)?),
            "last_bytes" => model.last_bytes = Some(number(path, &value)?),
            "skew" => model.skew = Some(number(path, &value)?),
            "layers" => {
                let pairs = "pairs of seconds and bytes";
                model.layers = value.extract().map_err(|_| bad(path, &value, pairs))?;
            }
            _ => return Err(bad(path, &value, "a known key")),
        }
    }
    Ok(model)
}

fn read_measured(rows: &Bound<'_, PyList>) -> PyResult<Vec<Measured>> {
    let read = |row: Bound<'_, PyAny>| {
        let (gpu_type, model, batch_size, gpus, consolidated, spread) = row.extract()?;
        Ok(Measured {
            gpu_type,
            model,
            batch_size,
            gpus,
            consolidated,
            spread,
        })
    };
    rows.iter().map(read).collect()
}

/// The network model of a cluster, for jobs with the given model labels.
#[pyclass(frozen, module = "gangline._core")]
pub(crate) struct Network {
    pub(crate) model: Arc<Model>,
}

impl Network {
    fn gang(gpu_type: u32, model: Option<u32>, batch_size: u32, gpus: u32) -> Gang {
        Gang {
            model,
            batch_size,
            gpu_type: GpuTypeId(gpu_type),
            gpus,
        }
    }
}

#[pymethods]
impl Network {
    #[new]
    #[allow(clippy::needless_pass_by_value)]
    fn new(
        cluster: PyRef<'_, Cluster>,
        keys: &Bound<'_, PyDict>,
        labels: Vec<String>,
    ) -> PyResult<Self> {
        let model = Model::new(&config(keys)?, &cluster.spec, &labels).map_err(CoreError::from)?;
        Ok(Self {
            model: Arc::new(model),
        })
    }

    /// Returns the names of the link presets.
    #[staticmethod]
    fn presets() -> Vec<&'static str> {
        PRESETS.to_vec()
    }

    /// Returns the labels of the built-in models.
    #[staticmethod]
    fn models() -> Vec<String> {
        gangline_network::network_models()
    }

    /// Returns whether distance costs nothing.
    fn is_free(&self) -> bool {
        self.model.is_free()
    }

    /// Rejects jobs for which the network has no data.
    #[allow(clippy::needless_pass_by_value)]
    fn check_jobs(&self, cluster: PyRef<'_, Cluster>, jobs: PyRef<'_, Jobs>) -> PyResult<()> {
        let world = jobs.world(&cluster)?;
        self.model
            .check_jobs(&world.cluster, &world.jobs, &world.rates)
            .map_err(CoreError::from)?;
        Ok(())
    }

    /// Returns the max-min fair rates of flows over links that all have the same capacity. Each flow is specified by
    /// its demand and its links.
    #[staticmethod]
    #[allow(clippy::needless_pass_by_value)]
    fn fair_rates(capacity: f64, links: usize, flows: Vec<(f64, Vec<u32>)>) -> PyResult<Vec<f64>> {
        if !(capacity.is_finite() && capacity > 0.0) {
            let what = format!("capacity {capacity} is not above 0");
            let table = "flows";
            return Err(CoreError::from(ModelError::Table { table, what }).into());
        }
        let mut all = Flows::default();
        for (demand, named) in flows {
            all.push(Stop::demand(demand), named);
        }
        all.validate(links).map_err(CoreError::from)?;
        let names: Vec<u32> = (0..links as u32).collect();
        let mut solver = MaxMin::default();
        let stops = solver.solve(capacity, &names, &all);
        Ok(stops.iter().map(|stop| stop.rate()).collect())
    }

    /// Returns the capacity in bytes/s of each uplink that jobs share; `None` if each job sends as if it were alone.
    fn shared_bw(&self) -> Option<f64> {
        self.model.shared_bw()
    }

    /// Returns the load that a gang with the given shape puts on the uplink of each of its racks: bytes per iteration,
    /// and bytes/s if the gang is alone.
    fn load(
        &self,
        gpu_type: u32,
        model: Option<u32>,
        gpus: u32,
        shape: (u32, u32, u32, u32, u32),
    ) -> Option<(f64, f64)> {
        let gang = Self::gang(gpu_type, model, 0, gpus);
        let load = self.model.load(&gang, to_shape(shape))?;
        Some((load.bytes, load.demand))
    }

    /// Returns the locality factor of a gang in a tier (0 server, 1 rack, 2 network).
    #[pyo3(signature = (gpu_type, model, gpus, tier, batch_size=0))]
    fn at_tier(
        &self,
        gpu_type: u32,
        model: Option<u32>,
        gpus: u32,
        tier: u8,
        batch_size: u32,
    ) -> f64 {
        let tier = [Tier::Server, Tier::Rack, Tier::Network][usize::from(tier.min(2))];
        self.model
            .at_tier(&Self::gang(gpu_type, model, batch_size, gpus), tier)
    }

    /// Returns the locality factor of a gang with a shape: the maximum and minimum numbers of GPUs per server, the
    /// maximum and minimum numbers of servers per rack, and the number of racks.
    fn at_shape(
        &self,
        gpu_type: u32,
        model: Option<u32>,
        gpus: u32,
        shape: (u32, u32, u32, u32, u32),
    ) -> f64 {
        self.model
            .locality(&Self::gang(gpu_type, model, 0, gpus), to_shape(shape))
    }

    /// Returns the factor that the closed form gives for a shape, before the clamp; `None` if the network has no closed
    /// form.
    fn raw(&self, model: Option<u32>, shape: (u32, u32, u32, u32, u32)) -> Option<f64> {
        self.model.raw(model, to_shape(shape))
    }

    /// Returns the placements on which the clamp acts: (model, type, gang size, tier, closed form, resulting factor).
    #[allow(clippy::needless_pass_by_value)]
    fn check(&self, sizes: Vec<u32>) -> Vec<(String, u32, u32, u8, f64, f64)> {
        let row = |clamp: gangline_network::Clamp| {
            let tier = clamp.tier as u8;
            let kind = clamp.gpu_type.0;
            (
                clamp.model,
                kind,
                clamp.gpus,
                tier,
                clamp.raw,
                clamp.clamped,
            )
        };
        self.model.check(&sizes).into_iter().map(row).collect()
    }
}

fn to_shape(shape: (u32, u32, u32, u32, u32)) -> Shape {
    Shape {
        server_gpus_max: shape.0.max(1),
        server_gpus_min: shape.1.max(1),
        rack_servers_max: shape.2.max(1),
        rack_servers_min: shape.3.max(1),
        racks: shape.4.max(1),
    }
}
