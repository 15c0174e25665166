//! Who is admitted: what a walk along the order by count, skipping what does not fit, would find. As in the loops
//! beside, an event that lets nobody in costs one comparison per gang size.

use super::chunk::up_to;
use super::line::Place;
use super::servers::HELD;
use super::{ANY_ROOM, Loop, first_head};

impl Loop<'_> {
    /// Admits and leaves out until it is what the walk would find.
    pub(super) fn count(&mut self) {
        loop {
            loop {
                let open = up_to(&self.heads.needs_room, self.room);
                if open == 0 {
                    break;
                }
                let (place, class) = first_head(&self.heads.left_out, open);
                let gpus = self.classes[class].gpus;
                let lacking = gpus - self.room;
                let behind = self.held_behind(place, lacking);
                if behind >= lacking {
                    self.admit(class, place);
                } else {
                    self.heads.needs_room[class] = gpus - behind;
                }
            }
            if self.room >= 0 {
                return;
            }
            self.drop_last();
        }
    }

    /// The first ones before a place need so much more room: less is held behind them.
    fn need_more(&mut self, before: Place, gpus: i32) {
        let heads = self.heads.left_out.iter().zip(&mut self.heads.needs_room);
        for (&first, needs) in heads {
            // never near the ends of the numbers
            *needs = needs.wrapping_add(if first < before { gpus } else { 0 });
        }
    }

    fn gpus(&self, place: Place) -> i32 {
        self.classes[self.class(place)].gpus
    }

    /// GPUs that the count has given behind a place, or as many of them as are enough.
    fn held_behind(&self, place: Place, enough: i32) -> i32 {
        let (mut behind, mut at) = (0, self.end());
        while behind < enough {
            match self.admitted.before(at) {
                Some(last) if last > place => {
                    behind += self.gpus(last);
                    at = last;
                }
                _ => break,
            }
        }
        behind
    }

    fn admit(&mut self, class: usize, place: Place) {
        let gpus = self.classes[class].gpus;
        self.no_longer_left_out(class, place);
        self.need_more(place, -gpus);
        self.room -= gpus;
        self.admitted.insert(place);
        if self.classes[class].waiting.has(place) {
            self.no_longer_waits(class, place);
            self.promise(class, place);
        } else {
            let seat = self.runs[self.index(place)].seat();
            self.set_seat(class, seat, HELD);
        }
    }

    /// Leaves out the first job in the order that is one too many.
    fn drop_last(&mut self) {
        let mut back = std::mem::take(&mut self.back);
        let (mut room, mut at) = (self.room, self.end());
        while room < 0 {
            at = self
                .admitted
                .before(at)
                .expect("admitted jobs hold the GPUs");
            room += self.gpus(at);
            back.push(at);
        }
        // where nothing is left at its place, those behind it have to go as well
        let kept = if room == 0 { 0 } else { back.len() - 1 };
        let mut behind = room - self.room;
        for place in back.drain(kept..).rev() {
            behind -= self.gpus(place);
            self.drop(place, behind);
        }
        back.clear();
        self.back = back;
    }

    /// The count no longer admits a job; `behind` is how many GPUs it still gives behind it.
    fn drop(&mut self, place: Place, behind: i32) {
        let class = self.class(place);
        let gpus = self.classes[class].gpus;
        self.need_more(place, gpus);
        self.room += gpus;
        self.admitted.remove(place);
        if self.classes[class].promised.has(place) {
            self.no_longer_promised(class, place);
            self.wait(class, place);
        } else {
            let seat = self.runs[self.index(place)].seat();
            self.set_seat(class, seat, place);
        }
        self.leave_out(class, place, gpus - behind);
    }

    /// A job is left out; as the first of its class it needs so much room.
    pub(super) fn leave_out(&mut self, class: usize, place: Place, needs_room: i32) {
        let line = &mut self.classes[class].left_out;
        line.insert(place);
        self.heads.left_out[class] = line.first();
        if line.first() == place {
            self.heads.needs_room[class] = needs_room;
        }
    }

    /// The next one of its class needs no less room: no more is held behind it.
    pub(super) fn no_longer_left_out(&mut self, class: usize, place: Place) {
        let line = &mut self.classes[class].left_out;
        line.remove(place);
        self.heads.left_out[class] = line.first();
        if line.is_empty() {
            self.heads.needs_room[class] = -ANY_ROOM;
        }
    }

    /// An admitted job falls to the next queue: behind places between the two, that much more is held.
    pub(super) fn fall_admitted(&mut self, class: usize, from: Place, to: Place) {
        self.admitted.remove(from);
        self.admitted.insert(to);
        let gpus = self.classes[class].gpus;
        self.need_more(to, -gpus);
        self.need_more(from, gpus);
    }
}
