//! Which guest sits on which server: the question "what would be free for a job at this place in the order"
//! for one server at a time.

use crate::order::Key;
use gangline_engine::{BitSet, FreeIndex, TypePool};
use gangline_model::{GpuSet, ServerId};
use smallvec::SmallVec;

/// Guests by server.
#[derive(Debug)]
pub(super) struct Seats {
    by_server: Vec<SmallVec<[(Key, u64); 2]>>,
    /// The last guest of each server that has one.
    last: Vec<Key>,
    taken: BitSet,
}

impl Seats {
    pub(super) fn new(servers: usize) -> Self {
        Self {
            by_server: vec![SmallVec::new(); servers],
            last: vec![Key::default(); servers],
            taken: BitSet::new(servers.max(1)),
        }
    }

    /// A guest sits down.
    pub(super) fn add(&mut self, key: Key, gpus: &GpuSet) {
        for part in gpus.parts() {
            let at = part.server.index();
            self.by_server[at].push((key, part.mask));
            let is_first = self.taken.insert(at);
            if is_first || self.last[at] < key {
                self.last[at] = key;
            }
        }
    }

    /// A guest gets up.
    pub(super) fn remove(&mut self, key: Key, gpus: &GpuSet) {
        for part in gpus.parts() {
            let at = part.server.index();
            self.by_server[at].retain(|(guest, _)| *guest != key);
            match self.by_server[at].iter().map(|(guest, _)| *guest).max() {
                Some(last) => self.last[at] = last,
                None => {
                    self.taken.remove(at);
                }
            }
        }
    }

    /// The one server where a gang fits best for a job at `key`, or the first in index order if `is_first`, and
    /// what is free there. `firm` is free of guests, `later` is what is free for a job behind `key`.
    pub(super) fn find(
        &self,
        (firm, later): (&FreeIndex, &TypePool),
        key: Key,
        gpus: u32,
        is_first: bool,
    ) -> Option<(ServerId, u64)> {
        let is_met = |at: usize| self.taken.contains(at) && self.last[at] >= key;
        let mut best: Option<(u32, ServerId, u64)> = None;
        // without a guest at or behind `key` the server is as it is later
        if later.server_free_max() >= gpus {
            for (at, free) in later.all_servers().at_least(gpus) {
                let server = later.server(at);
                if is_met(server.index()) || best.is_some_and(|(least, _, _)| free >= least) {
                    continue;
                }
                best = Some((free, server, later.mask(at)));
                if free == gpus || is_first {
                    break;
                }
            }
        }
        for at in self.taken.iter() {
            let server = ServerId::new(at);
            if let Some((free, first, mask)) = best
                && first < server
                && (is_first || free == gpus)
            {
                return Some((first, mask));
            }
            if self.last[at] < key {
                continue;
            }
            let before = self.by_server[at].iter().filter(|(guest, _)| *guest < key);
            let mask = before.fold(firm.free_mask(server), |mask, (_, held)| mask & !held);
            let free = mask.count_ones();
            if free < gpus {
                continue;
            }
            if is_first || free == gpus {
                return Some((server, mask));
            }
            if best.is_none_or(|(least, other, _)| (free, server) < (least, other)) {
                best = Some((free, server, mask));
            }
        }
        best.map(|(_, server, mask)| (server, mask))
    }
}
