//! Allocations: which job gets which share of the time of which GPU type.
//!
//! Linear programs of any shape are solved by `HiGHS` from Python. What lives here is what needs no LP library: the
//! grouping of equal jobs, max-min and water filling by prices, the best plan above floors, and closed forms. An [`Allocator`] is asked by the round
//! policies and knows none of them.
#![forbid(unsafe_code)]

mod allocator;
mod choose;
mod class;
mod dual;
mod frontier;
mod levels;
mod master;
mod parts;
mod program;
mod programs;
mod random_pairs;
mod rho;
mod search;
mod service;
mod square;

pub use allocator::{Allocator, Ask, EqualSplit, FastestFirst, NoSolver, PairShare, Shares};
pub use choose::{Choose, Chosen};
pub use class::{RowClasses, RowPart, group_rows};
pub use dual::{MaxMin, PriceSolution, SolverError};
pub use levels::{Filling, Levels};
pub use parts::in_parts;
pub use program::{Staged, TwoStages, within};
pub use programs::{Answer, Found, Program, Table};
pub use random_pairs::RandomPairs;
pub use rho::{Fair, Fairness};
pub use service::Service;
