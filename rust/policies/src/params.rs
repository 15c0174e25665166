//! Parameters as data: what a policy takes, and the values it was given.
//!
//! A policy states its parameters once, in the registry; everything that checks, prints or documents them
//! reads that statement. Values come from outside as [`ParamValue`] and are read through [`ParamReader`].

use gangline_engine::PolicyError;
use gangline_model::SimSpan;
use std::collections::BTreeMap;

/// A value given to a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum ParamValue {
    /// Not given: what that means is stated with the parameter.
    None,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// A word.
    Str(String),
    /// Numbers.
    List(Vec<f64>),
    /// Numbers by name.
    Table(BTreeMap<String, f64>),
}

/// Values by parameter name.
pub type Params = BTreeMap<String, ParamValue>;

/// Default of a parameter; the form of a [`ParamValue`] that a table of constants can hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParamDefault {
    /// Not given.
    None,
    /// True or false.
    Bool(bool),
    /// A whole number, of a parameter that is one in Python too.
    Int(i64),
    /// A number.
    Float(f64),
    /// A word.
    Str(&'static str),
    /// Numbers.
    List(&'static [f64]),
}

impl ParamDefault {
    /// As a value.
    pub fn value(self) -> ParamValue {
        match self {
            Self::None => ParamValue::None,
            Self::Bool(value) => ParamValue::Bool(value),
            // as a reader holds every number
            Self::Int(value) => ParamValue::Float(value as f64),
            Self::Float(value) => ParamValue::Float(value),
            Self::Str(value) => ParamValue::Str(value.to_owned()),
            Self::List(values) => ParamValue::List(values.to_vec()),
        }
    }
}

/// What values a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParamKind {
    /// True or false.
    Bool,
    /// A finite number of at least this.
    AtLeast(f64),
    /// A finite number above this.
    Above(f64),
    /// A whole number of at least this.
    Whole(f64),
    /// A finite number of at least this, or none.
    Maybe(f64),
    /// A whole number of at least this, or none.
    MaybeWhole(f64),
    /// A number of at least 0 and less than 1.
    Share,
    /// A number from 0 to 1.
    Fraction,
    /// Any text; what it may say depends on the cluster.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Positive numbers, strictly increasing; at least one.
    Increasing,
    /// Positive numbers in any order, at least one; or none.
    Positives,
    /// A positive share by name, at least one, together at most 1; or none.
    NamedShares,
    /// A positive weight by name, at least one; or none.
    NamedWeights,
}

/// One parameter of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParamSpec {
    /// Name, unit last.
    pub name: &'static str,
    /// What values it takes.
    pub kind: ParamKind,
    /// Value if none is given.
    pub default: ParamDefault,
    /// Unit, empty if it has none.
    pub unit: &'static str,
    /// One line for the reader of the docs.
    pub doc: &'static str,
    /// For tests that draw values: it is 0 or longer than every restart overhead, or jobs make no progress.
    pub outlasts_restarts: bool,
}

impl ParamSpec {
    /// The same, with a unit.
    #[must_use]
    pub const fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    /// The same, with a line for the reader of the docs.
    #[must_use]
    pub const fn doc(self, doc: &'static str) -> Self {
        Self { doc, ..self }
    }

    /// The same, with [`Self::outlasts_restarts`].
    #[must_use]
    pub const fn outlasting_restarts(self) -> Self {
        Self {
            outlasts_restarts: true,
            ..self
        }
    }
}

/// One parameter, without unit and doc.
pub const fn spec(name: &'static str, kind: ParamKind, default: ParamDefault) -> ParamSpec {
    ParamSpec {
        name,
        kind,
        default,
        unit: "",
        doc: "",
        outlasts_restarts: false,
    }
}

/// A number.
pub const fn number(name: &'static str, kind: ParamKind, default: f64) -> ParamSpec {
    spec(name, kind, ParamDefault::Float(default))
}

/// True or false.
pub const fn flag(name: &'static str, default: bool) -> ParamSpec {
    spec(name, ParamKind::Bool, ParamDefault::Bool(default))
}

/// One of some words.
pub const fn choice(
    name: &'static str,
    words: &'static [&'static str],
    default: &'static str,
) -> ParamSpec {
    spec(name, ParamKind::Choice(words), ParamDefault::Str(default))
}

/// Reads the values of one policy, with its defaults, and words the errors.
#[derive(Clone, Debug)]
pub struct ParamReader {
    policy: String,
    values: Params,
}

impl ParamReader {
    /// Checks the given values against the policy's statement and fills in the defaults.
    ///
    /// # Errors
    /// [`PolicyError::Parameter`] for an unknown name (naming the nearest) or a bad value.
    pub fn new(
        policy: &str,
        specs: impl Iterator<Item = ParamSpec> + Clone,
        given: &Params,
    ) -> Result<Self, PolicyError> {
        let mut reader = Self {
            policy: policy.to_owned(),
            values: Params::new(),
        };
        for (name, value) in given {
            if !specs.clone().any(|spec| spec.name == name) {
                let known: Vec<&str> = specs.clone().map(|spec| spec.name).collect();
                let near = nearest(name, &known);
                return Err(reader.bad(name, value, &format!("a known parameter, such as {near}")));
            }
        }
        for spec in specs {
            let value = given
                .get(spec.name)
                .cloned()
                .unwrap_or_else(|| spec.default.value());
            let value = reader.check(&spec, value)?;
            reader.values.insert(spec.name.to_owned(), value);
        }
        Ok(reader)
    }

    fn check(&self, spec: &ParamSpec, value: ParamValue) -> Result<ParamValue, PolicyError> {
        let fine = match (spec.kind, &value) {
            (ParamKind::Bool, ParamValue::Bool(_))
            | (ParamKind::Text, ParamValue::Str(_))
            | (
                ParamKind::Positives
                | ParamKind::NamedShares
                | ParamKind::NamedWeights
                | ParamKind::Maybe(_)
                | ParamKind::MaybeWhole(_),
                ParamValue::None,
            ) => true,
            (ParamKind::NamedWeights, ParamValue::Table(table)) => {
                let weights: Vec<f64> = table.values().copied().collect();
                !weights.is_empty() && all_positive(&weights)
            }
            (
                ParamKind::AtLeast(_)
                | ParamKind::Above(_)
                | ParamKind::Whole(_)
                | ParamKind::Maybe(_)
                | ParamKind::MaybeWhole(_)
                | ParamKind::Share
                | ParamKind::Fraction,
                ParamValue::Int(number),
            ) => {
                return self.check(spec, ParamValue::Float(*number as f64));
            }
            (ParamKind::AtLeast(least) | ParamKind::Maybe(least), ParamValue::Float(x)) => {
                x.is_finite() && *x >= least
            }
            (ParamKind::Whole(least) | ParamKind::MaybeWhole(least), ParamValue::Float(x)) => {
                x.is_finite() && *x >= least && x.fract() == 0.0
            }
            (ParamKind::Above(bound), ParamValue::Float(x)) => x.is_finite() && *x > bound,
            (ParamKind::Share, ParamValue::Float(x)) => (0.0..1.0).contains(x),
            (ParamKind::Fraction, ParamValue::Float(x)) => (0.0..=1.0).contains(x),
            (ParamKind::Choice(words), ParamValue::Str(word)) => words.contains(&word.as_str()),
            (ParamKind::Increasing, ParamValue::List(list)) => {
                !list.is_empty() && all_positive(list) && list.windows(2).all(|w| w[0] < w[1])
            }
            (ParamKind::Positives, ParamValue::List(list)) => {
                !list.is_empty() && all_positive(list)
            }
            (ParamKind::NamedShares, ParamValue::Table(table)) => {
                let shares: Vec<f64> = table.values().copied().collect();
                // thirds written in decimals may add up to a little more than 1
                all_positive(&shares) && (1e-300..=1.0 + 1e-9).contains(&shares.iter().sum())
            }
            _ => false,
        };
        if fine {
            Ok(value)
        } else {
            let mut expected = spec.kind.expected();
            if matches!(value, ParamValue::Float(x) if !x.is_finite()) {
                expected = expected.replacen("number", "finite number", 1);
            }
            Err(self.bad(spec.name, &value, &expected))
        }
    }

    fn bad(&self, field: &str, value: &ParamValue, expected: &str) -> PolicyError {
        PolicyError::Parameter {
            policy: self.policy.clone(),
            field: field.to_owned(),
            value: value.to_string(),
            expected: expected.to_owned(),
        }
    }

    /// Refuses another value than the default, which a policy may have no use for beside another.
    ///
    /// # Errors
    /// [`PolicyError::Parameter`]; `when` says why.
    pub fn expect_default(&self, spec: &ParamSpec, when: &str) -> Result<(), PolicyError> {
        let default = spec.default.value();
        match self.get(spec.name) {
            Some(value) if *value != default => {
                Err(self.bad(spec.name, value, &format!("{default} {when}")))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Name of the policy.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    fn get(&self, name: &str) -> Option<&ParamValue> {
        self.values.get(name)
    }

    /// A truth value; false if the policy has no such parameter.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some(ParamValue::Bool(true)))
    }

    /// A number; 0 if the policy has no such parameter.
    pub fn number(&self, name: &str) -> f64 {
        match self.get(name) {
            Some(ParamValue::Float(value)) => *value,
            _ => 0.0,
        }
    }

    /// A word; empty if the policy has no such parameter.
    pub fn word(&self, name: &str) -> &str {
        match self.get(name) {
            Some(ParamValue::Str(value)) => value,
            _ => "",
        }
    }

    /// What a word stands for.
    ///
    /// # Panics
    /// If the words of the parameter are not those that `named` knows.
    pub fn choice<T>(&self, name: &str, named: fn(&str) -> Option<T>) -> T {
        named(self.word(name)).expect("the reader has checked the word")
    }

    /// Numbers, if given.
    pub fn list(&self, name: &str) -> Option<&[f64]> {
        match self.get(name) {
            Some(ParamValue::List(values)) => Some(values),
            _ => None,
        }
    }

    /// Numbers by name, if given.
    pub fn table(&self, name: &str) -> Option<&BTreeMap<String, f64>> {
        match self.get(name) {
            Some(ParamValue::Table(values)) => Some(values),
            _ => None,
        }
    }

    /// Seconds as nanoseconds.
    ///
    /// # Errors
    /// [`PolicyError::Parameter`] beyond the range of simulated time.
    pub fn span(&self, name: &str) -> Result<SimSpan, PolicyError> {
        let seconds = self.number(name);
        SimSpan::from_seconds(seconds)
            .map_err(|_| self.bad(name, &ParamValue::Float(seconds), "at most 4e9 seconds"))
    }

    /// Seconds as nanoseconds, for what repeats: the next time must lie later.
    ///
    /// # Errors
    /// [`PolicyError::Parameter`] beyond the range of simulated time, and below its step.
    pub fn period(&self, name: &str) -> Result<SimSpan, PolicyError> {
        let span = self.span(name)?;
        if span > SimSpan::ZERO {
            return Ok(span);
        }
        let given = ParamValue::Float(self.number(name));
        Err(self.bad(name, &given, "at least 1e-9 seconds, a step of the clock"))
    }

    /// Seconds as nanoseconds, if given.
    ///
    /// # Errors
    /// As [`Self::span`].
    pub fn maybe_span(&self, name: &str) -> Result<Option<SimSpan>, PolicyError> {
        match self.get(name) {
            Some(ParamValue::Float(_)) => self.span(name).map(Some),
            _ => Ok(None),
        }
    }

    /// GPU-seconds as GPU-nanoseconds.
    ///
    /// # Errors
    /// [`PolicyError::Parameter`] naming the parameter, above 1e20.
    pub fn gpu_ns(&self, name: &str, gpu_seconds: f64) -> Result<i128, PolicyError> {
        if gpu_seconds.abs() <= 1e20 {
            // halves up, exact: beyond 2^53 every f64 is whole
            return Ok((gpu_seconds * 1e9).round() as i128);
        }
        Err(self.bad(
            name,
            &ParamValue::Float(gpu_seconds),
            "at most 1e20 GPU-seconds",
        ))
    }
}

fn all_positive(list: &[f64]) -> bool {
    list.iter().all(|x| x.is_finite() && *x > 0.0)
}

impl ParamKind {
    /// The values that it takes, in words.
    pub fn expected(self) -> String {
        match self {
            ParamKind::Bool => "true or false".to_owned(),
            ParamKind::AtLeast(least) => format!("a number >= {least}"),
            ParamKind::Whole(least) => format!("a whole number >= {least}"),
            ParamKind::MaybeWhole(least) => format!("a whole number >= {least} or none"),
            ParamKind::Maybe(least) => format!("a number >= {least} or none"),
            ParamKind::Above(bound) => format!("a number > {bound}"),
            ParamKind::Share => "a number >= 0 and < 1".to_owned(),
            ParamKind::Fraction => "a number from 0 to 1".to_owned(),
            ParamKind::Text => "text".to_owned(),
            ParamKind::Choice(words) => format!("one of {}", words.join(", ")),
            ParamKind::Increasing => "positive numbers, strictly increasing".to_owned(),
            ParamKind::Positives => "positive numbers".to_owned(),
            ParamKind::NamedWeights => "a table of positive weights by name".to_owned(),
            ParamKind::NamedShares => {
                "a table of positive shares by name that add up to at most 1".to_owned()
            }
        }
    }
}

impl std::fmt::Display for ParamValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Bool(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            Self::Float(value) if value.is_finite() && value.abs() >= 1e16 => {
                write!(f, "{value:e}")
            }
            Self::Float(value) => value.fmt(f),
            Self::Str(value) => value.fmt(f),
            Self::List(values) => write!(f, "{values:?}"),
            Self::Table(values) => {
                let pairs: Vec<String> = values.iter().map(|(k, v)| format!("{k} = {v}")).collect();
                write!(f, "{{{}}}", pairs.join(", "))
            }
        }
    }
}

/// The word among `known` that takes the fewest edits to become `word`; the first of equals.
pub fn nearest(word: &str, known: &[&str]) -> String {
    known
        .iter()
        .min_by_key(|name| edits(word, name))
        .map_or_else(String::new, |&name| name.to_owned())
}

fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECS: [ParamSpec; 3] = [
        spec(
            "limits",
            ParamKind::Increasing,
            ParamDefault::List(&[1.0, 2.0]),
        )
        .unit("GPU-s"),
        number("knob", ParamKind::AtLeast(0.0), 0.0),
        choice("fit", &["best", "first"], "best"),
    ];

    fn read(name: &str, value: ParamValue) -> Result<ParamReader, PolicyError> {
        let given = Params::from([(name.to_owned(), value)]);
        ParamReader::new("toy", SPECS.into_iter(), &given)
    }

    #[test]
    fn fills_defaults_and_widens_whole_numbers() {
        let reader = read("knob", ParamValue::Int(2)).expect("fine");
        assert_eq!(reader.number("knob").to_bits(), 2.0_f64.to_bits());
        assert_eq!(reader.list("limits"), Some(&[1.0, 2.0][..]));
        assert_eq!(reader.word("fit"), "best");
    }

    #[test]
    fn a_whole_default_is_the_number_that_a_reader_holds() {
        let parts = spec("parts", ParamKind::Whole(1.0), ParamDefault::Int(1));
        let reader = |given: &Params| ParamReader::new("toy", [parts].into_iter(), given);
        for given in [
            Params::new(),
            Params::from([("parts".to_owned(), ParamValue::Int(1))]),
        ] {
            let reader = reader(&given).expect("fine");
            assert!(reader.expect_default(&parts, "here").is_ok());
        }
        let two = Params::from([("parts".to_owned(), ParamValue::Int(2))]);
        assert!(
            reader(&two)
                .expect("fine")
                .expect_default(&parts, "here")
                .is_err()
        );
    }

    #[test]
    fn what_is_no_finite_number_is_told_so_and_large_ones_stay_short() {
        let told = |value: f64| match read("knob", ParamValue::Float(value)) {
            Err(PolicyError::Parameter {
                value, expected, ..
            }) => (value, expected),
            other => panic!("{other:?}"),
        };
        let of = |value: &str, expected: &str| (value.to_owned(), expected.to_owned());
        assert_eq!(told(f64::INFINITY), of("inf", "a finite number >= 0"));
        assert_eq!(told(-1e300), of("-1e300", "a number >= 0"));
        assert_eq!(told(-12.5), of("-12.5", "a number >= 0"));
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest() {
        let Err(PolicyError::Parameter {
            field, expected, ..
        }) = read("limit", ParamValue::None)
        else {
            panic!("accepted");
        };
        assert_eq!(field, "limit");
        assert!(expected.contains("limits"), "{expected}");
    }

    #[test]
    fn bad_values_are_refused() {
        for (name, value) in [
            ("limits", ParamValue::List(vec![2.0, 2.0])),
            ("limits", ParamValue::List(vec![0.0])),
            ("limits", ParamValue::List(vec![])),
            ("limits", ParamValue::Int(3)),
            ("knob", ParamValue::Float(-1.0)),
            ("knob", ParamValue::Float(f64::NAN)),
            ("fit", ParamValue::Str("worst".to_owned())),
        ] {
            assert!(read(name, value.clone()).is_err(), "{name} = {value}");
        }
    }
}
