//! Allocations, checked against values worked out by hand and against the laws that they must satisfy.

mod asks;
mod classes;
mod closed_forms;
mod filling;
mod pairs;
mod parts;
mod prices;
