//! Timers of a policy. Timers are exact events; a cancelled timer stays in the queue and is recognised by its
//! generation. A tag has at most one live timer.

use crate::queue::{EventClass, EventQueue};
use gangline_model::{SimTime, TimerTag};
use rustc_hash::FxHashMap;

/// Timers by tag. No code iterates over the map from tag to slot, because its order is arbitrary.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers {
    slots: FxHashMap<TimerTag, u32>,
    tags: Vec<TimerTag>,
    /// Generation of each slot; an odd number means that the timer is armed.
    generations: Vec<u32>,
    free: Vec<u32>,
    live: usize,
}

impl Timers {
    pub(crate) fn arm(&mut self, tag: TimerTag, time: SimTime, queue: &mut EventQueue) {
        self.cancel(tag, queue);
        let slot = if let Some(slot) = self.free.pop() {
            self.tags[slot as usize] = tag;
            slot
        } else {
            self.tags.push(tag);
            self.generations.push(0);
            (self.tags.len() - 1) as u32
        };
        self.slots.insert(tag, slot);
        let generation = &mut self.generations[slot as usize];
        *generation = generation.wrapping_add(1);
        self.live += 1;
        queue.push(time, EventClass::Timer, slot, *generation);
    }

    pub(crate) fn cancel(&mut self, tag: TimerTag, queue: &mut EventQueue) {
        if let Some(slot) = self.slots.remove(&tag) {
            self.retire(slot);
            queue.note_stale();
        }
    }

    #[inline]
    pub(crate) fn is_live(&self, slot: u32, generation: u32) -> bool {
        self.generations[slot as usize] == generation
    }

    /// Removes a timer whose event has been processed. Returns its tag.
    pub(crate) fn fire(&mut self, slot: u32) -> TimerTag {
        let tag = self.tags[slot as usize];
        self.slots.remove(&tag);
        self.retire(slot);
        tag
    }

    fn retire(&mut self, slot: u32) {
        let generation = &mut self.generations[slot as usize];
        *generation = generation.wrapping_add(1);
        self.free.push(slot);
        self.live -= 1;
    }

    /// Returns the number of armed timers.
    pub(crate) fn live(&self) -> usize {
        self.live
    }
}
