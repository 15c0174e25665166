//! The event queue: a binary heap of small keys with lazy cancellation.
//!
//! Knows nothing of jobs or servers. Arrivals and round boundaries never enter it, so its size is that
//! of what runs, whatever the length of the trace. Push and pop cost O(log n).

use gangline_model::SimTime;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Class of an event; at one instant lower classes come first (semantics section 1).
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

/// An event: when, what, whom. `generation` tells a live event from a cancelled one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// Its instant.
    pub time: SimTime,
    /// Class in the upper 4 bits, sequence number of insertion in the lower 60.
    order: u64,
    /// Whom it concerns.
    pub subject: u32,
    /// Generation of the subject when the event was made.
    pub generation: u32,
}

impl Event {
    /// Its class.
    #[inline]
    pub fn class(&self) -> EventClass {
        match self.order >> 60 {
            0 => EventClass::Completion,
            1 => EventClass::Capacity,
            _ => EventClass::Timer,
        }
    }
}

/// A priority queue of [`Event`]s ordered by (time, class, insertion).
#[derive(Debug, Default)]
pub struct EventQueue {
    heap: BinaryHeap<Reverse<Event>>,
    sequence: u64,
    stale: usize,
}

impl EventQueue {
    /// An empty queue.
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
        self.heap.push(Reverse(Event {
            time,
            order,
            subject,
            generation,
        }));
    }

    /// The earliest event.
    #[inline]
    pub fn peek(&self) -> Option<&Event> {
        self.heap.peek().map(|event| &event.0)
    }

    /// Takes the earliest event.
    #[inline]
    pub fn pop(&mut self) -> Option<Event> {
        self.heap.pop().map(|event| event.0)
    }

    /// Number of events, cancelled ones included.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether there is no event.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Says that one event in the queue has become stale.
    #[inline]
    pub fn note_stale(&mut self) {
        self.stale += 1;
    }

    /// Says that a stale event was popped.
    #[inline]
    pub fn note_dropped(&mut self) {
        self.stale = self.stale.saturating_sub(1);
    }

    /// Whether stale events are more than half of a queue that is worth the trouble.
    #[inline]
    pub fn wants_compaction(&self) -> bool {
        self.stale > 64 && self.stale * 2 > self.heap.len()
    }

    /// Removes the events for which `is_live` says no; amortised O(1) per event.
    pub fn compact(&mut self, mut is_live: impl FnMut(&Event) -> bool) {
        self.heap.retain(|event| is_live(&event.0));
        self.stale = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
