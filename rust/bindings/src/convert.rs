//! Arrays from Python to the model's tables. Each column is copied once; Python keeps nothing of it.

use crate::error::CoreError;
use gangline_engine::{EngineError, World};
use gangline_model::{
    ClusterSpec, GpuType, GpuTypeId, JobColumns, JobTable, ModelError, RackId, RateTable, Server,
    SimTime,
};
use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use std::sync::Arc;

/// A validated cluster.
#[pyclass(frozen, module = "gangline._core")]
pub(crate) struct Cluster {
    pub(crate) spec: Arc<ClusterSpec>,
}

#[pymethods]
impl Cluster {
    #[new]
    #[allow(clippy::too_many_arguments, clippy::needless_pass_by_value)]
    fn new(
        gpu_names: Vec<String>,
        gpu_memory_bytes: PyReadonlyArray1<'_, u64>,
        gpu_speed: PyReadonlyArray1<'_, f64>,
        gpu_price: PyReadonlyArray1<'_, f64>,
        server_type: PyReadonlyArray1<'_, u32>,
        server_gpus: PyReadonlyArray1<'_, u32>,
        server_rack: PyReadonlyArray1<'_, u32>,
    ) -> PyResult<Self> {
        let memory = gpu_memory_bytes.as_array();
        let (speed, price) = (gpu_speed.as_array(), gpu_price.as_array());
        let types = gpu_names.len();
        same_length(
            "gpu_types",
            &[memory.len(), speed.len(), price.len()],
            types,
        )?;
        let gpu_types = gpu_names
            .into_iter()
            .enumerate()
            .map(|(at, name)| GpuType {
                name,
                memory_bytes: memory[at],
                price_per_hour: price[at],
                speed: speed[at],
            })
            .collect();
        let (kinds, gpus) = (server_type.as_array(), server_gpus.as_array());
        let racks = server_rack.as_array();
        same_length("servers", &[gpus.len(), racks.len()], kinds.len())?;
        let servers = (0..kinds.len())
            .map(|at| Server {
                gpu_type: GpuTypeId(kinds[at]),
                gpus: gpus[at],
                rack: RackId(racks[at]),
            })
            .collect();
        let spec = ClusterSpec::new(gpu_types, servers).map_err(CoreError::from)?;
        Ok(Self {
            spec: Arc::new(spec),
        })
    }
}

fn same_length(column: &'static str, lengths: &[usize], expected: usize) -> Result<(), CoreError> {
    match lengths.iter().find(|&&found| found != expected) {
        None => Ok(()),
        Some(&found) => Err(ModelError::Length {
            column,
            found,
            expected,
        }
        .into()),
    }
}

/// A validated job table and its rates.
#[pyclass(frozen, module = "gangline._core")]
pub(crate) struct Jobs {
    pub(crate) table: Arc<JobTable>,
    rate_table: Option<Vec<f64>>,
    rate_types: usize,
    pub(crate) missing_durations: usize,
}

type Column<'py, T> = Option<PyReadonlyArray1<'py, T>>;

fn vector<T: numpy::Element + Copy>(column: &Column<'_, T>) -> Option<Vec<T>> {
    column
        .as_ref()
        .map(|column| column.as_array().iter().copied().collect())
}

fn instants(seconds: &PyReadonlyArray1<'_, f64>) -> Result<Vec<SimTime>, CoreError> {
    let to_time = |(row, &seconds): (usize, &f64)| {
        SimTime::from_seconds(seconds).map_err(|_| ModelError::Job {
            job: row as u32,
            field: "arrival_s",
            value: seconds,
            expected: "seconds between 0 and 4e9",
        })
    };
    let times: Result<Vec<_>, _> = seconds.as_array().iter().enumerate().map(to_time).collect();
    times.map_err(CoreError::from)
}

#[pymethods]
impl Jobs {
    #[new]
    #[pyo3(signature = (arrival_s, gpus, work, ref_rate=None, allowed_types=None, memory_bytes=None,
        model=None, model_labels=Vec::new(), user=None, batch_size=None, weight=None, deadline_s=None,
        rate_class=None, rate_table=None, duration_known=None))]
    #[allow(clippy::too_many_arguments, clippy::needless_pass_by_value)]
    fn new(
        arrival_s: PyReadonlyArray1<'_, f64>,
        gpus: PyReadonlyArray1<'_, u32>,
        work: PyReadonlyArray1<'_, f64>,
        ref_rate: Column<'_, f64>,
        allowed_types: Column<'_, u64>,
        memory_bytes: Column<'_, u64>,
        model: Column<'_, u32>,
        model_labels: Vec<String>,
        user: Column<'_, u32>,
        batch_size: Column<'_, u32>,
        weight: Column<'_, f64>,
        deadline_s: Column<'_, f64>,
        rate_class: Column<'_, u32>,
        rate_table: Option<PyReadonlyArray2<'_, f64>>,
        duration_known: Column<'_, bool>,
    ) -> PyResult<Self> {
        let deadline = deadline_s.map(|column| {
            let to_time = |&s: &f64| SimTime::from_seconds(s).unwrap_or(SimTime::NEVER);
            column.as_array().iter().map(to_time).collect()
        });
        let columns = JobColumns {
            arrival: instants(&arrival_s)?,
            gpus: gpus.as_array().iter().copied().collect(),
            work: work.as_array().iter().copied().collect(),
            ref_rate: vector(&ref_rate),
            rate_class: vector(&rate_class),
            allowed_types: vector(&allowed_types),
            memory_bytes: vector(&memory_bytes),
            model: vector(&model),
            model_labels,
            batch_size: vector(&batch_size),
            user: vector(&user),
            weight: vector(&weight),
            deadline,
        };
        let known = vector(&duration_known);
        let missing = known.map_or(0, |known| known.iter().filter(|known| !**known).count());
        let rate_types = rate_table
            .as_ref()
            .map_or(0, |table| table.as_array().ncols());
        Ok(Self {
            table: Arc::new(JobTable::new(columns).map_err(CoreError::from)?),
            rate_table: rate_table.map(|table| table.as_array().iter().copied().collect()),
            rate_types,
            missing_durations: missing,
        })
    }

    fn __len__(&self) -> usize {
        self.table.len()
    }
}

impl Jobs {
    /// What a run works on.
    pub(crate) fn world(&self, cluster: &Cluster) -> Result<World, CoreError> {
        let mut rates = RateTable::from_speeds(&cluster.spec);
        if let Some(table) = &self.rate_table {
            if self.rate_types != cluster.spec.gpu_types().len() {
                let what = format!("{} types, the cluster has others", self.rate_types);
                return Err(EngineError::Option {
                    field: "rate_table",
                    what,
                }
                .into());
            }
            rates = rates.with_classes(table.clone(), &self.table)?;
        }
        Ok(World {
            cluster: Arc::clone(&cluster.spec),
            jobs: Arc::clone(&self.table),
            rates: Arc::new(rates),
        })
    }
}
