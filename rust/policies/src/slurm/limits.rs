//! Limits on the concurrent jobs of QOS, users and accounts: the counters, and the amounts that each job adds to them.

use super::params::SlurmParams;
use gangline_engine::{Cause, Counted, Reason};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Starting the job would exceed the number of GPUs that the jobs of its QOS may hold together.
pub(super) static OF_QOS: Reason = Reason::new(
    "QOS limit",
    "starting it would exceed the number of GPUs that the jobs of its QOS may hold (`qos_grp_gpus`)",
    "the jobs of its QOS may hold {number} (qos_grp_gpus), and starting it would have exceeded this{meanwhile}",
)
.counts(Counted::Gpus);

/// Starting the job would exceed the number of GPUs that its user may hold in its QOS.
pub(super) static OF_USER: Reason = Reason::new(
    "user limit",
    "starting it would exceed the number of GPUs that its user may hold in its QOS (`qos_user_gpus`)",
    "its user may hold {number} in its QOS (qos_user_gpus), and starting it would have exceeded this{meanwhile}",
)
.counts(Counted::Gpus);

/// The job's user already runs as many jobs as the QOS allows.
pub(super) static OF_USER_JOBS: Reason = Reason::new(
    "job limit",
    "its user already runs as many jobs as its QOS allows (`qos_user_jobs`)",
    "its user may run {number} at a time in its QOS (qos_user_jobs), and starting it would have exceeded this{meanwhile}",
)
.counts(Counted::Jobs);

/// Starting the job would exceed the number of GPUs that the jobs of an account may hold.
pub(super) static OF_ACCOUNT: Reason = Reason::new(
    "account limit",
    "starting it would exceed the number of GPUs that its account, or one above it, may hold (`account_grp_gpus`)",
    "its account or one above it may hold {number} (account_grp_gpus), and starting it would have exceeded this{meanwhile}",
)
.counts(Counted::Gpus);

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
    /// The reason that is reported for a job that waits because of this counter.
    reason: &'static Reason,
}

/// Counters for running jobs, each with its limit.
#[derive(Clone, Debug, Default)]
pub(super) struct Limits {
    counters: Vec<Counter>,
}

impl Limits {
    /// Returns whether a limit currently keeps a job from starting.
    pub(super) fn is_held(&self, counts: &Counts) -> bool {
        self.holding(counts).is_some()
    }

    /// Returns, as a cause, the first limit that keeps a job waiting, with the maximum that this limit allows.
    pub(super) fn why_held(&self, counts: &Counts) -> Option<Cause> {
        let counter = self.counters[self.holding(counts)?.counter];
        Some(Cause::new(counter.reason).number(counter.most as u32))
    }

    fn holding<'a>(&self, counts: &'a Counts) -> Option<&'a Count> {
        let mut limits = counts.iter().filter(|count| count.is_limit);
        limits.find(|count| {
            let counter = self.counters[count.counter];
            f64::from(counter.now) + f64::from(count.amount) > counter.most
        })
    }

    /// Returns whether a job would exceed a limit even if no other job ran.
    pub(super) fn is_beyond(&self, counts: &Counts) -> bool {
        let mut limits = counts.iter().filter(|count| count.is_limit);
        limits.any(|count| f64::from(count.amount) > self.counters[count.counter].most)
    }

    pub(super) fn start(&mut self, counts: &Counts) {
        for count in counts {
            self.counters[count.counter].now += count.amount;
        }
    }

    pub(super) fn stop(&mut self, counts: &Counts) {
        for count in counts {
            self.counters[count.counter].now -= count.amount;
        }
    }
}

/// Identifies a counter by its owner and by the quantity that it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Of<'a> {
    Qos(&'a str),
    UserGpus(&'a str, &'a str),
    UserJobs(&'a str, &'a str),
    Account(&'a str),
}

/// Builds the counters that the jobs of a trace need.
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

    /// Returns the amounts that a job with this number of GPUs adds to the counters of its account, user and QOS.
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
                let reason = match of {
                    Of::Qos(_) => &OF_QOS,
                    Of::UserGpus(..) => &OF_USER,
                    Of::UserJobs(..) => &OF_USER_JOBS,
                    Of::Account(_) => &OF_ACCOUNT,
                };
                counters.push(Counter {
                    most,
                    now: 0,
                    reason,
                });
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
