//! Parameters of the placement rules: their names, accepted words, defaults and types, all in one place.

use crate::params::{
    ParamDefault, ParamKind, ParamReader, ParamSpec, Params, choice, flag, number,
};
use gangline_model::{Tier, words};

words! {
    /// A placement rule.
    pub enum Rule {
        /// One server, otherwise one rack, otherwise several racks; servers and racks are filled as far as possible.
        Consolidate = "consolidate",
        /// One server, otherwise idle servers plus one more server in the same rack.
        Yarn = "yarn",
        /// Like `yarn`, but gangs larger than a server take only idle servers.
        WholeServers = "whole_servers",
        /// One GPU from each server in turn, starting with the most free GPUs, until there are enough.
        Spread = "spread",
        /// Free GPUs that are drawn uniformly at random.
        Random = "random",
        /// A server drawn uniformly from those with room; if there is none, random free GPUs.
        RandomServer = "random_server",
        /// The lowest free GPUs, regardless of servers and racks.
        Count = "count",
        /// The fewest possible servers for models with skewed tensors; `consolidate` for other models.
        Skew = "skew",
        /// The fastest place among those that `consolidate` would take at each level.
        BestSpeed = "best_speed",
    }
}

words! {
    /// Rule that chooses among servers or racks with room.
    pub enum Fit {
        /// The server or rack with the fewest free GPUs.
        Best = "best",
        /// The first server or rack.
        First = "first",
    }
}

words! {
    /// Rule that chooses the slots on a server.
    pub enum Slots {
        /// The lowest free slots.
        Lowest = "lowest",
        /// The lowest free block aligned to a power of two.
        Aligned = "aligned",
    }
}

words! {
    /// Rule that chooses the rack under best fit.
    pub enum RackChoice {
        /// The rack with the fewest free GPUs among those with enough.
        BestFit = "best_fit",
        /// The rack where the gang uses the fewest servers; ties are broken by best fit.
        FewestServers = "fewest_servers",
    }
}

words! {
    /// Method of classifying models by skew.
    pub enum SkewSource {
        /// By the name of the model.
        Flags = "flags",
        /// By the size of the model's largest gradient tensor.
        Sizes = "sizes",
        /// By the speed that the network model predicts.
        Oracle = "oracle",
    }
}

/// Parameters of the placement rules, with their defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementParams {
    /// The rule; parameter `placement`.
    pub rule: Rule,
    /// Best fit or first fit.
    pub fit: Fit,
    /// Widest tier of `consolidate`.
    pub max_level: Tier,
    /// Rule that chooses the slots on a server.
    pub slots: Slots,
    /// Rule by which `consolidate` chooses a rack; `skew` uses it too, for models with low skew.
    pub rack_choice: RackChoice,
    /// Method by which `skew` classifies models.
    pub skew: SkewSource,
    /// With `skew = "sizes"`, the minimum skew at which a model counts as highly skewed.
    pub skew_threshold: f64,
    /// With `skew = "oracle"`, the loss of speed that a gang accepts.
    pub skew_eps: f64,
    /// Whether `yarn` and `whole_servers` may take servers in several racks.
    pub yarn_cross_rack: bool,
}

const LEVELS: &[&str] = &["server", "rack", "network"];

const SPECS: [ParamSpec; 9] = [
    choice("placement", Rule::NAMES, "consolidate").doc("rule that chooses the GPUs of a gang"),
    choice("fit", Fit::NAMES, "best")
        .doc("choice among places with room: best (the tightest) or first (the lowest index)"),
    choice("max_level", LEVELS, "network").doc("widest tier of consolidate"),
    choice("slots", Slots::NAMES, "lowest")
        .doc("GPUs on a server: lowest, or aligned to a power-of-two block if one is free"),
    choice("rack_choice", RackChoice::NAMES, "best_fit").doc(
        "choice of the rack, with fit = best: best_fit (the fewest free GPUs) or fewest_servers",
    ),
    choice("skew", SkewSource::NAMES, "flags").doc(
        "how the rule skew classifies models: flags (by name), sizes (by tensor sizes) or oracle (by the speed that they lose to distance)",
    ),
    number("skew_threshold", ParamKind::Fraction, 0.3)
        .doc("with skew = sizes: minimum share of the largest tensor for a model to count as skewed"),
    number("skew_eps", ParamKind::Fraction, 0.05)
        .doc("with skew = oracle: loss of speed that a gang accepts"),
    flag("yarn_cross_rack", false).doc("whether yarn and whole_servers may span racks"),
];

impl Default for PlacementParams {
    fn default() -> Self {
        ParamReader::new("", Self::specs(Rule::Consolidate), &Params::new())
            .map(|reader| Self::read(&reader))
            .expect("the defaults are in range")
    }
}

impl PlacementParams {
    /// Returns the placement parameters that every policy with a placement rule accepts; `rule` is the default rule.
    pub fn specs(rule: Rule) -> impl Iterator<Item = ParamSpec> + Clone {
        SPECS.into_iter().map(move |spec| ParamSpec {
            default: match spec.name {
                "placement" => ParamDefault::Str(rule.name()),
                _ => spec.default,
            },
            ..spec
        })
    }

    /// Reads the values of these parameters.
    pub fn read(params: &ParamReader) -> Self {
        Self {
            rule: params.choice("placement", Rule::named),
            fit: params.choice("fit", Fit::named),
            max_level: params.choice("max_level", level),
            slots: params.choice("slots", Slots::named),
            rack_choice: params.choice("rack_choice", RackChoice::named),
            skew: params.choice("skew", SkewSource::named),
            skew_threshold: params.number("skew_threshold"),
            skew_eps: params.number("skew_eps"),
            yarn_cross_rack: params.flag("yarn_cross_rack"),
        }
    }
}

fn level(name: &str) -> Option<Tier> {
    let at = LEVELS.iter().position(|&known| known == name)?;
    Some([Tier::Server, Tier::Rack, Tier::Network][at])
}
