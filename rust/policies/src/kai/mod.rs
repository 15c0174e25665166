//! `kai`: a tree of queues with guaranteed quotas. GPUs beyond the quotas are divided among the queues by priority,
//! weight and past usage. The policy follows the documentation of KAI Scheduler.
//!
//! | term of KAI Scheduler | here | meaning |
//! |---|---|---|
//! | queue | a node of [`Tree`]; leaves have jobs ([`Line`]) | jobs that share a quota, a limit and a fair share |
//! | pod group | `JobId` | a gang |
//! | non-preemptible | [`Member::is_fixed`] | runs within the quota of its queue and is never evicted |
//! | scheduling cycle | [`Policy::decide`] | computes fair shares, then performs the three actions |
//! | allocate | [`Kai::allocate`] | jobs start on free GPUs |
//! | reclaim | [`Kai::reclaim`] | jobs of queues above their fair share make room for jobs of other queues |
//! | preempt | [`Kai::preempt`] | jobs make room for higher-priority jobs in the same queue |
//!
//! Each job that starts, or is tried without success, costs O(queues + groups of jobs in the trace). All jobs of a
//! group have the same queue, gang size and GPU types. Each job that looks for victims costs O(running jobs).

mod line;
mod params;
mod tree;

pub(crate) use params::{KaiParams, Resolve};

use crate::kit::why::NO_PLACE;
use crate::kit::{Alarm, Places};
use crate::kueue::DEFAULT_QUEUE;
use gangline_engine::{
    Cause, Changes, ClusterView, Counted, Next, Plan, Policy, PolicyError, PolicyTraits, Reason,
    WakeOn,
};
use gangline_model::{GpuSet, GpuTypeId, InfeasibleReason, JobFacts, JobId, SimSpan, SimTime};
use line::{Line, Member, Place, Rank};
use params::Row;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use tree::{ROOT, Tree};

/// The job's queue, or a queue above it, has reached its limit.
static LIMIT: Reason = Reason::new(
    "limit",
    "its queue, or one above it, may hold no more GPUs",
    "its queue, or one above it, held {number}, and its limit left no room for the gang",
)
.counts(Counted::Gpus);

/// The job cannot be preempted, so it must fit within the quota.
static OVER_QUOTA: Reason = Reason::new(
    "over quota",
    "jobs that cannot be preempted run only within the quota of their queue, and other such jobs fill that quota",
    "jobs that cannot be preempted held {number} of the quota of its queue or of one above it, and it may use no GPUs beyond the quota",
)
.counts(Counted::Gpus);

/// A job that asks for GPUs.
#[derive(Clone, Copy, Debug)]
struct Ask {
    job: JobId,
    leaf: usize,
    gpus: i64,
    is_fixed: bool,
}

/// A running job that might be evicted.
#[derive(Clone, Copy, Debug)]
struct Victim {
    job: JobId,
    leaf: usize,
    gpus: i64,
}

/// The policy `kai`: queues with quotas and fair shares.
#[derive(Debug)]
pub(crate) struct Kai {
    params: KaiParams,
    tree: Tree,
    places: Places,
    /// For each node of the tree, its line of jobs. The lines of queues with children are empty.
    lines: Vec<Line>,
    members: Vec<Member>,
    /// Number of waiting jobs, including jobs that were evicted in this cycle.
    waiting: usize,
    /// Instant of the cycle that follows the last eviction; `NEVER` if no such cycle is due.
    next_cycle: SimTime,
    alarm: Alarm,
}

fn priority(jobs: &JobFacts, job: JobId) -> i64 {
    jobs.priority(job) as i64
}

impl Kai {
    pub(crate) fn new(params: KaiParams) -> Result<Self, PolicyError> {
        Ok(Self {
            tree: Tree::new(&params, &[])?,
            places: Places::new(params.placement.clone()),
            params,
            lines: Vec::new(),
            members: Vec::new(),
            waiting: 0,
            next_cycle: SimTime::NEVER,
            alarm: Alarm::OFF,
        })
    }

    // These methods run before the first event.

    /// Returns the queues as parameter rows, and the leaf of each job.
    fn assign(&self, jobs: &JobFacts) -> Result<(Vec<Row>, Vec<usize>), PolicyError> {
        let by = self.params.queue_by;
        let label = by.of(&jobs.columns().labels);
        let name = |job| label.of(job).unwrap_or(DEFAULT_QUEUE);
        let mut rows = self.params.queues.clone();
        if rows.is_empty() {
            let names: BTreeSet<&str> = jobs.ids().map(name).collect();
            rows = names.into_iter().map(Row::plain).collect();
        }
        let parents = rows
            .iter()
            .filter_map(|row| Some((row.parent.as_deref()?, row)));
        let parents: FxHashMap<&str, &Row> = parents.collect();
        let names = rows.iter().map(|row| row.name.as_str());
        let numbers: FxHashMap<&str, usize> = names.clone().zip(1..).collect();
        let number = |job| {
            let name = name(job);
            let number = numbers
                .get(name)
                .copied()
                .ok_or_else(|| by.missing(&self.params.reader, label.of(job), names.clone()))?;
            match parents.get(name).and_then(|row| row.reader.as_ref()) {
                Some(reader) => Err(reader.refuse(
                    "parent",
                    "a queue without jobs; the trace has jobs of this queue: give them a queue below it",
                )),
                None => Ok(number),
            }
        };
        let of = jobs.ids().map(number).collect::<Result<_, _>>()?;
        Ok((rows, of))
    }

    /// Sorts the jobs of each queue, and assigns each job to a group.
    fn line_up(&mut self, view: &ClusterView<'_>, of: &[usize]) {
        let jobs = view.jobs();
        let mut members: Vec<Vec<JobId>> = vec![Vec::new(); self.tree.len()];
        for job in jobs.ids() {
            members[of[job.index()]].push(job);
        }
        let blank = Member {
            leaf: 0,
            rank: 0,
            group: 0,
            is_fixed: false,
            since: SimTime::NEVER,
        };
        self.members = vec![blank; jobs.len()];
        self.lines.clear();
        for (leaf, mut there) in members.into_iter().enumerate() {
            there.sort_by_key(|&job| Reverse(priority(jobs, job)));
            let mut groups = FxHashMap::default();
            for (rank, &job) in there.iter().enumerate() {
                let is_fixed = priority(jobs, job) >= self.params.fixed_priority;
                let asks = (jobs.gpus(job), view.usable_types(job), is_fixed);
                let next = groups.len() as u32;
                let group = *groups.entry(asks).or_insert(next);
                self.members[job.index()] = Member {
                    leaf: leaf as u32,
                    rank: rank as u32,
                    group,
                    is_fixed,
                    since: SimTime::NEVER,
                };
            }
            let spans = self.tree.protections(leaf);
            self.lines.push(Line::new(there, groups.len(), spans));
        }
    }

    // These methods keep the records up to date.

    fn leaf(&self, job: JobId) -> usize {
        self.members[job.index()].leaf as usize
    }

    fn join(&mut self, job: JobId) {
        let Member { rank, group, .. } = self.members[job.index()];
        let leaf = self.leaf(job);
        self.lines[leaf].join(rank, group as usize);
    }

    fn start_job(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>, ask: Ask, gpus: GpuSet) {
        plan.start(ask.job, gpus);
        self.tree.hold(ask.leaf, ask.gpus, ask.is_fixed);
        let member = &mut self.members[ask.job.index()];
        member.since = view.now();
        let line = &mut self.lines[ask.leaf];
        line.leave(member.rank, member.group as usize);
        if !ask.is_fixed {
            line.start(place(view.jobs(), ask.job), view.now());
        }
        self.waiting -= 1;
    }

    /// Records that a job no longer holds its GPUs.
    fn release(&mut self, jobs: &JobFacts, job: JobId) {
        let leaf = self.leaf(job);
        let member = &mut self.members[job.index()];
        let since = std::mem::replace(&mut member.since, SimTime::NEVER);
        if since == SimTime::NEVER {
            return;
        }
        let (gpus, is_fixed) = (i64::from(jobs.gpus(job)), member.is_fixed);
        self.tree.hold(leaf, -gpus, is_fixed);
        self.lines[leaf].stop(place(jobs, job), since);
    }

    /// Records what has happened since the last cycle.
    fn note(&mut self, view: &ClusterView<'_>, changes: &Changes) {
        let (jobs, cluster) = (view.jobs(), view.cluster());
        let types = (0..cluster.gpu_types().len()).map(GpuTypeId::new);
        let up: u32 = types.map(|t| view.gpus_up(t)).sum();
        self.tree.count(view.now(), i64::from(up));
        for &job in changes.finished.iter().chain(&changes.requeued) {
            self.release(jobs, job);
        }
        for &job in &changes.finished {
            let leaf = self.leaf(job);
            self.tree.ask(leaf, -i64::from(jobs.gpus(job)));
        }
        for &job in &changes.arrived {
            let leaf = self.leaf(job);
            self.tree.ask(leaf, i64::from(jobs.gpus(job)));
        }
        self.waiting += changes.arrived.len() + changes.requeued.len();
        let back = changes.requeued.iter().chain(&changes.preempted);
        for &job in back.chain(&changes.arrived) {
            self.join(job);
        }
        if self.next_cycle <= view.now() {
            self.next_cycle = SimTime::NEVER;
        }
    }

    // These methods choose the next job.

    fn restart(&mut self) {
        self.lines.iter_mut().for_each(Line::restart);
    }

    /// Returns the job to try next.
    fn next(&mut self, jobs: &JobFacts) -> Option<Ask> {
        let job = self.first_of(jobs, ROOT)?;
        Some(Ask {
            job,
            leaf: self.leaf(job),
            gpus: i64::from(jobs.gpus(job)),
            is_fixed: self.members[job.index()].is_fixed,
        })
    }

    fn first_of(&mut self, jobs: &JobFacts, node: usize) -> Option<JobId> {
        if self.tree.node(node).children.is_empty() {
            return self.lines[node].next();
        }
        let mut first: Option<(usize, JobId)> = None;
        for at in 0..self.tree.node(node).children.len() {
            let child = self.tree.node(node).children[at];
            let Some(job) = self.first_of(jobs, child) else {
                continue;
            };
            let is_before = first.is_none_or(|(other, its)| {
                let sizes = (i64::from(jobs.gpus(job)), i64::from(jobs.gpus(its)));
                self.tree.order((child, sizes.0), (other, sizes.1)).is_lt()
            });
            if is_before {
                first = Some((child, job));
            }
        }
        first.map(|(_, job)| job)
    }

    fn group(&self, ask: Ask) -> usize {
        self.members[ask.job.index()].group as usize
    }

    /// Marks a job as tried without success, and also those jobs of its group whose rank is below the given one.
    fn pass(&mut self, ask: Ask, below: Rank) {
        let group = self.group(ask);
        self.lines[ask.leaf].pass(group, below);
    }

    /// Returns GPUs for a job, if limits and quotas allow the job's queue to hold them.
    fn place(&mut self, plan: &mut Plan<'_>, ask: Ask) -> Option<GpuSet> {
        if !self.tree.may_hold(ask.leaf, ask.gpus, ask.is_fixed) {
            return None;
        }
        let class = self.places.class_of(ask.job);
        self.places.place(plan, class, ask.job)
    }

    // These methods are the three actions of a cycle.

    fn allocate(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) {
        self.restart();
        while let Some(ask) = self.next(view.jobs()) {
            match self.place(plan, ask) {
                Some(gpus) => self.start_job(view, plan, ask, gpus),
                None => self.pass(ask, Rank::MAX),
            }
        }
    }

    fn reclaim(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) -> bool {
        self.restart();
        let mut has_evicted = false;
        while let Some(ask) = self.next(view.jobs()) {
            let leaf = self.tree.node(ask.leaf);
            let is_due = leaf.held + ask.gpus <= leaf.fair
                && !(ask.is_fixed && leaf.fixed + ask.gpus > leaf.quota);
            let found = is_due.then(|| self.search(view, plan, ask, true)).flatten();
            match found {
                Some(victims) => {
                    self.evict(view, plan, ask, &victims);
                    has_evicted = true;
                }
                None => self.pass(ask, Rank::MAX),
            }
        }
        has_evicted
    }

    fn preempt(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) -> bool {
        self.restart();
        let mut has_evicted = false;
        // If a job finds no victims, a job of lower priority in its group finds none either, because it may evict fewer
        // jobs.
        while self.lines.iter().any(Line::has_hope)
            && let Some(ask) = self.next(view.jobs())
        {
            let line = &self.lines[ask.leaf];
            let may = !line.is_vain(self.group(ask))
                && (!ask.is_fixed || self.tree.has_quota(ask.leaf, ask.gpus));
            let found = may.then(|| self.search(view, plan, ask, false)).flatten();
            if let Some(victims) = found {
                self.evict(view, plan, ask, &victims);
                self.lines.iter_mut().for_each(Line::retry);
                has_evicted = true;
            } else {
                let mine = priority(view.jobs(), ask.job);
                let is_as_high = |&job: &JobId| priority(view.jobs(), job) >= mine;
                let below = self.lines[ask.leaf].jobs.partition_point(is_as_high);
                self.pass(ask, below as Rank);
            }
        }
        has_evicted
    }

    fn evict(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>, ask: Ask, victims: &[Victim]) {
        for victim in victims {
            self.release(view.jobs(), victim.job);
            plan.release(victim.job);
            plan.preempt(victim.job);
        }
        self.waiting += victims.len();
        let gpus = self.place(plan, ask);
        let gpus = gpus.expect("the search found room without the victims");
        self.start_job(view, plan, ask, gpus);
    }

    /// Returns the jobs to evict so that a job can start. With `is_reclaim`, they come from other queues; otherwise,
    /// they come from the job's own queue. The search leaves the state unchanged.
    fn search(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        ask: Ask,
        is_reclaim: bool,
    ) -> Option<Vec<Victim>> {
        let mut order = if is_reclaim {
            Candidates::Others(self.others(view, ask))
        } else {
            Candidates::Own(self.own(view, ask).into_iter())
        };
        let mark = plan.mark();
        let mut taken: Vec<Victim> = Vec::new();
        let mut is_found = false;
        while let Some(victim) = order.next(self) {
            self.tree.hold(victim.leaf, -victim.gpus, false);
            plan.release(victim.job);
            taken.push(victim);
            is_found = self.is_solution(plan, ask, &taken);
            if is_found {
                break;
            }
        }
        if is_found {
            taken = self.fewer(view, plan, ask, taken);
        }
        for victim in &taken {
            self.tree.hold(victim.leaf, victim.gpus, false);
        }
        plan.rollback(mark);
        is_found.then_some(taken)
    }

    /// Goes through the victims from the last to the first, and spares those that need not be evicted for the job to
    /// start.
    fn fewer(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        ask: Ask,
        mut taken: Vec<Victim>,
    ) -> Vec<Victim> {
        for at in (0..taken.len()).rev() {
            let victim = taken.remove(at);
            self.tree.hold(victim.leaf, victim.gpus, false);
            let run = view.run(victim.job).expect("a victim runs");
            plan.take(&run.only().gpus);
            if !self.is_solution(plan, ask, &taken) {
                self.tree.hold(victim.leaf, -victim.gpus, false);
                plan.release(victim.job);
                taken.insert(at, victim);
            }
        }
        taken
    }

    /// Returns true if the job has a place once these victims are gone, and if it is fair to evict them. It is fair if
    /// the queues of the job stay within their fair shares, or stay less saturated than the queues of the victims.
    fn is_solution(&mut self, plan: &mut Plan<'_>, ask: Ask, taken: &[Victim]) -> bool {
        let is_fair = taken.iter().all(|victim| {
            if victim.leaf == ask.leaf {
                return true;
            }
            let (x, z) = self.tree.sides(ask.leaf, victim.leaf);
            let mine = self.tree.saturation(x, self.tree.node(x).held + ask.gpus);
            let its = self.tree.saturation(z, self.tree.node(z).held);
            mine <= 1.0
                || self.tree.node(z).fair == 0
                || mine * self.params.saturation_multiplier < its
        });
        is_fair && self.place(plan, ask).is_some()
    }

    // These methods list the jobs that can be evicted.

    /// Returns the jobs in the asking job's queue that have a lower priority and can be evicted, in the order of
    /// eviction.
    fn own(&self, view: &ClusterView<'_>, ask: Ask) -> Vec<Victim> {
        let mine = priority(view.jobs(), ask.job);
        let since = self.tree.node(ask.leaf).preempt_min_run;
        let lower = self.lines[ask.leaf]
            .running
            .iter()
            .take_while(|place| place.0 < mine);
        lower
            .filter_map(|place| self.candidate(view, ask.leaf, *place, since))
            .collect()
    }

    fn candidate(
        &self,
        view: &ClusterView<'_>,
        leaf: usize,
        place: Place,
        min_run: SimSpan,
    ) -> Option<Victim> {
        let job = place.1.0;
        let since = self.members[job.index()].since;
        (since < view.now() && since + min_run <= view.now()).then(|| Victim {
            job,
            leaf,
            gpus: i64::from(view.jobs().gpus(job)),
        })
    }

    /// Returns the jobs in all other queues that can be evicted. A later step checks whether their queues hold too many
    /// GPUs.
    fn others(&self, view: &ClusterView<'_>, ask: Ask) -> Others {
        let tree = &self.tree;
        let mut of = vec![Vec::new(); tree.len()];
        let mut sides = vec![(ROOT, ROOT); tree.len()];
        for (leaf, line) in self.lines.iter().enumerate() {
            if leaf == ask.leaf || line.running.is_empty() {
                continue;
            }
            sides[leaf] = tree.sides(ask.leaf, leaf);
            let min_run = match self.params.resolve {
                Resolve::Lca => tree.node(sides[leaf].1).reclaim_min_run,
                Resolve::Queue => tree.node(leaf).reclaim_min_run,
            };
            let running = line.running.iter().rev();
            of[leaf] = running
                .filter_map(|place| self.candidate(view, leaf, *place, min_run))
                .collect();
        }
        let mut below = vec![0_u32; tree.len()];
        for (leaf, there) in of.iter().enumerate() {
            if !there.is_empty() {
                below[ROOT] += 1;
                tree.path(leaf).for_each(|node| below[node] += 1);
            }
        }
        let has_quota = tree.path(ask.leaf).map(|x| {
            let node = tree.node(x);
            (x, node.held + ask.gpus <= node.quota)
        });
        Others {
            of,
            sides,
            below,
            has_quota: has_quota.collect(),
        }
    }
}

/// Returns the position of a running job among the jobs that can be evicted.
fn place(jobs: &JobFacts, job: JobId) -> Place {
    (priority(jobs, job), Reverse(job))
}

/// The candidates for eviction in a search.
enum Candidates {
    /// Candidates from the queue of the job, in the order of eviction.
    Own(std::vec::IntoIter<Victim>),
    Others(Others),
}

impl Candidates {
    fn next(&mut self, kai: &Kai) -> Option<Victim> {
        match self {
            Self::Own(list) => list.next(),
            Self::Others(others) => others.next(kai),
        }
    }
}

/// Candidates from other queues.
struct Others {
    /// Candidates of each leaf; the job to be evicted first is last in the list.
    of: Vec<Vec<Victim>>,
    /// For each leaf, the two queues just below the lowest common ancestor of this leaf and the job's leaf.
    sides: Vec<(usize, usize)>,
    /// For each node, the number of leaves with candidates at or below it.
    below: Vec<u32>,
    /// For the job's queue and each queue above it, whether the job fits within the quota.
    has_quota: Vec<(usize, bool)>,
}

impl Others {
    fn next(&mut self, kai: &Kai) -> Option<Victim> {
        let tree = &kai.tree;
        loop {
            if self.below[ROOT] == 0 {
                return None;
            }
            let mut node = ROOT;
            while !tree.node(node).children.is_empty() {
                let there = tree.node(node).children.iter().copied();
                let there = there.filter(|&child| self.below[child] > 0);
                node = there
                    .max_by(|&x, &y| tree.victim_order(x, y))
                    .expect("a leaf below this node has candidates");
            }
            let (x, z) = self.sides[node];
            let has_quota = self.has_quota.iter().any(|&(of, has)| of == x && has);
            let its = tree.node(z);
            let is_due = its.held > its.fair
                || (has_quota && its.held > its.quota)
                || (kai.params.in_quota_reclaim && has_quota && tree.outranks(x, z));
            let there = &mut self.of[node];
            // The queue can only become less saturated, so none of its other jobs can be evicted either.
            let victim = if is_due { there.pop() } else { None };
            if !is_due {
                there.clear();
            }
            if there.is_empty() {
                self.below[ROOT] -= 1;
                tree.path(node).for_each(|above| self.below[above] -= 1);
            }
            if victim.is_some() {
                return victim;
            }
        }
    }
}

impl Policy for Kai {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            wake_on: WakeOn::QUEUE | WakeOn::TIMER,
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        let jobs = view.jobs();
        let homeless = self.places.start(view, plan)?;
        let (rows, of) = self.assign(jobs)?;
        self.tree = Tree::new(&self.params, &rows)?;
        self.line_up(view, &of);
        let mut infeasible: BTreeSet<JobId> = homeless.into_iter().collect();
        infeasible.extend(jobs.ids().filter(|&job| {
            let member = self.members[job.index()];
            let gpus = i64::from(jobs.gpus(job));
            !self
                .tree
                .could_hold(member.leaf as usize, gpus, member.is_fixed)
        }));
        Ok(infeasible.into_iter().collect())
    }

    fn why_never(&self, view: &ClusterView<'_>, job: JobId) -> InfeasibleReason {
        let member = self.members[job.index()];
        let (leaf, gpus) = (member.leaf as usize, i64::from(view.jobs().gpus(job)));
        if !self.tree.could_hold(leaf, gpus, false) {
            InfeasibleReason::Policy(
                "asks for more GPUs than the limit of its queue, or of one above it",
            )
        } else if !self.tree.could_hold(leaf, gpus, member.is_fixed) {
            InfeasibleReason::Policy(
                "cannot be preempted, because its priority is at least `fixed_priority`, and asks for more GPUs than the quota of its queue, or of one above it",
            )
        } else {
            InfeasibleReason::Placement
        }
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        self.note(view, changes);
        let now = view.now();
        if self.waiting > 0 {
            self.tree.share_out();
            self.allocate(view, plan);
            let has_reclaimed = self.reclaim(view, plan);
            if self.preempt(view, plan) || has_reclaimed {
                self.next_cycle = now + self.params.cycle;
            }
        }
        let mut next = self.next_cycle;
        if self.waiting > 0 {
            next = next.min(self.tree.next_sample());
            let ends = self
                .lines
                .iter()
                .map(|line| line.next_end_of_protection(now));
            next = ends.fold(next, SimTime::min);
        }
        self.alarm.set(now, next, plan);
        Ok(Next::Ask)
    }

    fn reasons(&self) -> Vec<&'static Reason> {
        vec![&LIMIT, &OVER_QUOTA, &NO_PLACE]
    }

    fn why(&self, view: &ClusterView<'_>, job: JobId) -> Option<Cause> {
        let member = self.members[job.index()];
        let (leaf, gpus) = (member.leaf as usize, i64::from(view.jobs().gpus(job)));
        for node in self.tree.path(leaf).map(|node| self.tree.node(node)) {
            if node.held + gpus > node.limit {
                return Some(Cause::new(&LIMIT).number(node.held as u32));
            }
            if member.is_fixed && node.fixed + gpus > node.quota {
                return Some(Cause::new(&OVER_QUOTA).number(node.fixed as u32));
            }
        }
        Some(Cause::new(&NO_PLACE))
    }
}
