//! The registry as data. `scripts/registry.py` writes code and tables from it, and tests draw parameters from it.

use crate::error::CoreError;
use crate::options;
use crate::output::reason_row;
use gangline_allocation::OfParts;
use gangline_engine::Knowledge;
use gangline_engine::PolicyError;
use gangline_policies::{ParamDefault, ParamKind, ParamSpec, Params, PolicyInfo, Services};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// Whether the tests' toy policies can be run; releases do not contain them.
const HAS_TOYS: bool = cfg!(debug_assertions);

pub(crate) fn find(name: &str) -> Result<&'static PolicyInfo, PolicyError> {
    if HAS_TOYS {
        gangline_testkit::find(name)
    } else {
        gangline_policies::find(name)
    }
}

/// Rejects parameters that no run of the policy would accept.
#[pyfunction]
pub(crate) fn check_policy(name: &str, params: &Bound<'_, PyDict>) -> PyResult<()> {
    let values = options::params(params)?;
    let info = find(name).map_err(CoreError::from)?;
    let built = info.build(&values, Services::default());
    Ok(built.map(drop).map_err(CoreError::from)?)
}

/// Returns the policies in the order in which lists show them. Development builds add the toy policies, marked as
/// hidden.
#[pyfunction]
pub(crate) fn registry(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for info in gangline_policies::POLICIES.iter() {
        list.append(policy(py, info, false)?)?;
    }
    if HAS_TOYS {
        for info in gangline_testkit::TOYS {
            list.append(policy(py, info, true)?)?;
        }
    }
    Ok(list)
}

fn policy<'py>(
    py: Python<'py>,
    info: &PolicyInfo,
    is_hidden: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("name", info.name)?;
    row.set_item("summary", info.summary)?;
    row.set_item("family", info.family)?;
    row.set_item("source", info.source)?;
    let knowledge = match info.knowledge {
        Knowledge::Online => "online",
        Knowledge::Remaining => "remaining",
    };
    row.set_item("knowledge", knowledge)?;
    row.set_item("durations", durations(info))?;
    row.set_item("durations_with", info.reads_durations_with)?;
    row.set_item("stops", info.stops.name())?;
    row.set_item("work_conserving", info.is_work_conserving)?;
    row.set_item("allocator", info.solves())?;
    row.set_item("allocates", info.objective.is_some())?;
    let of_parts = info.default_objective().and_then(|own| own.of_parts());
    row.set_item("of_parts", of_parts.map(OfParts::name))?;
    let premises = PyList::empty(py);
    for premise in info.premises {
        let entry = PyDict::new(py);
        entry.set_item("fact", premise.fact.name())?;
        entry.set_item("mechanism", premise.mechanism)?;
        if let Some((parameter, value)) = premise.only_if {
            entry.set_item("parameter", parameter)?;
            set_default(&entry, "value", value)?;
        }
        premises.append(entry)?;
    }
    row.set_item("premises", premises)?;
    row.set_item("hidden", is_hidden)?;
    row.set_item("page", info.page())?;
    row.set_item("always_shown", info.always_shown.to_vec())?;
    let presets = PyDict::new(py);
    for preset in info.presets {
        let params = PyDict::new(py);
        for (name, value) in preset.params {
            set_default(&params, name, *value)?;
        }
        presets.set_item(preset.name, params)?;
    }
    row.set_item("presets", presets)?;
    let own = info.own.len();
    let parameters = PyList::empty(py);
    for (at, spec) in info.parameters().enumerate() {
        parameters.append(parameter(py, &spec, at >= own)?)?;
    }
    row.set_item("parameters", parameters)?;
    let built = info.build(&Params::new(), Services::default());
    let policy = built.map_err(CoreError::from)?;
    let reasons = policy.reasons();
    let reasons = reasons.iter().map(|reason| reason_row(py, reason));
    row.set_item("reasons", reasons.collect::<PyResult<Vec<_>>>()?)?;
    Ok(row)
}

/// Returns what a policy knows about durations, as in the table of policies.
fn durations(info: &PolicyInfo) -> &'static str {
    match (info.reads_durations, info.knowledge) {
        (false, _) => "no",
        (true, Knowledge::Online) => "their distribution",
        (true, Knowledge::Remaining) => "yes",
    }
}

fn parameter<'py>(
    py: Python<'py>,
    spec: &ParamSpec,
    is_placement: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let (kind, rule, bound) = kind_names(spec.kind);
    let row = PyDict::new(py);
    row.set_item("name", spec.name)?;
    row.set_item("kind", kind)?;
    row.set_item("rule", rule)?;
    row.set_item("bound", bound)?;
    row.set_item("expected", spec.kind.expected())?;
    if let ParamKind::Choice(words) | ParamKind::Words(words) = spec.kind {
        row.set_item("choices", words.to_vec())?;
    }
    if let ParamKind::Named(kind) = spec.kind {
        row.set_item(
            "each",
            parameter(
                py,
                &ParamSpec {
                    kind: *kind,
                    ..*spec
                },
                false,
            )?,
        )?;
    }
    if let ParamKind::Tables(keys) = spec.kind {
        let keys = keys.iter().map(|key| parameter(py, key, false));
        row.set_item("keys", keys.collect::<PyResult<Vec<_>>>()?)?;
    }
    set_default(&row, "default", spec.default)?;
    row.set_item("unit", spec.unit)?;
    row.set_item("doc", spec.doc)?;
    row.set_item("placement", is_placement)?;
    row.set_item("outlasts_restarts", spec.outlasts_restarts)?;
    Ok(row)
}

fn set_default(row: &Bound<'_, PyDict>, key: &str, value: ParamDefault) -> PyResult<()> {
    match value {
        ParamDefault::None => row.set_item(key, row.py().None()),
        ParamDefault::Bool(value) => row.set_item(key, value),
        ParamDefault::Int(value) => row.set_item(key, value),
        ParamDefault::Float(value) => row.set_item(key, value),
        ParamDefault::Str(value) => row.set_item(key, value),
        ParamDefault::List(values) => row.set_item(key, values.to_vec()),
        ParamDefault::Words(values) => row.set_item(key, values.to_vec()),
    }
}

/// Returns the kind of a value, its rule, and the number in the rule.
fn kind_names(kind: ParamKind) -> (&'static str, &'static str, Option<f64>) {
    match kind {
        ParamKind::Bool => ("bool", "bool", None),
        ParamKind::AtLeast(least) => ("number", "at_least", Some(least)),
        ParamKind::Above(bound) => ("number", "above", Some(bound)),
        ParamKind::Whole(least) => ("number", "whole", Some(least)),
        ParamKind::Maybe(least) => ("number", "maybe", Some(least)),
        ParamKind::MaybeWhole(least) => ("number", "maybe_whole", Some(least)),
        ParamKind::Share => ("number", "share", None),
        ParamKind::Fraction => ("number", "fraction", None),
        ParamKind::Choice(_) => ("choice", "choice", None),
        ParamKind::Text => ("text", "text", None),
        ParamKind::Increasing => ("numbers", "increasing", None),
        ParamKind::Positives => ("numbers", "positives", None),
        ParamKind::NamedShares => ("shares", "shares", None),
        ParamKind::NamedWeights => ("weights", "weights", None),
        ParamKind::Named(_) => ("named", "named", None),
        ParamKind::Names => ("names", "names", None),
        ParamKind::Words(_) => ("names", "words", None),
        ParamKind::Tables(_) => ("tables", "tables", None),
    }
}
