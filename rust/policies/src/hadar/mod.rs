//! `hadar`: chooses jobs, GPU types and servers jointly, using prices that rise with occupancy. This is our
//! interpretation of Hadar (arXiv 2503.10918); `docs/policies/hadar.md` separates the paper's rules from our own
//! choices.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | `t`, `L_s` | `view.now()`, `HadarParams::round` | start and length of a round |
//! | `h`, `r`, `c_h` | `kit::servers::Group` | servers of the same GPU type and size |
//! | `gamma_h` | `capacity - free` | GPUs on a server that this decision has already given out |
//! | `j`, `a_j`, `W_j` | `Facts::{job, arrival, gpus}` | job, arrival, gang size |
//! | `E_j N_j` | `Seen::work` | total work of the job, in iterations |
//! | `x_j W_j` | `Quote::rate` | rate that the engine gives the job if it runs alone on exactly these GPUs |
//! | `U_j(d) = A_j / d` | `Facts::numerator` / completion time | utility |
//! | `t_j^min,r`, `t_j^max` | `TypeFacts::time_s`, `Facts::slots_max` | run time of all the work on each type; number of slots that the work takes on the slowest type |
//! | `k_h` | `Prices::of` | price of a GPU |
//! | `mu_j` | `Quote::payoff` | utility minus cost |
//! | `U_min`, `U_max^r` | `Prices::{floor, ceiling}` | bounds of the prices |
//!
//! The policy decides at round boundaries. A decision costs O(jobs examined x (types x groups of servers + gang size)),
//! independent of the number of servers.

pub(crate) mod facts;
mod find;
mod market;
pub(crate) mod params;
pub(crate) mod price;
mod queue;
mod search;
#[cfg(test)]
mod tests;

pub use find::{Goal, Quote};
pub use market::{Allocation, Market};
pub use params::HadarParams;
pub(crate) use params::{CostHorizon, Objective, Order, Pick, Replan, Tier, Utility};

use crate::kit::Seen;
use crate::kit::why::{OUTRANKED, PRICE, SEARCH, has_enough, largest};
use facts::Facts;
use find::{Chosen, Finder, emit};
use gangline_engine::{
    Cause, Change, Changes, ClusterView, Knowledge, Next, Plan, Policy, PolicyError, PolicyTraits,
    Reason, Run, WakeOn,
};
use gangline_model::{JobId, SimTime};
use queue::{Rank, Waiting};
use search::{Rejected, Search, pass};
use std::collections::BTreeSet;

/// The job's utility was below the price of its GPUs, and a job behind it took some of these GPUs.
pub(crate) static OUTBID: Reason = Reason::new(
    "outbid",
    "its utility was below the price of its GPUs, and a job behind it took them",
    "its utility was below the price of its GPUs, and jobs behind it took some of them, such as \
     {some}",
)
.ends_when_free();

/// Enough GPUs might be free, but the decision ended before the policy had examined this job.
pub(crate) static NOT_LOOKED_AT: Reason = Reason::new(
    "not looked at",
    "the decision reached `scan_limit` before it reached this job",
    "{policy} did not examine it: it reached `scan_limit` jobs with a utility below the price of their GPUs",
);

/// The policy `hadar`.
#[derive(Debug)]
pub(crate) struct Hadar {
    market: Market,
    /// Index of the waiting jobs. It stays empty if each decision examines all jobs anyway.
    waiting: Waiting,
    /// Whether `waiting` is kept up to date.
    keeps_waiting: bool,
    /// Whether the plan stays valid until the next event.
    is_held: bool,
    /// Time of the last decision.
    decided_at: SimTime,
    /// The jobs that this decision chose.
    chosen: Vec<Rank>,
    /// The jobs that this decision rejected because their GPUs were too expensive.
    rejected: Rejected,
}

impl Hadar {
    pub(crate) fn new(params: HadarParams) -> Self {
        Self {
            waiting: Waiting::new(params.sorting()),
            keeps_waiting: params.tier != Tier::Exact,
            is_held: false,
            decided_at: SimTime::ZERO,
            chosen: Vec::new(),
            rejected: Rejected::default(),
            market: Market::new(params),
        }
    }

    /// Records the changes. Returns whether the changes include an arrival, a completion or a change of capacity.
    fn note(&mut self, view: &ClusterView<'_>, changes: &Changes) -> Result<bool, PolicyError> {
        for change in &changes.order {
            match *change {
                Change::Arrived(job) => self.market.arrive(view, job)?,
                Change::Finished(job) => self.market.finish(job),
                Change::Up(server) => self.market.servers.set_up(server, true),
                Change::Down(server) => self.market.servers.set_up(server, false),
            }
        }
        if self.keeps_waiting {
            let stopped = changes.preempted.iter().chain(&changes.requeued);
            for job in stopped.chain(&changes.arrived) {
                let remaining = Seen::AS_TOLD.work_left(view, *job)?;
                self.waiting
                    .insert(view.now(), &self.market.active[job], remaining);
            }
        }
        Ok(!changes.order.is_empty())
    }

    /// Returns the ranks of the jobs that are not in the index of waiting jobs: the running jobs or, if there is no
    /// index, all jobs.
    fn ranked(&self, view: &ClusterView<'_>) -> Result<Vec<Rank>, PolicyError> {
        let rank = |facts: &Facts| {
            let remaining = Seen::AS_TOLD.work_left(view, facts.job)?;
            Ok(Rank::new(
                self.market.params.sorting(),
                view.now(),
                facts,
                remaining,
            ))
        };
        let ranks: Result<Vec<Rank>, PolicyError> = if self.keeps_waiting {
            view.running()
                .map(|job| rank(&self.market.active[&job]))
                .collect()
        } else {
            self.market.active.values().map(rank).collect()
        };
        let mut ranks = ranks?;
        ranks.sort_unstable();
        Ok(ranks)
    }

    /// Chooses an allocation for the whole cluster, examining jobs in queue order.
    fn choose(&mut self, view: &ClusterView<'_>) -> Result<Vec<Chosen>, PolicyError> {
        self.check_size()?;
        let ranked = self.ranked(view)?;
        let Self {
            market,
            waiting,
            rejected,
            ..
        } = self;
        let Market {
            params,
            servers,
            pricing,
            active,
        } = market;
        *rejected = Rejected::default();
        let (params, active, now) = (&*params, &*active, view.now());
        let prices = &pricing.prices(params, now, active, servers)?;
        let finder = Finder {
            view,
            params,
            prices,
        };
        let mut taken = BTreeSet::new();
        let mut chosen = match params.tier {
            Tier::Greedy => {
                let queue = waiting.merge(now, &ranked);
                let goal = Goal::Objective;
                pass(&finder, servers, queue, active, &taken, goal, rejected)?
            }
            Tier::Beam => search::beam(&finder, servers, waiting.merge(now, &ranked), active)?,
            Tier::Exact => Search::new(&finder, &ranked, active)?.exact(servers),
        };
        if params.backfill {
            taken.extend(chosen.iter().map(|one| one.rank.job));
            let queue = waiting.merge(now, &ranked);
            chosen.extend(pass(
                &finder,
                servers,
                queue,
                active,
                &taken,
                Goal::Utility,
                rejected,
            )?);
        }
        for one in &chosen {
            servers.give_all(&one.offer.places);
        }
        chosen.sort_unstable_by_key(|one| one.rank);
        Ok(chosen)
    }

    /// Removes from the queue the jobs that a plan starts.
    fn dequeue(&mut self, view: &ClusterView<'_>, plan: &Plan<'_>) -> Result<(), PolicyError> {
        for job in plan.started().filter(|_| self.keeps_waiting) {
            let remaining = Seen::AS_TOLD.work_left(view, job)?;
            self.waiting
                .remove(view.now(), &self.market.active[&job], remaining);
        }
        Ok(())
    }

    fn check_size(&self) -> Result<(), PolicyError> {
        let (jobs, most) = (self.market.active.len(), self.market.params.exact_max_jobs);
        if self.market.params.tier != Tier::Exact || jobs <= most {
            return Ok(());
        }
        Err(PolicyError::Parameter {
            policy: self.market.params.policy.clone(),
            field: "exact_max_jobs".to_owned(),
            value: most.to_string(),
            expected: format!(
                "at least {jobs}, the number of active jobs, or a tier other than exact"
            ),
        })
    }
}

impl Policy for Hadar {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            wake_on: WakeOn::ROUND,
            round: Some(self.market.params.round),
            knowledge: Knowledge::Remaining,
            mixes_types: self.market.params.mix_types,
            orders_changes: true,
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        _plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        self.market.open(view.cluster());
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
        let chosen = if self.market.active.is_empty() {
            Vec::new()
        } else {
            self.choose(view)?
        };
        (self.decided_at, self.chosen) = (view.now(), chosen.iter().map(|one| one.rank).collect());
        emit(view, plan, &chosen);
        self.dequeue(view, plan)?;
        let all_stay = chosen.iter().all(|one| one.offer.by_stay_rule);
        self.is_held = self.market.params.replan == Replan::Event
            || all_stay && chosen.len() == self.market.active.len();
        Ok(if self.is_held {
            Next::Steady
        } else {
            Next::Ask
        })
    }

    fn reasons(&self) -> Vec<&'static Reason> {
        vec![&OUTRANKED, &PRICE, &OUTBID, &NOT_LOOKED_AT, &SEARCH]
    }

    /// Returns the reason why a job waits. In a greedy pass, a job has a place if enough GPUs of its types are free.
    /// The job takes this place unless its utility is below the price.
    fn why(&self, view: &ClusterView<'_>, job: JobId) -> Option<Cause> {
        let facts = self.market.active.get(&job)?;
        let is_left = has_enough(view, job, facts.gpus, self.market.params.mix_types);
        if self.market.params.tier != Tier::Greedy {
            let taken = || largest(view, job, |_| true);
            return Some(Cause::of(&SEARCH, if is_left { None } else { taken() }));
        }
        let remaining = Seen::AS_TOLD.work_left(view, job).ok()?;
        let own = Rank::new(
            self.market.params.sorting(),
            self.decided_at,
            facts,
            remaining,
        );
        let ran = |other: JobId| self.chosen.iter().find(|rank| rank.job == other);
        let is_before = |run: &Run| ran(run.job).is_some_and(|other| *other < own);
        let is_behind = |run: &Run| ran(run.job).is_some_and(|other| own < *other);
        if let Some(&(_, percent)) = self.rejected.jobs.iter().find(|one| one.0 == job) {
            let price = Cause::new(&PRICE).number(percent);
            // Backfilling first gives GPUs to earlier jobs, even if the GPUs were too expensive for these jobs as well.
            let behind = || largest(view, job, is_behind).map(|other| Cause::of(&OUTBID, other));
            let before = || largest(view, job, is_before).map(|other| Cause::of(&OUTRANKED, other));
            let others = || behind().or_else(before).unwrap_or(price);
            return Some(if is_left { price } else { others() });
        }
        if is_left && self.rejected.last.is_some_and(|last| last < own) {
            return Some(Cause::new(&NOT_LOOKED_AT));
        }
        largest(view, job, is_before).map(|other| Cause::of(&OUTRANKED, other))
    }
}
