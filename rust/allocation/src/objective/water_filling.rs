//! Lexicographic max-min fairness: all levels rise together. A level that cannot rise further stops, and the others
//! continue.

use super::super::answer::Answer;
use super::super::facts::Inside;
use super::super::model::SolverError;
use super::super::space::{Method, Space, Water};
use super::super::table::Table;

/// Finds the lexicographically largest levels. The value of the objective is the smallest ratio of level to weight. An
/// agnostic variant uses a rate of 1 wherever a job can run.
pub(super) fn solve(
    table: &Table,
    is_agnostic: bool,
    inside: &[Inside],
    method: &mut dyn Method,
) -> Result<Answer, SolverError> {
    let ones = vec![1.0; table.gangs.len()];
    let (rates, worth) = if is_agnostic {
        (table.flat(&ones), ones)
    } else {
        (table.rates.clone(), table.fair())
    };
    let space = Space::plain(table, rates, worth);
    let by_weight = |weights: &[f64]| -> Vec<f64> {
        let each = weights.iter().zip(&table.gangs);
        each.map(|(weight, gang)| weight / gang).collect()
    };
    let own = by_weight(&table.weights);
    let speeds = |done: &[bool]| {
        let mut speeds = if table.entities.is_empty() {
            own.clone()
        } else {
            by_weight(&split(table, inside, done))
        };
        for (speed, done) in speeds.iter_mut().zip(done) {
            if *done {
                *speed = 0.0;
            }
        }
        speeds
    };
    let water = Water {
        worth: &space.worth,
        speeds: &speeds,
        is_even: table.entities.is_empty(),
    };
    let (levels, plan) = method.fill(&space, &water)?;
    let heights = levels.iter().zip(&own).map(|(level, speed)| level / speed);
    let objective = heights.fold(f64::INFINITY, f64::min);
    Ok(Answer {
        levels,
        ..Answer::of(&space, plan, objective)
    })
}

/// Returns the rule by which an entity divides its weight.
pub(super) fn inside_of(inside: &[Inside], entity: usize) -> Inside {
    let of_all = inside.first().copied().unwrap_or(Inside::Fairness);
    inside.get(entity).copied().unwrap_or(of_all)
}

/// Returns the weight of one job of each class. The weights depend on the weights of the entities and on which classes
/// can rise no further.
fn split(table: &Table, inside: &[Inside], done: &[bool]) -> Vec<f64> {
    let mut weights = vec![0.0; done.len()];
    for (entity, weight) in table.entity_weights.iter().enumerate() {
        let mine =
            || (0..done.len()).filter(|&at| table.entities[at] as usize == entity && !done[at]);
        match inside_of(inside, entity) {
            // Classes are in the order of their first jobs.
            Inside::Fifo => {
                if let Some(first) = mine().next() {
                    weights[first] = *weight;
                }
            }
            Inside::Fairness => {
                let all: f64 = mine().map(|at| table.weights[at] * table.members[at]).sum();
                for at in mine() {
                    weights[at] = weight * table.weights[at] / all;
                }
            }
        }
    }
    weights
}
