//! Sets of places in the order: a bit per place, and bits that tell which words have any.
//!
//! Cost: O(1), a word per level. Places that are near each other lie in one cache line.

/// A place in the order. Places lie dense, so a set of them is an array of bits.
pub(super) type Place = i32;

/// Behind every place.
pub(super) const NOBODY: Place = Place::MAX;

const LEVELS: usize = 4;
/// Most places that the levels tell apart.
pub(super) const PLACES_MAX: usize = 1 << (6 * LEVELS);

/// A set of places, or of any small numbers.
pub(super) struct Places {
    /// The members, then, level by level, the words of the level before that are not 0.
    levels: [Vec<u64>; LEVELS],
}

impl Places {
    /// For numbers below `size`.
    pub(super) fn new(size: usize) -> Self {
        assert!(size <= PLACES_MAX, "too many jobs for the levels of a set");
        let mut size = size;
        let level = |_| {
            size = size / 64 + 1;
            vec![0; size]
        };
        Self {
            levels: [0; LEVELS].map(level),
        }
    }

    #[inline]
    pub(super) fn has(&self, place: Place) -> bool {
        let at = place as usize;
        self.levels[0][at / 64] >> (at % 64) & 1 == 1
    }

    #[inline]
    pub(super) fn insert(&mut self, place: Place) {
        let mut at = place as usize;
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            let old = *word;
            *word |= 1 << (at % 64);
            if old != 0 {
                return;
            }
            at /= 64;
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, place: Place) {
        let mut at = place as usize;
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            *word &= !(1 << (at % 64));
            if *word != 0 {
                return;
            }
            at /= 64;
        }
    }

    /// The first member at a place or behind it.
    #[inline]
    pub(super) fn next(&self, from: Place) -> Option<Place> {
        let mut at = from as usize;
        for level in 0..LEVELS {
            let word = self.levels[level].get(at / 64)? >> (at % 64);
            if word != 0 {
                at += word.trailing_zeros() as usize;
                for below in self.levels[..level].iter().rev() {
                    at = at * 64 + below[at].trailing_zeros() as usize;
                }
                return Some(at as Place);
            }
            at = at / 64 + 1;
        }
        None
    }

    /// The last member before a place.
    #[inline]
    pub(super) fn before(&self, place: Place) -> Option<Place> {
        let mut at = place as usize;
        for level in 0..LEVELS {
            let word = self.levels[level][at / 64] & !(u64::MAX << (at % 64));
            if word != 0 {
                at = at / 64 * 64 + word.ilog2() as usize;
                for below in self.levels[..level].iter().rev() {
                    at = at * 64 + below[at].ilog2() as usize;
                }
                return Some(at as Place);
            }
            at /= 64;
        }
        None
    }
}

/// Places of which mostly the first is asked for.
pub(super) struct Line {
    places: Places,
    /// [`NOBODY`] if it is empty.
    first: Place,
}

impl Line {
    pub(super) fn new(size: usize) -> Self {
        Self {
            places: Places::new(size),
            first: NOBODY,
        }
    }

    #[inline]
    pub(super) fn first(&self) -> Place {
        self.first
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first == NOBODY
    }

    #[inline]
    pub(super) fn has(&self, place: Place) -> bool {
        self.places.has(place)
    }

    #[inline]
    pub(super) fn insert(&mut self, place: Place) {
        self.places.insert(place);
        self.first = self.first.min(place);
    }

    #[inline]
    pub(super) fn remove(&mut self, place: Place) {
        self.places.remove(place);
        if self.first == place {
            self.first = self.places.next(place).unwrap_or(NOBODY);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Line, NOBODY, Place, Places};
    use crate::workload::{Cluster, philly_like};

    /// Like a set of the standard library, with members near each other and far apart.
    #[test]
    fn keeps_the_order_of_a_set() {
        const SIZE: usize = 400_000;
        let drawn = philly_like(6_000, Cluster::PUBLISHED, 1.0, 9).duration_ns;
        let (mut ours, mut line, mut set) = (Places::new(SIZE), Line::new(SIZE), BTreeSet::new());
        for (at, &draw) in drawn.iter().enumerate() {
            let draw = (draw / 1_000) as usize;
            let near = draw % 300 + SIZE - 300;
            let place = [draw % SIZE, draw % 64, near][at % 3] as Place;
            assert_eq!((ours.has(place), line.has(place)), {
                let is_in = set.contains(&place);
                (is_in, is_in)
            });
            if draw % 5 < 3 && set.insert(place) {
                ours.insert(place);
                line.insert(place);
            } else if let Some(&first) = set.range(place..).next() {
                set.remove(&first);
                ours.remove(first);
                line.remove(first);
            }
            assert_eq!(ours.next(place), set.range(place..).next().copied());
            assert_eq!(ours.before(place), set.range(..place).next_back().copied());
            assert_eq!(line.first(), set.first().copied().unwrap_or(NOBODY));
        }
        assert!(set.len() > 200);
        while let Some(last) = set.pop_last() {
            assert_eq!(ours.before(SIZE as Place), Some(last));
            ours.remove(last);
        }
        assert_eq!((ours.next(0), ours.before(SIZE as Place)), (None, None));
    }
}
