//! The pool of one GPU type: its servers, grouped by the number of free GPUs.

use super::racks::Racks;
use super::servers::{Servers, largest, smallest};
use crate::structures::bits::BitSet;
use crate::structures::trees::{Fenwick, MaxTree};
use gangline_model::{ClusterSpec, RackId, ServerId, gpus_in};

/// Free GPUs on all servers of one GPU type. Positions are local to the pool, in ascending order of server ids. Only
/// racks that hold servers of the type are numbered, in ascending order of rack ids.
#[derive(Clone, Debug)]
pub struct TypePool {
    servers: Vec<ServerId>,
    slots: Vec<Slots>,
    /// For each number of free GPUs, the servers with exactly this number. The set for 0 stays empty, because it is
    /// never used.
    pub(super) buckets: Vec<BitSet>,
    /// Bit `f`, from 1 to 63, is set if any server has exactly `f` free GPUs. Bit 0 stands for 64 free GPUs.
    bucket_mask: u64,
    free_total: u32,
    up_total: u32,
    size_counts: [u32; 65],
    size_max: u32,
    pub(super) rack_ids: Vec<RackId>,
    rack_up: Vec<u32>,
    rack_up_max: u32,
    extras: Extras,
}

/// One server of the pool.
#[derive(Clone, Copy, Debug)]
struct Slots {
    /// Mask of the free slots.
    mask: u64,
    rack: u32,
    free: u8,
    size: u8,
    up: bool,
}

/// Structures that only some placement rules need. Each structure is built when it is first used, and kept up to date
/// from then on.
#[derive(Clone, Debug, Default)]
struct Extras {
    racks: Option<Racks>,
    /// Whether any of the structures below exists.
    has_others: bool,
    by_server: Option<MaxTree>,
    by_gpu: Option<Fenwick>,
    /// Servers with a free GPU.
    some_free: Option<BitSet>,
    /// For each number of GPUs that a query has used, a tree with a 1 for each server that has at least this number of
    /// free GPUs.
    at_least: Vec<(u32, Fenwick)>,
}

/// Returns the number of free GPUs of each server.
fn free_of(slots: &[Slots]) -> impl ExactSizeIterator<Item = u32> {
    slots.iter().map(|slots| u32::from(slots.free))
}

impl TypePool {
    pub(super) fn new(cluster: &ClusterSpec, servers: Vec<ServerId>) -> Self {
        let count = servers.len();
        let mut rack_ids: Vec<RackId> = servers.iter().map(|&s| cluster.server(s).rack).collect();
        rack_ids.sort_unstable();
        rack_ids.dedup();
        let slots: Vec<Slots> = servers
            .iter()
            .map(|&id| cluster.server(id))
            .map(|server| Slots {
                mask: 0,
                rack: rack_ids.partition_point(|&rack| rack < server.rack) as u32,
                free: 0,
                size: server.gpus as u8,
                up: false,
            })
            .collect();
        let largest = slots.iter().map(|slots| slots.size).max().unwrap_or(0);
        let mut pool = Self {
            servers,
            slots,
            buckets: vec![BitSet::new(count); usize::from(largest) + 1],
            bucket_mask: 0,
            free_total: 0,
            up_total: 0,
            size_counts: [0; 65],
            size_max: 0,
            rack_up: vec![0; rack_ids.len()],
            rack_up_max: 0,
            rack_ids,
            extras: Extras::default(),
        };
        for at in 0..count {
            pool.set_up(at, true);
        }
        pool
    }

    /// Returns the number of free GPUs of this type.
    #[inline]
    pub fn free_total(&self) -> u32 {
        self.free_total
    }

    /// Returns the number of GPUs on servers that are up.
    #[inline]
    pub fn up_total(&self) -> u32 {
        self.up_total
    }

    /// Returns the size of the largest server that is up; 0 if no server is up.
    #[inline]
    pub fn server_gpus_max(&self) -> u32 {
        self.size_max
    }

    /// Returns the servers of the type, in index order.
    pub fn servers(&self) -> &[ServerId] {
        &self.servers
    }

    /// Returns the number of racks that hold servers of the type.
    pub fn racks(&self) -> usize {
        self.rack_ids.len()
    }

    /// Returns the server at the given position.
    #[inline]
    pub fn server(&self, at: usize) -> ServerId {
        self.servers[at]
    }

    /// Returns the size of the server at the given position.
    #[inline]
    pub fn size(&self, at: usize) -> u32 {
        u32::from(self.slots[at].size)
    }

    /// Returns whether the server at the given position is up.
    #[inline]
    pub fn is_up(&self, at: usize) -> bool {
        self.slots[at].up
    }

    /// Returns the free mask of the server at the given position.
    #[inline]
    pub fn mask(&self, at: usize) -> u64 {
        self.slots[at].mask
    }

    /// Returns the number of free GPUs on the server at the given position.
    #[inline]
    pub fn free(&self, at: usize) -> u32 {
        u32::from(self.slots[at].free)
    }

    /// Returns the rack of the server at the given position.
    #[inline]
    pub fn rack_of(&self, at: usize) -> usize {
        self.slots[at].rack as usize
    }

    /// Returns the number of GPUs on a rack's servers that are up.
    #[inline]
    pub fn rack_up(&self, rack: usize) -> u32 {
        self.rack_up[rack]
    }

    /// Returns the maximum, over all racks, of the number of GPUs on servers that are up.
    #[inline]
    pub fn rack_up_max(&self) -> u32 {
        self.rack_up_max
    }

    /// Returns the maximum number of free GPUs on one server.
    #[inline]
    pub fn server_free_max(&self) -> u32 {
        largest(self.bucket_mask, 64)
    }

    /// Returns the server with the fewest free GPUs among those with at least `gpus` free; on a tie, the one with the
    /// lowest index.
    #[inline]
    pub fn best_fit(&self, gpus: u32) -> Option<usize> {
        debug_assert!(gpus >= 1, "a gang has at least one GPU");
        let free = smallest(self.bucket_mask, gpus)?;
        self.buckets[free as usize].first()
    }

    /// Returns the leftmost server with at least `gpus` free.
    pub fn first_fit(&mut self, gpus: u32) -> Option<usize> {
        let slots = &self.slots;
        self.extras.has_others = true;
        self.extras
            .by_server
            .get_or_insert_with(|| MaxTree::new(free_of(slots)))
            .first_at_least(gpus)
    }

    /// Returns the servers of the type, grouped by the number of free GPUs.
    pub fn all_servers(&self) -> Servers<'_> {
        let end = self.servers.len();
        Servers {
            buckets: &self.buckets,
            mask: self.bucket_mask,
            start: 0,
            end,
            order: None,
        }
    }

    /// Returns the number of completely free servers of the largest size.
    #[inline]
    pub fn whole_total(&self) -> u32 {
        if self.size_max == 0 {
            0
        } else {
            self.buckets[self.size_max as usize].len() as u32
        }
    }

    /// Returns the lowest-index server at `from` or later that has a free GPU.
    pub fn next_free(&mut self, from: usize) -> Option<usize> {
        let slots = &self.slots;
        self.extras.has_others = true;
        let set = self.extras.some_free.get_or_insert_with(|| {
            let mut set = BitSet::new(slots.len());
            for at in (0..slots.len()).filter(|&at| slots[at].free > 0) {
                set.insert(at);
            }
            set
        });
        set.next_from(from)
    }

    /// Returns the server that holds the `index`-th free GPU in (server, slot) order, and how many free GPUs of this
    /// server come before it.
    pub fn nth_free(&mut self, index: u32) -> Option<(usize, u32)> {
        if index >= self.free_total {
            return None;
        }
        let slots = &self.slots;
        self.extras.has_others = true;
        let tree = self
            .extras
            .by_gpu
            .get_or_insert_with(|| Fenwick::new(free_of(slots)));
        Some(tree.find(index))
    }

    /// Returns the number of servers with at least `gpus` free, `gpus` > 0.
    pub fn count_at_least(&self, gpus: u32) -> u32 {
        let buckets = self.buckets.get(gpus as usize..).unwrap_or_default();
        buckets.iter().map(|set| set.len() as u32).sum()
    }

    /// Returns the `index`-th server, in index order, among those with at least `gpus` free GPUs.
    pub fn nth_at_least(&mut self, gpus: u32, index: u32) -> Option<usize> {
        if index >= self.count_at_least(gpus) {
            return None;
        }
        self.extras.has_others = true;
        let trees = &mut self.extras.at_least;
        let place = trees
            .iter()
            .position(|(least, _)| *least == gpus)
            .unwrap_or_else(|| {
                let has = free_of(&self.slots).map(|free| u32::from(free >= gpus));
                trees.push((gpus, Fenwick::new(has)));
                trees.len() - 1
            });
        Some(trees[place].1.find(index).0)
    }

    /// Returns the number of free GPUs in a rack.
    pub fn rack_free(&mut self, rack: usize) -> u32 {
        if self.rack_ids.len() == 1 {
            self.free_total
        } else {
            self.by_rack().free[rack]
        }
    }

    /// Returns the rack with the most free GPUs (on a tie, the one with the lowest index), and its number of free GPUs.
    pub fn rack_most_free(&mut self) -> Option<(usize, u32)> {
        match self.rack_ids.len() {
            0 => None,
            1 => Some((0, self.free_total)),
            _ => self.by_rack().most_free(),
        }
    }

    /// Returns the rack with the fewest free GPUs among those with at least `gpus` free; on a tie, the one with the
    /// lowest index.
    pub fn rack_best_fit(&mut self, gpus: u32) -> Option<usize> {
        if self.rack_ids.len() <= 1 {
            return (self.free_total >= gpus && !self.rack_ids.is_empty()).then_some(0);
        }
        self.by_rack().next_from(gpus, 0)
    }

    /// Returns the rack that follows `rack` in ascending order of free GPUs; ties are in ascending order of index.
    pub fn rack_after(&mut self, rack: usize) -> Option<usize> {
        if self.rack_ids.len() <= 1 {
            return None;
        }
        let racks = self.by_rack();
        racks.next_from(racks.free[rack], rack + 1)
    }

    /// Returns the rack that follows `rack` in descending order of free GPUs; ties are in ascending order of index.
    pub fn rack_emptier(&mut self, rack: usize) -> Option<usize> {
        if self.rack_ids.len() <= 1 {
            return None;
        }
        self.by_rack().emptier(rack)
    }

    /// Returns the lowest-index rack at `from` or later with at least `gpus` (>= 1) free.
    pub fn rack_first_fit(&mut self, gpus: u32, from: usize) -> Option<usize> {
        if self.rack_ids.len() <= 1 {
            let fits = from == 0 && self.free_total >= gpus && !self.rack_ids.is_empty();
            return fits.then_some(0);
        }
        self.by_rack().first_from(gpus, from)
    }

    /// Returns a rack's servers, grouped by the number of free GPUs.
    pub fn rack_servers(&mut self, rack: usize) -> Servers<'_> {
        if self.rack_ids.len() == 1 {
            return self.all_servers();
        }
        self.ensure_racks();
        let racks = self.extras.racks.as_ref().expect("just built");
        racks.servers(rack, &self.buckets)
    }

    /// Returns the lowest-index rack that has `whole` completely free servers of the largest size, and one further
    /// server with at least `rest` free GPUs. `rest` must be smaller than the largest size.
    pub fn rack_whole_first(&mut self, whole: u32, rest: u32) -> Option<usize> {
        if self.size_max == 0 {
            return None;
        }
        self.ensure_racks();
        let racks = self.extras.racks.as_mut().expect("just built");
        racks.whole_first(self.size_max, &self.buckets, (whole, rest))
    }

    /// Returns, among the racks of [`Self::rack_whole_first`], the one with the fewest completely free servers of the
    /// largest size. Ties go to the fewest free GPUs, then to the lowest index.
    pub fn rack_whole_best(&mut self, whole: u32, rest: u32) -> Option<usize> {
        if self.size_max == 0 {
            return None;
        }
        self.ensure_racks();
        let racks = self.extras.racks.as_mut().expect("just built");
        racks.whole_best(self.size_max, &self.buckets, (whole, rest))
    }

    #[inline]
    fn by_rack(&mut self) -> &mut Racks {
        self.ensure_racks();
        self.extras.racks.as_mut().expect("just built")
    }

    fn ensure_racks(&mut self) {
        if self.extras.racks.is_none() {
            self.extras.racks = Some(self.fresh_racks());
        }
    }

    fn fresh_racks(&self) -> Racks {
        let racks_of: Vec<u32> = self.slots.iter().map(|slots| slots.rack).collect();
        let sizes: Vec<u8> = self.slots.iter().map(|slots| slots.size).collect();
        Racks::new(&racks_of, self.rack_ids.len(), &sizes, &self.buckets)
    }

    /// Takes slots on a server and returns the server's previous free mask.
    #[inline]
    pub(super) fn take(&mut self, at: usize, mask: u64) -> u64 {
        self.set_mask(at, self.slots[at].mask & !mask)
    }

    /// Releases slots on a server and returns the server's previous free mask.
    #[inline]
    pub(super) fn give(&mut self, at: usize, mask: u64) -> u64 {
        self.set_mask(at, self.slots[at].mask | mask)
    }

    /// Sets the free mask of a server and returns the previous one.
    #[inline]
    pub(super) fn set_mask(&mut self, at: usize, mask: u64) -> u64 {
        let before = self.slots[at].mask;
        if before != mask {
            self.change_mask(at, mask);
        }
        before
    }

    fn change_mask(&mut self, at: usize, mask: u64) {
        let slots = &mut self.slots[at];
        debug_assert!(slots.up, "a server that is down has no free GPU");
        let (old, new) = (u32::from(slots.free), gpus_in(mask));
        slots.mask = mask;
        slots.free = new as u8;
        let rack = slots.rack as usize;
        if old != new {
            self.set_free((at, rack), (old, new));
        }
    }

    #[inline]
    fn set_free(&mut self, (at, rack): (usize, usize), (old, new): (u32, u32)) {
        self.free_total = self.free_total + new - old;
        if old > 0 {
            let left = &mut self.buckets[old as usize];
            left.remove(at);
            if left.is_empty() {
                self.bucket_mask &= !(1 << (old % 64));
            }
        }
        if new > 0 {
            self.buckets[new as usize].insert(at);
            self.bucket_mask |= 1 << (new % 64);
        }
        if let Some(racks) = &mut self.extras.racks {
            racks.change(&self.buckets, (at, rack), (old, new));
        }
        if self.extras.has_others {
            self.extras.change(at, (old, new));
        }
    }

    pub(super) fn set_up(&mut self, at: usize, up: bool) {
        if self.is_up(at) == up {
            return;
        }
        let (size, rack) = (self.size(at), self.rack_of(at));
        let size_max = self.size_max;
        if up {
            self.slots[at].up = true;
            self.up_total += size;
            self.size_counts[size as usize] += 1;
            self.size_max = size_max.max(size);
            self.forget_whole_unless(size_max);
            self.rack_up[rack] += size;
            self.rack_up_max = self.rack_up_max.max(self.rack_up[rack]);
            self.set_mask(at, u64::MAX >> (64 - size));
        } else {
            self.set_mask(at, 0);
            self.slots[at].up = false;
            self.up_total -= size;
            self.size_counts[size as usize] -= 1;
            while self.size_max > 0 && self.size_counts[self.size_max as usize] == 0 {
                self.size_max -= 1;
            }
            self.forget_whole_unless(size_max);
            let was_max = self.rack_up[rack] == self.rack_up_max;
            self.rack_up[rack] -= size;
            if was_max {
                self.rack_up_max = self.rack_up.iter().copied().max().unwrap_or(0);
            }
        }
    }

    fn forget_whole_unless(&mut self, size_max: u32) {
        if let Some(racks) = self
            .extras
            .racks
            .as_mut()
            .filter(|_| self.size_max != size_max)
        {
            racks.forget_whole();
        }
    }

    /// Compares every structure with a recount, for tests and invariant checks.
    ///
    /// # Panics
    /// Panics if a structure differs from the recount.
    pub fn assert_consistent(&self) {
        let mut rack_up = vec![0; self.rack_ids.len()];
        let mut size_max = 0;
        for at in 0..self.servers.len() {
            let free = self.mask(at).count_ones();
            let size = if self.is_up(at) { self.size(at) } else { 0 };
            assert!(free <= size, "position {at} has {free} free GPUs of {size}");
            assert_eq!(self.free(at), free, "free count of position {at}");
            rack_up[self.rack_of(at)] += size;
            size_max = size_max.max(size);
        }
        assert_eq!(self.size_max, size_max, "size of the largest up server");
        assert_eq!(
            self.free_total,
            free_of(&self.slots).sum::<u32>(),
            "free GPUs"
        );
        assert_eq!(
            self.up_total,
            rack_up.iter().sum::<u32>(),
            "GPUs of up servers"
        );
        assert_eq!(
            self.rack_up_max,
            rack_up.iter().copied().max().unwrap_or(0),
            "largest rack"
        );
        assert_eq!(self.rack_up, rack_up, "GPUs of up servers by rack");
        for (free, set) in self.buckets.iter().enumerate().skip(1) {
            let members = (0..self.slots.len()).filter(|&at| self.free(at) as usize == free);
            assert!(set.iter().eq(members), "servers with {free} free GPUs");
            let noted = self.bucket_mask >> (free % 64) & 1 == 1;
            assert_eq!(noted, !set.is_empty(), "bucket mask at {free}");
        }
        if let Some(racks) = &self.extras.racks {
            racks.assert_equals(&mut self.fresh_racks(), self.size_max, &self.buckets);
        }
        self.extras.assert_consistent(&self.slots);
    }
}

impl Extras {
    #[inline(never)]
    fn change(&mut self, at: usize, (old, new): (u32, u32)) {
        if let Some(tree) = &mut self.by_server {
            tree.set(at, new);
        }
        if let Some(tree) = &mut self.by_gpu {
            tree.add(at, i64::from(new) - i64::from(old));
        }
        if let Some(set) = &mut self.some_free {
            if new == 0 {
                set.remove(at);
            } else if old == 0 {
                set.insert(at);
            }
        }
        for (least, tree) in &mut self.at_least {
            let by = i64::from(new >= *least) - i64::from(old >= *least);
            if by != 0 {
                tree.add(at, by);
            }
        }
    }

    fn assert_consistent(&self, slots: &[Slots]) {
        let free = || free_of(slots);
        if let Some(tree) = &self.by_server {
            assert!(
                free().enumerate().all(|(at, free)| tree.get(at) == free),
                "servers by index"
            );
        }
        if let Some(tree) = &self.by_gpu {
            assert_eq!(*tree, Fenwick::new(free()), "free GPUs by index");
        }
        if let Some(set) = &self.some_free {
            let members = free()
                .enumerate()
                .filter(|(_, free)| *free > 0)
                .map(|(at, _)| at);
            assert!(set.iter().eq(members), "servers with a free GPU");
        }
        for (least, tree) in &self.at_least {
            let fresh = Fenwick::new(free().map(|free| u32::from(free >= *least)));
            assert_eq!(*tree, fresh, "servers with {least} free GPUs by index");
        }
    }
}
