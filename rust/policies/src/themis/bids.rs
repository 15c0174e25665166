//! What is offered and asked for in an exact auction.

use gangline_model::{GpuTypeId, ServerId, SimTime, Tier};

/// What a bid is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// A gang in a tier of a type, wherever that is.
    Anywhere(GpuTypeId, Tier),
    /// The GPUs that the bidder holds.
    Own(GpuTypeId, Tier),
}

/// A bid of positive value.
#[derive(Clone, Copy, Debug)]
pub struct Bid {
    /// Position of the bidder.
    pub bidder: usize,
    /// What for.
    pub offer: Offer,
    /// ln(v).
    pub value: f64,
}

/// A server with free GPUs.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Which one.
    pub server: ServerId,
    /// Its type.
    pub gpu_type: GpuTypeId,
    /// Its rack.
    pub rack: u32,
    /// Free GPUs.
    pub free: u32,
}

/// An auction.
#[derive(Clone, Debug, Default)]
pub struct AuctionAsk {
    /// When.
    pub now: SimTime,
    /// Gang of each bidder.
    pub gangs: Vec<u32>,
    /// Bids; those of a bidder follow each other.
    pub bids: Vec<Bid>,
    /// Servers with free GPUs, ascending.
    pub rooms: Vec<Room>,
    /// GPUs held: (bid for own GPUs, position of the room, GPUs).
    pub own: Vec<(usize, usize, u32)>,
}

/// What a bidder gets: a bid, and the room that holds all of it (tier server) or lies in its rack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Award {
    /// Position of the bid.
    pub bid: usize,
    /// Position of a room; of no meaning for other offers than `Anywhere` on a server or in a rack.
    pub room: usize,
}
