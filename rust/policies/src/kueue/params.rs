//! Parameters of `kueue`: queues, cohorts and their rules.

use crate::params::ParamReader;
use crate::place::PlacementParams;
use gangline_engine::PolicyError;
use gangline_model::{Label, Labels, SimSpan, words};

/// Name of the queue for jobs without a label.
pub(crate) const DEFAULT_QUEUE: &str = "default";

words! {
    /// The job label that names the queue.
    pub enum QueueLabel {
        /// The virtual cluster.
        Vc = "vc",
        /// The user.
        User = "user",
        /// The account.
        Account = "account",
        /// The partition.
        Partition = "partition",
        /// The quality of service.
        Qos = "qos",
    }
}

words! {
    /// Effect of a job that cannot be admitted on the jobs behind it.
    pub enum Strategy {
        /// Later jobs may pass it.
        BestEffortFifo = "BestEffortFIFO",
        /// Later jobs wait as well.
        StrictFifo = "StrictFIFO",
    }
}

words! {
    /// The jobs of its own queue that a job may preempt.
    pub enum Within {
        /// No jobs.
        Never = "Never",
        /// Jobs with lower priority.
        LowerPriority = "LowerPriority",
        /// Jobs with lower priority, and later jobs with equal priority.
        LowerOrNewerEqualPriority = "LowerOrNewerEqualPriority",
    }
}

words! {
    /// The jobs of borrowing queues that a job may preempt.
    pub enum Reclaim {
        /// No jobs.
        Never = "Never",
        /// Jobs with lower priority.
        LowerPriority = "LowerPriority",
        /// All jobs.
        Any = "Any",
    }
}

words! {
    /// The jobs of borrowing queues that a borrowing job may preempt.
    pub enum Borrow {
        /// No jobs.
        Never = "Never",
        /// Jobs with lower priority.
        LowerPriority = "LowerPriority",
    }
}

words! {
    /// Rule for a GPU type on which a job fits only by borrowing.
    pub enum WhenCanBorrow {
        /// The search chooses this type.
        Borrow = "Borrow",
        /// The search tries the next type first.
        TryNextFlavor = "TryNextFlavor",
    }
}

words! {
    /// Rule for a GPU type on which a job fits only by preemption.
    pub enum WhenCanPreempt {
        /// The search tries the next type first.
        TryNextFlavor = "TryNextFlavor",
        /// The search chooses this type.
        Preempt = "Preempt",
    }
}

words! {
    /// Condition under which fair sharing lets a job preempt a job of a borrowing queue. The two sides are the subtrees
    /// just below the lowest common cohort of the two queues.
    pub enum Fairness {
        /// The preempting side's share is at most the share that the other side has after the preemption.
        Final = "LessThanOrEqualToFinalShare",
        /// The preempting side's share is below the share that the other side has before the preemption.
        Initial = "LessThanInitialShare",
    }
}

impl QueueLabel {
    /// Returns the trace column of this label.
    pub(crate) fn of(self, labels: &Labels) -> &Label {
        match self {
            Self::Vc => &labels.vc,
            Self::User => &labels.user,
            Self::Account => &labels.account,
            Self::Partition => &labels.partition,
            Self::Qos => &labels.qos,
        }
    }

    /// Returns the error for a job whose queue is not defined.
    pub(crate) fn missing<'a>(
        self,
        reader: &ParamReader,
        label: Option<&str>,
        queues: impl Iterator<Item = &'a str>,
    ) -> PolicyError {
        let (queue, whose) = label.map_or((DEFAULT_QUEUE, "no"), |name| (name, "this"));
        let by = self.name();
        PolicyError::Parameter {
            policy: reader.policy().to_owned(),
            field: "queues".to_owned(),
            value: queues.collect::<Vec<_>>().join(", "),
            expected: format!(
                "a queue `{queue}` as well, for jobs of the trace with {whose} {by}: add it, or choose a different queue_by"
            ),
        }
    }
}

/// Rules of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub strategy: Strategy,
    pub within: Within,
    pub reclaim: Reclaim,
    pub borrow: Borrow,
    /// Maximum priority of the jobs that a borrowing job may preempt.
    pub borrow_max: i64,
    pub when_can_borrow: WhenCanBorrow,
    pub when_can_preempt: WhenCanPreempt,
}

impl Rules {
    pub(super) const DEFAULT: Self = Self {
        strategy: Strategy::BestEffortFifo,
        within: Within::Never,
        reclaim: Reclaim::Never,
        borrow: Borrow::Never,
        borrow_max: i64::MAX,
        when_can_borrow: WhenCanBorrow::Borrow,
        when_can_preempt: WhenCanPreempt::TryNextFlavor,
    };

    fn read(row: &ParamReader) -> Result<Self, PolicyError> {
        let rules = Self {
            strategy: row.choice("strategy", Strategy::named),
            within: row.choice("within", Within::named),
            reclaim: row.choice("reclaim", Reclaim::named),
            borrow: row.choice("borrow", Borrow::named),
            borrow_max: row
                .maybe_number("borrow_max_priority")
                .map_or(i64::MAX, |most| most as i64),
            when_can_borrow: row.choice("when_can_borrow", WhenCanBorrow::named),
            when_can_preempt: row.choice("when_can_preempt", WhenCanPreempt::named),
        };
        if rules.borrow != Borrow::Never && rules.reclaim == Reclaim::Never {
            return Err(row.refuse("borrow", "Never, because reclaim is Never"));
        }
        Ok(rules)
    }

    /// Returns whether jobs of the queue may preempt other jobs.
    pub(super) fn may_preempt(&self) -> bool {
        self.within != Within::Never || self.reclaim != Reclaim::Never
    }
}

/// A number of at least 0, stored as the fraction `over / under`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weight {
    pub over: i128,
    pub under: i128,
}

/// Maximum value of the numerator and of the denominator of a weight. Together with [`GPUS_MAX`], it keeps products of
/// shares within 128 bits.
const WEIGHT_MAX: i128 = 1_000_000;
/// Maximum number of GPUs in a quota.
const GPUS_MAX: f64 = 16_777_216.0;

impl Weight {
    pub(super) const ONE: Self = Self { over: 1, under: 1 };

    fn read(row: &ParamReader) -> Result<Self, PolicyError> {
        // `to_string` returns the shortest decimal that is parsed as this number.
        let text = row.number("weight").to_string();
        let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
        let digits = format!("{whole}{decimals}");
        let under = (decimals.len() <= 6).then(|| 10_i128.pow(decimals.len() as u32));
        match (digits.parse(), under) {
            (Ok(over), Some(under)) if over <= WEIGHT_MAX => Ok(Self { over, under }),
            _ => Err(row.refuse("weight", "a number of at most six digits")),
        }
    }
}

/// A quota for the GPUs of one type.
#[derive(Clone, Debug)]
pub(crate) struct Flavor {
    pub row: ParamReader,
    pub gpu: String,
    pub nominal: i64,
    pub borrowing: Option<i64>,
    pub lending: Option<i64>,
}

impl Flavor {
    fn read(row: ParamReader) -> Result<Self, PolicyError> {
        let gpus = |name: &str| match row.maybe_number(name) {
            Some(gpus) if gpus > GPUS_MAX => {
                Err(row.refuse(name, &format!("at most {GPUS_MAX} GPUs")))
            }
            gpus => Ok(gpus.map(|gpus| gpus as i64)),
        };
        Ok(Self {
            gpu: row.word("gpu").to_owned(),
            nominal: gpus("nominal")?.unwrap_or(0),
            borrowing: gpus("borrowing_limit")?,
            lending: gpus("lending_limit")?,
            row,
        })
    }
}

/// A queue or a cohort.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub name: String,
    /// Name of the cohort above, if any.
    pub above: Option<String>,
    pub weight: Weight,
    pub flavors: Vec<Flavor>,
    /// Rules of a queue; cohorts have no rules.
    pub rules: Rules,
}

impl Group {
    fn read(row: &ParamReader, above: &str, rules: Rules) -> Result<Self, PolicyError> {
        let flavors = row.distinct_tables("flavors", "gpu")?;
        let flavors = flavors.into_iter().map(Flavor::read);
        let above = row.word(above);
        Ok(Self {
            name: row.word("name").to_owned(),
            above: (!above.is_empty()).then(|| above.to_owned()),
            weight: Weight::read(row)?,
            flavors: flavors.collect::<Result<_, _>>()?,
            rules,
        })
    }
}

/// All parameters of `kueue`.
#[derive(Clone, Debug)]
pub(crate) struct KueueParams {
    pub queue_by: QueueLabel,
    /// Queues. If the list is empty, there is one queue with all jobs and all GPUs.
    pub queues: Vec<Group>,
    pub cohorts: Vec<Group>,
    /// Rules of fair sharing; `None` if it is off.
    pub fairness: Option<Vec<Fairness>>,
    pub requeue: SimSpan,
    pub placement: PlacementParams,
    /// Parameter reader, which builds error messages.
    pub reader: ParamReader,
}

impl KueueParams {
    pub(crate) fn read(params: &ParamReader) -> Result<Self, PolicyError> {
        let queues = groups(params, "queues", |row| {
            Group::read(row, "cohort", Rules::read(row)?)
        })?;
        let cohorts = groups(params, "cohorts", |row| {
            Group::read(row, "parent", Rules::DEFAULT)
        })?;
        let words = params.texts("strategies");
        let fairness = words.into_iter().filter_map(Fairness::named).collect();
        Ok(Self {
            queue_by: params.choice("queue_by", QueueLabel::named),
            queues,
            cohorts,
            fairness: params.flag("fair_sharing").then_some(fairness),
            requeue: params.span("requeue_s")?,
            placement: PlacementParams::read(params),
            reader: params.clone(),
        })
    }
}

fn groups(
    params: &ParamReader,
    name: &str,
    read: fn(&ParamReader) -> Result<Group, PolicyError>,
) -> Result<Vec<Group>, PolicyError> {
    let rows = params.distinct_tables(name, "name")?;
    rows.iter().map(read).collect()
}
