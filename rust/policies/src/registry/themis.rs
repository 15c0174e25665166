//! Finish-time fairness.

use super::parameters::{ESTIMATE_ERROR, spec};
use super::{PolicyInfo, placement, seen};
use crate::params::{ParamDefault, ParamKind, ParamSpec};
use crate::themis::{Leftover, Themis};
use gangline_engine::Knowledge;
use gangline_model::SimSpan;

const THEMIS: &[ParamSpec] = &[
    spec(
        "lease_s",
        ParamKind::Above(0.0),
        ParamDefault::Float(1200.0),
        "s",
        "time between auctions; leases end at its multiples",
    ),
    spec(
        "fairness",
        ParamKind::Share,
        ParamDefault::Float(0.8),
        "",
        "share of the bidders that an auction leaves out, the best off",
    ),
    spec(
        "leftover",
        ParamKind::Choice(&["rho", "random"]),
        ParamDefault::Str("rho"),
        "",
        "who gets what an auction leaves: the worst off, or a draw",
    ),
    ESTIMATE_ERROR,
];

pub(super) const POLICIES: &[PolicyInfo] = &[PolicyInfo {
    name: "themis",
    summary: "finish-time fairness: leases of GPUs auctioned to the jobs that are worst off",
    family: "fairness",
    source: "Themis (NSDI 2020)",
    knowledge: Knowledge::Remaining,
    reads_durations: true,
    is_hidden: false,
    placement: "consolidate",
    own: THEMIS,
    make: |params, _| {
        let leftover = match params.word("leftover") {
            "random" => Leftover::Random,
            _ => Leftover::Rho,
        };
        Ok(Box::new(Themis::new(
            params.span("lease_s")?.max(SimSpan(1)),
            params.number("fairness"),
            leftover,
            placement(params)?,
            seen(params),
        )))
    },
}];
