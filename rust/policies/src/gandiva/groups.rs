//! All groups, indexed by what is asked of them: which take one more resident, which can give one away, which reach
//! farther than they might. Every change costs O(log groups).

use crate::place::Level;
use gangline_engine::{BitSet, ClusterView};
use gangline_model::{GpuSet, JobId, SimTime};
use smallvec::{SmallVec, smallvec};
use std::cmp::Reverse;
use std::collections::BTreeSet;

const NONE: u32 = u32::MAX;

/// A group in a list: what it is sorted by, its index, its slot.
type Entry<K> = (K, u64, u32);

/// All groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    slots: Vec<Group>,
    /// Where the group of each slot is listed.
    listed: Vec<Listing>,
    vacant: Vec<u32>,
    /// Slot of the group of each job.
    of: Vec<u32>,
    max_residents: usize,
    /// Groups made and residents added so far.
    made: u64,
    joins: u64,
    /// Groups that take one more resident, by kind; fewest residents first.
    open: Vec<BTreeSet<Entry<usize>>>,
    /// Groups with a resident of the class that may migrate; most residents first.
    movable: Vec<BTreeSet<Entry<Reverse<usize>>>>,
    /// Classes with such a group.
    movable_classes: BitSet,
    /// Groups on several servers, by kind; the widest first.
    wide: Vec<BTreeSet<Entry<Reverse<Span>>>>,
    /// Groups that this decision has changed: index, slot. Some more than once, or removed since.
    changed: Vec<(u64, u32)>,
}

impl Groups {
    pub(super) fn new(jobs: usize, classes: usize, kinds: usize, max_residents: usize) -> Self {
        Self {
            of: vec![NONE; jobs],
            max_residents,
            open: vec![BTreeSet::new(); kinds],
            movable: vec![BTreeSet::new(); classes],
            movable_classes: BitSet::new(classes.max(1)),
            wide: vec![BTreeSet::new(); kinds],
            ..Self::default()
        }
    }

    pub(super) fn get(&self, slot: u32) -> &Group {
        &self.slots[slot as usize]
    }

    /// The group, for changes that its place in the lists does not depend on.
    pub(super) fn get_mut(&mut self, slot: u32) -> &mut Group {
        &mut self.slots[slot as usize]
    }

    /// Changes a group, its place in the lists with it, and notes that it has changed.
    pub(super) fn change<T>(&mut self, slot: u32, change: impl FnOnce(&mut Group) -> T) -> T {
        let group = &mut self.slots[slot as usize];
        self.changed.push((group.index, slot));
        let result = change(group);
        let listing = group.listing();
        if listing != self.listed[slot as usize] {
            self.unlist(slot);
            self.list(slot, listing);
        }
        result
    }

    /// The slots of the groups that were changed, in order of their index; they are forgotten as such.
    pub(super) fn take_changed(&mut self) -> Vec<u32> {
        self.changed.sort_unstable();
        self.changed.dedup();
        let slots = &self.slots;
        let is_there = |&(index, slot): &(u64, u32)| {
            let group = &slots[slot as usize];
            (group.index == index && !group.residents.is_empty()).then_some(slot)
        };
        let changed = self.changed.iter().filter_map(is_there).collect();
        self.changed.clear();
        changed
    }

    /// Takes no group for changed any more.
    pub(super) fn forget_changed(&mut self) {
        self.changed.clear();
    }

    /// The group of a job.
    pub(super) fn of(&self, job: JobId) -> Option<u32> {
        let slot = self.of[job.index()];
        (slot != NONE).then_some(slot)
    }

    /// Makes a group with its first resident, which runs.
    pub(super) fn make(&mut self, kind: usize, gpus: GpuSet, span: Span, first: Resident) {
        let group = Group {
            kind,
            index: self.made,
            gpus,
            span,
            residents: smallvec![],
            running: smallvec![first.job],
            turn_end: SimTime::NEVER,
            trial_end: SimTime::NEVER,
        };
        self.made += 1;
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(group.clone());
            self.listed.push(Listing::default());
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize] = group;
        self.join(slot, first);
    }

    /// One more resident.
    pub(super) fn join(&mut self, slot: u32, mut resident: Resident) {
        resident.joined = self.joins;
        self.joins += 1;
        self.of[resident.job.index()] = slot;
        self.change(slot, |group| group.residents.push(resident));
    }

    /// Takes a resident out of its group; a trial that it took part in is over.
    pub(super) fn leave(&mut self, slot: u32, job: JobId) {
        self.of[job.index()] = NONE;
        self.change(slot, |group| {
            group.residents.retain(|one| one.job != job);
            if group.is_running(job) {
                group.running.retain(|running| *running != job);
                group.trial_end = SimTime::NEVER;
            }
        });
    }

    /// Removes a group; its residents are without one.
    pub(super) fn remove(&mut self, slot: u32) -> Group {
        self.unlist(slot);
        let group = self.slots[slot as usize].clone();
        for resident in &group.residents {
            self.of[resident.job.index()] = NONE;
        }
        self.slots[slot as usize].residents.clear();
        self.vacant.push(slot);
        group
    }

    fn unlist(&mut self, slot: u32) {
        let from = std::mem::take(&mut self.listed[slot as usize]);
        let (index, kind) = (self.get(slot).index, self.get(slot).kind);
        if self.is_open(from.residents) {
            self.open[kind].remove(&(from.residents, index, slot));
        }
        for class in from.classes {
            self.movable[class].remove(&(Reverse(from.residents), index, slot));
            if self.movable[class].is_empty() {
                self.movable_classes.remove(class);
            }
        }
        if let Some(span) = from.span {
            self.wide[kind].remove(&(Reverse(span), index, slot));
        }
    }

    fn list(&mut self, slot: u32, at: Listing) {
        let (index, kind) = (self.get(slot).index, self.get(slot).kind);
        if self.is_open(at.residents) {
            self.open[kind].insert((at.residents, index, slot));
        }
        for &class in &at.classes {
            self.movable[class].insert((Reverse(at.residents), index, slot));
            self.movable_classes.insert(class);
        }
        if let Some(span) = at.span {
            self.wide[kind].insert((Reverse(span), index, slot));
        }
        self.listed[slot as usize] = at;
    }

    /// Whether a group with so many residents takes one more.
    fn is_open(&self, residents: usize) -> bool {
        (1..self.max_residents).contains(&residents)
    }

    /// The group of a kind with the fewest residents that takes one more: residents, index, slot.
    pub(super) fn most_open(&self, kind: usize) -> Option<Entry<usize>> {
        self.open[kind].first().copied()
    }

    /// Classes of which a resident may migrate, ascending.
    pub(super) fn movable_classes(&self) -> impl Iterator<Item = usize> {
        let next = |from: usize| self.movable_classes.next_from(from);
        std::iter::successors(next(0), move |&class| next(class + 1))
    }

    /// The group with the most residents of those that can give one of such a class away.
    pub(super) fn most_shared(&self, class: usize) -> Entry<Reverse<usize>> {
        let first = self.movable[class].first();
        *first.expect("a class of which a resident may migrate")
    }

    /// The group of a kind that reaches farthest, if it has several servers.
    pub(super) fn widest(&self, kind: usize) -> Option<Entry<Reverse<Span>>> {
        self.wide[kind].first().copied()
    }
}

// A group: some GPUs and the residents that take turns on them.

/// How far a group reaches: tier, then number of servers.
pub(super) type Span = (Level, usize);

/// A job of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resident {
    pub(super) job: JobId,
    pub(super) class: usize,
    /// How many had joined a group before it.
    pub(super) joined: u64,
    /// Turned into run time for the turns by adding what the job has run so far, ns.
    pub(super) offset: i64,
    /// Whether it has run on these GPUs since it joined.
    pub(super) has_run: bool,
}

impl Resident {
    /// Run time by which turns are given, ns: since it joined, from the least of those that were there.
    pub(super) fn run_time(&self, view: &ClusterView<'_>) -> i64 {
        view.executed(self.job).0 + self.offset
    }
}

/// GPUs of one gang size with the jobs that take turns on them.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) kind: usize,
    /// How many groups were made before it.
    pub(super) index: u64,
    pub(super) gpus: GpuSet,
    pub(super) span: Span,
    pub(super) residents: SmallVec<[Resident; 4]>,
    /// The job whose turn it is, then its co-runner.
    pub(super) running: SmallVec<[JobId; 2]>,
    /// `NEVER` while no resident waits for a turn.
    pub(super) turn_end: SimTime,
    /// `NEVER` while no trial goes on.
    pub(super) trial_end: SimTime,
}

/// Where a group is listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    /// Its residents; one without any is listed nowhere.
    pub(super) residents: usize,
    /// Classes of the residents that may migrate, ascending.
    pub(super) classes: SmallVec<[usize; 4]>,
    /// Its span, if it has several servers.
    pub(super) span: Option<Span>,
}

impl Group {
    /// Whether a resident waits for its turn.
    pub(super) fn has_waiting(&self) -> bool {
        self.residents.len() > self.running.len()
    }

    pub(super) fn is_running(&self, job: JobId) -> bool {
        self.running.contains(&job)
    }

    /// Residents that may migrate: those that wait for a turn, else co-runners.
    pub(super) fn movable(&self) -> impl Iterator<Item = &Resident> {
        let (has_waiting, is_alone) = (self.has_waiting(), self.residents.len() == 1);
        self.residents
            .iter()
            .filter(move |one| !(is_alone || has_waiting && self.is_running(one.job)))
    }

    /// What the lists of [`super::groups::Groups`] say of it.
    pub(super) fn listing(&self) -> Listing {
        let mut classes: SmallVec<[usize; 4]> = self.movable().map(|one| one.class).collect();
        classes.sort_unstable();
        classes.dedup();
        Listing {
            residents: self.residents.len(),
            classes,
            span: (self.span.1 > 1 && !self.residents.is_empty()).then_some(self.span),
        }
    }

    /// When its next timer is due.
    pub(super) fn due(&self) -> SimTime {
        self.turn_end.min(self.trial_end)
    }
}
