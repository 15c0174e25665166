//! `hadare`: every job trains several copies on different servers; the copies are consolidated after each round. This
//! is our interpretation of `HadarE` (arXiv 2503.10918); `docs/policies/hadare.md` separates the paper's rules from our
//! own choices.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | `n`, `k` | `draft::Nodes` | servers that can hold a copy, in groups of the same GPU type and size |
//! | `J'` | `HadarE::active` | unfinished jobs |
//! | `F_j` | `HadarEParams::max_copies` | maximum number of copies of a job |
//! | `K_j(t)` | `draft::Grant` | copies of a job in a round, by group |
//! | `S_j` | `view.remaining_work(job)` | remaining work |
//! | `X_jk` | `Parent::rates` | rate of a copy in each column; the same for all nodes of a group unless rates are estimated |
//! | `L_s` | `HadarEParams::round` | length of a round |
//! | `o_jk` | `draft::Draft::overhead` | time without progress at the start of a round; the same for all copies of a job |
//!
//! The policy decides at round boundaries. A decision costs O((servers + running copies) x log jobs). With prices,
//! every unfinished job also bids for each group, and each assigned copy costs O(groups x log bids). With estimated
//! rates, nodes differ from each other, so every unfinished job bids for each node.

mod draft;
mod estimates;
mod params;

pub(crate) use params::{EstimatorName, FanIn, HadarEParams};

use crate::hadar::facts::{Facts, Rates};
use crate::hadar::params::Terms;
use crate::hadar::price::Pricing;
use crate::kit::why::{NO_PLACE, PRICE};
use draft::{Draft, Nodes, Parent, Standing};
use estimates::{Copy, LastPlan, Oracle};
use gangline_engine::{
    Cause, Change, Changes, ClusterView, Counted, Knowledge, Next, Plan, Policy, PolicyError,
    PolicyTraits, Reason, WakeOn,
};
use gangline_model::{Action, GpuSet, GpuTypeId, JobId, ServerId, SimSpan, Terms as HoldTerms};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The free servers are too slow for the job.
pub(crate) static TOO_SLOW: Reason = Reason::new(
    NO_PLACE.name,
    NO_PLACE.meaning,
    "{free}, but only on servers where its copy would run at less than `min_share` of the rate of its fastest copy",
)
.otherwise("{free}")
.ends_when_free();

/// Copies of other jobs hold every server that the job can use.
pub(crate) static COPIES: Reason = Reason::new(
    "copies",
    "copies of other jobs hold every server that it can use; the job with the most copies is named",
    "copies of other jobs, such as {some}, held every server that it can use",
)
.counts(Counted::Copies)
.ends_when_free();

/// Factor applied to the quotas of a job's last round, so that rounding leaves no work for a further round.
const NO_CRUMB: f64 = 1.0 + 1e-9;

/// The policy `hadare`.
#[derive(Debug)]
pub(crate) struct HadarE {
    params: HadarEParams,
    nodes: Nodes,
    /// Active jobs. In their facts, groups count as GPU types, and one node counts as one GPU.
    active: BTreeMap<JobId, Facts>,
    parents: BTreeMap<JobId, Parent>,
    pricing: Pricing,
    standing: Standing,
    estimator: Box<dyn estimates::Estimator>,
    last_plan: LastPlan,
    is_held: bool,
}

impl HadarE {
    pub(crate) fn new(params: HadarEParams) -> Self {
        Self {
            params,
            nodes: Nodes::default(),
            active: BTreeMap::new(),
            parents: BTreeMap::new(),
            pricing: Pricing::new(0),
            standing: Standing::default(),
            estimator: Box::new(Oracle),
            last_plan: LastPlan::default(),
            is_held: false,
        }
    }

    /// Returns the true rate of a copy of a job that runs alone on a server of a group; 0 means that the job cannot run
    /// there.
    fn true_rate(&self, view: &ClusterView<'_>, job: JobId, group: usize) -> f64 {
        let of = &self.nodes.servers.groups[group];
        if view.usable_types(job) >> of.gpu_type.index() & 1 == 0 {
            return 0.0;
        }
        view.rate_alone(job, &self.copy(of.first))
    }

    /// Returns the GPUs of a copy on a server.
    fn copy(&self, server: ServerId) -> GpuSet {
        let gpus = self.nodes.copy_gpus[self.nodes.servers.group(server.0)];
        GpuSet::single(server, u64::MAX >> (64 - gpus))
    }

    /// For each column, returns the rate that is used for planning.
    fn rates_of(&self, view: &ClusterView<'_>, job: JobId) -> Result<Vec<f64>, PolicyError> {
        let groups = 0..self.nodes.servers.groups.len();
        let exact: Vec<f64> = groups.map(|at| self.true_rate(view, job, at)).collect();
        if self.params.estimator.is_exact() {
            return Ok(exact);
        }
        let is_measured = view.has_measured_rates(job);
        let mut rates = Vec::with_capacity(self.nodes.columns());
        for (node, group) in self.nodes.group_by_column().enumerate() {
            let Some(group) = group.filter(|&at| exact[at] > 0.0) else {
                rates.push(0.0);
                continue;
            };
            let (rate, gpus) = (exact[group], self.nodes.copy_gpus[group]);
            let gpu_type = self.nodes.servers.groups[group].gpu_type;
            let measured = || view.copy_rate(job, gpu_type, gpus);
            let copy = Copy {
                job,
                node: node as u32,
                rate,
                measured: is_measured.then(measured),
            };
            let estimate = self.estimator.estimate(copy);
            if !estimate.is_finite() || estimate <= 0.0 {
                return Err(self.bad_estimate(copy, estimate));
            }
            rates.push(estimate);
        }
        Ok(rates)
    }

    fn bad_estimate(&self, copy: Copy, estimate: f64) -> PolicyError {
        PolicyError::Parameter {
            policy: self.params.policy.clone(),
            field: "estimator".to_owned(),
            value: self.params.estimator.name().to_owned(),
            expected: format!(
                "an estimator with finite rates above 0; the estimate for the copy of job {} on server {} is {estimate} iterations/s",
                copy.job, copy.node
            ),
        }
    }

    fn parent(&self, view: &ClusterView<'_>, job: JobId) -> Result<Parent, PolicyError> {
        let rates = self.rates_of(view, job)?;
        Ok(Parent {
            best_rate: rates.iter().copied().fold(0.0, f64::max),
            rates,
            bytes: view.grad_bytes(job),
        })
    }

    fn facts(
        &self,
        view: &ClusterView<'_>,
        job: JobId,
        parent: &Parent,
    ) -> Result<Facts, PolicyError> {
        let columns = parent.rates.iter().zip(self.nodes.group_by_column());
        let rates: Rates = columns
            .filter(|(rate, _)| **rate > 0.0)
            .filter_map(|(rate, group)| Some((GpuTypeId::new(group?), *rate)))
            .collect();
        let terms = (self.params.utility, self.params.round);
        Facts::new(view, terms, (job, 1), rates, None)
    }

    fn arrive(&mut self, view: &ClusterView<'_>, job: JobId) -> Result<(), PolicyError> {
        let parent = self.parent(view, job)?;
        let facts = self.facts(view, job, &parent)?;
        if self.params.price_pass {
            self.pricing.add(&facts);
        }
        self.standing.insert(job, &parent);
        self.active.insert(job, facts);
        self.parents.insert(job, parent);
        Ok(())
    }

    fn leave(&mut self, job: JobId) {
        if let Some(facts) = self.active.remove(&job)
            && self.params.price_pass
        {
            self.pricing.remove(&facts);
        }
        if let Some(parent) = self.parents.remove(&job) {
            self.standing.remove(job, &parent);
        }
    }

    /// Updates the estimator with the observations from the last round, and then updates the planning rates of every
    /// job.
    fn learn(&mut self, view: &ClusterView<'_>, changes: &Changes) -> Result<(), PolicyError> {
        let failed = changes.order.iter().filter_map(|change| match change {
            Change::Down(server) => Some(server.0),
            _ => None,
        });
        let failed: BTreeSet<u32> = failed.collect();
        self.last_plan.tell(&mut *self.estimator, &failed);
        let jobs: Vec<JobId> = self.active.keys().copied().collect();
        for job in jobs {
            self.leave(job);
            self.arrive(view, job)?;
        }
        Ok(())
    }

    /// Records the changes. Returns whether anything has changed.
    fn note(&mut self, view: &ClusterView<'_>, changes: &Changes) -> Result<bool, PolicyError> {
        for change in &changes.order {
            match *change {
                Change::Arrived(job) => self.arrive(view, job)?,
                Change::Finished(job) => self.leave(job),
                Change::Up(server) => self.nodes.servers.set_up(server, true),
                Change::Down(server) => self.nodes.servers.set_up(server, false),
            }
        }
        Ok(!changes.order.is_empty())
    }

    /// Checks that overheads leave time for progress in a round, for every possible number of copies.
    fn check_windows(&self, view: &ClusterView<'_>) -> Result<(), PolicyError> {
        for job in view.jobs().ids() {
            let groups = self.nodes.servers.groups.iter().enumerate();
            let holding = groups.filter(|(at, _)| self.true_rate(view, job, *at) > 0.0);
            let nodes: u32 = holding.map(|(_, group)| group.servers).sum();
            if nodes == 0 {
                continue; // A job without a copy is left out of the run.
            }
            let most = self
                .params
                .max_copies
                .unwrap_or(usize::MAX)
                .min(nodes as usize);
            let start = view.overhead(job).max(view.restart_overhead(job));
            let merge = self.params.consolidation(most, view.grad_bytes(job));
            let overhead = start.max(merge);
            if overhead >= self.params.round {
                return Err(PolicyError::Parameter {
                    policy: self.params.policy.clone(),
                    field: "round_s".to_owned(),
                    value: self.params.round.seconds().to_string(),
                    expected: format!(
                        "more than {} s, the time that starting or consolidating the copies of job \
                         {job} may take",
                        overhead.seconds()
                    ),
                });
            }
        }
        Ok(())
    }

    fn decide_round(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<bool, PolicyError> {
        let up = self.nodes.servers.up_total();
        let mut draft = Draft::new(view, &self.params, &mut self.nodes, &self.parents);
        if self.params.price_pass && up > 0 {
            let terms = Terms {
                policy: &self.params.policy,
                round: self.params.round,
                umin_factor: self.params.umin_factor,
                horizon: None,
            };
            let now = view.now();
            let bounds = self.pricing.bounds(&terms, now, &self.active, up)?;
            draft.price_pass(&self.active, &bounds)?;
        }
        if self.params.fill {
            draft.fill_pass(&mut self.standing);
        }
        let placed = draft.settle();
        let mut all_stay = placed.len() == self.active.len();
        for (job, nodes, overhead) in placed {
            all_stay &= self.emit(view, plan, (job, &nodes), overhead)?;
            if self.estimator.learns() {
                self.remember(view, job, &nodes);
            }
        }
        Ok(all_stay && self.params.estimator.is_exact())
    }

    fn remember(&mut self, view: &ClusterView<'_>, job: JobId, nodes: &[u32]) {
        for &node in nodes {
            let estimate = self.parents[&job].rates[self.nodes.column(node)];
            self.estimator.place(job, node, estimate);
            self.last_plan.push(Copy {
                job,
                node,
                rate: self.true_rate(view, job, self.nodes.servers.group(node)),
                measured: None,
            });
        }
    }

    /// Returns the maximum number of iterations that each copy of a job may do in the round, based on the estimated
    /// rates; `None` means no limit.
    fn quotas(
        &self,
        view: &ClusterView<'_>,
        (job, nodes): (JobId, &[u32]),
        overhead: SimSpan,
    ) -> Result<Vec<Option<f64>>, PolicyError> {
        if self.params.estimator.is_exact() {
            return Ok(vec![None; nodes.len()]);
        }
        let left = view.remaining_work(job)?;
        let window_s = SimSpan(self.params.round.0 - overhead.0).seconds();
        let rates = &self.parents[&job].rates;
        let rates = || nodes.iter().map(|&node| rates[self.nodes.column(node)]);
        let (mut budget, mut sum) = (0.0, 0.0);
        for rate in rates() {
            budget += rate * window_s;
            sum += rate;
        }
        let quota = |rate: f64| {
            if budget <= left {
                rate * window_s
            } else if left <= 0.0 {
                f64::INFINITY
            } else {
                left * rate / sum * NO_CRUMB
            }
        };
        Ok(rates().map(|rate| Some(quota(rate))).collect())
    }

    /// Writes the actions for a job. Returns whether the job ran as a single copy and stays on the same node.
    fn emit(
        &self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        (job, nodes): (JobId, &[u32]),
        overhead: SimSpan,
    ) -> Result<bool, PolicyError> {
        let parts = view.run(job).map_or(&[][..], |run| run.parts());
        for part in parts {
            if !nodes.contains(&u32::from(part.number)) {
                plan.push(Action::preempt(job).of_part(part.number));
            }
        }
        let quotas = self.quotas(view, (job, nodes), overhead)?;
        for (&node, quota) in nodes.iter().zip(quotas) {
            let number = node as u16;
            let terms = |overhead| HoldTerms {
                overhead,
                quota,
                ..HoldTerms::default()
            };
            if parts.iter().any(|part| part.number == number) {
                // If several copies become one copy, they are consolidated so that their progress is saved.
                let pause = if nodes.len() > 1 {
                    Some(overhead)
                } else {
                    (parts.len() > 1).then_some(SimSpan::ZERO)
                };
                if pause.is_some() || quota.is_some() {
                    plan.push(Action::keep(job, terms(pause)).of_part(number));
                }
                continue;
            }
            let gpus = self.copy(ServerId(node));
            let start = Action::start(job, gpus).with(terms(Some(overhead)));
            plan.push(start.of_part(number));
        }
        Ok(nodes.len() == 1 && parts.len() == 1 && u32::from(parts[0].number) == nodes[0])
    }
}

impl Policy for HadarE {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            wake_on: WakeOn::ROUND,
            round: Some(self.params.round),
            knowledge: Knowledge::Remaining,
            forks: true,
            copy_gpus: self.params.copy_gpus,
            orders_changes: true,
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        _plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        let servers = view.cluster().servers().len();
        if servers > usize::from(u16::MAX) {
            let message = format!(
                "the cluster has {servers} servers, but `hadare` numbers copies by server, up to 65,535"
            );
            return Err(PolicyError::Failed { message });
        }
        self.nodes = Nodes::new(view, &self.params);
        self.pricing = Pricing::new(self.nodes.servers.groups.len());
        self.standing = Standing::new(self.nodes.columns());
        self.estimator = estimates::estimator(self.params.estimator, view);
        self.check_windows(view)?;
        Ok(Vec::new())
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        let has_event = self.note(view, changes)?;
        if self.is_held && !has_event {
            return Ok(Next::Steady);
        }
        if self.estimator.learns() {
            self.learn(view, changes)?;
        }
        self.is_held = self.active.is_empty() || self.decide_round(view, plan)?;
        Ok(if self.is_held {
            Next::Steady
        } else {
            Next::Ask
        })
    }

    fn reasons(&self) -> Vec<&'static Reason> {
        vec![&TOO_SLOW, &COPIES, &PRICE]
    }

    fn why(&self, view: &ClusterView<'_>, job: JobId) -> Option<Cause> {
        let parent = self.parents.get(&job)?;
        let rate = |node: u32| parent.rates[self.nodes.column(node)];
        let mut is_taken = BTreeSet::new();
        let mut most: Option<(u32, Reverse<JobId>)> = None;
        for run in view.running().filter_map(|other| view.run(other)) {
            let nodes = run
                .parts()
                .iter()
                .map(|part| part.gpus.by_server()[0].server.0);
            let nodes: Vec<u32> = nodes.collect();
            if nodes.iter().any(|&node| rate(node) > 0.0) {
                most = most.max(Some((nodes.len() as u32, Reverse(run.job))));
            }
            is_taken.extend(nodes);
        }
        let groups = 0..self.nodes.servers.groups.len();
        let up = groups.flat_map(|group| self.nodes.idle(group).iter());
        let up = up.map(|node| node as u32);
        let mut idle = up.filter(|node| !is_taken.contains(node) && rate(*node) > 0.0);
        if let Some(first) = idle.next() {
            let least = self.params.min_share * parent.best_rate;
            let is_fast = |node| rate(node) >= least;
            let may_have = is_fast(first) || idle.any(is_fast);
            return Some(if may_have {
                Cause::new(&PRICE)
            } else {
                Cause::new(&TOO_SLOW)
            });
        }
        let (copies, Reverse(job)) = most?;
        Some(Cause::of(&COPIES, job).number(copies))
    }
}
