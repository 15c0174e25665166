//! The first job of each class that the count does not admit, in rank order. It is kept between decisions, as most
//! decisions change one or two of these jobs.

use crate::order::Rank;

/// The first job of a class that the count does not admit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) rank: Rank,
    pub(super) class: usize,
    pub(super) gpus: u32,
}

/// At most one head per class.
#[derive(Debug, Default)]
pub(super) struct Front {
    heads: Vec<Head>,
}

impl Front {
    /// The head at a place in the order.
    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<Head> {
        self.heads.get(at).copied()
    }

    /// Gives a class another head, or none. O(classes).
    pub(super) fn set(&mut self, class: usize, gpus: u32, rank: Option<Rank>) {
        let old = self.heads.iter().position(|head| head.class == class);
        match (old, rank) {
            (Some(at), Some(rank)) => self.replace(at, rank),
            (Some(at), None) => _ = self.heads.remove(at),
            (None, Some(rank)) => {
                let at = self.behind(&rank);
                self.heads.insert(at, Head { rank, class, gpus });
            }
            (None, None) => {}
        }
    }

    /// The same for the class whose head stands at a place.
    #[inline]
    pub(super) fn set_at(&mut self, at: usize, rank: Option<Rank>) {
        match rank {
            Some(rank) => self.replace(at, rank),
            None => _ = self.heads.remove(at),
        }
    }

    fn replace(&mut self, mut at: usize, rank: Rank) {
        let heads = self.heads.as_mut_slice();
        let head = Head { rank, ..heads[at] };
        while at + 1 < heads.len() && heads[at + 1].rank < rank {
            heads[at] = heads[at + 1];
            at += 1;
        }
        while at > 0 && rank < heads[at - 1].rank {
            heads[at] = heads[at - 1];
            at -= 1;
        }
        heads[at] = head;
    }

    /// Place of the first head behind a rank.
    #[inline]
    pub(super) fn behind(&self, rank: &Rank) -> usize {
        let mut heads = self.heads.iter();
        heads
            .position(|head| *rank < head.rank)
            .unwrap_or(self.heads.len())
    }

    /// Forgets all heads.
    pub(super) fn clear(&mut self) {
        self.heads.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn equals_a_sorted_list(
            steps in prop::collection::vec((0_usize..7, prop::option::of(0_i128..50)), 1..200),
            bound in 0_i128..50,
        ) {
            let rank = |value, class: usize| Rank { lead: 0, value, gpus: 0, job: class as u32 };
            let (mut front, mut oracle) = (Front::default(), BTreeMap::new());
            for (class, value) in steps {
                let next = value.map(|value| rank(value, class));
                match next {
                    Some(next) => _ = oracle.insert(class, next),
                    None => _ = oracle.remove(&class),
                }
                front.set(class, 1, next);
                let mut sorted: Vec<Rank> = oracle.values().copied().collect();
                sorted.sort_unstable();
                let heads = front.heads.iter().map(|head| (head.class, head.rank));
                prop_assert!(heads.clone().map(|head| head.1).eq(sorted.iter().copied()));
                prop_assert!(heads.collect::<BTreeMap<_, _>>() == oracle);
                let behind = sorted.iter().filter(|other| **other <= rank(bound, 3)).count();
                prop_assert_eq!(front.behind(&rank(bound, 3)), behind);
            }
        }
    }
}
