//! Draws parameters for any policy on the worlds of [`draw`](super::draw). Each parameter is drawn according to its
//! kind, with times on the scale of these worlds. For some parameters, the kind allows values that would not be valid;
//! [`exception`] lists these parameters, each with the reason.

use gangline_policies::{ParamDefault, ParamKind, ParamSpec, ParamValue, Params, PolicyInfo};
use gangline_rng::{Purpose, Stream};

/// Names of the queue for jobs without a label and of all users, accounts, virtual clusters, partitions and QOS in the
/// random worlds.
pub const QUEUES: [&str; 5] = ["default", "ann", "bob", "lab", "shop"];

/// Random numbers for one world, drawn in the order of the requests.
#[derive(Debug)]
pub struct Numbers {
    stream: Stream,
    id: u32,
}

impl Numbers {
    /// Creates the random numbers for a seed.
    pub fn new(seed: u64) -> Self {
        Self {
            stream: Stream::new(seed, Purpose::Population),
            id: 0,
        }
    }

    /// Returns a uniform number in `0..n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.id += 1;
        self.stream.draw(0, self.id, 0).below(n)
    }

    /// Returns true with probability `1 / n`.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns one of the items.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}

/// Times in seconds, each of which exceeds every restart overhead in the random worlds.
const OVER_RESTARTS_S: [f64; 4] = [11.0, 17.5, 30.0, 60.0];
/// Times, in seconds or GPU-seconds, that are close to the lengths of the random jobs.
const TIMES: [f64; 6] = [0.5, 1.0, 5.0, 12.0, 30.0, 100.0];

/// Draws parameters for a policy and sets about half of them.
pub fn draw_params(info: &PolicyInfo, numbers: &mut Numbers) -> Params {
    let mut params = Params::new();
    for spec in info.parameters() {
        if numbers.once_in(2) {
            continue;
        }
        let value = exception(spec.name, numbers).unwrap_or_else(|| draw_value(&spec, numbers));
        if value != spec.default.value() {
            params.insert(spec.name.to_owned(), value);
        }
    }
    params
}

/// Draws a value for a parameter whose kind allows values that do not suit these worlds; returns `None` for all other
/// parameters.
fn exception(name: &str, numbers: &mut Numbers) -> Option<ParamValue> {
    Some(match name {
        // The timing of the public simulator supports neither overheads nor failures.
        "compat" => ParamValue::Bool(false),
        // The `milp` auction needs a solver, and the genetic search takes a second per decision.
        "auction" | "search" => ParamValue::Str("greedy".to_owned()),
        // All sources of skew except the model names need tensor sizes or a network model.
        "skew" => ParamValue::Str("flags".to_owned()),
        // `rack_delay` may not exceed `network_delay`, even if one of the two keeps its default.
        "rack_delay" => ParamValue::Float(numbers.pick(&[0.0, 0.3, 1.0, 5.0])),
        "network_delay" => ParamValue::Float(numbers.pick(&[6.0, 7.0, 12.0, 20.0])),
        // The other value cannot be combined with `packed`; the parity tests of phases use it.
        "planned_rate" => ParamValue::Str("mean".to_owned()),
        // A lease must be longer than every restart, for any gang size.
        "overhead_per_gpu_s" => ParamValue::Float(numbers.pick(&[0.0, 0.01])),
        // This time must be short, because every copy pauses for it once per period.
        "merge_s" => ParamValue::Float(numbers.below(5) as f64),
        // Without a quantum, equal jobs would swap every nanosecond.
        "las_quantum" => ParamValue::Float(numbers.pick(&[1.0, 5.0, 30.0])),
        // A round must be longer than the consolidation of copies.
        "c0_s" => ParamValue::Float(numbers.pick(&[0.0, 0.5, 1.0, 5.0])),
        // With a weight of 0, the moving average would never change, so the policy rejects it.
        "estimator_alpha" => ParamValue::Float(numbers.pick(&[0.1, 0.5, 1.0])),
        // At least one pass must give out copies.
        "fill" => ParamValue::Bool(true),
        // The exact search supports only few jobs, and a wide beam makes each round slow.
        "tier" => ParamValue::Str(numbers.pick(&["beam", "greedy", "greedy"]).to_owned()),
        "beam_width" => ParamValue::Float(numbers.pick(&[1.0, 2.0, 4.0])),
        // Quotas are given out again at each decision. With quotas of a thousandth of an iteration, a long job would
        // take a million decisions.
        "quota" => ParamValue::Float(numbers.pick(&[0.5, 5.0, 30.0])),
        // An account may not be its own ancestor.
        "account_parents" => {
            let parents = [("ann", "bob"), ("bob", "lab"), ("shop", "lab")];
            let own =
                |(name, above): (&str, &str)| (name.to_owned(), ParamValue::Str(above.to_owned()));
            ParamValue::Table(parents.map(own).into())
        }
        // The keys have the form account/user.
        "user_shares" => {
            let names = ["ann/ann", "bob/ann", "/bob"].map(ToOwned::to_owned);
            ParamValue::named(names.map(|name| (name, numbers.below(4) as f64)))
        }
        // Only one QOS preempts another, because jobs of two QOS that preempt each other could do so for ever.
        "qos_preempt" => {
            let below = ParamValue::words(["ann"]);
            ParamValue::Table([("bob".to_owned(), below)].into())
        }
        // A horizon may not be shorter than the age of a job. Names that are not GPU types would leave a partition
        // without GPUs.
        "horizon_s" | "partition_types" => ParamValue::None,
        // (1 + surcharge) x factor must be at most 1, because higher prices can keep every job off an empty cluster.
        "umin_factor" => ParamValue::Float(numbers.pick(&[0.01, 0.25, 0.5])),
        "spread_surcharge" => ParamValue::Float(numbers.pick(&[0.0, 0.1, 1.0])),
        _ => return None,
    })
}

/// Draws a value of a kind: a bound, a value near the default, or a value on the scale of the random worlds.
fn draw_value(spec: &ParamSpec, numbers: &mut Numbers) -> ParamValue {
    match spec.kind {
        ParamKind::Bool => ParamValue::Bool(numbers.once_in(2)),
        ParamKind::AtLeast(least) | ParamKind::Maybe(least) => {
            let is_least = numbers.once_in(3);
            ParamValue::Float(if is_least {
                least
            } else {
                number(spec, numbers).max(least)
            })
        }
        ParamKind::Above(bound) => ParamValue::Float(bound + number(spec, numbers)),
        ParamKind::Whole(least) | ParamKind::MaybeWhole(least) => {
            ParamValue::Float(least + numbers.pick(&[0.0, 1.0, 2.0, 3.0, 8.0]))
        }
        ParamKind::Share => ParamValue::Float(numbers.pick(&[0.0, 0.3, 0.8, 0.999])),
        ParamKind::Fraction => ParamValue::Float(numbers.pick(&[0.0, 0.2, 0.7, 1.0])),
        // Other strings name parts of a cluster, and the keys of tables depend on each other, so neither kind is drawn.
        ParamKind::Text | ParamKind::Tables(_) => spec.default.value(),
        ParamKind::Choice(words) => ParamValue::Str(numbers.pick(words).to_owned()),
        ParamKind::Increasing => {
            // A gang of 64 GPUs that is promoted again and again would pass a limit of 0.5 GPU-seconds a million times.
            let lists = [&[5.0, 40.0][..], &[2.0], &[20.0], &[3.0, 9.0, 30.0]];
            ParamValue::numbers(numbers.pick(&lists).iter().copied())
        }
        ParamKind::Positives => {
            let count = 1 + numbers.below(9);
            ParamValue::numbers((0..count).map(|_| numbers.pick(&TIMES)))
        }
        // A valid table of shares is also a valid table of weights.
        ParamKind::NamedShares | ParamKind::NamedWeights => shares(numbers),
        ParamKind::Named(kind) => {
            let value = ParamSpec {
                kind: *kind,
                ..*spec
            };
            let mut table = Params::new();
            for name in QUEUES {
                if numbers.once_in(2) {
                    table.insert(name.to_owned(), draw_value(&value, numbers));
                }
            }
            ParamValue::Table(table)
        }
        ParamKind::Names => {
            let lists = [&[][..], &QUEUES[1..2], &QUEUES];
            ParamValue::words(numbers.pick(&lists).iter().copied())
        }
        ParamKind::Words(words) => {
            let first = numbers.below(words.len() as u64) as usize;
            ParamValue::words(words[first..].iter().copied())
        }
    }
}

fn number(spec: &ParamSpec, numbers: &mut Numbers) -> f64 {
    if spec.outlasts_restarts {
        return numbers.pick(&OVER_RESTARTS_S);
    }
    if spec.unit == "s" || spec.unit.starts_with("GPU-s") {
        return numbers.pick(&TIMES);
    }
    match spec.default {
        ParamDefault::Float(value) if value > 0.0 => value * numbers.pick(&[0.1, 0.5, 1.0, 2.0]),
        _ => numbers.pick(&[1e-10, 0.5, 2.0]),
    }
}

/// Draws shares for every user and virtual cluster in the random worlds.
fn shares(numbers: &mut Numbers) -> ParamValue {
    let whole = QUEUES.map(|_| (1 + numbers.below(9)) as f64);
    let total: f64 = whole.iter().sum();
    let names = QUEUES.iter().map(ToString::to_string);
    ParamValue::named(names.zip(whole.iter().map(|share| share / total)))
}
