//! Reasons for waiting that several policies use.

use gangline_engine::{Cause, ClusterView, Counted, Reason, Run};
use gangline_model::JobId;
use std::cmp::Reverse;

/// Another waiting job comes first and has no place, and no job behind it may start.
pub(crate) static BEHIND: Reason = Reason::new(
    "behind",
    "another waiting job comes first and has no place, so no job behind it starts",
    "{others} {were} at the head of its queue{in_turn} and did not fit{at_round}; {policy} does not skip the head of a \
     queue{meanwhile}",
);

/// When the policy tried the job, the placement rule accepted no place.
pub(crate) static NO_PLACE: Reason = Reason::new(
    "no place",
    "the policy tried it, but the placement rule accepted no place",
    "{free}, and {rule} accepted none of them",
)
.otherwise("{free}")
.ends_when_free();

/// The last decision stopped the job, and another job got some of its GPUs.
pub(crate) static STOPPED: Reason = Reason::new(
    "stopped",
    "the last decision stopped it, and it can get other GPUs only at the next decision",
    "{free}, but {policy} had just stopped it, and looks for other GPUs for it only at the next decision",
)
.otherwise("{free}")
.ends_when_free();

/// Running jobs that the policy ranks before this job leave too few GPUs.
pub(crate) static OUTRANKED: Reason = Reason::new(
    "outranked",
    "running jobs that rank before it leave too few GPUs; the largest of them is named",
    "jobs that {policy} ranks before it held the GPUs, such as {some}",
)
.ends_when_free();

/// The policy starts jobs only at certain instants, and the next one is not before the stated time.
pub(crate) static NEXT_DECISION: Reason = Reason::new(
    "next decision",
    "the policy starts jobs only when it makes a new allocation",
    "{policy} starts jobs only at certain times, here not before {until}",
);

/// The allocation gives the job no time on any GPU type.
pub(crate) static NO_SHARE: Reason = Reason::new(
    "no share",
    "the allocation gives it no time on any GPU type",
    "the allocation gave it no time on any GPU type{meanwhile}",
);

/// A search for the best allocation of all jobs gave the job no GPUs.
pub(crate) static SEARCH: Reason = Reason::new(
    "search",
    "the policy compared whole allocations, and the best one that it found gives the GPUs to other jobs",
    "{policy} searched for the best allocation of all jobs and gave the GPUs to other jobs, such as {some}",
)
.otherwise(
    "{policy} searched for the best allocation of all jobs and left enough GPUs free: it found no better one that \
     includes this job",
)
.ends_when_free();

/// Enough GPUs are free, but the utility of the job is below their price.
pub(crate) static PRICE: Reason = Reason::new(
    "price",
    "it would fit, but its utility is only the stated percentage of the price of the GPUs",
    "enough GPUs were free, but its utility was only {number} of their price",
)
.otherwise("enough GPUs were free, but its utility was below their price")
.counts(Counted::Percent);

/// Returns why a job waits in a queue whose first job, `head`, has no place.
pub(crate) fn at_head(head: JobId, job: JobId) -> Cause {
    if head == job {
        Cause::new(&NO_PLACE)
    } else {
        Cause::of(&BEHIND, head)
    }
}

/// Returns the number of GPUs that all parts of a running job hold, or 0 if `job` can use none of their types.
fn gpus_for(view: &ClusterView<'_>, run: &Run, job: JobId) -> u32 {
    let usable = view.usable_types(job);
    let servers = run.parts().iter().flat_map(|part| part.gpus.by_server());
    let is_of_use = |server| usable >> view.cluster().server(server).gpu_type.index() & 1 == 1;
    let mut gpus = 0;
    let mut any = false;
    for one in servers {
        gpus += one.mask.count_ones();
        any |= is_of_use(one.server);
    }
    if any { gpus } else { 0 }
}

/// Among the running jobs that satisfy `is_meant` and hold a GPU of a type that `job` can use, returns the one with the
/// most GPUs. Ties go to the job that arrived first.
pub(crate) fn largest(
    view: &ClusterView<'_>,
    job: JobId,
    is_meant: impl Fn(&Run) -> bool,
) -> Option<JobId> {
    let runs = view.running().filter_map(|other| view.run(other));
    let held = runs
        .filter(|run| is_meant(run))
        .map(|run| (gpus_for(view, run, job), Reverse(run.job)));
    held.filter(|one| one.0 > 0)
        .max()
        .map(|(_, Reverse(other))| other)
}

/// Returns whether enough GPUs for a gang are free on one of its usable types or, if `mixes_types`, on all of them
/// together.
pub(crate) fn has_enough(view: &ClusterView<'_>, job: JobId, gpus: u32, mixes_types: bool) -> bool {
    let mut free = view.types_of(job).map(|id| view.gpus_free(id));
    if mixes_types {
        free.sum::<u32>() >= gpus
    } else {
        free.any(|free| free >= gpus)
    }
}
