//! Allocations: which job gets which share of the time of which GPU type.
//!
//! [`Program`] solves what has the usual shape, from the columns of the jobs to their shares: classes of equal jobs, prices
//! for the objective, a simplex method for the best plan that keeps it. Programs of any other shape go to `HiGHS` through Python.
//! Closed forms are here too. An [`Allocator`] is asked by the round policies and knows none of this.
#![forbid(unsafe_code)]

mod allocator;
mod choose;
mod class;
mod dual;
mod even;
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
pub use choose::{Choose, Chosen, Pair};
pub use class::{RowClasses, RowPart, group_rows};
pub use dual::{MaxMin, PriceSolution, SolverError};
pub use even::Spread;
pub use levels::{Filling, Levels};
pub use parts::in_parts;
pub use program::{Staged, TwoStages, within};
pub use programs::{Answer, Found, PairTime, Program, Table};
pub use random_pairs::RandomPairs;
pub use rho::{Fair, Fairness};
pub use service::Service;
