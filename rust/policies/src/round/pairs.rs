//! Pairs of jobs on the same GPUs: which jobs may share, at which rates, and for how long each job may run with each
//! partner.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | kind | `of` | jobs that have the same effect on any co-runner: equal gang size, rates, model label and memory |
//! | group d | `group` | jobs that are equivalent as partners: a kind, or a single job |
//! | `X[m,d,k]` | `Book::share` | target share of job m's time with a job of group d on type k |
//! | `t[m,d,k]` | `Book::held` | time for which job m has held GPUs of type k with a co-runner of group d since the reset; it starts at R/2 |
//!
//! There is one account for each pair of a job and a group of partners. In linear programs, each kind is one group,
//! because the jobs of a kind are equivalent as partners. The number of accounts then equals the number of shares in
//! the program, rather than the square of the number of jobs.

use super::accounts::{Claim, priority};
use super::ask::types;
use crate::kit::Places;
use gangline_allocation::{Ask, PairShare};
use gangline_engine::ClusterView;
use gangline_model::{GpuTypeId, JobId, SimSpan};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// The co-runners to which a job's pair share applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Partners {
    /// Any job of a kind. Jobs of the same kind are equivalent, so it does not matter which of them is the partner.
    #[default]
    OfKind,
    /// One particular job, for as long as the pair exists.
    Single,
}

#[derive(Clone, Copy, Debug, Default)]
struct Book {
    share: f64,
    held_ns: i64,
    deficit_s: f64,
}

/// The kinds of jobs in the trace, and for each job, an account for each group of partners and each type.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    half_round_ns: i64,
    /// Kind of each job.
    of: Vec<u32>,
    partners: Partners,
    /// First job of each kind.
    first: Vec<JobId>,
    books: Vec<BTreeMap<(u32, GpuTypeId), Book>>,
    has_shares: Vec<bool>,
}

impl Pairs {
    /// Determines the kinds of the trace.
    pub(super) fn new(
        view: &ClusterView<'_>,
        places: &Places,
        round: SimSpan,
        partners: Partners,
    ) -> Self {
        let jobs = view.jobs();
        let mut pairs = Self {
            half_round_ns: round.0 / 2,
            partners,
            books: vec![BTreeMap::new(); jobs.len()],
            has_shares: vec![false; jobs.len()],
            ..Self::default()
        };
        let mut known = FxHashMap::default();
        for job in jobs.ids() {
            let rates: Vec<u64> = types(view)
                .map(|t| places.rate(view, job, t).to_bits())
                .collect();
            let memory = view.memory_bytes(job, 0);
            let class = view.pair_class(job);
            let key = (jobs.gpus(job), jobs.model(job), class, memory, rates);
            let next = pairs.first.len() as u32;
            let kind = *known.entry(key).or_insert(next);
            if kind == next {
                pairs.first.push(job);
            }
            pairs.of.push(kind);
        }
        pairs
    }

    fn kind(&self, job: JobId) -> u32 {
        self.of[job.index()]
    }

    pub(super) fn group(&self, job: JobId) -> u32 {
        match self.partners {
            Partners::Single => job.0,
            Partners::OfKind => self.kind(job),
        }
    }

    /// Adds the kinds and their rates to an allocator's request. Returns the group of each kind in the request or, if
    /// the policy pairs single jobs, the group of each job.
    pub(super) fn tell(&self, view: &ClusterView<'_>, places: &Places, ask: &mut Ask) -> Vec<u32> {
        let kinds: BTreeSet<u32> = ask.jobs.iter().map(|&job| self.kind(job)).collect();
        let kinds: Vec<u32> = kinds.into_iter().collect();
        let number = |job: &JobId| {
            let found = kinds.binary_search(&self.kind(*job));
            found.expect("the request contains the kind") as u32
        };
        ask.kinds = ask.jobs.iter().map(number).collect();
        ask.kind_count = kinds.len();
        let first = |kind: &u32| self.first[*kind as usize];
        for one in kinds.iter().map(first) {
            for other in kinds.iter().map(first) {
                let beside = types(view).map(|t| rate_beside(view, places, one, other, t));
                ask.pair_rates.extend(beside);
            }
        }
        match self.partners {
            Partners::Single => ask.jobs.iter().map(|job| job.0).collect(),
            Partners::OfKind => kinds,
        }
    }

    /// Closes the accounts of the active jobs and opens new accounts with these shares.
    pub(super) fn reset(
        &mut self,
        elapsed_s: f64,
        jobs: &[JobId],
        groups: &[u32],
        pair_shares: &[PairShare],
    ) {
        for job in jobs.iter().map(|job| job.index()) {
            for book in self.books[job].values_mut() {
                if self.has_shares[job] {
                    let received_s = book.held_ns as f64 / 1e9;
                    book.deficit_s += book.share * elapsed_s - received_s;
                }
                book.held_ns = 0;
                book.share = 0.0;
            }
            self.has_shares[job] = true;
        }
        for entry in pair_shares {
            let books = &mut self.books[jobs[entry.row].index()];
            let key = (groups[entry.beside as usize], entry.gpu_type);
            books.entry(key).or_default().share = entry.share;
        }
    }

    /// Adds `span_ns` to the time for which a job has held GPUs with a co-runner of a group.
    pub(super) fn credit(&mut self, job: JobId, group: u32, gpu_type: GpuTypeId, span_ns: i64) {
        let books = &mut self.books[job.index()];
        books.entry((group, gpu_type)).or_default().held_ns += span_ns;
    }

    /// Returns the number of pairs in which a job has a share.
    pub(super) fn pairs_of(&self, job: JobId) -> usize {
        let books = self.books[job.index()].values();
        books.filter(|book| book.share > 0.0).count()
    }

    /// Returns a line for every two groups whose candidates may share GPUs with each other on a type, in order of the
    /// groups.
    pub(super) fn lines(
        &self,
        candidates: impl Iterator<Item = JobId>,
        gpu_type: GpuTypeId,
    ) -> Vec<Line> {
        let mut sides: BTreeMap<(u32, u32), Vec<Claim>> = BTreeMap::new();
        for job in candidates {
            for (&(group, own), book) in &self.books[job.index()] {
                if own == gpu_type && book.share > 0.0 {
                    let claim = self.claim(job, book);
                    sides
                        .entry((self.group(job), group))
                        .or_default()
                        .push(claim);
                }
            }
        }
        for side in sides.values_mut() {
            side.sort_unstable();
        }
        let both = sides.iter().filter(|((own, other), _)| own <= other);
        both.filter_map(|(&(own, other), side)| {
            let others = if own == other {
                None
            } else {
                Some(sides.get(&(other, own))?.clone())
            };
            Some(Line {
                side: side.clone(),
                others,
            })
        })
        .collect()
    }

    fn claim(&self, job: JobId, book: &Book) -> Claim {
        Claim {
            priority: priority(book.share, self.half_round_ns + book.held_ns),
            deficit_s: book.deficit_s,
            share: book.share,
            job,
        }
    }
}

/// For two groups of jobs, the claims of each group to co-runners from the other, in ascending order.
#[derive(Debug)]
pub(super) struct Line {
    side: Vec<Claim>,
    /// Claims of the other group; `None` if the two groups are the same.
    others: Option<Vec<Claim>>,
}

impl Line {
    /// Finds, for each side, the greatest claim of a job that is not yet taken. Returns the smaller of these two
    /// claims, and the job of the larger one.
    pub(super) fn head(&mut self, taken: &BTreeSet<JobId>) -> Option<(Claim, JobId)> {
        drop_taken(&mut self.side, taken, 0);
        let first = *self.side.last()?;
        let second = if let Some(others) = &mut self.others {
            drop_taken(others, taken, 0);
            *others.last()?
        } else {
            drop_taken(&mut self.side, taken, 1);
            *self.side.iter().rev().nth(1)?
        };
        let (least, most) = if first < second {
            (first, second)
        } else {
            (second, first)
        };
        Some((least, most.job))
    }
}

/// Removes claims from the end of a list as long as their jobs are taken; the last `kept` claims are left alone.
fn drop_taken(side: &mut Vec<Claim>, taken: &BTreeSet<JobId>, kept: usize) {
    while side.len() > kept && taken.contains(&side[side.len() - 1 - kept].job) {
        side.remove(side.len() - 1 - kept);
    }
}

/// Returns the rate of a job with a co-runner; 0 if the two may not share a GPU of the type.
fn rate_beside(
    view: &ClusterView<'_>,
    places: &Places,
    job: JobId,
    other: JobId,
    gpu_type: GpuTypeId,
) -> f64 {
    let memory = view.memory_bytes(job, 0);
    let both = memory.saturating_add(view.memory_bytes(other, 0));
    let room = view.cluster().gpu_types()[gpu_type.index()].memory_bytes;
    let fits = view.jobs().gpus(job) == view.jobs().gpus(other) && both <= room;
    let theirs = places.rate(view, other, gpu_type);
    if !fits || theirs <= 0.0 || view.xi(other, job, gpu_type).is_none() {
        return 0.0;
    }
    let slowed = |xi| places.rate(view, job, gpu_type) / xi;
    view.xi(job, other, gpu_type).map_or(0.0, slowed)
}
