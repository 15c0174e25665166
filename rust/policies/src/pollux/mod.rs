//! `pollux`: elastic gangs. In every round, the policy chooses GPUs and batches that maximise the jobs' mean speed-up,
//! measured in goodput. The objective and the model come from the public code of Pollux (OSDI 2021); the search is our
//! own (`docs/policies/pollux.md`).
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | `k`, `N` | `Bidder::count`, one server or several | GPUs and servers of a job |
//! | `goodput(k, N)` | `Racer::goodput` | goodput of a job at its best batch |
//! | `k_f` | `Fair::gpus` | GPUs of an equal share |
//! | `speedup_j` | `Bidder::ladder` | goodput divided by the goodput on an equal share |
//! | `phi_j` | `discount` | discount for a change |
//! | `p` | `PolluxParams::fairness_p` | exponent of the mean |

mod genetic;
mod learnt;
mod params;
mod place;
mod racer;
mod search;

pub(crate) use params::{Batch, Models, PolluxParams, SearchKind, Share};
pub(crate) use racer::is_bound;

use crate::kit::why::{NO_PLACE, OUTRANKED, SEARCH, has_enough, largest};
use gangline_engine::{
    Cause, Changes, ClusterView, Knowledge, Next, Plan, Policy, PolicyError, PolicyTraits, Reason,
    Run, WakeOn,
};
use gangline_model::{Action, GpuSet, GpuTypeId, JobId, SimSpan, SimTime};
use genetic::Genetic;
use learnt::{Belief, Learnt};
use place::Layout;
use racer::{Fair, Objective, Racer, discount};
use search::{Bidder, Search};
use std::collections::BTreeSet;

/// Enough GPUs are free, but not on any set of servers that the policy would use.
pub(crate) static NO_SERVERS: Reason = Reason::new(
    NO_PLACE.name,
    NO_PLACE.meaning,
    "{free}, but pollux uses only a single server, or whole idle servers plus one more server",
)
.otherwise("{free}")
.ends_when_free();

/// Too few GPUs were left for the job when the policy assigned GPUs job by job.
pub(crate) static COUNTED_OUT: Reason = Reason::new(
    "counted out",
    "the policy sets the number of GPUs job by job, and the jobs before it left too few; other jobs hold these GPUs, or could not place all GPUs that were assigned to them",
    "when {policy} fixed the numbers of GPUs, jobs that rank before this one left too few; other \
     jobs, such as {some}, held the GPUs",
)
.otherwise(
    "when {policy} fixed the numbers of GPUs, jobs that rank before this one left too few; enough stayed free, and it \
     decides again {when}",
)
.ends_when_free();

/// The history of a job.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    /// Largest number of GPUs that the job has had so far.
    most: u32,
    /// Number of starts and moves of the job.
    restarts: u32,
}

/// The policy `pollux`, which sizes elastic gangs by goodput.
#[derive(Debug)]
pub(crate) struct Pollux {
    params: PolluxParams,
    objective: Objective,
    past: Vec<Past>,
    /// Observations of the active jobs; `None` if the policy knows their models.
    learnt: Option<Learnt>,
    /// The jobs of the last decision, in order. Each entry also says whether the search assigned GPUs to the job, even
    /// if no place was found for them. The list is empty after a genetic search.
    ranked: Vec<(JobId, bool)>,
}

impl Pollux {
    pub(crate) fn new(params: PolluxParams) -> Self {
        Self {
            objective: Objective::new(params.fairness_p, params.floor),
            params,
            past: Vec::new(),
            learnt: (params.models == Models::Learnt).then(Learnt::default),
            ranked: Vec::new(),
        }
    }

    fn fair(&self, view: &ClusterView<'_>, jobs: usize) -> (Fair, u32) {
        let types = view.cluster().gpu_types().len();
        let gpus: u32 = (0..types).map(|at| view.gpus_up(GpuTypeId::new(at))).sum();
        let servers = view.cluster().servers().iter().enumerate();
        let up = servers.filter(|(at, _)| view.is_up(gangline_model::ServerId::new(*at)));
        let server = up.map(|(_, one)| one.gpus).max().unwrap_or(1);
        let (equal, share) = (gpus.div_ceil(jobs as u32), self.params.share);
        let most = match share {
            Share::Server => server,
            Share::Cluster => gpus,
        };
        let fair = Fair {
            gpus: equal.clamp(1, most.max(1)),
            share,
            server,
        };
        (fair, gpus)
    }

    fn bidder(&self, view: &ClusterView<'_>, racer: &Racer<'_>, fair: Fair) -> Bidder {
        let past = self.past[racer.job.index()];
        let (least, most) = racer.range();
        let had = match racer.belief {
            Belief::Known => past.most.max(1),
            Belief::Nothing => 0,
            Belief::Learnt(profile) => profile.most(),
        };
        let grown = self.params.growth * f64::from(had);
        let mut limit = (grown.max(1.0) as u32)
            .min(self.params.max_gpus_per_job)
            .clamp(least, most);
        let held = view.run(racer.job).map(Run::gpus);
        let now = held.map_or(0, GpuSet::gpus);
        let age = view.now() - view.jobs().arrival(racer.job);
        let delay_s = self.params.phi_delay.seconds();
        let free = u32::from(!self.params.first_start_counts);
        let speedup = |gpus: u32| racer.speedup(gpus, gpus > fair.server);
        let speedup_now = held.map_or(0.0, |held| racer.speedup(now, held.by_server().len() > 1));
        let mut ladder = if racer.is_bound {
            vec![(now, speedup_now)]
        } else {
            Bidder::ladder(least, limit, speedup)
        };
        if ladder.is_empty() {
            // The gang size in the trace is always allowed, because otherwise the job would wait for ever.
            limit = limit.max(racer.gang);
            ladder.push((racer.gang, speedup(racer.gang)));
        }
        Bidder {
            ladder,
            now,
            speedup_now,
            phi: discount(age.seconds(), past.restarts.saturating_sub(free), delay_s),
            most: limit,
            count: 0,
        }
    }

    /// Returns each job's GPUs, and whether the next round would find the same GPUs if nothing else changed.
    fn search(
        &mut self,
        view: &ClusterView<'_>,
        racers: &[Racer<'_>],
        bidders: &mut [Bidder],
        gpus: u32,
    ) -> Result<(Vec<Option<GpuSet>>, bool), PolicyError> {
        let (objective, avoids) = (self.objective, self.params.avoid_interference);
        if self.params.search == SearchKind::Ga {
            let genetic =
                Genetic::new(*view, (racers, bidders), objective, avoids, self.params.ga)?;
            return Ok((genetic.put(), false));
        }
        let mut search = Search {
            bidders,
            spare: gpus,
            objective,
        };
        let is_whole = search.give();
        let is_wanted = search.bidders.iter().all(|one| one.count == one.now);
        search.settle();
        search.improve(self.params.ls_moves.unwrap_or(2 * racers.len()));
        let is_free = racers.iter().all(|racer| !racer.is_bound);
        // Without a discount, the choice among equally good plans depends on attained service, which changes while jobs
        // run.
        let is_kept = self.params.phi_delay > SimSpan::ZERO;
        let is_steady = is_kept && is_whole && is_wanted && is_free && search.is_at_rest();
        let pairs = racers.iter().zip(search.bidders.iter());
        self.ranked
            .extend(pairs.map(|(racer, bidder)| (racer.job, bidder.count > 0)));
        let layout = Layout::new(*view, racers, objective, avoids);
        Ok((layout.put(bidders), is_steady))
    }

    /// Assigns GPUs and batches to the active jobs.
    fn assign(
        &mut self,
        view: &ClusterView<'_>,
        racers: &[Racer<'_>],
        fair: Fair,
        gpus: u32,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        let bid = |racer: &Racer<'_>| self.bidder(view, racer, fair);
        let mut bidders: Vec<Bidder> = racers.iter().map(bid).collect();
        let (sets, is_steady) = self.search(view, racers, &mut bidders, gpus)?;
        let mut found: Vec<(JobId, usize, Option<GpuSet>)> = Vec::with_capacity(racers.len());
        for (at, gpus) in sets.into_iter().enumerate() {
            found.push((racers[at].job, at, gpus));
        }
        found.sort_unstable_by_key(|one| one.0);
        for one in found
            .iter()
            .filter(|one| one.2.is_none() && view.run(one.0).is_some())
        {
            plan.preempt(one.0);
        }
        for (_, at, gpus) in found {
            if let Some(gpus) = gpus {
                self.act(view, &racers[at], gpus, plan);
            }
        }
        // A plan that is not optimal may change later, as discounts and attained service change.
        Ok(if is_steady && plan.is_empty() {
            Next::Steady
        } else {
            Next::Ask
        })
    }

    /// Starts, moves or keeps a job on these GPUs, with the batch that suits them.
    fn act(
        &mut self,
        view: &ClusterView<'_>,
        racer: &Racer<'_>,
        gpus: GpuSet,
        plan: &mut Plan<'_>,
    ) {
        let job = racer.job;
        let terms = racer.terms(gpus.gpus(), gpus.by_server().len() > 1);
        let past = &mut self.past[job.index()];
        past.most = past.most.max(gpus.gpus());
        let Some(run) = view.run(job) else {
            past.restarts += 1;
            plan.push(Action::start(job, gpus).with(terms));
            return;
        };
        let own = run.only();
        if own.gpus != gpus {
            past.restarts += 1;
            plan.push(Action::move_to(job, gpus).with(terms));
        } else if terms.accum.is_some()
            && (Some(own.sub_batch), own.accum) != (terms.sub_batch, terms.accum)
        {
            plan.keep(job, terms);
        }
    }
}

/// Returns the sort key of a job: jobs that keep their GPUs in any case come first, then jobs with less attained
/// service, then earlier arrivals.
fn rank(view: &ClusterView<'_>, job: JobId) -> (bool, i128, SimTime, JobId) {
    let service = view.attained_gpu_ns(job);
    (!is_bound(view, job), service, view.jobs().arrival(job), job)
}

impl Policy for Pollux {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            wake_on: WakeOn::ROUND,
            round: Some(self.params.period),
            knowledge: Knowledge::Online,
            resizes: true,
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        _plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        self.past = vec![Past::default(); view.jobs().len()];
        Ok(Vec::new())
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        _changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        self.ranked.clear();
        let mut active: Vec<JobId> = view.running().chain(view.waiting()).collect();
        if active.is_empty() {
            return Ok(Next::Steady);
        }
        active.sort_by_cached_key(|&job| rank(view, job));
        let (fair, gpus) = self.fair(view, active.len());
        if gpus == 0 {
            return Ok(Next::Ask);
        }
        let mut learnt = self.learnt.take();
        if let Some(learnt) = &mut learnt {
            learnt.look(view, &active);
        }
        let racer = |&job: &JobId| {
            let belief = learnt.as_ref().map_or(Belief::Known, |seen| seen.of(job));
            Racer::new(view, (job, belief), self.params.batch, fair)
        };
        let racers: Vec<Racer<'_>> = active.iter().map(racer).collect();
        let next = self.assign(view, &racers, fair, gpus, plan);
        self.learnt = learnt;
        next
    }

    fn reasons(&self) -> Vec<&'static Reason> {
        vec![&NO_SERVERS, &OUTRANKED, &COUNTED_OUT, &SEARCH]
    }

    /// The greedy search goes through the jobs in order. It gives each job its minimum number of GPUs, or no GPUs if
    /// too few are left. GPUs that other jobs later give back or cannot place may be enough for a job that was left
    /// out.
    fn why(&self, view: &ClusterView<'_>, job: JobId) -> Option<Cause> {
        let elastic = view.elastic(job).map(|model| model.class().min_gpus);
        let least = elastic.unwrap_or_else(|| view.jobs().gpus(job));
        let is_left = has_enough(view, job, least, false);
        let at = self.ranked.iter().position(|one| one.0 == job);
        let given = match at {
            Some(at) if self.ranked[at].1 => return Some(Cause::new(&NO_SERVERS)),
            Some(_) => &COUNTED_OUT,
            None => &SEARCH,
        };
        if is_left {
            return Some(Cause::new(given));
        }
        let before = &self.ranked[..at.unwrap_or(0)];
        let before: BTreeSet<JobId> = before.iter().map(|one| one.0).collect();
        let outranked = largest(view, job, |run| before.contains(&run.job))
            .map(|other| Cause::of(&OUTRANKED, other));
        let taken = || largest(view, job, |_| true).map(|other| Cause::of(given, other));
        outranked.or_else(taken).or(Some(Cause::new(&NO_SERVERS)))
    }
}
