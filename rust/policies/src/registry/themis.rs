//! Registry entries of finish-time fairness.

use super::parameters::ESTIMATE_ERROR;
use super::{PolicyInfo, Services, Stops, seen};
use crate::params::{ParamKind, ParamReader, ParamSpec, choice, number};
use crate::place::{PlacementParams, Rule};
use crate::themis::{Leftover, Themis, Winners};
use gangline_engine::{Knowledge, Policy, PolicyError};

const THEMIS: &[ParamSpec] = &[
    number("lease_s", ParamKind::Above(0.0), 1200.0).unit("s").doc("time between auctions, which must be longer than every restart overhead; leases end at multiples of this time")
    .outlasting_restarts(),
    number("fairness", ParamKind::Share, 0.8).doc("share of bidders that are left out of an auction: those that are best off"),
    choice("leftover", Leftover::NAMES, "rho").doc("job that gets the GPUs left over after an auction: rho (the worst off) or random (drawn with the seed of the run)"),
    choice("auction", Winners::NAMES, "greedy").doc("how to choose the winners: greedy (repeatedly \
         takes the highest bid per GPU) or milp (maximises the product of all valuations; at most \
         64 bidders)"),
    number("time_limit_s", ParamKind::Above(0.0), 60.0).unit("s").doc("with auction = milp: time limit (wall-clock) of the solver for each auction"),
    ESTIMATE_ERROR,
];

pub(super) const POLICIES: &[PolicyInfo] = &[PolicyInfo {
    name: "themis",
    summary: "finish-time fairness: leases of GPUs are auctioned to the jobs that are worst off",
    stops: Stops::AtLeaseEnds,
    is_work_conserving: true,
    family: "fairness",
    source: "Themis (NSDI 2020)",
    knowledge: Knowledge::Remaining,
    reads_durations: true,
    own: THEMIS,
    make,
    ..PolicyInfo::BASE
}];

fn make(params: &ParamReader, services: Services) -> Result<Box<dyn Policy>, PolicyError> {
    let placement = PlacementParams::read(params);
    let is_exact = params.choice("auction", Winners::named) == Winners::Milp;
    if is_exact && placement.rule != Rule::Consolidate {
        return Err(PolicyError::Parameter {
            policy: params.policy().to_owned(),
            field: "placement".to_owned(),
            value: params.word("placement").to_owned(),
            expected: "`consolidate` with auction = milp: it bids for tiers".to_owned(),
        });
    }
    Ok(Box::new(Themis::new(
        params.period("lease_s")?,
        params.number("fairness"),
        params.choice("leftover", Leftover::named),
        is_exact.then(|| (services.outside, params.number("time_limit_s"))),
        placement,
        seen(params),
    )))
}
