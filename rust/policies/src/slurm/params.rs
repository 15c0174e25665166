//! Parameters of `slurm`; `docs/policies/slurm.md` lists their names in Slurm.

use crate::params::{ParamReader, ParamValue};
use crate::place::PlacementParams;
use gangline_engine::PolicyError;
use gangline_model::{ClusterSpec, SimSpan, words};
use std::collections::BTreeMap;

words! {
    /// Method of computing the fair-share factor.
    pub(crate) enum ShareRule {
        /// From ranks in the tree of accounts.
        Tree = "tree",
        /// From a formula of shares and usage.
        Classic = "classic",
    }
}

type Numbers = BTreeMap<String, f64>;

/// Weights of the factors in the priority.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weights {
    pub(super) age: f64,
    pub(super) fairshare: f64,
    pub(super) job_size: f64,
    pub(super) partition: f64,
    pub(super) qos: f64,
    pub(super) gpu: f64,
}

/// Parameters of fair share.
#[derive(Clone, Debug)]
pub(crate) struct FairParams {
    pub(super) rule: ShareRule,
    pub(super) half_life_s: f64,
    pub(super) calc_period_s: f64,
    pub(super) calc_period: SimSpan,
    pub(super) dampening: f64,
    pub(super) account_parents: BTreeMap<String, String>,
    pub(super) account_shares: Numbers,
    /// Shares of users, keyed by `account/user`.
    user_shares: Numbers,
}

impl FairParams {
    /// Returns the account above an account; the root has an empty name.
    pub(super) fn parent(&self, account: &str) -> &str {
        self.account_parents.get(account).map_or("", String::as_str)
    }

    /// Returns an account and the accounts above it, up to the root.
    pub(super) fn ancestry<'a>(&'a self, account: &'a str) -> impl Iterator<Item = &'a str> {
        let above = |&account: &&'a str| (!account.is_empty()).then(|| self.parent(account));
        std::iter::successors(Some(account), above)
    }

    /// Returns the shares of users as tuples ((account, user), shares).
    pub(super) fn user_shares(&self) -> impl Iterator<Item = ((&str, &str), f64)> {
        let given = self.user_shares.iter();
        given.filter_map(|(name, shares)| Some((name.split_once('/')?, *shares)))
    }

    /// Returns the first account that is its own ancestor.
    fn circle(&self) -> Option<&str> {
        let most = self.account_parents.len() + 2; // at most all keys, a parent that is not a key, and the root
        let accounts = self.account_parents.keys();
        let mut circles = accounts.filter(|name| self.ancestry(name).nth(most).is_some());
        circles.next().map(String::as_str)
    }
}

/// Parameters of the policy.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent options of slurm.conf"
)]
pub(crate) struct SlurmParams {
    /// Name of the policy, for error messages.
    policy: String,
    pub(super) weights: Weights,
    pub(super) max_age_s: f64,
    pub(super) favor_small: bool,
    pub(super) small_relative_to_time: bool,
    pub(super) fair: FairParams,
    pub(super) partition_tier: Numbers,
    pub(super) partition_factor: Numbers,
    pub(super) partition_types: BTreeMap<String, Vec<String>>,
    pub(super) qos_priority: Numbers,
    pub(super) qos_usage_factor: Numbers,
    qos_preempt: BTreeMap<String, Vec<String>>,
    pub(super) preempt_exempt: SimSpan,
    pub(super) qos_exempt: BTreeMap<String, SimSpan>,
    pub(super) youngest_first: bool,
    pub(super) strict_order: bool,
    pub(super) reorder_count: u64,
    pub(super) requeue_delay: SimSpan,
    pub(super) qos_grp_gpus: Numbers,
    pub(super) qos_user_gpus: Numbers,
    pub(super) qos_user_jobs: Numbers,
    pub(super) account_grp_gpus: Numbers,
    /// Time limit for jobs that specify none; zero means no limit.
    pub(super) default_limit: SimSpan,
    /// Time limit for jobs that specify none, as a multiple of their duration; 0 means that `default_limit` applies.
    pub(super) limit_factor: f64,
    pub(super) queue_depth: usize,
    /// Time between two passes over the whole queue; zero means that there are none.
    pub(super) sched_interval: SimSpan,
    pub(super) backfill: Option<BackfillParams>,
    pub(super) placement: PlacementParams,
}

/// Parameters of backfilling.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackfillParams {
    pub(super) interval: SimSpan,
    pub(super) window: SimSpan,
    pub(super) resolution: SimSpan,
    pub(super) max_job_test: usize,
    /// Maximum number of jobs of one user that a backfill pass tries; 0 means no limit.
    pub(super) max_job_user: u32,
}

impl SlurmParams {
    /// Reads the values of the parameters.
    ///
    /// # Errors
    /// Returns [`PolicyError::Parameter`] for a time out of range, an empty name, or an account that is its own
    /// ancestor.
    #[expect(clippy::too_many_lines, reason = "a line per parameter")]
    pub(crate) fn read(params: &ParamReader) -> Result<Self, PolicyError> {
        let numbers = |name| params.named_numbers(name).unwrap_or_default();
        let weights = Weights {
            age: params.number("weight_age"),
            fairshare: params.number("weight_fairshare"),
            job_size: params.number("weight_job_size"),
            partition: params.number("weight_partition"),
            qos: params.number("weight_qos"),
            gpu: params.number("weight_gpu"),
        };
        let account_parents = table(params, "account_parents", |value| {
            value.text().map(ToOwned::to_owned)
        });
        let fair = FairParams {
            rule: params.choice("fairshare", ShareRule::named),
            half_life_s: params.number("half_life_s"),
            calc_period_s: params.number("calc_period_s"),
            calc_period: params.period("calc_period_s")?,
            dampening: params.number("dampening"),
            account_parents,
            account_shares: numbers("account_shares"),
            user_shares: numbers("user_shares"),
        };
        if fair.user_shares.keys().any(|name| !name.contains('/')) {
            let expected =
                "names of the form account/user, or /user for a user directly below the root";
            return Err(params.refuse("user_shares", expected));
        }
        let above_all = [
            &fair.account_parents.contains_key(""),
            &fair.account_shares.contains_key(""),
        ];
        if above_all.contains(&&true) {
            let field = if *above_all[0] {
                "account_parents"
            } else {
                "account_shares"
            };
            return Err(params.refuse(field, "accounts with a name"));
        }
        if let Some(account) = fair.circle() {
            let expected = format!("a tree of accounts, but {account} is its own ancestor");
            return Err(params.refuse("account_parents", &expected));
        }
        let texts = |value: &ParamValue| {
            let texts = value.texts()?;
            Some(texts.into_iter().map(ToOwned::to_owned).collect())
        };
        let mut qos_exempt = BTreeMap::new();
        for (name, seconds) in numbers("qos_exempt_s") {
            let span = SimSpan::from_seconds(seconds);
            let span = span.map_err(|_| params.refuse("qos_exempt_s", "at most 4e9 seconds"))?;
            qos_exempt.insert(name, span);
        }
        let backfill = BackfillParams {
            interval: params.period("bf_interval_s")?,
            window: params.span("bf_window_s")?,
            resolution: params.period("bf_resolution_s")?,
            max_job_test: params.number("bf_max_job_test") as usize,
            max_job_user: params.number("bf_max_job_user") as u32,
        };
        let sched_interval = if params.number("sched_interval_s") > 0.0 {
            params.period("sched_interval_s")?
        } else {
            SimSpan::ZERO
        };
        Ok(Self {
            policy: params.policy().to_owned(),
            weights,
            max_age_s: params.number("max_age_s"),
            favor_small: params.flag("favor_small"),
            small_relative_to_time: params.flag("small_relative_to_time"),
            fair,
            partition_tier: numbers("partition_tier"),
            partition_factor: numbers("partition_factor"),
            partition_types: table(params, "partition_types", texts),
            qos_priority: numbers("qos_priority"),
            qos_usage_factor: numbers("qos_usage_factor"),
            qos_preempt: table(params, "qos_preempt", texts),
            preempt_exempt: params.span("preempt_exempt_s")?,
            qos_exempt,
            youngest_first: params.flag("youngest_first"),
            strict_order: params.flag("strict_order"),
            reorder_count: params.number("reorder_count") as u64,
            requeue_delay: params.span("requeue_delay_s")?,
            qos_grp_gpus: numbers("qos_grp_gpus"),
            qos_user_gpus: numbers("qos_user_gpus"),
            qos_user_jobs: numbers("qos_user_jobs"),
            account_grp_gpus: numbers("account_grp_gpus"),
            default_limit: params.span("default_limit_s")?,
            limit_factor: params.number("limit_factor"),
            queue_depth: params.number("queue_depth") as usize,
            sched_interval,
            backfill: params.flag("backfill").then_some(backfill),
            placement: PlacementParams::read(params),
        })
    }

    /// Checks that the partitions consist of GPU types of the cluster: with a misspelt type, their jobs could never run.
    ///
    /// # Errors
    /// Returns [`PolicyError::Parameter`] for a GPU type that the cluster lacks.
    pub(super) fn check_types(&self, cluster: &ClusterSpec) -> Result<(), PolicyError> {
        let types = cluster.gpu_types();
        let known: Vec<&str> = types.iter().map(|kind| kind.name.as_str()).collect();
        for (partition, names) in &self.partition_types {
            if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
                return Err(PolicyError::Parameter {
                    policy: self.policy.clone(),
                    field: format!("partition_types.{partition}"),
                    value: name.clone(),
                    expected: format!("GPU types of the cluster: {}", known.join(", ")),
                });
            }
        }
        Ok(())
    }

    /// Returns the list of QOS whose jobs a QOS may preempt.
    pub(super) fn preempts(&self, qos: &str) -> &[String] {
        self.qos_preempt.get(qos).map_or(&[], Vec::as_slice)
    }
}

/// Returns the values of a parameter, keyed by name and converted by a function.
fn table<T>(
    params: &ParamReader,
    name: &str,
    read: impl Fn(&ParamValue) -> Option<T>,
) -> BTreeMap<String, T> {
    let given = params.table(name).into_iter().flatten();
    given
        .filter_map(|(key, value)| Some((key.clone(), read(value)?)))
        .collect()
}
