//! Settings of the tests that draw worlds, read from the environment: the number of worlds, or the seed of a single
//! one.

/// Returns the number in an environment variable, if it is set.
#[expect(
    clippy::disallowed_methods,
    reason = "a test may read its own settings: no result depends on them"
)]
pub(crate) fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} = {text} is no number")),
    )
}
