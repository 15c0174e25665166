//! Forms random pairs of jobs, and keeps each pair while sharing pays off. This is the version of Gandiva's packing
//! with which Gavel was compared.
//!
//! While the active jobs need no more GPUs than the cluster has, no jobs share. Otherwise, jobs without a partner are
//! put in a random order. Each job takes as its partner the first later job that has the same gang size and can share
//! GPUs with it on at least one type. Time is split equally among single jobs and pairs. A pair is dissolved at the
//! next allocation if its relative speeds add up to less than 1 on every type; the policy knows this only after it has
//! tried the pair.

use super::allocator::{Allocator, Ask, PairShare, Shares};
use super::split::EqualSplit;
use gangline_engine::PolicyError;
use gangline_model::{GpuTypeId, JobId};
use gangline_rng::{Purpose, Stream};
use std::collections::BTreeMap;

/// Pairs of jobs, kept from one allocation to the next.
#[derive(Clone, Debug, Default)]
pub struct RandomPairs {
    /// Partner of each job; each pair has two entries.
    partner: BTreeMap<JobId, JobId>,
    /// Number of allocations so far; each allocation draws its own random numbers.
    asks: u32,
}

impl Allocator for RandomPairs {
    fn allocate(&mut self, ask: &Ask) -> Result<Vec<f64>, PolicyError> {
        EqualSplit.allocate(ask)
    }

    fn allocate_packed(&mut self, ask: &Ask) -> Result<Shares, PolicyError> {
        let turn = self.asks;
        self.asks = turn.wrapping_add(1);
        self.undo(ask);
        let wanted: f64 = ask.gangs.iter().sum();
        if wanted <= ask.capacity.iter().sum() {
            return Ok(Shares {
                alone: self.allocate(ask)?,
                pair_shares: Vec::new(),
            });
        }
        self.pair(ask, turn);
        Ok(self.split(ask))
    }
}

impl RandomPairs {
    /// Dissolves each pair in which a job has ended, and each pair that is slower on every type than its jobs would be
    /// if they took turns.
    fn undo(&mut self, ask: &Ask) {
        let row = |job: &JobId| ask.jobs.binary_search(job).ok();
        self.partner.retain(|job, other| {
            let both = row(job).zip(row(other));
            both.is_some_and(|(a, b)| types(ask).any(|t| gain(ask, a, b, t) >= 1.0))
        });
    }

    /// Finds partners for the jobs without one. A scan reaches the end only for a job that cannot share GPUs with any
    /// other job.
    fn pair(&mut self, ask: &Ask, turn: u32) {
        let draws = Stream::new(ask.seed, Purpose::Policy);
        let draw = |job: JobId| draws.draw(u64::from(job.0), turn, 0).uniform_u64();
        let is_single = |row: &usize| !self.partner.contains_key(&ask.jobs[*row]);
        let mut singles: Vec<usize> = (0..ask.jobs.len()).filter(is_single).collect();
        singles.sort_by_cached_key(|&row| (draw(ask.jobs[row]), row));
        let mut is_taken = vec![false; singles.len()];
        for at in 0..singles.len() {
            if is_taken[at] {
                continue;
            }
            let may = |next: &usize| !is_taken[*next] && fits(ask, singles[at], singles[*next]);
            if let Some(next) = (at + 1..singles.len()).find(may) {
                is_taken[next] = true;
                let (one, other) = (ask.jobs[singles[at]], ask.jobs[singles[next]]);
                self.partner.extend([(one, other), (other, one)]);
            }
        }
    }

    /// Returns an equal split among single jobs and pairs.
    fn split(&self, ask: &Ask) -> Shares {
        let count = ask.jobs.len() - self.partner.len() / 2;
        let mut shares = Shares {
            alone: vec![0.0; ask.rates.len()],
            pair_shares: Vec::new(),
        };
        for (row, job) in ask.jobs.iter().enumerate() {
            let even: Vec<f64> = ask
                .capacity
                .iter()
                .map(|gpus| gpus / count as f64 / ask.gangs[row])
                .collect();
            let total: f64 = even.iter().sum();
            let even = even.iter().map(|share| share / total.max(1.0));
            let Some(other) = self.partner.get(job) else {
                let own = &mut shares.alone[row * ask.capacity.len()..];
                own.iter_mut().zip(even).for_each(|(own, even)| *own = even);
                continue;
            };
            let other = ask.jobs.binary_search(other).expect("both are active");
            let pair_shares = even.enumerate().map(|(at, share)| PairShare {
                row,
                beside: other as u32,
                gpu_type: GpuTypeId::new(at),
                share,
            });
            let runs = |one: &PairShare| gain(ask, row, other, one.gpu_type.index()) > 0.0;
            shares.pair_shares.extend(pair_shares.filter(runs));
        }
        shares
    }
}

fn types(ask: &Ask) -> std::ops::Range<usize> {
    0..ask.capacity.len()
}

fn fits(ask: &Ask, a: usize, b: usize) -> bool {
    types(ask).any(|gpu_type| gain(ask, a, b, gpu_type) > 0.0)
}

/// Returns the sum of the relative speeds of two jobs that share; 0 if they cannot.
fn gain(ask: &Ask, a: usize, b: usize, gpu_type: usize) -> f64 {
    let types = ask.capacity.len();
    let alone = |row: usize| ask.rates[row * types + gpu_type];
    let beside = |row: usize, other: usize| {
        let pair = ask.kinds[row] as usize * ask.kind_count + ask.kinds[other] as usize;
        ask.pair_rates[pair * types + gpu_type]
    };
    let (one, other) = (beside(a, b), beside(b, a));
    if one > 0.0 && other > 0.0 {
        one / alone(a) + other / alone(b)
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a request with jobs of two kinds on two GPUs of one type. Jobs of kind 1 cannot share with each other.
    fn ask(jobs: &[u32], kinds: &[u32], beside: f64) -> Ask {
        Ask {
            seed: 5,
            jobs: jobs.iter().copied().map(JobId).collect(),
            rates: vec![2.0; jobs.len()],
            gangs: vec![1.0; jobs.len()],
            capacity: vec![2.0],
            kinds: kinds.to_vec(),
            kind_count: 2,
            pair_rates: vec![beside, beside, beside, 0.0],
            ..Ask::default()
        }
    }

    fn pairs(shares: &Shares) -> Vec<(usize, u32)> {
        let pair_shares = shares.pair_shares.iter();
        pair_shares.map(|one| (one.row, one.beside)).collect()
    }

    #[test]
    fn no_jobs_share_while_there_are_gpus_for_all() {
        let shares = RandomPairs::default().allocate_packed(&ask(&[0, 1], &[0, 0], 1.8));
        let shares = shares.expect("no error");
        assert_eq!(shares.alone, [1.0, 1.0]);
        assert!(shares.pair_shares.is_empty());
    }

    #[test]
    fn pairs_share_time_equally_with_a_job_alone() {
        let shares = RandomPairs::default().allocate_packed(&ask(&[0, 1, 2], &[0, 1, 1], 1.8));
        let shares = shares.expect("no error");
        // There are 2 GPUs for one pair and one single job, so the pair and the job each run all the time.
        assert_eq!(
            shares.pair_shares.len(),
            2,
            "two jobs of kind 1 never share"
        );
        let first = shares.pair_shares[0];
        assert_eq!((first.row, first.share.to_bits()), (0, 1.0_f64.to_bits()));
        let single = if first.beside == 1 { 2 } else { 1 };
        assert_eq!(shares.alone[single].to_bits(), 1.0_f64.to_bits());
        assert_eq!(
            shares.alone.iter().sum::<f64>().to_bits(),
            1.0_f64.to_bits()
        );
    }

    #[test]
    fn a_good_pair_is_kept_and_a_bad_one_is_undone() {
        let mut good = RandomPairs::default();
        let first = good.allocate_packed(&ask(&[0, 1, 2, 3], &[0; 4], 1.2));
        let first = pairs(&first.expect("no error"));
        for _ in 0..5 {
            let again = good.allocate_packed(&ask(&[0, 1, 2, 3], &[0; 4], 1.2));
            assert_eq!(pairs(&again.expect("no error")), first);
        }
        let mut bad = RandomPairs::default();
        let found: std::collections::BTreeSet<_> = (0..20)
            .map(|_| bad.allocate_packed(&ask(&[0, 1, 2, 3], &[0; 4], 0.8)))
            .map(|shares| pairs(&shares.expect("no error")))
            .collect();
        assert_eq!(found.len(), 3, "every way to pair four jobs is tried");
    }

    #[test]
    fn a_job_that_loses_its_partner_gets_another() {
        let mut pairing = RandomPairs::default();
        pairing
            .allocate_packed(&ask(&[0, 1, 2, 3], &[0; 4], 1.8))
            .expect("no error");
        let gone = pairing.partner[&JobId(0)];
        let left: Vec<u32> = (0..6).filter(|&job| JobId(job) != gone).collect();
        let shares = pairing.allocate_packed(&ask(&left, &[0; 5], 1.8));
        assert_eq!(shares.expect("no error").pair_shares.len(), 4);
        assert_ne!(pairing.partner.get(&JobId(0)), Some(&gone));
    }
}
