//! `hadare`: every job trains as several copies on unlike servers, which are brought together after each round. Our
//! interpretation of `HadarE` (arXiv 2503.10918); what is the paper's and what is ours: `docs/policies/hadare.md`.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | `n`, `k` | `nodes::Nodes` | servers that can hold a copy, in groups of the same GPU type and size |
//! | `J'` | `HadarE::active` | unfinished jobs |
//! | `F_j` | `HadarEParams::max_copies` | most copies of a job |
//! | `K_j(t)` | `draft::Claim` | copies of a job in a round, by group |
//! | `S_j` | `view.remaining_work(job)` | work that is left |
//! | `X_jk` | `Parent::rate` | rate of a copy, the same all over a group |
//! | `L_s` | `HadarEParams::round` | length of a round |
//! | `o_jk` | `draft::Draft::overhead` | time without progress at the start of a round, the same for all copies of a job |
//!
//! Asked at round boundaries. A decision costs O((servers + running copies) x log jobs); the price pass also looks at
//! every job for every copy it gives out.

mod draft;
mod nodes;
mod params;

pub use params::{FanIn, HadarEParams};

use crate::hadar::facts::{Facts, Rates};
use crate::hadar::price::{Pricing, Terms};
use draft::{Draft, Standing};
use gangline_engine::{
    Change, Changes, ClusterView, Knowledge, Next, Plan, Policy, PolicyError, PolicyTraits, WakeOn,
};
use gangline_model::{Action, GpuSet, GpuTypeId, JobId, ServerId, SimSpan, Terms as HoldTerms};
use nodes::Nodes;
use std::collections::BTreeMap;

/// An unfinished job.
#[derive(Clone, Debug)]
pub(crate) struct Parent {
    /// Rate of a copy by group; 0 = none there.
    rates: Vec<f64>,
    best_rate: f64,
    /// Bytes of its parameters.
    bytes: f64,
}

/// The policy.
#[derive(Debug)]
pub struct HadarE {
    params: HadarEParams,
    nodes: Nodes,
    /// Groups as types, one node as one GPU.
    active: BTreeMap<JobId, Facts>,
    parents: BTreeMap<JobId, Parent>,
    pricing: Pricing,
    standing: Standing,
    is_held: bool,
}

impl HadarE {
    /// The policy with its settings.
    pub fn new(params: HadarEParams) -> Self {
        Self {
            params,
            nodes: Nodes::default(),
            active: BTreeMap::new(),
            parents: BTreeMap::new(),
            pricing: Pricing::new(0),
            standing: Standing::default(),
            is_held: false,
        }
    }

    /// Rates of the copies of a job by group, alone and consolidated.
    fn rates_of(&self, view: &ClusterView<'_>, job: JobId) -> Vec<f64> {
        let usable = view.usable_types(job);
        let rate = |group: &nodes::Group| {
            let is_usable = usable >> group.gpu_type.index() & 1 == 1;
            let mask = u64::MAX >> (64 - group.copy);
            let copy = GpuSet::single(group.first, mask);
            if is_usable {
                view.rate_alone(job, &copy)
            } else {
                0.0
            }
        };
        self.nodes.groups.iter().map(rate).collect()
    }

    fn parent(&self, view: &ClusterView<'_>, job: JobId) -> Parent {
        let rates = self.rates_of(view, job);
        Parent {
            best_rate: rates.iter().copied().fold(0.0, f64::max),
            rates,
            bytes: view.grad_bytes(job),
        }
    }

    fn arrive(&mut self, view: &ClusterView<'_>, job: JobId) -> Result<(), PolicyError> {
        let parent = self.parent(view, job);
        let groups = parent.rates.iter().enumerate();
        let rates: Rates = groups
            .filter(|(_, rate)| **rate > 0.0)
            .map(|(at, rate)| (GpuTypeId::new(at), *rate))
            .collect();
        let terms = (self.params.utility, self.params.round);
        let facts = Facts::new(view, terms, (job, 1), rates, None)?;
        if self.params.price_pass {
            self.pricing.add(&facts);
        }
        self.standing.insert(job, &parent);
        self.active.insert(job, facts);
        self.parents.insert(job, parent);
        Ok(())
    }

    /// Takes in what happened. Whether anything did.
    fn note(&mut self, view: &ClusterView<'_>, changes: &Changes) -> Result<bool, PolicyError> {
        for change in &changes.order {
            match *change {
                Change::Arrived(job) => self.arrive(view, job)?,
                Change::Finished(job) => {
                    if let Some(facts) = self.active.remove(&job)
                        && self.params.price_pass
                    {
                        self.pricing.remove(&facts);
                    }
                    if let Some(parent) = self.parents.remove(&job) {
                        self.standing.remove(job, &parent);
                    }
                }
                Change::Up(server) => self.nodes.set_up(server, true),
                Change::Down(server) => self.nodes.set_up(server, false),
            }
        }
        Ok(!changes.order.is_empty())
    }

    /// A window of a round is left to every number of copies that a job may have.
    fn check_windows(&self, view: &ClusterView<'_>) -> Result<(), PolicyError> {
        for job in view.jobs().ids() {
            let parent = self.parent(view, job);
            let holding = parent.rates.iter().zip(&self.nodes.groups);
            let nodes = holding.filter(|(rate, _)| **rate > 0.0);
            let nodes: u32 = nodes.map(|(_, group)| group.nodes).sum();
            if nodes == 0 {
                continue; // dropped
            }
            let most = self
                .params
                .max_copies
                .unwrap_or(usize::MAX)
                .min(nodes as usize);
            let start = view.overhead(job).max(view.restart_overhead(job));
            let merge = self.params.consolidation(most, parent.bytes);
            let overhead = start.max(merge);
            if overhead >= self.params.round {
                return Err(PolicyError::Parameter {
                    policy: self.params.policy.clone(),
                    field: "round_s".to_owned(),
                    value: self.params.round.seconds().to_string(),
                    expected: format!(
                        "more than {} s, which starting and consolidating {most} copies of job {job} \
                         may take",
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
        let mut draft = Draft::new(view, &self.params, &self.nodes, &self.parents);
        if self.params.price_pass && self.nodes.up() > 0 {
            let terms = Terms {
                policy: &self.params.policy,
                round: self.params.round,
                umin_factor: self.params.umin_factor,
                horizon: None,
            };
            let now = view.now();
            let bounds = self
                .pricing
                .bounds(&terms, now, &self.active, self.nodes.up())?;
            draft.price_pass(&self.active, &bounds)?;
        }
        if self.params.fill {
            draft.fill_pass(&mut self.standing);
        }
        let placed = draft.settle();
        let mut all_stay = placed.len() == self.active.len();
        for (job, nodes, overhead) in placed {
            all_stay &= self.emit(view, plan, job, &nodes, overhead);
        }
        Ok(all_stay)
    }

    /// Writes the actions for a job; whether it stays alone where it was alone.
    fn emit(
        &self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        job: JobId,
        nodes: &[u32],
        overhead: SimSpan,
    ) -> bool {
        let parts = view.run(job).map_or(&[][..], |run| run.parts());
        for part in parts {
            if !nodes.contains(&u32::from(part.number)) {
                plan.push(Action::preempt(job).of_part(part.number));
            }
        }
        for &node in nodes {
            let number = node as u16;
            let terms = |overhead| HoldTerms {
                overhead: Some(overhead),
                ..HoldTerms::default()
            };
            if parts.iter().any(|part| part.number == number) {
                // those that were several and are one are merged: what they did is safe
                if nodes.len() > 1 {
                    plan.push(Action::keep(job, terms(overhead)).of_part(number));
                } else if parts.len() > 1 {
                    plan.push(Action::keep(job, terms(SimSpan::ZERO)).of_part(number));
                }
                continue;
            }
            let copy = self.nodes.groups[self.nodes.group(node)].copy;
            let gpus = GpuSet::single(ServerId(node), u64::MAX >> (64 - copy));
            let start = Action::start(job, gpus).with(terms(overhead));
            plan.push(start.of_part(number));
        }
        nodes.len() == 1 && parts.len() == 1 && u32::from(parts[0].number) == nodes[0]
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
            let message =
                format!("{servers} servers; `hadare` numbers copies by server, up to 65,535");
            return Err(PolicyError::Failed { message });
        }
        self.nodes = Nodes::new(view, &self.params);
        self.pricing = Pricing::new(self.nodes.groups.len());
        self.standing = Standing::new(self.nodes.groups.len());
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
        self.is_held = self.active.is_empty() || self.decide_round(view, plan)?;
        Ok(if self.is_held {
            Next::Steady
        } else {
            Next::Ask
        })
    }
}
