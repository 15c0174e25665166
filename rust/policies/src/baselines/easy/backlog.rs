//! Waiting jobs of `easy` by class and arrival, with their estimated times on each type of the class, ns.

use super::min_tree::MinTree;
use crate::kit::{Classes, Places};
use gangline_model::JobId;

/// Waiting jobs. A job's position in its class follows arrival.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Per class, its jobs in order of arrival.
    members: Vec<Vec<JobId>>,
    /// Per class and type of the class, estimates by position.
    trees: Vec<Vec<MinTree>>,
    position: Vec<u32>,
    waiting: Vec<u32>,
    is_waiting: Vec<bool>,
}

impl Backlog {
    pub(super) fn new(jobs: usize, classes: &Classes) -> Self {
        let mut members: Vec<Vec<JobId>> = vec![Vec::new(); classes.len()];
        let mut position = Vec::with_capacity(jobs);
        for job in (0..jobs).map(JobId::new) {
            let class = &mut members[classes.of(job)];
            position.push(class.len() as u32);
            class.push(job);
        }
        let trees = classes
            .iter()
            .zip(&members)
            .map(|(class, members)| vec![MinTree::new(members.len()); class.types.len()])
            .collect();
        let waiting = vec![0; classes.len()];
        Self {
            members,
            trees,
            position,
            waiting,
            is_waiting: vec![false; jobs],
        }
    }

    #[inline]
    pub(super) fn position(&self, job: JobId) -> usize {
        self.position[job.index()] as usize
    }

    #[inline]
    pub(super) fn job(&self, class: usize, position: usize) -> JobId {
        self.members[class][position]
    }

    #[inline]
    pub(super) fn is_empty(&self, class: usize) -> bool {
        self.waiting[class] == 0
    }

    /// Notes the estimate of a waiting job on type number `at` of its class.
    pub(super) fn insert(&mut self, job: JobId, class: usize, at: usize, estimate: i64) {
        let position = self.position(job);
        self.trees[class][at].set(position, estimate);
        if !self.is_waiting[job.index()] {
            self.is_waiting[job.index()] = true;
            self.waiting[class] += 1;
        }
    }

    /// Takes a job out.
    pub(super) fn remove(&mut self, job: JobId, places: &Places) {
        let class = places.class_of(job);
        if std::mem::take(&mut self.is_waiting[job.index()]) {
            self.waiting[class] -= 1;
            let position = self.position(job);
            for tree in &mut self.trees[class] {
                tree.set(position, MinTree::NONE);
            }
        }
    }

    /// The first waiting job of a class from a position on whose estimate on a type is at most `bound`.
    pub(super) fn first_at_most(
        &self,
        class: usize,
        at: usize,
        from: usize,
        bound: i64,
    ) -> Option<usize> {
        self.trees[class][at].first_at_most(from, bound)
    }
}
