//! `fifo-skip`, `sjf` and `ssf`: a sorted queue in which jobs that do not fit are skipped. Under `sjf-strict`, a head
//! that does not fit blocks all jobs behind it; this policy therefore keeps all jobs in a single queue.
//!
//! Within a decision, free capacity only decreases. If the first job of a class does not fit, the rest of the class
//! need not be tried in that decision. A small heap that holds the first job of each class therefore leads to the same
//! starts as a walk over the whole queue. An arrival is tried only if no job of its class is already waiting. The cost
//! is O((starts + classes) log n).

use crate::kit::Seen;
use crate::kit::why::{BEHIND, NO_PLACE, at_head};
use crate::kit::{ByClass, Places};
use crate::place::PlacementParams;
use gangline_engine::{
    Cause, Changes, ClusterView, Knowledge, Next, Plan, Policy, PolicyError, PolicyTraits, Reason,
};
use gangline_model::JobId;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Sort key of the queue; ties are broken by arrival, then by job index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SkipOrder {
    /// Arrival, earliest first.
    Arrival,
    /// Total isolated duration, shortest first.
    Duration,
    /// Total isolated duration x gang size, smallest first.
    Area,
}

/// A sorted queue in which jobs that do not fit are skipped.
#[derive(Debug)]
pub(crate) struct Skip {
    order: SkipOrder,
    /// Whether the head blocks the jobs behind it.
    is_strict: bool,
    seen: Seen,
    places: Places,
    /// Waiting jobs, sorted by duration in ns (0 if the queue is in order of arrival), then by index.
    queues: ByClass<(i64, JobId)>,
    /// The first job of each class, in the order of the queue.
    heads: BinaryHeap<Reverse<(i128, JobId)>>,
    /// Whether each decision has to walk over the whole queue; see [`Places::has_non_monotone`].
    walks: bool,
    /// Whether `walks` is up to date, that is, was updated after the last failure or repair.
    is_checked: bool,
}

impl Skip {
    /// Creates a queue policy with a sort key and a placement rule; `is_strict` means that a head that does not fit
    /// blocks the queue.
    pub(crate) fn new(
        order: SkipOrder,
        is_strict: bool,
        placement: PlacementParams,
        seen: Seen,
    ) -> Self {
        Self {
            order,
            is_strict,
            seen,
            places: Places::new(placement),
            queues: ByClass::new(0),
            heads: BinaryHeap::new(),
            walks: false,
            is_checked: false,
        }
    }

    fn queue_of(&self, job: JobId) -> usize {
        if self.is_strict {
            0
        } else {
            self.places.class_of(job)
        }
    }

    /// Returns the sort key of a job within its class.
    fn key(&self, view: &ClusterView<'_>, job: JobId) -> Result<(i64, JobId), PolicyError> {
        Ok(match self.order {
            SkipOrder::Arrival => (0, job),
            SkipOrder::Duration | SkipOrder::Area => (self.seen.duration(view, job)?.0, job),
        })
    }

    /// Converts a job's key within its class to its key across all classes.
    fn rank(&self, (length, job): (i64, JobId)) -> (i128, JobId) {
        let gpus = match self.order {
            SkipOrder::Arrival | SkipOrder::Duration => 1,
            SkipOrder::Area => self.places.class(job).gpus,
        };
        (i128::from(length) * i128::from(gpus), job)
    }

    /// Adds the first job of a queue to the jobs to be tried.
    fn try_queue(&mut self, plan: &mut Plan<'_>, queue: usize) {
        if let Some(first) = self.queues.first(queue)
            && self.places.can(plan.free(), self.places.class_of(first.1))
        {
            self.heads.push(Reverse(self.rank(first)));
        }
    }

    /// Walks over the whole queue in order.
    fn walk(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) -> Result<(), PolicyError> {
        let mut order = Vec::with_capacity(view.waiting_count());
        for job in view.waiting() {
            order.push(self.rank(self.key(view, job)?));
        }
        order.sort_unstable();
        for (_, job) in order {
            self.places.start_job(plan, self.places.class_of(job), job);
        }
        Ok(())
    }
}

impl Policy for Skip {
    fn traits(&self) -> PolicyTraits {
        let knowledge = match self.order {
            SkipOrder::Arrival => Knowledge::Online,
            SkipOrder::Duration | SkipOrder::Area => Knowledge::Remaining,
        };
        PolicyTraits {
            knowledge,
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        let unplaceable = self.places.start(view, plan)?;
        self.queues = ByClass::new(self.places.classes().len());
        Ok(unplaceable)
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        // A new job that comes before the blocking head might fit although the head does not.
        let has_room = self.is_strict || changes.has_room();
        self.is_checked &= !changes.has_servers();
        if !self.is_strict && !std::mem::replace(&mut self.is_checked, true) {
            self.walks |= self.places.has_non_monotone(plan.free());
        }
        if self.walks {
            self.walk(view, plan)?;
            return Ok(Next::Ask);
        }
        if !has_room && let [job] = changes.arrived[..] {
            // This is the usual case. Jobs of the same class that are already waiting still do not fit.
            let class = self.places.class_of(job);
            if self.queues.first(class).is_some() || !self.places.start_job(plan, class, job) {
                self.queues.push(class, self.key(view, job)?);
            }
            return Ok(Next::Ask);
        }
        let mut queues: SmallVec<[usize; 16]> = SmallVec::new();
        for &job in changes.requeued.iter().chain(&changes.arrived) {
            let queue = self.queue_of(job);
            if !has_room && self.queues.first(queue).is_none() {
                queues.push(queue);
            }
            self.queues.push(queue, self.key(view, job)?);
        }
        if has_room {
            queues.extend(self.queues.busy());
        }
        for queue in queues {
            self.try_queue(plan, queue);
        }
        while let Some(Reverse((_, job))) = self.heads.pop() {
            if self.places.start_job(plan, self.places.class_of(job), job) {
                let queue = self.queue_of(job);
                self.queues.pop(queue);
                self.try_queue(plan, queue);
            }
        }
        Ok(Next::Ask)
    }

    fn reasons(&self) -> Vec<&'static Reason> {
        if self.is_strict {
            vec![&BEHIND, &NO_PLACE]
        } else {
            vec![&NO_PLACE]
        }
    }

    fn why(&self, _view: &ClusterView<'_>, job: JobId) -> Option<Cause> {
        let head = if self.is_strict {
            self.queues.first(0)?.1
        } else {
            job
        };
        Some(at_head(head, job))
    }
}
