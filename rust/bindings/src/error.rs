//! One table maps all errors of the lower crates to Python exceptions. The exceptions' attributes contain the facts.
//! There is no catch-all arm, so a new variant does not compile until it is mapped.

use gangline_engine::{EngineError, PlanError, PolicyError};
use gangline_model::{ActionKind, ModelError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// An error that is converted to a Python exception.
pub(crate) struct CoreError(pub(crate) EngineError);

impl From<EngineError> for CoreError {
    fn from(error: EngineError) -> Self {
        Self(error)
    }
}

impl From<ModelError> for CoreError {
    fn from(error: ModelError) -> Self {
        Self(error.into())
    }
}

impl From<PolicyError> for CoreError {
    fn from(error: PolicyError) -> Self {
        Self(error.into())
    }
}

impl From<CoreError> for PyErr {
    fn from(error: CoreError) -> Self {
        Python::attach(|py| match map(py, &error.0) {
            Ok(raised) => raised,
            Err(broken) => broken,
        })
    }
}

/// Returns an exception of class `name` of `gangline.errors`, with a message and facts.
pub(crate) fn raise(
    py: Python<'_>,
    name: &str,
    message: &str,
    facts: &Bound<'_, PyDict>,
) -> PyResult<PyErr> {
    let class = py.import("gangline.errors")?.getattr(name)?;
    Ok(PyErr::from_value(class.call((message,), Some(facts))?))
}

fn map(py: Python<'_>, error: &EngineError) -> PyResult<PyErr> {
    let facts = PyDict::new(py);
    let message = error.to_string();
    match error {
        EngineError::Model(error) => map_model(py, error, &facts),
        EngineError::Plan(error) => map_plan(py, error, &facts),
        EngineError::Policy(error) => map_policy(py, error, &facts),
        EngineError::Infeasible { jobs } => {
            facts.set_item("job", jobs[0].job.0)?;
            facts.set_item("reason", jobs[0].reason.text())?;
            facts.set_item(
                "jobs",
                jobs.iter().map(|entry| entry.job.0).collect::<Vec<_>>(),
            )?;
            raise(py, "InfeasibleJobError", &message, &facts)
        }
        EngineError::Stalled {
            time,
            waiting,
            paused,
            jobs,
        } => {
            facts.set_item("time_s", time.seconds())?;
            facts.set_item("waiting", waiting)?;
            facts.set_item("paused", paused)?;
            facts.set_item("reason", "no_event")?;
            facts.set_item("jobs", jobs.iter().map(|job| job.0).collect::<Vec<_>>())?;
            raise(py, "StalledError", &message, &facts)
        }
        EngineError::Livelock { time, open, jobs }
        | EngineError::Undone { time, open, jobs }
        | EngineError::Endless { time, open, jobs } => {
            facts.set_item("time_s", time.seconds())?;
            facts.set_item("open", open)?;
            let reason = match error {
                EngineError::Livelock { .. } => "preemptions",
                EngineError::Undone { .. } => "failures",
                _ => "end_of_time",
            };
            facts.set_item("reason", reason)?;
            facts.set_item("jobs", jobs.iter().map(|job| job.0).collect::<Vec<_>>())?;
            raise(py, "StalledError", &message, &facts)
        }
        EngineError::MissingPairs { pairs } => {
            facts.set_item("key", "sharing")?;
            facts.set_item("value", pairs)?;
            facts.set_item(
                "expected",
                "a slowdown factor for every pair of models in the trace",
            )?;
            raise(py, "ClusterError", &message, &facts)
        }
        EngineError::OutOfMemory { time, segments } => {
            facts.set_item("time_s", time.seconds())?;
            facts.set_item("segments", segments)?;
            raise(py, "OutOfMemoryError", &message, &facts)
        }
        EngineError::Option { field, what: _ } => {
            facts.set_item("field", field)?;
            raise(py, "OptionError", &message, &facts)
        }
        EngineError::Step { what } => Ok(PyValueError::new_err(*what)),
    }
}

fn map_model(py: Python<'_>, error: &ModelError, facts: &Bound<'_, PyDict>) -> PyResult<PyErr> {
    let message = error.to_string();
    match error {
        ModelError::Time { seconds } => {
            facts.set_item("value", seconds)?;
            raise(py, "TraceError", &message, facts)
        }
        ModelError::Job {
            job,
            field,
            value,
            expected,
        } => {
            facts.set_item("job", job)?;
            facts.set_item("column", field)?;
            facts.set_item("value", value)?;
            facts.set_item("expected", expected)?;
            raise(py, "TraceError", &message, facts)
        }
        ModelError::Length {
            column,
            found: _,
            expected: _,
        } => {
            facts.set_item("column", column)?;
            raise(py, "TraceError", &message, facts)
        }
        ModelError::Cluster { what: _ } => raise(py, "ClusterError", &message, facts),
        ModelError::Server { server, what: _ } => {
            facts.set_item("server", server)?;
            raise(py, "ClusterError", &message, facts)
        }
        ModelError::Network {
            key,
            value,
            expected,
        } => {
            facts.set_item("key", format!("network.{key}"))?;
            facts.set_item("value", value)?;
            facts.set_item("expected", expected)?;
            raise(py, "NetworkError", &message, facts)
        }
        ModelError::UnknownModel { jobs, count, label } => {
            facts.set_item("key", "network.models")?;
            facts.set_item("model", label)?;
            facts.set_item("count", count)?;
            facts.set_item("jobs", jobs.iter().map(|job| job.0).collect::<Vec<_>>())?;
            raise(py, "UnknownModel", &message, facts)
        }
        ModelError::MissingThroughput {
            job,
            gpu_type,
            model,
            gpus,
        } => {
            facts.set_item("key", "throughput.rows")?;
            facts.set_item("job", job.0)?;
            facts.set_item("gpu_type", gpu_type)?;
            facts.set_item("model", model)?;
            facts.set_item("gpus", gpus)?;
            raise(py, "MissingThroughput", &message, facts)
        }
        ModelError::Table { table, what: _ } => {
            facts.set_item("key", table)?;
            raise(py, "ClusterError", &message, facts)
        }
    }
}

fn map_plan(py: Python<'_>, error: &PlanError, facts: &Bound<'_, PyDict>) -> PyResult<PyErr> {
    let name = if error.kind == ActionKind::Timer {
        "tag"
    } else {
        "job"
    };
    facts.set_item(name, error.job.0)?;
    facts.set_item("action", action_name(error.kind))?;
    facts.set_item("server", error.server.map(|server| server.0))?;
    facts.set_item("rule", error.rule.name())?;
    facts.set_item("time_s", error.time.seconds())?;
    facts.set_item("decision", error.decision)?;
    raise(py, "PlanError", &error.to_string(), facts)
}

fn action_name(kind: ActionKind) -> String {
    kind.to_string()
}

fn map_policy(py: Python<'_>, error: &PolicyError, facts: &Bound<'_, PyDict>) -> PyResult<PyErr> {
    let message = error.to_string();
    match error {
        PolicyError::Parameter {
            policy,
            field,
            value,
            expected,
        } => {
            facts.set_item("policy", policy)?;
            facts.set_item("field", field)?;
            facts.set_item("value", value)?;
            facts.set_item("expected", expected)?;
            raise(py, "PolicyError", &message, facts)
        }
        PolicyError::UnknownPolicy { name, nearest } => {
            facts.set_item("policy", name)?;
            facts.set_item("nearest", nearest)?;
            raise(py, "PolicyError", &message, facts)
        }
        PolicyError::NotAllowedToKnow { job } => {
            facts.set_item("job", job.0)?;
            raise(py, "PolicyError", &message, facts)
        }
        PolicyError::MissingDuration { policy, jobs } => {
            facts.set_item("policy", policy)?;
            facts.set_item("count", jobs)?;
            raise(py, "MissingDuration", &message, facts)
        }
        PolicyError::Failed { message: _ } => raise(py, "PolicyError", &message, facts),
    }
}
