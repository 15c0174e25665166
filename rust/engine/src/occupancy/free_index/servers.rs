//! The up servers of one rack or of one GPU type, grouped by the number of free GPUs.

use crate::structures::bits::BitSet;

/// The servers of a rack or of a GPU type, in the current state of the index. The queries return positions in the pool.
///
/// Every query costs O(log n) per server found, times the number of different free counts. There are at most 64 free
/// counts, in practice one to eight.
#[derive(Clone, Copy, Debug)]
pub struct Servers<'a> {
    /// For each number of free GPUs, the servers with exactly this number.
    pub(super) buckets: &'a [BitSet],
    /// One bit for each free count that occurs; see [`smallest`].
    pub(super) mask: u64,
    pub(super) start: usize,
    pub(super) end: usize,
    /// For each server in the rack-by-rack numbering, its position in the pool; `None` if the two numberings are equal.
    pub(super) order: Option<&'a [u32]>,
}

impl<'a> Servers<'a> {
    #[inline]
    fn place(&self, number: usize) -> usize {
        self.order.map_or(number, |order| order[number] as usize)
    }

    #[inline]
    fn next(&self, free: u32, from: usize) -> Option<usize> {
        self.buckets[free as usize]
            .next_from(from)
            .filter(|&number| number < self.end)
    }

    /// Returns the maximum number of free GPUs on one server.
    pub fn free_max(&self) -> u32 {
        largest(self.mask, 64)
    }

    /// Returns the server with the fewest free GPUs among those with at least `gpus` free, and its number of free GPUs.
    /// Ties go to the lowest index.
    pub fn best_fit(&self, gpus: u32) -> Option<(usize, u32)> {
        let free = smallest(self.mask, gpus)?;
        self.next(free, self.start)
            .map(|number| (self.place(number), free))
    }

    /// Returns the lowest-index server with at least `gpus` free.
    pub fn first_fit(&self, gpus: u32) -> Option<(usize, u32)> {
        self.at_least(gpus).next()
    }

    /// Returns the servers with exactly `free` free GPUs, in index order.
    pub fn with_free(&self, free: u32) -> impl Iterator<Item = usize> + use<'a> {
        let servers = *self;
        let mut from = servers.start;
        std::iter::from_fn(move || {
            let number = servers.next(free, from)?;
            from = number + 1;
            Some(servers.place(number))
        })
    }

    /// Returns the servers with at least `gpus` free, in index order, each with its number of free GPUs.
    pub fn at_least(&self, gpus: u32) -> impl Iterator<Item = (usize, u32)> + use<'a> {
        let servers = *self;
        let mut from = servers.start;
        std::iter::from_fn(move || {
            let (number, free) = counts(servers.mask)
                .take_while(|&free| free >= gpus)
                .filter_map(|free| servers.next(free, from).map(|number| (number, free)))
                .min()?;
            from = number + 1;
            Some((servers.place(number), free))
        })
    }

    /// Returns the servers that have free GPUs, in descending order of free GPUs; ties are in ascending order of index.
    pub fn descending(&self) -> impl Iterator<Item = (usize, u32)> + use<'a> {
        let servers = *self;
        counts(servers.mask).flat_map(move |free| servers.with_free(free).map(move |at| (at, free)))
    }
}

/// Returns the smallest free count of a mask that is at least `gpus`. Bit `f` of a mask, from 1 to 63, stands for `f`
/// free GPUs; bit 0 stands for 64.
#[inline]
pub(super) fn smallest(mask: u64, gpus: u32) -> Option<u32> {
    if gpus > 64 {
        return None;
    }
    let enough = if gpus == 64 {
        0
    } else {
        mask & !1 & (u64::MAX << gpus)
    };
    if enough != 0 {
        return Some(enough.trailing_zeros());
    }
    (mask & 1 == 1).then_some(64)
}

/// Returns the largest free count of a mask that is at most `most`; 0 if the mask has no such count.
#[inline]
pub(super) fn largest(mask: u64, most: u32) -> u32 {
    if most >= 64 && mask & 1 == 1 {
        return 64;
    }
    let below = mask & !1 & (u64::MAX >> (63 - most.min(63)));
    (below | 1).ilog2()
}

/// Returns the free counts of a mask in descending order.
fn counts(mask: u64) -> impl Iterator<Item = u32> {
    let mut most = 64;
    std::iter::from_fn(move || {
        let free = largest(mask, most);
        most = free.saturating_sub(1);
        (free > 0).then_some(free)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_hold_counts_up_to_64() {
        let of = |counts: &[u32]| counts.iter().fold(0, |mask, f| mask | 1_u64 << (f % 64));
        let mask = of(&[64, 63, 8, 1]);
        assert_eq!(counts(mask).collect::<Vec<_>>(), [64, 63, 8, 1]);
        assert_eq!(counts(0).count(), 0);
        assert_eq!(smallest(mask, 1), Some(1));
        assert_eq!(smallest(mask, 9), Some(63));
        assert_eq!(smallest(mask, 64), Some(64));
        assert_eq!(smallest(mask, 65), None);
        assert_eq!(smallest(of(&[3]), 4), None);
        assert_eq!(largest(mask, 7), 1);
        assert_eq!(largest(mask, 0), 0);
        assert_eq!(largest(of(&[64]), 63), 0);
    }
}
