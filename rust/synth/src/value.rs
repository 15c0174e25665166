//! Values that come from Python or a command line, and their conversion to fields.

use super::error::SynthError;
use super::spec::{Arrivals, SynthModel};

/// Kind of values that a parameter accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A whole number.
    Int,
    /// A number.
    Float,
    /// One of the listed words.
    Choice(&'static [&'static str]),
    /// Names of models, or names with gang sizes.
    Models,
    /// Gang sizes with shares, such as the string `1:0.5,8:0.5`.
    Shares,
}

impl ParameterKind {
    /// Returns one word for the documentation: int, float, choice, models or shares.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int => "int",
            Self::Float => "float",
            Self::Choice(_) => "choice",
            Self::Models => "models",
            Self::Shares => "shares",
        }
    }
}

/// A parameter's value from Python or a command line.
///
/// Numbers may also be given as strings, and model names as one comma-separated string.
#[derive(Clone, Debug, PartialEq)]
pub enum SynthValue {
    /// No value, which restores the default.
    Unset,
    /// A whole number.
    Int(i128),
    /// A number.
    Float(f64),
    /// A word, or a number as a string.
    Text(String),
    /// Names.
    Names(Vec<String>),
    /// Names, each with its gang sizes.
    Models(Vec<(String, Vec<u32>)>),
    /// Gang sizes, each with its share.
    Shares(Vec<(u32, f64)>),
}

/// A value before it is stored in a field.
pub(super) struct Given<'a> {
    pub(super) key: &'static str,
    pub(super) kind: ParameterKind,
    pub(super) value: &'a SynthValue,
}

impl Given<'_> {
    fn wrong_kind(&self, expected: impl Into<String>) -> SynthError {
        let value = match self.value {
            SynthValue::Text(text) => format!("'{text}'"),
            SynthValue::Int(int) => int.to_string(),
            // The string keeps the decimal point, because a message that 10 is not a whole number would be confusing.
            SynthValue::Float(float) => format!("{float:?}"),
            other => format!("{other:?}"),
        };
        SynthError::WrongKind {
            key: self.key,
            expected: expected.into(),
            value,
        }
    }

    pub(super) fn optional<T>(
        &self,
        read: impl Fn(&Self) -> Result<T, SynthError>,
    ) -> Result<Option<T>, SynthError> {
        if *self.value == SynthValue::Unset {
            Ok(None)
        } else {
            read(self).map(Some)
        }
    }

    pub(super) fn whole(&self, most: u64) -> Result<u64, SynthError> {
        let int = match self.value {
            SynthValue::Int(int) => Some(*int),
            SynthValue::Text(text) => text.trim().parse().ok(),
            _ => None,
        };
        let int = int.ok_or_else(|| self.wrong_kind("a whole number"))?;
        u64::try_from(int)
            .ok()
            .filter(|int| *int <= most)
            .ok_or_else(|| SynthError::OutOfRange {
                key: self.key,
                value: int.to_string(),
                allowed: format!("0 to {most}"),
            })
    }

    pub(super) fn count(&self) -> Result<u32, SynthError> {
        self.whole(u64::from(u32::MAX)).map(|int| int as u32)
    }

    pub(super) fn number(&self) -> Result<f64, SynthError> {
        let number = match self.value {
            SynthValue::Int(int) => Some(*int as f64),
            SynthValue::Float(float) => Some(*float),
            SynthValue::Text(text) => text.trim().parse().ok(),
            _ => None,
        };
        number
            .filter(|number: &f64| number.is_finite())
            .ok_or_else(|| self.wrong_kind("a number"))
    }

    pub(super) fn arrivals(&self) -> Result<Arrivals, SynthError> {
        let ParameterKind::Choice(words) = self.kind else {
            unreachable!("`arrivals` is a choice");
        };
        let word = match self.value {
            SynthValue::Text(text) if words.contains(&text.as_str()) => Some(text.as_str()),
            _ => None,
        };
        Arrivals::ALL
            .into_iter()
            .find(|arrivals| Some(arrivals.name()) == word)
            .ok_or_else(|| self.wrong_kind(format!("one of {}", words.join(", "))))
    }

    pub(super) fn models(&self) -> Result<Vec<SynthModel>, SynthError> {
        let any = |name: &str| SynthModel {
            name: name.trim().to_owned(),
            gpus: None,
        };
        let models: Vec<SynthModel> = match self.value {
            SynthValue::Text(text) => text.split(',').map(any).collect(),
            SynthValue::Names(names) => names.iter().map(|name| any(name)).collect(),
            SynthValue::Models(models) => models
                .iter()
                .map(|(name, gpus)| SynthModel {
                    gpus: Some(gpus.clone()),
                    ..any(name)
                })
                .collect(),
            _ => return Err(self.wrong_kind("names of models")),
        };
        let mut names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
        names.sort_unstable();
        if names.iter().any(|name| name.is_empty()) || names.windows(2).any(|two| two[0] == two[1])
        {
            return Err(self.wrong_kind("distinct names of models that are not empty"));
        }
        Ok(models)
    }

    pub(super) fn shares(&self) -> Result<Vec<(u32, f64)>, SynthError> {
        let expected = "gang sizes with shares, such as 1:0.5,8:0.5";
        match self.value {
            SynthValue::Shares(shares) => Ok(shares.clone()),
            SynthValue::Text(text) => text
                .split(',')
                .map(|pair| {
                    let (gpus, share) = pair.split_once(':')?;
                    Some((gpus.trim().parse().ok()?, share.trim().parse().ok()?))
                })
                .collect::<Option<Vec<(u32, f64)>>>()
                .ok_or_else(|| self.wrong_kind(expected)),
            _ => Err(self.wrong_kind(expected)),
        }
    }
}
