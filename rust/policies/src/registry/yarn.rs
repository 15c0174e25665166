//! Registry entry of capacity queues.

use super::PolicyInfo;
use crate::kit::{GpuPick, QueueBy};
use crate::params::{ParamDefault, ParamKind, ParamReader, ParamSpec, choice, spec};
use crate::place::PlacementParams;
use crate::yarn::{QueueParams, Yarn};

const OWN: &[ParamSpec] = &[
    choice("queue_by", QueueBy::NAMES, "none").doc(
        "label that defines the queues: none (one queue), user or vc; jobs without the label are \
         in the queue `default`",
    ),
    spec("queue_shares", ParamKind::NamedShares, ParamDefault::None).doc(
        "each queue's share of the cluster, at most 1 in total; none = equal shares for all queues \
         of the trace",
    ),
    choice("gpu_pick", GpuPick::NAMES, "most_free").doc(
        "how to choose a gang's GPU type among those with a place: most_free, first_fit (type of \
         the first server with a free GPU), fastest, slowest or random",
    ),
];

pub(super) const POLICIES: &[PolicyInfo] = &[PolicyInfo {
    name: "yarn-cs",
    summary: "capacity queues, each with a share of the cluster and in order of arrival; no preemption",
    family: "queue",
    source: "documentation of Hadoop YARN's capacity scheduler",
    always_shown: &["gpu_pick"],
    own: OWN,
    make: |params, _| Ok(Box::new(make(params))),
    ..PolicyInfo::BASE
}];

fn make(params: &ParamReader) -> Yarn {
    let queues = QueueParams {
        by: params.choice("queue_by", QueueBy::named),
        shares: params.named_numbers("queue_shares"),
    };
    let pick = params.choice("gpu_pick", GpuPick::named);
    Yarn::new(queues, pick, PlacementParams::read(params))
}
