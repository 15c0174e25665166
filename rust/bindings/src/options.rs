//! The options of a run as one typed object. Python's `RunOptions` creates this object, which stores the options as a
//! [`RunConfig`]. A missing or unknown argument is a `TypeError` in Python.

use crate::convert::Cluster;
use crate::error::CoreError;
use crate::network::Network;
use gangline_engine::{
    Costs, EngineError, Estimates, FailureRow, Failures, GangXi, History, Kind, OnInfeasible,
    RunConfig, RunTime, Statistic, TimelineMode,
};
use gangline_model::{
    ClusterSpec, GpuTypeId, InflationClass, Inflations, Interference, IterationTimes, JobId,
    LocalityModel, SimSpan, SimTime, StepFit,
};
use gangline_network::Fitted;
use gangline_policies::{ParamValue, Params};
use numpy::{PyReadonlyArray1, PyReadonlyArrayDyn};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use std::sync::Arc;

fn bad(field: &'static str, what: impl Into<String>) -> PyErr {
    CoreError(EngineError::Option {
        field,
        what: what.into(),
    })
    .into()
}

fn span(field: &'static str, seconds: f64) -> PyResult<SimSpan> {
    SimSpan::from_seconds(seconds).map_err(|error| bad(field, error.to_string()))
}

/// The rows of the timeline: the name of a mode, or the number of seconds between rows.
#[derive(FromPyObject)]
enum Timeline {
    Named(String),
    Seconds(f64),
}

/// Slowdown factors, from the attributes of `gangline.cluster.interference.Pairs`.
#[derive(FromPyObject)]
struct Pairs<'py> {
    of_job: Option<PyReadonlyArray1<'py, u32>>,
    xi: PyReadonlyArrayDyn<'py, f64>,
    absent: Vec<(String, String)>,
}

/// Class of each job; for each class, batch size, gang size and times by GPU type; for each type, the GPUs of its
/// largest server.
type InflationsGiven<'py> = (
    PyReadonlyArray1<'py, u32>,
    Vec<(u32, u32, Vec<Option<Times>>)>,
    Vec<u32>,
);

/// Durations that policies see: noise, seconds for each job, or the attributes of `gangline.runs.estimates.History`.
#[derive(FromPyObject)]
enum EstimatesGiven<'py> {
    Noise(f64),
    Given(PyReadonlyArray1<'py, f64>),
    History {
        by_model: bool,
        percentile: Option<u32>,
        last: Option<usize>,
        default_s: f64,
    },
}

/// The sigma of the noise for each job, for each stretch of a run and for each server after the first; then the time of
/// a checkpoint in seconds. Each entry of the list gives the costs for a model label, a number of GPUs and a GPU type:
/// the times in seconds of a first start, a restart, a stop and a checkpoint.
type RunTimeGiven = ([f64; 4], Vec<CostsGiven>);
type CostsGiven = ((Option<u32>, Option<u32>, Option<usize>), [Option<f64>; 4]);

/// All options of a run. The defaults are defined only in Python.
#[pyclass(frozen, module = "gangline._core")]
pub(crate) struct RunOptions {
    pub(crate) config: RunConfig,
    /// Whether the cluster states how many jobs may share a GPU.
    pub(crate) says_max_share: bool,
}

#[pymethods]
impl RunOptions {
    #[new]
    #[pyo3(signature = (cluster, *, seed, restart_s, first_start_s, restart_by_model, checkpoint_interval_s, on_infeasible,
        segments, timeline, check_invariants, skip_rounds, until_s, max_events, count_arrivals, max_share, interference,
        gang_xi, memory_fixed_fraction, acc_cost, overhead_interferes, network, mean_times_s, outages, inflations,
        locality_fits, estimates, runtime, watch))]
    #[expect(
        clippy::too_many_arguments,
        clippy::needless_pass_by_value,
        clippy::fn_params_excessive_bools,
        reason = "PyO3 passes keyword arguments by value"
    )]
    fn new(
        cluster: PyRef<'_, Cluster>,
        seed: u64,
        restart_s: Option<f64>,
        first_start_s: Option<f64>,
        restart_by_model: Option<PyReadonlyArray1<'_, f64>>,
        checkpoint_interval_s: Option<f64>,
        on_infeasible: &str,
        segments: bool,
        timeline: Timeline,
        check_invariants: bool,
        skip_rounds: bool,
        until_s: Option<f64>,
        max_events: Option<u64>,
        count_arrivals: Option<(f64, f64)>,
        max_share: Option<u32>,
        interference: Option<Pairs<'_>>,
        gang_xi: &str,
        memory_fixed_fraction: f64,
        acc_cost: f64,
        overhead_interferes: bool,
        network: Option<PyRef<'_, Network>>,
        mean_times_s: Option<(f64, f64)>,
        outages: Vec<(u32, f64, f64)>,
        inflations: Option<InflationsGiven<'_>>,
        locality_fits: Option<Vec<Vec<Option<Fit>>>>,
        estimates: Option<EstimatesGiven<'_>>,
        runtime: Option<RunTimeGiven>,
        watch: Vec<u32>,
    ) -> PyResult<Self> {
        let spans = |seconds: PyReadonlyArray1<'_, f64>| {
            let each = seconds.as_array();
            let spans = each.iter().map(|&s| span("restart_by_model", s));
            spans.collect::<PyResult<Vec<_>>>()
        };
        let counted = |(from, to)| {
            Ok::<_, PyErr>(instant("count_arrivals", from)?..instant("count_arrivals", to)?)
        };
        let failures = match mean_times_s {
            Some((mtbf_s, mttr_s)) => Failures::Random { mtbf_s, mttr_s },
            None if outages.is_empty() => Failures::None,
            None => table(&outages)?,
        };
        let types = cluster.spec.gpu_types().len();
        let base = RunConfig::default();
        let config = RunConfig {
            seed,
            restart: restart_s.map_or(Ok(base.restart), |s| span("restart_s", s))?,
            first_start: first_start_s
                .map_or(Ok(base.first_start), |s| span("first_start_s", s))?,
            restart_by_model: restart_by_model.map(spans).transpose()?,
            checkpoint_interval: checkpoint_interval_s
                .map(|s| span("checkpoint_interval_s", s))
                .transpose()?,
            on_infeasible: match on_infeasible {
                "error" => OnInfeasible::Error,
                "drop" => OnInfeasible::Drop,
                other => {
                    return Err(bad(
                        "on_infeasible",
                        format!("expected error or drop, got {other}"),
                    ));
                }
            },
            segments,
            timeline: timeline.mode()?,
            check_invariants,
            skip_rounds,
            until: until_s.map(|s| instant("until_s", s)).transpose()?,
            max_events,
            count_arrivals: count_arrivals.map(counted).transpose()?,
            max_share: max_share.unwrap_or(base.max_share),
            interference: interference
                .map(|pairs| pairs.resolved(types))
                .transpose()?,
            gang_xi: match gang_xi {
                "max" => GangXi::Max,
                "mean" => GangXi::Mean,
                other => return Err(bad("gang_xi", format!("expected max or mean, got {other}"))),
            },
            memory_fixed_fraction,
            acc_cost,
            overhead_interferes,
            grad_bytes: network
                .as_ref()
                .map_or_else(Vec::new, |given| given.model.grad_bytes().to_vec()),
            locality: locality(&cluster.spec, network.as_deref(), locality_fits),
            failures,
            inflations: inflations.map(inflated).transpose()?,
            estimates: estimates.map_or(Ok(Estimates::Exact), EstimatesGiven::resolved)?,
            run_time: runtime.map(run_time).transpose()?,
            watch: watch.into_iter().map(JobId).collect(),
        };
        Ok(Self {
            config,
            says_max_share: max_share.is_some(),
        })
    }
}

fn instant(field: &'static str, seconds: f64) -> PyResult<SimTime> {
    SimTime::from_seconds(seconds).map_err(|error| bad(field, error.to_string()))
}

impl Timeline {
    fn mode(self) -> PyResult<TimelineMode> {
        match self {
            Self::Seconds(seconds) => Ok(TimelineMode::Sample(span("timeline", seconds)?)),
            Self::Named(word) => match word.as_str() {
                "auto" => Ok(TimelineMode::Auto),
                "change" => Ok(TimelineMode::Change),
                "off" => Ok(TimelineMode::Off),
                other => Err(bad(
                    "timeline",
                    format!("expected auto, change, off or a number of seconds, got {other}"),
                )),
            },
        }
    }
}

impl EstimatesGiven<'_> {
    fn resolved(self) -> PyResult<Estimates> {
        // An estimate is at least one nanosecond.
        let told = |seconds| Ok::<_, PyErr>(span("estimates", seconds)?.max(SimSpan(1)));
        Ok(match self {
            Self::Noise(sigma) => Estimates::Noise(sigma),
            Self::Given(seconds) => {
                let each = seconds.as_array();
                Estimates::Given(each.iter().copied().map(told).collect::<PyResult<_>>()?)
            }
            Self::History {
                by_model,
                percentile,
                last,
                default_s,
            } => Estimates::History(History {
                by_model,
                statistic: percentile.map_or(Statistic::Mean, Statistic::Percentile),
                last,
                default: told(default_s)?,
            }),
        })
    }
}

fn run_time(([job, run, straggler, checkpoint_s], rows): RunTimeGiven) -> PyResult<Arc<RunTime>> {
    let seconds = |seconds| span("runtime", seconds);
    let row = |((model, gpus, gpu_type), costs): CostsGiven| {
        let kind: Kind = (model, gpus, gpu_type.map(GpuTypeId::new));
        let mut spans = Costs::default();
        for (span, given) in spans.iter_mut().zip(costs) {
            *span = given.map(seconds).transpose()?;
        }
        Ok::<_, PyErr>((kind, spans))
    };
    Ok(Arc::new(RunTime {
        job_noise: job,
        run_noise: run,
        straggler_noise: straggler,
        checkpoint: seconds(checkpoint_s)?,
        costs: rows.into_iter().map(row).collect::<PyResult<_>>()?,
    }))
}

impl Pairs<'_> {
    fn resolved(self, types: usize) -> PyResult<Interference> {
        let xi = self.xi.as_array();
        let Some(of_job) = self.of_job else {
            let same = xi.first().copied().unwrap_or(1.0);
            return Ok(Interference::constant(same, types).map_err(CoreError::from)?);
        };
        let classes = xi.shape().last().copied().unwrap_or(0);
        let of_job = of_job.as_array().iter().copied().collect();
        let resolved = Interference::by_class(of_job, classes, xi.iter().copied().collect());
        Ok(resolved.map_err(CoreError::from)?.with_absent(self.absent))
    }
}

/// Returns the locality model of a network and of fitted models.
fn locality(
    cluster: &ClusterSpec,
    network: Option<&Network>,
    fits: Option<Vec<Vec<Option<Fit>>>>,
) -> Option<Arc<dyn LocalityModel>> {
    let network = network.filter(|given| given.model.is_informative());
    let network = network.map(|given| Arc::clone(&given.model) as Arc<dyn LocalityModel>);
    let Some(fits) = fits else {
        return network;
    };
    let of_model = |of: Vec<Option<Fit>>| of.into_iter().map(|fit| fit.map(step_fit)).collect();
    let fits = fits.into_iter().map(of_model).collect();
    Some(Arc::new(Fitted::new(cluster, fits, network)))
}

fn table(outages: &[(u32, f64, f64)]) -> PyResult<Failures> {
    let end = |seconds: f64| {
        if seconds == f64::INFINITY {
            Ok(SimTime::NEVER)
        } else {
            instant("failures", seconds)
        }
    };
    let row = |&(server, down_s, up_s): &(u32, f64, f64)| {
        Ok(FailureRow {
            server,
            down: end(down_s)?,
            up: end(up_s)?,
        })
    };
    let rows: PyResult<Vec<_>> = outages.iter().map(row).collect();
    Ok(Failures::Table(rows?))
}

/// Coefficients of a fit, in the order used in Python: `a_c, b_c, a_n, b_n, a_r, b_r, gamma`.
type Fit = [f64; 7];

/// Iteration times of a class on one type: a fit, or ratios for each number of passes.
#[derive(FromPyObject)]
enum Times {
    Fit(Fit),
    Ratios(Vec<f64>),
}

impl From<Times> for IterationTimes {
    fn from(times: Times) -> Self {
        match times {
            Times::Fit(fit) => Self::Fit(step_fit(fit)),
            Times::Ratios(ratios) => Self::Ratios(ratios),
        }
    }
}

fn inflated((of_job, classes, largest): InflationsGiven<'_>) -> PyResult<Inflations> {
    let class = |(batch_size, gpus, times): (u32, u32, Vec<Option<Times>>)| InflationClass {
        batch_size,
        gpus,
        times: times
            .into_iter()
            .map(|of| of.map(IterationTimes::from))
            .collect(),
    };
    let classes: Vec<_> = classes.into_iter().map(class).collect();
    let of_job = of_job.as_array().iter().copied().collect();
    Ok(Inflations::new(of_job, &classes, largest).map_err(CoreError::from)?)
}

fn step_fit([a_c, b_c, a_n, b_n, a_r, b_r, gamma]: Fit) -> StepFit {
    StepFit {
        pass_s: [a_c, b_c],
        servers_s: [a_n, b_n],
        server_s: [a_r, b_r],
        gamma,
    }
}

pub(crate) fn params(given: &Bound<'_, PyDict>) -> PyResult<Params> {
    let mut params = Params::new();
    for (key, value) in given.iter() {
        params.insert(key.extract()?, param(&value, DEEPEST)?);
    }
    Ok(params)
}

/// Maximum nesting of lists and tables in a parameter. Every valid parameter has fewer levels.
const DEEPEST: u32 = 8;

fn param(value: &Bound<'_, PyAny>, levels: u32) -> PyResult<ParamValue> {
    if value.is_none() {
        return Ok(ParamValue::None);
    }
    // A bool is tested before an int, because a Python bool is an int.
    if value.is_instance_of::<PyBool>() {
        return Ok(ParamValue::Bool(value.extract()?));
    }
    if value.is_instance_of::<PyInt>() {
        return match value.extract() {
            Ok(int) => Ok(ParamValue::Int(int)),
            Err(_) => Ok(ParamValue::Float(value.extract()?)),
        };
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(ParamValue::Float(value.extract()?));
    }
    if value.is_instance_of::<PyString>() {
        return Ok(ParamValue::Str(value.extract()?));
    }
    let is_list = value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>();
    if is_list && levels > 0 {
        let items = value.try_iter()?.map(|item| param(&item?, levels - 1));
        return Ok(ParamValue::List(items.collect::<PyResult<_>>()?));
    }
    if let Ok(table) = value.cast::<PyDict>()
        && levels > 0
        && table
            .keys()
            .iter()
            .all(|key| key.is_instance_of::<PyString>())
    {
        let named = table
            .iter()
            .map(|(key, item)| Ok((key.extract()?, param(&item, levels - 1)?)));
        return Ok(ParamValue::Table(named.collect::<PyResult<_>>()?));
    }
    Ok(ParamValue::Str(value.to_string()))
}
