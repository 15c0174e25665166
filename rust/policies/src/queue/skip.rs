//! The pass without preemption: start in key order whoever fits, skip the rest.
//!
//! Free capacity only shrinks inside a pass, so a class whose head does not fit is done for it: the heads of
//! the classes in one small heap give the same starts as a walk of the whole queue. An arrival wakes its
//! own class only, and only if nobody of it waits already. Cost O((starts + classes) log n).

use super::{ClassQueues, Key, Measure, Rank};
use crate::class::Places;
use gangline_engine::{Changes, ClusterView, Plan};
use gangline_model::JobId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Queues by class with the pass over them.
#[derive(Debug)]
pub struct SkipPass {
    measure: Measure,
    queues: ClassQueues,
    heads: BinaryHeap<Reverse<(Rank, usize)>>,
    /// Walk the whole queue at every decision: the test oracle, and for runs with a class that may fit in less room
    /// where it did not fit in more ([`Places::has_fickle`]).
    is_plain: bool,
    /// Whether [`Places::has_fickle`] was asked since the last failure or repair.
    is_checked: bool,
}

impl SkipPass {
    /// A pass in the order of a measure.
    pub fn new(measure: Measure, is_plain: bool) -> Self {
        Self {
            measure,
            queues: ClassQueues::default(),
            heads: BinaryHeap::new(),
            is_plain,
            is_checked: false,
        }
    }

    /// Sizes the queues.
    pub fn start(&mut self, classes: usize, jobs: usize) {
        self.queues = ClassQueues::new(classes, jobs, false);
    }

    /// Takes in what happened, then starts whoever fits. `main` gives the measure of a job.
    ///
    /// # Errors
    /// Those of `main`.
    pub fn decide<E>(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
        places: &mut Places,
        mut main: impl FnMut(JobId) -> Result<i64, E>,
    ) -> Result<(), E> {
        let has_grown = changes.has_room();
        self.is_checked &= !changes.has_servers();
        if !std::mem::replace(&mut self.is_checked, true) {
            self.is_plain |= places.has_fickle(plan.free());
        }
        if !has_grown && changes.arrived.len() == 1 && !self.is_plain {
            let job = changes.arrived[0];
            let key = Key {
                lead: 0,
                main: main(job)?,
                job: job.0,
            };
            self.arrive_alone(plan, places, key);
            return Ok(());
        }
        for &job in changes.requeued.iter().chain(&changes.arrived) {
            let class = places.classes().of(job);
            let is_first = self.queues.head(class).is_none();
            self.queues.push(
                class,
                Key {
                    lead: 0,
                    main: main(job)?,
                    job: job.0,
                },
            );
            if is_first && !has_grown {
                self.heads.push(Reverse((Rank::LEAST, class)));
            }
        }
        if self.queues.is_empty() {
            self.heads.clear();
            return Ok(());
        }
        if self.is_plain {
            self.heads.clear();
            self.walk(view, plan, places);
            return Ok(());
        }
        self.collect_heads(plan, places, has_grown);
        self.start_heads(plan, places);
        Ok(())
    }

    /// One job arrived and there is no new room: whoever waited still does not fit.
    #[inline]
    fn arrive_alone(&mut self, plan: &mut Plan<'_>, places: &mut Places, key: Key) {
        let class = places.classes().of(key.job());
        if self.queues.head(class).is_none() && places.start_job(plan, class, key.job()) {
            return;
        }
        self.queues.push(class, key);
    }

    /// Fills `heads` with the heads of all classes, or of those that had no waiting job before.
    fn collect_heads(&mut self, plan: &mut Plan<'_>, places: &mut Places, all: bool) {
        let mut woken = std::mem::take(&mut self.heads).into_vec();
        if all {
            woken.clear();
            let mut from = 0;
            while let Some(class) = self.queues.next_class(from) {
                woken.push(Reverse((Rank::LEAST, class)));
                from = class + 1;
            }
        }
        woken.retain_mut(|Reverse((rank, class))| {
            if !places.can(plan.free(), *class) {
                return false;
            }
            let Some(head) = self.queues.head(*class) else {
                return false;
            };
            *rank = self
                .measure
                .waiting(head, places.classes().get(*class).gpus);
            true
        });
        self.heads = BinaryHeap::from(woken);
    }

    fn start_heads(&mut self, plan: &mut Plan<'_>, places: &mut Places) {
        while let Some(Reverse((rank, class))) = self.heads.pop() {
            if !places.start_job(plan, class, JobId(rank.job)) {
                continue;
            }
            self.queues.pop(class);
            if let Some(head) = self.queues.head(class) {
                let rank = self.measure.waiting(head, places.classes().get(class).gpus);
                self.heads.push(Reverse((rank, class)));
            }
        }
    }

    /// The whole queue in key order; the test oracle of the pass by classes.
    fn walk(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>, places: &mut Places) {
        let rank = |job: JobId| {
            self.measure
                .waiting(self.queues.key(job), view.jobs().gpus(job))
        };
        let mut order: Vec<Rank> = view.waiting().map(rank).collect();
        order.sort_unstable();
        for rank in order {
            let job = JobId(rank.job);
            if places.start_job(plan, places.classes().of(job), job) {
                self.queues.set_running(self.queues.key(job));
            }
        }
    }
}
