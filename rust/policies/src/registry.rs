//! The only list of policies: names, parameters as data, constructors.

use crate::baselines::{Easy, Fifo, Seen, ShortestRemaining, Skip, SkipOrder, Strict};
use crate::params::{ParamDefault, ParamKind, ParamReader, ParamSpec, ParamValue, Params, nearest};
use crate::place::PlacementParams;
use crate::tiresias::{ContinuousLas, QueuedParams, QueuedService};
use crate::toy::{ToyRound, ToyShare, ToyTimer};
use gangline_engine::{Knowledge, Policy, PolicyError};

/// Makes a policy of its parameters; the flag asks for the oracle inside.
type Make = fn(&ParamReader, bool) -> Result<Box<dyn Policy>, PolicyError>;

/// A policy as the outside sees it.
#[derive(Clone, Copy, Debug)]
pub struct PolicyInfo {
    /// Name.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Which family it belongs to.
    pub family: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// What it knows of the work that is left.
    pub knowledge: Knowledge,
    /// Whether it needs durations in the trace; see [`PolicyInfo::needs_durations`].
    pub reads_durations: bool,
    /// Left out of the lists that users see.
    pub is_hidden: bool,
    /// Placement rule if none is given.
    placement: &'static str,
    /// Its own parameters.
    own: &'static [ParamSpec],
    make: Make,
}

impl PolicyInfo {
    /// All parameters: its own, then those of placement.
    pub fn parameters(&self) -> impl Iterator<Item = ParamSpec> + Clone + use<> {
        let (placement, is_toy) = (self.placement, self.placement.is_empty());
        let own = self.own.iter().copied();
        own.chain(
            PLACEMENT
                .into_iter()
                .filter(move |_| !is_toy)
                .map(move |spec| {
                    if spec.name == "placement" {
                        ParamSpec {
                            default: ParamDefault::Str(placement),
                            ..spec
                        }
                    } else {
                        spec
                    }
                }),
        )
    }

    /// Whether a run with these parameters needs durations in the trace.
    pub fn needs_durations(&self, params: &Params) -> bool {
        let is_given = matches!(params.get("distribution"), Some(ParamValue::List(_)));
        self.reads_durations && !is_given
    }
}

const RULES: &[&str] = &[
    "consolidate",
    "yarn",
    "whole_servers",
    "spread",
    "random",
    "random_server",
    "count",
    "skew",
];

const fn spec(
    name: &'static str,
    kind: ParamKind,
    default: ParamDefault,
    unit: &'static str,
    doc: &'static str,
) -> ParamSpec {
    ParamSpec {
        name,
        kind,
        default,
        unit,
        doc,
    }
}

const PLACEMENT: [ParamSpec; 9] = [
    spec(
        "placement",
        ParamKind::Choice(RULES),
        ParamDefault::Str("consolidate"),
        "",
        "placement rule",
    ),
    spec(
        "fit",
        ParamKind::Choice(&["best", "first"]),
        ParamDefault::Str("best"),
        "",
        "which of several places with room",
    ),
    spec(
        "max_level",
        ParamKind::Choice(&["server", "rack", "network"]),
        ParamDefault::Str("network"),
        "",
        "widest tier of consolidate",
    ),
    spec(
        "slots",
        ParamKind::Choice(&["lowest", "aligned"]),
        ParamDefault::Str("lowest"),
        "",
        "which GPUs of a server",
    ),
    spec(
        "rack_choice",
        ParamKind::Choice(&["best_fit", "fewest_servers"]),
        ParamDefault::Str("best_fit"),
        "",
        "which rack, with best fit",
    ),
    spec(
        "skew",
        ParamKind::Choice(&["flags", "sizes", "oracle"]),
        ParamDefault::Str("flags"),
        "",
        "how models are classed by skew",
    ),
    spec(
        "skew_threshold",
        ParamKind::AtLeast(0.0),
        ParamDefault::Float(0.3),
        "",
        "skew from which a model is highly skewed",
    ),
    spec(
        "skew_eps",
        ParamKind::AtLeast(0.0),
        ParamDefault::Float(0.05),
        "",
        "loss of speed that skew = oracle accepts",
    ),
    spec(
        "yarn_cross_rack",
        ParamKind::Bool,
        ParamDefault::Bool(false),
        "",
        "whether yarn and whole_servers may take several racks",
    ),
];

const ESTIMATE_ERROR: ParamSpec = spec(
    "estimate_error",
    ParamKind::AtLeast(0.0),
    ParamDefault::Float(0.0),
    "",
    "sigma of the log-normal error of the durations it sees",
);
const MIN_RUN: ParamSpec = spec(
    "preempt_min_run_s",
    ParamKind::AtLeast(0.0),
    ParamDefault::Float(0.0),
    "s",
    "a job is not preempted before it has run so long",
);
const LIMITS: ParamSpec = spec(
    "limits",
    ParamKind::Increasing,
    ParamDefault::List(&[3250.0, 7200.0]),
    "GPU-s",
    "service at which a job leaves each queue",
);
const KNOB: ParamSpec = spec(
    "promote_knob",
    ParamKind::AtLeast(0.0),
    ParamDefault::Float(0.0),
    "",
    "a job that waited so many times its run time returns to the top; 0 = never",
);
const LAS_TIME: ParamSpec = spec(
    "las_time",
    ParamKind::Bool,
    ParamDefault::Bool(false),
    "",
    "service is time, whatever the gang size",
);

const SIZED: &[ParamSpec] = &[ESTIMATE_ERROR];
const EASY: &[ParamSpec] = &[
    ESTIMATE_ERROR,
    spec(
        "estimate_extend",
        ParamKind::AtLeast(1.0),
        ParamDefault::Float(1.1),
        "",
        "an estimate that runs out becomes so many times the time run",
    ),
];
const REMAINING: &[ParamSpec] = &[ESTIMATE_ERROR, MIN_RUN];
const LAS: &[ParamSpec] = &[
    LIMITS,
    KNOB,
    LAS_TIME,
    MIN_RUN,
    spec(
        "discretised",
        ParamKind::Bool,
        ParamDefault::Bool(true),
        "",
        "queues; false = ordered by the service itself",
    ),
    spec(
        "las_quantum",
        ParamKind::AtLeast(0.0),
        ParamDefault::Float(600.0),
        "GPU-s per GPU",
        "head start of a running job without queues",
    ),
];
const GITTINS: &[ParamSpec] = &[
    LIMITS,
    KNOB,
    LAS_TIME,
    MIN_RUN,
    spec(
        "distribution",
        ParamKind::Positives,
        ParamDefault::None,
        "GPU-s",
        "services of past jobs; none = those of the trace itself",
    ),
    spec(
        "delta",
        ParamKind::Above(0.0),
        ParamDefault::Float(3250.0),
        "GPU-s",
        "service quantum of the index",
    ),
];
const TOY_ROUND: &[ParamSpec] = &[spec(
    "round_s",
    ParamKind::Above(0.0),
    ParamDefault::Float(360.0),
    "s",
    "length of a round",
)];
const TOY_TIMER: &[ParamSpec] = &[spec(
    "delay_s",
    ParamKind::AtLeast(0.0),
    ParamDefault::Float(60.0),
    "s",
    "wait for a server",
)];
const TOY_SHARE: &[ParamSpec] = &[spec(
    "halve",
    ParamKind::Bool,
    ParamDefault::Bool(false),
    "",
    "co-runners at half batch",
)];

const OF_QUEUES: &str = "classic";
const OF_TIRESIAS: &str = "Tiresias (NSDI 2019)";

/// Every policy, in the order that lists show them.
pub static POLICIES: [PolicyInfo; 15] = [
    PolicyInfo {
        name: "fifo",
        summary: "order of arrival; a head that does not fit blocks everyone",
        family: "queue",
        source: OF_QUEUES,
        knowledge: Knowledge::Online,
        reads_durations: false,
        is_hidden: false,
        placement: "consolidate",
        own: &[],
        make: |params, _| Ok(Box::new(Fifo::new(placement(params)?))),
    },
    PolicyInfo {
        name: "fifo-skip",
        summary: "order of arrival; jobs that do not fit are skipped",
        family: "queue",
        source: OF_QUEUES,
        knowledge: Knowledge::Online,
        reads_durations: false,
        is_hidden: false,
        placement: "consolidate",
        own: &[],
        make: |params, plain| skip(SkipOrder::Arrival, params, plain),
    },
    PolicyInfo {
        name: "easy",
        summary: "order of arrival with a reservation for the head and backfill behind it",
        family: "backfill",
        source: "Lifka 1995, by count",
        knowledge: Knowledge::Remaining,
        reads_durations: true,
        is_hidden: false,
        placement: "consolidate",
        own: EASY,
        make: |params, plain| {
            let extend = params.number("estimate_extend");
            Ok(Box::new(Easy::new(
                placement(params)?,
                seen(params),
                extend,
                plain,
            )))
        },
    },
    PolicyInfo {
        name: "sjf",
        summary: "shortest job first; jobs that do not fit are skipped",
        family: "queue",
        source: OF_QUEUES,
        knowledge: Knowledge::Remaining,
        reads_durations: true,
        is_hidden: false,
        placement: "consolidate",
        own: SIZED,
        make: |params, plain| skip(SkipOrder::Duration, params, plain),
    },
    PolicyInfo {
        name: "sjf-strict",
        summary: "shortest job first; a head that does not fit blocks everyone",
        family: "queue",
        source: OF_QUEUES,
        knowledge: Knowledge::Remaining,
        reads_durations: true,
        is_hidden: false,
        placement: "consolidate",
        own: SIZED,
        make: |params, _| Ok(Box::new(Strict::new(placement(params)?, seen(params)))),
    },
    PolicyInfo {
        name: "ssf",
        summary: "smallest service (duration x GPUs) first; jobs that do not fit are skipped",
        family: "queue",
        source: OF_QUEUES,
        knowledge: Knowledge::Remaining,
        reads_durations: true,
        is_hidden: false,
        placement: "consolidate",
        own: SIZED,
        make: |params, plain| skip(SkipOrder::Area, params, plain),
    },
    PolicyInfo {
        name: "srtf",
        summary: "shortest remaining time first, with preemption",
        family: "preemptive",
        source: OF_QUEUES,
        knowledge: Knowledge::Remaining,
        reads_durations: true,
        is_hidden: false,
        placement: "consolidate",
        own: REMAINING,
        make: |params, plain| shortest_remaining(false, params, plain),
    },
    PolicyInfo {
        name: "srsf",
        summary: "shortest remaining service (time x GPUs) first, with preemption",
        family: "preemptive",
        source: OF_QUEUES,
        knowledge: Knowledge::Remaining,
        reads_durations: true,
        is_hidden: false,
        placement: "consolidate",
        own: REMAINING,
        make: |params, plain| shortest_remaining(true, params, plain),
    },
    PolicyInfo {
        name: "las",
        summary: "least attained service in queues, with preemption",
        family: "attained service",
        source: OF_TIRESIAS,
        knowledge: Knowledge::Online,
        reads_durations: false,
        is_hidden: false,
        placement: "consolidate",
        own: LAS,
        make: las,
    },
    PolicyInfo {
        name: "gittins",
        summary: "queues by attained service, inside them by Gittins index, with preemption",
        family: "attained service",
        source: OF_TIRESIAS,
        knowledge: Knowledge::Online,
        reads_durations: true,
        is_hidden: false,
        placement: "consolidate",
        own: GITTINS,
        make: gittins,
    },
    PolicyInfo {
        name: "tiresias",
        summary: "las with placement by skew: Tiresias-L",
        family: "attained service",
        source: OF_TIRESIAS,
        knowledge: Knowledge::Online,
        reads_durations: false,
        is_hidden: false,
        placement: "skew",
        own: LAS,
        make: las,
    },
    PolicyInfo {
        name: "tiresias-gittins",
        summary: "gittins with placement by skew: Tiresias-G",
        family: "attained service",
        source: OF_TIRESIAS,
        knowledge: Knowledge::Online,
        reads_durations: true,
        is_hidden: false,
        placement: "skew",
        own: GITTINS,
        make: gittins,
    },
    PolicyInfo {
        name: "toy-round",
        summary: "least attained service in rounds; for tests",
        family: "toy",
        source: "ours",
        knowledge: Knowledge::Online,
        reads_durations: false,
        is_hidden: true,
        placement: "",
        own: TOY_ROUND,
        make: |params, _| {
            let round = params.span("round_s")?.max(gangline_model::SimSpan(1));
            Ok(Box::new(ToyRound::new(round)))
        },
    },
    PolicyInfo {
        name: "toy-timer",
        summary: "waits some time for one server; for tests",
        family: "toy",
        source: "ours",
        knowledge: Knowledge::Online,
        reads_durations: false,
        is_hidden: true,
        placement: "",
        own: TOY_TIMER,
        make: |params, _| Ok(Box::new(ToyTimer::new(params.span("delay_s")?))),
    },
    PolicyInfo {
        name: "toy-share",
        summary: "two jobs to a GPU where no GPU is free; for tests",
        family: "toy",
        source: "ours",
        knowledge: Knowledge::Online,
        reads_durations: false,
        is_hidden: true,
        placement: "",
        own: TOY_SHARE,
        make: |params, _| Ok(Box::new(ToyShare::new(params.flag("halve")))),
    },
];

/// The policy of a name.
///
/// # Errors
/// [`PolicyError::UnknownPolicy`], naming the nearest.
pub fn find(name: &str) -> Result<&'static PolicyInfo, PolicyError> {
    POLICIES
        .iter()
        .find(|info| info.name == name)
        .ok_or_else(|| {
            let known: Vec<&str> = POLICIES
                .iter()
                .filter(|info| !info.is_hidden)
                .map(|info| info.name)
                .collect();
            PolicyError::UnknownPolicy {
                name: name.to_owned(),
                nearest: nearest(name, &known),
            }
        })
}

/// A policy with its parameters.
///
/// # Errors
/// [`PolicyError::UnknownPolicy`] or [`PolicyError::Parameter`].
///
/// # Examples
/// ```
/// use gangline_policies::{ParamValue, Params, build};
/// let params = Params::from([("placement".to_owned(), ParamValue::Str("count".to_owned()))]);
/// assert!(build("srtf", &params).is_ok());
/// assert!(build("strf", &params).is_err());
/// ```
pub fn build(name: &str, params: &Params) -> Result<Box<dyn Policy>, PolicyError> {
    build_with(name, params, false)
}

/// As [`build`], with the oracle inside: every decision walks all jobs. For tests.
///
/// # Errors
/// Those of [`build`].
#[doc(hidden)]
pub fn build_plain(name: &str, params: &Params) -> Result<Box<dyn Policy>, PolicyError> {
    build_with(name, params, true)
}

fn build_with(name: &str, params: &Params, plain: bool) -> Result<Box<dyn Policy>, PolicyError> {
    let info = find(name)?;
    let reader = ParamReader::new(name, info.parameters(), params)?;
    (info.make)(&reader, plain)
}

fn placement(params: &ParamReader) -> Result<PlacementParams, PolicyError> {
    let mut placement = PlacementParams::default();
    for spec in PLACEMENT {
        let text = match spec.kind {
            ParamKind::Bool => params.flag(spec.name).to_string(),
            ParamKind::AtLeast(_) => params.number(spec.name).to_string(),
            _ => params.word(spec.name).to_owned(),
        };
        placement.set(params.policy(), spec.name, &text)?;
    }
    placement.check(params.policy())?;
    Ok(placement)
}

fn seen(params: &ParamReader) -> Seen {
    Seen::new(params.number("estimate_error"))
}

fn skip(
    order: SkipOrder,
    params: &ParamReader,
    plain: bool,
) -> Result<Box<dyn Policy>, PolicyError> {
    Ok(Box::new(Skip::new(
        order,
        placement(params)?,
        seen(params),
        plain,
    )))
}

fn shortest_remaining(
    by_service: bool,
    params: &ParamReader,
    plain: bool,
) -> Result<Box<dyn Policy>, PolicyError> {
    let min_run = params.span("preempt_min_run_s")?;
    let placement = placement(params)?;
    Ok(Box::new(ShortestRemaining::new(
        by_service,
        placement,
        seen(params),
        min_run,
        plain,
    )))
}

fn las(params: &ParamReader, plain: bool) -> Result<Box<dyn Policy>, PolicyError> {
    let placement = placement(params)?;
    let queued = QueuedParams::read(params, false)?;
    if params.flag("discretised") {
        return Ok(Box::new(QueuedService::new(queued, placement, plain)));
    }
    let quantum = params.gpu_ns("las_quantum", params.number("las_quantum"))?;
    let QueuedParams {
        is_time, min_run, ..
    } = queued;
    Ok(Box::new(ContinuousLas::new(
        quantum, is_time, min_run, placement, plain,
    )))
}

fn gittins(params: &ParamReader, plain: bool) -> Result<Box<dyn Policy>, PolicyError> {
    let placement = placement(params)?;
    let queued = QueuedParams::read(params, true)?;
    Ok(Box::new(QueuedService::new(queued, placement, plain)))
}
