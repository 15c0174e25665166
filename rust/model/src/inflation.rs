//! The factor by which a job's iterations become longer if its batch is divided among several passes. All factors are
//! computed before the run.

use crate::{GpuTypeId, JobId, ModelError, StepFit};

/// Ratios of the iteration time with several passes to the iteration time with one pass. There is one ratio for each
/// combination of job class, GPU type, number of passes and spread of the gang.
///
/// All jobs of a class have the same model, batch size and gang size.
#[derive(Clone, Debug, PartialEq)]
pub struct Inflations {
    /// For each type, the number of GPUs on its largest server.
    largest: Vec<u32>,
    /// Class of each job; `u32::MAX` means that the job has no class.
    of_job: Vec<u32>,
    /// `rows[class][type]`; `None` means unknown.
    rows: Vec<Option<Row>>,
}

/// Ratios for 1, 2, ... passes, up to one sample per pass, for a gang on one server and for a gang on several servers.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    /// Whether the gang fits on a server of the type.
    is_inside: bool,
    inside: Vec<f64>,
    across: Vec<f64>,
}

/// Properties of the jobs of one class.
#[derive(Clone, Debug, PartialEq)]
pub struct InflationClass {
    /// Number of samples per GPU, >= 1.
    pub batch_size: u32,
    /// Gang size, >= 1.
    pub gpus: u32,
    /// Iteration times on each GPU type; `None` means unknown.
    pub times: Vec<Option<IterationTimes>>,
}

/// Source of the iteration times of a class.
#[derive(Clone, Debug, PartialEq)]
pub enum IterationTimes {
    /// The times come from a fit.
    Fit(StepFit),
    /// Measured ratios of the iteration time with 1, 2, ... passes to the iteration time with one pass. Each ratio is
    /// at least 1; NaN means unknown.
    Ratios(Vec<f64>),
}

impl Inflations {
    /// Computes the table; `largest` is the number of GPUs on the largest server of each type.
    ///
    /// # Errors
    /// Returns [`ModelError::Table`] if a job names a class that does not exist, if a class does not have one entry per
    /// type, or if an iteration time is zero or not finite.
    pub fn new(
        of_job: Vec<u32>,
        classes: &[InflationClass],
        largest: Vec<u32>,
    ) -> Result<Self, ModelError> {
        let fail = |what: String| {
            Err(ModelError::Table {
                table: "iteration times",
                what,
            })
        };
        let named = of_job.iter().filter(|&&class| class != u32::MAX);
        if let Some(bad) = named
            .max()
            .filter(|&&class| class as usize >= classes.len())
        {
            return fail(format!(
                "a job names class {bad}, but the number of classes is {}",
                classes.len()
            ));
        }
        let types = largest.len();
        let mut rows = Vec::with_capacity(classes.len() * types);
        for class in classes {
            if class.times.len() != types {
                return fail(format!(
                    "expected one entry for each of {types} GPU types, got {}",
                    class.times.len()
                ));
            }
            for (times, &largest) in class.times.iter().zip(&largest) {
                let is_inside = class.gpus <= largest;
                let row = times.as_ref().map(|times| match times {
                    IterationTimes::Fit(fit) => Row {
                        is_inside,
                        inside: of_passes(fit, class, 1),
                        across: of_passes(fit, class, 2),
                    },
                    IterationTimes::Ratios(ratios) => Row {
                        is_inside,
                        inside: ratios.clone(),
                        across: ratios.clone(),
                    },
                });
                let is_fit = matches!(times, Some(IterationTimes::Fit(_)));
                let is_bad = |value: &f64| {
                    if value.is_nan() {
                        is_fit
                    } else {
                        !(value.is_finite() && *value >= 1.0)
                    }
                };
                let mut values = row
                    .iter()
                    .flat_map(|row| row.inside.iter().chain(&row.across));
                if values.any(is_bad) {
                    return fail("an iteration time is 0 or not finite".to_owned());
                }
                rows.push(row);
            }
        }
        Ok(Self {
            largest,
            of_job,
            rows,
        })
    }

    /// Returns whether the table's dimensions match this number of jobs and GPU types.
    pub fn covers(&self, jobs: usize, types: usize) -> bool {
        self.of_job.len() == jobs && self.largest.len() == types
    }

    /// Returns the ratio of the iteration time with `passes` passes to the iteration time with one pass, or `None` if
    /// it is unknown for this job and type. If the number of servers is not given, the gang is assumed to be on as few
    /// servers as possible.
    #[inline]
    pub fn of(
        &self,
        job: JobId,
        gpu_type: GpuTypeId,
        servers: Option<usize>,
        passes: u32,
    ) -> Option<f64> {
        let class = self.of_job[job.index()];
        if class == u32::MAX {
            return None;
        }
        let types = self.largest.len();
        let row = self.rows[class as usize * types + gpu_type.index()].as_ref()?;
        let is_inside = servers.map_or(row.is_inside, |servers| servers <= 1);
        let values = if is_inside { &row.inside } else { &row.across };
        let value = values.get(passes as usize - 1).copied();
        value.filter(|value| !value.is_nan())
    }
}

/// Returns the ratio for each number of passes. Each ratio is at least 1, because more passes never count as faster.
fn of_passes(fit: &StepFit, class: &InflationClass, servers: u32) -> Vec<f64> {
    let batch = class.batch_size;
    let whole_s = fit.step_s(class.gpus, servers, batch, 0);
    (1..=batch)
        .map(|passes| {
            let step_s = fit.step_s(class.gpus, servers, batch.div_ceil(passes), passes - 1);
            let ratio = step_s / whole_s;
            if ratio < 1.0 { 1.0 } else { ratio }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pass takes 0.1 s plus 0.01 s per sample. Synchronisation takes 0.2 s within a server and 2 s across servers.
    fn class() -> InflationClass {
        let fit = StepFit {
            pass_s: [0.1, 0.01],
            servers_s: [2.0, 0.0],
            server_s: [0.2, 0.0],
            gamma: 2.0,
        };
        InflationClass {
            batch_size: 32,
            gpus: 2,
            times: vec![Some(IterationTimes::Fit(fit)), None],
        }
    }

    #[test]
    fn hand_computed_inflations() {
        let table = Inflations::new(vec![0, u32::MAX], &[class()], vec![4, 1]).expect("valid");
        let of = |job, kind, servers, passes| {
            table.of(JobId(job), GpuTypeId::new(kind), servers, passes)
        };
        for (passes, expected) in [(1, 1.0), (2, 1.264_057), (4, 1.739_237), (8, 2.631_475)] {
            let found = of(0, 0, Some(1), passes).expect("known");
            assert!((found - expected).abs() < 5e-7, "{found}");
        }
        assert_eq!(
            of(0, 0, None, 8),
            of(0, 0, Some(1), 8),
            "it fits one server"
        );
        let across = of(0, 0, Some(3), 8).expect("known");
        assert!(
            across < 1.5,
            "the longer synchronisation is paid once: {across}"
        );
        assert!(of(0, 0, Some(1), 32).is_some() && of(0, 0, Some(1), 33).is_none());
        assert_eq!([of(0, 1, None, 2), of(1, 0, Some(1), 2)], [None, None]);
        assert!(table.covers(2, 2) && !table.covers(2, 1) && !table.covers(1, 2));
    }

    #[test]
    fn measured_passes_are_known_where_they_are_measured() {
        let measured = |ratios| {
            let mut class = class();
            class.times[0] = Some(IterationTimes::Ratios(ratios));
            Inflations::new(vec![0], &[class], vec![1, 1])
        };
        let table = measured(vec![1.0, 1.25, f64::NAN, 1.5]).expect("valid");
        let of = |servers, passes| table.of(JobId(0), GpuTypeId::new(0), servers, passes);
        assert_eq!(
            [of(Some(1), 2), of(Some(2), 2), of(None, 4)],
            [Some(1.25), Some(1.25), Some(1.5)]
        );
        assert_eq!([of(None, 3), of(None, 5)], [None, None]);
        assert!(measured(vec![1.0, 0.9]).is_err(), "faster in more passes");
    }

    #[test]
    fn bad_tables_are_refused() {
        assert!(
            Inflations::new(vec![1], &[class()], vec![4, 1]).is_err(),
            "no such class"
        );
        assert!(
            Inflations::new(vec![0], &[class()], vec![4]).is_err(),
            "two fits, one type"
        );
        let mut nothing = class();
        nothing.times[0] = Some(IterationTimes::Fit(StepFit {
            pass_s: [0.0, 0.0],
            servers_s: [0.0, 0.0],
            server_s: [0.0, 0.0],
            gamma: 1.0,
        }));
        assert!(Inflations::new(vec![0], &[nothing], vec![4, 1]).is_err());
    }
}
