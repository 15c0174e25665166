//! Offers and bids of an exact auction.

use gangline_model::{GpuTypeId, ServerId, SimTime, Tier};

/// The GPUs for which a bid is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// GPUs of a type for a gang, anywhere within a tier.
    Anywhere(GpuTypeId, Tier),
    /// The GPUs that the bidder already holds.
    Own(GpuTypeId, Tier),
}

/// A bid with a positive value.
#[derive(Clone, Copy, Debug)]
pub struct Bid {
    /// Position of the bidder in [`AuctionAsk::gangs`].
    pub bidder: usize,
    /// The offer for which the bid is made.
    pub offer: Offer,
    /// Value of the bid, ln(v).
    pub value: f64,
}

/// A server with free GPUs.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// The server.
    pub server: ServerId,
    /// Type of the GPUs.
    pub gpu_type: GpuTypeId,
    /// Rack of the server.
    pub rack: u32,
    /// Number of free GPUs.
    pub free: u32,
}

/// The description of an auction: its bids, and the servers with free GPUs.
#[derive(Clone, Debug, Default)]
pub struct AuctionAsk {
    /// Instant of the auction.
    pub now: SimTime,
    /// Gang size of each bidder.
    pub gangs: Vec<u32>,
    /// Bids; those of one bidder are adjacent.
    pub bids: Vec<Bid>,
    /// Servers with free GPUs, ascending.
    pub rooms: Vec<Room>,
    /// GPUs that bidders hold: tuples (position of the bid for these GPUs, position of the server in `rooms`, number of
    /// GPUs).
    pub own: Vec<(usize, usize, u32)>,
}

/// A winning bid, and the place of its gang: the server that holds the whole gang (tier `server`), or a server in its
/// rack (tier `rack`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Award {
    /// Position of the bid.
    pub bid: usize,
    /// Position of this server in [`AuctionAsk::rooms`]. The field is meaningful only for `Anywhere` on a server or in
    /// a rack.
    pub room: usize,
}
