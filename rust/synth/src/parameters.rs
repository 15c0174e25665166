//! The parameters as data. The documentation, the command line and Python print this data.

use super::error::{SynthError, near_names};
use super::spec::{Shape, SynthSpec};
use super::value::{Given, ParameterKind, SynthValue};

/// A parameter, described as data for the documentation.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Key of the parameter.
    pub name: &'static str,
    /// Kind of value that the parameter accepts.
    pub kind: ParameterKind,
    /// Default for the shape; `Unset` means that the parameter has no effect unless it is set.
    pub default: SynthValue,
    /// Unit; empty if the parameter has no unit.
    pub unit: &'static str,
    /// One sentence that describes the parameter.
    pub doc: &'static str,
}

/// Returns the parameters of a shape, in the order of the documentation.
pub fn parameters(shape: Shape) -> Vec<Parameter> {
    let defaults = SynthSpec::new(shape);
    let here = ROWS.iter().filter(|row| row.shapes.has(shape));
    here.map(|row| Parameter {
        name: row.name,
        kind: row.kind,
        default: (row.default)(&defaults),
        unit: row.unit,
        doc: row.doc,
    })
    .collect()
}

impl SynthSpec {
    /// Sets one parameter by its key.
    ///
    /// # Errors
    /// Returns [`SynthError`] for an unknown key (the error suggests similar keys), a value of the wrong kind, or a
    /// value out of range. In these cases, the spec stays unchanged.
    ///
    /// ```
    /// # use gangline_synth::{Shape, SynthError, SynthSpec, SynthValue};
    /// let mut spec = SynthSpec::new(Shape::Philly);
    /// spec.set("jobs", &SynthValue::Text("500".into()))?;
    /// assert_eq!(spec.jobs, 500);
    /// let error = spec.set("job", &SynthValue::Int(5)).expect_err("no such key");
    /// assert!(error.to_string().contains("did you mean `jobs`?"));
    /// # Ok::<(), SynthError>(())
    /// ```
    pub fn set(&mut self, key: &str, value: &SynthValue) -> Result<(), SynthError> {
        let known = parameters(self.shape);
        let Some(parameter) = known.iter().find(|parameter| parameter.name == key) else {
            return Err(SynthError::UnknownParameter {
                shape: self.shape.name(),
                key: key.to_owned(),
                near: near_names(key, known.iter().map(|parameter| parameter.name)),
            });
        };
        let value = if *value == SynthValue::Unset {
            &parameter.default
        } else {
            value
        };
        let mut next = self.clone();
        next.assign(&Given {
            key: parameter.name,
            kind: parameter.kind,
            value,
        })?;
        next.check_ranges()?;
        *self = next;
        Ok(())
    }

    fn assign(&mut self, given: &Given<'_>) -> Result<(), SynthError> {
        match given.key {
            "jobs" => self.jobs = given.whole(u64::from(u32::MAX))? as u32,
            "seed" => self.seed = given.whole(u64::MAX)?,
            "arrivals" => self.arrivals = given.arrivals()?,
            "rate_per_h" => self.rate_per_h = given.optional(Given::number)?,
            "load" => self.load = given.optional(Given::number)?,
            "cluster_gpus" => self.cluster_gpus = given.optional(Given::count)?,
            "max_gpus" => self.max_gpus = given.optional(Given::count)?,
            "max_duration_s" => self.max_duration_s = given.optional(Given::number)?,
            "users" => self.users = given.count()?,
            "vcs" => self.vcs = given.count()?,
            "models" => self.models = given.models()?,
            "noise" => self.noise = given.number()?,
            "mean_duration_s" => self.mean_duration_s = given.number()?,
            "gang_shares" => self.gang_shares = given.shares()?,
            other => unreachable!("`{other}` is documented but cannot be set"),
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Shapes {
    All,
    Measured,
    Uniform,
}

impl Shapes {
    fn has(self, shape: Shape) -> bool {
        match self {
            Self::All => true,
            Self::Measured => shape != Shape::Uniform,
            Self::Uniform => shape == Shape::Uniform,
        }
    }
}

struct Row {
    name: &'static str,
    shapes: Shapes,
    kind: ParameterKind,
    unit: &'static str,
    default: fn(&SynthSpec) -> SynthValue,
    doc: &'static str,
}

const fn unset(_: &SynthSpec) -> SynthValue {
    SynthValue::Unset
}

fn arrivals(defaults: &SynthSpec) -> SynthValue {
    SynthValue::Text(defaults.arrivals.name().to_owned())
}

const ROWS: &[Row] = &[
    Row {
        name: "jobs",
        shapes: Shapes::All,
        kind: ParameterKind::Int,
        unit: "jobs",
        default: |spec| SynthValue::Int(spec.jobs.into()),
        doc: "Number of jobs.",
    },
    Row {
        name: "seed",
        shapes: Shapes::All,
        kind: ParameterKind::Int,
        unit: "",
        default: |spec| SynthValue::Int(spec.seed.into()),
        doc: "Seed of all streams.",
    },
    Row {
        name: "arrivals",
        shapes: Shapes::Measured,
        kind: ParameterKind::Choice(&["batch", "poisson", "diurnal"]),
        unit: "",
        default: arrivals,
        doc: "Arrivals: all at time 0, with exponential gaps, or in bursts that follow the hour and the weekday.",
    },
    Row {
        name: "arrivals",
        shapes: Shapes::Uniform,
        kind: ParameterKind::Choice(&["batch", "poisson"]),
        unit: "",
        default: arrivals,
        doc: "Arrivals: all at time 0, or with exponential gaps.",
    },
    Row {
        name: "rate_per_h",
        shapes: Shapes::All,
        kind: ParameterKind::Float,
        unit: "jobs/h",
        default: unset,
        doc: "Mean arrival rate; the default without `load` is: philly 31.5, helios 29, \
              pai 39.3, uniform 60.",
    },
    Row {
        name: "load",
        shapes: Shapes::All,
        kind: ParameterKind::Float,
        unit: "",
        default: unset,
        doc: "Offered load: GPU-seconds of the drawn jobs, divided by the GPU-seconds that `cluster_gpus` GPUs \
              provide from the first to the last arrival; determines the arrival rate.",
    },
    Row {
        name: "cluster_gpus",
        shapes: Shapes::All,
        kind: ParameterKind::Int,
        unit: "GPUs",
        default: unset,
        doc: "Number of GPUs in the cluster to which `load` refers; larger gangs are drawn again.",
    },
    Row {
        name: "max_gpus",
        shapes: Shapes::All,
        kind: ParameterKind::Int,
        unit: "GPUs",
        default: unset,
        doc: "Maximum gang size; larger gangs are drawn again up to 100 times, then reduced to a size that fits.",
    },
    Row {
        name: "max_duration_s",
        shapes: Shapes::All,
        kind: ParameterKind::Float,
        unit: "s",
        default: unset,
        doc: "Maximum duration; longer durations are capped and counted.",
    },
    Row {
        name: "users",
        shapes: Shapes::All,
        kind: ParameterKind::Int,
        unit: "",
        default: |spec| SynthValue::Int(spec.users.into()),
        doc: "Number of users, whose frequencies follow Zipf's law with exponent 1.2; 0 = no column.",
    },
    Row {
        name: "vcs",
        shapes: Shapes::All,
        kind: ParameterKind::Int,
        unit: "",
        default: |spec| SynthValue::Int(spec.vcs.into()),
        doc: "Number of virtual clusters, whose frequencies follow Zipf's law with exponent 1.2; 0 = no column.",
    },
    Row {
        name: "models",
        shapes: Shapes::All,
        kind: ParameterKind::Models,
        unit: "",
        default: |_| SynthValue::Names(Vec::new()),
        doc: "Models; each job's model is drawn uniformly from the models with an entry for its number of GPUs.",
    },
    Row {
        name: "noise",
        shapes: Shapes::All,
        kind: ParameterKind::Float,
        unit: "",
        default: |spec| SynthValue::Float(spec.noise),
        doc: "Durations are multiplied by exp(noise z), where z is standard normal; this preserves the median.",
    },
    Row {
        name: "mean_duration_s",
        shapes: Shapes::Uniform,
        kind: ParameterKind::Float,
        unit: "s",
        default: |spec| SynthValue::Float(spec.mean_duration_s),
        doc: "Mean of the exponential durations.",
    },
    Row {
        name: "gang_shares",
        shapes: Shapes::Uniform,
        kind: ParameterKind::Shares,
        unit: "",
        default: |spec| SynthValue::Shares(spec.gang_shares.clone()),
        doc: "Gang sizes and their weights.",
    },
];
