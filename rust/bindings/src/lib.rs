//! The Python module `gangline._core`: converts data, obeys the interpreter's rules and maps errors. The module
//! makes no decisions, and users never import it.

mod actions;
mod changes;
mod columns;
mod convert;
mod draft;
mod driven;
mod error;
mod lp;
mod network;
mod options;
mod orders;
mod output;
mod prices;
mod py_policy;
mod py_solver;
mod registry;
mod run;
mod simulation;
mod texts;
mod tools;
mod view;
mod window;

use pyo3::prelude::*;

/// The compiled core of gangline.
#[pymodule(gil_used = true)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    let profile = if cfg!(debug_assertions) {
        "development, invariants checked"
    } else {
        "release"
    };
    module.add("__profile__", profile)?;
    module.add_class::<convert::Cluster>()?;
    module.add_class::<convert::Elastic>()?;
    module.add_class::<convert::Jobs>()?;
    module.add_class::<network::Network>()?;
    module.add_class::<options::RunOptions>()?;
    module.add_class::<output::RunOutput>()?;
    module.add_class::<simulation::Simulation>()?;
    module.add_class::<view::PolicyView>()?;
    module.add_class::<view::OrderWalk>()?;
    module.add_class::<prices::PriceList>()?;
    module.add_class::<changes::PolicyChanges>()?;
    module.add_function(wrap_pyfunction!(run::simulate, module)?)?;
    module.add_function(wrap_pyfunction!(run::check_start, module)?)?;
    module.add_function(wrap_pyfunction!(registry::check_policy, module)?)?;
    module.add_function(wrap_pyfunction!(registry::registry, module)?)?;
    lp::register(module)?;
    texts::register(module)?;
    tools::register(module)
}
