//! The only list of policies: their names, their parameters as data, and their constructors.

mod dally;
mod gandiva;
mod gavel;
mod hadar;
mod hadare;
mod kai;
mod kueue;
mod optimus;
mod parameters;
mod pollux;
mod preemptive;
mod queues;
mod sharing;
mod slurm;
mod themis;
mod world;
mod yarn;

use crate::kit::Seen;
use crate::params::{ParamDefault, ParamReader, ParamSpec, ParamValue, Params, nearest};
use crate::place::{PlacementParams, Rule};
use gangline_allocation::{Allocator, Objective, Outside, Settings};
use gangline_engine::{Knowledge, Policy, PolicyError};
use gangline_model::words;
use std::sync::LazyLock;

pub use world::{Fact, Premise};

/// External services for policies.
#[derive(Default)]
pub struct Services {
    /// Solver for the linear and integer programs that the library cannot solve itself.
    pub outside: Outside,
}

words! {
    /// Instants at which a policy may stop running jobs, as shown in the table of policies.
    pub enum Stops {
        /// Never.
        Never = "no",
        /// At any decision.
        Anytime = "yes",
        /// At the end of a job's turn on its GPUs.
        AtTurnEnds = "at ends of turns",
        /// At the end of a lease.
        AtLeaseEnds = "at ends of leases",
        /// At the boundaries of rounds.
        InRounds = "in rounds",
    }
}

/// A name that stands for a policy with certain parameter values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preset {
    /// The name.
    pub name: &'static str,
    /// The parameters that differ from their defaults.
    pub params: &'static [(&'static str, ParamDefault)],
}

/// Reads the objective of a policy's allocations from its checked parameters.
pub type ReadObjective = fn(&ParamReader) -> Objective;

/// Creates a policy from its checked parameters.
pub type MakePolicy = fn(&ParamReader, Services) -> Result<Box<dyn Policy>, PolicyError>;

/// The single declaration of a policy. From it, `scripts/registry.py` writes everything that users and tests read
/// elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct PolicyInfo {
    /// Name.
    pub name: &'static str,
    /// One line that describes the policy in terms that are common in the field.
    pub summary: &'static str,
    /// Family to which the policy belongs.
    pub family: &'static str,
    /// Publication or software from which the policy comes.
    pub source: &'static str,
    /// What the policy knows about the remaining work of jobs.
    pub knowledge: Knowledge,
    /// Whether the policy needs durations in the trace; see [`PolicyInfo::needs_durations`].
    pub reads_durations: bool,
    /// Name of the parameter, if there is one, that makes the policy read durations when its value is above 0.
    pub reads_durations_with: Option<&'static str>,
    /// Instants at which the policy may stop running jobs.
    pub stops: Stops,
    /// Whether the policy starts every job that fits, provided that the placement rule never refuses a gang.
    pub is_work_conserving: bool,
    /// Objective of the policy's allocations, if it makes any.
    pub objective: Option<ReadObjective>,
    /// Premises of the policy about the cluster and the trace.
    pub premises: &'static [Premise],
    /// Page of `docs/policies` that describes the policy, if its name differs from the policy's name.
    pub page: Option<&'static str>,
    /// Parameters that tables show even if the values are the defaults.
    pub always_shown: &'static [&'static str],
    /// Names for the policy with certain parameter values.
    pub presets: &'static [Preset],
    /// Default placement rule; `None` for a policy without placement parameters.
    pub placement: Option<Rule>,
    /// Parameters of the policy itself, without the placement parameters.
    pub own: &'static [ParamSpec],
    /// Function that creates the policy from checked parameters; see [`Self::build`].
    pub make: MakePolicy,
}

impl PolicyInfo {
    /// Values that most declarations share; each declaration states only the differences.
    pub const BASE: Self = Self {
        name: "",
        summary: "",
        family: "",
        source: "",
        knowledge: Knowledge::Online,
        reads_durations: false,
        reads_durations_with: None,
        stops: Stops::Never,
        is_work_conserving: false,
        objective: None,
        premises: &[],
        page: None,
        always_shown: &[],
        presets: &[],
        placement: Some(Rule::Consolidate),
        own: &[],
        make: |_, _| unreachable!("every declaration sets `make`"),
    };

    /// Returns the page of `docs/policies` that describes the policy.
    pub fn page(&self) -> &'static str {
        self.page.unwrap_or(self.name)
    }

    /// Returns all parameters: first those of the policy itself, then the placement parameters.
    pub fn parameters(&self) -> impl Iterator<Item = ParamSpec> + Clone + use<> {
        let rule = self.placement;
        let own = self.own.iter().copied();
        own.chain(rule.into_iter().flat_map(PlacementParams::specs))
    }

    /// Creates the policy from parameters and external services; see [`build`].
    ///
    /// # Errors
    /// Returns [`PolicyError::Parameter`] for an unknown name or a bad value.
    pub fn build(
        &self,
        params: &Params,
        services: Services,
    ) -> Result<Box<dyn Policy>, PolicyError> {
        let name = self.name;
        let reader = ParamReader::new(name, self.parameters(), params)?;
        (self.make)(&reader, services)
    }

    /// Returns the objective and the settings of the policy's allocations with these parameters. Parameters that the
    /// policy does not have are ignored. The result is `None` if the policy makes no allocations.
    ///
    /// # Errors
    /// Returns [`PolicyError::Parameter`] for an unknown name or a bad value.
    pub fn allocation(
        &self,
        params: &Params,
    ) -> Result<Option<(Objective, Settings)>, PolicyError> {
        let Some(objective) = self.objective else {
            return Ok(None);
        };
        let mut own = params.clone();
        own.retain(|name, _| self.parameters().any(|spec| spec.name == name));
        let reader = ParamReader::new(self.name, self.parameters(), &own)?;
        Ok(Some((objective(&reader), gavel::settings(&reader))))
    }

    /// Returns whether the policy solves linear or integer programs.
    pub fn solves(&self) -> bool {
        self.default_objective()
            .is_some_and(|objective| !objective.is_closed_form())
    }

    /// Returns the objective of the policy's allocations with default parameters, if it makes any.
    pub fn default_objective(&self) -> Option<Objective> {
        let allocation = self.allocation(&Params::new()).ok().flatten();
        allocation.map(|(objective, _)| objective)
    }

    /// Returns whether a run with these parameters needs durations in the trace.
    pub fn needs_durations(&self, params: &Params) -> bool {
        let is_given = matches!(params.get("distribution"), Some(ParamValue::List(_)));
        let value = self.reads_durations_with.and_then(|name| params.get(name));
        let is_asked = value.and_then(ParamValue::number) > Some(0.0);
        is_asked || self.reads_durations && !is_given
    }
}

/// Every policy, in the order in which lists show them.
pub static POLICIES: LazyLock<Vec<PolicyInfo>> = LazyLock::new(|| {
    [
        queues::POLICIES,
        preemptive::POLICIES,
        gandiva::POLICIES,
        themis::POLICIES,
        yarn::POLICIES,
        kai::POLICIES,
        kueue::POLICIES,
        slurm::POLICIES,
        gavel::POLICIES,
        dally::POLICIES,
        hadar::POLICIES,
        hadare::POLICIES,
        sharing::POLICIES,
        pollux::POLICIES,
        optimus::POLICIES,
    ]
    .concat()
});

/// Returns the policy with a given name.
///
/// # Errors
/// Returns [`PolicyError::UnknownPolicy`], which names the nearest policy.
pub fn find(name: &str) -> Result<&'static PolicyInfo, PolicyError> {
    POLICIES
        .iter()
        .find(|info| info.name == name)
        .ok_or_else(|| {
            let known: Vec<&str> = POLICIES.iter().map(|info| info.name).collect();
            PolicyError::UnknownPolicy {
                name: name.to_owned(),
                nearest: nearest(name, &known),
            }
        })
}

/// Creates a policy from its parameters and external services.
///
/// If a policy lacks a service that it needs, the run ends at the first decision that uses this service.
///
/// # Errors
/// Returns [`PolicyError::UnknownPolicy`] for an unknown policy, or [`PolicyError::Parameter`] for a bad parameter.
///
/// # Examples
/// ```
/// use gangline_policies::{ParamValue, Params, Services, build};
/// let params = Params::from([("placement".to_owned(), ParamValue::Str("count".to_owned()))]);
/// assert!(build("srtf", &params, Services::default()).is_ok());
/// assert!(build("strf", &params, Services::default()).is_err());
/// ```
pub fn build(
    name: &str,
    params: &Params,
    services: Services,
) -> Result<Box<dyn Policy>, PolicyError> {
    find(name)?.build(params, services)
}

/// Creates a round-based policy for tests, with shares that no objective would produce.
///
/// # Errors
/// Returns [`PolicyError`] for an unknown policy or wrong parameters.
#[doc(hidden)]
pub fn with_shares(
    name: &str,
    params: &Params,
    allocator: Box<dyn Allocator>,
) -> Result<Box<dyn Policy>, PolicyError> {
    let reader = ParamReader::new(name, find(name)?.parameters(), params)?;
    gavel::rounds(&reader, allocator)
}

fn seen(params: &ParamReader) -> Seen {
    Seen::new(params.number("estimate_error"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_agree_with_the_traits_of_the_policies() {
        for info in POLICIES.iter() {
            let policy = build(info.name, &Params::new(), Services::default()).expect("defaults");
            let traits = policy.traits();
            assert_eq!(traits.knowledge, info.knowledge, "{}", info.name);
            if let Some(name) = info.reads_durations_with {
                let params = Params::from([(name.to_owned(), ParamValue::Float(1.0))]);
                let policy = build(info.name, &params, Services::default()).expect("a number");
                assert_eq!(
                    policy.traits().knowledge,
                    Knowledge::Remaining,
                    "{}",
                    info.name
                );
                assert!(info.needs_durations(&params) && !info.needs_durations(&Params::new()));
            }
            if info.stops == Stops::InRounds {
                assert!(traits.round.is_some(), "{} has no rounds", info.name);
            }
        }
    }

    #[test]
    fn presets_are_other_names_with_valid_parameters() {
        let mut names: Vec<&str> = POLICIES.iter().map(|info| info.name).collect();
        for info in POLICIES.iter() {
            for preset in info.presets {
                assert!(
                    !names.contains(&preset.name),
                    "{} is listed twice",
                    preset.name
                );
                names.push(preset.name);
                let set = preset.params.iter();
                let params = set.map(|(name, value)| ((*name).to_owned(), value.value()));
                let built = build(info.name, &params.collect(), Services::default());
                assert!(built.is_ok(), "{}: {:?}", preset.name, built.err());
            }
        }
    }
}
