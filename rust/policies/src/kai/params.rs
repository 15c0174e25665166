//! Parameters of `kai`.

use crate::kueue::QueueLabel;
use crate::params::ParamReader;
use crate::place::PlacementParams;
use gangline_engine::PolicyError;
use gangline_model::{SimSpan, words};

words! {
    /// The queue that determines how long a job is protected from reclaim.
    pub enum Resolve {
        /// Among the queues above the job, the one just below the lowest common ancestor with the reclaiming queue.
        Lca = "lca",
        /// The queue of the job.
        Queue = "queue",
    }
}

/// A number of GPUs that is larger than any cluster.
pub(super) const NO_LIMIT: i64 = i64::MAX / 4;
/// Upper bound of GPU counts, weights and `k_value`. The product of two such numbers fits into 64 bits.
const MOST: f64 = 16_777_216.0;

/// A row of the parameter `queues`.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub name: String,
    pub parent: Option<String>,
    /// Guaranteed GPUs; [`NO_LIMIT`] means unlimited.
    pub quota: i64,
    pub limit: i64,
    pub weight: f64,
    pub priority: i64,
    pub preempt_min_run: Option<SimSpan>,
    pub reclaim_min_run: Option<SimSpan>,
    /// Where the values come from; error messages name this source.
    pub reader: Option<ParamReader>,
}

impl Row {
    /// Returns a queue with the default values.
    pub(super) fn plain(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            parent: None,
            quota: 0,
            limit: NO_LIMIT,
            weight: 1.0,
            priority: 100,
            preempt_min_run: None,
            reclaim_min_run: None,
            reader: None,
        }
    }

    fn read(row: ParamReader) -> Result<Self, PolicyError> {
        let whole = |name: &str| match row.maybe_number(name) {
            Some(number) if number > MOST => Err(row.refuse(name, &format!("at most {MOST}"))),
            number => Ok(number),
        };
        let span = |name: &str| match row.maybe_number(name) {
            Some(_) => row.span(name).map(Some),
            None => Ok(None),
        };
        let quota = whole("quota")?.unwrap_or(0.0) as i64;
        let parent = row.word("parent");
        Ok(Self {
            name: row.word("name").to_owned(),
            parent: (!parent.is_empty()).then(|| parent.to_owned()),
            quota: if quota < 0 { NO_LIMIT } else { quota },
            limit: whole("limit")?.map_or(NO_LIMIT, |gpus| gpus as i64),
            weight: whole("weight")?.unwrap_or(1.0),
            priority: row.number("priority") as i64,
            preempt_min_run: span("preempt_min_run_s")?,
            reclaim_min_run: span("reclaim_min_run_s")?,
            reader: Some(row),
        })
    }
}

/// Settings for the effect of past usage on fair shares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsageParams {
    /// Weight of past usage (k); 0 means that past usage does not count.
    pub weight: f64,
    /// Share of past usage that remains after one period.
    pub decay: f64,
    pub period: SimSpan,
    pub window: SimSpan,
}

/// All parameters of `kai`.
#[derive(Clone, Debug)]
pub(crate) struct KaiParams {
    pub queue_by: QueueLabel,
    pub queues: Vec<Row>,
    pub fixed_priority: i64,
    pub saturation_multiplier: f64,
    pub in_quota_reclaim: bool,
    pub usage: UsageParams,
    pub resolve: Resolve,
    pub cycle: SimSpan,
    pub placement: PlacementParams,
    /// Where the values come from; error messages name this source.
    pub reader: ParamReader,
}

impl KaiParams {
    pub(crate) fn read(params: &ParamReader) -> Result<Self, PolicyError> {
        let rows = params.distinct_tables("queues", "name")?.into_iter();
        let queues = rows.map(Row::read).collect::<Result<_, _>>()?;
        let half_life_s = params.number("half_life_s");
        let period_s = params.number("usage_period_s");
        let weight = params.number("k_value");
        if weight > MOST {
            return Err(params.refuse("k_value", &format!("at most {MOST}")));
        }
        let usage = UsageParams {
            weight,
            decay: if half_life_s > 0.0 {
                libm::pow(0.5, period_s / half_life_s)
            } else {
                1.0
            },
            period: params.span("usage_period_s")?,
            window: params.span("window_s")?,
        };
        let cycle = params.span("cycle_s")?;
        for (name, span) in [("window_s", usage.window), ("cycle_s", cycle)] {
            if span == SimSpan::ZERO {
                return Err(params.refuse(name, "at least a nanosecond"));
            }
        }
        Ok(Self {
            queue_by: params.choice("queue_by", QueueLabel::named),
            queues,
            fixed_priority: params.number("fixed_priority") as i64,
            saturation_multiplier: params.number("saturation_multiplier"),
            in_quota_reclaim: params.flag("in_quota_reclaim"),
            usage,
            resolve: params.choice("reclaim_resolve", Resolve::named),
            cycle,
            placement: PlacementParams::read(params),
            reader: params.clone(),
        })
    }
}
