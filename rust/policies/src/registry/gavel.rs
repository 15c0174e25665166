//! Policies in rounds: shares by linear programs or closed forms (Gavel).

use super::parameters::spec;
use super::{PolicyInfo, placement};
use crate::lp::{Allocator, EqualSplit, NoSolver};
use crate::params::{ParamDefault, ParamKind, ParamReader, ParamSpec};
use crate::round::{RoundParams, Rounds};
use gangline_engine::{Knowledge, Policy, PolicyError};
use gangline_model::SimSpan;

const ROUND: ParamSpec = spec(
    "round_s",
    ParamKind::Above(0.0),
    ParamDefault::Float(360.0),
    "s",
    "length of a round",
);
const INTERVAL: ParamSpec = spec(
    "min_solve_interval_s",
    ParamKind::AtLeast(0.0),
    ParamDefault::Float(0.0),
    "s",
    "least time between two allocations",
);
const BACKFILL: ParamSpec = spec(
    "backfill_mid_round",
    ParamKind::Bool,
    ParamDefault::Bool(false),
    "",
    "GPUs freed inside a round go to waiting jobs at once",
);
const SOLVER: ParamSpec = spec(
    "solver",
    ParamKind::Choice(&["auto", "simplex", "ipx", "dual"]),
    ParamDefault::Str("auto"),
    "",
    "how programs are solved; auto = by their size",
);
const TIE_BREAK: ParamSpec = spec(
    "tie_break",
    ParamKind::Choice(&["max_sum", "none"]),
    ParamDefault::Str("max_sum"),
    "",
    "which of several optima: one of most normalised throughput, or whichever comes",
);
const TIME_LIMIT: ParamSpec = spec(
    "time_limit_s",
    ParamKind::Above(0.0),
    ParamDefault::Float(60.0),
    "s",
    "of each solve; wall time",
);
const NORMALISE: ParamSpec = spec(
    "normalise",
    ParamKind::Choice(&["none", "proportional"]),
    ParamDefault::Str("none"),
    "",
    "sum of raw rates, or of rates over their average on the cluster",
);

const CLOSED: &[ParamSpec] = &[ROUND, INTERVAL, BACKFILL];
const PROGRAM: &[ParamSpec] = &[ROUND, INTERVAL, BACKFILL, SOLVER, TIE_BREAK, TIME_LIMIT];
const SUM: &[ParamSpec] = &[
    ROUND, INTERVAL, BACKFILL, SOLVER, TIE_BREAK, TIME_LIMIT, NORMALISE,
];
const GAVEL: &str = "Gavel (OSDI 2020)";

const fn info(
    name: &'static str,
    summary: &'static str,
    knowledge: Knowledge,
    own: &'static [ParamSpec],
) -> PolicyInfo {
    PolicyInfo {
        name,
        summary,
        family: FAMILY,
        source: GAVEL,
        knowledge,
        reads_durations: matches!(knowledge, Knowledge::Remaining),
        is_hidden: false,
        placement: "consolidate",
        own,
        make,
    }
}

/// Family of the policies that take an allocator.
pub(super) const FAMILY: &str = "shares in rounds";

pub(super) const POLICIES: &[PolicyInfo] = &[
    info(
        "gavel-las",
        "largest smallest rate per fair share and weight",
        Knowledge::Online,
        PROGRAM,
    ),
    info(
        "gavel-ftf",
        "smallest largest finish time over that of an equal split",
        Knowledge::Remaining,
        PROGRAM,
    ),
    info(
        "gavel-makespan",
        "earliest last finish",
        Knowledge::Remaining,
        PROGRAM,
    ),
    info(
        "gavel-max-sum",
        "most total throughput",
        Knowledge::Online,
        SUM,
    ),
    info(
        "gavel-water-filling",
        "max-min again and again for those who can still rise",
        Knowledge::Online,
        PROGRAM,
    ),
    info(
        "gavel-isolated",
        "an equal split of every GPU type",
        Knowledge::Online,
        CLOSED,
    ),
];

fn make(params: &ParamReader, _plain: bool) -> Result<Box<dyn Policy>, PolicyError> {
    let allocator: Box<dyn Allocator> = if params.policy() == "gavel-isolated" {
        Box::new(EqualSplit)
    } else {
        Box::new(NoSolver)
    };
    rounds(params, allocator)
}

/// The policy with an allocator from outside.
pub(super) fn rounds(
    params: &ParamReader,
    allocator: Box<dyn Allocator>,
) -> Result<Box<dyn Policy>, PolicyError> {
    let knowledge = super::find(params.policy())?.knowledge;
    let mechanism = RoundParams {
        round: params.span("round_s")?.max(SimSpan(1)),
        min_solve_interval: params.span("min_solve_interval_s")?,
        serves_all: true,
        backfills: params.flag("backfill_mid_round"),
        knowledge,
    };
    Ok(Box::new(Rounds::new(
        mechanism,
        placement(params)?,
        allocator,
    )))
}
