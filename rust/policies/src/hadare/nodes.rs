//! Servers as nodes, each of which can hold one copy, and the columns of the table of rates.

use super::params::HadarEParams;
use crate::kit::Servers;
use gangline_engine::{BitSet, ClusterView};

/// All nodes that can hold a copy.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    pub(super) servers: Servers,
    /// GPUs of a copy, by group.
    pub(super) copy_gpus: Vec<u32>,
    /// Number of servers where every node is a column of its own, else 0.
    unlike: usize,
}

impl Nodes {
    pub(super) fn new(view: &ClusterView<'_>, params: &HadarEParams) -> Self {
        let copy_on = |gpus| params.copy_gpus.on(gpus, 1);
        let servers = Servers::new(view.cluster(), false, |server| {
            (copy_on(server.gpus) <= server.gpus).then_some(1)
        });
        Self {
            copy_gpus: servers.groups.iter().map(|one| copy_on(one.size)).collect(),
            unlike: if params.estimator.is_exact() {
                0
            } else {
                view.cluster().servers().len()
            },
            servers,
        }
    }

    /// Whether every node is a column of its own.
    pub(super) fn are_unlike(&self) -> bool {
        self.unlike > 0
    }

    /// Columns of the table of rates that are planned with: groups, or single nodes where rates are estimated.
    pub(super) fn columns(&self) -> usize {
        self.unlike.max(self.servers.groups.len())
    }

    /// Column of a node.
    pub(super) fn column(&self, node: u32) -> usize {
        if self.are_unlike() {
            node as usize
        } else {
            self.servers.group(node)
        }
    }

    /// Group of each column; `None` if it is a server that can hold no copy.
    pub(super) fn group_by_column(&self) -> impl Iterator<Item = Option<usize>> {
        (0..self.columns()).map(|at| {
            if self.are_unlike() {
                self.servers.find_group(at as u32)
            } else {
                Some(at)
            }
        })
    }

    /// Nodes of a group that are up and have no copy.
    pub(super) fn idle(&self, group: usize) -> &BitSet {
        &self.servers.groups[group].by_free[1]
    }

    /// The first of them.
    pub(super) fn first_idle(&self, group: usize) -> Option<u32> {
        self.idle(group).first().map(|node| node as u32)
    }
}
