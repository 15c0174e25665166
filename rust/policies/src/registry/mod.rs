//! The only list of policies: names, parameters as data, constructors.

mod dally;
mod gandiva;
mod gavel;
mod parameters;
mod preemptive;
mod queues;
mod themis;
mod toys;
mod yarn;

use crate::baselines::Seen;
use crate::lp::Allocator;
use crate::params::{ParamDefault, ParamKind, ParamReader, ParamSpec, ParamValue, Params, nearest};
use crate::place::PlacementParams;
use crate::themis::Auctioneer;
use gangline_engine::{Knowledge, Policy, PolicyError};
use parameters::PLACEMENT;
use std::sync::LazyLock;

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

    /// Whether its shares come from an allocator that the caller must bring.
    pub fn needs_allocator(&self) -> bool {
        self.family == gavel::FAMILY && gavel::needs_allocator(self.name)
    }

    /// Whether the winners of its auctions come from an auctioneer that the caller must bring.
    pub fn needs_auctioneer(&self, params: &Params) -> bool {
        self.name == "themis" && themis::needs_auctioneer(params)
    }

    /// Whether a run with these parameters needs durations in the trace.
    pub fn needs_durations(&self, params: &Params) -> bool {
        let is_given = matches!(params.get("distribution"), Some(ParamValue::List(_)));
        self.reads_durations && !is_given
    }
}

/// Every policy, in the order that lists show them.
pub static POLICIES: LazyLock<Vec<PolicyInfo>> = LazyLock::new(|| {
    [
        queues::POLICIES,
        preemptive::POLICIES,
        gandiva::POLICIES,
        themis::POLICIES,
        yarn::POLICIES,
        gavel::POLICIES,
        dally::POLICIES,
        toys::POLICIES,
    ]
    .concat()
});

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

/// As [`build`], for a policy that needs an allocator.
///
/// # Errors
/// Those of [`build`].
///
/// # Panics
/// If the policy takes no allocator.
pub fn build_with_allocator(
    name: &str,
    params: &Params,
    allocator: Box<dyn Allocator>,
) -> Result<Box<dyn Policy>, PolicyError> {
    allocate_with(name, params, allocator, false)
}

/// As [`build_with_allocator`], with the oracle inside. For tests.
///
/// # Errors
/// Those of [`build`].
#[doc(hidden)]
pub fn build_plain_with_allocator(
    name: &str,
    params: &Params,
    allocator: Box<dyn Allocator>,
) -> Result<Box<dyn Policy>, PolicyError> {
    allocate_with(name, params, allocator, true)
}

/// As [`build`], for a policy that needs an auctioneer.
///
/// # Errors
/// Those of [`build`].
///
/// # Panics
/// If the policy takes no auctioneer.
pub fn build_with_auctioneer(
    name: &str,
    params: &Params,
    auctioneer: Box<dyn Auctioneer>,
) -> Result<Box<dyn Policy>, PolicyError> {
    let info = find(name)?;
    assert!(info.needs_auctioneer(params), "{name} takes no auctioneer");
    let reader = ParamReader::new(name, info.parameters(), params)?;
    themis::make(&reader, auctioneer)
}

fn allocate_with(
    name: &str,
    params: &Params,
    allocator: Box<dyn Allocator>,
    plain: bool,
) -> Result<Box<dyn Policy>, PolicyError> {
    let info = find(name)?;
    assert!(info.needs_allocator(), "{name} takes no allocator");
    let reader = ParamReader::new(name, info.parameters(), params)?;
    gavel::rounds(&reader, allocator, plain)
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
