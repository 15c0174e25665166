//! A genetic search over all placements, for small clusters, as a reference for the greedy search. The operators follow
//! the public code of Pollux; the probabilities, the order of random draws and the selection are our own choice. The
//! cost is O(generations x population x jobs x servers).

use super::params::GeneticParams;
use super::racer::Objective;
use super::racer::Racer;
use super::search::Bidder;
use gangline_engine::{ClusterView, PolicyError};
use gangline_model::{GpuSet, ServerId, mask_of_lowest};
use gangline_rng::{Purpose, Stream};
use std::cmp::Reverse;

/// Probability that a job goes back to its current allocation.
const BACK: f64 = 0.1;
/// Probability that a job may lose servers; each of its servers is then lost with the same probability.
const DROP: f64 = 0.1;
/// Probability that a job gets a different number of GPUs on a given server. This is our own choice.
const CHANGE: f64 = 0.5;

/// One row for each job, one after the other; a row contains the job's number of GPUs on each server.
type Rows = Vec<u32>;

/// A candidate allocation, and the value of the objective for it.
#[derive(Clone, Debug, PartialEq)]
struct Member {
    value: f64,
    rows: Rows,
}

/// The genetic search of one decision.
#[derive(Debug)]
pub(super) struct Genetic<'a> {
    view: ClusterView<'a>,
    racers: &'a [Racer<'a>],
    bidders: &'a [Bidder],
    objective: Objective,
    avoids: bool,
    params: GeneticParams,
    /// Number of GPUs of each server; 0 for a server that is down.
    sizes: Vec<u32>,
    present: Rows,
    stream: Stream,
    asked: u32,
}

impl<'a> Genetic<'a> {
    /// Creates a search that starts from the current allocation.
    pub(super) fn new(
        view: ClusterView<'a>,
        (racers, bidders): (&'a [Racer<'a>], &'a [Bidder]),
        objective: Objective,
        avoids: bool,
        params: GeneticParams,
    ) -> Result<Self, PolicyError> {
        let servers = view.cluster().servers();
        let (jobs, cells) = (racers.len(), racers.len() * servers.len());
        if cells > params.cells_max {
            let expected = format!(
                "greedy, because {jobs} jobs x {} servers = {cells}, which exceeds ga_max_cells = {}",
                servers.len(),
                params.cells_max
            );
            return Err(PolicyError::Parameter {
                policy: "pollux".to_owned(),
                field: "search".to_owned(),
                value: "ga".to_owned(),
                expected,
            });
        }
        let up = |at: usize| view.is_up(ServerId::new(at));
        let sizes = servers.iter().enumerate();
        let sizes: Vec<u32> = sizes
            .map(|(at, one)| if up(at) { one.gpus } else { 0 })
            .collect();
        let mut present = vec![0; cells];
        for (racer, row) in racers.iter().zip(present.chunks_mut(sizes.len())) {
            for one in view
                .run(racer.job)
                .map_or(&[][..], |run| run.gpus().by_server())
            {
                row[one.server.index()] = one.mask.count_ones();
            }
        }
        Ok(Self {
            view,
            racers,
            bidders,
            objective,
            avoids,
            params,
            sizes,
            present,
            stream: Stream::new(view.seed(), Purpose::Policy),
            asked: 0,
        })
    }

    fn uniform(&mut self) -> f64 {
        let now = self.view.now().0 as u64;
        let found = self.stream.draw(now, self.asked, 0).uniform();
        self.asked += 1;
        found
    }

    fn below(&mut self, n: usize) -> usize {
        (self.uniform() * n as f64) as usize
    }

    fn speedup(&self, job: usize, row: &[u32]) -> f64 {
        let gpus: u32 = row.iter().sum();
        if gpus == 0 {
            return 0.0;
        }
        self.racers[job].speedup(gpus, spans(row))
    }

    /// Returns the value of the objective for a candidate. Waiting jobs get no discount.
    fn value(&self, rows: &Rows) -> f64 {
        let width = self.sizes.len();
        let pairs = rows.chunks(width).zip(self.present.chunks(width));
        let worth = |(job, (row, now)): (usize, (&[u32], &[u32]))| {
            let bidder = &self.bidders[job];
            if row == now {
                return self.objective.worth(bidder.speedup_now);
            }
            let phi = if bidder.now > 0 { bidder.phi } else { 1.0 };
            self.objective.worth(self.speedup(job, row) * phi)
        };
        pairs.enumerate().map(worth).fold(0.0, |sum, one| sum + one)
    }

    fn mutate(&mut self, rows: &mut Rows) {
        let width = self.sizes.len();
        for first in (0..rows.len()).step_by(width) {
            let own = first..first + width;
            if self.uniform() < BACK {
                rows[own.clone()].copy_from_slice(&self.present[own.clone()]);
            }
            if self.uniform() < DROP {
                for at in own.clone() {
                    if rows[at] > 0 && self.uniform() < DROP {
                        rows[at] = 0;
                    }
                }
            }
            if self.uniform() < CHANGE {
                let server = self.below(width);
                rows[first + server] = self.below(self.sizes[server] as usize + 1) as u32;
            }
        }
    }

    /// Makes a candidate valid: each job in turn keeps only as many of the remaining GPUs as it may have.
    fn repair(&self, rows: &mut Rows) {
        let width = self.sizes.len();
        let mut left = self.sizes.clone();
        let mut spanned = vec![false; width];
        for (job, row) in rows.chunks_mut(width).enumerate() {
            if self.racers[job].is_bound {
                row.copy_from_slice(&self.present[job * width..(job + 1) * width]);
            } else {
                self.repair_one(job, row, &left, &spanned);
            }
            let does_span = spans(row);
            for (server, &gpus) in row.iter().enumerate() {
                left[server] -= gpus;
                spanned[server] |= does_span && gpus > 0;
            }
        }
    }

    /// Limits the row of a job to GPUs that are still left and that the job may have.
    fn repair_one(&self, job: usize, row: &mut [u32], left: &[u32], spanned: &[bool]) {
        self.keep_type(job, row);
        let avoids = self.avoids && spans(row);
        for (server, cell) in row.iter_mut().enumerate() {
            let is_taken = avoids && spanned[server];
            *cell = if is_taken {
                0
            } else {
                (*cell).min(left[server])
            };
        }
        self.trim(job, row);
        self.complete(job, row, left, spanned);
        if !self.is_allowed(job, row) {
            row.fill(0);
        }
    }

    /// Adds GPUs to a job that has fewer than its minimum. The GPUs come first from servers that the job already uses,
    /// then from the servers of the same type with the most free GPUs. This step is needed because changes to single
    /// servers cannot create a gang that needs several servers.
    fn complete(&self, job: usize, row: &mut [u32], left: &[u32], spanned: &[bool]) {
        let Some(first) = row.iter().position(|&gpus| gpus > 0) else {
            return;
        };
        let servers = self.view.cluster().servers();
        let gpu_type = servers[first].gpu_type;
        let least = self.racers[job].range().0;
        let mut rest = least.saturating_sub(row.iter().sum());
        let own = (0..row.len()).filter(|&at| row[at] > 0).collect::<Vec<_>>();
        for at in own {
            let more = rest.min(left[at] - row[at]);
            row[at] += more;
            rest -= more;
        }
        let is_open =
            |at: &usize| servers[*at].gpu_type == gpu_type && !(self.avoids && spanned[*at]);
        if rest > 0 && self.avoids {
            for (cell, _) in row.iter_mut().zip(spanned).filter(|(_, taken)| **taken) {
                rest += *cell;
                *cell = 0;
            }
        }
        let mut others: Vec<usize> = (0..row.len()).filter(is_open).collect();
        others.sort_by_key(|&at| (Reverse(left[at]), at));
        for at in others {
            let more = rest.min(left[at] - row[at]);
            row[at] += more;
            rest -= more;
        }
    }

    /// Keeps only the servers of the type on which the job has the most GPUs; ties go to the type that the job prefers.
    fn keep_type(&self, job: usize, row: &mut [u32]) {
        let servers = self.view.cluster().servers();
        let mut best: Option<(u32, gangline_model::GpuTypeId)> = None;
        for id in self.view.types_of(self.racers[job].job) {
            let own = row.iter().zip(servers).filter(|one| one.1.gpu_type == id);
            let gpus = own.map(|one| one.0).sum();
            if best.is_none_or(|best| gpus > best.0) {
                best = Some((gpus, id));
            }
        }
        for (cell, server) in row.iter_mut().zip(servers) {
            if best.is_none_or(|best| server.gpu_type != best.1) {
                *cell = 0;
            }
        }
    }

    /// Limits the row of a job to the number of GPUs that the job may have. The last servers lose their GPUs first.
    fn trim(&self, job: usize, row: &mut [u32]) {
        let bidder = &self.bidders[job];
        let mut excess = row
            .iter()
            .sum::<u32>()
            .saturating_sub(bidder.most.max(bidder.now));
        for cell in row.iter_mut().rev() {
            let less = excess.min(*cell);
            *cell -= less;
            excess -= less;
        }
    }

    fn is_allowed(&self, job: usize, row: &[u32]) -> bool {
        let width = self.sizes.len();
        if row == &self.present[job * width..(job + 1) * width] {
            return true;
        }
        let gpus: u32 = row.iter().sum();
        let (least, most) = self.racers[job].range();
        (least..=most).contains(&gpus) && self.speedup(job, row) > 0.0
    }

    fn member(&mut self, mut rows: Rows, is_changed: bool) -> Member {
        if is_changed {
            self.mutate(&mut rows);
        }
        self.repair(&mut rows);
        Member {
            value: self.value(&rows),
            rows,
        }
    }

    /// Draws two of the candidates, which are sorted from best to worst, and returns the better one.
    fn parent(&mut self, members: usize) -> usize {
        let one = self.below(members);
        one.min(self.below(members))
    }

    /// Returns a child of two parents: the rows of the jobs before a random point come from one parent, and the other
    /// rows come from the second.
    fn child(&mut self, members: &[Member]) -> Member {
        let (one, two) = (self.parent(members.len()), self.parent(members.len()));
        let point = self.below(self.racers.len()) * self.sizes.len();
        let mut rows = members[two].rows.clone();
        rows[..point].copy_from_slice(&members[one].rows[..point]);
        self.member(rows, true)
    }

    /// Returns the best candidates without duplicates; ties go to the earlier candidate.
    fn survivors(&self, mut members: Vec<Member>) -> Vec<Member> {
        members.sort_by(|a, b| b.value.total_cmp(&a.value));
        let mut kept: Vec<Member> = Vec::with_capacity(self.params.population);
        for one in members {
            // Equal rows have equal values, so they are adjacent.
            let equals = kept
                .iter()
                .rev()
                .take_while(|other| other.value.total_cmp(&one.value).is_eq());
            if kept.len() < self.params.population
                && !equals.into_iter().any(|x| x.rows == one.rows)
            {
                kept.push(one);
            }
        }
        kept
    }

    fn search(&mut self) -> Rows {
        let mut members = vec![self.member(self.present.clone(), false)];
        for _ in 1..self.params.population {
            members.push(self.member(self.present.clone(), true));
        }
        members = self.survivors(members);
        for _ in 0..self.params.generations {
            let children: Vec<Member> = (0..self.params.population)
                .map(|_| self.child(&members))
                .collect();
            members.extend(children);
            members = self.survivors(members);
        }
        members.swap_remove(0).rows
    }

    /// Runs the search and returns the GPUs of each job. A job whose row is unchanged keeps its GPUs; the other jobs
    /// get the lowest-numbered free GPUs, in order.
    pub(super) fn put(mut self) -> Vec<Option<GpuSet>> {
        let (rows, width) = (self.search(), self.sizes.len());
        let mut free: Vec<u64> = self
            .sizes
            .iter()
            .map(|&gpus| mask_of_lowest(u64::MAX, gpus))
            .collect();
        let mut found: Vec<Option<GpuSet>> = vec![None; self.racers.len()];
        let mut changed: Vec<usize> = Vec::new();
        for (job, racer) in self.racers.iter().enumerate() {
            let own = job * width..(job + 1) * width;
            if rows[own.clone()] != self.present[own] {
                changed.push(job);
            } else if let Some(run) = self.view.run(racer.job) {
                for one in run.gpus().by_server() {
                    free[one.server.index()] &= !one.mask;
                }
                found[job] = Some(run.gpus().clone());
            }
        }
        changed.sort_by_key(|&job| self.racers[job].job);
        for job in changed {
            let mut places = Vec::new();
            for (server, &gpus) in rows[job * width..(job + 1) * width].iter().enumerate() {
                let mask = mask_of_lowest(free[server], gpus);
                free[server] &= !mask;
                if mask != 0 {
                    places.push((ServerId::new(server), mask));
                }
            }
            found[job] = (!places.is_empty()).then(|| places.into_iter().collect());
        }
        found
    }
}

/// Returns whether the GPUs of a row are on several servers.
fn spans(row: &[u32]) -> bool {
    row.iter().filter(|&&gpus| gpus > 0).count() > 1
}
