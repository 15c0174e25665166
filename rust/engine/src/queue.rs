//! The event queue: a heap of small keys with lazy cancellation.
//!
//! The queue does not depend on jobs or servers. It contains the events of running jobs, the policy's timers and future
//! failures. It does not contain arrivals or round boundaries, so its size does not depend on the length of the trace.
//! Pushing and popping an event cost O(log n). Each node of the heap has four children. The heap therefore has half as
//! many levels as a binary heap, and siblings are adjacent in memory. `docs/concepts/simulated-second.md` defines the
//! order of events at one instant.

use gangline_model::SimTime;

/// Class of an event. At an instant, lower classes come first. Class 2 is reserved for arrivals, which never enter the
/// queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum EventClass {
    /// A job's work is done.
    Completion = 0,
    /// A server fails or is repaired.
    Capacity = 1,
    /// A policy's timer.
    Timer = 3,
}

/// Number of children that a node of the heap has.
const WIDTH: usize = 4;

/// An event with its time, class and subject. `generation` distinguishes a live event from a cancelled one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Instant of the event.
    pub time: SimTime,
    /// Class in the upper 4 bits, insertion number in the lower 60 bits.
    order: u64,
    /// The running job, server or timer that the event concerns.
    pub subject: u32,
    /// Generation that the subject had when the event was created.
    pub generation: u32,
}

impl Event {
    /// Returns the class of the event.
    #[inline]
    pub fn class(&self) -> EventClass {
        match self.order >> 60 {
            0 => EventClass::Completion,
            1 => EventClass::Capacity,
            _ => EventClass::Timer,
        }
    }

    /// Returns the time, class and insertion number as one number, which is unique in a queue.
    #[inline]
    fn key(&self) -> u128 {
        u128::from(self.time.0 as u64 ^ 1 << 63) << 64 | u128::from(self.order)
    }
}

/// Returns the index of the earliest of four events.
#[inline]
fn earliest(events: &[Event]) -> usize {
    // The times are compared in two pairs, and then the earlier times of the pairs are compared, without a branch. If
    // times are equal, which is rare, the keys are compared instead.
    let at = [0, 1, 2, 3].map(|at: usize| events[at].time.0);
    let left = usize::from(at[1] < at[0]);
    let right = 2 + usize::from(at[3] < at[2]);
    let (a, b) = (at[0].min(at[1]), at[2].min(at[3]));
    if at[0] == at[1] || at[2] == at[3] || a == b {
        let first = (0..4).min_by_key(|&at| events[at].key());
        return first.expect("four events");
    }
    if b < a { right } else { left }
}

/// A priority queue of [`Event`]s ordered by (time, class, insertion).
#[derive(Clone, Debug, Default)]
pub struct EventQueue {
    /// Entry `i` comes before its children `WIDTH * i + 1` to `WIDTH * i + WIDTH`.
    heap: Vec<Event>,
    sequence: u64,
    stale: usize,
}

impl EventQueue {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an event.
    ///
    /// # Examples
    /// ```
    /// use gangline_engine::{EventClass, EventQueue};
    /// use gangline_model::SimTime;
    /// let mut queue = EventQueue::new();
    /// queue.push(SimTime(5), EventClass::Timer, 0, 0);
    /// queue.push(SimTime(5), EventClass::Completion, 7, 0);
    /// assert_eq!(queue.pop().unwrap().subject, 7);
    /// ```
    #[inline]
    pub fn push(&mut self, time: SimTime, class: EventClass, subject: u32, generation: u32) {
        let order = (class as u64) << 60 | self.sequence;
        self.sequence += 1;
        self.heap.push(Event {
            time,
            order,
            subject,
            generation,
        });
        self.rise(self.heap.len() - 1);
    }

    /// Returns the earliest event.
    #[inline]
    pub fn peek(&self) -> Option<&Event> {
        self.heap.first()
    }

    /// Returns the earliest event if it is due at this instant.
    #[inline]
    pub(crate) fn peek_at(&self, time: SimTime) -> Option<Event> {
        self.peek().filter(|event| event.time == time).copied()
    }

    /// Returns the earliest event and its children in the heap; the second-earliest event is one of these children.
    #[inline]
    pub fn soonest(&self) -> &[Event] {
        &self.heap[..self.heap.len().min(WIDTH + 1)]
    }

    /// Takes the earliest event.
    #[inline]
    pub fn pop(&mut self) -> Option<Event> {
        let last = self.heap.pop()?;
        let Some(top) = self.heap.first_mut() else {
            return Some(last);
        };
        let event = std::mem::replace(top, last);
        self.sink(0);
        Some(event)
    }

    /// Moves an entry towards the root until its parent is earlier.
    #[inline]
    fn rise(&mut self, mut at: usize) {
        let event = self.heap[at];
        let key = event.key();
        while at > 0 {
            let parent = (at - 1) / WIDTH;
            if self.heap[parent].key() < key {
                break;
            }
            self.heap[at] = self.heap[parent];
            at = parent;
        }
        self.heap[at] = event;
    }

    /// Moves an entry away from the root until it is earlier than its children.
    #[inline]
    fn sink(&mut self, mut at: usize) {
        let heap = self.heap.as_mut_slice();
        let event = heap[at];
        loop {
            let first = WIDTH * at + 1;
            let child = match heap.get(first..first + WIDTH) {
                Some(children) => first + earliest(children),
                None => match (first..heap.len()).min_by_key(|&child| heap[child].key()) {
                    Some(child) => child,
                    None => break,
                },
            };
            let next = heap[child];
            if event.time < next.time || (event.time == next.time && event.order < next.order) {
                break;
            }
            heap[at] = next;
            at = child;
        }
        heap[at] = event;
    }

    /// Returns the number of events, including cancelled ones.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Returns the number of events that are not stale.
    #[inline]
    pub fn live(&self) -> usize {
        self.heap.len().saturating_sub(self.stale)
    }

    /// Returns all events in unspecified order, including stale ones.
    pub(crate) fn events(&self) -> &[Event] {
        &self.heap
    }

    /// Records that one event in the queue has become stale.
    #[inline]
    pub fn note_stale(&mut self) {
        self.stale += 1;
    }

    /// Returns whether the queue contains a stale event.
    #[inline]
    pub fn has_stale(&self) -> bool {
        self.stale > 0
    }

    /// Records that a stale event was popped.
    #[inline]
    pub fn note_dropped(&mut self) {
        self.stale = self.stale.saturating_sub(1);
    }

    /// Returns whether the queue is large enough for compaction and more than half of its events are stale.
    #[inline]
    pub fn wants_compaction(&self) -> bool {
        self.stale > 64 && self.stale * 2 > self.heap.len()
    }

    /// Removes the events for which `is_live` is false; the amortised cost is O(1) per event.
    pub fn compact(&mut self, mut is_live: impl FnMut(&Event) -> bool) {
        self.heap.retain(|event| is_live(event));
        self.stale = 0;
        for at in (0..self.heap.len().div_ceil(WIDTH)).rev() {
            self.sink(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn orders_by_time_then_class_then_insertion() {
        let mut queue = EventQueue::new();
        queue.push(SimTime(2), EventClass::Completion, 1, 0);
        queue.push(SimTime(1), EventClass::Timer, 2, 0);
        queue.push(SimTime(1), EventClass::Capacity, 3, 0);
        queue.push(SimTime(1), EventClass::Completion, 4, 0);
        queue.push(SimTime(1), EventClass::Completion, 5, 0);
        let subjects: Vec<u32> = std::iter::from_fn(|| queue.pop())
            .map(|e| e.subject)
            .collect();
        assert_eq!(subjects, [4, 5, 3, 2, 1]);
    }

    proptest! {
        #[test]
        fn pops_in_the_order_of_a_sorted_list(
            pushes in prop::collection::vec((0_i64..40, 0_u8..3, any::<bool>()), 0..300),
        ) {
            let mut queue = EventQueue::new();
            let mut sorted = Vec::new();
            for (number, (time, class, pops)) in pushes.into_iter().enumerate() {
                let class = [EventClass::Completion, EventClass::Capacity, EventClass::Timer]
                    [usize::from(class)];
                queue.push(SimTime(time), class, number as u32, 0);
                sorted.push((time, class, number as u32));
                sorted.sort_unstable();
                if pops {
                    let first = sorted.remove(0);
                    prop_assert_eq!(queue.pop().map(|event| event.subject), Some(first.2));
                }
            }
            let rest: Vec<u32> = std::iter::from_fn(|| queue.pop()).map(|e| e.subject).collect();
            let wanted: Vec<u32> = sorted.iter().map(|event| event.2).collect();
            prop_assert_eq!(rest, wanted);
        }
    }

    #[test]
    fn compaction_keeps_live_events_in_order() {
        let mut queue = EventQueue::new();
        for subject in 0..200 {
            queue.push(
                SimTime(i64::from(subject % 7)),
                EventClass::Completion,
                subject as u32,
                0,
            );
        }
        for _ in 0..150 {
            queue.note_stale();
        }
        assert!(queue.wants_compaction());
        queue.compact(|event| event.subject % 4 == 0);
        assert_eq!(queue.len(), 50);
        let times: Vec<i64> = std::iter::from_fn(|| queue.pop())
            .map(|e| e.time.0)
            .collect();
        assert!(times.is_sorted());
    }
}
