//! All groups, listed by what is asked of them: who can be joined, who can give a resident away, who reaches
//! farther than it might. Every change costs O(log groups).

use super::group::{Group, Listed, Resident, Span};
use gangline_engine::BitSet;
use gangline_model::{GpuSet, JobId, SimTime};
use smallvec::smallvec;
use std::cmp::Reverse;
use std::collections::BTreeSet;

const NONE: u32 = u32::MAX;

/// A group in a list: what it is sorted by, its index, its slot.
type Entry<K> = (K, u64, u32);

/// All groups.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    groups: Vec<Group>,
    vacant: Vec<u32>,
    /// Slot of the group of each job.
    of: Vec<u32>,
    max_residents: usize,
    made: u64,
    /// Joins so far.
    joins: u64,
    /// Groups that take one more resident, by kind; fewest residents first.
    open: Vec<BTreeSet<Entry<usize>>>,
    /// Groups with a resident of the class that may migrate; most residents first.
    movable: Vec<BTreeSet<Entry<Reverse<usize>>>>,
    /// Classes with such a group.
    movable_classes: BitSet,
    /// Groups on several servers, by kind; the widest first.
    wide: Vec<BTreeSet<Entry<Reverse<Span>>>>,
    /// Groups that this decision has changed.
    touched: Vec<u32>,
}

impl Crowd {
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

    #[inline]
    pub(super) fn get(&self, slot: u32) -> &Group {
        &self.groups[slot as usize]
    }

    /// The group, noted as changed; [`Self::relist`] follows.
    #[inline]
    pub(super) fn touch(&mut self, slot: u32) -> &mut Group {
        let group = &mut self.groups[slot as usize];
        if !group.is_touched {
            group.is_touched = true;
            self.touched.push(slot);
        }
        group
    }

    /// The groups that were changed, by index; they are forgotten as such.
    pub(super) fn take_touched(&mut self) -> Vec<u32> {
        let mut touched = std::mem::take(&mut self.touched);
        let groups = &mut self.groups;
        touched.retain(|&slot| std::mem::take(&mut groups[slot as usize].is_touched));
        touched.sort_unstable_by_key(|&slot| groups[slot as usize].born);
        touched
    }

    /// The group of a job.
    #[inline]
    pub(super) fn of(&self, job: JobId) -> Option<u32> {
        let slot = self.of[job.index()];
        (slot != NONE).then_some(slot)
    }

    /// A new group with its first resident, which runs.
    pub(super) fn found(&mut self, kind: usize, gpus: GpuSet, span: Span, first: Resident) -> u32 {
        let group = Group {
            kind,
            born: self.made,
            gpus,
            span,
            residents: smallvec![],
            running: smallvec![first.job],
            turn_end: SimTime::NEVER,
            trial_end: SimTime::NEVER,
            is_touched: false,
            listed: Listed::default(),
        };
        self.made += 1;
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.groups.push(group.clone());
            self.groups.len() as u32 - 1
        });
        self.groups[slot as usize] = group;
        self.join(slot, first);
        slot
    }

    /// One more resident.
    pub(super) fn join(&mut self, slot: u32, mut resident: Resident) {
        resident.joined = self.joins;
        self.joins += 1;
        self.of[resident.job.index()] = slot;
        self.touch(slot).residents.push(resident);
        self.relist(slot);
    }

    /// Takes a resident out of its group; a trial that it took part in is over.
    pub(super) fn leave(&mut self, slot: u32, job: JobId) -> Resident {
        self.of[job.index()] = NONE;
        let group = self.touch(slot);
        let at = group.residents.iter().position(|one| one.job == job);
        let resident = group.residents.remove(at.expect("a resident of its group"));
        if group.is_running(job) {
            group.running.retain(|running| *running != job);
            group.trial_end = SimTime::NEVER;
        }
        self.relist(slot);
        resident
    }

    /// Removes a group; its residents are without one.
    pub(super) fn dissolve(&mut self, slot: u32) -> Group {
        self.unlist(slot);
        let group = &mut self.groups[slot as usize];
        for resident in &group.residents {
            self.of[resident.job.index()] = NONE;
        }
        group.is_touched = false;
        self.vacant.push(slot);
        group.clone()
    }

    fn unlist(&mut self, slot: u32) {
        let group = &mut self.groups[slot as usize];
        let listed = std::mem::take(&mut group.listed);
        if listed.residents == 0 {
            return;
        }
        let (born, kind) = (group.born, group.kind);
        self.open[kind].remove(&(listed.residents, born, slot));
        for class in listed.classes {
            self.movable[class].remove(&(Reverse(listed.residents), born, slot));
            if self.movable[class].is_empty() {
                self.movable_classes.remove(class);
            }
        }
        if let Some(span) = listed.span {
            self.wide[kind].remove(&(Reverse(span), born, slot));
        }
    }

    /// Puts the lists right for a group that has changed.
    pub(super) fn relist(&mut self, slot: u32) {
        let wanted = self.groups[slot as usize].listing();
        if wanted == self.groups[slot as usize].listed {
            return;
        }
        self.unlist(slot);
        if wanted.residents == 0 {
            return;
        }
        let group = &mut self.groups[slot as usize];
        let (born, kind) = (group.born, group.kind);
        if wanted.residents < self.max_residents {
            self.open[kind].insert((wanted.residents, born, slot));
        }
        for &class in &wanted.classes {
            self.movable[class].insert((Reverse(wanted.residents), born, slot));
            self.movable_classes.insert(class);
        }
        if let Some(span) = wanted.span {
            self.wide[kind].insert((Reverse(span), born, slot));
        }
        group.listed = wanted;
    }

    /// The group of a kind with the fewest residents that takes one more: residents, index, slot.
    #[inline]
    pub(super) fn most_open(&self, kind: usize) -> Option<Entry<usize>> {
        self.open[kind].first().copied()
    }

    /// The group with the most residents that can give one of a class away.
    #[inline]
    pub(super) fn most_crowded(&self, class: usize) -> Option<Entry<Reverse<usize>>> {
        self.movable[class].first().copied()
    }

    /// The next class, from `class` on, of which a resident may migrate.
    #[inline]
    pub(super) fn next_movable(&self, class: usize) -> Option<usize> {
        self.movable_classes.next_from(class)
    }

    /// The group of a kind that reaches farthest, if it has several servers.
    #[inline]
    pub(super) fn widest(&self, kind: usize) -> Option<Entry<Reverse<Span>>> {
        self.wide[kind].first().copied()
    }
}
