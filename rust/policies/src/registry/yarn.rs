//! Capacity queues.

use super::parameters::spec;
use super::{PolicyInfo, placement};
use crate::params::{ParamDefault, ParamKind, ParamReader, ParamSpec};
use crate::yarn::{GpuPick, QueueBy, QueueParams, Yarn};
use gangline_engine::{Knowledge, Policy, PolicyError};

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
    knowledge: Knowledge::Online,
    reads_durations: false,
    is_hidden: false,
    placement: "consolidate",
    own: OWN,
    make,
}];

fn make(params: &ParamReader, _plain: bool) -> Result<Box<dyn Policy>, PolicyError> {
    let queues = QueueParams {
        by: QueueBy::named(params.word("queue_by")).expect("one of the choices"),
        shares: params.table("queue_shares").cloned(),
    };
    let pick = GpuPick::named(params.word("gpu_pick")).expect("one of the choices");
    Ok(Box::new(Yarn::new(queues, pick, placement(params)?)))
}
