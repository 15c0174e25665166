//! `optimus`: elastic gangs. In every round, each job first gets its minimum number of GPUs, in order of arrival. The
//! other GPUs then go, one by one, to the job whose remaining time they shorten most. The policy follows Optimus (2018)
//! and "Optimus+Oracle" in the Pollux paper (`docs/policies/optimus.md`).
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | `w_j` | `Claim::count` | GPUs of a job |
//! | `f(w_j)` | `Ladder::rungs` | rate of a job on these GPUs |
//! | `Q_j / f(w_j)` | `Claim::seconds` | remaining time of a job, according to the estimates of the run |
//! | gain | `Step::gain` | decrease in the remaining time per GPU |

use crate::kit::why::{NO_PLACE, OUTRANKED, has_enough, largest};
use crate::kit::{Seen, Total};
use crate::params::ParamReader;
use crate::pollux::{COUNTED_OUT, is_bound};
use gangline_engine::{
    Cause, Changes, ClusterView, Knowledge, Next, Plan, Policy, PolicyError, PolicyTraits, Reason,
    Run, WakeOn,
};
use gangline_model::{
    Action, ElasticModel, GpuSet, GpuTypeId, JobId, ServerId, SimSpan, Terms, mask_of_lowest, words,
};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// The number of free GPUs is below the minimum with which the job can run.
static TOO_SMALL: Reason = Reason::new(
    NO_PLACE.name,
    NO_PLACE.meaning,
    "{free}, and its model has no batch for so few GPUs",
)
.otherwise("{free}")
.ends_when_free();

words! {
    /// Rule that chooses the servers for a job that gets a new place.
    pub(crate) enum ServerChoice {
        /// The servers with the most free GPUs.
        MostFree = "most_free",
        /// One server if possible: the server with the fewest free GPUs among those with enough.
        BestFit = "best_fit",
    }
}

/// All settings of `optimus`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OptimusParams {
    /// Time between two decisions.
    period: SimSpan,
    /// Maximum number of GPUs of an elastic job.
    max_gpus_per_job: u32,
    /// Whether to skip GPU counts at which a job would be no faster than at a smaller count.
    skip_slower: bool,
    server_choice: ServerChoice,
}

impl OptimusParams {
    pub(crate) fn read(params: &ParamReader) -> Result<Self, PolicyError> {
        Ok(Self {
            period: params.period("period_s")?,
            max_gpus_per_job: params.number("max_gpus_per_job") as u32,
            skip_slower: params.flag("skip_slower"),
            server_choice: params.choice("server_choice", ServerChoice::named),
        })
    }
}

/// The GPU counts with which a job can run on one GPU type.
#[derive(Clone, Debug)]
struct Ladder {
    gpu_type: GpuTypeId,
    /// GPU counts in ascending order, each with the job's rate at this count. The rate is 0 for a job that is not
    /// elastic.
    rungs: Vec<(u32, f64)>,
}

/// An active job in a decision.
#[derive(Clone, Debug)]
struct Claim<'a> {
    view: ClusterView<'a>,
    job: JobId,
    /// One ladder for each GPU type of the job, fastest type first; empty if the job must keep its GPUs.
    ladders: Vec<Ladder>,
    /// GPU type that the job gets.
    gpu_type: GpuTypeId,
    /// Number of GPUs that the job gets.
    count: u32,
}

/// A step that gives a job more GPUs, possibly of a different type. Steps are ordered by gain per GPU (largest first),
/// then by job, then by the order of the job's types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    gain: Total,
    claim: Reverse<usize>,
    rank: Reverse<usize>,
    gpu_type: GpuTypeId,
    /// Number of GPUs that the job has before the step.
    from: u32,
    count: u32,
}

impl Claim<'_> {
    /// Returns the remaining time of the job at a rate, according to the estimates of the run.
    fn seconds(&self, rate: f64) -> Result<f64, PolicyError> {
        Seen::AS_TOLD.seconds_at(&self.view, self.job, rate)
    }

    /// Returns the steps that shorten the remaining time, at most one for each type. On its current type, the job steps
    /// to the next rung. On a different type, it steps to the lowest rung that has more GPUs and makes the job faster.
    fn steps(&self, at: usize) -> Result<Vec<Step>, PolicyError> {
        let mut found = Vec::new();
        let is_own = |ladder: &&Ladder| ladder.gpu_type == self.gpu_type;
        let Some(own) = self.ladders.iter().find(is_own).filter(|_| self.count > 0) else {
            return Ok(found);
        };
        let rate = |rung: &&(u32, f64)| rung.0 == self.count;
        let here = own.rungs.iter().find(rate).map_or(0.0, |rung| rung.1);
        let here = self.seconds(here)?;
        for (rank, ladder) in self.ladders.iter().enumerate() {
            let is_own = is_own(&ladder);
            for &(count, rate) in ladder.rungs.iter().filter(|rung| rung.0 > self.count) {
                let gain = (here - self.seconds(rate)?) / f64::from(count - self.count);
                if gain > 0.0 {
                    found.push(Step {
                        gain: Total(gain),
                        claim: Reverse(at),
                        rank: Reverse(if is_own { 0 } else { 1 + rank }),
                        gpu_type: ladder.gpu_type,
                        from: self.count,
                        count,
                    });
                }
                if is_own || gain > 0.0 {
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Returns whether the job already has the GPU type and the number of GPUs that it gets.
    fn stays(&self) -> bool {
        let held = self.view.run(self.job).map(Run::gpus);
        held.is_some_and(|held| {
            held.gpus() == self.count && type_of(&self.view, held) == self.gpu_type
        })
    }

    /// Returns terms that divide the batch from the trace into passes. The terms are empty if the model does not allow
    /// this batch.
    fn terms(&self) -> Terms {
        let phase = self.view.noise_phase(self.job);
        let passes = |model: &ElasticModel| {
            let own = model.frozen(phase, self.count, false);
            let passes = (own.pass_batch, own.accum);
            model.rate(phase, self.count, false, passes).map(|_| passes)
        };
        let found = self.view.elastic(self.job).and_then(passes);
        Terms {
            sub_batch: found.map(|one| one.0),
            accum: found.map(|one| one.1),
            ..Terms::default()
        }
    }
}

/// Returns the GPU type on which a gang runs.
fn type_of(view: &ClusterView<'_>, gpus: &GpuSet) -> GpuTypeId {
    let first = gpus.by_server()[0].server;
    view.cluster().server(first).gpu_type
}

/// The GPUs that are free while jobs are placed.
#[derive(Debug)]
struct Room {
    free: Vec<u64>,
    /// For each type, the servers with free GPUs, ordered by number of free GPUs, then by index.
    by_type: Vec<BTreeSet<(u32, usize)>>,
}

impl Room {
    /// Starts from all healthy GPUs except those that jobs keep.
    fn new(view: &ClusterView<'_>, claims: &[Claim<'_>]) -> Self {
        let servers = view.cluster().servers();
        let is_up = |at: usize| view.is_up(ServerId::new(at));
        let healthy =
            |at: usize| mask_of_lowest(u64::MAX, if is_up(at) { servers[at].gpus } else { 0 });
        let mut free: Vec<u64> = (0..servers.len()).map(healthy).collect();
        let kept = claims.iter().filter(|claim| claim.stays());
        for run in kept.filter_map(|claim| view.run(claim.job)) {
            for one in run.gpus().by_server() {
                free[one.server.index()] &= !one.mask;
            }
        }
        let mut by_type = vec![BTreeSet::new(); view.cluster().gpu_types().len()];
        for (at, mask) in free.iter().enumerate().filter(|one| *one.1 != 0) {
            by_type[servers[at].gpu_type.index()].insert((mask.count_ones(), at));
        }
        Self { free, by_type }
    }

    /// Takes GPUs of a type, which must have enough free ones.
    fn take(&mut self, gpu_type: GpuTypeId, gpus: u32, choice: ServerChoice) -> GpuSet {
        let servers = &mut self.by_type[gpu_type.index()];
        let fitting = servers.range((gpus, 0)..).next();
        let mut next = fitting.copied().filter(|_| choice == ServerChoice::BestFit);
        let (mut rest, mut found) = (gpus, Vec::new());
        while rest > 0 {
            let most = servers.last().map_or(0, |one| one.0);
            let Some(one) = next
                .take()
                .or_else(|| servers.range((most, 0)..).next().copied())
            else {
                break;
            };
            servers.remove(&one);
            let (room, at) = one;
            let mask = mask_of_lowest(self.free[at], rest);
            self.free[at] &= !mask;
            found.push((ServerId::new(at), mask));
            if room > rest {
                servers.insert((room - rest, at));
            }
            rest -= rest.min(room);
        }
        debug_assert_eq!(rest, 0, "the type has enough free GPUs");
        found.into_iter().collect()
    }
}

/// The policy `optimus`, which sizes elastic gangs by marginal gain.
#[derive(Debug)]
pub(crate) struct Optimus {
    params: OptimusParams,
    /// The jobs of the last decision, in order, each with its smallest GPU count on its fastest type.
    ranked: Vec<(JobId, u32)>,
}

impl Optimus {
    pub(crate) fn new(params: OptimusParams) -> Self {
        Self {
            params,
            ranked: Vec::new(),
        }
    }

    /// Returns the ladder of a job on a type. `server` is the size of the largest server of this type that is up.
    fn ladder(
        &self,
        view: &ClusterView<'_>,
        job: JobId,
        gpu_type: GpuTypeId,
        server: u32,
    ) -> Ladder {
        let Some(model) = view.elastic(job) else {
            let rungs = vec![(view.jobs().gpus(job), 0.0)];
            return Ladder { gpu_type, rungs };
        };
        let (class, phase) = (model.class(), view.noise_phase(job));
        let speed = view.cluster().gpu_types()[gpu_type.index()].speed;
        let rung = |gpus| (gpus, model.frozen(phase, gpus, gpus > server).rate * speed);
        let most = self
            .params
            .max_gpus_per_job
            .clamp(class.min_gpus, class.max_gpus);
        let all = (class.min_gpus..=most).map(rung);
        let mut rungs: Vec<(u32, f64)> = all.filter(|rung| rung.1 > 0.0).collect();
        if rungs.is_empty() {
            rungs.push(rung(class.gpus)); // A job without any rung would wait for ever.
        }
        if self.params.skip_slower {
            let mut best = 0.0;
            rungs.retain(|rung| {
                let is_faster = rung.1 > best;
                best = rung.1.max(best);
                is_faster
            });
        }
        Ladder { gpu_type, rungs }
    }

    /// Returns the active jobs in order, each with the smallest GPU count with which it can run, if that many GPUs are
    /// left. Jobs that must keep their GPUs come first, and the other jobs follow in order of arrival.
    fn claims<'a>(&mut self, view: &ClusterView<'a>, left: &mut [u32]) -> Vec<Claim<'a>> {
        let mut servers = vec![0; left.len()];
        for (at, one) in view.cluster().servers().iter().enumerate() {
            if view.is_up(ServerId::new(at)) {
                let most: &mut u32 = &mut servers[one.gpu_type.index()];
                *most = one.gpus.max(*most);
            }
        }
        let mut active: Vec<JobId> = view.running().chain(view.waiting()).collect();
        active.sort_by_cached_key(|&job| (!is_bound(view, job), view.jobs().arrival(job), job));
        let mut claims = Vec::with_capacity(active.len());
        for job in active {
            let held = view.run(job).map(Run::gpus);
            let bound = held.filter(|_| is_bound(view, job));
            let types = view.types_of(job).filter(|_| bound.is_none());
            let ladder = |id: GpuTypeId| self.ladder(view, job, id, servers[id.index()]);
            let ladders: Vec<Ladder> = types.map(ladder).collect();
            let fits = |ladder: &&Ladder| ladder.rungs[0].0 <= left[ladder.gpu_type.index()];
            let first = ladders.iter().find(fits);
            let first = first.map(|ladder| (ladder.gpu_type, ladder.rungs[0].0));
            let kept = bound.map(|gpus| (type_of(view, gpus), gpus.gpus()));
            let (gpu_type, count) = kept.or(first).unwrap_or((GpuTypeId::new(0), 0));
            left[gpu_type.index()] -= count;
            self.ranked
                .push((job, ladders.first().map_or(0, |ladder| ladder.rungs[0].0)));
            claims.push(Claim {
                view: *view,
                job,
                ladders,
                gpu_type,
                count,
            });
        }
        claims
    }

    /// Repeatedly takes the step that has the largest gain. If a type has too few GPUs left for a step, the step is
    /// postponed until a job leaves that type.
    fn climb(claims: &mut [Claim<'_>], left: &mut [u32]) -> Result<(), PolicyError> {
        let mut steps = BinaryHeap::new();
        for (at, claim) in claims.iter().enumerate() {
            steps.extend(claim.steps(at)?);
        }
        let mut parked: Vec<Vec<Step>> = vec![Vec::new(); left.len()];
        while let Some(step) = steps.pop() {
            let (at, to) = (step.claim.0, step.gpu_type.index());
            let claim = &mut claims[at];
            if claim.count != step.from {
                continue;
            }
            let own = claim.gpu_type.index();
            let back = if own == to { claim.count } else { 0 };
            if step.count > left[to] + back {
                parked[to].push(step);
                continue;
            }
            left[own] += claim.count;
            left[to] -= step.count;
            (claim.gpu_type, claim.count) = (step.gpu_type, step.count);
            steps.extend(claim.steps(at)?);
            if own != to {
                steps.extend(parked[own].drain(..));
            }
        }
        Ok(())
    }

    /// Returns the new GPUs of the jobs that do not keep their current GPUs. Jobs are placed by number of GPUs
    /// (smallest first), then by arrival.
    fn place(&self, view: &ClusterView<'_>, claims: &[Claim<'_>]) -> Vec<(JobId, GpuSet, Terms)> {
        let mut room = Room::new(view, claims);
        let is_open = |claim: &&Claim<'_>| claim.count > 0 && !claim.stays();
        let mut open: Vec<&Claim<'_>> = claims.iter().filter(is_open).collect();
        open.sort_by_key(|claim| (claim.count, view.jobs().arrival(claim.job), claim.job));
        let choice = self.params.server_choice;
        let found = open.into_iter().map(|claim| {
            let gpus = room.take(claim.gpu_type, claim.count, choice);
            (claim.job, gpus, claim.terms())
        });
        found.collect()
    }
}

impl Policy for Optimus {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            wake_on: WakeOn::ROUND,
            round: Some(self.params.period),
            knowledge: Knowledge::Remaining,
            resizes: true,
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        _view: &ClusterView<'_>,
        _plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        Ok(Vec::new())
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        _changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        self.ranked.clear();
        let types = view.cluster().gpu_types().len();
        let mut left: Vec<u32> = (0..types)
            .map(|at| view.gpus_up(GpuTypeId::new(at)))
            .collect();
        if left.iter().all(|&gpus| gpus == 0) {
            return Ok(Next::Ask);
        }
        let mut claims = self.claims(view, &mut left);
        Self::climb(&mut claims, &mut left)?;
        let mut found = self.place(view, &claims);
        let none = claims.iter().filter(|claim| claim.count == 0);
        let mut stopped: Vec<JobId> = none.map(|claim| claim.job).collect();
        stopped.retain(|&job| view.run(job).is_some());
        stopped.sort_unstable();
        for job in stopped {
            plan.preempt(job);
        }
        found.sort_unstable_by_key(|one| one.0);
        for (job, gpus, terms) in found {
            let is_running = view.run(job).is_some();
            let act = if is_running {
                Action::move_to
            } else {
                Action::start
            };
            plan.push(act(job, gpus).with(terms));
        }
        Ok(Next::Ask)
    }

    fn reasons(&self) -> Vec<&'static Reason> {
        vec![&OUTRANKED, &COUNTED_OUT, &TOO_SMALL]
    }

    /// A job waits if, at its turn, every type that it can use has too few GPUs left. GPUs may still be free: earlier
    /// jobs may have stepped to a different type, or the job's batch may need more GPUs than are free.
    fn why(&self, view: &ClusterView<'_>, job: JobId) -> Option<Cause> {
        let at = self.ranked.iter().position(|one| one.0 == job);
        let Some((at, first)) = at.map(|at| (at, self.ranked[at].1)) else {
            return Some(Cause::new(&TOO_SMALL));
        };
        let least = view
            .elastic(job)
            .map_or(first, |model| model.class().min_gpus);
        if has_enough(view, job, first, false) {
            return Some(Cause::new(&COUNTED_OUT));
        }
        if has_enough(view, job, least, false) {
            return Some(Cause::new(&TOO_SMALL));
        }
        let before: BTreeSet<JobId> = self.ranked[..at].iter().map(|one| one.0).collect();
        let outranked = largest(view, job, |run| before.contains(&run.job))
            .map(|other| Cause::of(&OUTRANKED, other));
        let is_possible = view.types_of(job).any(|id| view.gpus_up(id) >= first);
        let taken =
            || largest(view, job, |_| is_possible).map(|other| Cause::of(&COUNTED_OUT, other));
        outranked.or_else(taken).or(Some(Cause::new(&TOO_SMALL)))
    }
}
