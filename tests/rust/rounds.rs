//! Rounds with shares that no policy would give. The test compares the walks over stored claims with a scan of all
//! jobs, and checks the laws of rounds.

use gangline_allocation::{Allocator, Ask, PairShare, Shares};
use gangline_engine::{FailureRow, Failures, Policy, PolicyError, RunConfig};
use gangline_model::{
    ClusterSpec, GpuType, GpuTypeId, Interference, JobColumns, JobTable, RackId, RateTable, Server,
    SimTime,
};
use gangline_policies::{ParamValue, Params, with_shares};
use gangline_rng::{Purpose, Stream};
use gangline_testkit::conformance::{self, Case, Numbers, Scope};
use std::sync::Arc;

/// Draws shares from a seed: zeros, ties and numbers of every magnitude.
struct Dice {
    stream: Stream,
    asks: u32,
}

impl Allocator for Dice {
    fn allocate(&mut self, ask: &Ask) -> Result<Vec<f64>, PolicyError> {
        self.asks += 1;
        let types = ask.capacity.len();
        let share = |at: usize| {
            let job = u64::from(ask.jobs[at / types].0);
            let draw = self.stream.draw(job, (at % types) as u32, self.asks);
            let words = draw.uniform_u64();
            match words % 5 {
                0 | 1 => 0.0,
                2 => 0.25,
                3 => 1.0 / types as f64,
                _ => (words >> 11) as f64 / 2.0_f64.powi(53),
            }
        };
        Ok((0..ask.rates.len()).map(share).collect())
    }
}

fn params(numbers: &mut Numbers) -> Params {
    let word = |word: &str| ParamValue::Str(word.to_owned());
    let rules = [
        "consolidate",
        "consolidate",
        "yarn",
        "whole_servers",
        "random",
    ];
    let mut params = Params::from([
        ("placement".to_owned(), word(numbers.pick(&rules))),
        (
            "zero_priority_pass".to_owned(),
            word(numbers.pick(&["after", "inline"])),
        ),
    ]);
    let mut number = |name: &str, value| params.insert(name.to_owned(), ParamValue::Float(value));
    number("round_s", numbers.pick(&[11.0, 17.5, 30.0]));
    number(
        "min_solve_interval_s",
        numbers.pick(&[0.0, 0.0, 40.0, 500.0]),
    );
    let backfills = ParamValue::Bool(numbers.once_in(2));
    params.insert("backfill_mid_round".to_owned(), backfills);
    params
}

fn gavel_las(params: &Params, allocator: Box<dyn Allocator>) -> Box<dyn Policy> {
    with_shares("gavel-las", params, allocator).expect("valid")
}

#[test]
fn rounds_with_drawn_shares_pass_the_law() {
    for seed in 0..200 {
        let mut numbers = Numbers::new(seed + 9_000_000);
        let scope = Scope {
            types: 1 + seed % 4,
            jobs: numbers.pick(&[10, 60, 150]),
            has_trouble: seed % 3 != 0,
            has_checkpoints: false,
            gangs_max: numbers.pick(&[1, 5, 12]),
            has_elastic: false,
        };
        let params = params(&mut numbers);
        let make = || {
            let stream = Stream::new(seed, Purpose::Extra);
            gavel_las(&params, Box::new(Dice { stream, asks: 0 }))
        };
        conformance::check(make, seed + 50_000, scope, false)
            .unwrap_or_else(|error| panic!("{params:?}: {error}"));
    }
}

/// Constant shares, for jobs that outlast the run.
struct Fixed(Vec<f64>);

impl Allocator for Fixed {
    fn allocate(&mut self, ask: &Ask) -> Result<Vec<f64>, PolicyError> {
        let types = ask.capacity.len();
        let rows = ask.jobs.iter();
        Ok(rows
            .flat_map(|job| self.0[job.index() * types..][..types].iter().copied())
            .collect())
    }
}

const ROUND_S: f64 = 10.0;
const ROUNDS: usize = 400;

/// Single-GPU jobs that outlast the run, on servers with one GPU.
fn endless(jobs: usize, servers: &[u32]) -> Case {
    let mut case = conformance::draw(0, Scope::default());
    let gpu_types = (0..servers.len()).map(|at| GpuType {
        name: format!("type{at}"),
        memory_bytes: u64::MAX,
        price_per_hour: 0.0,
        speed: 1.0,
    });
    let own = servers.iter().enumerate().flat_map(|(at, &count)| {
        let server = Server {
            gpu_type: GpuTypeId(at as u32),
            gpus: 1,
            rack: RackId(0),
        };
        std::iter::repeat_n(server, count as usize)
    });
    let cluster = ClusterSpec::new(gpu_types.collect(), own.collect()).expect("valid");
    let columns = JobColumns {
        arrival: vec![SimTime(0); jobs],
        gpus: vec![1; jobs],
        work: vec![1e8; jobs],
        ..JobColumns::default()
    };
    case.world.rates = Arc::new(RateTable::from_speeds(&cluster));
    case.world.cluster = Arc::new(cluster);
    case.world.jobs = Arc::new(JobTable::new(columns).expect("valid"));
    case.config = RunConfig {
        check_invariants: true,
        until: Some(SimTime::from_seconds(ROUND_S * ROUNDS as f64 - 1.0).expect("in range")),
        ..RunConfig::default()
    };
    case
}

/// Returns the number of rounds in which each job ran on each type, and the first round in which it ran at all.
fn follow(case: &Case, shares: &[f64]) -> (Vec<u32>, Vec<usize>) {
    let (jobs, types) = (case.world.jobs.len(), case.world.cluster.gpu_types().len());
    let params = Params::from([("round_s".to_owned(), ParamValue::Float(ROUND_S))]);
    let fixed = Box::new(Fixed(shares.to_vec()));
    let mut policy = gavel_las(&params, fixed);
    let (mut ran, mut first) = (vec![0; jobs * types], vec![usize::MAX; jobs]);
    let mut round = 0;
    // The test looks at every round.
    let mut case = case.clone();
    case.config.skip_rounds = false;
    conformance::run_stepwise(&case, policy.as_mut(), |view| {
        for job in view.running() {
            let server = view.run(job).expect("it runs").gpus().by_server()[0].server;
            let gpu_type = view.cluster().server(server).gpu_type;
            ran[job.index() * types + gpu_type.index()] += 1;
            first[job.index()] = first[job.index()].min(round);
        }
        round += 1;
        Ok(())
    })
    .expect("the run goes to its limit");
    assert_eq!(round, ROUNDS);
    (ran, first)
}

/// On one type, each job with a share first runs within a number of rounds that follows from the other shares. Over the
/// run, it gets its share to within three rounds.
#[test]
fn shares_are_served_soon_and_in_full() {
    for seed in 0..30 {
        let mut numbers = Numbers::new(seed + 70_000);
        let (jobs, gpus) = (3 + numbers.below(20) as usize, 1 + numbers.below(3) as u32);
        let weights: Vec<f64> = (0..jobs).map(|_| 1.0 + numbers.below(12) as f64).collect();
        let total: f64 = weights.iter().sum();
        let mut shares: Vec<f64> = weights
            .iter()
            .map(|weight| (weight / total * f64::from(gpus)).min(1.0))
            .collect();
        shares[0] = 0.0;
        let (ran, first) = follow(&endless(jobs, &[gpus]), &shares);
        for job in 1..jobs {
            let before = shares
                .iter()
                .map(|other| (other / (2.0 * shares[job])).floor() + 1.0);
            let bound = before.sum::<f64>() / f64::from(gpus) + 1.0;
            let soon = first[job] as f64;
            assert!(
                soon <= bound,
                "seed {seed}: job {job} runs in round {soon}, not {bound}"
            );
            let (got, wanted) = (f64::from(ran[job]), shares[job] * ROUNDS as f64);
            // GPUs that are in no job's share go to the next jobs, so only less than the share is wrong.
            assert!(
                got >= wanted - 3.0,
                "seed {seed}: job {job} ran {got} of {wanted} rounds"
            );
        }
    }
}

/// With two types and a share of both for each job, the time on each type is close to the job's share.
#[test]
fn time_received_comes_near_the_shares_of_two_types() {
    let jobs = 6;
    let shares: Vec<f64> = (0..jobs)
        .flat_map(|job| if job % 2 == 0 { [0.4, 0.1] } else { [0.2, 0.3] })
        .collect();
    // The shares add up to 1.8 GPUs of the first type and 1.2 of the second.
    let (ran, _) = follow(&endless(jobs, &[2, 2]), &shares);
    for (at, (&got, share)) in ran.iter().zip(&shares).enumerate() {
        let got = f64::from(got) / ROUNDS as f64;
        assert!(got >= share - 0.02, "entry {at}: {got} of {share}");
    }
}

/// At the start of a round no waiting job fits on a type with free GPUs. The `fifo` variants do not guarantee that.
#[test]
fn no_gpu_is_left_at_a_boundary_to_a_job_that_fits() {
    let mut looks = 0;
    for seed in 0..150 {
        let mut numbers = Numbers::new(seed + 80_000);
        let scope = Scope {
            types: 1 + seed % 3,
            has_trouble: seed % 2 == 0,
            has_checkpoints: false,
            ..Scope::default()
        };
        let case = conformance::draw(seed + 60_000, scope);
        let mut params = params(&mut numbers);
        params.insert(
            "placement".to_owned(),
            ParamValue::Str("consolidate".to_owned()),
        );
        params.insert("backfill_mid_round".to_owned(), ParamValue::Bool(false));
        let stream = Stream::new(seed, Purpose::Extra);
        let dice = Box::new(Dice { stream, asks: 0 });
        let mut policy = gavel_las(&params, dice);
        let done = conformance::run_stepwise(&case, policy.as_mut(), |view| {
            looks += 1;
            for job in view.waiting() {
                let gang = view.jobs().gpus(job);
                if let Some(own) = view.types_of(job).find(|&own| view.gpus_free(own) >= gang) {
                    return Err(format!(
                        "{job:?} waits at {:?} and fits on {own:?}",
                        view.now()
                    ));
                }
            }
            Ok(())
        });
        done.unwrap_or_else(|error| panic!("seed {seed}, {params:?}: {error}"));
    }
    assert!(looks > 1_000, "these worlds have boundaries: {looks}");
}

/// Shares of time alone (`jobs x types`), and shares with a partner of the same kind (row, type, share).
struct Given(Vec<f64>, Vec<(usize, u32, f64)>);

impl Allocator for Given {
    fn allocate(&mut self, _ask: &Ask) -> Result<Vec<f64>, PolicyError> {
        Ok(self.0.clone())
    }

    fn allocate_packed(&mut self, ask: &Ask) -> Result<Shares, PolicyError> {
        let each = self.1.iter().map(|&(row, gpu_type, share)| PairShare {
            row,
            beside: ask.kinds[row],
            gpu_type: GpuTypeId(gpu_type),
            share,
        });
        Ok(Shares {
            alone: self.0.clone(),
            pair_shares: each.collect(),
        })
    }
}

/// Runs to the limit with rounds skipped and with all rounds walked. In both cases jobs keep moving, and the logs are
/// equal.
fn no_round_may_be_skipped(mut case: Case, alone: &[f64], beside: &[(usize, u32, f64)]) {
    let interference = Interference::constant(1.25, case.world.cluster.gpu_types().len());
    case.config.interference = Some(interference.expect(">= 1"));
    let number = |name: &str, value| (name.to_owned(), ParamValue::Float(value));
    let params = Params::from([
        number("round_s", ROUND_S),
        number("min_solve_interval_s", 1e6),
        ("packed".to_owned(), ParamValue::Bool(true)),
    ]);
    let logs = [true, false].map(|skips| {
        case.config.skip_rounds = skips;
        let given = Given(alone.to_vec(), beside.to_vec());
        let mut policy = gavel_las(&params, Box::new(given));
        let output = conformance::run(&case, policy.as_mut()).expect("it goes to its limit");
        let changes = output.migrations.iter().sum::<i32>();
        assert!(changes > 1, "{alone:?} {beside:?}: {changes} moves");
        output.log_hash
    });
    assert_eq!(logs[0], logs[1], "{alone:?} {beside:?}");
}

/// All jobs run all the time. While a server was down, however, they got unequal time, and no new allocation follows.
/// Claims therefore change their order for a while, and so do partners.
#[test]
fn pairs_of_one_kind_may_swap_partners() {
    let mut case = endless(4, &[2]);
    let at = |seconds: f64| SimTime::from_seconds(seconds).expect("in range");
    case.config.failures = Failures::Table(vec![FailureRow {
        server: 1,
        down: at(15.0),
        up: at(95.0),
    }]);
    let shares = [(0, 0, 1.0), (1, 0, 0.9), (2, 0, 0.8), (3, 0, 0.4)];
    no_round_may_be_skipped(case, &[0.0; 4], &shares);
}

/// A job that runs as in the previous round may run differently in a later one.
#[test]
fn jobs_with_two_ways_to_run_take_both() {
    // On two GPUs of one type, two jobs run partly as a pair and partly alone. In the first case they spend more time
    // as a pair, in the second more time alone.
    for (alone, together) in [(0.4, 0.6), (0.6, 0.4)] {
        let pair = [(0, 0, together), (1, 0, together)];
        no_round_may_be_skipped(endless(2, &[2]), &[alone; 2], &pair);
    }
    // There is one GPU of each of two types. One job has the whole first type. Another has nine tenths of the second
    // and one tenth of the first, which is due after some rounds.
    let both = [1.0, 0.0, 0.1, 0.9];
    no_round_may_be_skipped(endless(2, &[1, 1]), &both, &[]);
    // The same holds with a pair instead of the second job.
    let pair = [(1, 0, 0.1), (1, 1, 0.9), (2, 0, 0.1), (2, 1, 0.9)];
    let alone = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    no_round_may_be_skipped(endless(3, &[1, 1]), &alone, &pair);
}
