//! Errors in a request for a synthetic trace.

use std::fmt;

/// A request that cannot be fulfilled. The fields are for programs, and the message is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SynthError {
    /// No shape has this name.
    UnknownShape {
        /// Requested name.
        name: String,
        /// Names that are similar to the requested name.
        near: Vec<String>,
    },
    /// The shape has no such parameter.
    UnknownParameter {
        /// The shape.
        shape: &'static str,
        /// The key in the request.
        key: String,
        /// Keys that are similar to the given key.
        near: Vec<String>,
    },
    /// The parameter does not accept values of this kind.
    WrongKind {
        /// Key of the parameter.
        key: &'static str,
        /// Kind of value that the parameter accepts.
        expected: String,
        /// The value in the request.
        value: String,
    },
    /// The value is outside the parameter's range.
    OutOfRange {
        /// Key of the parameter.
        key: &'static str,
        /// Value that was given.
        value: String,
        /// Description of the allowed range.
        allowed: String,
    },
    /// Two parameters exclude each other.
    Conflict {
        /// Key of one parameter.
        first: &'static str,
        /// Key of the other parameter.
        second: &'static str,
        /// Reason why the two exclude each other.
        reason: &'static str,
    },
    /// A parameter needs another parameter, which is absent.
    Missing {
        /// Key of the absent parameter.
        key: &'static str,
        /// Key of the parameter that needs it.
        needed_by: &'static str,
    },
}

impl fmt::Display for SynthError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownShape { name, near } => {
                write!(
                    formatter,
                    "no synthetic trace is called `{name}`{}",
                    hint(near)
                )
            }
            Self::UnknownParameter { shape, key, near } => {
                write!(
                    formatter,
                    "`synth:{shape}` has no parameter `{key}`{}",
                    hint(near)
                )
            }
            Self::WrongKind {
                key,
                expected,
                value,
            } => {
                write!(formatter, "`{key}` must be {expected}, not {value}")
            }
            Self::OutOfRange {
                key,
                value,
                allowed,
            } => {
                write!(formatter, "`{key}` is {value}; allowed: {allowed}")
            }
            Self::Conflict {
                first,
                second,
                reason,
            } => {
                write!(
                    formatter,
                    "`{first}` and `{second}` exclude each other: {reason}"
                )
            }
            Self::Missing { key, needed_by } => {
                write!(formatter, "`{needed_by}` needs `{key}` as well")
            }
        }
    }
}

impl std::error::Error for SynthError {}

fn hint(near: &[String]) -> String {
    if near.is_empty() {
        return String::new();
    }
    let names: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
    format!("; did you mean {}?", names.join(" or "))
}

/// Returns up to three similar names, the most similar first; equally similar names keep their order. A name is similar
/// to a word if the two differ in at most a third of the letters (or two letters, if that is more), or if one begins
/// with the other.
pub(super) fn near_names<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let most = (word.chars().count() / 3).max(2);
    let mut near: Vec<(usize, &str)> = names
        .map(|name| {
            let is_start = word.len() >= 3 && (name.starts_with(word) || word.starts_with(name));
            (if is_start { 1 } else { edits(word, name) }, name)
        })
        .filter(|(distance, name)| *distance <= most && *distance < name.chars().count())
        .collect();
    near.sort_by_key(|(distance, _)| *distance);
    near.into_iter()
        .take(3)
        .map(|(_, name)| name.to_owned())
        .collect()
}

/// Returns the Levenshtein distance between two words: the minimum number of insertions, deletions and
/// substitutions that turn one into the other.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_by_hand() {
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("same", "same"), 0);
    }

    #[test]
    fn near_names_are_few_and_ordered() {
        let names = ["jobs", "seed", "users", "max_gpus", "max_duration_s"];
        assert_eq!(near_names("job", names.into_iter()), ["jobs"]);
        assert_eq!(
            near_names("max", names.into_iter()),
            ["max_gpus", "max_duration_s"]
        );
        assert_eq!(near_names("maxgpus", names.into_iter()), ["max_gpus"]);
        assert!(near_names("zzzzzz", names.into_iter()).is_empty());
    }
}
