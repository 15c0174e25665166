//! State for steps 3 and 4 after the incremental count. It is needed for placement rules that may refuse a gang
//! although enough GPUs are free (`yarn`, `skew`, ...). The lists of unplaced and backfilled jobs carry over from
//! decision to decision.
//!
//! According to the rule, all backfilled jobs give up their GPUs at each decision. Unplaced jobs are tried first, then
//! backfilled and waiting jobs in order. A backfilled job keeps its GPUs if they are still free. A waiting job may
//! therefore take any GPUs that are held neither by admitted jobs nor by earlier backfilled jobs; see [`FreeProfile`].
//! A new placement stops the backfilled jobs on its GPUs, and no other jobs.

use super::jobs::Key;
use super::profile::{FreeProfile, Hold};
use super::running::TYPE;
use crate::kit::{Classes, Places};
use gangline_engine::{ClusterView, FreeIndex, Plan};
use gangline_model::{GpuSet, JobId, ServerId};
use std::collections::BTreeSet;

/// Unplaced and backfilled jobs, and the free capacity at each point of their order.
#[derive(Debug, Default)]
pub(super) struct Backfilling {
    pub(super) classes: Vec<LeftOut>,
    /// The free-capacity profile. There is no profile while all running jobs are admitted and all admitted jobs have
    /// GPUs: the free capacity is then simply the plan's free GPUs.
    pub(super) profile: Option<FreeProfile>,
    /// Number of decisions since the profile was last needed.
    idle: usize,
}

#[derive(Debug, Default)]
pub(super) struct LeftOut {
    gpus: u32,
    /// Whether gangs of the class get either one server or no place.
    is_on_one_server: bool,
    /// See `Placer::needs`.
    needs: Option<(u32, u32)>,
    pub(super) unplaced: BTreeSet<Key>,
    pub(super) backfilled: BTreeSet<Key>,
    /// Whether an unplaced job was refused, and no GPUs have become free for unplaced jobs since then.
    pub(super) is_unplaced_refused: bool,
    /// Key at which a waiting job was refused, provided that no GPUs have become free before this key since then. Gangs
    /// on one server do not use this field, because a query of the profile is enough for them.
    refused_from: Option<Key>,
}

impl Backfilling {
    pub(super) fn new(classes: &Classes) -> Self {
        let class = |gpus| LeftOut {
            gpus,
            ..LeftOut::default()
        };
        Self {
            classes: classes.iter().map(|of| class(of.gpus)).collect(),
            ..Self::default()
        }
    }

    pub(super) fn is_used(&self) -> bool {
        !self.classes.is_empty()
    }

    /// Returns whether every running job is admitted and every admitted job has GPUs.
    pub(super) fn is_idle(&self) -> bool {
        self.profile.is_none()
    }

    pub(super) fn first_backfilled(&self, class: usize) -> Option<Key> {
        self.classes.get(class)?.backfilled.first().copied()
    }

    /// Returns all unplaced jobs, each with its class.
    pub(super) fn unplaced(&self) -> impl Iterator<Item = (usize, Key)> + '_ {
        let classes = self.classes.iter().enumerate();
        classes.flat_map(|(at, class)| class.unplaced.iter().map(move |&key| (at, key)))
    }

    /// Returns all backfilled jobs.
    pub(super) fn backfilled(&self) -> impl Iterator<Item = Key> + '_ {
        let classes = self.classes.iter();
        classes.flat_map(|class| class.backfilled.iter().copied())
    }

    /// Looks up the properties of the placement rule for each class.
    pub(super) fn know_rule(&mut self, free: &FreeIndex, places: &Places) {
        for (at, class) in self.classes.iter_mut().enumerate() {
            let demand = &places.classes().get(at).demand;
            class.is_on_one_server = places.rule().is_on_one_server(free, TYPE, demand);
            class.needs = places.rule().needs(free, TYPE, demand);
        }
    }

    /// Records that GPUs have become free for unplaced jobs, and therefore also for all waiting jobs.
    fn note_gain(&mut self) {
        for class in &mut self.classes {
            class.is_unplaced_refused = false;
            class.refused_from = None;
        }
    }

    /// Records that GPUs have become free for waiting jobs behind the given key.
    fn note_gain_behind(&mut self, key: Key) {
        for class in &mut self.classes {
            class.refused_from = class.refused_from.filter(|from| *from <= key);
        }
    }

    /// Builds the profile if there is none.
    pub(super) fn make_profile(&mut self, view: &ClusterView<'_>, plan: Option<&Plan<'_>>) {
        if self.profile.is_none() {
            self.profile = Some(FreeProfile::new(view, plan));
            self.idle = 0;
        }
    }

    /// Drops the profile if it has not been needed for as many decisions as there are running jobs. Even under a
    /// changing load, the profile is therefore built at most once in that many decisions.
    pub(super) fn drop_idle_profile(&mut self, is_needed: bool) {
        self.idle = if is_needed { 0 } else { self.idle + 1 };
        if self
            .profile
            .as_ref()
            .is_some_and(|profile| self.idle > profile.jobs())
        {
            self.profile = None;
        }
    }

    pub(super) fn leave_admitted(&mut self, job: JobId) {
        self.note_gain();
        if let Some(profile) = &mut self.profile {
            profile.give(job, Hold::Admitted);
        }
    }

    /// Records that a backfilled job has given up its GPUs.
    pub(super) fn leave_backfilled(&mut self, class: usize, key: Key) {
        self.classes[class].backfilled.remove(&key);
        self.note_gain_behind(key);
        if let Some(profile) = &mut self.profile {
            profile.give(key.job(), Hold::Backfilled(key));
        }
    }

    pub(super) fn rekey_backfilled(&mut self, class: usize, old: Key, key: Key) {
        let backfilled = &mut self.classes[class].backfilled;
        backfilled.remove(&old);
        backfilled.insert(key);
        // If the job moves forward, the jobs that it passes have fewer GPUs left, so their refusals stay valid.
        if key > old {
            self.note_gain_behind(old);
        }
        self.change(key.job(), Hold::Backfilled(old), Hold::Backfilled(key));
    }

    /// Records that the count admits a backfilled job.
    pub(super) fn admit_backfilled(&mut self, class: usize, key: Key) {
        self.classes[class].backfilled.remove(&key);
        self.change(key.job(), Hold::Backfilled(key), Hold::Admitted);
    }

    /// Records that the count no longer admits a running job.
    pub(super) fn backfill(&mut self, view: &ClusterView<'_>, class: usize, key: Key) {
        self.make_profile(view, None);
        self.classes[class].backfilled.insert(key);
        self.note_gain();
        self.change(key.job(), Hold::Admitted, Hold::Backfilled(key));
    }

    fn change(&mut self, job: JobId, old: Hold, hold: Hold) {
        let profile = self.profile.as_mut();
        let profile = profile.expect("there is a profile while there are backfilled jobs");
        profile.change(job, old, hold);
    }

    pub(super) fn add_unplaced(&mut self, class: usize, key: Key) {
        self.classes[class].unplaced.insert(key);
    }

    /// Removes an unplaced job because it starts, gets a new key, or is no longer admitted.
    pub(super) fn remove_unplaced(&mut self, class: usize, key: Key) {
        self.classes[class].unplaced.remove(&key);
    }

    /// Records that servers have failed or were repaired; the jobs on them have already left.
    pub(super) fn servers_changed<'a>(
        &mut self,
        view: &ClusterView<'_>,
        servers: impl Iterator<Item = &'a ServerId>,
    ) {
        self.note_gain();
        if let Some(profile) = &mut self.profile {
            for &server in servers {
                profile.set_up(server, view.is_up(server));
            }
        }
    }

    /// Returns the first unplaced job that might have a place, and its class.
    pub(super) fn next_unplaced(&self) -> Option<(Key, usize)> {
        let open = self.classes.iter().enumerate();
        let open = open.filter(|(_, class)| !class.is_unplaced_refused);
        open.filter_map(|(at, class)| Some((*class.unplaced.first()?, at)))
            .min()
    }

    /// Returns whether a waiting job might have a place; if the result is `false`, the job certainly has none.
    pub(super) fn may_fit(&self, profile: &FreeProfile, class: usize, key: Key) -> bool {
        let class = &self.classes[class];
        if class.is_on_one_server {
            return profile.has(1, class.gpus, key);
        }
        class.refused_from.is_none_or(|from| key < from)
            && class
                .needs
                .is_none_or(|(servers, gpus)| profile.has(servers, gpus, key))
    }

    /// Returns GPUs for a waiting job, chosen from those that no job before it holds.
    pub(super) fn place(&mut self, places: &mut Places, class: usize, key: Key) -> Option<GpuSet> {
        let profile = self.profile.as_mut().expect("jobs wait");
        let of = &mut self.classes[class];
        if of.is_on_one_server {
            let (server, mask) = profile.find(of.gpus, key, places.rule().is_first_fit())?;
            return Some(places.rule().place_in_mask(server, mask, of.gpus));
        }
        let classes = self.classes.iter();
        let before = classes.flat_map(|class| class.backfilled.range(..key));
        let found = profile.at(before.map(|before| before.job()), |free| {
            places.place_in(free, class, (key.job(), 0), TYPE)
        });
        if found.is_none() {
            self.classes[class].refused_from = Some(key);
        }
        found
    }
}
