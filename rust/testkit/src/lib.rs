//! Support for tests: random worlds (clusters with jobs, drawn from a seed), the checks that every policy must pass,
//! and toy policies.
//!
//! No release contains this crate. Development builds of the Python module include the toys, so that Python tests can
//! run them.
#![forbid(unsafe_code)]

pub mod conformance;
pub mod toy;

pub use toy::TOYS;

use gangline_engine::{Policy, PolicyError};
use gangline_policies::{POLICIES, Params, PolicyInfo, Services};

/// Returns every policy of the registry, then the toys.
pub fn policies() -> impl Iterator<Item = &'static PolicyInfo> {
    POLICIES.iter().chain(TOYS)
}

/// Returns the policy or the toy with this name.
///
/// # Errors
/// Returns [`PolicyError::UnknownPolicy`], which suggests the policy with the most similar name; it never suggests a
/// toy.
pub fn find(name: &str) -> Result<&'static PolicyInfo, PolicyError> {
    match TOYS.iter().find(|toy| toy.name == name) {
        Some(toy) => Ok(toy),
        None => gangline_policies::find(name),
    }
}

/// Builds a toy or a policy of the registry; see [`gangline_policies::build`].
///
/// # Errors
/// Returns [`PolicyError::UnknownPolicy`] for an unknown name, or [`PolicyError::Parameter`] for an invalid parameter.
///
/// # Examples
/// ```
/// use gangline_policies::{Params, Services};
/// assert!(gangline_testkit::build("toy-share", &Params::new(), Services::default()).is_ok());
/// assert!(gangline_policies::build("toy-share", &Params::new(), Services::default()).is_err());
/// ```
pub fn build(
    name: &str,
    params: &Params,
    services: Services,
) -> Result<Box<dyn Policy>, PolicyError> {
    find(name)?.build(params, services)
}
