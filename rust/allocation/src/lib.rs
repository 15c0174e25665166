//! Allocations: the share of time that each job gets on each GPU type.
//!
//! An [`Objective`] is formulated once, over classes of equal jobs. If this crate's own methods support it, the price
//! method finds its optimal value, and a simplex method finds the best plan with this value. All other linear programs
//! are built row by row and passed to an external [`Solver`]. For some objectives, the crate has a closed form. The
//! round-based policies call an [`Allocator`] and depend on nothing else in this crate.
#![forbid(unsafe_code)]

mod allocations;
mod allocator;
mod answer;
mod choose;
mod class;
mod core;
mod dual;
mod even;
mod facts;
mod frontier;
mod levels;
mod loads;
mod master;
mod model;
mod objective;
mod parts;
mod program;
mod random_pairs;
mod rho;
mod rows;
mod search;
mod service;
mod space;
mod split;
mod square;
mod table;
mod trials;

pub use allocations::{Allocations, Found, InRuns, Outside, Programs, Tally};
pub use allocator::{Allocator, Ask, PairShare, Shares};
pub use answer::{Answer, Notes, PairTime};
pub use choose::{Choose, Chosen, Pair};
pub use class::{RowClasses, RowPart, group_rows};
pub use dual::{MaxMin, PriceSolution};
pub use even::Spread;
pub use facts::{Facts, Inside, Seen};
pub use levels::{Filling, Levels};
pub use loads::even_loads;
pub use model::{
    Algorithm, Failed, How, Keeps, Model, Next, NoSolver, Rows, Solution, Solved, Solver,
    SolverError,
};
pub use objective::{Choice, FastestFirst, Objective, OfParts, Settings};
pub use parts::in_parts;
pub use program::{Staged, TwoStages, within};
pub use random_pairs::RandomPairs;
pub use rho::{Fair, Fairness};
pub use service::Service;
pub use split::EqualSplit;
pub use table::{ClassOf, Table};
