//! Chooses the GPU type on which a job is admitted, and the jobs that it preempts. Choices are tried out on the quotas
//! and on the draft of the plan, and then undone.

use super::books::{Books, Candidate, priority};
use super::params::{Borrow, Fairness, Reclaim, WhenCanBorrow, WhenCanPreempt, Within};
use super::quota::Tree;
use gangline_engine::{ClusterView, Plan};
use gangline_model::{GpuTypeId, JobId};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A way to admit a job.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub gpu_type: GpuTypeId,
    /// Whether the job's queue has to borrow GPUs for it.
    pub borrows: bool,
    pub victims: Vec<JobId>,
}

/// Searches for a way to admit a job, and leaves the quotas and the plan unchanged.
pub(super) struct Search<'a, 'v, 'p> {
    pub books: &'a mut Books,
    pub view: &'a ClusterView<'v>,
    pub plan: &'a mut Plan<'p>,
    /// Rules of fair sharing, if fair sharing is on.
    pub fairness: Option<&'a [Fairness]>,
}

/// A job's request for GPUs of one type.
#[derive(Clone, Copy, Debug)]
struct Ask {
    job: JobId,
    queue: usize,
    gpus: i64,
    priority: i64,
    t: GpuTypeId,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Number of GPUs that the job adds to the usage of its queue: the gang size, or 0 if the gang is already counted.
    more: i64,
    /// The node that is not allowed to borrow for the job, if there is one: the queue itself or a cohort above it.
    inside: Option<usize>,
}

impl Search<'_, '_, '_> {
    /// Returns the best choice among the GPU types of the job's queue. The rules of the queue may end the search before
    /// all types are tried.
    pub(super) fn choose(&mut self, job: JobId) -> Option<Choice> {
        let queue = self.books.queue(job);
        let rules = self.books.queues[queue].rules;
        let mut best: Option<Choice> = None;
        let rank = |choice: &Choice| (!choice.victims.is_empty(), choice.borrows);
        for at in 0..self.books.queues[queue].types.len() {
            let ask = Ask {
                job,
                queue,
                gpus: i64::from(self.view.jobs().gpus(job)),
                priority: priority(self.view.jobs(), job),
                t: self.books.queues[queue].types[at],
            };
            if !self.books.places.class(job).types.contains(&ask.t) {
                continue;
            }
            let limits = Limits {
                more: ask.gpus,
                inside: None,
            };
            let is_free = self.fits(ask, limits);
            let victims = if is_free {
                Vec::new()
            } else {
                self.victims(ask)
            };
            if !is_free && victims.is_empty() {
                continue;
            }
            let freed = victims
                .iter()
                .filter(|other| self.books.queue(**other) == queue);
            let freed: i64 = freed.map(|other| self.gpus(*other)).sum();
            let seen = Choice {
                gpu_type: ask.t,
                borrows: self.books.tree.borrows(queue, ask.t, ask.gpus - freed),
                victims,
            };
            let is_last = if is_free {
                !seen.borrows || rules.when_can_borrow == WhenCanBorrow::Borrow
            } else {
                rules.when_can_preempt == WhenCanPreempt::Preempt
            };
            if best.as_ref().is_none_or(|best| rank(&seen) < rank(best)) {
                best = Some(seen);
            }
            if is_last {
                break;
            }
        }
        best
    }

    fn gpus(&self, job: JobId) -> i64 {
        i64::from(self.view.jobs().gpus(job))
    }

    /// Returns whether the quotas allow a job and the placement rule finds GPUs for it.
    fn fits(&mut self, ask: Ask, limits: Limits) -> bool {
        let (tree, places) = (&self.books.tree, &mut self.books.places);
        if let Some(node) = limits.inside
            && tree.left_with(node, ask.queue, ask.t, limits.more) < 0
        {
            return false;
        }
        if !tree.has_quota(ask.queue, ask.t, limits.more) {
            return false;
        }
        let class = places.class_of(ask.job);
        places.place_on(self.plan, class, ask.job, ask.t).is_some()
    }

    /// Returns the running jobs that the job may preempt on the type, in the order of preemption.
    fn candidates(&self, ask: Ask) -> Vec<Candidate> {
        let (books, now) = (&*self.books, self.view.now());
        let rules = books.queues[ask.queue].rules;
        let mut found = Vec::new();
        let mut add = |queue: usize, may: &dyn Fn(&Candidate) -> bool| {
            let running = books.queues[queue].running[ask.t.index()].iter();
            let there = running.map(|&place| Candidate {
                is_own: queue == ask.queue,
                place,
                queue,
            });
            // Jobs that start at this instant are not preempted.
            found.extend(there.filter(|one| one.place.1 != Reverse(now) && may(one)));
        };
        let is_lower = |one: &Candidate| one.priority() < ask.priority;
        match rules.reclaim {
            Reclaim::Never => {}
            reclaim => {
                for queue in books.tree.borrowers(ask.queue, ask.t) {
                    add(queue, &|one| reclaim == Reclaim::Any || is_lower(one));
                }
            }
        }
        match rules.within {
            Within::Never => {}
            Within::LowerPriority => add(ask.queue, &is_lower),
            Within::LowerOrNewerEqualPriority => add(ask.queue, &|one| {
                is_lower(one) || (one.priority() == ask.priority && one.job() > ask.job)
            }),
        }
        found.sort_unstable();
        found
    }

    /// Returns the jobs to preempt on a type. The list is empty if preemption does not help.
    fn victims(&mut self, ask: Ask) -> Vec<JobId> {
        if !self.books.queues[ask.queue].rules.may_preempt() {
            return Vec::new();
        }
        let found = self.candidates(ask);
        if found.is_empty() {
            return Vec::new();
        }
        let victims = match self.fairness {
            Some(rules) => self.fair(ask, found, rules),
            None => self.classic(ask, &found),
        };
        victims.iter().map(Candidate::job).collect()
    }

    // These methods try out preemptions.

    fn take_away(&mut self, t: GpuTypeId, one: &Candidate) {
        let gpus = self.gpus(one.job());
        self.books.tree.take(one.queue, t, -gpus);
        self.plan.release(one.job());
    }

    fn put_back(&mut self, t: GpuTypeId, one: &Candidate) {
        let gpus = self.gpus(one.job());
        self.books.tree.take(one.queue, t, gpus);
        let run = self.view.run(one.job()).expect("a candidate runs");
        self.plan.take(&run.only().gpus);
    }

    /// Gives the GPUs back to the chosen jobs that need not be preempted, trying the last one first. Returns the other
    /// jobs in the order in which they were chosen.
    fn fewer(&mut self, ask: Ask, limits: Limits, chosen: Vec<Candidate>) -> Vec<Candidate> {
        let mut needed = Vec::new();
        for one in chosen.into_iter().rev() {
            self.put_back(ask.t, &one);
            if !self.fits(ask, limits) {
                self.take_away(ask.t, &one);
                needed.push(one);
            }
        }
        needed.reverse();
        needed
    }

    // These methods preempt without fair sharing.

    fn classic(&mut self, ask: Ask, found: &[Candidate]) -> Vec<Candidate> {
        let Ask { queue, gpus, t, .. } = ask;
        let rules = self.books.queues[queue].rules;
        let tree = &self.books.tree;
        let mut sides: Vec<usize> = tree.path(queue).collect();
        if sides.len() > 1 {
            sides.pop();
        }
        let may_borrow = rules.borrow == Borrow::LowerPriority;
        let is_too_large = |&side: &usize| tree.left_alone(side, queue, t, gpus) < 0;
        if !may_borrow && sides.iter().all(is_too_large) {
            return Vec::new();
        }
        let anywhere = Limits {
            more: gpus,
            inside: None,
        };
        if found.iter().all(|one| one.is_own) {
            return self.greedy(ask, found, anywhere);
        }
        let keep = |may: &dyn Fn(&Candidate) -> bool| -> Vec<Candidate> {
            let kept = found.iter().filter(|one| one.is_own || may(one));
            kept.copied().collect()
        };
        if may_borrow {
            let most = rules.borrow_max.min(ask.priority.saturating_sub(1));
            let chosen = self.greedy(ask, &keep(&|one| one.priority() <= most), anywhere);
            if !chosen.is_empty() {
                return chosen;
            }
        }
        for side in sides {
            if self.books.tree.left(side, t) <= 0 {
                continue;
            }
            let beyond = keep(&|one| !self.books.tree.holds(side, one.queue));
            let limits = Limits {
                inside: Some(side),
                ..anywhere
            };
            let chosen = self.greedy(ask, &beyond, limits);
            if !chosen.is_empty() {
                return chosen;
            }
        }
        self.greedy(ask, &keep(&|_| false), anywhere)
    }

    /// Returns the jobs to preempt: candidates are added in order until the job fits, and then those that are not
    /// needed are removed again. The list is empty if the job would not fit even if all candidates were preempted.
    fn greedy(&mut self, ask: Ask, found: &[Candidate], limits: Limits) -> Vec<Candidate> {
        let mark = self.plan.mark();
        let mut chosen = Vec::new();
        let mut fits = false;
        for one in found {
            // Jobs of a queue that no longer borrows are not preempted.
            if !one.is_own && !self.books.tree.lends(ask.queue, one.queue, ask.t) {
                continue;
            }
            self.take_away(ask.t, one);
            chosen.push(*one);
            fits = self.fits(ask, limits);
            if fits {
                chosen = self.fewer(ask, limits, chosen);
                break;
            }
        }
        for one in &chosen {
            let gpus = self.gpus(one.job());
            self.books.tree.take(one.queue, ask.t, gpus);
        }
        self.plan.rollback(mark);
        if fits { chosen } else { Vec::new() }
    }

    // These methods preempt under fair sharing.

    fn fair(&mut self, ask: Ask, found: Vec<Candidate>, rules: &[Fairness]) -> Vec<Candidate> {
        let mark = self.plan.mark();
        let mut chosen = Vec::new();
        // From here on, the job counts as admitted.
        self.books.tree.take(ask.queue, ask.t, ask.gpus);
        let fits = self.take_fairly(ask, found, rules, &mut chosen);
        if fits {
            let limits = Limits {
                more: 0,
                inside: None,
            };
            chosen = self.fewer(ask, limits, chosen);
        }
        for one in &chosen {
            let gpus = self.gpus(one.job());
            self.books.tree.take(one.queue, ask.t, gpus);
        }
        self.books.tree.take(ask.queue, ask.t, -ask.gpus);
        self.plan.rollback(mark);
        if fits { chosen } else { Vec::new() }
    }

    /// Applies the rules in turn and preempts the jobs that they allow, until the job fits. Returns whether it fits.
    fn take_fairly(
        &mut self,
        ask: Ask,
        found: Vec<Candidate>,
        rules: &[Fairness],
        chosen: &mut Vec<Candidate>,
    ) -> bool {
        let limits = Limits {
            more: 0,
            inside: None,
        };
        let mut rest = found;
        for &rule in rules {
            let mut pools = Pools::new(std::mem::take(&mut rest), self.books.tree.len());
            pools.count(&self.books.tree);
            while let Some(target) = self.target(ask, &mut pools) {
                let Some(at) = self.first_fair(ask, target, &pools.of[&target], rule) else {
                    rest.extend(pools.remove(&self.books.tree, target));
                    continue;
                };
                let one = pools.take(&self.books.tree, target, at);
                self.take_away(ask.t, &one);
                chosen.push(one);
                if self.fits(ask, limits) {
                    return true;
                }
            }
            rest.sort_unstable();
        }
        false
    }

    /// Returns the queue whose candidates are considered next. The search descends from the root, always to the child
    /// with the largest share.
    fn target(&self, ask: Ask, pools: &mut Pools) -> Option<usize> {
        let tree = &self.books.tree;
        let root = tree.root(ask.queue);
        let mut node = root;
        while !tree.is_queue(node) {
            let below = tree.children(node).iter().copied();
            let counts = |&child: &usize| {
                pools.below[child] > 0
                    && (tree.holds(child, ask.queue) || tree.left(child, ask.t) < 0)
            };
            let largest = below
                .filter(counts)
                .max_by_key(|&child| (tree.share(child), Reverse(tree.name_rank(child))));
            if let Some(child) = largest {
                node = child;
                continue;
            }
            // The descent has reached a dead end, because the queues below this node no longer borrow.
            pools.clear(tree, node);
            tree.parent(node)?;
            node = root;
        }
        pools.of.contains_key(&node).then_some(node)
    }

    /// Returns the first candidate of a queue that a rule allows the job to preempt.
    fn first_fair(
        &mut self,
        ask: Ask,
        target: usize,
        there: &[Candidate],
        rule: Fairness,
    ) -> Option<usize> {
        let tree = &mut self.books.tree;
        let (mine, its) = (tree.side(ask.queue, target), tree.side(target, ask.queue));
        if target == ask.queue || tree.left(mine, ask.t) >= 0 {
            return Some(0);
        }
        let share = tree.share(mine);
        match rule {
            Fairness::Initial => (share < tree.share(its)).then_some(0),
            Fairness::Final => there.iter().position(|one| {
                let gpus = i64::from(self.view.jobs().gpus(one.job()));
                tree.take(target, ask.t, -gpus);
                let without = tree.share(its);
                tree.take(target, ask.t, gpus);
                share <= without
            }),
        }
    }
}

/// The candidates of each queue.
struct Pools {
    of: BTreeMap<usize, Vec<Candidate>>,
    /// For each node, the number of queues at or below it that have candidates.
    below: Vec<u32>,
}

impl Pools {
    fn new(found: Vec<Candidate>, nodes: usize) -> Self {
        let mut of: BTreeMap<usize, Vec<Candidate>> = BTreeMap::new();
        for one in found {
            of.entry(one.queue).or_default().push(one);
        }
        Self {
            of,
            below: vec![0; nodes],
        }
    }

    fn count(&mut self, tree: &Tree) {
        for &queue in self.of.keys() {
            for node in tree.path(queue) {
                self.below[node] += 1;
            }
        }
    }

    fn remove(&mut self, tree: &Tree, queue: usize) -> Vec<Candidate> {
        for node in tree.path(queue) {
            self.below[node] -= 1;
        }
        self.of.remove(&queue).unwrap_or_default()
    }

    fn take(&mut self, tree: &Tree, queue: usize, at: usize) -> Candidate {
        let list = self.of.get_mut(&queue).expect("it has candidates");
        let one = list.remove(at);
        if list.is_empty() {
            self.remove(tree, queue);
        }
        one
    }

    fn clear(&mut self, tree: &Tree, node: usize) {
        let below = self.of.keys().copied();
        let below: Vec<usize> = below.filter(|&queue| tree.holds(node, queue)).collect();
        for queue in below {
            self.remove(tree, queue);
        }
    }
}
