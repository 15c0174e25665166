//! Waiting jobs, divided into classes. Jobs of a class differ only in length. If one job finds no place, a longer job
//! of the class finds no place either. A decision therefore tries the first job of each class that it has not yet
//! refused.

use super::params::{QueueKey, SharingParams};
use gangline_engine::{ClusterView, PolicyError};
use gangline_model::JobId;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// A waiting job with its length and class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Waiter {
    /// Sort key: the isolated duration, or the isolated duration times the gang size.
    pub(super) length: i128,
    pub(super) job: JobId,
    pub(super) class: u32,
}

/// The properties of a job, other than its length, that affect where it fits; they are encoded as numbers.
type ClassKey = SmallVec<[u64; 10]>;

/// The queue of waiting jobs.
#[derive(Debug, Default)]
pub(super) struct Queue {
    numbers: BTreeMap<ClassKey, u32>,
    /// The waiting jobs of each class; classes without waiting jobs are left out.
    classes: BTreeMap<u32, BTreeSet<(i128, JobId)>>,
}

impl Queue {
    /// Adds a job that arrived or was requeued.
    pub(super) fn add(
        &mut self,
        view: &ClusterView<'_>,
        params: &SharingParams,
        job: JobId,
    ) -> Result<Waiter, PolicyError> {
        let length = i128::from(params.seen.duration(view, job)?.0);
        let length = match params.key {
            QueueKey::Time => length,
            QueueKey::GpuTime => length * i128::from(view.jobs().gpus(job)),
        };
        let next = self.numbers.len() as u32;
        let class = *self.numbers.entry(class_key(view, job)?).or_insert(next);
        self.classes.entry(class).or_default().insert((length, job));
        Ok(Waiter { length, job, class })
    }

    /// Removes a job that starts.
    pub(super) fn remove(&mut self, waiter: Waiter) {
        let members = self.classes.get_mut(&waiter.class).expect("it waits");
        members.remove(&(waiter.length, waiter.job));
        if members.is_empty() {
            self.classes.remove(&waiter.class);
        }
    }

    /// Returns whether a job is still waiting.
    pub(super) fn contains(&self, waiter: Waiter) -> bool {
        let members = self.classes.get(&waiter.class);
        members.is_some_and(|members| members.contains(&(waiter.length, waiter.job)))
    }

    pub(super) fn first(&self, class: u32) -> Option<Waiter> {
        let &(length, job) = self.classes.get(&class)?.first()?;
        Some(Waiter { length, job, class })
    }

    /// Returns the first job of every class as a heap with the shortest job on top.
    pub(super) fn heads(&self) -> BinaryHeap<Reverse<Waiter>> {
        let classes = self.classes.keys();
        let heads = classes.filter_map(|&class| self.first(class));
        heads.map(Reverse).collect()
    }
}

/// Returns the properties that define the class of a job. A job that has already done work is alone in its class,
/// because it has less work left than its position in the queue suggests. A job whose rate changes with its progress is
/// also alone in its class.
fn class_key(view: &ClusterView<'_>, job: JobId) -> Result<ClassKey, PolicyError> {
    let jobs = view.jobs();
    let left = view.remaining_work(job)?;
    let own = if left < view.work(job)? || view.has_phases(job) {
        u64::from(job.0) + 1
    } else {
        0
    };
    let model = jobs.model(job).map_or(u64::MAX, u64::from);
    let mut key = ClassKey::from_slice(&[
        own,
        u64::from(jobs.gpus(job)),
        u64::from(jobs.batch_size(job)),
        jobs.memory_bytes(job),
        model,
        u64::from(view.pair_class(job)),
    ]);
    for gpu_type in view.types_of(job) {
        key.push(gpu_type.index() as u64);
        key.push(view.base_rate(job, gpu_type).to_bits());
    }
    Ok(key)
}
