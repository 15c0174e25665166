//! The options of a run, in addition to the cluster, the jobs and the policy.

use crate::EngineError;
use crate::estimates::Estimates;
use crate::run_time::RunTime;
use gangline_model::{
    ClusterSpec, Inflations, Interference, JobId, JobTable, LocalityModel, MAX_SECONDS, RateTable,
    SimSpan, SimTime,
};
use std::ops::Range;
use std::sync::Arc;

/// One failure of a server, which is down from `down` until `up`. If `up` is `SimTime::NEVER`, the server stays down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureRow {
    /// Index of the server.
    pub server: u32,
    /// Time of the failure.
    pub down: SimTime,
    /// Time of the repair.
    pub up: SimTime,
}

/// Source of the failures and repairs.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Failures {
    /// No server ever fails.
    #[default]
    None,
    /// The given rows; the rows of one server must not overlap.
    Table(Vec<FailureRow>),
    /// Every server alternates between up and down periods of exponentially distributed length.
    Random {
        /// Mean time in seconds from a repair to the next failure.
        mtbf_s: f64,
        /// Mean time to repair, in seconds.
        mttr_s: f64,
    },
}

/// Rule for jobs that can never run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnInfeasible {
    /// The run is rejected.
    #[default]
    Error,
    /// The run leaves out these jobs and lists them.
    Drop,
}

/// Rule by which the slowdown factors of a gang's GPUs are combined, if only some of the GPUs are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum GangXi {
    /// The largest slowdown factor among the GPUs of the gang, because training is synchronous.
    #[default]
    Max,
    /// The mean of the factors. It serves to show how much the choice of the rule matters.
    Mean,
}

/// Rule that determines which rows the timeline contains.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum TimelineMode {
    /// One row per change; once there are more than 2^17 rows, they are thinned evenly.
    #[default]
    Auto,
    /// One row per change, without a limit.
    Change,
    /// At most one row per interval of simulated time.
    Sample(SimSpan),
    /// No rows.
    Off,
}

/// Options of a run. `Default` means a run without overheads, failures or segments, in which GPUs are shared only if
/// the policy shares them.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct RunConfig {
    /// Time without progress after a restart or move.
    pub restart: SimSpan,
    /// Time without progress after the first start.
    pub first_start: SimSpan,
    /// Restart time for each model label; overrides `restart` for labelled jobs.
    pub restart_by_model: Option<Vec<SimSpan>>,
    /// Time with progress between two checkpoints; `None` means that a job saves a checkpoint at every preemption, and
    /// at no other time.
    pub checkpoint_interval: Option<SimSpan>,
    /// Maximum number of jobs on one GPU, 1 or 2; the policy's own limit applies as well.
    pub max_share: u32,
    /// Slowdown factors that co-runners impose. A run that may share GPUs cannot start without them.
    pub interference: Option<Interference>,
    /// Whether a job slows its co-runners down while it makes no progress, at its start or in a pause.
    pub overhead_interferes: bool,
    /// Rule by which the slowdown factors of a gang's GPUs are combined.
    pub gang_xi: GangXi,
    /// Share of a job's memory that does not shrink with the sub-batch.
    pub memory_fixed_fraction: f64,
    /// Factors by which several passes with smaller batches lengthen an iteration. If a factor is unknown, `acc_cost`
    /// applies.
    pub inflations: Option<Inflations>,
    /// Cost of a gradient accumulation step: the iteration time is multiplied by 1 + cost x (steps - 1).
    pub acc_cost: f64,
    /// Total gradient size in bytes for each model label, for policies that fork jobs; empty means 0 for every label.
    pub grad_bytes: Vec<f64>,
    /// Locality factors; `None` means 1 everywhere.
    pub locality: Option<Arc<dyn LocalityModel>>,
    /// Failures and repairs.
    pub failures: Failures,
    /// Source of the durations that policies see.
    pub estimates: Estimates,
    /// The `[runtime]` table: the deviations of jobs from the rates that policies know, and the costs for each kind of
    /// job. `None` means that jobs do not deviate, and that `restart`, `first_start` and `restart_by_model` give the
    /// costs.
    pub run_time: Option<Arc<RunTime>>,
    /// Seed for all random draws.
    pub seed: u64,
    /// Rule for jobs that can never run.
    pub on_infeasible: OnInfeasible,
    /// Whether the segments table is recorded.
    pub segments: bool,
    /// Jobs for which the run records why they wait.
    pub watch: Vec<JobId>,
    /// Rule that determines which rows the timeline contains.
    pub timeline: TimelineMode,
    /// Whether the invariants of the run are checked after every instant; a violated invariant panics.
    pub check_invariants: bool,
    /// Whether rounds in which nothing can change are skipped.
    pub skip_rounds: bool,
    /// Instant at which the run stops.
    pub until: Option<SimTime>,
    /// Number of events after which the run stops.
    pub max_events: Option<u64>,
    /// Interval of arrivals: the job metrics in the summary include only jobs that arrive in this interval. `None`
    /// means all jobs.
    pub count_arrivals: Option<Range<SimTime>>,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self {
            restart: SimSpan::ZERO,
            first_start: SimSpan::ZERO,
            restart_by_model: None,
            checkpoint_interval: None,
            max_share: 2,
            interference: None,
            overhead_interferes: true,
            gang_xi: GangXi::Max,
            memory_fixed_fraction: 0.5,
            inflations: None,
            acc_cost: 0.05,
            grad_bytes: Vec::new(),
            locality: None,
            failures: Failures::None,
            estimates: Estimates::Exact,
            run_time: None,
            seed: 0,
            on_infeasible: OnInfeasible::Error,
            segments: false,
            watch: Vec::new(),
            timeline: TimelineMode::Auto,
            check_invariants: cfg!(debug_assertions),
            skip_rounds: true,
            until: None,
            max_events: None,
            count_arrivals: None,
        }
    }
}

impl RunConfig {
    /// Checks the options against the cluster and the jobs.
    ///
    /// # Errors
    /// Returns [`EngineError::Option`], which names the first invalid option.
    pub fn validate(&self, cluster: &ClusterSpec, jobs: &JobTable) -> Result<(), EngineError> {
        let fail = |field, what: String| Err(EngineError::Option { field, what });
        let is_span = |span: SimSpan| span.0 >= 0 && span.seconds() <= MAX_SECONDS;
        if !is_span(self.restart) || !is_span(self.first_start) {
            return fail("restart_s", "overheads must be from 0 to 4e9 s".to_owned());
        }
        if let Some(spans) = &self.restart_by_model {
            if !spans.iter().all(|&span| is_span(span)) {
                return fail(
                    "restart_by_model",
                    "overheads must be from 0 to 4e9 s".to_owned(),
                );
            }
            if spans.len() < jobs.columns().model_labels.len() {
                return fail(
                    "restart_by_model",
                    "one value per model label is needed".to_owned(),
                );
            }
        }
        if self
            .checkpoint_interval
            .is_some_and(|interval| interval.0 <= 0)
        {
            return fail("checkpoint_interval_s", "must be > 0".to_owned());
        }
        if !(1..=2).contains(&self.max_share) {
            return fail(
                "max_share",
                format!("expected 1 or 2, got {}", self.max_share),
            );
        }
        if !(0.0..=1.0).contains(&self.memory_fixed_fraction) {
            return fail("memory_fixed_fraction", "must be in [0, 1]".to_owned());
        }
        if !(self.acc_cost.is_finite() && self.acc_cost >= 0.0) {
            return fail("acc_cost", "must be a finite number >= 0".to_owned());
        }
        let (rows, types) = (jobs.len(), cluster.gpu_types().len());
        let table = self.interference.as_ref();
        if table.is_some_and(|table| !table.covers(rows, types)) {
            let what = format!("the table must have {rows} jobs and {types} GPU types");
            return fail("interference", what);
        }
        let inflations = self.inflations.as_ref();
        if inflations.is_some_and(|table| !table.covers(rows, types)) {
            let what = format!("the table must have {rows} jobs and {types} GPU types");
            return fail("inflations", what);
        }
        if let Some(what) = self.estimates.problem(rows) {
            return fail("estimates", what);
        }
        if let Some(what) = self.run_time.as_ref().and_then(|table| table.problem()) {
            return fail("runtime", what);
        }
        if self.watch.iter().any(|job| job.index() >= rows) {
            return fail(
                "watch",
                format!("every index must be below the number of jobs, {rows}"),
            );
        }
        if matches!(self.timeline, TimelineMode::Sample(span) if span.0 <= 0) {
            return fail("timeline", "the sampling time must be > 0".to_owned());
        }
        self.validate_failures(cluster)
    }

    /// Rejects a run in which jobs may share GPUs although their slowdown factors are unknown.
    pub(crate) fn require_pairs(&self) -> Result<(), EngineError> {
        let Some(table) = &self.interference else {
            let what = "this run puts two jobs on a GPU, and their slowdown factors are unknown; \
                        add a [sharing] table to the cluster, or give one factor for all pairs: \
                        `--set sharing.xi=1.25` on the command line, `sharing={\"xi\": 1.25}` in Python";
            return Err(EngineError::Option {
                field: "sharing",
                what: what.to_owned(),
            });
        };
        if table.absent().is_empty() {
            return Ok(());
        }
        let pairs = table.absent().to_vec();
        Err(EngineError::MissingPairs { pairs })
    }

    fn validate_failures(&self, cluster: &ClusterSpec) -> Result<(), EngineError> {
        let fail = |what: String| {
            Err(EngineError::Option {
                field: "failures",
                what,
            })
        };
        match &self.failures {
            Failures::None => Ok(()),
            Failures::Random { mtbf_s, mttr_s } => {
                let good = |value: f64| value.is_finite() && value > 0.0;
                if good(*mtbf_s) && good(*mttr_s) {
                    Ok(())
                } else {
                    fail("mean times must be positive and finite".to_owned())
                }
            }
            Failures::Table(rows) => {
                let mut sorted = rows.clone();
                sorted.sort_by_key(|row| (row.server, row.down));
                for (at, row) in sorted.iter().enumerate() {
                    if row.server as usize >= cluster.servers().len() {
                        return fail(format!("server {} does not exist", row.server));
                    }
                    let is_late = |time: SimTime| time.seconds() > MAX_SECONDS;
                    if is_late(row.down) || (row.up != SimTime::NEVER && is_late(row.up)) {
                        return fail(format!("server {}: a time is beyond 4e9 s", row.server));
                    }
                    if row.down.0 < 0 || row.up <= row.down {
                        return fail(format!(
                            "server {}: `down` must be at least 0, and `up` later than `down`",
                            row.server
                        ));
                    }
                    let next = sorted.get(at + 1).filter(|next| next.server == row.server);
                    if next.is_some_and(|next| next.down < row.up) {
                        return fail(format!("server {}: two rows overlap", row.server));
                    }
                }
                Ok(())
            }
        }
    }
}

/// The inputs of a run; the runs of a sweep share them.
#[derive(Clone, Debug)]
pub struct World {
    /// The cluster.
    pub cluster: Arc<ClusterSpec>,
    /// The jobs.
    pub jobs: Arc<JobTable>,
    /// Base rates.
    pub rates: Arc<RateTable>,
}
