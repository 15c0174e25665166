//! Sets of GPUs: servers in ascending order, each with a mask of slots.

use crate::ServerId;
use smallvec::SmallVec;

/// The GPUs of one server in a [`GpuSet`]: bit `k` of `mask` is slot `k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerGpus {
    /// The server.
    pub server: ServerId,
    /// Mask of the slots on the server; never 0.
    pub mask: u64,
}

/// GPUs on one or several servers, sorted by server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct GpuSet {
    servers: SmallVec<[ServerGpus; 2]>,
}

impl GpuSet {
    /// Creates the empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a set of slots on a single server.
    #[inline]
    pub fn single(server: ServerId, mask: u64) -> Self {
        let mut servers = SmallVec::new();
        if mask != 0 {
            servers.push(ServerGpus { server, mask });
        }
        Self { servers }
    }

    /// Adds slots. Slots that are already in the set remain in it.
    ///
    /// # Examples
    /// ```
    /// use gangline_model::{GpuSet, ServerId};
    /// let mut set = GpuSet::new();
    /// set.insert(ServerId(3), 0b11);
    /// set.insert(ServerId(1), 0b1);
    /// assert_eq!(set.gpus(), 3);
    /// assert_eq!(set.by_server()[0].server, ServerId(1));
    /// ```
    #[inline]
    pub fn insert(&mut self, server: ServerId, mask: u64) {
        if mask == 0 {
            return;
        }
        if self.servers.last().is_none_or(|last| last.server < server) {
            self.servers.push(ServerGpus { server, mask });
            return;
        }
        self.insert_inside(server, mask);
    }

    fn insert_inside(&mut self, server: ServerId, mask: u64) {
        match self.servers.binary_search_by_key(&server, |one| one.server) {
            Ok(at) => self.servers[at].mask |= mask,
            Err(at) => self.servers.insert(at, ServerGpus { server, mask }),
        }
    }

    /// Returns the servers and their slots, in ascending order of servers.
    #[inline]
    pub fn by_server(&self) -> &[ServerGpus] {
        &self.servers
    }

    /// Returns the number of GPUs.
    #[inline]
    pub fn gpus(&self) -> u32 {
        self.servers.iter().map(|part| gpus_in(part.mask)).sum()
    }

    /// Returns whether the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Returns the slots on one server, or 0 if the server is not in the set.
    pub fn mask_on(&self, server: ServerId) -> u64 {
        self.servers
            .binary_search_by_key(&server, |one| one.server)
            .map_or(0, |at| self.servers[at].mask)
    }
}

impl FromIterator<(ServerId, u64)> for GpuSet {
    fn from_iter<I: IntoIterator<Item = (ServerId, u64)>>(items: I) -> Self {
        let items = items.into_iter();
        let mut set = Self {
            servers: SmallVec::with_capacity(items.size_hint().0),
        };
        for (server, mask) in items {
            set.insert(server, mask);
        }
        set
    }
}

/// For each byte, the number of bits that are set.
const ONES: [u8; 256] = {
    let mut ones = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        ones[byte] = (byte as u8).count_ones() as u8;
        byte += 1;
    }
    ones
};

/// Returns the number of bits that are set in `mask`. A wheel that runs on all x86-64 processors cannot use the
/// population count instruction. The function therefore looks up masks of up to 8 slots in a table; few servers have
/// more slots.
///
/// # Examples
/// ```
/// assert_eq!(gangline_model::gpus_in(0b1011), 3);
/// assert_eq!(gangline_model::gpus_in(u64::MAX), 64);
/// ```
#[inline]
pub fn gpus_in(mask: u64) -> u32 {
    match u8::try_from(mask) {
        Ok(byte) => u32::from(ONES[usize::from(byte)]),
        Err(_) => mask.count_ones(),
    }
}

/// Returns the lowest `count` bits that are set in `mask`, or all of them if there are fewer.
///
/// # Examples
/// ```
/// assert_eq!(gangline_model::mask_of_lowest(0b1101_0110, 3), 0b0001_0110);
/// ```
#[inline]
pub fn mask_of_lowest(mask: u64, count: u32) -> u64 {
    let mut rest = mask;
    for _ in 0..count {
        if rest == 0 {
            break;
        }
        rest &= rest - 1;
    }
    mask & !rest
}
