//! Parameters of `sjf-ffs` and `sjf-bsbf`.

use crate::kit::Seen;
use crate::params::ParamReader;
use gangline_model::words;

words! {
    /// Where the shared GPUs of a gang come from.
    pub enum Gather {
        /// From anywhere, partner by partner.
        Cluster = "cluster",
        /// From one server, if one has enough.
        ServerFirst = "server_first",
    }
}

words! {
    /// Which free GPUs a gang takes.
    pub enum FreePick {
        /// Those of the server with the fewest that are enough.
        BestFit = "best_fit",
        /// Those of servers with the fewest resident jobs.
        FewResidents = "few_residents",
    }
}

words! {
    /// The remaining time of a resident in the pair rule.
    pub enum PartnerTime {
        /// Alone.
        Exclusive = "exclusive",
        /// At its present rate.
        Current = "current",
        /// At its present rate, and a newcomer slows it down only by what exceeds its present slowdown.
        Shared = "shared",
    }
}

words! {
    /// When waiting jobs are tried again.
    pub enum Retest {
        /// When a job ends or the capacity changes.
        OnRelease = "on_release",
        /// At every decision.
        Always = "always",
    }
}

words! {
    /// Which sub-batch a newcomer takes.
    pub enum SubBatchRule {
        /// The one with the least mean completion time.
        Best = "best",
        /// The largest that works.
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

/// What only SJF-BSBF asks.
#[derive(Clone, Copy, Debug)]
pub struct BenefitParams {
    /// Remaining time of residents.
    pub partner_time: PartnerTime,
    /// Smallest sub-batch tried; `None` = full batch alone.
    pub min_sub_batch: Option<u32>,
    /// Which sub-batch is taken.
    pub sub_batch_rule: SubBatchRule,
    /// Whether a job gets its full batch back when its last partner has left.
    pub restore_sub_batch: bool,
    /// Most residents that are looked at for one server that holds the gang.
    pub max_probe: usize,
    /// Whether the places on all types are compared.
    pub compare_types: bool,
    /// Whether free GPUs on several servers are compared with one server that is shared.
    pub compare_spread: bool,
}

/// Parameters of [`super::Sharing`].
#[derive(Clone, Copy, Debug)]
pub struct SharingParams {
    /// Where shared GPUs come from.
    pub gather: Gather,
    /// Which free GPUs a gang takes.
    pub free_pick: FreePick,
    /// Order of the queue.
    pub key: QueueKey,
    /// Whether every decision tries all waiting jobs.
    pub retests_all: bool,
    /// Whether a job that does not fit ends the decision.
    pub block: bool,
    /// Times as the policy sees them.
    pub seen: Seen,
    /// The pair rule; `None` shares wherever there is room (SJF-FFS).
    pub benefit: Option<BenefitParams>,
}

impl SharingParams {
    /// The parameters of SJF-FFS.
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

    /// The parameters of SJF-BSBF.
    pub fn best_benefit(params: &ParamReader) -> Self {
        let partner_time = params.choice("partner_time", PartnerTime::named);
        let base = Self::first_fit(params);
        let whole = |name| params.number(name).min(f64::from(u32::MAX)) as u32;
        Self {
            // present rates change while nothing is released
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
