//! `fifo-skip`, `sjf` and `ssf`: a queue in some order, where jobs that do not fit are skipped.
//!
//! Free capacity only shrinks inside a decision, so a class whose first job does not fit is done for it: the first
//! jobs of the classes in one small heap give the same starts as a walk of the whole queue. An arrival is tried only
//! if no job of its class waits already. Cost O((starts + classes) log n).

use crate::kit::Seen;
use crate::kit::why::NO_PLACE;
use crate::kit::{ByClass, Places};
use crate::place::PlacementParams;
use gangline_engine::{
    Cause, Changes, ClusterView, Knowledge, Next, Plan, Policy, PolicyError, PolicyTraits, Reason,
};
use gangline_model::JobId;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What the queue is ordered by; then arrival, job index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipOrder {
    /// Arrival.
    Arrival,
    /// Total isolated duration.
    Duration,
    /// Total isolated duration x gang size.
    Area,
}

/// A queue with skipping.
#[derive(Debug)]
pub struct Skip {
    order: SkipOrder,
    seen: Seen,
    places: Places,
    /// Waiting jobs by duration, ns (0 in order of arrival), then index.
    queues: ByClass<(i64, JobId)>,
    /// First jobs of classes, in the order of the queue.
    heads: BinaryHeap<Reverse<(i128, JobId, usize)>>,
    /// Whether each decision walks the whole queue: see [`Places::has_non_monotone`].
    walks: bool,
    /// Whether that was asked since the last failure or repair.
    is_checked: bool,
}

impl Skip {
    /// A queue in an order, with a placement rule.
    pub fn new(order: SkipOrder, placement: PlacementParams, seen: Seen) -> Self {
        Self {
            order,
            seen,
            places: Places::new(placement),
            queues: ByClass::new(0),
            heads: BinaryHeap::new(),
            walks: false,
            is_checked: false,
        }
    }

    /// The key of a job inside its class.
    fn key(&self, view: &ClusterView<'_>, job: JobId) -> Result<(i64, JobId), PolicyError> {
        Ok(match self.order {
            SkipOrder::Arrival => (0, job),
            SkipOrder::Duration | SkipOrder::Area => (self.seen.duration(view, job)?.0, job),
        })
    }

    /// The key of a job of a class among all jobs.
    fn rank(&self, class: usize, (length, job): (i64, JobId)) -> (i128, JobId, usize) {
        let gpus = match self.order {
            SkipOrder::Arrival | SkipOrder::Duration => 1,
            SkipOrder::Area => self.places.classes().get(class).gpus,
        };
        (i128::from(length) * i128::from(gpus), job, class)
    }

    /// Puts the first job of a class among those to try.
    fn try_class(&mut self, plan: &mut Plan<'_>, class: usize) {
        if let Some(first) = self.queues.first(class)
            && self.places.can(plan.free(), class)
        {
            self.heads.push(Reverse(self.rank(class, first)));
        }
    }

    /// The whole queue in order.
    fn walk(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) -> Result<(), PolicyError> {
        let mut order = Vec::with_capacity(view.waiting_count());
        for job in view.waiting() {
            let class = self.places.class_of(job);
            order.push(self.rank(class, self.key(view, job)?));
        }
        order.sort_unstable();
        for (_, job, class) in order {
            self.places.start_job(plan, class, job);
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
        let has_room = changes.has_room();
        self.is_checked &= !changes.has_servers();
        if !std::mem::replace(&mut self.is_checked, true) {
            self.walks |= self.places.has_non_monotone(plan.free());
        }
        if self.walks {
            self.walk(view, plan)?;
            return Ok(Next::Ask);
        }
        if !has_room && let [job] = changes.arrived[..] {
            // the usual case; jobs of its class that wait already still do not fit
            let class = self.places.class_of(job);
            if self.queues.first(class).is_some() || !self.places.start_job(plan, class, job) {
                self.queues.push(class, self.key(view, job)?);
            }
            return Ok(Next::Ask);
        }
        let mut classes: SmallVec<[usize; 16]> = SmallVec::new();
        for &job in changes.requeued.iter().chain(&changes.arrived) {
            let class = self.places.class_of(job);
            if !has_room && self.queues.first(class).is_none() {
                classes.push(class);
            }
            self.queues.push(class, self.key(view, job)?);
        }
        if has_room {
            classes.extend(self.queues.busy());
        }
        for class in classes {
            self.try_class(plan, class);
        }
        while let Some(Reverse((_, job, class))) = self.heads.pop() {
            if self.places.start_job(plan, class, job) {
                self.queues.pop(class);
                self.try_class(plan, class);
            }
        }
        Ok(Next::Ask)
    }

    fn reasons(&self) -> Vec<&'static Reason> {
        vec![&NO_PLACE]
    }

    fn why(&self, _view: &ClusterView<'_>, _job: JobId) -> Option<Cause> {
        Some(Cause::new(&NO_PLACE))
    }
}
