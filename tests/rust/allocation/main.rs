//! Allocations, by hand and against what they must satisfy.

mod asks;
mod classes;
mod closed_forms;
mod filling;
mod pairs;
mod parts;
mod prices;
