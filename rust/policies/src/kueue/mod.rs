//! `kueue`: queues with quotas in a tree of cohorts, as described in the documentation of Kueue.
//!
//! | term of Kueue | here | meaning |
//! |---|---|---|
//! | `ClusterQueue` | [`Queue`], a leaf of [`Tree`] | jobs that share a quota for each GPU type |
//! | cohort | an inner node of [`Tree`] | queues that lend each other unused quota |
//! | flavor | `GpuTypeId` | unit of quotas |
//! | workload | `JobId` | a gang on one type |
//! | inadmissible | [`Line::refuse`] | refused until the assignment of GPUs changes |
//! | nomination | [`Search::choose`] | choice of the GPU type and of the jobs to preempt |
//!
//! A decision consists of cycles. In each cycle, every queue nominates its first job that has not been tried yet. For
//! each nominated job, the policy makes a choice based on the state at the beginning of the cycle. It then admits the
//! jobs for which it made a choice, one by one. A job is passed over if an earlier one has used its quota or GPUs, or
//! has preempted a job that it would preempt. The decision ends when no job can be admitted. A job that preempts others
//! starts at the same instant.
//!
//! A cycle costs O(queues + kinds of waiting jobs). Each job that is tried adds O(running jobs that it may preempt);
//! there are none if its queue never preempts. A cycle does not walk over the waiting jobs.

mod books;
mod params;
mod preempt;
mod quota;
mod waiting;

pub(crate) use params::{
    Borrow, DEFAULT_QUEUE, Fairness, KueueParams, QueueLabel, Reclaim, Strategy, WhenCanBorrow,
    WhenCanPreempt, Within,
};

use crate::kit::why::{BEHIND, NO_PLACE, at_head};
use crate::kit::{JobTimers, Places};
use crate::params::ParamReader;
use books::{Books, Queue, priority};
use gangline_engine::{
    BitSet, Cause, Changes, ClusterView, Counted, Next, Plan, Policy, PolicyError, PolicyTraits,
    Reason, WakeOn,
};
use gangline_model::{ClusterSpec, GpuTypeId, InfeasibleReason, JobFacts, JobId, SimSpan};
use params::{Flavor, Group, Rules, Weight};
use preempt::{Choice, Search};
use quota::{Share, Tree, type_of};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use waiting::{Line, Rank, Refused};

/// The job's queue is not allowed to use enough additional GPUs, and the job is not allowed to preempt enough other
/// jobs.
static NO_QUOTA: Reason = Reason::new(
    "no quota",
    "its queue is not allowed to use enough additional GPUs, and the job is not allowed to preempt enough other jobs",
    "its queue held {number} of the types that it can use; its quota and borrowing did not allow enough additional GPUs, and the job could not preempt enough other jobs",
)
.counts(Counted::Gpus);

/// The job was preempted and can be admitted again only after `requeue_s`.
static EVICTED: Reason = Reason::new(
    "evicted",
    "it was preempted and can be admitted again only after requeue_s",
    "it was preempted and could not be admitted again before {until}",
);

/// Position of a job in its queue.
#[derive(Clone, Copy, Debug)]
struct Position {
    rank: Rank,
    /// Index of the job's kind within the queue; jobs of the same kind have equal gangs and equal priorities.
    kind: u32,
}

/// Counters of changes to the assignment of GPUs.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Number of changes of any kind: jobs that start or become preemptible, and the changes counted in `room`.
    any: u64,
    /// Number of changes that may make room without preemption: jobs that stop, and servers that fail or are repaired.
    room: u64,
}

/// A nominated job, and how it would be admitted.
#[derive(Debug)]
struct Head {
    queue: usize,
    job: JobId,
    choice: Choice,
}

/// The policy `kueue`.
#[derive(Debug)]
pub(crate) struct Kueue {
    params: KueueParams,
    books: Books,
    lines: Vec<Line>,
    /// Lines that have waiting jobs.
    busy: BitSet,
    positions: Vec<Position>,
    /// Times at which preempted jobs can be admitted again.
    timers: JobTimers,
    state: State,
    /// Whether a gang that does not fit now might fit when fewer GPUs are free. If so, every change to the assignment
    /// counts.
    is_non_monotone: bool,
}

impl Kueue {
    pub(crate) fn new(params: KueueParams) -> Self {
        let places = Places::new(params.placement.clone());
        Self {
            params,
            books: Books::new(Tree::default(), Vec::new(), places, Vec::new()),
            lines: Vec::new(),
            busy: BitSet::new(1),
            positions: Vec::new(),
            timers: JobTimers::new(0),
            state: State::default(),
            is_non_monotone: false,
        }
    }

    /// Assigns each job to a queue and to a position in it.
    fn line_up(&mut self, jobs: &JobFacts) {
        let mut members: Vec<Vec<JobId>> = vec![Vec::new(); self.books.queues.len()];
        for job in jobs.ids() {
            members[self.books.queue(job)].push(job);
        }
        self.positions = vec![Position { rank: 0, kind: 0 }; jobs.len()];
        for (queue, mut members) in members.into_iter().enumerate() {
            members.sort_by_key(|&job| Reverse(priority(jobs, job)));
            let mut kinds = FxHashMap::default();
            for (rank, &job) in members.iter().enumerate() {
                let next = kinds.len() as u32;
                // Without preemption, a refusal does not depend on the priority.
                let weighs = self.books.queues[queue].rules.may_preempt();
                let priority = weighs.then(|| priority(jobs, job));
                let alike = (self.books.places.class_of(job), priority);
                let kind = *kinds.entry(alike).or_insert(next);
                self.positions[job.index()] = Position {
                    rank: rank as Rank,
                    kind,
                };
            }
            let is_strict = self.books.queues[queue].rules.strategy == Strategy::StrictFifo;
            self.lines.push(Line::new(members, kinds.len(), is_strict));
        }
        self.busy = BitSet::new(self.lines.len().max(1));
    }

    /// Returns the jobs that cannot run on any type of their queue, even alone on the empty cluster.
    fn unplaceable(&self, jobs: &JobFacts) -> Vec<JobId> {
        let books = &self.books;
        let fits = |job: JobId| {
            let queue = books.queue(job);
            let mut types = books.queues[queue].types.iter();
            types.any(|&t| {
                books.places.has_home(job, t)
                    && books.tree.could_have(queue, t, i64::from(jobs.gpus(job)))
            })
        };
        jobs.ids().filter(|&job| !fits(job)).collect()
    }

    fn join(&mut self, job: JobId) {
        let (queue, position) = (self.books.queue(job), self.positions[job.index()]);
        self.lines[queue].join(position.rank, position.kind as usize);
        self.busy.insert(queue);
    }

    fn leave(&mut self, job: JobId) {
        let (queue, position) = (self.books.queue(job), self.positions[job.index()]);
        self.lines[queue].leave(position.rank, position.kind as usize);
        if self.lines[queue].is_empty() {
            self.busy.remove(queue);
        }
    }

    /// Records the effects of the last plan and the changes since then.
    fn note(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>, changes: &Changes) {
        for &job in changes.finished.iter().chain(&changes.requeued) {
            self.books.release(view.jobs(), job);
        }
        if changes.has_room() {
            self.has_room();
        }
        if !changes.started.is_empty() {
            // These jobs may be preempted from now on.
            self.state.any += 1;
        }
        self.is_non_monotone = self.books.places.has_non_monotone(plan.free());
        for &job in changes.requeued.iter().chain(&changes.arrived) {
            self.join(job);
        }
        if self.params.requeue == SimSpan::ZERO {
            for &job in &changes.preempted {
                self.join(job);
            }
        }
        while let Some(job) = self.timers.due(view.now()) {
            self.join(job);
        }
        self.restart();
    }

    fn has_room(&mut self) {
        self.state.any += 1;
        self.state.room += 1;
    }

    fn restart(&mut self) {
        for queue in self.busy.iter() {
            self.lines[queue].restart();
        }
    }

    /// Returns the change counter on which the choices of a queue depend.
    fn state_of(&self, queue: usize) -> u64 {
        if self.is_non_monotone || self.books.queues[queue].rules.may_preempt() {
            self.state.any << 1 | 1
        } else {
            self.state.room << 1
        }
    }

    /// Skips the cycles in which no job is worth trying. For the next cycle, returns the nominated jobs that can be
    /// admitted, at most one for each queue; returns `None` if there is no such cycle.
    fn nominate(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) -> Option<Vec<Head>> {
        let busy = self.busy.iter();
        let nexts: Vec<(usize, Option<(u32, Rank)>)> = busy
            .map(|queue| (queue, self.lines[queue].next(self.state_of(queue))))
            .collect();
        let least = nexts
            .iter()
            .filter_map(|(_, next)| Some((*next)?.0))
            .min()?;
        let mut heads = Vec::new();
        for (queue, next) in nexts {
            let Some((_, rank)) = next.filter(|next| next.0 == least) else {
                self.lines[queue].pass(least + 1);
                continue;
            };
            self.lines[queue].pass(least);
            let job = self.lines[queue].job(rank);
            match self.search(view, plan).choose(job) {
                Some(choice) => heads.push(Head { queue, job, choice }),
                None => self.refuse(view.jobs(), job),
            }
        }
        Some(heads)
    }

    fn search<'a, 'v, 'p>(
        &'a mut self,
        view: &'a ClusterView<'v>,
        plan: &'a mut Plan<'p>,
    ) -> Search<'a, 'v, 'p> {
        Search {
            books: &mut self.books,
            view,
            plan,
            fairness: self.params.fairness.as_deref(),
        }
    }

    /// Records that this job cannot be admitted at present, and neither can the other jobs of its kind. If a job may
    /// preempt later jobs of equal priority, the refusal depends on how many of these run. It then applies only to the
    /// ranks between the previous and the next running job of this priority.
    fn refuse(&mut self, jobs: &JobFacts, job: JobId) {
        let (queue, position) = (self.books.queue(job), self.positions[job.index()]);
        let mut known = Refused {
            state: self.state_of(queue),
            from: 0,
            until: Rank::MAX,
        };
        if self.books.queues[queue].rules.within == Within::LowerOrNewerEqualPriority {
            for other in self.books.equals(queue, priority(jobs, job)) {
                let rank = self.positions[other.index()].rank;
                if rank < position.rank {
                    known.from = known.from.max(rank);
                } else {
                    known.until = known.until.min(rank);
                }
            }
        }
        self.lines[queue].refuse(position.rank, position.kind as usize, known);
    }

    /// Tries to admit the nominated jobs one by one.
    fn admit_all(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>, mut heads: Vec<Head>) {
        let key = |head: &Head| (Reverse(priority(view.jobs(), head.job)), head.job);
        if self.params.fairness.is_none() {
            heads.sort_by_key(|head| (head.choice.borrows, key(head)));
            for head in heads {
                self.admit(view, plan, &head);
            }
            return;
        }
        while !heads.is_empty() {
            let next = self.tournament(view.jobs(), &heads);
            let head = heads.remove(next);
            self.admit(view, plan, &head);
        }
    }

    /// Chooses the next nominated job under fair sharing. In the tree that contains the queue of the first nominated
    /// job, each node compares the jobs that its children pass up. It passes up the job from the child that would have
    /// the smallest share. Ties are broken by priority, then by age.
    fn tournament(&mut self, jobs: &JobFacts, heads: &[Head]) -> usize {
        let root = self.books.tree.root(heads[0].queue);
        let all = (0..heads.len()).filter(|&at| self.books.tree.holds(root, heads[at].queue));
        self.winner(jobs, heads, root, all.collect())
    }

    fn winner(&mut self, jobs: &JobFacts, heads: &[Head], node: usize, there: Vec<usize>) -> usize {
        if let [only] = there[..] {
            return only;
        }
        let mut sides: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for at in there {
            let tree = &self.books.tree;
            let mut path = tree.path(heads[at].queue);
            let side = path.find(|&below| tree.parent(below) == Some(node));
            sides
                .entry(side.expect("below the node"))
                .or_default()
                .push(at);
        }
        let winners = sides.into_iter().map(|(side, there)| {
            let at = self.winner(jobs, heads, side, there);
            (self.claim(jobs, &heads[at], side), at)
        });
        winners.min().expect("a head is below").1
    }

    /// Returns the sort key of a job: the share that a node above the job would have if the job were admitted, then the
    /// job's priority and age.
    fn claim(&mut self, jobs: &JobFacts, head: &Head, node: usize) -> Claim {
        let t = head.choice.gpu_type;
        let victims = head.choice.victims.iter().copied();
        let gone = victims.filter(|&other| self.books.runs(other));
        let gone = gone.map(|other| (self.books.queue(other), -i64::from(jobs.gpus(other))));
        let mut changes: Vec<(usize, i64)> = gone.collect();
        changes.push((head.queue, i64::from(jobs.gpus(head.job))));
        let tree = &mut self.books.tree;
        for &(queue, gpus) in &changes {
            tree.take(queue, t, gpus);
        }
        let share = tree.share(node);
        for &(queue, gpus) in &changes {
            tree.take(queue, t, -gpus);
        }
        (share, Reverse(priority(jobs, head.job)), head.job)
    }

    /// Admits a job, unless an earlier one has used its quota or GPUs, or has preempted one of its victims.
    fn admit(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>, head: &Head) {
        let Head { queue, job, choice } = head;
        let (job, t, jobs) = (*job, choice.gpu_type, view.jobs());
        if choice.victims.iter().any(|&other| !self.books.runs(other)) {
            return;
        }
        let mark = plan.mark();
        let mut gone = Vec::new();
        for &other in &choice.victims {
            gone.push((other, self.books.release(jobs, other)));
            plan.release(other);
        }
        let has_quota = self
            .books
            .tree
            .has_quota(*queue, t, i64::from(jobs.gpus(job)));
        let places = &mut self.books.places;
        let class = places.class_of(job);
        let found = has_quota.then(|| places.place_on(plan, class, job, t));
        let Some(gpus) = found.flatten() else {
            for (other, since) in gone {
                self.books.hold(jobs, other, t, since);
            }
            plan.rollback(mark);
            return;
        };
        for &other in &choice.victims {
            plan.preempt(other);
            if self.params.requeue > SimSpan::ZERO {
                self.timers.set(other, view.now() + self.params.requeue);
            }
        }
        plan.start(job, gpus);
        self.books.hold(jobs, job, t, view.now());
        self.leave(job);
        self.state.any += 1;
        if !choice.victims.is_empty() {
            self.has_room();
            self.restart();
        }
    }

    /// Returns the queue of each job.
    fn assign(&self, jobs: &JobFacts, is_one: bool) -> Result<Vec<u32>, PolicyError> {
        if is_one {
            return Ok(vec![0; jobs.len()]);
        }
        let by = self.params.queue_by;
        let label = by.of(&jobs.columns().labels);
        let queues = self.params.queues.iter().enumerate();
        let numbers: FxHashMap<&str, u32> = queues
            .map(|(at, queue)| (queue.name.as_str(), at as u32))
            .collect();
        let number = |job| {
            let label = label.of(job);
            let number = numbers.get(label.unwrap_or(DEFAULT_QUEUE)).copied();
            number.ok_or_else(|| {
                let known = self.params.queues.iter().map(|queue| queue.name.as_str());
                by.missing(&self.params.reader, label, known)
            })
        };
        jobs.ids().map(number).collect()
    }
}

/// Sort key of jobs under fair sharing; the job with the smallest key is admitted first.
type Claim = (Share, Reverse<i64>, JobId);

/// Returns a single queue for all jobs, with all GPUs of the cluster.
fn only_queue(cluster: &ClusterSpec, reader: &ParamReader) -> Group {
    let mut gpus = vec![0_i64; cluster.gpu_types().len()];
    for server in cluster.servers() {
        gpus[server.gpu_type.index()] += i64::from(server.gpus);
    }
    let types = cluster.gpu_types().iter().zip(gpus);
    let flavors = types.map(|(kind, nominal)| Flavor {
        row: reader.clone(),
        gpu: kind.name.clone(),
        nominal,
        borrowing: None,
        lending: None,
    });
    Group {
        name: DEFAULT_QUEUE.to_owned(),
        above: None,
        weight: Weight::ONE,
        flavors: flavors.collect(),
        rules: Rules::DEFAULT,
    }
}

impl Policy for Kueue {
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
        let (cluster, jobs) = (view.cluster(), view.jobs());
        let mut places = Places::new(self.params.placement.clone());
        places.start(view, plan)?;
        let is_one = self.params.queues.is_empty();
        if is_one {
            let only = only_queue(cluster, &self.params.reader);
            self.params.queues.push(only);
        }
        let tree = Tree::new(&self.params, cluster)?;
        let queue = |group: &Group| {
            let types = group.flavors.iter().map(|flavor| type_of(flavor, cluster));
            Ok(Queue {
                rules: group.rules,
                types: types.collect::<Result<_, PolicyError>>()?,
                running: vec![BTreeSet::new(); cluster.gpu_types().len()],
            })
        };
        let queues = self.params.queues.iter().map(queue);
        let queues = queues.collect::<Result<_, PolicyError>>()?;
        let of = self.assign(jobs, is_one)?;
        self.books = Books::new(tree, queues, places, of);
        self.timers = JobTimers::new(jobs.len());
        self.line_up(jobs);
        Ok(self.unplaceable(jobs))
    }

    fn why_never(&self, view: &ClusterView<'_>, job: JobId) -> InfeasibleReason {
        let queue = self.books.queue(job);
        let gpus = i64::from(view.jobs().gpus(job));
        let mut types = self.books.queues[queue].types.iter();
        if types.any(|&t| self.books.tree.could_have(queue, t, gpus)) {
            InfeasibleReason::Placement
        } else {
            InfeasibleReason::Policy(
                "asks for more GPUs than its queue may use of any type, borrowed ones included",
            )
        }
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        self.note(view, plan, changes);
        while let Some(heads) = self.nominate(view, plan) {
            self.admit_all(view, plan, heads);
        }
        self.timers.flush(view.now(), plan);
        Ok(Next::Ask)
    }

    fn reasons(&self) -> Vec<&'static Reason> {
        vec![&BEHIND, &NO_PLACE, &NO_QUOTA, &EVICTED]
    }

    fn why(&self, view: &ClusterView<'_>, job: JobId) -> Option<Cause> {
        if let Some(until) = self.timers.get(job) {
            return Some(Cause::new(&EVICTED).until(until));
        }
        let queue = self.books.queue(job);
        let line = &self.lines[queue];
        let head = line.job(line.head()?);
        if self.books.queues[queue].rules.strategy == Strategy::StrictFifo && head != job {
            return Some(at_head(head, job));
        }
        let gpus = i64::from(view.jobs().gpus(job));
        let usable = view.usable_types(job);
        let types = self.books.queues[queue].types.iter().copied();
        let types: Vec<GpuTypeId> = types.filter(|t| usable >> t.index() & 1 == 1).collect();
        let tree = &self.books.tree;
        if types.iter().any(|&t| tree.has_quota(queue, t, gpus)) {
            return Some(Cause::new(&NO_PLACE));
        }
        let used: i64 = types.iter().map(|&t| tree.usage(queue, t)).sum();
        Some(Cause::new(&NO_QUOTA).number(used as u32))
    }
}
