//! Options of a run: Python dictionaries to [`RunConfig`], in one place. An unknown key is an error.

use crate::error::CoreError;
use crate::network::Network;
use gangline_engine::{
    EngineError, FailureRow, Failures, GangXi, OnInfeasible, RunConfig, TimelineMode,
};
use gangline_model::{
    ClusterSpec, InflationClass, Inflations, Interference, IterationTimes, JobId, SimSpan, SimTime,
    StepFit,
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

fn span(field: &'static str, value: &Bound<'_, PyAny>) -> PyResult<SimSpan> {
    let seconds: f64 = value.extract()?;
    SimSpan::from_seconds(seconds).map_err(|error| bad(field, error.to_string()))
}

/// Reads the options; `None` values mean the default.
pub(crate) fn run_config(
    options: &Bound<'_, PyDict>,
    cluster: &ClusterSpec,
) -> PyResult<RunConfig> {
    let types = cluster.gpu_types().len();
    let mut config = RunConfig::default();
    for (key, value) in options.iter() {
        let key: String = key.extract()?;
        if !value.is_none() {
            set(&mut config, &key, &value, types)?;
        } else if !OPTIONS.contains(&key.as_str()) {
            return Err(unknown(&key));
        }
    }
    if let Some(fits) = options
        .get_item("locality_fits")?
        .filter(|fits| !fits.is_none())
    {
        let fits: Vec<Vec<Option<Fit>>> = fits.extract()?;
        let of_model = |of: Vec<Option<Fit>>| of.into_iter().map(|fit| fit.map(step_fit)).collect();
        let fits = fits.into_iter().map(of_model).collect();
        let others = config.locality.take();
        config.locality = Some(Arc::new(Fitted::new(cluster, fits, others)));
    }
    Ok(config)
}

const OPTIONS: &[&str] = &[
    "seed",
    "restart_s",
    "first_start_s",
    "restart_by_model",
    "checkpoint_interval_s",
    "on_infeasible",
    "max_share",
    "interference",
    "gang_xi",
    "memory_fixed_fraction",
    "acc_cost",
    "inflations",
    "locality_fits",
    "overhead_interferes",
    "network",
    "failures",
    "segments",
    "watch",
    "timeline",
    "check_invariants",
    "until_s",
    "max_events",
    "count_arrivals",
    "skip_rounds",
];

fn unknown(key: &str) -> PyErr {
    bad(
        "options",
        format!("unknown option {key}; known: {}", OPTIONS.join(", ")),
    )
}

fn set(config: &mut RunConfig, key: &str, value: &Bound<'_, PyAny>, types: usize) -> PyResult<()> {
    match key {
        "seed" => config.seed = value.extract()?,
        "restart_s" => config.restart = span("restart_s", value)?,
        "first_start_s" => config.first_start = span("first_start_s", value)?,
        "restart_by_model" => {
            let seconds: PyReadonlyArray1<'_, f64> = value.extract()?;
            let spans: Result<Vec<_>, _> = seconds
                .as_array()
                .iter()
                .map(|&s| SimSpan::from_seconds(s))
                .collect();
            let spans = spans.map_err(|error| bad("restart_by_model", error.to_string()))?;
            config.restart_by_model = Some(spans);
        }
        "checkpoint_interval_s" => {
            config.checkpoint_interval = Some(span("checkpoint_interval_s", value)?);
        }
        "on_infeasible" => {
            config.on_infeasible = match value.extract::<String>()?.as_str() {
                "error" => OnInfeasible::Error,
                "drop" => OnInfeasible::Drop,
                other => return Err(bad("on_infeasible", format!("{other}: error or drop"))),
            }
        }
        "max_share" => config.max_share = value.extract()?,
        "interference" => config.interference = Some(interference(value, types)?),
        "gang_xi" => {
            config.gang_xi = match value.extract::<String>()?.as_str() {
                "max" => GangXi::Max,
                "mean" => GangXi::Mean,
                other => return Err(bad("gang_xi", format!("{other}: max or mean"))),
            }
        }
        "memory_fixed_fraction" => config.memory_fixed_fraction = value.extract()?,
        "inflations" => config.inflations = Some(inflations(value)?),
        "acc_cost" => config.acc_cost = value.extract()?,
        "locality_fits" => {} // when the network is known
        "overhead_interferes" => config.overhead_interferes = value.extract()?,
        "network" => {
            let network: PyRef<'_, Network> = value.extract()?;
            config.grad_bytes = network.model.grad_bytes().to_vec();
            if network.model.is_informative() {
                config.locality = Some(Arc::clone(&network.model) as _);
            }
        }
        "failures" => config.failures = failures(value.cast::<PyDict>()?)?,
        "segments" => config.segments = value.extract()?,
        "watch" => {
            let jobs: Vec<u32> = value.extract()?;
            config.watch = jobs.into_iter().map(JobId).collect();
        }
        "timeline" => config.timeline = timeline(value)?,
        "check_invariants" => config.check_invariants = value.extract()?,
        "until_s" => {
            let until = SimTime::from_seconds(value.extract()?);
            config.until = Some(until.map_err(|error| bad("until_s", error.to_string()))?);
        }
        "max_events" => config.max_events = Some(value.extract()?),
        "count_arrivals" => {
            let (from, to): (f64, f64) = value.extract()?;
            let instant = |seconds| {
                SimTime::from_seconds(seconds)
                    .map_err(|error| bad("count_arrivals", error.to_string()))
            };
            config.count_arrivals = Some(instant(from)?..instant(to)?);
        }
        "skip_rounds" => config.skip_rounds = value.extract()?,
        _ => return Err(unknown(key)),
    }
    Ok(())
}

fn timeline(value: &Bound<'_, PyAny>) -> PyResult<TimelineMode> {
    if let Ok(mode) = value.extract::<String>() {
        return match mode.as_str() {
            "auto" => Ok(TimelineMode::Auto),
            "change" => Ok(TimelineMode::Change),
            "off" => Ok(TimelineMode::Off),
            other => Err(bad(
                "timeline",
                format!("{other}: auto, change, off or seconds"),
            )),
        };
    }
    Ok(TimelineMode::Sample(span("timeline", value)?))
}

fn required<'py>(
    table: &Bound<'py, PyDict>,
    field: &'static str,
    key: &str,
) -> PyResult<Bound<'py, PyAny>> {
    table
        .get_item(key)?
        .ok_or_else(|| bad(field, format!("{key} is missing")))
}

fn failures(table: &Bound<'_, PyDict>) -> PyResult<Failures> {
    if let Some(mtbf) = table.get_item("mtbf_s")? {
        let mttr_s = required(table, "failures", "mttr_s")?.extract()?;
        return Ok(Failures::Random {
            mtbf_s: mtbf.extract()?,
            mttr_s,
        });
    }
    let server: PyReadonlyArray1<'_, u32> = required(table, "failures", "server")?.extract()?;
    let down: PyReadonlyArray1<'_, f64> = required(table, "failures", "down_s")?.extract()?;
    let up: PyReadonlyArray1<'_, f64> = required(table, "failures", "up_s")?.extract()?;
    let (server, down, up) = (server.as_array(), down.as_array(), up.as_array());
    let instant = |seconds: f64| {
        if seconds.is_infinite() && seconds > 0.0 {
            return Ok(SimTime::NEVER);
        }
        SimTime::from_seconds(seconds).map_err(|error| bad("failures", error.to_string()))
    };
    let rows: PyResult<Vec<_>> = (0..server.len())
        .map(|at| {
            Ok(FailureRow {
                server: server[at],
                down: instant(down[at])?,
                up: instant(up[at])?,
            })
        })
        .collect();
    Ok(Failures::Table(rows?))
}

fn interference(value: &Bound<'_, PyAny>, types: usize) -> PyResult<Interference> {
    let table = value.cast::<PyDict>()?;
    let xi = required(table, "interference", "xi")?;
    let Some(of_job) = table.get_item("of_job")? else {
        return Ok(Interference::constant(xi.extract()?, types).map_err(CoreError::from)?);
    };
    let of_job: PyReadonlyArray1<'_, u32> = of_job.extract()?;
    let xi: PyReadonlyArrayDyn<'_, f64> = xi.extract()?;
    let classes = xi.as_array().shape().last().copied().unwrap_or(0);
    let values = xi.as_array().iter().copied().collect();
    let of_job = of_job.as_array().iter().copied().collect();
    let resolved = Interference::by_class(of_job, classes, values).map_err(CoreError::from)?;
    let absent = required(table, "interference", "absent")?.extract()?;
    Ok(resolved.with_absent(absent))
}

/// Numbers of a fit, in the order of the Python side: `a_c, b_c, a_n, b_n, a_r, b_r, gamma`.
type Fit = [f64; 7];

/// Iteration times of a class on one type: a fit, or ratios by number of passes.
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

fn inflations(value: &Bound<'_, PyAny>) -> PyResult<Inflations> {
    let table = value.cast::<PyDict>()?;
    let of_job: PyReadonlyArray1<'_, u32> = required(table, "inflations", "of_job")?.extract()?;
    let classes: Vec<(u32, u32, Vec<Option<Times>>)> =
        required(table, "inflations", "classes")?.extract()?;
    let classes: Vec<_> = classes
        .into_iter()
        .map(|(batch_size, gpus, times)| InflationClass {
            batch_size,
            gpus,
            times: times
                .into_iter()
                .map(|of| of.map(IterationTimes::from))
                .collect(),
        })
        .collect();
    let largest = required(table, "inflations", "largest")?.extract()?;
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

/// A policy's parameters.
pub(crate) fn params(given: &Bound<'_, PyDict>) -> PyResult<Params> {
    let mut params = Params::new();
    for (key, value) in given.iter() {
        params.insert(key.extract()?, param(&value)?);
    }
    Ok(params)
}

fn param(value: &Bound<'_, PyAny>) -> PyResult<ParamValue> {
    if value.is_none() {
        return Ok(ParamValue::None);
    }
    // bool before int: a Python bool is an int
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
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        return match value.extract() {
            Ok(list) => Ok(ParamValue::List(list)),
            Err(_) => Ok(ParamValue::Str(value.to_string())),
        };
    }
    if let Ok(table) = value.cast::<PyDict>() {
        return match table.extract() {
            Ok(table) => Ok(ParamValue::Table(table)),
            Err(_) => Ok(ParamValue::Str(value.to_string())),
        };
    }
    Ok(ParamValue::Str(value.to_string()))
}
