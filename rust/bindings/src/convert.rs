//! Converts Python arrays to the model's tables. Each column is copied once and holds no reference to Python.

use crate::error::CoreError;
use gangline_engine::{EngineError, World};
use gangline_model::{
    ClusterSpec, CopyRates, ElasticClass, ElasticTable, GivenPhase, GpuType, GpuTypeId, Gradient,
    JobColumns, JobId, JobTable, Label, Labels, ModelError, NoisePhase, PhaseTable, RackId,
    RateTable, Requests, Server, SimSpan, SimTime, StepFit,
};
use numpy::{
    IntoPyArray, Ix1, Ix2, Ix3, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray,
    PyReadonlyArray1, PyReadonlyArray2,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
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

/// The elastic jobs and their tables.
#[pyclass(frozen, module = "gangline._core")]
pub(crate) struct Elastic {
    table: Arc<ElasticTable>,
}

/// Noise phases of a class. Each phase contains the progress, then the squared norm and the variance of the gradient
/// for each noise batch.
type Phases = Vec<Vec<f64>>;

#[pymethods]
impl Elastic {
    /// `row` holds the class of each job; 2^32 - 1 means none. `fits` has shape (classes, 7): two coefficients each for
    /// the time in seconds of a pass, of a synchronisation over servers and of a synchronisation on a single server,
    /// and gamma. `limits` has shape (classes, 9): minimum and maximum of the total batch, of the samples per pass and
    /// of the GPUs, then the GPUs and the batch size in the trace, and 1 if these GPUs fit on one server. `batches`
    /// holds the noise batches of each class; if a class has none, its noise is the same for all batches.
    #[new]
    #[allow(clippy::needless_pass_by_value)]
    fn new(
        row: PyReadonlyArray1<'_, u32>,
        fits: PyReadonlyArray2<'_, f64>,
        limits: PyReadonlyArray2<'_, u32>,
        phases: Vec<Phases>,
        batches: Vec<Vec<u32>>,
    ) -> PyResult<Self> {
        let (fits, limits) = (fits.as_array(), limits.as_array());
        if fits.ncols() != 7 || limits.ncols() != 9 {
            let message = "expected a fit of 7 numbers and a row of 9 limits for each class";
            return Err(PyValueError::new_err(message));
        }
        let lengths = [fits.nrows(), limits.nrows(), batches.len()];
        same_length("elastic", &lengths, phases.len())?;
        let class = |(at, (phases, batches)): (usize, (Phases, Vec<u32>))| {
            let (fit, limit) = (fits.row(at), limits.row(at));
            ElasticClass {
                fit: StepFit {
                    pass_s: [fit[0], fit[1]],
                    servers_s: [fit[2], fit[3]],
                    server_s: [fit[4], fit[5]],
                    gamma: fit[6],
                },
                init_batch: limit[0],
                max_batch: limit[1],
                min_pass_batch: limit[2],
                max_pass_batch: limit[3],
                min_gpus: limit[4],
                max_gpus: limit[5],
                gpus: limit[6],
                batch_size: limit[7],
                fits_server: limit[8] != 0,
                noise_batches: batches,
                phases: phases.iter().map(|row| phase(row)).collect(),
            }
        };
        let classes = phases.into_iter().zip(batches).enumerate();
        let classes = classes.map(class).collect();
        let row = row.as_array().iter().copied().collect();
        let table = ElasticTable::new(row, classes).map_err(CoreError::from)?;
        Ok(Self {
            table: Arc::new(table),
        })
    }

    /// Returns the mean rate of each class over its whole work, with the GPUs and the batch given in the trace. The
    /// unit is iterations of the initial batch per second.
    fn mean_rates<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        let models = self.table.models().iter();
        let rates: Vec<f64> = models
            .map(gangline_model::ElasticModel::mean_rate)
            .collect();
        rates.into_pyarray(py)
    }
}

fn phase(row: &[f64]) -> NoisePhase {
    let (progress, noise) = row.split_first().unwrap_or((&f64::NAN, &[]));
    let gradient = |pair: &[f64]| Gradient {
        sqr: pair[0],
        var: pair.get(1).copied().unwrap_or(f64::NAN),
    };
    NoisePhase {
        progress: *progress,
        gradients: noise.chunks(2).map(gradient).collect(),
    }
}

/// A validated job table and its rates.
#[pyclass(frozen, module = "gangline._core")]
pub(crate) struct Jobs {
    pub(crate) table: Arc<JobTable>,
    rate_table: Option<Vec<f64>>,
    rate_types: usize,
    copies: Option<CopyRates>,
    elastic: Option<Arc<ElasticTable>>,
    phases: Option<Arc<PhaseTable>>,
    pub(crate) missing_durations: usize,
}

/// Columns by name. Each column is taken out once, so the names left at the end are unknown.
pub(crate) struct Given<'py> {
    columns: Bound<'py, PyDict>,
}

impl<'py> Given<'py> {
    /// Copies the references to the columns in a Python dictionary; the dictionary does not change.
    pub(crate) fn new(columns: &Bound<'py, PyDict>) -> PyResult<Self> {
        columns.copy().map(|columns| Self { columns })
    }

    fn column(&self, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        let column = self
            .columns
            .get_item(name)?
            .filter(|column| !column.is_none());
        if self.columns.contains(name)? {
            self.columns.del_item(name)?;
        }
        Ok(column)
    }

    /// Returns the values of an array in row-major order, and its shape. The type `D` gives the number of dimensions.
    pub(crate) fn array<T: numpy::Element + Copy, D: numpy::ndarray::Dimension>(
        &self,
        name: &str,
    ) -> PyResult<Option<(Vec<T>, Vec<usize>)>> {
        let Some(column) = self.column(name)? else {
            return Ok(None);
        };
        let array: PyReadonlyArray<'_, T, D> = column.extract()?;
        let array = array.as_array();
        Ok(Some((
            array.iter().copied().collect(),
            array.shape().to_vec(),
        )))
    }

    fn vector<T: numpy::Element + Copy>(&self, name: &str) -> PyResult<Option<Vec<T>>> {
        Ok(self.array::<T, Ix1>(name)?.map(|(values, _)| values))
    }

    fn required<T: numpy::Element + Copy>(&self, name: &'static str) -> PyResult<Vec<T>> {
        let missing = || PyTypeError::new_err(format!("column {name} is missing"));
        self.vector(name)?.ok_or_else(missing)
    }

    /// Returns the phases of jobs, if the rate of any job changes with its progress.
    fn phases(&self) -> PyResult<Option<PhaseTable>> {
        let Some(row) = self.vector("phase_class")? else {
            return Ok(None);
        };
        let missing = || PyTypeError::new_err("column phases is missing");
        let classes = self.column("phases")?.ok_or_else(missing)?;
        let classes: Vec<Vec<GivenPhase>> = classes.extract()?;
        Ok(PhaseTable::new(row, &classes).map_err(CoreError::from)?)
    }
}

fn instants(seconds: &[f64]) -> Result<Vec<SimTime>, CoreError> {
    let to_time = |(row, &seconds): (usize, &f64)| {
        SimTime::from_seconds(seconds).map_err(|_| ModelError::Job {
            job: row as u32,
            field: "arrival_s",
            value: seconds,
            expected: "seconds between 0 and 4e9",
        })
    };
    let times: Result<Vec<_>, _> = seconds.iter().enumerate().map(to_time).collect();
    times.map_err(CoreError::from)
}

#[pymethods]
impl Jobs {
    #[new]
    #[pyo3(signature = (**columns))]
    fn new(py: Python<'_>, columns: Option<Bound<'_, PyDict>>) -> PyResult<Self> {
        let given = Given::new(&columns.unwrap_or_else(|| PyDict::new(py)))?;
        let to_time = |&s: &f64| SimTime::from_seconds(s).unwrap_or(SimTime::NEVER);
        let deadline = given
            .vector("deadline_s")?
            .map(|s: Vec<f64>| s.iter().map(to_time).collect());
        let labels = |name: &str| match given.column(name)? {
            None => Ok(Vec::new()),
            Some(labels) => labels.extract(),
        };
        let label = |name: &str| -> PyResult<Label> {
            Ok(Label {
                codes: given.vector(name)?,
                names: labels(&format!("{name}_labels"))?,
            })
        };
        // A limit that is out of range is longer than any run, so it counts as no limit.
        let to_span = |&s: &f64| SimSpan::from_seconds(s).unwrap_or(SimSpan::ZERO);
        let limits: Option<Vec<f64>> = given.vector("time_limit_s")?;
        let limits = limits.map(|s| s.iter().map(to_span).collect());
        let known: Option<Vec<bool>> = given.vector("duration_known")?;
        let (rate_table, rate_types) = given
            .array::<f64, Ix2>("rate_table")?
            .map_or((None, 0), |(rates, shape)| (Some(rates), shape[1]));
        let copy_row = given.vector("copy_row")?;
        let copy_table = given.array::<f64, Ix3>("copy_table")?;
        let copies = copy_row
            .zip(copy_table)
            .map(|(row, (rates, shape))| CopyRates {
                row,
                sizes: shape[1],
                rates,
            });
        let elastic = match given.column("elastic")? {
            None => None,
            Some(object) => Some(Arc::clone(&object.extract::<PyRef<'_, Elastic>>()?.table)),
        };
        let phases = given.phases()?;
        let columns = JobColumns {
            arrival: instants(&given.required::<f64>("arrival_s")?)?,
            gpus: given.required("gpus")?,
            work: given.required("work")?,
            ref_rate: given.vector("ref_rate")?,
            rate_class: given.vector("rate_class")?,
            allowed_types: given.vector("allowed_types")?,
            memory_bytes: given.vector("memory_bytes")?,
            model: given.vector("model")?,
            model_labels: labels("model_labels")?,
            batch_size: given.vector("batch_size")?,
            labels: Labels {
                user: label("user")?,
                vc: label("vc")?,
                account: label("account")?,
                partition: label("partition")?,
                qos: label("qos")?,
            },
            requests: Requests {
                time_limit: limits,
                priority: given.vector("priority")?,
                nice: given.vector("nice")?,
            },
            weight: given.vector("weight")?,
            deadline,
        };
        if let Some(name) = given.columns.keys().iter().next() {
            return Err(PyTypeError::new_err(format!("unknown column {name}")));
        }
        Ok(Self {
            table: Arc::new(JobTable::new(columns).map_err(CoreError::from)?),
            rate_table,
            rate_types,
            copies,
            elastic,
            phases: phases.map(Arc::new),
            missing_durations: known
                .map_or(0, |known| known.iter().filter(|known| !**known).count()),
        })
    }

    fn __len__(&self) -> usize {
        self.table.len()
    }

    /// Returns the work of each job, in iterations or in seconds on a GPU of speed 1.
    fn work<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        PyArray1::from_slice(py, self.table.all_work())
    }

    /// Returns the GPU types that each job allows: bit `t` stands for type `t`.
    fn allowed_types<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u64>> {
        let ids = 0..self.table.len();
        let masks: Vec<u64> = ids
            .map(|at| self.table.allowed_types(JobId::new(at)))
            .collect();
        masks.into_pyarray(py)
    }

    /// Returns the iterations per second of each job's gang, alone and consolidated, on each GPU type: (jobs, types).
    fn base_rates<'py>(
        &self,
        py: Python<'py>,
        cluster: &Bound<'_, Cluster>,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let world = self.world(cluster.get())?;
        let (jobs, types) = (self.table.len(), world.cluster.gpu_types().len());
        let mut rates = Vec::with_capacity(jobs * types);
        for at in 0..jobs {
            let of_type = |id| {
                world
                    .rates
                    .base(&world.jobs, JobId::new(at), GpuTypeId::new(id))
            };
            rates.extend((0..types).map(of_type));
        }
        rates.into_pyarray(py).reshape([jobs, types])
    }

    /// Returns the iterations per second of copies, alone and consolidated; row i is a copy of job `job[i]` on
    /// `gpus[i]` GPUs of type `gpu_type[i]`.
    #[allow(clippy::needless_pass_by_value)]
    fn copy_rates<'py>(
        &self,
        py: Python<'py>,
        cluster: &Bound<'_, Cluster>,
        job: PyReadonlyArray1<'py, u32>,
        gpu_type: PyReadonlyArray1<'py, u32>,
        gpus: PyReadonlyArray1<'py, u32>,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let world = self.world(cluster.get())?;
        let (jobs, types) = (self.table.len(), world.cluster.gpu_types().len());
        let (job, gpu_type, gpus) = (job.as_slice()?, gpu_type.as_slice()?, gpus.as_slice()?);
        let is_known = job.iter().all(|&at| (at as usize) < jobs)
            && gpu_type.iter().all(|&at| (at as usize) < types);
        if !is_known || job.len() != gpu_type.len() || job.len() != gpus.len() {
            let message = format!(
                "expected columns of equal length, with jobs below {jobs} and GPU types below {types}"
            );
            return Err(PyValueError::new_err(message));
        }
        let rate = |at: usize| {
            let (job, id) = (JobId(job[at]), GpuTypeId::new(gpu_type[at] as usize));
            world.rates.of_copy(&world.jobs, job, id, gpus[at])
        };
        let rates: Vec<f64> = (0..job.len()).map(rate).collect();
        Ok(rates.into_pyarray(py))
    }
}

impl Jobs {
    /// Returns the cluster, jobs and rates of a run.
    pub(crate) fn world(&self, cluster: &Cluster) -> Result<World, CoreError> {
        let mut rates = RateTable::from_speeds(&cluster.spec);
        if let Some(table) = &self.rate_table {
            if self.rate_types != cluster.spec.gpu_types().len() {
                let what = format!(
                    "the table has {} GPU types, but the cluster has {}",
                    self.rate_types,
                    cluster.spec.gpu_types().len()
                );
                return Err(EngineError::Option {
                    field: "rate_table",
                    what,
                }
                .into());
            }
            rates = rates.with_classes(table.clone(), &self.table)?;
        }
        if let Some(copies) = &self.copies {
            rates = rates.with_copies(copies.clone(), &self.table)?;
        }
        if let Some(elastic) = &self.elastic {
            rates = rates.with_elastic(Arc::clone(elastic), &self.table)?;
        }
        if let Some(phases) = &self.phases {
            rates = rates.with_phases(Arc::clone(phases), &self.table)?;
        }
        Ok(World {
            cluster: Arc::clone(&cluster.spec),
            jobs: Arc::clone(&self.table),
            rates: Arc::new(rates),
        })
    }
}
