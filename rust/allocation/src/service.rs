//! The service history of each job, for finish-time fairness.

use super::allocator::Ask;
use super::split::equal_split;

/// Minimum number of steps left: a job that is done except for a rounding error still has this much work.
pub(crate) const LEAST_STEPS: f64 = 1e-9;

/// For each job, the time in seconds that an equal split would have taken for its steps so far, at the rates of the
/// earlier allocations. Jobs keep their history between requests, because a request may contain only some of the active
/// jobs.
#[derive(Clone, Debug, Default)]
pub struct Service {
    books: Vec<Book>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Book {
    lost_s: f64,
    /// Remaining steps, and the rate under an equal split, both at the last request; 0 before the first request.
    left: f64,
    rate: f64,
}

impl Service {
    /// Counts the steps since the last request. Returns, for each job in this request, the total time in seconds that
    /// its steps so far would have taken under an equal split.
    pub fn count(&mut self, ask: &Ask) -> Vec<f64> {
        let jobs = ask.jobs.len() as f64;
        let rows = ask.rates.chunks_exact(ask.capacity.len());
        // The true steps count, not the estimated ones.
        let left = if ask.true_remaining.is_empty() {
            &ask.remaining
        } else {
            &ask.true_remaining
        };
        let each = ask.jobs.iter().zip(rows).zip(&ask.gangs).zip(left);
        let counted = each.map(|(((job, rates), gang), left)| {
            if job.index() >= self.books.len() {
                self.books.resize(job.index() + 1, Book::default());
            }
            let book = &mut self.books[job.index()];
            let left = left.max(LEAST_STEPS);
            if book.rate > 0.0 {
                book.lost_s += ((book.left - left) / book.rate).max(0.0);
            }
            let shares = equal_split(&ask.capacity, jobs, *gang);
            book.rate = rates.iter().zip(shares).map(|(rate, x)| rate * x).sum();
            book.left = left;
            book.lost_s
        });
        counted.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gangline_model::JobId;

    #[test]
    fn it_adds_up_at_the_rates_of_each_allocation() {
        // 6 steps at one per second take 6 s. Then there are two jobs, and 3 steps at one half per second take 6 s
        // more.
        let mut service = Service::default();
        let mut count = |jobs: &[u32], remaining: &[f64]| {
            let ones = vec![1.0; jobs.len()];
            service.count(&Ask {
                jobs: jobs.iter().copied().map(JobId).collect(),
                rates: ones.clone(),
                gangs: ones,
                capacity: vec![1.0],
                remaining: remaining.to_vec(),
                ..Ask::default()
            })
        };
        assert_eq!(count(&[7], &[10.0]), [0.0]);
        assert_eq!(count(&[7, 9], &[4.0, 8.0]), [6.0, 0.0]);
        assert_eq!(count(&[9, 7], &[8.0, 1.0]), [0.0, 12.0]);
        // A job keeps its history while it is missing from requests, and lost work does not give negative time.
        assert_eq!(count(&[9], &[8.0]), [0.0]);
        assert_eq!(count(&[7], &[2.0]), [12.0]);
    }
}
