//! Splits one allocation into several small ones: jobs and GPUs are divided into equal parts, and each part is solved
//! separately.

use super::allocator::{Allocator, Ask, PairShare, Shares};
use gangline_engine::PolicyError;
use gangline_rng::{Purpose, Stream};

/// Divides the request into `parts` parts, or into one part per job if there are fewer jobs. Solves each part, and
/// returns the shares of all jobs.
///
/// Jobs are put in a random order, which is the same in every allocation of a run, and assigned round-robin to the
/// parts.
/// GPUs of one type are alike, so they need no random order: each part gets the same fraction of each type. The parts
/// are solved one after the other, and their shares are merged in the order of the jobs. The number of threads
/// therefore cannot change the shares.
///
/// # Errors
/// Returns the errors of the allocator.
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
        pair_shares: Vec::new(),
    };
    for mut part in deal(ask, parts) {
        part.sort_unstable();
        let own = whole(allocator, &part_of(ask, &part, parts))?;
        for (&at, row) in part.iter().zip(own.alone.chunks_exact(types)) {
            shares.alone[at * types..(at + 1) * types].copy_from_slice(row);
        }
        let pair_shares = own.pair_shares.iter().map(|entry| PairShare {
            row: part[entry.row],
            ..*entry
        });
        shares.pair_shares.extend(pair_shares);
    }
    Ok(shares)
}

fn whole(allocator: &mut dyn Allocator, ask: &Ask) -> Result<Shares, PolicyError> {
    if !ask.kinds.is_empty() {
        return allocator.allocate_packed(ask);
    }
    Ok(Shares {
        alone: allocator.allocate(ask)?,
        pair_shares: Vec::new(),
    })
}

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

fn part_of(ask: &Ask, part: &[usize], parts: usize) -> Ask {
    fn some<T: Copy>(column: &[T], part: &[usize]) -> Vec<T> {
        if column.is_empty() {
            return Vec::new(); // The column is also empty in the whole request.
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
        true_remaining: some(&ask.true_remaining, part),
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
