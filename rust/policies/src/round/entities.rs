//! Entities: groups of jobs of one user or virtual cluster, which share one weight.

use crate::kit::{Owners, QueueBy};
use gangline_allocation::Ask;
use gangline_engine::PolicyError;
use gangline_model::JobFacts;
use std::collections::BTreeMap;

/// Parameters of the groups.
#[derive(Clone, Debug, PartialEq)]
pub struct EntityParams {
    /// What makes an entity.
    pub by: QueueBy,
    /// Weights by name; `None` = all alike.
    pub weights: Option<BTreeMap<String, f64>>,
}

/// The entities of a trace; empty if the policy has none.
#[derive(Debug, Default)]
pub(super) struct Entities {
    of: Vec<u32>,
    weights: Vec<f64>,
}

impl Entities {
    /// Learns the entities of the trace.
    ///
    /// # Errors
    /// [`PolicyError::Parameter`] if the trace names no entity, or an entity has no weight.
    pub(super) fn new(
        params: &EntityParams,
        policy: &str,
        jobs: &JobFacts,
    ) -> Result<Self, PolicyError> {
        let bad = |field: &str, value: String, expected: String| PolicyError::Parameter {
            policy: policy.to_owned(),
            field: field.to_owned(),
            value,
            expected,
        };
        let Some(owners) = Owners::of(jobs, params.by) else {
            let name = params.by.name();
            let expected =
                format!("a trace that names a {name} for its jobs, or hierarchical = false");
            return Err(bad("entity_by", name.to_owned(), expected));
        };
        let weights = match &params.weights {
            None => vec![1.0; owners.names.len()],
            Some(table) => {
                let lacks = owners.names.iter().find(|&name| !table.contains_key(name));
                if let Some(name) = lacks {
                    let known: Vec<&str> = table.keys().map(String::as_str).collect();
                    let expected =
                        format!("a weight for entity `{name}` too: the trace has jobs of it");
                    return Err(bad("entity_weight", known.join(", "), expected));
                }
                owners.names.iter().map(|name| table[name]).collect()
            }
        };
        Ok(Self {
            of: owners.number,
            weights,
        })
    }

    /// Completes the request to an allocator.
    pub(super) fn tell(&self, ask: &mut Ask) {
        if !self.of.is_empty() {
            ask.entities = ask.jobs.iter().map(|job| self.of[job.index()]).collect();
            ask.entity_weights.clone_from(&self.weights);
        }
    }
}
