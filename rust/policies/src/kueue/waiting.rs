//! Keeps the waiting jobs of each queue and chooses the jobs that a cycle tries.
//!
//! In each cycle, a queue nominates its first job that has not been tried yet in this decision. Most attempts would
//! fail: once a job of a *kind* (queue, gang, priority) is refused, all jobs of its kind are refused until the
//! assignment of GPUs changes. For each kind, a [`Line`] therefore stores the state of the assignment in which the kind
//! was refused. The line can also compute how many jobs come before the next job that is worth trying. Cycles in which
//! no queue has a job worth trying are skipped at once. For a queue of n jobs, a cycle costs O(kinds log n), however
//! many of them are waiting.

use gangline_engine::{BitSet, Fenwick};
use gangline_model::JobId;
use std::collections::BTreeSet;

/// The position of a job in its queue, in order of priority, then arrival, then index.
pub(super) type Rank = u32;

/// A range of ranks; all jobs of one kind in this range are known to be refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    /// The jobs are refused while the assignment of GPUs is in this state.
    pub state: u64,
    /// First rank in the range.
    pub from: Rank,
    /// First rank after the range.
    pub until: Rank,
}

/// The jobs of one kind.
#[derive(Debug, Default)]
struct Kind {
    waiting: BTreeSet<Rank>,
    refused: Option<Refused>,
}

impl Kind {
    /// Returns the first job of the kind, at or after the given rank, that is worth trying.
    fn next(&self, first: Rank, state: u64) -> Option<Rank> {
        let next = *self.waiting.range(first..).next()?;
        match self.refused.filter(|known| known.state == state) {
            Some(known) if (known.from..known.until).contains(&next) => {
                self.waiting.range(known.until..).next().copied()
            }
            _ => Some(next),
        }
    }
}

/// The jobs of one queue.
#[derive(Debug)]
pub(super) struct Line {
    is_strict: bool,
    /// All jobs of the queue in order of rank, including those that have not arrived yet.
    jobs: Vec<JobId>,
    kinds: Vec<Kind>,
    /// Kinds that have waiting jobs.
    busy: BitSet,
    /// Ranks of waiting jobs.
    there: Fenwick,
    count: u32,
    /// Waiting jobs before this rank have been tried in this decision.
    first: Rank,
}

impl Line {
    /// Creates a line from its jobs (sorted by rank) and the number of kinds.
    pub(super) fn new(jobs: Vec<JobId>, kinds: usize, is_strict: bool) -> Self {
        Self {
            is_strict,
            there: Fenwick::new(jobs.iter().map(|_| 0)),
            jobs,
            kinds: (0..kinds).map(|_| Kind::default()).collect(),
            busy: BitSet::new(kinds.max(1)),
            count: 0,
            first: 0,
        }
    }

    pub(super) fn job(&self, rank: Rank) -> JobId {
        self.jobs[rank as usize]
    }

    /// Returns whether no jobs are waiting.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the rank of the first waiting job.
    pub(super) fn head(&self) -> Option<Rank> {
        (self.count > 0).then(|| self.there.find(0).0 as Rank)
    }

    pub(super) fn join(&mut self, rank: Rank, kind: usize) {
        self.kinds[kind].waiting.insert(rank);
        self.busy.insert(kind);
        self.there.add(rank as usize, 1);
        self.count += 1;
    }

    pub(super) fn leave(&mut self, rank: Rank, kind: usize) {
        let waiting = &mut self.kinds[kind].waiting;
        waiting.remove(&rank);
        if waiting.is_empty() {
            self.busy.remove(kind);
        }
        self.there.add(rank as usize, -1);
        self.count -= 1;
    }

    /// Marks all jobs as not tried.
    pub(super) fn restart(&mut self) {
        self.first = 0;
    }

    /// Returns the rank of the next job that is worth trying, preceded by the number of untried jobs that wait before
    /// it.
    pub(super) fn next(&self, state: u64) -> Option<(u32, Rank)> {
        if self.is_strict {
            let head = self.head().filter(|&head| head >= self.first)?;
            let is_worth = self.nexts(head, state).any(|next| next == head);
            return is_worth.then_some((0, head));
        }
        let next = self.nexts(self.first, state).min()?;
        Some((self.there.before(next as usize) - self.seen(), next))
    }

    /// Returns the first job of each kind, at or after the given rank, that is worth trying.
    fn nexts(&self, first: Rank, state: u64) -> impl Iterator<Item = Rank> {
        let kinds = self.busy.iter();
        kinds.filter_map(move |kind| self.kinds[kind].next(first, state))
    }

    fn seen(&self) -> u32 {
        self.there.before(self.first as usize)
    }

    /// Skips this many jobs, all of which would be refused.
    pub(super) fn pass(&mut self, jobs: u32) {
        if jobs == 0 {
            return;
        }
        if self.is_strict {
            self.first = self.first.max(self.head().map_or(0, |head| head + 1));
            return;
        }
        let at = self.seen() + jobs;
        self.first = if at < self.count {
            self.there.find(at).0 as Rank
        } else {
            self.jobs.len() as Rank
        };
    }

    /// Records that a job of the given kind was refused.
    pub(super) fn refuse(&mut self, rank: Rank, kind: usize, known: Refused) {
        self.kinds[kind].refused = Some(known);
        self.first = rank + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Refused = Refused {
        state: 7,
        from: 0,
        until: Rank::MAX,
    };

    /// Creates a line with the ranks 0 to 9. Even ranks have kind 0, and odd ranks have kind 1.
    fn line(is_strict: bool) -> Line {
        let mut line = Line::new((0..10).map(JobId::new).collect(), 2, is_strict);
        for rank in 0..10 {
            line.join(rank, rank as usize % 2);
        }
        line
    }

    #[test]
    fn jobs_of_a_kind_that_was_refused_are_passed_over() {
        let mut line = line(false);
        assert_eq!(line.next(7), Some((0, 0)));
        line.refuse(0, 0, ALL);
        assert_eq!(line.next(7), Some((0, 1)));
        line.leave(1, 1);
        // Rank 2 has the refused kind, so it is skipped.
        assert_eq!(line.next(7), Some((1, 3)));
        line.pass(1);
        line.refuse(3, 1, ALL);
        assert_eq!(line.next(7), None);
        assert_eq!(line.next(8), Some((0, 4)), "another state");
        line.restart();
        assert_eq!((line.next(7), line.next(8)), (None, Some((0, 0))));
    }

    #[test]
    fn a_refusal_holds_between_its_ranks_only() {
        let mut line = line(false);
        let known = Refused {
            state: 7,
            from: 2,
            until: 6,
        };
        line.refuse(3, 1, known);
        line.restart();
        assert_eq!(line.next(7), Some((0, 0)));
        for rank in [0, 2, 4, 6, 8] {
            line.leave(rank, 0);
        }
        assert_eq!(line.next(7), Some((0, 1)), "before them");
        line.leave(1, 1);
        assert_eq!(line.next(7), Some((2, 7)), "behind them");
    }

    #[test]
    fn a_strict_line_has_its_head_or_none() {
        let mut line = line(true);
        assert_eq!(line.next(7), Some((0, 0)));
        line.refuse(0, 0, ALL);
        assert_eq!((line.next(7), line.next(8)), (None, None));
        line.restart();
        assert_eq!((line.next(7), line.next(8)), (None, Some((0, 0))));
        line.leave(0, 0);
        assert_eq!(line.next(7), Some((0, 1)));
    }
}
