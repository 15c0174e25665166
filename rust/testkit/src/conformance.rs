//! Checks that every policy must pass, on random worlds. A world is a cluster with jobs, drawn from a seed.
//!
//! [`check`] runs a policy on a random world with all invariant checks of the engine enabled, and performs these
//! further checks:
//!
//! - Every job ends.
//! - The same seed gives the same run.
//! - A step-by-step run equals a run in one call.
//! - Skipping rounds does not change the results.
//! - A policy that is declared work-conserving lets no job wait if a GPU type has enough free GPUs for the job.
//!
//! The messages of failed checks name the seed.

mod draws;
mod elastic;

pub use draws::{Numbers, QUEUES, draw_params};

use gangline_engine::{
    Advance, ClusterView, Control, Engine, EngineError, FailureRow, Failures, OnInfeasible,
    Outcome, Output, Phase, Policy, RunConfig, Silent, World,
};
use gangline_model::{
    ClusterSpec, GpuType, GpuTypeId, Interference, JobColumns, JobId, JobTable, Label,
    LocalityModel, RackId, RateTable, Server, SimSpan, SimTime, TierTable,
};
use gangline_network::{Contention, LinkChange, ModelGiven, Network, NetworkConfig};
use std::sync::Arc;

/// A world (the cluster, the jobs and their rates), and the options of a run in it.
#[derive(Clone, Debug)]
pub struct Case {
    /// Cluster, jobs and rates.
    pub world: World,
    /// Options; invariant checks and segments are enabled.
    pub config: RunConfig,
}

/// Limits on the contents of a random world.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// Maximum number of GPU types.
    pub types: u64,
    /// Maximum number of jobs.
    pub jobs: u64,
    /// Whether the world has failures, overheads, locality factors and checkpoints. All of these make a run deviate
    /// from its plan.
    pub has_trouble: bool,
    /// Whether the world has checkpoint intervals. With such intervals, a policy that keeps preempting jobs might never
    /// let a job finish.
    pub has_checkpoints: bool,
    /// Maximum gang size.
    pub gangs_max: u64,
    /// Whether some jobs are elastic. If so, jobs do not share uplinks.
    pub has_elastic: bool,
}

impl Default for Scope {
    fn default() -> Self {
        Self {
            types: 3,
            jobs: 40,
            has_trouble: true,
            has_checkpoints: true,
            gangs_max: 12,
            has_elastic: false,
        }
    }
}

const GIB: u64 = 1 << 30;
/// Offset from the seed of a world to the seed of its extras.
const EXTRAS: u64 = 3_000_000_000;
/// Offset from the seed of a world to the seed of its elastic jobs.
const ELASTIC: u64 = 6_000_000_000;
const MODELS: [&str; 3] = ["vgg16", "resnet50", "bert"];

/// Draws the world for a seed.
///
/// # Panics
/// This function never panics, because every drawn value is valid.
pub fn draw(seed: u64, scope: Scope) -> Case {
    let mut numbers = Numbers::new(seed);
    // The extras use separate random numbers, so that the rest of a world is the same with and without extras.
    let mut extras = Numbers::new(seed.wrapping_add(EXTRAS));
    let cluster = Arc::new(draw_cluster(&mut numbers, &mut extras, scope));
    let jobs = draw_jobs(&mut numbers, &cluster, scope);
    let mut columns = more_columns(&mut extras, &cluster, jobs);
    let elastic = scope.has_elastic.then(|| {
        let mut numbers = Numbers::new(seed.wrapping_add(ELASTIC));
        elastic::draw(&mut numbers, &mut columns)
    });
    let jobs = Arc::new(JobTable::new(columns).expect("valid"));
    let mut rates = RateTable::from_speeds(&cluster);
    if let Some(table) = elastic {
        rates = rates
            .with_elastic(Arc::new(table), &jobs)
            .expect("a row per job");
    }
    let rates = Arc::new(rates);
    let mut config = RunConfig {
        check_invariants: true,
        segments: true,
        seed,
        on_infeasible: OnInfeasible::Drop,
        max_events: Some(1_000_000),
        interference: Some(draw_interference(
            &mut extras,
            &jobs,
            cluster.gpu_types().len(),
        )),
        ..RunConfig::default()
    };
    if scope.has_trouble {
        trouble(&mut numbers, &cluster, &mut config);
        if extras.once_in(3) && !scope.has_elastic {
            config.locality = Some(contended(&cluster, extras.pick(&[2e8, 1e9, 1e10])));
        }
        config.checkpoint_interval = config.checkpoint_interval.filter(|_| scope.has_checkpoints);
    }
    Case {
        world: World {
            cluster,
            jobs,
            rates,
        },
        config,
    }
}

/// Draws slowdown factors that co-runners impose. Either the factor is the same for every pair, or it depends on the
/// labels and the GPU type, and some pairs may not share GPUs.
fn draw_interference(extras: &mut Numbers, jobs: &JobTable, types: usize) -> Interference {
    if extras.once_in(2) {
        return Interference::constant(1.25, types).expect(">= 1");
    }
    let none = MODELS.len() as u32;
    let of_job = jobs
        .ids()
        .map(|job| jobs.model(job).unwrap_or(none))
        .collect();
    let classes = MODELS.len() + 1;
    let xi = (0..types * classes * classes)
        .map(|_| extras.pick(&[1.0, 1.1, 1.25, 1.5, 1.9, 3.0, f64::NAN]))
        .collect();
    Interference::by_class(of_job, classes, xi).expect("squares of numbers >= 1")
}

/// Creates a network in which gangs across racks share uplinks of this bandwidth, in bytes/s.
///
/// # Panics
/// This function never panics, because the numbers are valid.
pub fn contended(cluster: &ClusterSpec, uplink_bw: f64) -> Arc<dyn LocalityModel> {
    let model = |compute_s: f64| ModelGiven {
        compute_s,
        grad_bytes: 4e8,
        buckets: 9,
        ..ModelGiven::default()
    };
    let mut tiers = [LinkChange::default(); 3];
    tiers[2].uplink_bw = Some(uplink_bw);
    let config = NetworkConfig {
        preset: Some("pcie-25g".to_owned()),
        models: vec![
            ("m".to_owned(), model(1.0)),
            (MODELS[0].to_owned(), model(0.2)),
        ],
        default_model: Some("m".to_owned()),
        contention: Contention::MaxMin,
        tiers,
        ..NetworkConfig::default()
    };
    let labels = MODELS.map(ToString::to_string);
    Arc::new(Network::new(&config, cluster, &labels).expect("a network"))
}

fn draw_cluster(numbers: &mut Numbers, extras: &mut Numbers, scope: Scope) -> ClusterSpec {
    let types = 1 + numbers.below(scope.types);
    let has_memory = extras.once_in(2);
    let gpu_types = (0..types)
        .map(|index| GpuType {
            name: format!("type{index}"),
            memory_bytes: if has_memory {
                extras.pick(&[16, 24, 40]) * GIB
            } else {
                u64::MAX
            },
            price_per_hour: 0.0,
            speed: numbers.pick(&[1.0, 1.0, 2.0, 0.5]),
        })
        .collect();
    let (racks, size) = (1 + numbers.below(3), numbers.pick(&[1, 2, 4, 8]));
    let servers = (0..types.max(1 + numbers.below(6)))
        .map(|index| Server {
            gpu_type: GpuTypeId((index % types) as u32),
            gpus: if numbers.once_in(6) { 3 } else { size },
            rack: RackId(numbers.below(racks) as u32),
        })
        .collect();
    ClusterSpec::new(gpu_types, servers).expect("a valid cluster")
}

fn draw_jobs(numbers: &mut Numbers, cluster: &ClusterSpec, scope: Scope) -> JobColumns {
    let count = 1 + numbers.below(scope.jobs);
    let gap = numbers.pick(&[0, 1, 5, 40]);
    let is_whole = !numbers.once_in(3);
    let types = cluster.gpu_types().len() as u64;
    let mixes_allowed = numbers.once_in(2);
    let mut columns = JobColumns {
        model_labels: MODELS.iter().map(ToString::to_string).collect(),
        ..JobColumns::default()
    };
    let (mut models, mut allowed, mut now) = (Vec::new(), Vec::new(), 0_u64);
    for _ in 0..count {
        now += numbers.below(gap + 1);
        columns.arrival.push(SimTime(now as i64 * 1_000_000_000));
        let gang = if numbers.once_in(2) {
            1
        } else {
            1 + numbers.below(scope.gangs_max)
        };
        columns.gpus.push(gang as u32);
        let seconds = 1 + numbers.below(60);
        let work = if is_whole {
            seconds as f64
        } else {
            seconds as f64 / 7.0
        };
        columns
            .work
            .push(if numbers.once_in(20) { 1e-9 } else { work });
        models.push(if numbers.once_in(4) {
            u32::MAX
        } else {
            numbers.below(3) as u32
        });
        allowed.push(if mixes_allowed {
            1 + numbers.below((1 << types) - 1)
        } else {
            u64::MAX
        });
    }
    columns.model = Some(models);
    // The labels depend only on the row, so that the worlds of existing seeds do not change.
    let label = |row: u64| if row % 5 < 2 { row % 5 } else { u64::from(u32::MAX) } as u32;
    let label = |codes: &dyn Fn(u64) -> u64, names: &[&str]| Label {
        codes: Some((0..count).map(|row| label(codes(row))).collect()),
        names: names.iter().map(ToString::to_string).collect(),
    };
    columns.labels.user = label(&|row| row * 7, &QUEUES[1..3]);
    columns.labels.vc = label(&|row| row / 3, &QUEUES[3..]);
    columns.labels.account = label(&|row| row * 3, &QUEUES[1..3]);
    columns.labels.partition = label(&|row| row * 2, &QUEUES[3..]);
    columns.labels.qos = label(&|row| row + 1, &QUEUES[1..3]);
    let seconds = |row: u64| {
        if row.is_multiple_of(4) {
            0
        } else {
            1 + row * 13 % 97
        }
    };
    let limit = |row| SimSpan(seconds(row) as i64 * 1_000_000_000);
    columns.requests.time_limit = Some((0..count).map(limit).collect());
    columns.requests.nice = Some((0..count).map(|row| (row % 5) as i32 - 2).collect());
    if mixes_allowed {
        columns.allowed_types = Some(allowed);
    }
    columns
}

/// Adds columns that only some traces have: batch sizes, memory per GPU, weights and deadlines.
fn more_columns(
    extras: &mut Numbers,
    cluster: &ClusterSpec,
    mut columns: JobColumns,
) -> JobColumns {
    let jobs = columns.gpus.len();
    let mut column = |draw: &dyn Fn(&mut Numbers, usize) -> u64| -> Option<Vec<u64>> {
        let has_some = extras.once_in(2);
        has_some.then(|| (0..jobs).map(|job| draw(extras, job)).collect())
    };
    let batches = column(&|extras, _| extras.pick(&[0, 1, 7, 32, 64]));
    columns.batch_size = batches.map(|all| all.into_iter().map(|size| size as u32).collect());
    let weights = column(&|extras, _| 1 + extras.below(4));
    columns.weight = weights.map(|all| all.into_iter().map(|weight| weight as f64 / 2.0).collect());
    let slack = column(&|extras, _| extras.below(500));
    columns.deadline = slack.map(|all| {
        let at =
            |(slack, arrival): (u64, &SimTime)| SimTime(arrival.0 + slack as i64 * 1_000_000_000);
        all.into_iter().zip(&columns.arrival).map(at).collect()
    });
    if cluster.gpu_types()[0].memory_bytes < u64::MAX {
        // A job needs at most the memory of the smallest GPU. Two jobs together might be too large for every GPU.
        columns.memory_bytes = column(&|extras, _| extras.below(17) * GIB);
    }
    columns
}

fn trouble(numbers: &mut Numbers, cluster: &ClusterSpec, config: &mut RunConfig) {
    let span = |seconds: u64| SimSpan(seconds as i64 * 1_000_000_000);
    config.restart = span(numbers.pick(&[0, 0, 1, 10]));
    config.first_start = span(numbers.pick(&[0, 0, 2]));
    if numbers.once_in(4) {
        config.checkpoint_interval = Some(span(1 + numbers.below(9)));
    }
    if numbers.once_in(2) {
        let factor = |numbers: &mut Numbers| [1.0, numbers.pick(&[1.0, 0.9]), 0.5];
        let rows = (0..=MODELS.len()).map(|_| factor(numbers)).collect();
        config.locality = Some(Arc::new(TierTable::new(rows).expect("factors in (0, 1]")));
    }
    if numbers.once_in(2) {
        let mut rows = Vec::new();
        for server in 0..cluster.servers().len() as u32 {
            let mut now = 0;
            for _ in 0..numbers.below(3) {
                let down = now + 1 + numbers.below(100) as i64;
                now = down + 1 + numbers.below(50) as i64;
                let at = |seconds: i64| SimTime(seconds * 1_000_000_000);
                rows.push(FailureRow {
                    server,
                    down: at(down),
                    up: at(now),
                });
                now += 1;
            }
        }
        config.failures = Failures::Table(rows);
    }
}

/// Returns a case with one GPU type, and the same case with a server of a second type that no job may use. For a
/// policy, the two cases are equivalent. Some policies have faster algorithms for a single type; these apply only to
/// the first case.
///
/// # Panics
/// Panics if the case has several types, elastic jobs, or failures that are drawn at random for each server.
pub fn with_idle_type(mut case: Case) -> [Case; 2] {
    let world = &case.world;
    assert!(world.cluster.gpu_types().len() == 1 && world.rates.elastic().is_none());
    assert!(!matches!(case.config.failures, Failures::Random { .. }));
    // Locality and interference depend on the types and racks of the cluster.
    case.config.interference = None;
    case.config.locality = (case.config.locality).filter(|model| model.shared_bw().is_none());
    let mut types = case.world.cluster.gpu_types().to_vec();
    let mut servers = case.world.cluster.servers().to_vec();
    types.push(GpuType {
        name: "idle".to_owned(),
        ..types[0].clone()
    });
    servers.push(Server {
        gpu_type: GpuTypeId(1),
        gpus: 1,
        rack: RackId(case.world.cluster.racks()),
    });
    let cluster = ClusterSpec::new(types, servers).expect("valid");
    let columns = JobColumns {
        allowed_types: Some(vec![1; world.jobs.len()]),
        // The work column that `JobTable::columns` returns is empty, so it is filled here.
        work: world.jobs.ids().map(|job| world.jobs.work(job)).collect(),
        ..case.world.jobs.columns().clone()
    };
    let mut other = case.clone();
    other.world.jobs = Arc::new(JobTable::new(columns).expect("valid"));
    other.world.rates = Arc::new(RateTable::from_speeds(&cluster));
    other.world.cluster = Arc::new(cluster);
    [case, other]
}

/// Runs a policy on a case until the end.
///
/// # Errors
/// Returns the [`EngineError`] of the run.
pub fn run(case: &Case, policy: &mut dyn Policy) -> Result<Output, EngineError> {
    let mut engine = Engine::new(&case.world, case.config.clone(), policy.traits())?;
    engine.start(policy)?;
    engine.run(policy, &Control::default(), &mut Silent)?;
    engine.output()
}

/// Runs a policy step by step: one decision at a time. After each decision, `look` gets a view of the new state. The
/// function also checks that the recorded changes agree with this state.
///
/// # Errors
/// Returns the error of the run or of `look`.
pub fn run_stepwise(
    case: &Case,
    policy: &mut dyn Policy,
    mut look: impl FnMut(&ClusterView<'_>) -> Result<(), String>,
) -> Result<Output, String> {
    let words = |error: EngineError| error.to_string();
    let mut engine =
        Engine::new(&case.world, case.config.clone(), policy.traits()).map_err(words)?;
    engine.start(policy).map_err(words)?;
    while engine.advance().map_err(words)? == Advance::Decision {
        let before = engine.view().0.running().count();
        engine.decide(policy).map_err(words)?;
        let (view, changes) = engine.view();
        let [started, preempted] = [&changes.started, &changes.preempted].map(Vec::len);
        let is_running = |job: &JobId| view.phase(*job) == Phase::Running;
        if before + started != view.running().count() + preempted
            || changes.preempted.iter().any(is_running)
            || !changes.started.iter().chain(&changes.moved).all(is_running)
        {
            return Err(format!(
                "the changes {changes:?} do not agree with the effects of the plan"
            ));
        }
        look(&view)?;
    }
    engine.output().map_err(words)
}

/// Checks that no job waits although a type that it may use has enough free GPUs for it.
///
/// # Errors
/// Returns a message that names the first such job.
pub fn no_fitting_job_waits(view: &ClusterView<'_>) -> Result<(), String> {
    for job in view.waiting() {
        let gpus = view.jobs().gpus(job);
        if view
            .types_of(job)
            .any(|gpu_type| view.gpus_free(gpu_type) >= gpus)
        {
            return Err(format!(
                "job {job} waits at {} s although it fits",
                view.now().seconds()
            ));
        }
    }
    Ok(())
}

/// Performs all checks on the world for a seed. `is_work_conserving` means that the policy, under its placement rule,
/// lets no job wait if a GPU type has enough free GPUs for it.
///
/// # Errors
/// Returns a message that names the seed and the check that failed.
///
/// # Examples
/// ```
/// use gangline_policies::{Params, Services, build};
/// use gangline_testkit::conformance;
/// let make = || build("srtf", &Params::new(), Services::default()).expect("a known policy");
/// conformance::check(make, 1, conformance::Scope::default(), true).unwrap();
/// ```
pub fn check(
    make: impl Fn() -> Box<dyn Policy>,
    seed: u64,
    scope: Scope,
    is_work_conserving: bool,
) -> Result<(), String> {
    let case = draw(seed, scope);
    let fail = |law: &str| Err(format!("seed {seed}: {law}"));
    let first = run(&case, make().as_mut()).map_err(|error| format!("seed {seed}: {error}"))?;
    if first.outcome != Some(Outcome::Finished) {
        return fail("a million events are enough for these worlds");
    }
    let dropped = first.dropped.len();
    let ended = first
        .finish_s
        .iter()
        .filter(|finish| finish.is_finite())
        .count();
    if ended + dropped != case.world.jobs.len() {
        return fail("every job ends once or is listed as dropped");
    }
    let again = run(&case, make().as_mut()).map_err(|error| format!("seed {seed}: {error}"))?;
    if !are_equal(&first, &again) {
        return fail("the same seed gives the same run");
    }
    let look = |view: &ClusterView<'_>| {
        if is_work_conserving {
            no_fitting_job_waits(view)
        } else {
            Ok(())
        }
    };
    let stepped = run_stepwise(&case, make().as_mut(), look)
        .map_err(|error| format!("seed {seed}: {error}"))?;
    if !are_equal(&first, &stepped) {
        return fail("a step-by-step run equals a run in one call");
    }
    if make().traits().round.is_some() {
        let mut walked = case;
        walked.config.skip_rounds = false;
        let walked =
            run(&walked, make().as_mut()).map_err(|error| format!("seed {seed}: {error}"))?;
        if !are_equal(&first, &walked) {
            return fail("skipped rounds change nothing");
        }
    }
    Ok(())
}

/// Returns whether two runs gave bit-identical results.
pub fn are_equal(a: &Output, b: &Output) -> bool {
    let bits = |values: &[f64]| {
        values
            .iter()
            .map(|value| value.to_bits())
            .collect::<Vec<_>>()
    };
    bits(&a.first_start_s) == bits(&b.first_start_s)
        && bits(&a.finish_s) == bits(&b.finish_s)
        && bits(&a.run_s) == bits(&b.run_s)
        && bits(&a.overhead_s) == bits(&b.overhead_s)
        && a.preemptions == b.preemptions
        && a.migrations == b.migrations
        && a.status == b.status
        && a.log_hash == b.log_hash
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns which kinds of extras the world for a seed has.
    fn extras(seed: u64) -> [bool; 6] {
        let case = draw(seed, Scope::default());
        let columns = case.world.jobs.columns();
        let table = case.config.interference.expect("always drawn");
        let ids: Vec<JobId> = case.world.jobs.ids().collect();
        let beside = |&one: &JobId| ids.iter().map(move |&other| (one, other));
        let pairs = ids.iter().flat_map(beside);
        let xi: Vec<_> = pairs
            .map(|(one, other)| table.xi(one, other, GpuTypeId(0)))
            .collect();
        let memory = columns.memory_bytes.as_ref();
        let gpu_bytes = case.world.cluster.gpu_types()[0].memory_bytes;
        [
            columns.batch_size.is_some(),
            columns.deadline.is_some(),
            memory.is_some_and(|need| need.iter().any(|bytes| 2 * bytes > gpu_bytes)),
            xi.contains(&None),
            xi.iter().flatten().any(|some| xi[0] != Some(*some)),
            case.config
                .locality
                .is_some_and(|model| model.shared_bw().is_some()),
        ]
    }

    #[test]
    fn drawn_worlds_have_all_that_a_world_can_have() {
        let mut seen = [0; 6];
        for seed in 0..200 {
            for (count, has) in seen.iter_mut().zip(extras(seed)) {
                *count += usize::from(has);
            }
        }
        assert!(seen.iter().all(|&count| count >= 20), "{seen:?} of 200");
    }
}
