//! Who gets GPUs, after the count: the promised, then those that wait; and which guests they stop.

use super::chunk::{below, members};
use super::line::{NOBODY, Place};
use super::servers::{GPUS, HELD, IDLE, NEW_GUEST};
use super::{ANY_ROOM, Loop, Run, Seat, first_head};
use crate::bare_preemptive::entry;

/// A job that starts for the first time in this decision.
pub(super) struct Newcomer {
    job: u32,
    class: u8,
    seat: Seat,
    is_admitted: bool,
}

impl Loop<'_> {
    /// Admitted jobs that wait, in order, on GPUs that no admitted job holds.
    pub(super) fn start_promised(&mut self) {
        loop {
            let mut first = (NOBODY, 0);
            for at in members(self.promised) {
                let place = self.classes[at].promised.first();
                if place < first.0 && self.has_room(at) {
                    first = (place, at);
                }
            }
            let (place, at) = first;
            if place == NOBODY {
                return;
            }
            self.no_longer_promised(at, place);
            let class = &self.classes[at];
            let (gpus, servers) = (class.gpus as usize, class.servers);
            let seat = if servers == 0 {
                let server = self.servers.best_of_all(gpus);
                self.seat(server, HELD, gpus)
            } else {
                let rack = self.servers.best_rack(HELD, servers);
                wide(rack.expect("a rack with enough whole servers was counted"))
            };
            self.take(at, seat, HELD);
            if self.is_new(place) {
                self.admitted.remove(place);
            }
            self.start(at, place, seat, true);
        }
    }

    /// Jobs that the count leaves out, in order, on GPUs that neither admitted jobs nor guests before them hold.
    pub(super) fn start_waiting(&mut self) {
        if self.waiting == 0 {
            return; // what has changed is taken in when somebody waits
        }
        self.servers.refresh();
        loop {
            let open = below(&self.heads.waiting, &self.servers.room_until);
            if open == 0 {
                return;
            }
            let (place, at) = first_head(&self.heads.waiting, open);
            if let Some(seat) = self.seat_of_waiting(at, place) {
                self.no_longer_waits(at, place);
                let until = if self.is_new(place) {
                    self.no_longer_left_out(at, place);
                    NEW_GUEST
                } else {
                    place
                };
                self.take(at, seat, until);
                self.start(at, place, seat, false);
                self.servers.refresh();
            }
        }
    }

    fn seat_of_waiting(&mut self, class: usize, place: Place) -> Option<Seat> {
        let of = &self.classes[class];
        let gpus = of.gpus as usize;
        if of.servers == 0 {
            let server = self.servers.best(place, gpus)?;
            return Some(self.seat(server, place, gpus));
        }
        let rack = self.servers.best_rack(place, of.servers);
        if rack.is_none() {
            self.servers.room_until[class] = place;
        }
        rack.map(wide)
    }

    /// Whether there is room on GPUs that no admitted job holds.
    fn has_room(&self, class: usize) -> bool {
        if class < GPUS {
            self.servers.has_one(class + 1)
        } else {
            self.servers.has_several(self.classes[class].servers)
        }
    }

    pub(super) fn wait(&mut self, class: usize, place: Place) {
        let line = &mut self.classes[class].waiting;
        line.insert(place);
        self.heads.waiting[class] = line.first();
        self.waiting |= 1 << class;
    }

    pub(super) fn no_longer_waits(&mut self, class: usize, place: Place) {
        let line = &mut self.classes[class].waiting;
        line.remove(place);
        self.heads.waiting[class] = line.first();
        if line.is_empty() {
            self.waiting &= !(1 << class);
        }
    }

    pub(super) fn promise(&mut self, class: usize, place: Place) {
        self.classes[class].promised.insert(place);
        self.promised |= 1 << class;
    }

    pub(super) fn no_longer_promised(&mut self, class: usize, place: Place) {
        let line = &mut self.classes[class].promised;
        line.remove(place);
        if line.is_empty() {
            self.promised &= !(1 << class);
        }
    }

    /// The lowest GPUs of a server that are free for a job at a place.
    fn seat(&self, server: usize, place: Place, gpus: usize) -> Seat {
        Seat {
            bits: u64::from(self.servers.lowest(server, place, gpus)),
            at: server as u16,
        }
    }

    /// Takes GPUs and stops the guests on them.
    fn take(&mut self, class: usize, seat: Seat, until: Place) {
        if class < GPUS {
            self.stop_guests(usize::from(seat.at), seat.bits as u8);
        } else {
            for server in self.servers.of_rack(usize::from(seat.at), seat.bits) {
                self.stop_guests(server, u8::MAX);
            }
        }
        self.set_seat(class, seat, until);
    }

    /// Stops the guests on some GPUs of a server. What they leave there is for the caller to give.
    fn stop_guests(&mut self, server: usize, mask: u8) {
        let mut left = mask;
        while left != 0 {
            let guest = self.servers.holders(server)[left.trailing_zeros() as usize];
            left &= left - 1;
            if guest < IDLE {
                let run = &mut self.runs[(guest & !(-1 << self.shift)) as usize];
                run.until_ns = self.now_ns - run.until_ns;
                let (class, seat) = (usize::from(run.class), run.seat());
                if class < GPUS && seat.bits as u8 & !mask == 0 {
                    left &= !(seat.bits as u8);
                } else {
                    self.set_seat(class, seat, IDLE);
                }
                self.stopped.push(guest);
            }
        }
    }

    fn start(&mut self, class: usize, place: Place, seat: Seat, is_admitted: bool) {
        self.times.starts += 1;
        let index = self.index(place);
        if self.is_new(place) {
            self.newcomers.push(Newcomer {
                job: index as u32,
                class: class as u8,
                seat,
                is_admitted,
            });
            return;
        }
        let run = &mut self.runs[index];
        run.sit(seat);
        run.until_ns = self.now_ns - run.until_ns;
        let timer = entry(run.until_ns, index as u32, 0, 0);
        self.timers.push(timer);
    }

    /// Those who started for the first time get their places in the order.
    pub(super) fn enrol_newcomers(&mut self) {
        let mut newcomers = std::mem::take(&mut self.newcomers);
        if newcomers.len() > 1 {
            newcomers.sort_unstable_by_key(|newcomer| newcomer.job);
        }
        for newcomer in newcomers.drain(..) {
            self.enrol(&newcomer);
        }
        self.newcomers = newcomers;
    }

    fn enrol(&mut self, newcomer: &Newcomer) {
        let &Newcomer {
            job, class, seat, ..
        } = newcomer;
        let class_at = usize::from(class);
        let index = self.runs.len();
        let duration_ns = self.jobs.duration_ns[job as usize];
        let phase_ns = duration_ns.min(self.classes[class_at].stays_ns[0]);
        self.runs.push(Run {
            until_ns: self.now_ns + phase_ns,
            rest_ns: duration_ns - phase_ns,
            seat_bits: seat.bits,
            job,
            seat_at: seat.at,
            class,
            queue: 0,
        });
        self.class_of_run.push(class);
        self.times.start_ns[job as usize] = self.now_ns;
        let timer = entry(self.now_ns + phase_ns, index as u32, 0, 0);
        self.timers.push(timer);
        let place = index as Place;
        if newcomer.is_admitted {
            self.admitted.insert(place);
        } else {
            self.leave_out(class_at, place, ANY_ROOM);
            self.set_seat(class_at, seat, place);
        }
    }

    pub(super) fn put_back_stopped(&mut self) {
        while let Some(place) = self.stopped.pop() {
            let class = self.class(place);
            self.wait(class, place);
        }
    }
}

fn wide((rack, bits): (usize, u64)) -> Seat {
    Seat {
        bits,
        at: rack as u16,
    }
}
