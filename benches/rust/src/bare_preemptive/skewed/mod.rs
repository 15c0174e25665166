//! `tiresias`: the order of `las`, and gangs that get the fewest servers possible or none.
//!
//! The count admits jobs as in `las`. One that is admitted and has no place on few enough servers is *promised* GPUs
//! and waits for them. A running job that the count does not admit stays as a *guest* until somebody before it takes
//! one of its GPUs, and a waiting one that finds room starts as a guest.
//!
//! Who started first gets the first place of his queue in the order, so places are dense numbers: sets of jobs are
//! bits (`line.rs`), in which the end of the order is a few words. A GPU knows until which place it is free
//! (`servers.rs`), so one comparison per gang size tells that nobody can start.
//!
//! Cost: O(gang sizes) per event, O(1) and a search for a server per job that starts or stops.

mod chunk;
mod count;
mod line;
mod servers;
mod starts;
#[cfg(test)]
mod tests;

use super::attained::{QUEUES, stays_ns};
use super::wheel::Wheel;
use crate::bare::Times;
use crate::workload::{Cluster, Jobs};
use chunk::{Chunk, MANY, members};
use line::{Line, NOBODY, PLACES_MAX, Place, Places};
use servers::{FIRST_PLACE, GPUS, IDLE, Servers};
use starts::Newcomer;

/// Sections of the order: the jobs of the first queue that have started, those that have not, the other queues.
const SECTIONS: usize = QUEUES + 1;
const NEWCOMERS: Place = 1;

/// `tiresias` on racks of so many servers.
pub(super) fn run(jobs: &Jobs, cluster: Cluster, servers_per_rack: u32) -> Times {
    Loop::new(jobs, cluster, servers_per_rack as usize).run()
}

/// GPUs of a gang.
#[derive(Clone, Copy, Default)]
struct Seat {
    /// Whole servers of a rack, if the gang is wider than a server; else GPUs of one server.
    bits: u64,
    /// Server or rack.
    at: u16,
}

/// A job that has started once.
struct Run {
    /// End of the phase while it runs; less what is left of the phase while it does not.
    until_ns: i64,
    /// Time to run after this phase.
    rest_ns: i64,
    seat_bits: u64,
    job: u32,
    seat_at: u16,
    class: u8,
    queue: u8,
}

impl Run {
    fn seat(&self) -> Seat {
        Seat {
            bits: self.seat_bits,
            at: self.seat_at,
        }
    }

    fn sit(&mut self, seat: Seat) {
        (self.seat_bits, self.seat_at) = (seat.bits, seat.at);
    }
}

/// No instant, no phase.
const DONE: i64 = i64::MIN;

/// Gang sizes, which are numbered: one less than the GPUs on one server, and behind those the sizes on several.
const CLASSES: usize = MANY;

/// The gang sizes of a run.
struct Sizes {
    by_class: [u32; CLASSES],
    /// Gang size -> class.
    class_of: Vec<u8>,
    /// Servers of those that get several.
    several: Vec<u32>,
}

impl Sizes {
    fn new(jobs: &Jobs, cluster: Cluster, servers_per_rack: usize) -> Self {
        let mut sizes = jobs.gpus.clone();
        sizes.sort_unstable();
        sizes.dedup();
        let rack = servers_per_rack.min(cluster.servers as usize);
        let is_simple = |&size: &u32| {
            let size = size as usize;
            size <= GPUS || size.is_multiple_of(GPUS) && size <= rack * GPUS
        };
        assert_eq!(cluster.gpus_per_server as usize, GPUS, "a server's GPUs");
        assert!(cluster.servers <= 1 << 16 && rack < 64, "too many servers");
        assert!(sizes.iter().all(is_simple), "gangs of another kind");
        let mut by_class = [0; CLASSES];
        let mut class_of = vec![0; sizes.last().map_or(0, |&widest| widest as usize + 1)];
        let wide = sizes.iter().filter(|&&size| size as usize > GPUS);
        let several: Vec<u32> = wide.map(|&size| size / GPUS as u32).collect();
        for &size in &sizes {
            let servers = size / GPUS as u32;
            let wide = several.iter().position(|&several| several == servers);
            let narrow = size as usize <= GPUS;
            let class = if narrow {
                size as usize - 1
            } else {
                GPUS + wide.unwrap_or(0)
            };
            assert!(class < CLASSES, "too many gang sizes");
            by_class[class] = size;
            class_of[size as usize] = class as u8;
        }
        Self {
            by_class,
            class_of,
            several,
        }
    }
}

/// The first jobs of each class, [`NOBODY`] if there is none.
struct Heads {
    left_out: Chunk,
    /// With less room the first one left out is not admitted: no more than the rest of its GPUs is held behind it by
    /// admitted jobs. May be too low, which costs a count and no more.
    needs_room: Chunk,
    waiting: Chunk,
}

/// The jobs of one gang size.
struct Class {
    gpus: i32,
    /// Servers of a gang that is wider than one; else 0.
    servers: usize,
    stays_ns: [i64; QUEUES],
    /// Those that the count leaves out: guests, and those that wait.
    left_out: Line,
    /// Left out, and without GPUs.
    waiting: Line,
    promised: Line,
}

/// Room that there always is, until it is counted; less this, room that there never is.
const ANY_ROOM: i32 = i32::MIN / 2;

impl Class {
    fn new(gpus: u32, size: usize) -> Self {
        let size = if gpus == 0 { 0 } else { size }; // nobody asks for as many
        let gpus_if_wide = if gpus as usize > GPUS { gpus } else { 0 };
        Self {
            gpus: gpus as i32,
            servers: gpus_if_wide as usize / GPUS,
            stays_ns: if gpus == 0 {
                [0; QUEUES]
            } else {
                stays_ns(gpus)
            },
            left_out: Line::new(size),
            waiting: Line::new(size),
            promised: Line::new(size),
        }
    }
}

struct Loop<'a> {
    jobs: &'a Jobs,
    now_ns: i64,
    arrived: usize,
    /// GPUs that the count has left; below 0 while too many are admitted.
    room: i32,
    class_of: Vec<u8>,
    classes: Vec<Class>,
    heads: Heads,
    /// A bit per class with promised jobs, and with jobs that are left out and wait.
    promised: u32,
    waiting: u32,
    /// Log2 of the places of a section.
    shift: u32,
    admitted: Places,
    /// By the first start, which is the place in a section.
    runs: Vec<Run>,
    /// Their classes: a walk along the order asks for no more.
    class_of_run: Vec<u8>,
    servers: Servers,
    timers: Wheel,
    newcomers: Vec<Newcomer>,
    /// Guests that were stopped in this decision: they wait from the next one on.
    stopped: Vec<Place>,
    /// The end of the order. Reused.
    back: Vec<Place>,
    times: Times,
}

impl<'a> Loop<'a> {
    fn new(jobs: &'a Jobs, cluster: Cluster, servers_per_rack: usize) -> Self {
        let Sizes {
            by_class,
            class_of,
            several,
        } = Sizes::new(jobs, cluster, servers_per_rack);
        let first = FIRST_PLACE as usize;
        let shift = (jobs.len() + first).next_power_of_two().ilog2();
        assert!(SECTIONS << shift <= PLACES_MAX, "too many jobs");
        let no_run = || Run {
            until_ns: DONE,
            rest_ns: 0,
            seat_bits: 0,
            job: 0,
            seat_at: 0,
            class: 0,
            queue: 0,
        };
        let mut runs = Vec::with_capacity(jobs.len() + first);
        runs.extend((0..first).map(|_| no_run()));
        let mut class_of_run = Vec::with_capacity(jobs.len() + first);
        class_of_run.extend((0..first).map(|_| 0));
        Self {
            now_ns: 0,
            arrived: 0,
            room: cluster.gpus() as i32,
            class_of,
            classes: by_class
                .iter()
                .map(|&size| Class::new(size, SECTIONS << shift))
                .collect(),
            heads: Heads {
                left_out: [NOBODY; CLASSES],
                needs_room: [-ANY_ROOM; CLASSES],
                waiting: [NOBODY; CLASSES],
            },
            promised: 0,
            waiting: 0,
            shift,
            admitted: Places::new(SECTIONS << shift),
            runs,
            class_of_run,
            servers: Servers::new(cluster.servers as usize, servers_per_rack, several),
            timers: Wheel::new(jobs),
            newcomers: Vec::new(),
            stopped: Vec::new(),
            back: Vec::new(),
            times: Times::new(jobs.len()),
            jobs,
        }
    }

    fn run(mut self) -> Times {
        while self.next_instant() {
            self.count();
            self.start_promised();
            self.start_waiting();
            self.enrol_newcomers();
            self.put_back_stopped();
        }
        self.times
    }

    /// Behind every place.
    fn end(&self) -> Place {
        (SECTIONS << self.shift) as Place
    }

    /// Whether a job at a place has not started yet.
    fn is_new(&self, place: Place) -> bool {
        place >> self.shift == NEWCOMERS
    }

    /// The number of a job in its section.
    fn index(&self, place: Place) -> usize {
        (place & !(-1 << self.shift)) as usize
    }

    /// The class of a job at a place.
    fn class(&self, place: Place) -> usize {
        let index = self.index(place);
        if self.is_new(place) {
            usize::from(self.class_of[self.jobs.gpus[index] as usize])
        } else {
            usize::from(self.class_of_run[index])
        }
    }

    /// Applies all that happens at the next instant; false at the end.
    fn next_instant(&mut self) -> bool {
        let arrivals = &self.jobs.arrival_ns;
        let arrival = arrivals.get(self.arrived).copied().unwrap_or(i64::MAX);
        let runs = &self.runs;
        let is_live = |timer| runs[super::job(timer)].until_ns == super::key(timer);
        let timer = self.timers.peek(arrival, is_live);
        self.now_ns = timer.map_or(arrival, super::key);
        if self.now_ns == i64::MAX {
            return false;
        }
        while let Some(index) = self.next_end() {
            self.end_phase(index);
        }
        while self.jobs.arrival_ns.get(self.arrived) == Some(&self.now_ns) {
            let class = self.class_of[self.jobs.gpus[self.arrived] as usize];
            let place = NEWCOMERS << self.shift | self.arrived as Place;
            self.wait(usize::from(class), place);
            self.leave_out(usize::from(class), place, ANY_ROOM);
            self.arrived += 1;
        }
        true
    }

    /// The next job whose phase ends now.
    fn next_end(&mut self) -> Option<usize> {
        let runs = &self.runs;
        let is_live = |timer| runs[super::job(timer)].until_ns == super::key(timer);
        let timer = self.timers.peek(self.now_ns + 1, is_live)?;
        self.timers.pop();
        Some(super::job(timer))
    }

    fn end_phase(&mut self, index: usize) {
        let run = &mut self.runs[index];
        let (class, seat) = (usize::from(run.class), run.seat());
        let from = place(run.queue, index, self.shift);
        let is_admitted = self.admitted.has(from);
        if run.rest_ns == 0 {
            run.until_ns = DONE;
            self.times.finish_ns[run.job as usize] = self.now_ns;
            self.set_seat(class, seat, IDLE);
            if is_admitted {
                self.admitted.remove(from);
                self.room += self.classes[class].gpus;
            } else {
                self.no_longer_left_out(class, from);
            }
            return;
        }
        run.queue += 1;
        let to = place(run.queue, index, self.shift);
        let phase_ns = run
            .rest_ns
            .min(self.classes[class].stays_ns[usize::from(run.queue)]);
        run.rest_ns -= phase_ns;
        run.until_ns = self.now_ns + phase_ns;
        let timer = super::entry(run.until_ns, index as u32, 0, 0);
        self.timers.push(timer);
        if is_admitted {
            self.fall_admitted(class, from, to);
        } else {
            self.no_longer_left_out(class, from);
            self.leave_out(class, to, ANY_ROOM);
            self.set_seat(class, seat, to);
        }
    }

    /// Tells the GPUs of a gang until when they are free.
    fn set_seat(&mut self, class: usize, seat: Seat, until: Place) {
        if class < GPUS {
            self.servers
                .set(usize::from(seat.at), seat.bits as u8, until);
            return;
        }
        for server in self.servers.of_rack(usize::from(seat.at), seat.bits) {
            self.servers.set(server, u8::MAX, until);
        }
    }
}

/// The first one of some heads, and its class.
#[inline]
fn first_head(heads: &Chunk, among: u32) -> (Place, usize) {
    let heads = members(among).map(|class| (heads[class], class));
    heads.min().unwrap_or((NOBODY, 0))
}

/// The place of a job that has started, by its queue and the number of its first start.
fn place(queue: u8, index: usize, shift: u32) -> Place {
    let section = if queue == 0 {
        0
    } else {
        Place::from(queue) + 1
    };
    section << shift | index as Place
}
