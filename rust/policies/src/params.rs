//! Parameters as data: the parameters that a policy accepts, and their values.
//!
//! A policy declares its parameters once, in the registry. All code that checks, prints or documents parameters reads
//! this declaration. Values enter as [`ParamValue`] and are read through [`ParamReader`].

use gangline_engine::PolicyError;
use gangline_model::SimSpan;
use std::collections::BTreeMap;

/// A value given to a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum ParamValue {
    /// No value; the declaration of the parameter says what this means.
    None,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// A word.
    Str(String),
    /// Values in order.
    List(Vec<ParamValue>),
    /// Values by name.
    Table(Params),
}

/// Values by parameter name.
pub type Params = BTreeMap<String, ParamValue>;

impl ParamValue {
    /// Creates a list of numbers.
    pub fn numbers(values: impl IntoIterator<Item = f64>) -> Self {
        Self::List(values.into_iter().map(Self::Float).collect())
    }

    /// Creates a list of words.
    pub fn words<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let words = values.into_iter().map(|word| Self::Str(word.to_owned()));
        Self::List(words.collect())
    }

    /// Creates a table of numbers, keyed by name.
    pub fn named(values: impl IntoIterator<Item = (String, f64)>) -> Self {
        let pairs = values.into_iter();
        Self::Table(pairs.map(|(name, x)| (name, Self::Float(x))).collect())
    }

    /// Returns the value as a number, if it is a number.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns the value as a string, if it is a string.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Str(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the value as a list of strings, if it is such a list.
    pub fn texts(&self) -> Option<Vec<&str>> {
        match self {
            Self::List(values) => values.iter().map(Self::text).collect(),
            _ => None,
        }
    }
}

/// Default of a parameter, in a form that can be stored in a table of constants; see [`ParamValue`] for the form at run
/// time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParamDefault {
    /// No value.
    None,
    /// True or false.
    Bool(bool),
    /// A whole number, for a parameter that is also an integer in Python.
    Int(i64),
    /// A number.
    Float(f64),
    /// A word.
    Str(&'static str),
    /// Numbers.
    List(&'static [f64]),
    /// Words.
    Words(&'static [&'static str]),
}

impl ParamDefault {
    /// Returns the default as a [`ParamValue`].
    pub fn value(self) -> ParamValue {
        match self {
            Self::None => ParamValue::None,
            Self::Bool(value) => ParamValue::Bool(value),
            // A reader stores every number as a float.
            Self::Int(value) => ParamValue::Float(value as f64),
            Self::Float(value) => ParamValue::Float(value),
            Self::Str(value) => ParamValue::Str(value.to_owned()),
            Self::List(values) => ParamValue::numbers(values.iter().copied()),
            Self::Words(values) => ParamValue::words(values.iter().copied()),
        }
    }
}

/// Kind of values that a parameter accepts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParamKind {
    /// True or false.
    Bool,
    /// A finite number that is at least the given one.
    AtLeast(f64),
    /// A finite number above the given one.
    Above(f64),
    /// A whole number that is at least the given one.
    Whole(f64),
    /// A finite number that is at least the given one; or none.
    Maybe(f64),
    /// A whole number that is at least the given one; or none.
    MaybeWhole(f64),
    /// A number that is at least 0 and less than 1.
    Share,
    /// A number from 0 to 1.
    Fraction,
    /// Any string; which strings are valid depends on the cluster.
    Text,
    /// One of the given words.
    Choice(&'static [&'static str]),
    /// At least one positive number, in strictly increasing order.
    Increasing,
    /// At least one positive number, in any order; or none.
    Positives,
    /// At least one positive share, keyed by name, with a sum of at most 1; or none.
    NamedShares,
    /// At least one positive weight, keyed by name; or none.
    NamedWeights,
    /// Values of the given kind, keyed by name; or none.
    Named(&'static ParamKind),
    /// Strings in order, without duplicates.
    Names,
    /// At least one of the given words, in the given order.
    Words(&'static [&'static str]),
    /// Tables in order, each with the given keys; or none. Strings without a default are required in each table.
    Tables(&'static [ParamSpec]),
}

/// One parameter of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParamSpec {
    /// Name of the parameter, with its unit (if any) at the end.
    pub name: &'static str,
    /// Kind of the parameter's values.
    pub kind: ParamKind,
    /// Default value.
    pub default: ParamDefault,
    /// Unit of the parameter, or an empty string.
    pub unit: &'static str,
    /// One-line description for the documentation.
    pub doc: &'static str,
    /// Whether a positive value must exceed every restart overhead so that jobs make progress; tests that draw random
    /// values read this.
    pub outlasts_restarts: bool,
}

impl ParamSpec {
    /// Sets the unit.
    #[must_use]
    pub const fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    /// Sets the one-line description for the documentation.
    #[must_use]
    pub const fn doc(self, doc: &'static str) -> Self {
        Self { doc, ..self }
    }

    /// Sets [`Self::outlasts_restarts`].
    #[must_use]
    pub const fn outlasting_restarts(self) -> Self {
        Self {
            outlasts_restarts: true,
            ..self
        }
    }
}

/// Declares a parameter that has no unit and no documentation yet.
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

/// Declares a number.
pub const fn number(name: &'static str, kind: ParamKind, default: f64) -> ParamSpec {
    spec(name, kind, ParamDefault::Float(default))
}

/// Declares a flag.
pub const fn flag(name: &'static str, default: bool) -> ParamSpec {
    spec(name, ParamKind::Bool, ParamDefault::Bool(default))
}

/// Declares a choice among words.
pub const fn choice(
    name: &'static str,
    words: &'static [&'static str],
    default: &'static str,
) -> ParamSpec {
    spec(name, ParamKind::Choice(words), ParamDefault::Str(default))
}

/// Reads the parameter values of one policy, including defaults, and builds error messages.
#[derive(Clone, Debug)]
pub struct ParamReader {
    policy: String,
    /// Path of the values: empty, or the path of a table within a parameter, ending in a dot.
    path: String,
    values: Params,
}

impl ParamReader {
    /// Checks the given values against the policy's declaration and fills in the defaults.
    ///
    /// # Errors
    /// Returns [`PolicyError::Parameter`] for a bad value or an unknown name; for an unknown name, the error suggests
    /// the nearest known name.
    pub fn new(
        policy: &str,
        specs: impl Iterator<Item = ParamSpec> + Clone,
        given: &Params,
    ) -> Result<Self, PolicyError> {
        Self::of_table(policy, String::new(), specs, given.clone())
    }

    fn of_table(
        policy: &str,
        path: String,
        specs: impl Iterator<Item = ParamSpec> + Clone,
        mut given: Params,
    ) -> Result<Self, PolicyError> {
        let mut reader = Self {
            policy: policy.to_owned(),
            path,
            values: Params::new(),
        };
        for (name, value) in &given {
            if !specs.clone().any(|spec| spec.name == name) {
                let known: Vec<&str> = specs.clone().map(|spec| spec.name).collect();
                let expected = format!("one of {}{}", known.join(", "), guess(name, &known));
                return Err(reader.bad(name, value, &expected));
            }
        }
        for spec in specs {
            let value = given
                .remove(spec.name)
                .unwrap_or_else(|| spec.default.value());
            let value = reader.check(&spec, value)?;
            reader.values.insert(spec.name.to_owned(), value);
        }
        Ok(reader)
    }

    /// Converts a value to the form that readers store, if it is of the right kind.
    fn check(&self, spec: &ParamSpec, value: ParamValue) -> Result<ParamValue, PolicyError> {
        match (spec.kind, value) {
            (ParamKind::Named(_), ParamValue::None) => Ok(ParamValue::Table(Params::new())),
            (ParamKind::Tables(_), ParamValue::None) => Ok(ParamValue::List(Vec::new())),
            (ParamKind::Named(&kind), ParamValue::Table(table)) => {
                let inside = self.inside(spec.name);
                let entries = table.into_iter().map(|(name, value)| {
                    let value = inside.check_kind(kind, &name, value)?;
                    Ok((name, value))
                });
                Ok(ParamValue::Table(entries.collect::<Result<_, _>>()?))
            }
            (ParamKind::Tables(keys), ParamValue::List(rows)) => {
                let rows = rows.into_iter().enumerate().map(|(at, row)| {
                    let row_name = format!("{}[{at}]", spec.name);
                    let ParamValue::Table(mut row) = row else {
                        return Err(self.bad(&row_name, &row, &expected_keys("a table", keys)));
                    };
                    row.retain(|_, value| *value != ParamValue::None);
                    let path = self.inside(&row_name).path;
                    let specs = keys.iter().copied();
                    let reader = Self::of_table(&self.policy, path, specs, row)?;
                    Ok(ParamValue::Table(reader.values))
                });
                Ok(ParamValue::List(rows.collect::<Result<_, _>>()?))
            }
            (kind, value) => self.check_kind(kind, spec.name, value),
        }
    }

    /// Returns a reader without values, for the contents of the value `name`.
    fn inside(&self, name: &str) -> Self {
        Self {
            policy: self.policy.clone(),
            path: format!("{}{name}.", self.path),
            values: Params::new(),
        }
    }

    fn check_kind(
        &self,
        kind: ParamKind,
        name: &str,
        value: ParamValue,
    ) -> Result<ParamValue, PolicyError> {
        let value = widened(kind, value);
        if kind.takes(&value) {
            return Ok(value);
        }
        let mut expected = kind.expected();
        if matches!(value, ParamValue::Float(x) if !x.is_finite()) {
            expected = expected.replacen("number", "finite number", 1);
        }
        if let ParamValue::Str(text) = &value
            && let Ok(number) = text.parse()
            && kind.takes(&ParamValue::Float(number))
        {
            expected = format!("{expected}, not a string: write {text} without quotes");
        }
        if let ParamKind::Choice(words) | ParamKind::Words(words) = kind {
            let given = value.text().map(|text| vec![text]).or(value.texts());
            let wrong = given
                .into_iter()
                .flatten()
                .find(|text| !words.contains(text));
            expected += &wrong.map_or_else(String::new, |text| guess(text, words));
        }
        if (kind, &value) == (ParamKind::Text, &ParamValue::None) {
            expected = format!("{expected}: it must be given");
        }
        Err(self.bad(name, &value, &expected))
    }

    /// Returns the error for a value of the right kind that a policy cannot use.
    pub fn refuse(&self, field: &str, expected: &str) -> PolicyError {
        let value = self.get(field).unwrap_or(&ParamValue::None);
        self.bad(field, value, expected)
    }

    fn bad(&self, field: &str, value: &ParamValue, expected: &str) -> PolicyError {
        PolicyError::Parameter {
            policy: self.policy.clone(),
            field: format!("{}{field}", self.path),
            value: value.to_string(),
            expected: expected.to_owned(),
        }
    }

    /// For a parameter that has no effect because of another parameter, refuses every value except the default.
    ///
    /// # Errors
    /// Returns [`PolicyError::Parameter`] for a value other than the default; `when` states why the parameter has no
    /// effect.
    pub fn expect_default(&self, spec: &ParamSpec, when: &str) -> Result<(), PolicyError> {
        let default = spec.default.value();
        match self.get(spec.name) {
            Some(value) if *value != default => {
                Err(self.bad(spec.name, value, &format!("{default} {when}")))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the name of the policy.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    fn get(&self, name: &str) -> Option<&ParamValue> {
        self.values.get(name)
    }

    /// Returns a truth value; false if the policy has no such parameter.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some(ParamValue::Bool(true)))
    }

    /// Returns a number; 0 if the policy has no such parameter.
    pub fn number(&self, name: &str) -> f64 {
        match self.get(name) {
            Some(ParamValue::Float(value)) => *value,
            _ => 0.0,
        }
    }

    /// Returns a word; it is empty if the policy has no such parameter.
    pub fn word(&self, name: &str) -> &str {
        match self.get(name) {
            Some(ParamValue::Str(value)) => value,
            _ => "",
        }
    }

    /// Returns the enum variant for which a word stands.
    ///
    /// # Panics
    /// Panics if `named` does not know all words of the parameter.
    pub fn choice<T>(&self, name: &str, named: fn(&str) -> Option<T>) -> T {
        named(self.word(name)).expect("the reader has checked the word")
    }

    /// Returns a number; `None` if there is no value.
    pub fn maybe_number(&self, name: &str) -> Option<f64> {
        self.get(name).and_then(ParamValue::number)
    }

    /// Returns a list of numbers; `None` if there is no value.
    pub fn list(&self, name: &str) -> Option<Vec<f64>> {
        match self.get(name) {
            Some(ParamValue::List(values)) => values.iter().map(ParamValue::number).collect(),
            _ => None,
        }
    }

    /// Returns a list of strings; it is empty if the policy has no such parameter.
    pub fn texts(&self, name: &str) -> Vec<&str> {
        let texts = self.get(name).and_then(ParamValue::texts);
        texts.unwrap_or_default()
    }

    /// Returns the values, keyed by name; `None` if there is no value. A [`ParamKind::Named`] without a value is an
    /// empty table instead.
    pub fn table(&self, name: &str) -> Option<&Params> {
        match self.get(name) {
            Some(ParamValue::Table(values)) => Some(values),
            _ => None,
        }
    }

    /// Returns the numbers, keyed by name; `None` if there is no value.
    pub fn named_numbers(&self, name: &str) -> Option<BTreeMap<String, f64>> {
        let pairs = self.table(name)?.iter();
        pairs
            .map(|(key, value)| Some((key.clone(), value.number()?)))
            .collect()
    }

    /// Returns a reader for each table in a list.
    pub fn tables(&self, name: &str) -> Vec<Self> {
        let Some(ParamValue::List(rows)) = self.get(name) else {
            return Vec::new();
        };
        let readers = rows.iter().enumerate().filter_map(|(at, row)| match row {
            ParamValue::Table(values) => Some(Self {
                values: values.clone(),
                ..self.inside(&format!("{name}[{at}]"))
            }),
            _ => None,
        });
        readers.collect()
    }

    /// Returns a reader for each table in a list. The words under the given key must differ from table to table.
    ///
    /// # Errors
    /// Returns [`PolicyError::Parameter`] for a word that an earlier table already has.
    pub fn distinct_tables(&self, name: &str, key: &str) -> Result<Vec<Self>, PolicyError> {
        let rows = self.tables(name);
        let mut seen = BTreeMap::new();
        for (at, row) in rows.iter().enumerate() {
            if let Some(first) = seen.insert(row.word(key), at) {
                let expected = format!(
                    "a different {key}: {}{name}[{first}] already has this one",
                    self.path
                );
                return Err(row.refuse(key, &expected));
            }
        }
        Ok(rows)
    }

    /// Returns a time that is given in seconds, rounded to nanoseconds.
    ///
    /// # Errors
    /// Returns [`PolicyError::Parameter`] for a time beyond the range of simulated time.
    pub fn span(&self, name: &str) -> Result<SimSpan, PolicyError> {
        let seconds = self.number(name);
        SimSpan::from_seconds(seconds)
            .map_err(|_| self.bad(name, &ParamValue::Float(seconds), "at most 4e9 seconds"))
    }

    /// Returns the period of a repeated event, which is given in seconds and must be at least 1 ns.
    ///
    /// # Errors
    /// Returns [`PolicyError::Parameter`] for a time beyond the range of simulated time, or below its resolution.
    pub fn period(&self, name: &str) -> Result<SimSpan, PolicyError> {
        let span = self.span(name)?;
        if span > SimSpan::ZERO {
            return Ok(span);
        }
        let given = ParamValue::Float(self.number(name));
        Err(self.bad(name, &given, "at least 1e-9 seconds, a step of the clock"))
    }

    /// Returns a time that is given in seconds, rounded to nanoseconds; `None` if there is no value.
    ///
    /// # Errors
    /// Returns the errors of [`Self::span`].
    pub fn maybe_span(&self, name: &str) -> Result<Option<SimSpan>, PolicyError> {
        match self.get(name) {
            Some(ParamValue::Float(_)) => self.span(name).map(Some),
            _ => Ok(None),
        }
    }

    /// Converts GPU-seconds to GPU-nanoseconds.
    ///
    /// # Errors
    /// Returns [`PolicyError::Parameter`] for a number above 1e20; the error names the parameter.
    pub fn gpu_ns(&self, name: &str, gpu_seconds: f64) -> Result<i128, PolicyError> {
        if gpu_seconds.abs() <= 1e20 {
            // Numbers are rounded to the nearest whole number (halves up). Larger numbers are exact, because every f64
            // beyond 2^53 is whole.
            return Ok((gpu_seconds * 1e9).round() as i128);
        }
        Err(self.bad(
            name,
            &ParamValue::Float(gpu_seconds),
            "at most 1e20 GPU-seconds",
        ))
    }
}

/// Converts whole numbers to floats if the kind requires it.
fn widened(kind: ParamKind, value: ParamValue) -> ParamValue {
    let float = |x: ParamValue| x.number().map_or(x, ParamValue::Float);
    match (kind, value) {
        (
            ParamKind::AtLeast(_)
            | ParamKind::Above(_)
            | ParamKind::Whole(_)
            | ParamKind::Maybe(_)
            | ParamKind::MaybeWhole(_)
            | ParamKind::Share
            | ParamKind::Fraction,
            value,
        ) => float(value),
        (ParamKind::Increasing | ParamKind::Positives, ParamValue::List(values)) => {
            ParamValue::List(values.into_iter().map(float).collect())
        }
        (ParamKind::NamedShares | ParamKind::NamedWeights, ParamValue::Table(table)) => {
            let pairs = table.into_iter().map(|(name, value)| (name, float(value)));
            ParamValue::Table(pairs.collect())
        }
        (_, value) => value,
    }
}

/// Returns the numbers, if all of them are positive.
fn positives<'a>(values: impl Iterator<Item = &'a ParamValue>) -> Option<Vec<f64>> {
    let positive = |x: &f64| x.is_finite() && *x > 0.0;
    values.map(|x| x.number().filter(positive)).collect()
}

fn expected_keys(what: &str, keys: &[ParamSpec]) -> String {
    let names: Vec<&str> = keys.iter().map(|key| key.name).collect();
    format!("{what} with the possible keys {}", names.join(", "))
}

fn are_distinct(values: &[ParamValue]) -> bool {
    let is_first = |(at, value)| !values[..at].contains(value);
    values.iter().enumerate().all(is_first)
}

impl ParamKind {
    /// Returns whether a value is of this kind. Whole numbers in the value must already be floats. In a table, the
    /// values of all keys are checked.
    fn takes(self, value: &ParamValue) -> bool {
        match (self, value) {
            (Self::Bool, ParamValue::Bool(_))
            | (Self::Text, ParamValue::Str(_))
            | (
                Self::Positives
                | Self::NamedShares
                | Self::NamedWeights
                | Self::Maybe(_)
                | Self::MaybeWhole(_),
                ParamValue::None,
            ) => true,
            (Self::AtLeast(least) | Self::Maybe(least), ParamValue::Float(x)) => {
                x.is_finite() && *x >= least
            }
            (Self::Whole(least) | Self::MaybeWhole(least), ParamValue::Float(x)) => {
                x.is_finite() && *x >= least && x.fract() == 0.0
            }
            (Self::Above(bound), ParamValue::Float(x)) => x.is_finite() && *x > bound,
            (Self::Share, ParamValue::Float(x)) => (0.0..1.0).contains(x),
            (Self::Fraction, ParamValue::Float(x)) => (0.0..=1.0).contains(x),
            (Self::Choice(words), ParamValue::Str(word)) => words.contains(&word.as_str()),
            (Self::Increasing, ParamValue::List(list)) => {
                let found = positives(list.iter()).unwrap_or_default();
                !found.is_empty() && found.windows(2).all(|w| w[0] < w[1])
            }
            (Self::Positives, ParamValue::List(list)) => {
                positives(list.iter()).is_some_and(|found| !found.is_empty())
            }
            (Self::NamedWeights, ParamValue::Table(table)) => {
                positives(table.values()).is_some_and(|found| !found.is_empty())
            }
            (Self::NamedShares, ParamValue::Table(table)) => {
                // Three thirds that are written as decimals may add up to slightly more than 1.
                let sum = positives(table.values()).map(|found| found.iter().sum::<f64>());
                sum.is_some_and(|sum| (1e-300..=1.0 + 1e-9).contains(&sum))
            }
            (Self::Names, ParamValue::List(list)) => value.texts().is_some() && are_distinct(list),
            (Self::Words(words), ParamValue::List(list)) => {
                let place = |word: &ParamValue| words.iter().position(|x| word.text() == Some(*x));
                let places: Option<Vec<usize>> = list.iter().map(place).collect();
                places.is_some_and(|places| !places.is_empty() && places.is_sorted_by(|a, b| a < b))
            }
            _ => false,
        }
    }

    /// Returns a description of the accepted values.
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
            ParamKind::NamedWeights => "a table with a positive weight for each name".to_owned(),
            ParamKind::NamedShares => {
                "a table with a positive share for each name and a sum of at most 1".to_owned()
            }
            ParamKind::Named(kind) => format!("a table with {} for each name", kind.expected()),
            ParamKind::Names => "a list of names without duplicates".to_owned(),
            ParamKind::Words(words) => {
                format!(
                    "a list of one or more of {}, in this order",
                    words.join(", ")
                )
            }
            ParamKind::Tables(keys) => expected_keys("a list of tables", keys),
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
            Self::List(values) => {
                let items = values.iter().map(|value| match value {
                    Self::Float(value) => format!("{value:?}"),
                    value => value.to_string(),
                });
                write!(f, "[{}]", items.collect::<Vec<_>>().join(", "))
            }
            Self::Table(values) => {
                let pairs: Vec<String> = values.iter().map(|(k, v)| format!("{k} = {v}")).collect();
                write!(f, "{{{}}}", pairs.join(", "))
            }
        }
    }
}

/// If a node is its own ancestor, returns a description of the parents that would be valid.
pub(crate) fn circle(
    node: usize,
    parents: &[Option<usize>],
    name: impl Fn(usize) -> String,
) -> Option<String> {
    let mut above = std::iter::successors(parents[node], |&at| parents[at]).take(parents.len());
    let length = above.position(|at| at == node)? + 1;
    let circle = std::iter::successors(Some(node), |&at| parents[at]).take(length + 1);
    let names: Vec<String> = circle.map(name).collect();
    let names = names.join(" is below ");
    Some(format!("a parent that is not below it: {names}"))
}

/// Returns the word in `known` with the smallest edit distance to `word`; ties go to the first.
pub fn nearest(word: &str, known: &[&str]) -> String {
    known
        .iter()
        .min_by_key(|name| edits(word, name))
        .map_or_else(String::new, |&name| name.to_owned())
}

/// Returns the hint that ends a message about a wrong word. The hint is empty unless a known word differs in at most a
/// third of its letters.
fn guess(word: &str, known: &[&str]) -> String {
    let word = word.to_lowercase();
    let distance = |name: &str| edits(&word, &name.to_lowercase());
    let is_near = |name: &&str| 3 * distance(name) <= name.len();
    let near = known
        .iter()
        .copied()
        .filter(is_near)
        .min_by_key(|name| distance(name));
    near.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

/// Returns the number of edits that turn one word into another. An edit inserts, drops or changes a letter, or swaps
/// two adjacent letters.
fn edits(a: &str, b: &str) -> usize {
    let [a, b] = [a, b].map(|word| word.chars().collect::<Vec<char>>());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = change.min(row[j - 1] + 1).min(rows[i - 1][j] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
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
        assert_eq!(reader.list("limits"), Some(vec![1.0, 2.0]));
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

    const INNER: [ParamSpec; 2] = [
        spec("gpu", ParamKind::Text, ParamDefault::None),
        spec("limit", ParamKind::MaybeWhole(0.0), ParamDefault::None),
    ];
    const NESTED: [ParamSpec; 4] = [
        spec(
            "tier",
            ParamKind::Named(&ParamKind::Whole(0.0)),
            ParamDefault::None,
        ),
        spec(
            "types",
            ParamKind::Named(&ParamKind::Names),
            ParamDefault::None,
        ),
        spec(
            "rules",
            ParamKind::Words(&["final", "initial"]),
            ParamDefault::Words(&["final"]),
        ),
        spec(
            "queues",
            ParamKind::Tables(&[
                spec("name", ParamKind::Text, ParamDefault::None),
                number("weight", ParamKind::AtLeast(0.0), 1.0),
                spec("flavors", ParamKind::Tables(&INNER), ParamDefault::None),
            ]),
            ParamDefault::None,
        ),
    ];

    fn table<const N: usize>(pairs: [(&str, ParamValue); N]) -> ParamValue {
        ParamValue::Table(pairs.map(|(key, value)| (key.to_owned(), value)).into())
    }

    fn nested(name: &str, value: ParamValue) -> Result<ParamReader, PolicyError> {
        let given = Params::from([(name.to_owned(), value)]);
        ParamReader::new("toy", NESTED.into_iter(), &given)
    }

    #[test]
    fn tables_are_read_with_their_defaults() {
        let flavor = table([
            ("gpu", ParamValue::Str("a".to_owned())),
            ("limit", ParamValue::None),
        ]);
        let queue = table([
            ("name", ParamValue::Str("q".to_owned())),
            ("flavors", ParamValue::List(vec![flavor])),
        ]);
        let reader = nested("queues", ParamValue::List(vec![queue])).expect("fine");
        assert_eq!(reader.texts("rules"), ["final"]);
        assert_eq!(reader.table("tier"), Some(&Params::new()));
        let queues = reader.tables("queues");
        assert_eq!((queues.len(), queues[0].word("name")), (1, "q"));
        assert_eq!(queues[0].number("weight").to_bits(), 1.0_f64.to_bits());
        let flavors = queues[0].tables("flavors");
        assert_eq!(flavors[0].word("gpu"), "a");
        assert_eq!(flavors[0].maybe_number("limit"), None);
        let PolicyError::Parameter { field, value, .. } = flavors[0].refuse("gpu", "a known type")
        else {
            panic!("another error");
        };
        assert_eq!(
            (field.as_str(), value.as_str()),
            ("queues[0].flavors[0].gpu", "a")
        );
    }

    #[test]
    fn values_by_name_are_widened_and_kept_in_order() {
        let tiers = table([("b", ParamValue::Int(2)), ("a", ParamValue::Float(1.0))]);
        let reader = nested("tier", tiers).expect("fine");
        let expected = BTreeMap::from([("a".to_owned(), 1.0), ("b".to_owned(), 2.0)]);
        assert_eq!(reader.named_numbers("tier"), Some(expected));
    }

    #[test]
    fn an_error_inside_a_table_names_the_path_to_it() {
        let name = ("name", ParamValue::Str("q".to_owned()));
        let flavors = |flavor| ("flavors", ParamValue::List(vec![flavor]));
        let queue = |rows: Vec<ParamValue>| ParamValue::List(rows);
        let number = ParamValue::Float(0.5);
        for (parameter, value, path) in [
            ("tier", table([("a", ParamValue::Float(0.5))]), "tier.a"),
            ("tier", number.clone(), "tier"),
            (
                "types",
                table([("a", ParamValue::words(["x", "x"]))]),
                "types.a",
            ),
            ("rules", ParamValue::words(["first"]), "rules"),
            ("rules", ParamValue::List(Vec::new()), "rules"),
            ("queues", table([]), "queues"),
            ("queues", queue(vec![number.clone()]), "queues[0]"),
            ("queues", queue(vec![table([])]), "queues[0].name"),
            (
                "queues",
                queue(vec![
                    table([name.clone()]),
                    table([name.clone(), ("weighty", number)]),
                ]),
                "queues[1].weighty",
            ),
            (
                "queues",
                queue(vec![table([
                    name,
                    flavors(table([("limit", ParamValue::Int(1))])),
                ])]),
                "queues[0].flavors[0].gpu",
            ),
        ] {
            match nested(parameter, value) {
                Err(PolicyError::Parameter { field, .. }) => assert_eq!(field, path),
                other => panic!("{path}: {other:?}"),
            }
        }
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
    fn a_wrong_word_is_answered_with_a_near_one() {
        assert_eq!(guess("BEST", &["first", "best"]), "; did you mean `best`?");
        assert_eq!(guess("aligned", &["first", "best"]), "");
        assert_eq!(guess("worst", &["first", "best"]), "");
        assert_eq!(guess("qouta", &["quota"]), "; did you mean `quota`?");
        assert_eq!(
            guess("firxt", &["best", "first"]),
            "; did you mean `first`?"
        );
        assert_eq!(guess("", &["best"]), "");
    }

    #[test]
    fn bad_values_are_refused() {
        for (name, value) in [
            ("limits", ParamValue::numbers([2.0, 2.0])),
            ("limits", ParamValue::numbers([0.0])),
            ("limits", ParamValue::numbers([])),
            ("limits", ParamValue::Int(3)),
            ("knob", ParamValue::Float(-1.0)),
            ("knob", ParamValue::Float(f64::NAN)),
            ("fit", ParamValue::Str("worst".to_owned())),
        ] {
            assert!(read(name, value.clone()).is_err(), "{name} = {value}");
        }
    }
}
