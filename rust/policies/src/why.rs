//! What policies have in common when they say why a job waits.

use gangline_engine::{ClusterView, Run};
use gangline_model::JobId;
use std::cmp::Reverse;

/// GPUs of all parts of a job, if some of them are of a type that another job can use; else none.
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

/// The running job with most GPUs of those that hold some which a waiting job can use; of equal ones the oldest.
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

/// Whether as many GPUs as a gang needs are free, of one type that it can use, or of all together.
pub(crate) fn has_enough(view: &ClusterView<'_>, job: JobId, gpus: u32, mixes_types: bool) -> bool {
    let mut free = view.types_of(job).map(|id| view.gpus_free(id));
    if mixes_types {
        free.sum::<u32>() >= gpus
    } else {
        free.any(|free| free >= gpus)
    }
}
