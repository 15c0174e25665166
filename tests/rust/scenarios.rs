//! Every hand-derived world of `tests/scenarios`, run by the engine with the registry's policies.

use gangline_engine::{
    Control, Engine, EngineError, FailureRow, Failures, GangXi, OnInfeasible, Output,
};
use gangline_engine::{PolicyError, RunConfig, Silent, World};
use gangline_model::{
    ClusterSpec, GpuType, GpuTypeId, Interference, JobColumns, JobId, JobTable, RackId, RateTable,
    Server, SimSpan, SimTime, TierTable,
};
use gangline_network::{Algorithms, Contention, LinkChange, ModelGiven, Network, NetworkConfig};
use gangline_policies::{ParamValue, Params, PolicyInfo, Services};
use gangline_testkit::{build, find};
use std::path::Path;
use std::sync::Arc;
use toml::{Table, Value};

const TIERS: [&str; 3] = ["server", "rack", "network"];
const REASONS: [&str; 6] = [
    "finished",
    "preempted",
    "moved",
    "failed",
    "retimed",
    "stopped",
];
const STATUS: [&str; 3] = ["finished", "dropped", "unfinished"];

fn float(value: &Value) -> f64 {
    value
        .as_float()
        .unwrap_or_else(|| value.as_integer().expect("a number") as f64)
}

fn number(row: &Table, key: &str) -> Option<f64> {
    row.get(key).map(float)
}

fn word<'a>(row: &'a Table, key: &str) -> Option<&'a str> {
    row.get(key).map(|value| value.as_str().expect("a word"))
}

fn whole(row: &Table, key: &str) -> Option<u32> {
    row.get(key)
        .map(|value| value.as_integer().expect("a whole number") as u32)
}

fn section(world: &Table, key: &str) -> Table {
    world.get(key).map_or_else(Table::new, |value| {
        value.as_table().expect("a table").clone()
    })
}

fn rows(table: &Table, key: &str) -> Vec<Table> {
    let list = table
        .get(key)
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    list.into_iter()
        .map(|row| row.as_table().expect("a row").clone())
        .collect()
}

fn ns(seconds: f64) -> i64 {
    (seconds * 1e9).round() as i64
}

fn bytes(row: &Table, none: u64) -> u64 {
    number(row, "memory_gb").map_or(none, |gib| (gib * f64::from(1 << 30)).round() as u64)
}

/// A world as read: what the engine needs, and the names it does not know.
struct Scene {
    world: World,
    config: RunConfig,
    ids: Vec<String>,
}

fn read_cluster(table: &Table) -> ClusterSpec {
    let types: Vec<GpuType> = rows(table, "gpu_types")
        .iter()
        .map(|row| GpuType {
            name: word(row, "name").expect("a name").to_owned(),
            memory_bytes: bytes(row, u64::MAX),
            price_per_hour: 0.0,
            speed: number(row, "speed").unwrap_or(1.0),
        })
        .collect();
    let mut servers = Vec::new();
    for row in rows(table, "servers") {
        let gpu_type = types
            .iter()
            .position(|t| Some(t.name.as_str()) == word(&row, "gpu"));
        let server = Server {
            gpu_type: GpuTypeId::new(gpu_type.expect("a known type")),
            gpus: whole(&row, "gpus").expect("gpus"),
            rack: RackId(whole(&row, "rack").unwrap_or(0)),
        };
        servers.extend(vec![server; whole(&row, "count").unwrap_or(1) as usize]);
    }
    ClusterSpec::new(types, servers).expect("a valid cluster")
}

/// Rates of a job by GPU type, if a throughput row speaks of it.
fn table_rates(job: &Table, throughput: &[Table], cluster: &ClusterSpec) -> Option<Vec<f64>> {
    job.get("iterations")?;
    let (model, gpus) = (word(job, "model")?, whole(job, "gpus"));
    let rate = |name: &str, batch: Option<u32>| {
        throughput.iter().find(|row| {
            word(row, "gpu_type") == Some(name)
                && word(row, "model") == Some(model)
                && whole(row, "gpus") == gpus
                && whole(row, "batch_size") == batch
        })
    };
    let found: Vec<_> = cluster
        .gpu_types()
        .iter()
        .map(|t| rate(&t.name, whole(job, "batch_size")).or_else(|| rate(&t.name, None)))
        .collect();
    let value =
        |row: Option<&Table>| row.map_or(0.0, |row| number(row, "iters_per_s").unwrap_or(0.0));
    found
        .iter()
        .any(Option::is_some)
        .then(|| found.iter().copied().map(value).collect())
}

/// Code of a label of a row, which joins the labels if it is new.
fn code(job: &Table, key: &str, labels: &mut Vec<String>) -> u32 {
    let Some(label) = word(job, key) else {
        return u32::MAX;
    };
    let known = labels.iter().position(|known| known == label);
    known.unwrap_or_else(|| {
        labels.push(label.to_owned());
        labels.len() - 1
    }) as u32
}

fn read_jobs(jobs: &[Table], throughput: &[Table], cluster: &ClusterSpec) -> (JobTable, RateTable) {
    let mut columns = JobColumns::default();
    let (mut models, mut users, mut vcs) = (vec![], vec![], vec![]);
    let (mut batches, mut memory, mut deadlines) = (Vec::new(), Vec::new(), Vec::new());
    let (mut allowed, mut reference, mut class, mut classes) = (vec![], vec![], vec![], vec![]);
    for job in jobs {
        columns
            .arrival
            .push(SimTime(ns(number(job, "arrival_s").expect("an arrival"))));
        columns.gpus.push(whole(job, "gpus").expect("gpus"));
        let (duration, iterations) = (number(job, "duration_s"), number(job, "iterations"));
        columns.work.push(iterations.or(duration).expect("work"));
        reference.push(
            iterations
                .zip(duration)
                .map_or(1.0, |(work, seconds)| work / seconds),
        );
        models.push(code(job, "model", &mut columns.model_labels));
        users.push(code(job, "user", &mut columns.user_labels));
        vcs.push(code(job, "vc", &mut columns.vc_labels));
        batches.push(whole(job, "batch_size").unwrap_or(0));
        memory.push(bytes(job, 0));
        deadlines.push(number(job, "deadline_s").map_or(SimTime::NEVER, |s| SimTime(ns(s))));
        allowed.push(job.get("gpu_types").map_or(u64::MAX, |names| {
            let names = names.as_array().expect("names");
            let is_named = |t: &GpuType| names.iter().any(|name| name.as_str() == Some(&t.name));
            let types = cluster.gpu_types().iter().enumerate();
            types
                .filter(|(_, t)| is_named(t))
                .map(|(at, _)| 1 << at)
                .sum()
        }));
        let rates = table_rates(job, throughput, cluster);
        class.push(if rates.is_some() {
            (classes.len() / cluster.gpu_types().len()) as u32
        } else {
            u32::MAX
        });
        classes.extend(rates.unwrap_or_default());
    }
    columns.model = Some(models);
    columns.user = Some(users);
    columns.vc = Some(vcs);
    columns.batch_size = Some(batches);
    columns.memory_bytes = Some(memory);
    let is_limited = deadlines.iter().any(|at| *at != SimTime::NEVER);
    columns.deadline = is_limited.then_some(deadlines);
    columns.allowed_types = Some(allowed);
    columns.ref_rate = Some(reference);
    columns.rate_class = Some(class);
    let jobs = JobTable::new(columns).expect("valid jobs");
    let rates = RateTable::from_speeds(cluster)
        .with_classes(classes, &jobs)
        .expect("valid rates");
    (jobs, rates)
}

/// One factor for all pairs, or rows of pairs of labels.
fn read_sharing(table: &Table, jobs: &JobTable, types: usize) -> Option<Interference> {
    let xi = number(table, "xi");
    if word(table, "interference") != Some("table") {
        return xi.map(|xi| Interference::constant(xi, types).expect("valid"));
    }
    let (labels, given) = (&jobs.columns().model_labels, rows(table, "rows"));
    let side = labels.len() + 1;
    let of_job: Vec<u32> = jobs
        .ids()
        .map(|job| jobs.model(job).unwrap_or(labels.len() as u32))
        .collect();
    let missing = word(table, "missing").unwrap_or("error");
    let (mut square, mut absent) = (Vec::new(), Vec::new());
    for at in 0..side * side {
        let (slowed, other) = (labels.get(at / side), labels.get(at % side));
        let row = given.iter().find(|row| {
            word(row, "model") == slowed.map(String::as_str)
                && word(row, "co_model") == other.map(String::as_str)
        });
        let value = row.and_then(|row| number(row, "xi")).filter(|&xi| xi > 0.0);
        let count = |class: usize| of_job.iter().filter(|&&of| of as usize == class).count();
        let (mine, others) = (at / side, at % side);
        let can_meet = count(mine) > 0 && count(others) > usize::from(mine == others);
        if value.is_none() && missing == "error" && can_meet {
            let name = |label: Option<&String>| label.cloned().unwrap_or_default();
            absent.push((name(slowed), name(other)));
        }
        let filled = if missing == "constant" { xi } else { None };
        square.push(value.map_or(filled.unwrap_or(f64::NAN), |xi| xi.max(1.0)));
    }
    let table = Interference::by_class(of_job, side, square.repeat(types));
    Some(table.expect("valid").with_absent(absent))
}

/// The keys of `[network]` that scenarios use: links and models in full, no preset.
fn read_network(keys: &Table) -> NetworkConfig {
    let link = |tier: &str| {
        let keys = section(keys, tier);
        LinkChange {
            algorithms: word(&keys, "algo").and_then(Algorithms::parse),
            alpha_s: number(&keys, "alpha_s"),
            port_bw: number(&keys, "port_bw"),
            server_bw: number(&keys, "server_bw"),
            uplink_bw: number(&keys, "uplink_bw"),
        }
    };
    let models = section(keys, "models");
    let model = |(label, row): (&String, &Value)| {
        let row = row.as_table().expect("a model");
        let given = ModelGiven {
            compute_s: number(row, "compute_s").expect("a time"),
            grad_bytes: number(row, "grad_bytes").expect("bytes"),
            buckets: whole(row, "buckets").expect("a count"),
            overlap: number(row, "overlap"),
            last_bytes: number(row, "last_bytes"),
            ..ModelGiven::default()
        };
        (label.clone(), given)
    };
    let contention = word(keys, "contention").unwrap_or("off");
    NetworkConfig {
        contention: Contention::parse(contention).expect("a kind"),
        background: number(keys, "background"),
        tiers: TIERS.map(link),
        models: models.iter().map(model).collect(),
        ..NetworkConfig::default()
    }
}

fn read_config(file: &Table, jobs: &JobTable, cluster: &ClusterSpec) -> RunConfig {
    let types = cluster.gpu_types().len();
    let (run, sharing) = (section(file, "run"), section(file, "sharing"));
    let labels = &jobs.columns().model_labels;
    let span = |key| SimSpan(ns(number(&run, key).unwrap_or(0.0)));
    let interference = read_sharing(&sharing, jobs, types);
    let mut config = RunConfig {
        restart: span("restart_s"),
        first_start: span("first_start_s"),
        checkpoint_interval: run
            .get("checkpoint_interval_s")
            .map(|s| SimSpan(ns(float(s)))),
        seed: u64::from(whole(&run, "seed").unwrap_or(0)),
        max_share: whole(&sharing, "max_share").unwrap_or(2),
        interference,
        segments: true,
        check_invariants: true,
        ..RunConfig::default()
    };
    if let Some(ends) = run.get("count_arrivals").and_then(Value::as_array) {
        let [from, to] = [0, 1].map(|at| SimTime(ns(float(&ends[at]))));
        config.count_arrivals = Some(from..to);
    }
    if word(&run, "on_infeasible") == Some("drop") {
        config.on_infeasible = OnInfeasible::Drop;
    }
    if let Some(by_model) = run.get("restart_by_model").and_then(Value::as_table) {
        let of =
            |label: &String| number(by_model, label).map_or(config.restart, |s| SimSpan(ns(s)));
        config.restart_by_model = Some(labels.iter().map(of).collect());
    }
    if word(&sharing, "gang_xi") == Some("mean") {
        config.gang_xi = GangXi::Mean;
    }
    let interferes = sharing.get("overhead_interferes").map(Value::as_bool);
    config.overhead_interferes = interferes.is_none_or(|found| found.expect("true or false"));
    config.acc_cost = number(&sharing, "acc_cost").unwrap_or(0.05);
    config.memory_fixed_fraction = number(&sharing, "memory_fixed_fraction").unwrap_or(0.5);
    if let Some(table) = file.get("locality").and_then(Value::as_table) {
        let row = |label: &str| {
            let row = table
                .get(label)
                .or_else(|| table.get("*"))
                .and_then(Value::as_table);
            TIERS.map(|tier| row.and_then(|row| number(row, tier)).unwrap_or(1.0))
        };
        let rows = labels
            .iter()
            .map(String::as_str)
            .chain(["*"])
            .map(row)
            .collect();
        config.locality = Some(Arc::new(TierTable::new(rows).expect("valid factors")));
    }
    if let Some(keys) = file.get("network").and_then(Value::as_table) {
        let network = Network::new(&read_network(keys), cluster, labels).expect("a network");
        config.locality = Some(Arc::new(network));
    }
    let failures = rows(&section(&section(file, "cluster"), "failures"), "table");
    config.failures = Failures::Table(failures.iter().map(failure).collect());
    config
}

fn failure(row: &Table) -> FailureRow {
    FailureRow {
        server: whole(row, "server").expect("a server"),
        down: SimTime(ns(number(row, "down_s").expect("an instant"))),
        up: number(row, "up_s").map_or(SimTime::NEVER, |up| SimTime(ns(up))),
    }
}

fn read(file: &Table) -> Scene {
    let cluster = read_cluster(&section(file, "cluster"));
    let mut given = rows(file, "jobs");
    let arrival = |job: &Table| number(job, "arrival_s").expect("an arrival");
    given.sort_by(|a, b| arrival(a).total_cmp(&arrival(b)));
    let throughput = rows(&section(file, "throughput"), "rows");
    let (jobs, rates) = read_jobs(&given, &throughput, &cluster);
    let config = read_config(file, &jobs, &cluster);
    let ids = given
        .iter()
        .map(|job| word(job, "job_id").expect("an id").to_owned())
        .collect();
    let world = World {
        cluster: cluster.into(),
        jobs: jobs.into(),
        rates: rates.into(),
    };
    Scene { world, config, ids }
}

fn read_params(expect: &Table) -> Params {
    let value = |value: &Value| match value {
        Value::Boolean(flag) => ParamValue::Bool(*flag),
        Value::String(word) => ParamValue::Str(word.clone()),
        Value::Array(list) => ParamValue::List(list.iter().map(float).collect()),
        Value::Table(table) => {
            ParamValue::Table(table.iter().map(|(k, v)| (k.clone(), float(v))).collect())
        }
        number => ParamValue::Float(float(number)),
    };
    section(expect, "params")
        .iter()
        .map(|(name, v)| (name.clone(), value(v)))
        .collect()
}

type Counters = Vec<(&'static str, u64)>;
/// Classes of an error, and the jobs it names.
type Refusal = (Vec<&'static str>, Vec<JobId>);

/// The outcome, or the classes of the error and the jobs it names.
fn run(scene: &Scene, expect: &Table, skip: bool) -> Result<(Output, Counters), Refusal> {
    let name = word(expect, "policy").expect("a policy");
    let mut policy =
        build(name, &read_params(expect), Services::default()).expect("valid parameters");
    let config = RunConfig {
        skip_rounds: skip,
        ..scene.config.clone()
    };
    let traits = policy.traits();
    let go = || {
        let mut engine = Engine::new(&scene.world, config, traits)?;
        engine.start(policy.as_mut())?;
        engine.run(policy.as_mut(), &Control::default(), &mut Silent)?;
        engine.output()
    };
    match go() {
        Ok(mut output) => {
            let counters = policy.counters();
            output.note_counters(&counters);
            Ok((output, counters))
        }
        Err(EngineError::Infeasible { jobs }) => Err((
            vec!["InfeasibleJobError"],
            jobs.iter().map(|entry| entry.job).collect(),
        )),
        Err(EngineError::Policy(PolicyError::Parameter { .. })) => {
            Err((vec!["PolicyError"], Vec::new()))
        }
        Err(EngineError::MissingPairs { .. }) => Err((vec!["ClusterError"], Vec::new())),
        Err(EngineError::Stalled { jobs, .. }) => Err((vec!["StalledError", "PolicyError"], jobs)),
        Err(error) => panic!("{name}: {error}"),
    }
}

fn check_job(scene: &Scene, output: &Output, wanted: &Table, place: &str) {
    let id = word(wanted, "job_id").expect("an id");
    let at = scene
        .ids
        .iter()
        .position(|known| known == id)
        .expect("a job of the world");
    let arrival = scene.world.jobs.columns().arrival[at].0;
    let (first, finish) = (ns(output.first_start_s[at]), ns(output.finish_s[at]));
    let or_zero = |column: &[f64]| ns(column.get(at).copied().unwrap_or(0.0));
    for (key, value) in wanted {
        let found = match key.as_str() {
            "job_id" => continue,
            "status" => {
                assert_eq!(
                    value.as_str(),
                    Some(STATUS[usize::from(output.status[at])]),
                    "{place} {id}"
                );
                continue;
            }
            "preemptions" | "migrations" => {
                let column = if key == "preemptions" {
                    &output.preemptions
                } else {
                    &output.migrations
                };
                let found = column.get(at).copied().unwrap_or(0);
                assert_eq!(
                    Some(i64::from(found)),
                    value.as_integer(),
                    "{place} {id} {key}"
                );
                continue;
            }
            "slowdown" => {
                let gap = (output.slowdown[at] - float(value)).abs();
                assert!(gap <= 1e-9 * float(value), "{place} {id} {key}");
                continue;
            }
            "first_start_s" => first,
            "finish_s" => finish,
            "jct_s" => finish - arrival,
            "queue_s" => first - arrival,
            "wait_s" => finish - arrival - ns(output.run_s[at]),
            "run_s" => ns(output.run_s[at]),
            "overhead_s" => or_zero(&output.overhead_s),
            "share_s" => or_zero(&output.share_s),
            other => panic!("{place}: unknown key {other}"),
        };
        assert_eq!(found, ns(float(value)), "{place} {id} {key}");
    }
}

/// The numbers of the summary that the scenario names, to 12 digits.
fn check_summary(expect: &Table, output: &Output, place: &str) {
    let Some(Value::Table(wanted)) = expect.get("summary") else {
        return;
    };
    for name in wanted.keys() {
        let wanted = number(wanted, name).expect("a number");
        let found = output.summary.iter().find(|(key, _)| key == name);
        let (_, found) = found.unwrap_or_else(|| panic!("{place}: no summary key {name}"));
        assert!(
            (found - wanted).abs() <= 1e-12 * wanted.abs(),
            "{place}: {name} is {found}, not {wanted}"
        );
    }
}

fn check_segments(scene: &Scene, output: &Output, wanted: &[Table], place: &str) {
    let table = output.segments.as_ref().expect("segments were asked for");
    let mut order: Vec<usize> = (0..table.job.len()).collect();
    order.sort_by_key(|&at| {
        let (job, part) = (table.job[at], table.part[at]);
        (table.start_ns[at], job, part, table.server[at])
    });
    assert_eq!(order.len(), wanted.len(), "{place}: number of segments");
    for (at, wanted) in order.into_iter().zip(wanted) {
        for (key, value) in wanted {
            let place = format!("{place}: segment of {wanted:?}: {key}");
            let text = value.as_str();
            let others = table.co_offset[at] as usize..table.co_offset[at + 1] as usize;
            let names: Vec<&str> = table.co_runners[others]
                .iter()
                .map(|&job| scene.ids[job as usize].as_str())
                .collect();
            match key.as_str() {
                "job_id" => assert_eq!(
                    text,
                    Some(scene.ids[table.job[at] as usize].as_str()),
                    "{place}"
                ),
                "part" => assert_eq!(
                    Some(i64::from(table.part[at])),
                    value.as_integer(),
                    "{place}"
                ),
                "start_s" => assert_eq!(table.start_ns[at], ns(float(value)), "{place}"),
                "end_s" => assert_eq!(table.end_ns[at], ns(float(value)), "{place}"),
                "server" => assert_eq!(
                    Some(i64::from(table.server[at])),
                    value.as_integer(),
                    "{place}"
                ),
                "gpu_mask" => {
                    assert_eq!(
                        Some(table.gpu_mask[at] as i64),
                        value.as_integer(),
                        "{place}"
                    );
                }
                "tier" => assert_eq!(text, Some(TIERS[usize::from(table.tier[at])]), "{place}"),
                "rate" => assert_eq!(table.rate[at].to_bits(), float(value).to_bits(), "{place}"),
                "sub_batch" => {
                    assert_eq!(
                        Some(i64::from(table.sub_batch[at])),
                        value.as_integer(),
                        "{place}"
                    );
                }
                "co_runner" => assert_eq!(text, Some(names.join(",").as_str()), "{place}"),
                "end_reason" => {
                    assert_eq!(
                        text,
                        Some(REASONS[usize::from(table.end_reason[at])]),
                        "{place}"
                    );
                }
                other => panic!("{place}: unknown key {other}"),
            }
        }
    }
}

fn check(scene: &Scene, expect: &Table, skip: bool, place: &str) {
    let (output, counters) = match run(scene, expect, skip) {
        Ok(found) => found,
        Err((classes, jobs)) => {
            let wanted = word(expect, "error").unwrap_or_else(|| panic!("{place}: {classes:?}"));
            assert!(classes.contains(&wanted), "{place}: {classes:?}");
            let names: Vec<Value> = jobs
                .iter()
                .map(|job| scene.ids[job.index()].clone().into())
                .collect();
            if let Some(wanted) = expect.get("error_jobs").and_then(Value::as_array) {
                assert_eq!(&names, wanted, "{place}");
            }
            return;
        }
    };
    assert!(
        !expect.contains_key("error"),
        "{place}: the run should have been refused"
    );
    let jobs = rows(expect, "jobs");
    assert!(
        jobs.is_empty() || jobs.len() == scene.ids.len(),
        "{place}: every job once"
    );
    for wanted in &jobs {
        check_job(scene, &output, wanted, place);
    }
    if expect.contains_key("segments") {
        check_segments(scene, &output, &rows(expect, "segments"), place);
    }
    check_summary(expect, &output, place);
    for key in [
        "decisions",
        "preemptions",
        "migrations",
        "demotions",
        "promotions",
    ] {
        let Some(wanted) = number(expect, key).filter(|_| skip || key != "decisions") else {
            continue;
        };
        let of_run = output
            .summary
            .iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| *value);
        let of_policy = counters
            .iter()
            .find(|(name, _)| *name == key)
            .map(|(_, n)| *n as f64);
        let found = of_run.or(of_policy).unwrap_or(0.0);
        assert_eq!(
            found.to_bits(),
            wanted.to_bits(),
            "{place}: {key} {found}, wanted {wanted}"
        );
    }
}

#[test]
fn every_scenario_matches_its_derivation() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios");
    let entries = std::fs::read_dir(folder).expect("the scenarios are there");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("readable").path())
        .collect();
    paths.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "toml")
    });
    paths.sort();
    assert!(paths.len() >= 30, "{} scenarios", paths.len());
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("readable");
        let file: Table = text
            .parse()
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let scene = read(&file);
        for (at, expect) in rows(&file, "expect").iter().enumerate() {
            let name = word(expect, "policy").expect("a policy");
            // solvers live in Python: these are read by the tests there
            let is_solved = |info: &PolicyInfo| {
                info.needs.allocator() || info.needs.auctioneer(&read_params(expect))
            };
            if find(name).is_ok_and(is_solved) {
                continue;
            }
            for skip in [true, false] {
                let place = format!(
                    "{} {at} {name} skip={skip}",
                    word(&file, "name").expect("a name")
                );
                check(&scene, expect, skip, &place);
            }
        }
    }
}
