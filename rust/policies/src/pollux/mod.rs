//! `pollux`: elastic gangs. In every round each job gets the GPUs, and the batch, by which the mean speed-up of the
//! jobs in goodput grows most. After Pollux (OSDI 2021); objective and model are those of its public code, the search
//! is ours (`docs/policies/pollux.md`).
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | `k`, `N` | `Bidder::count`, one server or several | GPUs and servers of a job |
//! | `goodput(k, N)` | `Racer::goodput` | at its best batch |
//! | `k_f` | `Fair::gpus` | GPUs of an equal share |
//! | `speedup_j` | `Bidder::ladder` | goodput over that of an equal share |
//! | `phi_j` | `objective::discount` | discount for a change |
//! | `p` | `PolluxParams::fairness_p` | exponent of the mean |

mod objective;
mod params;
mod place;
mod search;

pub use params::{Batch, PolluxParams};

use gangline_engine::{
    Changes, ClusterView, Knowledge, Next, Plan, Policy, PolicyError, PolicyTraits, WakeOn,
};
use gangline_model::{
    Action, Configuration, ElasticModel, GpuSet, GpuTypeId, JobId, SimTime, Terms,
};
use objective::{Objective, discount};
use place::Floor;
use search::{Bidder, Search};
use std::cmp::Reverse;

/// What the policy remembers of a job.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    /// Most GPUs that it ever had.
    most: u32,
    /// Starts and moves.
    restarts: u32,
}

/// An equal share of the cluster.
#[derive(Clone, Copy)]
struct Fair {
    gpus: u32,
    /// GPUs of the largest server that is up.
    server: u32,
}

/// An active job in a decision.
#[derive(Clone, Copy)]
struct Racer<'a> {
    job: JobId,
    model: Option<&'a ElasticModel>,
    phase: usize,
    gang: u32,
}

impl<'a> Racer<'a> {
    fn new(view: &ClusterView<'a>, job: JobId) -> Self {
        Self {
            job,
            model: view.elastic(job),
            phase: view.noise_phase(job),
            gang: view.jobs().gpus(job),
        }
    }

    /// The configuration on so many GPUs; `None` for a job that is not elastic.
    fn configuration(&self, batch: Batch, gpus: u32, spans: bool) -> Option<Configuration> {
        let model = self.model?;
        Some(match batch {
            Batch::Best => model.best(self.phase, gpus, spans),
            Batch::Traced => model.frozen(self.phase, gpus, spans),
        })
    }

    /// Goodput on so many GPUs; in proportion to the GPUs for a job that is not elastic.
    fn goodput(&self, batch: Batch, gpus: u32, spans: bool) -> f64 {
        let found = self.configuration(batch, gpus, spans);
        found.map_or(f64::from(gpus), |found| found.rate)
    }

    /// Fewest and most GPUs.
    fn range(&self) -> (u32, u32) {
        self.model.map_or((self.gang, self.gang), |model| {
            (model.class().min_gpus, model.class().max_gpus)
        })
    }

    /// Goodput of an equal share, or of the nearest count that is possible.
    fn fair_goodput(&self, batch: Batch, fair: Fair) -> f64 {
        if self.model.is_none() {
            return f64::from(fair.gpus);
        }
        let (least, most) = self.range();
        let down = (least..=fair.gpus.clamp(least, most)).rev();
        let all = down.chain(least..=most);
        let rates = all.map(|gpus| self.goodput(batch, gpus, gpus > fair.server));
        rates.into_iter().find(|&rate| rate > 0.0).unwrap_or(1.0)
    }
}

/// Elastic gangs by goodput.
#[derive(Debug)]
pub struct Pollux {
    params: PolluxParams,
    objective: Objective,
    /// By job.
    past: Vec<Past>,
}

impl Pollux {
    /// With these parameters.
    pub fn new(params: PolluxParams) -> Self {
        Self {
            objective: Objective::new(params.fairness_p),
            params,
            past: Vec::new(),
        }
    }

    fn fair(view: &ClusterView<'_>, jobs: usize) -> (Fair, u32) {
        let types = view.cluster().gpu_types().len();
        let gpus: u32 = (0..types).map(|at| view.gpus_up(GpuTypeId::new(at))).sum();
        let servers = view.cluster().servers().iter().enumerate();
        let up = servers.filter(|(at, _)| view.is_up(gangline_model::ServerId::new(*at)));
        let server = up.map(|(_, one)| one.gpus).max().unwrap_or(1);
        let share = gpus.div_ceil(jobs as u32).clamp(1, server);
        (
            Fair {
                gpus: share,
                server,
            },
            gpus,
        )
    }

    fn bidder(&self, view: &ClusterView<'_>, racer: &Racer<'_>, fair: Fair) -> Bidder {
        let past = self.past[racer.job.index()];
        let (batch, own) = (
            self.params.batch,
            racer.fair_goodput(self.params.batch, fair),
        );
        let speedup = |gpus: u32| racer.goodput(batch, gpus, gpus > fair.server) / own;
        let (least, most) = racer.range();
        let grown = self.params.growth * f64::from(past.most.max(1));
        let limit = (grown as u32)
            .min(self.params.max_gpus_per_job)
            .clamp(least, most);
        let held = view.run(racer.job).map(gangline_engine::Run::gpus);
        let now = held.map_or(0, GpuSet::gpus);
        let speedup_now = held.map_or(0.0, |held| {
            racer.goodput(batch, now, held.by_server().len() > 1) / own
        });
        let age = view.now() - view.jobs().arrival(racer.job);
        let delay_s = self.params.phi_delay.seconds();
        Bidder {
            ladder: Bidder::ladder(least, limit, speedup),
            now,
            speedup_now,
            phi: discount(age.seconds(), past.restarts, delay_s),
            count: 0,
        }
    }

    /// Terms of a job on its GPUs.
    fn terms(&self, racer: &Racer<'_>, gpus: &GpuSet) -> Terms {
        let spans = gpus.by_server().len() > 1;
        let found = racer.configuration(self.params.batch, gpus.gpus(), spans);
        // the batch of the trace needs no name
        let named = found.filter(|_| self.params.batch == Batch::Best);
        Terms {
            sub_batch: named.map(|one| one.pass_batch),
            accum: named.map(|one| one.accum),
            ..Terms::default()
        }
    }

    /// Finds GPUs for the jobs whose count changes; an action for each job that is not as it was.
    fn place(
        &mut self,
        view: &ClusterView<'_>,
        racers: &[Racer<'_>],
        bidders: &[Bidder],
        plan: &mut Plan<'_>,
    ) {
        let mut floor = Floor::new(view, self.params.avoid_interference);
        let is_changed = |at: &usize| bidders[*at].count != bidders[*at].now;
        let mut changed: Vec<usize> = (0..racers.len()).filter(is_changed).collect();
        for &at in &changed {
            if let Some(run) = view.run(racers[at].job) {
                floor.release(run.gpus());
            }
        }
        changed.sort_by_key(|&at| (Reverse(bidders[at].count), racers[at].job));
        let mut places: Vec<Option<GpuSet>> = vec![None; racers.len()];
        for &at in &changed {
            let held = view.run(racers[at].job).map(gangline_engine::Run::gpus);
            places[at] = find(&floor, view, &racers[at], &bidders[at], held);
            if let Some(gpus) = &places[at] {
                floor.take(gpus);
            }
        }
        changed.sort_unstable_by_key(|&at| racers[at].job);
        for at in changed {
            self.act(view, &racers[at], places[at].take(), plan);
        }
        for (racer, bidder) in racers.iter().zip(bidders) {
            if bidder.count == bidder.now && bidder.now > 0 {
                self.tune(view, racer, plan);
            }
        }
    }

    /// Starts, moves or stops a job.
    fn act(
        &mut self,
        view: &ClusterView<'_>,
        racer: &Racer<'_>,
        gpus: Option<GpuSet>,
        plan: &mut Plan<'_>,
    ) {
        let held = view.run(racer.job).map(gangline_engine::Run::gpus);
        let Some(gpus) = gpus else {
            if held.is_some() {
                plan.preempt(racer.job);
            }
            return;
        };
        if held == Some(&gpus) {
            self.tune(view, racer, plan);
            return;
        }
        let past = &mut self.past[racer.job.index()];
        past.most = past.most.max(gpus.gpus());
        past.restarts += 1;
        let terms = self.terms(racer, &gpus);
        let action = if held.is_some() {
            Action::move_to(racer.job, gpus)
        } else {
            Action::start(racer.job, gpus)
        };
        plan.push(action.with(terms));
    }

    /// Gives a job that stays the best batch of its noise phase.
    fn tune(&self, view: &ClusterView<'_>, racer: &Racer<'_>, plan: &mut Plan<'_>) {
        let Some(run) = view.run(racer.job) else {
            return;
        };
        let terms = self.terms(racer, run.gpus());
        let own = run.only();
        if terms.accum.is_some()
            && (terms.sub_batch, terms.accum) != (Some(own.sub_batch), own.accum)
        {
            plan.keep(racer.job, terms);
        }
    }
}

/// A place for the count of a job, or for the next lower one that has a place. A job falls back to what it holds
/// without moving.
fn find(
    floor: &Floor,
    view: &ClusterView<'_>,
    racer: &Racer<'_>,
    bidder: &Bidder,
    held: Option<&GpuSet>,
) -> Option<GpuSet> {
    let rungs = bidder.ladder.iter().map(|rung| rung.0);
    let mut counts: Vec<u32> = rungs.chain(held.map(GpuSet::gpus)).collect();
    counts.retain(|&count| count > 0 && count <= bidder.count);
    counts.sort_unstable_by_key(|&count| Reverse(count));
    counts.dedup();
    let own = |count: u32| {
        held.filter(|held| held.gpus() == count && floor.is_free(held))
            .cloned()
    };
    let mut found = counts
        .into_iter()
        .filter_map(|count| own(count).or_else(|| floor.find(view, racer.job, count)));
    found.next()
}

/// Less service first, then by arrival and index.
fn rank(view: &ClusterView<'_>, job: JobId) -> (i128, SimTime, JobId) {
    (view.attained_gpu_ns(job), view.jobs().arrival(job), job)
}

impl Policy for Pollux {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            wake_on: WakeOn::ROUND,
            round: Some(self.params.period),
            knowledge: Knowledge::Online,
            mixes_types: true,
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
        let mut active: Vec<JobId> = view.running().chain(view.waiting()).collect();
        if active.is_empty() {
            return Ok(Next::Steady);
        }
        active.sort_unstable();
        let (fair, gpus) = Self::fair(view, active.len());
        let racers: Vec<Racer<'_>> = active.iter().map(|&job| Racer::new(view, job)).collect();
        let bid = |racer: &Racer<'_>| self.bidder(view, racer, fair);
        let mut bidders: Vec<Bidder> = racers.iter().map(bid).collect();
        let mut order: Vec<usize> = (0..racers.len()).collect();
        order.sort_by_cached_key(|&at| rank(view, racers[at].job));
        let mut search = Search {
            bidders: &mut bidders,
            spare: gpus,
            objective: self.objective,
        };
        let is_whole = search.give(&order);
        let is_wanted = search.bidders.iter().all(|one| one.count == one.now);
        search.settle(&order);
        search.improve(self.params.ls_moves.unwrap_or(2 * racers.len()));
        let is_steady = is_whole && is_wanted && search.is_at_rest();
        self.place(view, &racers, &bidders, plan);
        // a discount or the order of service may change a plan that is not the best of all
        Ok(if is_steady && plan.is_empty() {
            Next::Steady
        } else {
            Next::Ask
        })
    }
}
