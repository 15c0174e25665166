//! Preemption by QOS: finds the jobs that a job may stop, and chooses a small number of them that together make room
//! for it.

use super::jobs::Kind;
use super::params::SlurmParams;
use crate::kit::Places;
use gangline_engine::{ClusterView, Plan, Run};
use gangline_model::{GpuSet, JobId, ServerId, SimSpan};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Properties of each QOS, by index, and the rules for choosing victims.
#[derive(Clone, Debug, Default)]
pub(super) struct Preemption {
    /// For each QOS, the list of QOS whose jobs it may preempt.
    lower: Vec<Vec<u32>>,
    /// For each QOS, the time after their start during which its jobs are not preempted.
    exempt: Vec<SimSpan>,
    /// For each QOS, the rank of its priority.
    priority: Vec<usize>,
    youngest_first: bool,
    strict_order: bool,
    reorder_count: u64,
}

/// A job that may be preempted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Victim<'a> {
    pub(super) job: JobId,
    pub(super) gpus: &'a GpuSet,
}

/// Jobs to preempt, and the place that becomes free as a result.
type Way<'a> = (Vec<Victim<'a>>, GpuSet);

/// A job that needs a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seeker<'a> {
    pub(super) job: JobId,
    pub(super) qos: u32,
    pub(super) kind: &'a Kind,
}

impl Seeker<'_> {
    /// Returns a place for the job in the draft, on the first of its types that has one.
    pub(super) fn place(&self, places: &mut Places, plan: &mut Plan<'_>) -> Option<GpuSet> {
        let types = self.kind.types.iter();
        let mut found = types.map(|&id| places.place_on(plan, self.kind.class, self.job, id));
        found.find_map(|gpus| gpus)
    }
}

impl Preemption {
    pub(super) fn new(params: &SlurmParams, names: &[String]) -> Self {
        let number = |name: &String| names.iter().position(|own| own == name);
        let lower = |name: &String| {
            let known = params.preempts(name).iter().filter_map(number);
            known.map(|number| number as u32).collect()
        };
        let exempt = |name: &String| params.qos_exempt.get(name).copied();
        let priority = |name: &String| params.qos_priority.get(name).copied().unwrap_or(0.0);
        let mut values: Vec<f64> = names.iter().map(priority).collect();
        values.sort_by(f64::total_cmp);
        let rank = |name| values.partition_point(|value| *value < priority(name));
        let exempt = names
            .iter()
            .map(|name| exempt(name).unwrap_or(params.preempt_exempt));
        Self {
            lower: names.iter().map(lower).collect(),
            exempt: exempt.collect(),
            priority: names.iter().map(rank).collect(),
            youngest_first: params.youngest_first,
            strict_order: params.strict_order,
            reorder_count: params.reorder_count,
        }
    }

    /// Returns the running jobs that a job may preempt, in the order in which the policy tries them.
    fn victims<'a>(
        &self,
        view: &ClusterView<'a>,
        qos: u32,
        qos_of: impl Fn(JobId) -> u32,
        is_meant: impl Fn(&Run) -> bool,
    ) -> Vec<Victim<'a>> {
        let lower = &self.lower[qos as usize];
        let runs = view.running().filter_map(|job| view.run(job));
        let mut found: Vec<&'a Run> = runs
            .filter(|run| {
                let qos = qos_of(run.job);
                let ran = view.now() - run.started;
                lower.contains(&qos) && ran >= self.exempt[qos as usize] && is_meant(run)
            })
            .collect();
        if self.youngest_first {
            found.sort_by_key(|run| (Reverse(run.started), run.job));
        } else {
            let key = |run: &&Run| (self.priority[qos_of(run.job) as usize], run.gpus().gpus());
            found.sort_by_key(|run| (key(run), run.job));
        }
        let victim = |run: &'a Run| Victim {
            job: run.job,
            gpus: run.gpus(),
        };
        found.into_iter().map(victim).collect()
    }

    /// Returns the jobs to preempt for a job that has no place in the draft, and the place that becomes free.
    pub(super) fn find<'a>(
        &self,
        (view, places, plan): (&ClusterView<'a>, &mut Places, &mut Plan<'_>),
        seeker: &Seeker<'_>,
        qos_of: impl Fn(JobId) -> u32,
        is_meant: impl Fn(&Run) -> bool,
    ) -> Option<Way<'a>> {
        let mut order = self.victims(view, seeker.qos, qos_of, is_meant);
        let mut found = take(places, plan, seeker, &order)?;
        for _ in 0..self.reorder_count {
            let (taken, gpus) = &found;
            if *taken == 1 {
                break;
            }
            let servers: BTreeSet<ServerId> =
                gpus.by_server().iter().map(|one| one.server).collect();
            let overlap = |victim: &Victim<'_>| {
                let own = victim.gpus.by_server().iter();
                own.filter(|one| servers.contains(&one.server)).count()
            };
            order[..*taken].rotate_right(1);
            if !self.strict_order {
                order[1..*taken].sort_by_key(|victim| Reverse(overlap(victim)));
            }
            found = take(places, plan, seeker, &order)?;
        }
        let (taken, gpus) = found;
        order.truncate(taken);
        let is_in_the_way = |victim: &Victim<'_>| {
            let mut own = victim.gpus.by_server().iter();
            own.any(|one| gpus.mask_on(one.server) & one.mask != 0)
        };
        order.retain(is_in_the_way);
        Some((order, gpus))
    }
}

/// Gives back the GPUs of the victims in order until the job has a place, and then rolls the draft back. Returns the
/// number of these victims, and the place.
fn take(
    places: &mut Places,
    plan: &mut Plan<'_>,
    seeker: &Seeker<'_>,
    order: &[Victim<'_>],
) -> Option<(usize, GpuSet)> {
    let mark = plan.mark();
    let mut found = None;
    for (at, victim) in order.iter().enumerate() {
        plan.give_back(victim.gpus);
        if let Some(gpus) = seeker.place(places, plan) {
            found = Some((at + 1, gpus));
            break;
        }
    }
    plan.rollback(mark);
    found
}
