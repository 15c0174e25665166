//! Layer by layer: buckets pass the channels of the three tiers one after the other.

/// Seconds that one bucket takes in each tier.
pub type BucketTimes = [f64; 3];

/// Which of several waiting buckets a channel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Order {
    /// The newest: it overtakes those that wait.
    #[default]
    Lifo,
    /// The oldest.
    Fifo,
}

impl Order {
    /// The order of a name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "lifo" => Some(Self::Lifo),
            "fifo" => Some(Self::Fifo),
            _ => None,
        }
    }
}

/// When the last bucket has passed all channels. `buckets` are (ready, times per tier), ascending in
/// `ready`; each channel serves one bucket at a time and never stops one it has begun.
pub(super) fn last_end(buckets: &[(f64, BucketTimes)], order: Order) -> f64 {
    let mut ready: Vec<(f64, usize)> = buckets
        .iter()
        .enumerate()
        .map(|(at, bucket)| (bucket.0, at))
        .collect();
    // in a channel the order of arrival decides, so the channels can be worked out one by one
    for tier in 0..3 {
        ready = channel(&ready, |at| buckets[at].1[tier], order);
    }
    ready.last().map_or(0.0, |&(end, _)| end)
}

/// Passes buckets through one channel: (instant it comes, bucket) to (instant it leaves, bucket), both
/// in order of time.
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
        let bucket = taken.expect("one has come by now");
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
