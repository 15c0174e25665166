//! Parameters of the placement rules: names, words, defaults and types, in one place.

use crate::params::{
    ParamDefault, ParamKind, ParamReader, ParamSpec, Params, choice, flag, number,
};
use gangline_model::{Tier, words};

words! {
    /// A placement rule.
    pub enum Rule {
        /// One server, otherwise one rack, otherwise several racks; servers and racks are filled as far as possible.
        Consolidate = "consolidate",
        /// One server, otherwise idle servers and one more server in one rack.
        Yarn = "yarn",
        /// The rule of `yarn`, but gangs larger than a server take only idle servers.
        WholeServers = "whole_servers",
        /// One GPU of each server, the server with the most free GPUs first, repeated until there are enough.
        Spread = "spread",
        /// Random free GPUs, uniformly.
        Random = "random",
        /// A server drawn uniformly from those with room; otherwise random free GPUs.
        RandomServer = "random_server",
        /// The lowest free GPUs, regardless of their place.
        Count = "count",
        /// The fewest servers possible for models with skewed tensors; `consolidate` for other models.
        Skew = "skew",
        /// The fastest of the places that `consolidate` would take at each level.
        BestSpeed = "best_speed",
    }
}

words! {
    /// Choice among servers or racks with room.
    pub enum Fit {
        /// The server or rack with the fewest free GPUs.
        Best = "best",
        /// The first server or rack.
        First = "first",
    }
}

words! {
    /// Choice of slots on a server.
    pub enum Slots {
        /// The lowest free slots.
        Lowest = "lowest",
        /// The lowest free block aligned to a power of two.
        Aligned = "aligned",
    }
}

words! {
    /// Choice of the rack, with best fit.
    pub enum RackChoice {
        /// The rack with the fewest free GPUs among those with enough.
        BestFit = "best_fit",
        /// The rack where the gang uses the fewest servers; ties are broken by best fit.
        FewestServers = "fewest_servers",
    }
}

words! {
    /// Method by which models are classified by skew.
    pub enum SkewSource {
        /// Models are classified by name.
        Flags = "flags",
        /// Models are classified by the size of the largest gradient tensor.
        Sizes = "sizes",
        /// Models are classified by the network model.
        Oracle = "oracle",
    }
}

/// Parameters of the placement rules, with their defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementParams {
    /// The rule; parameter `placement`.
    pub rule: Rule,
    /// Choice of best or first fit.
    pub fit: Fit,
    /// Widest tier of `consolidate`.
    pub max_level: Tier,
    /// Slots of a server.
    pub slots: Slots,
    /// Choice of the rack by `consolidate`, and by `skew` for models with low skew.
    pub rack_choice: RackChoice,
    /// Source of the classes of `skew`.
    pub skew: SkewSource,
    /// Minimum skew of a model that counts as highly skewed, with `skew = "sizes"`.
    pub skew_threshold: f64,
    /// Loss of speed that `skew = "oracle"` accepts.
    pub skew_eps: f64,
    /// Whether `yarn` and `whole_servers` may take servers of several racks.
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
    /// Returns the parameters of every policy that uses the placement rules; `rule` is the default.
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
