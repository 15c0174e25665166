//! The search methods (tiers) of the dual subroutine. Two tiers compare several choices of jobs: `exact` compares all
//! choices, and `beam` only the best few.
//!
//! The search maximises the sum of payoffs. Ties go to the choice with more jobs, then to the choice with the lower
//! cost, then to the choice with jobs that are earlier in the queue. States differ in which GPUs of the servers are
//! free, so each state stores the GPUs that it has given out.

use super::facts::Facts;
use super::find::{Chosen, Finder, Goal, Live, Quote, above, equal};
use super::queue::Merge;
use super::queue::Rank;
use crate::kit::{Counts, Servers};
use gangline_engine::PolicyError;
use gangline_model::JobId;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Pairs of a server and the number of its GPUs that are already given out, sorted by server.
type Used = Vec<(u32, u32)>;

/// The value of a choice of jobs, by which choices are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Worth {
    payoff: f64,
    jobs: usize,
    cost: f64,
}

impl Worth {
    fn with(self, offer: &Quote) -> Self {
        Self {
            payoff: self.payoff + offer.payoff,
            jobs: self.jobs + 1,
            cost: self.cost + offer.cost,
        }
    }

    fn is_better(self, other: Self) -> bool {
        if !equal(self.payoff, other.payoff) {
            return self.payoff > other.payoff;
        }
        self.jobs > other.jobs || self.jobs == other.jobs && above(other.cost, self.cost)
    }
}

/// A job in the queue.
#[derive(Debug)]
struct Queued<'a> {
    rank: Rank,
    facts: &'a Facts,
    live: Live,
}

/// The queue, and the finder that searches for places.
#[derive(Debug)]
pub(super) struct Search<'a> {
    finder: &'a Finder<'a>,
    entries: Vec<Queued<'a>>,
}

/// Linked list of the jobs that a search state has chosen, from the last to the first.
#[derive(Debug)]
struct Taken {
    rank: Rank,
    offer: Quote,
    before: Option<Rc<Taken>>,
}

impl Drop for Taken {
    /// Drops the list in a loop, because recursion over many jobs would overflow the stack.
    fn drop(&mut self) {
        let mut next = self.before.take();
        while let Some(Ok(mut taken)) = next.map(Rc::try_unwrap) {
            next = taken.before.take();
        }
    }
}

#[derive(Clone, Debug)]
struct State {
    worth: Worth,
    used: Rc<Used>,
    /// Free GPUs by type.
    free: SmallVec<[u32; 4]>,
    taken: Option<Rc<Taken>>,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        finder: &'a Finder<'a>,
        queue: &[Rank],
        active: &'a BTreeMap<JobId, Facts>,
    ) -> Result<Self, PolicyError> {
        let entry = |rank: &Rank| {
            Ok(Queued {
                rank: *rank,
                facts: &active[&rank.job],
                live: Live::new(finder.view, rank.job)?,
            })
        };
        let entries: Result<Vec<Queued<'_>>, PolicyError> = queue.iter().map(entry).collect();
        let entries = entries?;
        Ok(Self { finder, entries })
    }

    fn offer(&self, servers: &Servers, at: usize) -> Option<Quote> {
        let Queued { facts, live, .. } = &self.entries[at];
        let free = servers.free_by_type();
        let fits = self.finder.fits(free, facts.type_mask(), facts.gpus);
        fits.then(|| paying(self.finder, servers, facts, live))?
    }

    fn chosen(&self, at: usize, offer: Quote) -> Chosen {
        let rank = self.entries[at].rank;
        Chosen { rank, offer }
    }

    /// Returns the best choice of jobs.
    pub(super) fn exact(&self, servers: &mut Servers) -> Vec<Chosen> {
        let mut known = FxHashMap::default();
        let mut used = Used::new();
        self.value(servers, 0, &mut used, &mut known);
        let mut chosen = Vec::new();
        for at in 0..self.entries.len() {
            if !known.get(&(at, used.clone())).is_some_and(|best| best.1) {
                continue;
            }
            let offer = self.offer(servers, at).expect("it was taken");
            servers.take_all(&offer.places);
            used = with(&used, &offer.places);
            chosen.push(self.chosen(at, offer));
        }
        chosen
    }

    /// Returns the best value that the jobs from position `at` to the end of the queue can reach. Records in `known`
    /// whether the job at `at` is taken to reach this value.
    fn value(
        &self,
        servers: &mut Servers,
        at: usize,
        used: &mut Used,
        known: &mut FxHashMap<(usize, Used), (Worth, bool)>,
    ) -> Worth {
        if at == self.entries.len() || servers.free_total() == 0 {
            return Worth::default();
        }
        if let Some(best) = known.get(&(at, used.clone())) {
            return best.0;
        }
        let mut best = None;
        if let Some(offer) = self.offer(servers, at) {
            servers.take_all(&offer.places);
            let mut taken = with(used, &offer.places);
            let rest = self.value(servers, at + 1, &mut taken, known);
            servers.give_all(&offer.places);
            best = Some(rest.with(&offer));
        }
        let skipped = self.value(servers, at + 1, used, known);
        let best = match best {
            Some(taken) if !skipped.is_better(taken) => (taken, true),
            _ => (skipped, false),
        };
        known.insert((at, used.clone()), best);
        best.0
    }
}

/// Returns the best offer for a job that has room, if the payoff of this offer is above 0.
fn paying(finder: &Finder<'_>, servers: &Servers, facts: &Facts, live: &Live) -> Option<Quote> {
    let offer = finder.find(servers, facts, live, Goal::Objective);
    offer.filter(|offer| offer.payoff > 0.0)
}

/// Runs the beam search, which keeps at most the best `width` states after each job. Like the other tiers, it takes the
/// chosen GPUs from the servers. The walk ends when no state has free GPUs. Classes of jobs for which no state has room
/// are skipped, because the number of free GPUs in a state only decreases.
pub(super) fn beam(
    finder: &Finder<'_>,
    servers: &mut Servers,
    mut queue: Merge<'_>,
    active: &BTreeMap<JobId, Facts>,
) -> Result<Vec<Chosen>, PolicyError> {
    let width = finder.params.beam_width;
    let mut states = vec![State {
        worth: Worth::default(),
        used: Rc::default(),
        free: servers.free_by_type().into(),
        taken: None,
    }];
    // The GPUs that are taken from `servers` at present: those of the state that was examined last.
    let mut present: Rc<Used> = Rc::default();
    loop {
        let has_room = |types, gpus| {
            let mut all = states.iter();
            all.any(|state: &State| finder.fits(&state.free, types, gpus))
        };
        let has_free = |state: &State| state.free.iter().any(|&free| free > 0);
        let next = queue.next(has_room).filter(|_| states.iter().any(has_free));
        let Some(rank) = next else {
            break;
        };
        let facts = &active[&rank.job];
        let fits = |state: &State| finder.fits(&state.free, facts.type_mask(), facts.gpus);
        if !states.iter().any(fits) {
            continue;
        }
        let live = Live::new(finder.view, rank.job)?;
        let mut next = Vec::with_capacity(2 * states.len());
        for state in states {
            if fits(&state) {
                servers.shift(&present, &state.used);
                present = Rc::clone(&state.used);
                let offer = paying(finder, servers, facts, &live);
                next.extend(offer.map(|offer| state.take(servers, rank, offer)));
            }
            next.push(state);
        }
        states = best_of(merged(next), width);
    }
    let best = best_of(states, 1).pop();
    let best = best.expect("at least the state that took nothing");
    servers.shift(&present, &best.used);
    let mut chosen = Vec::new();
    let mut last = best.taken.as_deref();
    while let Some(Taken {
        rank,
        offer,
        before,
    }) = last
    {
        let offer = offer.clone();
        chosen.push(Chosen { rank: *rank, offer });
        last = before.as_deref();
    }
    chosen.reverse();
    Ok(chosen)
}

impl State {
    fn take(&self, servers: &Servers, rank: Rank, offer: Quote) -> Self {
        let mut free = self.free.clone();
        for &(server, gpus) in &offer.places {
            free[servers.type_of(server).index()] -= gpus;
        }
        Self {
            free,
            worth: self.worth.with(&offer),
            used: Rc::new(with(&self.used, &offer.places)),
            taken: Some(Rc::new(Taken {
                rank,
                offer,
                before: self.taken.clone(),
            })),
        }
    }
}

/// Returns the sum of the two lists, both of which must be sorted by server.
fn with(used: &Used, places: &Counts) -> Used {
    let mut sum = Used::with_capacity(used.len() + places.len());
    let mut rest = &used[..];
    for &(server, gpus) in places {
        let at = rest.partition_point(|one| one.0 < server);
        sum.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let before = rest.first().filter(|one| one.0 == server);
        sum.push((server, gpus + before.map_or(0, |one| one.1)));
        rest = &rest[usize::from(before.is_some())..];
    }
    sum.extend_from_slice(rest);
    sum
}

/// Merges states with the same free GPUs. Only the best of these states is kept (the first, if several are equal).
fn merged(states: Vec<State>) -> Vec<State> {
    let mut known: FxHashMap<Rc<Used>, usize> = FxHashMap::default();
    let mut kept: Vec<Option<State>> = Vec::with_capacity(states.len());
    for (at, state) in states.into_iter().enumerate() {
        if let Some(&other) = known.get(&state.used) {
            let worth = kept[other].as_ref().map(|other| other.worth);
            if worth.is_some_and(|worth| !state.worth.is_better(worth)) {
                kept.push(None);
                continue;
            }
            kept[other] = None;
        }
        known.insert(Rc::clone(&state.used), at);
        kept.push(Some(state));
    }
    kept.into_iter().flatten().collect()
}

/// Returns the best `width` states in their original order. In each of `width` scans, the best remaining state is
/// taken.
fn best_of(mut states: Vec<State>, width: usize) -> Vec<State> {
    if states.len() <= width {
        return states;
    }
    let mut kept = Vec::with_capacity(width);
    let mut rest: Vec<usize> = (0..states.len()).collect();
    for _ in 0..width {
        let best = (1..rest.len()).fold(0, |best, at| {
            let (old, new) = (states[rest[best]].worth, states[rest[at]].worth);
            if new.is_better(old) { at } else { best }
        });
        kept.push(rest.remove(best));
    }
    kept.sort_unstable();
    let mut at = 0;
    states.retain(|_| {
        at += 1;
        kept.binary_search(&(at - 1)).is_ok()
    });
    states
}

// The following code makes one pass over the queue. Every job that the pass accepts takes its best place at once.

/// Jobs that a pass examined and rejected because the GPUs cost at least as much as the job's utility.
#[derive(Debug, Default)]
pub(super) struct Rejected {
    /// Jobs, each with its utility as a percentage of the cost.
    pub(super) jobs: Vec<(JobId, u32)>,
    /// The job at which the pass stopped, if the pass has a limit.
    pub(super) last: Option<Rank>,
}

/// Examines jobs in order until no GPU is free, and takes the chosen GPUs from the servers. The backfill pass
/// ([`Goal::Utility`]) accepts any payoff and skips the jobs that the first pass took.
pub(super) fn pass(
    finder: &Finder<'_>,
    servers: &mut Servers,
    mut queue: Merge<'_>,
    active: &BTreeMap<JobId, Facts>,
    taken: &BTreeSet<JobId>,
    goal: Goal,
    rejected: &mut Rejected,
) -> Result<Vec<Chosen>, PolicyError> {
    let mut chosen = Vec::new();
    while servers.free_total() > 0 {
        let Some(rank) = queue.next(|types, gpus| finder.fits(servers.free_by_type(), types, gpus))
        else {
            break;
        };
        let facts = &active[&rank.job];
        if taken.contains(&rank.job)
            || !finder.fits(servers.free_by_type(), facts.type_mask(), facts.gpus)
        {
            continue;
        }
        let live = Live::new(finder.view, rank.job)?;
        let Some(offer) = finder.find(servers, facts, &live, goal) else {
            continue;
        };
        if goal == Goal::Objective && offer.payoff <= 0.0 {
            rejected.jobs.push((rank.job, offer.percent()));
            let limit = finder.params.scan_limit;
            if limit.is_some_and(|most| rejected.jobs.len() >= most) {
                rejected.last = Some(rank);
                break;
            }
            continue;
        }
        servers.take_all(&offer.places);
        chosen.push(Chosen { rank, offer });
    }
    Ok(chosen)
}
