//! Registry entries of shortest-job-first policies with shared GPUs.

use super::parameters::ESTIMATE_ERROR;
use super::world::{PAIRS, SHARING};
use super::{PolicyInfo, Preset};
use crate::params::{ParamDefault, ParamKind, ParamSpec, choice, flag, spec};
use crate::sharing::{
    FreePick, Gather, PartnerTime, QueueKey, Retest, Sharing, SharingParams, SubBatchRule,
};
use gangline_engine::Knowledge;

const GATHER: ParamSpec = choice("gather", Gather::NAMES, "cluster").doc(
    "GPUs that a sharing gang takes: all free GPUs and then shared GPUs on any server (cluster), \
     or GPUs of a single server if one has enough (server_first)",
);
const FREE_PICK: ParamSpec = choice("free_pick", FreePick::NAMES, "best_fit").doc(
    "free GPUs that \
     a gang takes if it shares none: on the server with the fewest free GPUs among those with \
     enough (best_fit), or on servers with the fewest resident jobs (few_residents)",
);
const KEY: ParamSpec = choice("key", QueueKey::NAMES, "time").doc(
    "order of the queue: time (isolated duration) or gpu_time (duration x GPUs), shortest first",
);
const RETEST: ParamSpec = choice("retest", Retest::NAMES, "on_release").doc("when waiting jobs are tried again: on_release (a job has ended or the capacity has changed) or always (at every \
     decision)");
const BLOCK: ParamSpec = flag("block", false).doc(
    "whether the first job that does not fit blocks the jobs behind it (head-of-line blocking)",
);

const FIRST_FIT: &[ParamSpec] = &[GATHER, FREE_PICK, KEY, RETEST, BLOCK, ESTIMATE_ERROR];

const BEST_BENEFIT: &[ParamSpec] = &[
    GATHER,
    FREE_PICK,
    choice("partner_time", PartnerTime::NAMES, "exclusive").doc("remaining time of a running job in the pair rule: exclusive (as if it were alone), current (at its current rate) or shared (at its current rate; the new job slows it down only as far as the new slowdown factor exceeds the current one); with current and shared, every decision tries all waiting jobs"),
    RETEST,
    flag("sub_batches", true).doc("whether a job that shares GPUs may run with a smaller batch per pass"),
    spec("min_sub_batch", ParamKind::Whole(1.0), ParamDefault::Int(1)).unit("samples").doc("minimum batch for each GPU and pass"),
    choice("sub_batch_rule", SubBatchRule::NAMES, "best").doc("which sub-batch to use: best (lowest mean completion time) or largest (the largest one with which sharing pays)"),
    KEY,
    flag("restore_sub_batch", true).doc("whether a job gets its full batch back once its last co-runner has left"),
    BLOCK,
    spec("max_probe", ParamKind::Whole(1.0), ParamDefault::Int(256)).unit("residents").doc("with gather = server_first: maximum number of running jobs that the search for a single server examines"),
    flag("compare_types", false).doc("whether a job takes the GPU type on which it adds the least time (for itself and its co-runners) instead of the fastest type with a place"),
    flag("compare_spread", false).doc("whether a job may share GPUs on one server instead of \
         taking free GPUs on several, if that adds less time"),
    ESTIMATE_ERROR,
];

const FIRST_FIT_PRESETS: &[Preset] = &[
    Preset {
        name: "sjf-ffs-code",
        params: &[("free_pick", ParamDefault::Str("few_residents"))],
    },
    Preset {
        name: "sjf-ffs-consolidated",
        params: &[("gather", ParamDefault::Str("server_first"))],
    },
];

const BEST_BENEFIT_PRESETS: &[Preset] = &[
    Preset {
        name: "sjf-bsbf-code",
        params: &[
            ("partner_time", ParamDefault::Str("current")),
            ("sub_batches", ParamDefault::Bool(false)),
            ("free_pick", ParamDefault::Str("few_residents")),
        ],
    },
    Preset {
        name: "sjf-bsbf-consolidated",
        params: &[("gather", ParamDefault::Str("server_first"))],
    },
];

const SOURCE: &str = "SJF-BSBF (arXiv 2407.13088), our interpretation";

pub(super) const POLICIES: &[PolicyInfo] = &[
    PolicyInfo {
        name: "sjf-ffs",
        summary: "shortest job first; two jobs share a GPU wherever there is room (first fit \
                  sharing)",
        family: "sharing",
        source: SOURCE,
        knowledge: Knowledge::Remaining,
        reads_durations: true,
        page: Some("sjf-bsbf"),
        placement: None,
        premises: &[SHARING],
        presets: FIRST_FIT_PRESETS,
        own: FIRST_FIT,
        make: |params, _| Ok(Box::new(Sharing::new(SharingParams::first_fit(params)))),
        ..PolicyInfo::BASE
    },
    PolicyInfo {
        name: "sjf-bsbf",
        summary: "shortest job first; two jobs share a GPU where that lowers their mean \
                  completion time",
        family: "sharing",
        source: SOURCE,
        knowledge: Knowledge::Remaining,
        reads_durations: true,
        placement: None,
        premises: &[SHARING, PAIRS],
        presets: BEST_BENEFIT_PRESETS,
        own: BEST_BENEFIT,
        make: |params, _| Ok(Box::new(Sharing::new(SharingParams::best_benefit(params)))),
        ..PolicyInfo::BASE
    },
];
