//! Servers as nodes: groups of the same GPU type and size, and which of them are up.

use super::params::HadarEParams;
use gangline_engine::ClusterView;
use gangline_model::{GpuTypeId, ServerId};
use std::collections::BTreeSet;

/// Nodes alike in GPU type and size.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) gpu_type: GpuTypeId,
    server_gpus: u32,
    /// GPUs of a copy there.
    pub(super) copy: u32,
    /// The first node as described, up or down: it stands for all.
    pub(super) first: ServerId,
    /// Nodes that are up.
    pub(super) up: BTreeSet<u32>,
    /// Nodes as described.
    pub(super) nodes: u32,
}

/// All nodes that can hold a copy.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    pub(super) groups: Vec<Group>,
    /// Group of each server; `None` if it is too small for a copy.
    of: Vec<Option<u32>>,
    /// Whether every node is a column of its own.
    are_unlike: bool,
}

impl Nodes {
    pub(super) fn new(view: &ClusterView<'_>, params: &HadarEParams) -> Self {
        let mut all = Self {
            are_unlike: !params.estimator.is_exact(),
            ..Self::default()
        };
        for (index, server) in view.cluster().servers().iter().enumerate() {
            let copy = params.copy_gpus.on(server.gpus, 1);
            if copy > server.gpus {
                all.of.push(None);
                continue;
            }
            let is_like = |group: &Group| {
                group.gpu_type == server.gpu_type && group.server_gpus == server.gpus
            };
            let at = all.groups.iter().position(is_like).unwrap_or_else(|| {
                all.groups.push(Group {
                    gpu_type: server.gpu_type,
                    server_gpus: server.gpus,
                    copy,
                    first: ServerId::new(index),
                    up: BTreeSet::new(),
                    nodes: 0,
                });
                all.groups.len() - 1
            });
            all.groups[at].up.insert(index as u32);
            all.groups[at].nodes += 1;
            all.of.push(Some(at as u32));
        }
        all
    }

    /// A server fails or comes back.
    pub(super) fn set_up(&mut self, server: ServerId, is_up: bool) {
        let Some(group) = self.of[server.index()] else {
            return;
        };
        let up = &mut self.groups[group as usize].up;
        if is_up {
            up.insert(server.0);
        } else {
            up.remove(&server.0);
        }
    }

    /// Group of a server.
    pub(super) fn group(&self, server: u32) -> usize {
        self.of[server as usize].expect("only nodes hold copies") as usize
    }

    /// Columns of the table of rates that are planned with: groups, or single nodes where rates are estimated.
    pub(super) fn columns(&self) -> usize {
        if self.are_unlike {
            self.of.len()
        } else {
            self.groups.len()
        }
    }

    /// Whether every node is a column of its own.
    pub(super) fn are_unlike(&self) -> bool {
        self.are_unlike
    }

    /// Column of a node.
    pub(super) fn column(&self, node: u32) -> usize {
        if self.are_unlike {
            node as usize
        } else {
            self.group(node)
        }
    }

    /// Group of each column; `None` if it is a server that can hold no copy.
    pub(super) fn group_by_column(&self) -> impl Iterator<Item = Option<usize>> {
        (0..self.columns()).map(|at| {
            if self.are_unlike {
                self.of[at].map(|group| group as usize)
            } else {
                Some(at)
            }
        })
    }

    /// Nodes that are up.
    pub(super) fn up(&self) -> u32 {
        self.groups.iter().map(|group| group.up.len() as u32).sum()
    }
}
