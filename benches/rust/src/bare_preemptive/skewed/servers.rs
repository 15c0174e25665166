//! Servers of eight GPUs, and for which places in the order each GPU is free.
//!
//! Per GPU one number tells all: the place of the guest that holds it, as whoever stands before the guest may take
//! it; less than every place if an admitted job holds it, more than every place if nobody does. So many GPUs of a
//! server are free for a job as numbers are greater than its place: the numbers of a server in falling order, and
//! the greatest ones of sixteen servers, of sixteen times sixteen and of all, tell where a gang has room.
//!
//! Cost: O(servers / 256 + candidates) to find a server, O(1) to change one.

use super::chunk::{Chunk, MANY, above, members};
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

/// Until when each GPU of a server is free.
type Row = [Place; GPUS];
/// One number of GPUs: until when each server has as many free.
struct Level {
    /// By block: sixteen servers.
    servers: Vec<Chunk>,
    /// The greatest of each block, by field: sixteen blocks. Too high after a fall, until a search looks there in vain.
    blocks: Vec<Chunk>,
    /// The same of each field.
    fields: Vec<Chunk>,
}

pub(super) struct Servers {
    rack_size: usize,
    count: usize,
    until: Vec<Row>,
    /// By number of GPUs, less one. Not yet of servers that are listed as `changed`.
    levels: [Level; GPUS],
    /// Per number of GPUs, less one, and behind them per gang on several servers: nobody behind this place has room.
    /// Too high after a fall, until a search is in vain.
    pub(super) room_until: [Place; MANY],
    /// Servers of the gangs that get several.
    several: Vec<u32>,
    changed: Vec<u32>,
    is_changed: Vec<bool>,
    /// How many levels of each server are not [`HELD`].
    seen: Vec<u8>,
    /// How many GPUs of each server no admitted job holds.
    free: Vec<u8>,
    /// The servers with as many.
    by_free: Vec<Places>,
    /// How many those are.
    with_free: [u32; GPUS + 1],
    /// A bit per number of GPUs that some server has free.
    counts: u32,
    /// Per rack the servers that no admitted job is on.
    whole: Vec<u32>,
    /// Racks with so many whole servers, and a bit per number that some rack has.
    racks_by_whole: Vec<u32>,
    whole_counts: u64,
}

fn greatest(chunk: &Chunk) -> Place {
    chunk.iter().copied().fold(HELD, Place::max)
}

/// What a level has for a job.
enum Found {
    At(usize),
    /// Only servers with more GPUs than that.
    OnlyMore,
    Nobody,
}

impl Level {
    fn new(servers: usize) -> Self {
        let chunks = |count: usize| vec![[HELD; MANY]; count.div_ceil(MANY)];
        let servers = chunks(servers);
        let blocks = chunks(servers.len());
        let fields = chunks(blocks.len());
        Self {
            servers,
            blocks,
            fields,
        }
    }

    /// Whether it is more than before: bounds hold for what is less.
    #[inline]
    fn set(&mut self, at: usize, until: Place) -> bool {
        let (block, field) = (at / MANY, at / MANY / MANY);
        let old = std::mem::replace(&mut self.servers[block][at % MANY], until);
        let is_more = until > old;
        if is_more {
            let most = &mut self.blocks[field][block % MANY];
            *most = until.max(*most);
            let most = &mut self.fields[field / MANY][field % MANY];
            *most = until.max(*most);
        }
        is_more
    }

    fn tighten_block(&mut self, block: usize) {
        self.blocks[block / MANY][block % MANY] = greatest(&self.servers[block]);
    }

    fn tighten_field(&mut self, field: usize) {
        self.fields[field / MANY][field % MANY] = greatest(&self.blocks[field]);
    }
}

#[inline]
fn order<const ONE: usize, const OTHER: usize>(row: &mut Row) {
    let (one, other) = (row[ONE], row[OTHER]);
    row[ONE] = one.max(other);
    row[OTHER] = one.min(other);
}

/// Falling, without a branch: a sorting network of Batcher.
#[inline]
fn sorted(mut row: Row) -> Row {
    let row = &mut row;
    order::<0, 1>(row);
    order::<2, 3>(row);
    order::<4, 5>(row);
    order::<6, 7>(row);
    order::<0, 2>(row);
    order::<1, 3>(row);
    order::<4, 6>(row);
    order::<5, 7>(row);
    order::<1, 2>(row);
    order::<5, 6>(row);
    order::<0, 4>(row);
    order::<1, 5>(row);
    order::<2, 6>(row);
    order::<3, 7>(row);
    order::<2, 4>(row);
    order::<3, 5>(row);
    order::<1, 2>(row);
    order::<3, 4>(row);
    order::<5, 6>(row);
    *row
}

impl Servers {
    pub(super) fn new(servers: usize, rack_size: usize, several: Vec<u32>) -> Self {
        let mut by_free: Vec<Places> = (0..=GPUS).map(|_| Places::new(servers)).collect();
        for at in 0..servers {
            by_free[GPUS].insert(at as Place);
        }
        let mut with_free = [0; GPUS + 1];
        with_free[GPUS] = servers as u32;
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
            levels: [0; GPUS].map(|_| Level::new(servers)),
            seen: vec![0; servers],
            room_until: [HELD; MANY],
            several,
            changed: Vec::new(),
            is_changed: vec![false; servers],
            free: vec![GPUS as u8; servers],
            by_free,
            with_free,
            counts: 1 << GPUS,
            whole,
            racks_by_whole,
            whole_counts,
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
        self.with_free[usize::from(old)] -= 1;
        if self.with_free[usize::from(old)] == 0 {
            self.counts &= !(1 << old);
        }
        self.by_free[usize::from(free)].insert(at as Place);
        self.with_free[usize::from(free)] += 1;
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
            let free = self.free[at];
            let levels = free.max(std::mem::replace(&mut self.seen[at], free));
            let row = sorted(self.until[at]);
            if row[GPUS - 1] != HELD {
                self.raise_whole(at, row[GPUS - 1]);
            }
            let levels = self.levels[..usize::from(levels)].iter_mut();
            for ((level, most), until) in levels.zip(&mut self.room_until).zip(row) {
                if level.set(at, until) {
                    *most = until.max(*most);
                }
            }
        }
    }

    /// A server is whole until this place: it helps where it is not the only one.
    fn raise_whole(&mut self, at: usize, until: Place) {
        let whole = self.whole[at / self.rack_size];
        let several = self.room_until[GPUS..].iter_mut().zip(&self.several);
        for (most, &servers) in several {
            if whole >= servers {
                *most = until.max(*most);
            }
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
        for level in gpus - 1..GPUS {
            match self.first_with(place, level) {
                Found::At(server) => return Some(server),
                Found::OnlyMore => {}
                Found::Nobody => break,
            }
        }
        self.tighten_all(place, gpus - 1);
        None
    }

    /// The first server with as many GPUs as the level says, and no more.
    fn first_with(&mut self, place: Place, level: usize) -> Found {
        let (level, more) = self.levels[level..]
            .split_first_mut()
            .expect("a number of GPUs that one server has");
        let more = more.first();
        let mut found = Found::Nobody;
        for chunk in 0..level.fields.len() {
            for field in members(above(&level.fields[chunk], place)) {
                let field = chunk * MANY + field;
                let mut is_any = false;
                let with_more = more.map_or(0, |more| above(&more.blocks[field], place));
                for at in members(above(&level.blocks[field], place)) {
                    let block = field * MANY + at;
                    let enough = above(&level.servers[block], place);
                    if enough == 0 {
                        level.tighten_block(block);
                        continue;
                    }
                    is_any = true;
                    let exact = match more {
                        Some(more) if with_more >> at & 1 == 1 => {
                            enough & !above(&more.servers[block], place)
                        }
                        _ => enough,
                    };
                    if exact != 0 {
                        return Found::At(block * MANY + exact.trailing_zeros() as usize);
                    }
                }
                if is_any {
                    found = Found::OnlyMore;
                } else {
                    level.tighten_field(field);
                }
            }
        }
        found
    }

    /// Nobody at this place has room on a level, nor on those above.
    fn tighten_all(&mut self, place: Place, level: usize) {
        let fields = self.levels[level].fields.iter().map(greatest);
        let most = fields.fold(HELD, Place::max).min(place);
        for until in &mut self.room_until[level..GPUS] {
            *until = most.min(*until);
        }
    }

    /// Whether a rack has so many servers that no admitted job is on.
    #[inline]
    pub(super) fn has_several(&self, servers: usize) -> bool {
        self.whole_counts >> servers != 0
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
