//! Communication layer by layer: buckets pass through the channels of the three tiers, one after the other.

/// Time in seconds that one bucket takes in each tier.
pub type BucketTimes = [f64; 3];

/// The rule that determines which bucket a channel serves next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Order {
    /// The newest bucket comes next and overtakes the buckets that wait.
    #[default]
    Lifo,
    /// The oldest bucket comes next.
    Fifo,
}

impl Order {
    /// Returns the order with a given name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "lifo" => Some(Self::Lifo),
            "fifo" => Some(Self::Fifo),
            _ => None,
        }
    }
}

/// Returns the time at which the last bucket has passed through all channels. The entries of `buckets` are (ready time,
/// times per tier), in ascending order of the ready time. Each channel serves one bucket at a time without
/// interruption.
pub(super) fn last_end(buckets: &[(f64, BucketTimes)], order: Order) -> f64 {
    let mut ready: Vec<(f64, usize)> = buckets
        .iter()
        .enumerate()
        .map(|(at, bucket)| (bucket.0, at))
        .collect();
    // The times at which buckets leave a channel depend only on the times at which they arrive there, so the channels
    // can be computed one after the other.
    for tier in 0..3 {
        ready = channel(&ready, |at| buckets[at].1[tier], order);
    }
    ready.last().map_or(0.0, |&(end, _)| end)
}

/// Passes buckets through one channel. The input contains (arrival, bucket) and the output contains (departure,
/// bucket), both in order of time.
fn channel(
    coming: &[(f64, usize)],
    seconds: impl Fn(usize) -> f64,
    order: Order,
) -> Vec<(f64, usize)> {
    let mut left = Vec::with_capacity(coming.len());
    let mut waiting = std::collections::VecDeque::new();
    let mut next = 0;
    let mut now = f64::NEG_INFINITY;
    while left.len() < coming.len() {
        if waiting.is_empty() {
            now = now.max(coming[next].0);
        }
        while next < coming.len() && coming[next].0 <= now {
            waiting.push_back(coming[next].1);
            next += 1;
        }
        let taken = match order {
            Order::Lifo => waiting.pop_back(),
            Order::Fifo => waiting.pop_front(),
        };
        let bucket = taken.expect("a bucket has arrived by now");
        now += seconds(bucket);
        left.push((now, bucket));
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_bucket_overtakes_those_that_wait() {
        let coming = [(0.0, 0), (1.0, 1), (2.0, 2)];
        let ends = |order| channel(&coming, |_| 4.0, order);
        assert_eq!(ends(Order::Lifo), [(4.0, 0), (8.0, 2), (12.0, 1)]);
        assert_eq!(ends(Order::Fifo), [(4.0, 0), (8.0, 1), (12.0, 2)]);
    }

    #[test]
    fn an_idle_channel_waits_for_the_next_bucket() {
        let coming = [(0.0, 0), (10.0, 1)];
        assert_eq!(
            channel(&coming, |_| 1.0, Order::Lifo),
            [(1.0, 0), (11.0, 1)]
        );
        let all = [(0.0, [1.0, 2.0, 3.0]), (10.0, [1.0, 2.0, 3.0])];
        assert!((last_end(&all, Order::Fifo) - 16.0).abs() < 1e-12);
        assert!(last_end(&[], Order::Fifo).abs() < 1e-12);
    }
}
