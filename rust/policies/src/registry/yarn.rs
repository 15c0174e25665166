//! Capacity queues.

use super::PolicyInfo;
use super::parameters::spec;
use crate::params::{ParamDefault, ParamKind, ParamReader, ParamSpec};
use crate::place::PlacementParams;
use crate::yarn::{GpuPick, QueueBy, QueueParams, Yarn};

const OWN: &[ParamSpec] = &[
    spec(
        "queue_by",
        ParamKind::Choice(QueueBy::NAMES),
        ParamDefault::Str("none"),
        "",
        "what makes a queue: nothing, the user or the virtual cluster",
    ),
    spec(
        "queue_shares",
        ParamKind::NamedShares,
        ParamDefault::None,
        "",
        "share of the cluster by queue, {name = share}; none = equal shares",
    ),
    spec(
        "gpu_pick",
        ParamKind::Choice(GpuPick::NAMES),
        ParamDefault::Str("most_free"),
        "",
        "which GPU type, of those with a place",
    ),
];

pub(super) const POLICIES: &[PolicyInfo] = &[PolicyInfo {
    name: "yarn-cs",
    summary: "queues with shares of the cluster, order of arrival in each; nothing moves",
    family: "queue",
    source: "Hadoop YARN's capacity scheduler, by its documentation",
    own: OWN,
    make: |params, _| Ok(Box::new(make(params))),
    ..PolicyInfo::BASE
}];

fn make(params: &ParamReader) -> Yarn {
    let queues = QueueParams {
        by: params.choice("queue_by", QueueBy::named),
        shares: params.table("queue_shares").cloned(),
    };
    let pick = params.choice("gpu_pick", GpuPick::named);
    Yarn::new(queues, pick, PlacementParams::read(params))
}
