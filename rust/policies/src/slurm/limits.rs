//! Limits on the concurrent jobs of QOS, users and accounts: the counters, and the amounts that each job adds to them.

use super::params::SlurmParams;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The amount that a job adds to a counter, and whether the counter limits the job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Count {
    counter: usize,
    amount: u32,
    is_limit: bool,
}

/// The amounts that a job adds to all counters.
pub(super) type Counts = SmallVec<[Count; 4]>;

#[derive(Clone, Copy, Debug)]
struct Counter {
    most: f64,
    now: u32,
}

/// Counters for running jobs, each with its limit.
#[derive(Clone, Debug, Default)]
pub(super) struct Limits {
    counters: Vec<Counter>,
}

impl Limits {
    /// Returns whether a limit currently keeps a job from starting.
    pub(super) fn is_held(&self, counts: &Counts) -> bool {
        let mut limits = counts.iter().filter(|count| count.is_limit);
        limits.any(|count| {
            let counter = self.counters[count.counter];
            f64::from(counter.now) + f64::from(count.amount) > counter.most
        })
    }

    /// Returns whether a job would exceed a limit even if no other job ran.
    pub(super) fn is_beyond(&self, counts: &Counts) -> bool {
        let mut limits = counts.iter().filter(|count| count.is_limit);
        limits.any(|count| f64::from(count.amount) > self.counters[count.counter].most)
    }

    /// Records that a job starts.
    pub(super) fn start(&mut self, counts: &Counts) {
        for count in counts {
            self.counters[count.counter].now += count.amount;
        }
    }

    /// Records that a job stops.
    pub(super) fn stop(&mut self, counts: &Counts) {
        for count in counts {
            self.counters[count.counter].now -= count.amount;
        }
    }
}

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Of<'a> {
    Qos(&'a str),
    UserGpus(&'a str, &'a str),
    UserJobs(&'a str, &'a str),
    Account(&'a str),
}

/// Builder of the counters that the jobs of a trace need.
#[derive(Debug)]
pub(super) struct LimitsMaker<'a> {
    params: &'a SlurmParams,
    numbers: FxHashMap<Of<'a>, usize>,
    pub(super) limits: Limits,
}

impl<'a> LimitsMaker<'a> {
    pub(super) fn new(params: &'a SlurmParams) -> Self {
        Self {
            params,
            numbers: FxHashMap::default(),
            limits: Limits::default(),
        }
    }

    /// Returns the amounts that a job with this number of GPUs adds, for its account, user and QOS.
    pub(super) fn counts(
        &mut self,
        (account, user, qos): (&'a str, &'a str, &'a str),
        gpus: u32,
    ) -> Counts {
        let params = self.params;
        let mut counts = Counts::new();
        let mut add = |of, most: Option<&f64>, amount, is_limit| {
            let Some(&most) = most else { return };
            let counters = &mut self.limits.counters;
            let counter = *self.numbers.entry(of).or_insert_with(|| {
                counters.push(Counter { most, now: 0 });
                counters.len() - 1
            });
            counts.push(Count {
                counter,
                amount,
                is_limit,
            });
        };
        let group = params.qos_grp_gpus.get(qos);
        add(Of::Qos(qos), group, gpus, true);
        add(
            Of::UserGpus(user, qos),
            params.qos_user_gpus.get(qos),
            gpus,
            true,
        );
        add(
            Of::UserJobs(user, qos),
            params.qos_user_jobs.get(qos),
            1,
            true,
        );
        // A limit of the QOS takes precedence over limits of accounts.
        for account in params.fair.ancestry(account) {
            let most = params.account_grp_gpus.get(account);
            add(Of::Account(account), most, gpus, group.is_none());
        }
        counts
    }
}
