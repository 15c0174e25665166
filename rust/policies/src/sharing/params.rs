//! Parameters of `sjf-ffs` and `sjf-bsbf`.

use crate::kit::Seen;
use crate::params::ParamReader;
use gangline_model::words;

words! {
    /// Source of the shared GPUs of a gang.
    pub enum Gather {
        /// From any servers, partner by partner.
        Cluster = "cluster",
        /// From a single server, if one has enough GPUs.
        ServerFirst = "server_first",
    }
}

words! {
    /// Rule that chooses the free GPUs of a gang.
    pub enum FreePick {
        /// GPUs of the server with the fewest free GPUs among those with enough.
        BestFit = "best_fit",
        /// GPUs on servers with the fewest resident jobs.
        FewResidents = "few_residents",
    }
}

words! {
    /// Definition of a resident's remaining time in the pair rule.
    pub enum PartnerTime {
        /// The time that the resident would need alone.
        Exclusive = "exclusive",
        /// The time that the resident needs at its current rate.
        Current = "current",
        /// The time that the resident needs at its current rate. If a new job joins, this time grows only by the ratio
        /// of the resident's new slowdown factor to its current one.
        Shared = "shared",
    }
}

words! {
    /// The decisions at which waiting jobs are tried again.
    pub enum Retest {
        /// Decisions at which a job ends or the capacity changes.
        OnRelease = "on_release",
        /// All decisions.
        Always = "always",
    }
}

words! {
    /// Rule that chooses the sub-batch of a new job.
    pub enum SubBatchRule {
        /// The sub-batch with the lowest mean completion time.
        Best = "best",
        /// The largest sub-batch with which sharing pays off.
        Largest = "largest",
    }
}

words! {
    /// Order of the queue.
    pub enum QueueKey {
        /// Isolated duration.
        Time = "time",
        /// Isolated duration x GPUs.
        GpuTime = "gpu_time",
    }
}

/// Parameters that only SJF-BSBF has.
#[derive(Clone, Copy, Debug)]
pub struct BenefitParams {
    /// Definition of a resident's remaining time in the pair rule.
    pub partner_time: PartnerTime,
    /// Smallest sub-batch that is tried; `None` means that only the full batch is tried.
    pub min_sub_batch: Option<u32>,
    /// Rule that chooses the sub-batch.
    pub sub_batch_rule: SubBatchRule,
    /// Whether a job gets its full batch back after its last co-runner has left.
    pub restore_sub_batch: bool,
    /// Maximum number of residents that are examined in the search for a single server for the gang.
    pub max_probe: usize,
    /// Whether a job gets the type on which it adds the least time for itself and its partners, instead of the fastest
    /// type that has a place.
    pub compare_types: bool,
    /// Whether a job may share GPUs on one server instead of taking free GPUs on several, if that adds less time.
    pub compare_spread: bool,
}

/// Parameters of [`super::Sharing`].
#[derive(Clone, Copy, Debug)]
pub struct SharingParams {
    /// Source of the shared GPUs of a gang.
    pub gather: Gather,
    /// Rule that chooses the free GPUs of a gang.
    pub free_pick: FreePick,
    /// Order of the queue.
    pub key: QueueKey,
    /// Whether every decision tries all waiting jobs.
    pub retests_all: bool,
    /// Whether a job that does not fit ends the decision.
    pub block: bool,
    /// Durations as the policy sees them.
    pub seen: Seen,
    /// The pair rule; `None` means that jobs share wherever there is room (SJF-FFS).
    pub benefit: Option<BenefitParams>,
}

impl SharingParams {
    /// Creates the parameters of SJF-FFS.
    pub fn first_fit(params: &ParamReader) -> Self {
        let block = params.flag("block");
        Self {
            gather: params.choice("gather", Gather::named),
            free_pick: params.choice("free_pick", FreePick::named),
            key: params.choice("key", QueueKey::named),
            retests_all: block || params.choice("retest", Retest::named) == Retest::Always,
            block,
            seen: Seen::new(params.number("estimate_error")),
            benefit: None,
        }
    }

    /// Creates the parameters of SJF-BSBF.
    pub fn best_benefit(params: &ParamReader) -> Self {
        let partner_time = params.choice("partner_time", PartnerTime::named);
        let base = Self::first_fit(params);
        let whole = |name| params.number(name).min(f64::from(u32::MAX)) as u32;
        Self {
            // Current rates change even if nothing is released.
            retests_all: base.retests_all || partner_time != PartnerTime::Exclusive,
            benefit: Some(BenefitParams {
                partner_time,
                min_sub_batch: params.flag("sub_batches").then(|| whole("min_sub_batch")),
                sub_batch_rule: params.choice("sub_batch_rule", SubBatchRule::named),
                restore_sub_batch: params.flag("restore_sub_batch"),
                max_probe: whole("max_probe") as usize,
                compare_types: params.flag("compare_types"),
                compare_spread: params.flag("compare_spread"),
            }),
            ..base
        }
    }
}
