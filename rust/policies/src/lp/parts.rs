//! One allocation as several small ones: jobs and GPUs are dealt into equal parts, each is solved alone.

use super::allocator::{Allocator, Ask, Company, Shares};
use gangline_engine::PolicyError;
use gangline_rng::{Purpose, Stream};

/// Shares of all jobs from so many parts, but never more parts than jobs.
///
/// Jobs are put in a random order, the same at each allocation of a run, and dealt in turn. GPUs of a type
/// are all alike, so that any equal deal is a deal at random: each part gets the same fraction of each type.
/// The parts are solved one after the other and their answers put together in order of jobs: no number of
/// threads can change them.
///
/// # Errors
/// Those of the allocator.
pub fn in_parts(
    allocator: &mut dyn Allocator,
    ask: &Ask,
    parts: usize,
) -> Result<Shares, PolicyError> {
    let parts = parts.min(ask.jobs.len());
    if parts <= 1 {
        return whole(allocator, ask);
    }
    let types = ask.capacity.len();
    let mut shares = Shares {
        alone: vec![0.0; ask.rates.len()],
        company: Vec::new(),
    };
    for mut part in deal(ask, parts) {
        part.sort_unstable();
        let own = whole(allocator, &part_of(ask, &part, parts))?;
        for (&at, row) in part.iter().zip(own.alone.chunks_exact(types)) {
            shares.alone[at * types..(at + 1) * types].copy_from_slice(row);
        }
        let company = own.company.iter().map(|entry| Company {
            row: part[entry.row],
            ..*entry
        });
        shares.company.extend(company);
    }
    Ok(shares)
}

fn whole(allocator: &mut dyn Allocator, ask: &Ask) -> Result<Shares, PolicyError> {
    if !ask.kinds.is_empty() {
        return allocator.allocate_packed(ask);
    }
    Ok(Shares {
        alone: allocator.allocate(ask)?,
        company: Vec::new(),
    })
}

/// Places of the jobs of each part.
fn deal(ask: &Ask, parts: usize) -> Vec<Vec<usize>> {
    let stream = Stream::new(ask.seed, Purpose::Policy);
    let mut order: Vec<usize> = (0..ask.jobs.len()).collect();
    order.sort_by_cached_key(|&at| {
        let job = ask.jobs[at];
        (stream.draw(u64::from(job.0), 0, 0).uniform_u64(), job)
    });
    let mut dealt = vec![Vec::new(); parts];
    for (turn, at) in order.into_iter().enumerate() {
        dealt[turn % parts].push(at);
    }
    dealt
}

/// The ask of some of the jobs.
fn part_of(ask: &Ask, part: &[usize], parts: usize) -> Ask {
    fn some<T: Copy>(column: &[T], part: &[usize]) -> Vec<T> {
        if column.is_empty() {
            return Vec::new(); // a column that this policy does not have
        }
        part.iter().map(|&at| column[at]).collect()
    }
    let types = ask.capacity.len();
    let rows = part
        .iter()
        .flat_map(|&at| &ask.rates[at * types..(at + 1) * types]);
    Ask {
        now: ask.now,
        seed: ask.seed,
        jobs: some(&ask.jobs, part),
        rates: rows.copied().collect(),
        gangs: some(&ask.gangs, part),
        weights: some(&ask.weights, part),
        remaining: some(&ask.remaining, part),
        age_s: some(&ask.age_s, part),
        time_left_s: some(&ask.time_left_s, part),
        running: some(&ask.running, part),
        capacity: ask.capacity.iter().map(|all| all / parts as f64).collect(),
        entities: some(&ask.entities, part),
        entity_weights: ask.entity_weights.clone(),
        kinds: some(&ask.kinds, part),
        kind_count: ask.kind_count,
        pair_rates: ask.pair_rates.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lp::EqualSplit;
    use gangline_model::JobId;

    fn ask(jobs: u32) -> Ask {
        Ask {
            seed: 7,
            jobs: (0..jobs).map(JobId).collect(),
            rates: vec![1.0; jobs as usize * 2],
            gangs: vec![1.0; jobs as usize],
            capacity: vec![3.0, 5.0],
            ..Ask::default()
        }
    }

    /// Remembers who was asked for together, and gives each job its number.
    #[derive(Default)]
    struct Witness(Vec<(Vec<u32>, Vec<f64>)>);

    impl Allocator for Witness {
        fn allocate(&mut self, ask: &Ask) -> Result<Vec<f64>, PolicyError> {
            let jobs: Vec<u32> = ask.jobs.iter().map(|job| job.0).collect();
            self.0.push((jobs, ask.capacity.clone()));
            Ok(ask
                .jobs
                .iter()
                .flat_map(|job| [f64::from(job.0), 0.5])
                .collect())
        }
    }

    #[test]
    fn parts_are_equal_and_each_job_is_in_one() {
        let mut witness = Witness::default();
        let shares = in_parts(&mut witness, &ask(8), 3).expect("no error");
        let expected: Vec<f64> = (0..8).flat_map(|job| [f64::from(job), 0.5]).collect();
        assert_eq!(shares.alone, expected, "answers come back in order of jobs");
        let sizes: Vec<usize> = witness.0.iter().map(|(jobs, _)| jobs.len()).collect();
        assert_eq!(sizes, [3, 3, 2]);
        let mut all: Vec<u32> = witness
            .0
            .iter()
            .flat_map(|(jobs, _)| jobs.clone())
            .collect();
        all.sort_unstable();
        assert_eq!(all, (0..8).collect::<Vec<u32>>());
        assert!(witness.0.iter().all(|(jobs, _)| jobs.is_sorted()));
        assert!(witness.0.iter().all(|(_, gpus)| *gpus == [1.0, 5.0 / 3.0]));
    }

    #[test]
    fn there_are_no_more_parts_than_jobs() {
        let mut witness = Witness::default();
        in_parts(&mut witness, &ask(2), 9).expect("no error");
        assert_eq!(witness.0.len(), 2);
        assert_eq!(witness.0[0].1, [1.5, 2.5]);
    }

    #[test]
    fn one_part_is_the_whole() {
        let whole = EqualSplit.allocate(&ask(4)).expect("no error");
        let part = in_parts(&mut EqualSplit, &ask(4), 1).expect("no error");
        assert_eq!(part.alone, whole);
    }
}
