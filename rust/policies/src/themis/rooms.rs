//! Assigns servers and racks to the winners of an exact auction.

use super::bids::{AuctionAsk, Award, Offer};
use gangline_model::Tier;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the place of each winning bid, in order; `None` if the gangs do not fit together.
///
/// Gangs choose in turn: gangs for one server before gangs for one rack, then large gangs before small gangs, then in
/// the order of the bids. Each gang gets the first server or rack that leaves enough GPUs for all other gangs. A rack
/// is represented by the first of its servers with free GPUs.
pub(super) fn deal(ask: &AuctionAsk, winners: &[usize]) -> Option<Vec<Award>> {
    let mut left: Vec<u32> = ask.rooms.iter().map(|room| room.free).collect();
    for &(bid, room, gpus) in &ask.own {
        if winners.contains(&bid) {
            left[room] = left[room].checked_sub(gpus)?;
        }
    }
    let mut racks: Vec<Vec<usize>> = Vec::new();
    let mut place = BTreeMap::new();
    for (at, room) in ask.rooms.iter().enumerate() {
        let rack = *place
            .entry((room.gpu_type, room.rack))
            .or_insert(racks.len());
        racks.resize(racks.len().max(rack + 1), Vec::new());
        racks[rack].push(at);
    }
    let tier = |bid: usize| match ask.bids[bid].offer {
        Offer::Anywhere(_, tier) => Some(tier),
        Offer::Own(..) => None,
    };
    let in_places = |bid: &usize| matches!(tier(*bid), Some(Tier::Server | Tier::Rack));
    let mut order: Vec<usize> = winners.iter().copied().filter(in_places).collect();
    order.sort_by_key(|&bid| (tier(bid), Reverse(ask.gangs[ask.bids[bid].bidder]), bid));
    let mut turns = Turns {
        ask,
        racks: &racks,
        order: &order,
        left,
        dead: BTreeSet::new(),
        found: BTreeMap::new(),
    };
    let room_of = turns.place(0).then_some(turns.found)?;
    let award = |&bid: &usize| Award {
        bid,
        room: room_of.get(&bid).copied().unwrap_or(0),
    };
    Some(winners.iter().map(award).collect())
}

struct Turns<'a> {
    ask: &'a AuctionAsk,
    racks: &'a [Vec<usize>],
    order: &'a [usize],
    /// Number of free GPUs on each server.
    left: Vec<u32>,
    /// States from which there is no solution.
    dead: BTreeSet<(usize, Vec<Vec<u32>>)>,
    found: BTreeMap<usize, usize>,
}

impl Turns<'_> {
    /// Places the gang at position `at` of the order and all gangs after it. Returns whether this is possible.
    fn place(&mut self, at: usize) -> bool {
        let Some(&bid) = self.order.get(at) else {
            return true;
        };
        let state = (at, self.state());
        if self.dead.contains(&state) {
            return false;
        }
        let Offer::Anywhere(gpu_type, tier) = self.ask.bids[bid].offer else {
            return false;
        };
        let gang = self.ask.gangs[self.ask.bids[bid].bidder];
        let places: Vec<Vec<usize>> = if tier == Tier::Server {
            (0..self.left.len()).map(|room| vec![room]).collect()
        } else {
            self.racks.to_vec()
        };
        for rooms in places {
            let free: u32 = rooms.iter().map(|&room| self.left[room]).sum();
            if self.ask.rooms[rooms[0]].gpu_type != gpu_type || free < gang {
                continue;
            }
            let before = self.left.clone();
            let mut need = gang;
            for &room in &rooms {
                // In a rack, only the sum of free GPUs matters, because gangs for one server are already placed.
                let taken = need.min(self.left[room]);
                self.left[room] -= taken;
                need -= taken;
            }
            self.found.insert(bid, rooms[0]);
            if self.place(at + 1) {
                return true;
            }
            self.left = before;
        }
        self.dead.insert(state);
        false
    }

    /// Returns the free GPUs, grouped by rack. For the gangs that follow, servers of a rack with equal numbers of free
    /// GPUs are equivalent.
    fn state(&self) -> Vec<Vec<u32>> {
        let racks = self.racks.iter().map(|rooms| {
            let mut free: Vec<u32> = rooms.iter().map(|&room| self.left[room]).collect();
            free.sort_unstable();
            free
        });
        racks.collect()
    }
}
