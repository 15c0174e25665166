//! `yarn-cs`: capacity queues, each of which serves its jobs in order of arrival. Jobs are never moved.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | share | `Queue::share` | share of the cluster that a queue is entitled to |
//! | used | `Queue::used` | number of GPUs that the jobs of a queue hold |
//!
//! The queue with the smallest ratio of used GPUs to share is served next. The number of GPUs in the cluster is a
//! common factor, so the comparison leaves it out. A head without a place blocks only its own queue. Starting a job
//! costs O(types + gang + log queues). After a release, each blocked head is tried once. The policy never walks over
//! all waiting jobs.

mod queues;

pub(crate) use queues::QueueParams;

use crate::kit::why::{BEHIND, NO_PLACE, at_head};
use crate::kit::{GpuPick, Places};
use crate::place::PlacementParams;
use gangline_engine::{
    Cause, Changes, ClusterView, Counted, Next, Plan, Policy, PolicyError, Reason,
};
use gangline_model::{GpuSet, JobId};
use queues::Queues;

/// The job is first in its queue but has no place, and queues that hold less of their shares are served first.
pub(crate) static QUOTA: Reason = Reason::new(
    "quota",
    "it comes first in its queue; queues that hold less of their share go first",
    "it was at the head of its queue, which held {number}, and queues that hold less of their share go first; {free}, \
     and {rule} accepted none of them",
)
.otherwise(
    "it was at the head of its queue, which held {number}, and queues that hold less of their share go first; {free}",
)
.counts(Counted::Gpus);

/// Capacity queues without preemption.
#[derive(Debug)]
pub(crate) struct Yarn {
    params: QueueParams,
    pick: GpuPick,
    places: Places,
    queues: Queues,
}

impl Yarn {
    /// Creates the policy from the parameters of its queues, a rule for the GPU type, and a rule for the place on this
    /// type.
    pub(crate) fn new(params: QueueParams, pick: GpuPick, placement: PlacementParams) -> Self {
        Self {
            params,
            pick,
            places: Places::new(placement),
            queues: Queues::default(),
        }
    }

    fn find(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>, job: JobId) -> Option<GpuSet> {
        let class = self.places.class_of(job);
        self.pick.place(view, plan, &mut self.places, class, job)
    }

    fn note(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>, changes: &Changes) {
        for &job in changes.finished.iter().chain(&changes.requeued) {
            self.queues.give_back(job, view.jobs().gpus(job));
        }
        for &job in changes.requeued.iter().chain(&changes.arrived) {
            self.queues.join(job);
        }
        let has_room = changes.has_room();
        // Some rules may refuse a gang now and place it when fewer GPUs are free. Under such a rule, the head is tried
        // at every decision.
        let places = &self.places;
        let free = plan.free();
        self.queues.retry(|head| {
            let class = places.class_of(head);
            let types = &places.classes().get(class).types;
            has_room
                || types
                    .iter()
                    .any(|&t| places.is_non_monotone(free, class, t))
        });
    }
}

impl Policy for Yarn {
    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        self.queues = Queues::new(&self.params, view.jobs())?;
        self.places.start(view, plan)
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        self.note(view, plan, changes);
        while let Some((queue, job)) = self.queues.next() {
            let Some(gpus) = self.find(view, plan, job) else {
                self.queues.block(queue);
                continue;
            };
            self.queues.start(queue, view.jobs().gpus(job));
            plan.start(job, gpus);
        }
        Ok(Next::Ask)
    }

    fn reasons(&self) -> Vec<&'static Reason> {
        vec![&BEHIND, &NO_PLACE, &QUOTA]
    }

    fn why(&self, _view: &ClusterView<'_>, job: JobId) -> Option<Cause> {
        let (head, used) = self.queues.before(job)?;
        Some(if head == job && self.queues.are_several() {
            Cause::new(&QUOTA).number(used)
        } else {
            at_head(head, job)
        })
    }
}
