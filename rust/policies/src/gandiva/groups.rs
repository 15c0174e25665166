//! All groups, with three indexes: groups that accept another resident, groups that can give a resident away, and
//! groups that span more servers than necessary. Every change costs O(log groups).

use crate::place::Level;
use gangline_engine::{BitSet, ClusterView};
use gangline_model::{GpuSet, JobId, SimTime};
use smallvec::{SmallVec, smallvec};
use std::cmp::Reverse;
use std::collections::BTreeSet;

const NONE: u32 = u32::MAX;

/// A list entry: a group's sort key, index and slot.
type Entry<K> = (K, u64, u32);

#[derive(Debug, Default)]
pub(super) struct Groups {
    slots: Vec<Group>,
    /// For each slot, the lists that contain the slot's group.
    listed: Vec<Listing>,
    vacant: Vec<u32>,
    /// Slot of each job's group.
    of: Vec<u32>,
    max_residents: usize,
    /// Number of groups created so far.
    made: u64,
    /// Number of residents added to groups so far.
    joins: u64,
    /// Groups that accept another resident, by kind; groups with the fewest residents come first.
    open: Vec<BTreeSet<Entry<usize>>>,
    /// For each class, the groups with a resident of this class that may migrate; groups with the most residents come
    /// first.
    movable: Vec<BTreeSet<Entry<Reverse<usize>>>>,
    /// Classes with a resident that may migrate.
    movable_classes: BitSet,
    /// Groups on several servers, by kind; the widest come first.
    wide: Vec<BTreeSet<Entry<Reverse<Span>>>>,
    /// Groups that this decision has changed, as (index, slot). Entries may be repeated or refer to removed groups.
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

    /// Returns a group; the caller must not change anything that affects the group's place in the lists.
    pub(super) fn get_mut(&mut self, slot: u32) -> &mut Group {
        &mut self.slots[slot as usize]
    }

    /// Changes a group, updates the lists, and records that it has changed.
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

    /// Returns the slots of the changed groups that still exist, in order of the group's index, and clears the record.
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

    pub(super) fn forget_changed(&mut self) {
        self.changed.clear();
    }

    /// Returns the slot of a job's group.
    pub(super) fn of(&self, job: JobId) -> Option<u32> {
        let slot = self.of[job.index()];
        (slot != NONE).then_some(slot)
    }

    /// Creates a group with its first resident, which runs.
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

    pub(super) fn join(&mut self, slot: u32, mut resident: Resident) {
        resident.joined = self.joins;
        self.joins += 1;
        self.of[resident.job.index()] = slot;
        self.change(slot, |group| group.residents.push(resident));
    }

    /// Removes a resident from its group, and ends the trial in which the resident takes part, if any.
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

    /// Removes a group. Afterwards, its residents belong to no group.
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

    /// Returns whether a group with this many residents accepts another resident.
    fn is_open(&self, residents: usize) -> bool {
        (1..self.max_residents).contains(&residents)
    }

    /// Returns the group of the given kind with the fewest residents among those that accept another resident, as
    /// (residents, index, slot).
    pub(super) fn most_open(&self, kind: usize) -> Option<Entry<usize>> {
        self.open[kind].first().copied()
    }

    /// Returns the classes with a resident that may migrate, in ascending order.
    pub(super) fn movable_classes(&self) -> impl Iterator<Item = usize> {
        let next = |from: usize| self.movable_classes.next_from(from);
        std::iter::successors(next(0), move |&class| next(class + 1))
    }

    /// Returns the group with the most residents among those that can give away a resident of this class.
    pub(super) fn most_shared(&self, class: usize) -> Entry<Reverse<usize>> {
        let first = self.movable[class].first();
        *first.expect("a class of which a resident may migrate")
    }

    /// Returns the group of the given kind with the widest span, if that group is on several servers.
    pub(super) fn widest(&self, kind: usize) -> Option<Entry<Reverse<Span>>> {
        self.wide[kind].first().copied()
    }
}

/// Span of a group: tier, then number of servers.
pub(super) type Span = (Level, usize);

/// A job of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resident {
    pub(super) job: JobId,
    pub(super) class: usize,
    /// Number of residents that had joined any group before this resident did.
    pub(super) joined: u64,
    /// Offset in ns that is added to the run time so far; the sum decides which resident has the next turn.
    pub(super) offset: i64,
    /// Whether the resident has run on these GPUs since it joined.
    pub(super) has_run: bool,
}

impl Resident {
    /// Returns the run time, in ns, that decides which resident has the next turn. When a resident joins, this run time
    /// starts at the minimum of the other residents' values.
    pub(super) fn run_time(&self, view: &ClusterView<'_>) -> i64 {
        view.executed(self.job).0 + self.offset
    }
}

/// A group: GPUs for one gang size, and the jobs that take turns on them.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) kind: usize,
    /// Number of groups that were created before this one.
    pub(super) index: u64,
    pub(super) gpus: GpuSet,
    pub(super) span: Span,
    pub(super) residents: SmallVec<[Resident; 4]>,
    /// The job whose turn it is, then its co-runner.
    pub(super) running: SmallVec<[JobId; 2]>,
    /// End of the turn; `NEVER` while no resident is waiting for a turn.
    pub(super) turn_end: SimTime,
    /// End of the trial; `NEVER` while no trial is running.
    pub(super) trial_end: SimTime,
}

/// The properties of a group that determine which lists it is in, and its position there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    /// Number of residents; a group without residents is in no list.
    pub(super) residents: usize,
    /// Classes of the residents that may migrate, ascending.
    pub(super) classes: SmallVec<[usize; 4]>,
    /// Span of the group, if the group is on several servers.
    pub(super) span: Option<Span>,
}

impl Group {
    /// Returns whether a resident is waiting for its turn.
    pub(super) fn has_waiting(&self) -> bool {
        self.residents.len() > self.running.len()
    }

    pub(super) fn is_running(&self, job: JobId) -> bool {
        self.running.contains(&job)
    }

    /// Returns the residents that may migrate: those that are waiting for a turn. If none is waiting, every resident
    /// may migrate, unless there is only one.
    pub(super) fn movable(&self) -> impl Iterator<Item = &Resident> {
        let (has_waiting, is_alone) = (self.has_waiting(), self.residents.len() == 1);
        self.residents
            .iter()
            .filter(move |one| !(is_alone || has_waiting && self.is_running(one.job)))
    }

    /// Returns the properties that determine which lists the group is in.
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

    /// Returns the time of the group's next timer.
    pub(super) fn due(&self) -> SimTime {
        self.turn_end.min(self.trial_end)
    }
}
