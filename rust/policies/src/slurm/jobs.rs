//! The properties of jobs, which the policy computes only once. Jobs with the same properties share a profile.

use super::fairshare::{FairShare, ratio};
use super::limits::{Counts, Limits, LimitsMaker};
use super::params::SlurmParams;
use crate::kit::Places;
use gangline_engine::ClusterView;
use gangline_model::{GpuTypeId, JobFacts, JobId, Label, SimSpan, SimTime};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// Time limit of a job that may run as long as it needs.
pub(super) const UNLIMITED: SimSpan = SimSpan(i64::MAX);

/// GPU types in the order in which the policy tries them.
pub(super) type Types = SmallVec<[GpuTypeId; 4]>;

/// A kind: the jobs of one demand class and one partition. Either all of them fit, or none does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    pub(super) class: usize,
    pub(super) partition: u32,
    pub(super) types: Types,
}

/// Everything that determines a job's position in the order, except for age and usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LineKey {
    /// Whether jobs of the line cannot preempt others.
    pub(super) is_last: bool,
    /// Tier of the partition.
    pub(super) tier: i64,
    pub(super) partition: u32,
    /// The association of the jobs, if fair share has a weight.
    pub(super) association: u32,
    /// The constant terms of the priority, as the bits of a float.
    pub(super) terms: [u64; 4],
    pub(super) nice: i32,
    /// For preempted jobs, the instant at which they began to wait again; other jobs have waited since their arrival.
    pub(super) since: Option<SimTime>,
}

/// A profile: properties that several jobs share.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    pub(super) kind: usize,
    pub(super) gpus: u32,
    pub(super) user: u32,
    pub(super) qos: u32,
    /// Index of the meter for this combination of association and QOS.
    pub(super) meter: usize,
    pub(super) counts: Counts,
    pub(super) line: LineKey,
}

impl Profile {
    /// Returns whether jobs of the profile may preempt others.
    pub(super) fn can_preempt(&self) -> bool {
        !self.line.is_last
    }
}

/// The profile of each job, and the list of kinds.
#[derive(Clone, Debug, Default)]
pub(super) struct JobKinds {
    of: Vec<u32>,
    profiles: Vec<Profile>,
    pub(super) kinds: Vec<Kind>,
    pub(super) partitions: usize,
}

/// Facts about a trace that are known before the run.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) jobs: JobKinds,
    pub(super) fair: FairShare,
    pub(super) limits: Limits,
    /// Names of the QOS, by index.
    pub(super) qos_names: Vec<String>,
}

/// The names that occur in jobs, and the index of each name.
#[derive(Debug, Default)]
struct Names<'a> {
    numbers: BTreeMap<&'a str, u32>,
}

impl<'a> Names<'a> {
    fn number(&mut self, name: &'a str) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(name).or_insert(next)
    }
}

/// The user, account, partition and QOS of a job; a missing name is replaced by Slurm's default.
#[derive(Clone, Copy, Debug)]
struct Whose<'a> {
    user: &'a str,
    account: &'a str,
    partition: &'a str,
    qos: &'a str,
}

impl<'a> Whose<'a> {
    fn of(jobs: &'a JobFacts, job: JobId) -> Self {
        let labels = &jobs.columns().labels;
        let name = |label: &'a Label, absent| {
            label
                .of(job)
                .filter(|name| !name.is_empty())
                .unwrap_or(absent)
        };
        Self {
            user: name(&labels.user, "default"),
            account: name(&labels.account, ""),
            partition: name(&labels.partition, "default"),
            qos: name(&labels.qos, "normal"),
        }
    }
}

/// The values that distinguish profiles: class, labels, nice value, and the time limit if the size factor depends on
/// it.
type Key = (usize, [u32; 4], i32, SimSpan);

fn key(jobs: &JobFacts, places: &Places, job: JobId, limit: SimSpan) -> Key {
    let labels = &jobs.columns().labels;
    let code = |label: &Label| {
        label
            .codes
            .as_ref()
            .map_or(u32::MAX, |codes| codes[job.index()])
    };
    let codes = [
        &labels.user,
        &labels.account,
        &labels.partition,
        &labels.qos,
    ]
    .map(code);
    (places.class_of(job), codes, jobs.nice(job), limit)
}

impl JobKinds {
    /// Returns the profiles of a trace, and the other facts that are known before the run. `limit` is called only if
    /// the size factor of a job depends on its time limit.
    #[expect(
        clippy::too_many_lines,
        reason = "one walk over the columns of the trace"
    )]
    pub(super) fn of_trace<'a>(
        view: &ClusterView<'a>,
        places: &Places,
        params: &'a SlurmParams,
        limit: impl Fn(JobId) -> SimSpan,
    ) -> Known {
        let jobs = view.jobs();
        let has_relative_size = params.small_relative_to_time && params.weights.job_size > 0.0;
        let limit = |job| {
            if has_relative_size {
                limit(job)
            } else {
                UNLIMITED
            }
        };
        let mut found: FxHashMap<Key, u32> = FxHashMap::default();
        let mut first: Vec<(JobId, SimSpan)> = Vec::new();
        let mut of = Vec::with_capacity(jobs.len());
        for job in jobs.ids() {
            let limit = limit(job);
            let profile = *found
                .entry(key(jobs, places, job, limit))
                .or_insert_with(|| {
                    first.push((job, limit));
                    first.len() as u32 - 1
                });
            of.push(profile);
        }
        let whose: Vec<Whose<'_>> = first.iter().map(|&(job, _)| Whose::of(jobs, job)).collect();
        let pairs: BTreeSet<_> = whose.iter().map(|of| (of.account, of.user)).collect();
        let mut fair = FairShare::new(params.fair.clone(), &pairs);
        let meter = |of: &Whose<'a>| (fair.association(of.account, of.user), of.qos);
        let of_meter: Vec<(usize, &str)> = whose.iter().map(meter).collect();
        let factor = |qos: &str| params.qos_usage_factor.get(qos).copied().unwrap_or(1.0);
        let meters: BTreeMap<_, _> = of_meter.iter().map(|&key| (key, factor(key.1))).collect();
        let numbers: BTreeMap<_, _> = meters.keys().zip(0..).map(|(key, at)| (*key, at)).collect();
        fair.add_meters(&meters);

        let terms = Terms::new(view, params, &whose);
        let (mut users, mut partitions, mut qos) = <(Names<'a>, Names<'a>, Names<'a>)>::default();
        let mut limits = LimitsMaker::new(params);
        let mut kinds: Vec<Kind> = Vec::new();
        let mut profiles = Vec::with_capacity(first.len());
        for ((&(job, limit), of), &(association, name)) in first.iter().zip(&whose).zip(&of_meter) {
            let gpus = jobs.gpus(job);
            let partition = partitions.number(of.partition);
            let mut types: Types = places.class(job).types.clone();
            types.retain(|id| terms.is_of(of.partition, *id));
            types.sort_unstable();
            let kind = Kind {
                class: places.class_of(job),
                partition,
                types,
            };
            let at = kinds.iter().position(|known| *known == kind);
            let kind = at.unwrap_or_else(|| {
                kinds.push(kind);
                kinds.len() - 1
            });
            let tier = params.partition_tier.get(of.partition);
            profiles.push(Profile {
                kind,
                gpus,
                user: users.number(of.user),
                qos: qos.number(of.qos),
                meter: numbers[&(association, name)],
                counts: limits.counts((of.account, of.user, of.qos), gpus),
                line: LineKey {
                    is_last: params.preempts(of.qos).is_empty(),
                    tier: tier.map_or(1, |&tier| tier as i64),
                    partition,
                    association: if params.weights.fairshare > 0.0 {
                        association as u32
                    } else {
                        0
                    },
                    terms: terms.of(of, gpus, limit).map(f64::to_bits),
                    nice: jobs.nice(job),
                    since: None,
                },
            });
        }
        let mut qos_names = vec![String::new(); qos.numbers.len()];
        for (name, number) in qos.numbers {
            name.clone_into(&mut qos_names[number as usize]);
        }
        Known {
            jobs: Self {
                of,
                profiles,
                kinds,
                partitions: partitions.numbers.len(),
            },
            fair,
            limits: limits.limits,
            qos_names,
        }
    }

    #[inline]
    pub(super) fn of(&self, job: JobId) -> &Profile {
        &self.profiles[self.of[job.index()] as usize]
    }
}

/// Computes the terms of the priority that depend on neither time nor usage.
struct Terms<'a> {
    params: &'a SlurmParams,
    /// Number of GPUs of each type, whether up or down.
    gpus: Vec<u32>,
    types: Vec<&'a str>,
    factor_max: f64,
    priority_max: f64,
}

impl<'a> Terms<'a> {
    fn new(view: &ClusterView<'a>, params: &'a SlurmParams, whose: &[Whose<'_>]) -> Self {
        let cluster = view.cluster();
        let types = cluster.gpu_types();
        let mut gpus = vec![0; types.len()];
        for server in cluster.servers() {
            gpus[server.gpu_type.index()] += server.gpus;
        }
        let largest =
            |given: &BTreeMap<String, f64>, names: &mut dyn Iterator<Item = &str>, default| {
                let of_trace = names.map(|name| given.get(name).copied().unwrap_or(default));
                of_trace.chain(given.values().copied()).fold(0.0, f64::max)
            };
        Self {
            factor_max: largest(
                &params.partition_factor,
                &mut whose.iter().map(|of| of.partition),
                1.0,
            ),
            priority_max: largest(
                &params.qos_priority,
                &mut whose.iter().map(|of| of.qos),
                0.0,
            ),
            types: types.iter().map(|of| of.name.as_str()).collect(),
            gpus,
            params,
        }
    }

    /// Returns whether a partition contains a GPU type.
    fn is_of(&self, partition: &str, gpu_type: GpuTypeId) -> bool {
        let names = self.params.partition_types.get(partition);
        let name = self.types[gpu_type.index()];
        names.is_none_or(|names| names.iter().any(|own| own == name))
    }

    fn size(&self, gpus: u32, limit: SimSpan) -> f64 {
        let every = f64::from(self.gpus.iter().sum::<u32>());
        if self.params.small_relative_to_time {
            let size = if limit == UNLIMITED {
                0.0
            } else {
                let minutes = limit.0 as f64 / 1e9 / 60.0;
                (f64::from(gpus) / minutes / every).min(1.0)
            };
            return if self.params.favor_small {
                1.0 - size
            } else {
                size
            };
        }
        if self.params.favor_small {
            return (every - f64::from(gpus) + 1.0) / every;
        }
        f64::from(gpus) / every
    }

    /// Returns the factors for job size, partition, QOS and GPUs, each of them multiplied by its weight.
    fn of(&self, of: &Whose<'_>, gpus: u32, limit: SimSpan) -> [f64; 4] {
        let params = self.params;
        let weights = &params.weights;
        let factor = params
            .partition_factor
            .get(of.partition)
            .copied()
            .unwrap_or(1.0);
        let priority = params.qos_priority.get(of.qos).copied().unwrap_or(0.0);
        let mut of_partition = 0;
        for (at, gpus) in self.gpus.iter().enumerate() {
            if self.is_of(of.partition, GpuTypeId::new(at)) {
                of_partition += gpus;
            }
        }
        [
            weights.job_size * self.size(gpus, limit),
            weights.partition * ratio(factor, self.factor_max),
            weights.qos * ratio(priority, self.priority_max),
            weights.gpu * ratio(f64::from(gpus), f64::from(of_partition)),
        ]
    }
}
