//! Parameters of the placement rules: names, defaults and how text becomes values.

use gangline_engine::PolicyError;
use gangline_model::Tier;

/// A placement rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// One server, else one rack, else several racks; each as full as possible.
    Consolidate,
    /// One server, or idle servers plus one, in one rack.
    Yarn,
    /// Like yarn, but gangs larger than a server take idle servers only.
    WholeServers,
    /// One GPU of each server, most free GPUs first, and again from the first until there are enough.
    Spread,
    /// Any free GPUs, uniformly.
    Random,
    /// Any server with room, uniformly; else any free GPUs.
    RandomServer,
    /// The lowest free GPUs: places do not count.
    Count,
    /// The fewest servers possible for models with skewed tensors, `consolidate` for others.
    Skew,
    /// The fastest of the places that `consolidate` would take at each level.
    BestSpeed,
}

/// Which of several servers or racks with room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The one with the fewest free GPUs.
    Best,
    /// The first one.
    First,
}

/// Which slots of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slots {
    /// The lowest free ones.
    Lowest,
    /// The lowest free block aligned to a power of two.
    Aligned,
}

/// Which rack, with best fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RackChoice {
    /// The one with the fewest free GPUs that are enough.
    BestFit,
    /// The one where the gang takes the fewest servers; then best fit.
    FewestServers,
}

/// How models are classed by skew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkewSource {
    /// By name.
    Flags,
    /// By the size of the largest gradient tensor.
    Sizes,
    /// By the network model.
    Oracle,
}

/// What the rules can be told; the default is what is used where nothing is said.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementParams {
    /// The rule; parameter `placement`.
    pub rule: Rule,
    /// Best or first fit.
    pub fit: Fit,
    /// Widest tier of `consolidate`.
    pub max_level: Tier,
    /// Slots of a server.
    pub slots: Slots,
    /// Choice of the rack by `consolidate` and the low-skew side of `skew`.
    pub rack_choice: RackChoice,
    /// Source of the classes of `skew`.
    pub skew: SkewSource,
    /// Skew from which a model is highly skewed (with `skew = "sizes"`).
    pub skew_threshold: f64,
    /// Loss of speed that `skew = "oracle"` accepts.
    pub skew_eps: f64,
    /// Whether `yarn` and `whole_servers` may take servers of several racks.
    pub yarn_cross_rack: bool,
}

impl Default for PlacementParams {
    fn default() -> Self {
        Self {
            rule: Rule::Consolidate,
            fit: Fit::Best,
            max_level: Tier::Network,
            slots: Slots::Lowest,
            rack_choice: RackChoice::BestFit,
            skew: SkewSource::Flags,
            skew_threshold: 0.3,
            skew_eps: 0.05,
            yarn_cross_rack: false,
        }
    }
}

const RULES: [(&str, Rule); 9] = [
    ("consolidate", Rule::Consolidate),
    ("yarn", Rule::Yarn),
    ("whole_servers", Rule::WholeServers),
    ("spread", Rule::Spread),
    ("random", Rule::Random),
    ("random_server", Rule::RandomServer),
    ("count", Rule::Count),
    ("skew", Rule::Skew),
    ("best_speed", Rule::BestSpeed),
];
const FITS: [(&str, Fit); 2] = [("best", Fit::Best), ("first", Fit::First)];
const LEVELS: [(&str, Tier); 3] = [
    ("server", Tier::Server),
    ("rack", Tier::Rack),
    ("network", Tier::Network),
];
const SLOTS: [(&str, Slots); 2] = [("lowest", Slots::Lowest), ("aligned", Slots::Aligned)];
const RACK_CHOICES: [(&str, RackChoice); 2] = [
    ("best_fit", RackChoice::BestFit),
    ("fewest_servers", RackChoice::FewestServers),
];
const SKEWS: [(&str, SkewSource); 3] = [
    ("flags", SkewSource::Flags),
    ("sizes", SkewSource::Sizes),
    ("oracle", SkewSource::Oracle),
];
const BOOLS: [(&str, bool); 2] = [("false", false), ("true", true)];

impl PlacementParams {
    /// Sets one parameter from text; `Ok(false)` if no placement parameter has this name. `policy`
    /// is for the message.
    ///
    /// # Errors
    /// [`PolicyError::Parameter`] for a value that the parameter cannot have.
    ///
    /// # Examples
    /// ```
    /// use gangline_policies::place::{PlacementParams, Rule};
    /// let mut params = PlacementParams::default();
    /// assert_eq!(params.set("fifo", "placement", "yarn"), Ok(true));
    /// assert_eq!(params.rule, Rule::Yarn);
    /// assert_eq!(params.set("fifo", "quantum_s", "5"), Ok(false));
    /// assert!(params.set("fifo", "fit", "worst").is_err());
    /// ```
    pub fn set(&mut self, policy: &str, field: &str, value: &str) -> Result<bool, PolicyError> {
        let text = Text {
            policy,
            field,
            value,
        };
        match field {
            "placement" => self.rule = text.one_of(&RULES)?,
            "fit" => self.fit = text.one_of(&FITS)?,
            "max_level" => self.max_level = text.one_of(&LEVELS)?,
            "slots" => self.slots = text.one_of(&SLOTS)?,
            "rack_choice" => self.rack_choice = text.one_of(&RACK_CHOICES)?,
            "skew" => self.skew = text.one_of(&SKEWS)?,
            "skew_threshold" => self.skew_threshold = text.fraction()?,
            "skew_eps" => self.skew_eps = text.fraction()?,
            "yarn_cross_rack" => self.yarn_cross_rack = text.one_of(&BOOLS)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether every value can be served.
    ///
    /// # Errors
    /// [`PolicyError::Parameter`] for a number out of range.
    pub fn check(&self, policy: &str) -> Result<(), PolicyError> {
        for (field, number) in [
            ("skew_threshold", self.skew_threshold),
            ("skew_eps", self.skew_eps),
        ] {
            Text {
                policy,
                field,
                value: &number.to_string(),
            }
            .fraction()?;
        }
        Ok(())
    }
}

/// A parameter as it was written.
struct Text<'a> {
    policy: &'a str,
    field: &'a str,
    value: &'a str,
}

impl Text<'_> {
    fn error(&self, expected: &str) -> PolicyError {
        PolicyError::Parameter {
            policy: self.policy.to_owned(),
            field: self.field.to_owned(),
            value: self.value.to_owned(),
            expected: expected.to_owned(),
        }
    }

    fn one_of<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T, PolicyError> {
        let found = choices.iter().find(|(name, _)| *name == self.value);
        found.map(|&(_, choice)| choice).ok_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            self.error(&format!("one of {}", names.join(", ")))
        })
    }

    fn fraction(&self) -> Result<f64, PolicyError> {
        let number: Option<f64> = self.value.parse().ok();
        let in_range = number.filter(|number| (0.0..=1.0).contains(number));
        in_range.ok_or_else(|| self.error("a number from 0 to 1"))
    }
}
