//! Migration: residents of shared groups to GPUs that are free, gangs on many servers to fewer.

use super::policy::{Gandiva, Kind};
use super::turns::Turn;
use crate::place::Level;
use gangline_engine::{ClusterView, FreeIndex, Plan};
use gangline_model::JobId;
use smallvec::SmallVec;
use std::cmp::Reverse;

impl Gandiva {
    /// Up to `moves_per_event` migrations, shared groups first; whether there was one.
    pub(super) fn migrate(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) -> bool {
        let most = self.params.moves_per_event;
        let mut moves = 0;
        while moves < most && self.spread(view, plan) {
            moves += 1;
        }
        while moves < most && self.narrow(view, plan) {
            moves += 1;
        }
        moves > 0
    }

    /// Makes a group for the resident of least service of the most shared group, of those for which a group
    /// can be made.
    fn spread(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) -> bool {
        let mut placeable: SmallVec<[usize; 8]> = SmallVec::new();
        let mut most = None;
        let classes: SmallVec<[usize; 8]> = self.groups.movable_classes().collect();
        for class in classes {
            if !self.places.can(plan.free(), class) {
                continue;
            }
            let entry = self.groups.most_shared(class);
            let job = self.movable_of(entry.2, class);
            if self.find_place(view, plan.free(), class, job).is_some() {
                placeable.push(class);
                most = Some(most.map_or(entry, |best| entry.min(best)));
            }
        }
        let Some((Reverse(_), _, slot)) = most else {
            return false;
        };
        let movable = self.groups.get(slot).movable();
        let least = movable
            .filter(|one| placeable.contains(&one.class))
            .min_by_key(|one| (view.executed(one.job), one.joined))
            .copied()
            .expect("one of its residents made the group a candidate");
        let place = self.find_place(view, plan.free(), least.class, least.job);
        self.groups.leave(slot, least.job);
        let place = place.expect("asked before");
        self.make_group(view, plan, place, (least.class, least.job));
        self.counts.spreads += 1;
        true
    }

    /// A resident of a class that may leave the group.
    fn movable_of(&self, slot: u32, class: usize) -> JobId {
        let mut movable = self.groups.get(slot).movable();
        let found = movable.find(|one| one.class == class);
        found.expect("listed under the class").job
    }

    /// Moves the group that reaches farthest, of those for which free GPUs are nearer together.
    fn narrow(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) -> bool {
        if !self.may_narrow || !self.places.rule().is_narrow() {
            return false;
        }
        let mut best = None;
        for kind in 0..self.kinds.len() {
            let Some(entry) = self.groups.widest(kind) else {
                continue;
            };
            let (Reverse(span), _, slot) = entry;
            let is_least = span <= narrowest(plan.free(), self.kinds[kind]);
            if is_least || best.as_ref().is_some_and(|(other, _)| *other < entry) {
                continue;
            }
            let group = self.groups.get(slot);
            let job = group.running[0];
            let class = self.places.class_of(job);
            if !self
                .places
                .can_on(plan.free(), class, self.kinds[kind].gpu_type)
            {
                continue;
            }
            let place = self.find_place_of(view, plan.free(), kind, (class, job));
            let place =
                place.filter(|gpus| (plan.free().tier(gpus), gpus.by_server().len()) < span);
            best = place.map(|gpus| (entry, gpus)).or(best);
        }
        let Some(((.., slot), gpus)) = best else {
            self.may_narrow = false;
            return false;
        };
        let group = self.groups.get(slot);
        let (kind, old) = (group.kind, group.gpus.clone());
        plan.give_back(&old);
        plan.take(&gpus);
        self.affinity.release(plan.free(), &old);
        self.affinity.claim(plan.free(), kind, &gpus);
        let span = (plan.free().tier(&gpus), gpus.by_server().len());
        self.groups.change(slot, |group| {
            group.span = span;
            group.gpus = gpus;
        });
        self.set_turn(view, slot, Turn::Elsewhere);
        self.counts.narrowings += 1;
        true
    }
}

/// The least span that a gang of a kind can have on the servers that are up.
fn narrowest(free: &FreeIndex, kind: Kind) -> (Level, usize) {
    let pool = free.pool(kind.gpu_type);
    let servers = kind.gpus.div_ceil(pool.server_gpus_max().max(1)) as usize;
    let level = if servers <= 1 {
        Level::Server
    } else if kind.gpus <= pool.rack_up_max() {
        Level::Rack
    } else {
        Level::Network
    };
    (level, servers)
}
