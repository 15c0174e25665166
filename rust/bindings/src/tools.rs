//! Small functions: synthetic traces, keyed draws, the pair rule and the core's maths library.

use crate::error::raise;
use gangline_policies::sharing::Pair;
use gangline_synth::{
    Law, Parameter, ParameterKind, Shape, SynthCodes, SynthError, SynthSpec, SynthValue, draws,
    extras, generate, parameters,
};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBool, PyDict, PyFloat, PyInt, PyList, PyString};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(synth, module)?)?;
    module.add_function(wrap_pyfunction!(synth_parameters, module)?)?;
    module.add_function(wrap_pyfunction!(synth_extras, module)?)?;
    module.add_function(wrap_pyfunction!(synth_uniforms, module)?)?;
    module.add_function(wrap_pyfunction!(synth_exponentials, module)?)?;
    module.add_function(wrap_pyfunction!(synth_log_normals, module)?)?;
    module.add_function(wrap_pyfunction!(sharing_pair, module)?)?;
    module.add_function(wrap_pyfunction!(philox4x32, module)?)?;
    module.add_function(wrap_pyfunction!(pow, module)?)?;
    module.add_function(wrap_pyfunction!(exp, module)?)?;
    module.add_function(wrap_pyfunction!(log, module)?)
}

fn refuse(py: Python<'_>, error: &SynthError) -> PyErr {
    let (name, value) = match error {
        SynthError::UnknownShape { name, .. } => ("value", name.as_str()),
        SynthError::UnknownParameter { key, .. } => ("column", key.as_str()),
        SynthError::WrongKind { key, .. }
        | SynthError::OutOfRange { key, .. }
        | SynthError::Missing { key, .. }
        | SynthError::Conflict { first: key, .. } => ("column", *key),
    };
    let facts = [(name, value)].into_py_dict(py);
    facts
        .and_then(|facts| raise(py, "TraceError", &error.to_string(), &facts))
        .unwrap_or_else(|broken| broken)
}

fn synth_value(value: &Bound<'_, PyAny>) -> PyResult<SynthValue> {
    if value.is_none() {
        return Ok(SynthValue::Unset);
    }
    if value.is_instance_of::<PyBool>() {
        return Ok(SynthValue::Text(value.to_string()));
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(match value.extract() {
            Ok(int) => SynthValue::Int(int),
            Err(_) => SynthValue::Text(value.to_string()),
        });
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(SynthValue::Float(value.extract()?));
    }
    if value.is_instance_of::<PyString>() {
        return Ok(SynthValue::Text(value.extract()?));
    }
    if let Ok(models) = value.cast::<PyDict>() {
        let rows: PyResult<Vec<(String, Vec<u32>)>> = models
            .iter()
            .map(|(name, gpus)| Ok((name.extract()?, gpus.extract()?)))
            .collect();
        if let Ok(rows) = rows {
            return Ok(SynthValue::Models(rows));
        }
        // The text is checked by `SynthSpec::set`, whose message states the expected value.
        let shares: PyResult<Vec<String>> = models
            .iter()
            .map(|(gpus, share)| Ok(format!("{}:{}", gpus.str()?, share.str()?)))
            .collect();
        return Ok(SynthValue::Text(shares?.join(", ")));
    }
    if let Ok(names) = value.extract::<Vec<String>>() {
        return Ok(SynthValue::Names(names));
    }
    Ok(match value.extract() {
        Ok(shares) => SynthValue::Shares(shares),
        Err(_) => SynthValue::Text(value.str()?.to_string()),
    })
}

/// Returns a synthetic trace: columns as arrays, labels as lists, and notes as counters.
#[pyfunction]
fn synth<'py>(
    py: Python<'py>,
    shape: &str,
    params: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    let fail = |error: SynthError| refuse(py, &error);
    let spec = synth_spec(py, shape, params)?;
    let trace = py.detach(|| generate(&spec)).map_err(fail)?;
    let table = PyDict::new(py);
    table.set_item("arrival_s", trace.arrival_s.into_pyarray(py))?;
    table.set_item("gpus", trace.gpus.into_pyarray(py))?;
    table.set_item("duration_s", trace.duration_s.into_pyarray(py))?;
    for (name, codes) in [
        ("model", trace.model),
        ("user", trace.user),
        ("vc", trace.vc),
    ] {
        set_codes(&table, name, codes)?;
    }
    let notes = PyDict::new(py);
    for (key, count) in trace.notes {
        notes.set_item(key, count)?;
    }
    table.set_item("notes", notes)?;
    Ok(table)
}

fn synth_spec(py: Python<'_>, shape: &str, params: &Bound<'_, PyDict>) -> PyResult<SynthSpec> {
    let fail = |error: SynthError| refuse(py, &error);
    let mut spec = SynthSpec::new(Shape::from_name(shape).map_err(fail)?);
    for (key, value) in params.iter() {
        spec.set(&key.extract::<String>()?, &synth_value(&value)?)
            .map_err(fail)?;
    }
    Ok(spec)
}

fn set_codes(table: &Bound<'_, PyDict>, name: &str, codes: Option<SynthCodes>) -> PyResult<()> {
    if let Some(SynthCodes { codes, names }) = codes {
        table.set_item(name, codes.into_pyarray(table.py()))?;
        table.set_item(format!("{name}_labels"), names)?;
    }
    Ok(())
}

/// Returns users, virtual clusters and noise factors for jobs from another source.
#[pyfunction]
fn synth_extras<'py>(py: Python<'py>, params: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
    let spec = synth_spec(py, Shape::Uniform.name(), params)?;
    let drawn = extras(&spec).map_err(|error| refuse(py, &error))?;
    let table = PyDict::new(py);
    set_codes(&table, "user", drawn.user)?;
    set_codes(&table, "vc", drawn.vc)?;
    if !drawn.noise.is_empty() {
        table.set_item("noise", drawn.noise.into_pyarray(py))?;
    }
    Ok(table)
}

fn drawn<'py>(
    py: Python<'py>,
    (seed, purpose, jobs, counter): (u64, &str, u32, u8),
    law: Law,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let numbers = draws(seed, purpose, jobs, counter, law);
    Ok(numbers
        .map_err(|error| refuse(py, &error))?
        .into_pyarray(py))
}

/// Returns uniform numbers in [0, 1), one per job, from the random stream for the given purpose.
#[pyfunction]
fn synth_uniforms<'py>(
    py: Python<'py>,
    seed: u64,
    purpose: &str,
    jobs: u32,
    counter: u8,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    drawn(py, (seed, purpose, jobs, counter), Law::Uniform)
}

/// Returns exponential numbers with mean 1, one per job, from the random stream for the given purpose.
#[pyfunction]
fn synth_exponentials<'py>(
    py: Python<'py>,
    seed: u64,
    purpose: &str,
    jobs: u32,
    counter: u8,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    drawn(py, (seed, purpose, jobs, counter), Law::Exponential)
}

/// Returns log-normal numbers with median 1, one per job, from the random stream for the given purpose.
#[pyfunction]
fn synth_log_normals<'py>(
    py: Python<'py>,
    seed: u64,
    purpose: &str,
    jobs: u32,
    counter: u8,
    sigma: f64,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    drawn(py, (seed, purpose, jobs, counter), Law::LogNormal { sigma })
}

/// Returns the parameters of a synthetic trace's shape as data.
#[pyfunction]
fn synth_parameters<'py>(py: Python<'py>, shape: &str) -> PyResult<Bound<'py, PyList>> {
    let shape = Shape::from_name(shape).map_err(|error| refuse(py, &error))?;
    let list = PyList::empty(py);
    for Parameter {
        name,
        kind,
        default,
        unit,
        doc,
    } in parameters(shape)
    {
        let row = PyDict::new(py);
        row.set_item("name", name)?;
        row.set_item("kind", kind.name())?;
        match kind {
            ParameterKind::Choice(words) => row.set_item("choices", words.to_vec())?,
            ParameterKind::Int
            | ParameterKind::Float
            | ParameterKind::Models
            | ParameterKind::Shares => {
                row.set_item("choices", py.None())?;
            }
        }
        match default {
            SynthValue::Unset => row.set_item("default", py.None())?,
            SynthValue::Int(value) => row.set_item("default", value)?,
            SynthValue::Float(value) => row.set_item("default", value)?,
            SynthValue::Text(value) => row.set_item("default", value)?,
            SynthValue::Names(value) => row.set_item("default", value)?,
            SynthValue::Models(value) => {
                let models = PyDict::new(py);
                for (name, gpus) in value {
                    models.set_item(name, gpus)?;
                }
                row.set_item("default", models)?;
            }
            SynthValue::Shares(value) => row.set_item("default", value)?,
        }
        row.set_item("unit", unit)?;
        row.set_item("doc", doc)?;
        list.append(row)?;
    }
    Ok(list)
}

/// Returns the mean completion times of two jobs if they run together and if they run one after the other, with the
/// pair rule's threshold and decision.
#[pyfunction]
fn sharing_pair(
    new_s: f64,
    resident_s: f64,
    xi_new: f64,
    xi_resident: f64,
    inflation: f64,
) -> (f64, f64, f64, bool) {
    let pair = Pair {
        new_s,
        resident_s,
        xi_new,
        xi_resident,
        inflation,
    };
    (pair.t_con(), pair.t_seq(), pair.threshold(), pair.shares())
}

/// Returns the block of random numbers for a counter and a key.
#[pyfunction]
fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> (u32, u32, u32, u32) {
    let [a, b, c, d] = gangline_rng::philox4x32(counter, key);
    (a, b, c, d)
}

/// Returns `base` to the power of `exponent`, as the core computes it.
#[pyfunction]
fn pow(base: f64, exponent: f64) -> f64 {
    libm::pow(base, exponent)
}

/// Returns e to the power of `x`, as the core computes it.
#[pyfunction]
fn exp(x: f64) -> f64 {
    libm::exp(x)
}

/// Returns the natural logarithm of `x`, as the core computes it.
#[pyfunction]
fn log(x: f64) -> f64 {
    libm::log(x)
}
