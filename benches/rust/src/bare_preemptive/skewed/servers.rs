//! Servers of eight GPUs, and for which places in the order each GPU is free.
//!
//! Per GPU one number tells all: the place of the guest that holds it, as whoever stands before the guest may take
//! it; less than every place if an admitted job holds it, more than every place if nobody does. So many GPUs of a
//! server are free for a job as numbers are greater than its place: the numbers of a server in falling order, and
//! the greatest ones of sixteen servers, of sixteen times sixteen and of all, tell where a gang has room.
//!
//! Cost: O(servers / 256 + candidates) to find a server, O(1) to change one.

use super::line::{Place, Places};

pub(super) const GPUS: usize = 8;

/// What an admitted job holds is free for nobody.
pub(super) const HELD: Place = 0;
/// Before every place: held by a guest that has no place in the order yet.
pub(super) const NEW_GUEST: Place = 1;
/// The first place that a job may have.
pub(super) const FIRST_PLACE: Place = 2;
/// Free for all.
pub(super) const IDLE: Place = Place::MAX - 1;

/// Servers of a block, blocks of a field.
const MANY: usize = 16;

/// A number per GPU, or the greatest, second greatest, ... numbers of one server or of any of several.
type Row = [Place; GPUS];

pub(super) struct Servers {
    rack_size: usize,
    count: usize,
    /// Until when each GPU is free.
    until: Vec<Row>,
    /// The same in falling order; not yet of servers that are listed as `changed`.
    rows: Vec<Row>,
    /// No row of the sixteen has more. Too high after a fall, until a search looks there in vain.
    blocks: Vec<Row>,
    fields: Vec<Row>,
    pub(super) all: Row,
    changed: Vec<u32>,
    is_changed: Vec<bool>,
    /// How many GPUs of each server no admitted job holds.
    free: Vec<u8>,
    /// The servers with as many.
    by_free: Vec<Places>,
    /// A bit per number of GPUs that some server has free.
    counts: u32,
    /// Per rack the servers that no admitted job is on.
    whole: Vec<u32>,
    /// Racks with so many whole servers, and a bit per number that some rack has.
    racks_by_whole: Vec<u32>,
    whole_counts: u64,
    /// The last place for which some server has become whole since it was asked for.
    whole_until: Place,
}

fn raise(row: &mut Row, by: &Row) {
    for (most, &value) in row.iter_mut().zip(by) {
        *most = (*most).max(value);
    }
}

fn greatest(rows: &[Row]) -> Row {
    let mut most = [HELD; GPUS];
    for row in rows {
        raise(&mut most, row);
    }
    most
}

/// Falling, without a branch: a sorting network of Batcher.
fn sorted(mut row: Row) -> Row {
    const SWAPS: [(usize, usize); 19] = [
        (0, 1),
        (2, 3),
        (4, 5),
        (6, 7),
        (0, 2),
        (1, 3),
        (4, 6),
        (5, 7),
        (1, 2),
        (5, 6),
        (0, 4),
        (1, 5),
        (2, 6),
        (3, 7),
        (2, 4),
        (3, 5),
        (1, 2),
        (3, 4),
        (5, 6),
    ];
    for (one, other) in SWAPS {
        let (a, b) = (row[one], row[other]);
        row[one] = a.max(b);
        row[other] = a.min(b);
    }
    row
}

impl Servers {
    pub(super) fn new(servers: usize, rack_size: usize) -> Self {
        let padded = servers.next_multiple_of(MANY * MANY);
        let mut by_free: Vec<Places> = (0..=GPUS).map(|_| Places::new(servers)).collect();
        for at in 0..servers {
            by_free[GPUS].insert(at as Place);
        }
        let racks = servers.div_ceil(rack_size);
        let rack = |at| rack_size.min(servers - at * rack_size);
        let whole: Vec<u32> = (0..racks).map(|at| rack(at) as u32).collect();
        let mut racks_by_whole = vec![0; rack_size + 1];
        let mut whole_counts = 0;
        for &servers in &whole {
            racks_by_whole[servers as usize] += 1;
            whole_counts |= 1 << servers;
        }
        let mut ours = Self {
            rack_size,
            count: servers,
            until: vec![[IDLE; GPUS]; servers],
            rows: vec![[HELD; GPUS]; padded],
            blocks: vec![[HELD; GPUS]; padded / MANY],
            fields: vec![[HELD; GPUS]; padded / MANY / MANY],
            all: [HELD; GPUS],
            changed: Vec::new(),
            is_changed: vec![false; servers],
            free: vec![GPUS as u8; servers],
            by_free,
            counts: 1 << GPUS,
            whole,
            racks_by_whole,
            whole_counts,
            whole_until: HELD,
        };
        for at in 0..servers {
            ours.note(at);
        }
        ours
    }

    fn note(&mut self, at: usize) {
        if !std::mem::replace(&mut self.is_changed[at], true) {
            self.changed.push(at as u32);
        }
    }

    /// The servers of a rack at some bits.
    pub(super) fn of_rack(&self, rack: usize, bits: u64) -> impl Iterator<Item = usize> + use<> {
        let first = rack * self.rack_size;
        let mut left = bits;
        std::iter::from_fn(move || {
            let bit = left.trailing_zeros() as usize;
            (left != 0).then(|| {
                left &= left - 1;
                first + bit
            })
        })
    }

    /// Who holds the GPUs of a server, by their numbers.
    pub(super) fn holders(&self, at: usize) -> &Row {
        &self.until[at]
    }

    /// Gives some GPUs of a server, all of which had one and the same kind of holder, to another.
    #[inline]
    pub(super) fn set(&mut self, at: usize, mask: u8, until: Place) {
        let row = &mut self.until[at];
        let (mut left, mut gain) = (mask, 0);
        while left != 0 {
            let gpu = left.trailing_zeros() as usize;
            left &= left - 1;
            let old = std::mem::replace(&mut row[gpu], until);
            gain += i8::from(until != HELD) - i8::from(old != HELD);
        }
        self.note(at);
        if gain != 0 {
            self.count_free(at, gain);
        }
    }

    fn count_free(&mut self, at: usize, gain: i8) {
        let old = self.free[at];
        let free = old.wrapping_add_signed(gain);
        self.free[at] = free;
        let from = &mut self.by_free[usize::from(old)];
        from.remove(at as Place);
        if from.next(0).is_none() {
            self.counts &= !(1 << old);
        }
        self.by_free[usize::from(free)].insert(at as Place);
        self.counts |= 1 << free;
        let rack = at / self.rack_size;
        let whole = self.whole[rack];
        if usize::from(free) == GPUS {
            self.set_whole(rack, whole + 1);
        } else if usize::from(old) == GPUS {
            self.set_whole(rack, whole - 1);
        }
    }

    fn set_whole(&mut self, rack: usize, whole: u32) {
        let old = std::mem::replace(&mut self.whole[rack], whole);
        self.racks_by_whole[old as usize] -= 1;
        if self.racks_by_whole[old as usize] == 0 {
            self.whole_counts &= !(1 << old);
        }
        self.racks_by_whole[whole as usize] += 1;
        self.whole_counts |= 1 << whole;
    }

    /// Takes in what has changed, for those who stand behind guests.
    #[inline]
    pub(super) fn refresh(&mut self) {
        while let Some(at) = self.changed.pop() {
            let at = at as usize;
            self.is_changed[at] = false;
            let row = sorted(self.until[at]);
            if row[GPUS - 1] > self.rows[at][GPUS - 1] {
                self.whole_until = self.whole_until.max(row[GPUS - 1]);
            }
            self.rows[at] = row;
            raise(&mut self.blocks[at / MANY], &row);
            raise(&mut self.fields[at / MANY / MANY], &row);
            raise(&mut self.all, &row);
        }
    }

    /// What is free on a server for a job at a place.
    #[inline]
    fn mask(&self, at: usize, place: Place) -> u8 {
        let row = self.until[at].iter().enumerate();
        row.fold(0, |mask, (gpu, &until)| {
            mask | u8::from(until > place) << gpu
        })
    }

    /// The lowest GPUs of a server that are free for a job at a place.
    #[inline]
    pub(super) fn lowest(&self, at: usize, place: Place, gpus: usize) -> u8 {
        let mut free = self.mask(at, place);
        let mut lowest = 0;
        for _ in 0..gpus {
            let gpu = free & free.wrapping_neg();
            lowest |= gpu;
            free ^= gpu;
        }
        lowest
    }

    /// Whether some server has so many GPUs that no admitted job holds.
    #[inline]
    pub(super) fn has_one(&self, gpus: usize) -> bool {
        self.counts >> gpus != 0
    }

    /// The one of them with the fewest, the first of those.
    #[inline]
    pub(super) fn best_of_all(&self, gpus: usize) -> usize {
        let fewest = gpus + (self.counts >> gpus).trailing_zeros() as usize;
        let first = self.by_free[fewest].next(0);
        first.expect("the bit says that there is one") as usize
    }

    /// The server with the fewest GPUs free for a job at a place that are enough, the first of those. After
    /// [`Self::refresh`].
    pub(super) fn best(&mut self, place: Place, gpus: usize) -> Option<usize> {
        let level = gpus - 1;
        let mut best = (GPUS + 1, None);
        for field in 0..self.fields.len() {
            if self.fields[field][level] <= place {
                continue;
            }
            let mut is_right = false;
            for block in field * MANY..(field + 1) * MANY {
                if self.blocks[block][level] <= place {
                    continue;
                }
                let servers = block * MANY..(block + 1) * MANY;
                let mut is_block_right = false;
                for (row, at) in self.rows[servers.clone()].iter().zip(servers.clone()) {
                    if row[level] <= place {
                        continue;
                    }
                    is_block_right = true;
                    let more = row[gpus..].iter().take_while(|until| **until > place);
                    let free = gpus + more.count();
                    if free == gpus {
                        return Some(at);
                    }
                    if free < best.0 {
                        best = (free, Some(at));
                    }
                }
                if !is_block_right {
                    self.blocks[block] = greatest(&self.rows[servers]);
                }
                is_right |= is_block_right;
            }
            if !is_right {
                let blocks = &self.blocks[field * MANY..(field + 1) * MANY];
                self.fields[field] = greatest(blocks);
            }
        }
        if best.1.is_none() {
            self.all = greatest(&self.fields);
        }
        best.1
    }

    /// Whether a rack has so many servers that no admitted job is on.
    #[inline]
    pub(super) fn has_several(&self, servers: usize) -> bool {
        self.whole_counts >> servers != 0
    }

    /// The last place for which a server has become whole since this was last asked.
    #[inline]
    pub(super) fn take_whole_until(&mut self) -> Place {
        std::mem::replace(&mut self.whole_until, HELD)
    }

    /// The rack with the fewest GPUs free for a job at a place that has so many whole servers, the first of those;
    /// and the bits of its first ones.
    pub(super) fn best_rack(&self, place: Place, servers: usize) -> Option<(usize, u64)> {
        let racks = 0..self.whole.len();
        let fitting = racks.filter_map(|rack| {
            if (self.whole[rack] as usize) < servers {
                return None;
            }
            let first = rack * self.rack_size;
            let rows = &self.until[first..(first + self.rack_size).min(self.count)];
            let (mut free, mut whole, mut bits) = (0, 0, 0);
            for (at, row) in rows.iter().enumerate() {
                let here: usize = row.iter().map(|&until| usize::from(until > place)).sum();
                free += here;
                if here == GPUS && whole < servers {
                    whole += 1;
                    bits |= 1 << at;
                }
            }
            (whole == servers).then_some((free, rack, bits))
        });
        let best = fitting.min_by_key(|&(free, rack, _)| (free, rack))?;
        Some((best.1, best.2))
    }
}
