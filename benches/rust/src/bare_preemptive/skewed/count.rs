//! Who is admitted: what a walk along the order by count, skipping what does not fit, would find. As in the loops
//! beside, an event that lets nobody in costs one comparison per gang size.

use super::line::Place;
use super::{ANY_ROOM, HELD, Loop};

impl Loop<'_> {
    /// Admits and leaves out until it is what the walk would find.
    pub(super) fn count(&mut self) {
        loop {
            while let Some(class) = self.first_that_may_fit() {
                let of = &self.classes[class];
                let lacking = of.gpus - self.room;
                let behind = self.held_behind(of.left_out.first(), lacking);
                if behind >= lacking {
                    self.admit(class);
                } else {
                    self.classes[class].needs_room = self.classes[class].gpus - behind;
                }
            }
            if self.room >= 0 {
                return;
            }
            self.drop_last();
        }
    }

    fn first_that_may_fit(&self) -> Option<usize> {
        let mut first = (Place::MAX, None);
        for (at, class) in self.classes.iter().enumerate() {
            if class.needs_room <= self.room && class.left_out.first() < first.0 {
                first = (class.left_out.first(), Some(at));
            }
        }
        first.1
    }

    fn gpus(&self, place: Place) -> i64 {
        self.classes[self.class(place)].gpus
    }

    /// GPUs that the count has given behind a place, or as many of them as are enough.
    fn held_behind(&self, place: Place, enough: i64) -> i64 {
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

    fn admit(&mut self, class: usize) {
        let of = &self.classes[class];
        let (place, gpus) = (of.left_out.first(), of.gpus);
        self.no_longer_left_out(class, place);
        for class in &mut self.classes {
            if class.left_out.first() < place {
                class.needs_room -= gpus;
            }
        }
        self.room -= gpus;
        self.admitted.insert(place);
        let of = &mut self.classes[class];
        if of.waiting.has(place) {
            of.waiting.remove(place);
            of.promised.insert(place);
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
    fn drop(&mut self, place: Place, behind: i64) {
        let class = self.class(place);
        let gpus = self.classes[class].gpus;
        for class in &mut self.classes {
            if class.left_out.first() < place {
                class.needs_room += gpus;
            }
        }
        self.room += gpus;
        self.admitted.remove(place);
        let of = &mut self.classes[class];
        if of.promised.has(place) {
            of.promised.remove(place);
            of.waiting.insert(place);
        } else {
            let seat = self.runs[self.index(place)].seat();
            self.set_seat(class, seat, place);
        }
        self.leave_out(class, place, gpus - behind);
    }

    /// A job is left out; as the first of its class it needs so much room.
    pub(super) fn leave_out(&mut self, class: usize, place: Place, needs_room: i64) {
        let class = &mut self.classes[class];
        class.left_out.insert(place);
        if class.left_out.first() == place {
            class.needs_room = needs_room;
        }
    }

    /// The next one of its class needs no less room: no more is held behind it.
    pub(super) fn no_longer_left_out(&mut self, class: usize, place: Place) {
        let class = &mut self.classes[class];
        class.left_out.remove(place);
        if class.left_out.is_empty() {
            class.needs_room = -ANY_ROOM;
        }
    }

    /// An admitted job falls to the next queue.
    pub(super) fn fall_admitted(&mut self, class: usize, from: Place, to: Place) {
        self.admitted.remove(from);
        self.admitted.insert(to);
        let gpus = self.classes[class].gpus;
        for class in &mut self.classes {
            let first = class.left_out.first();
            if from < first && first < to {
                class.needs_room -= gpus;
            }
        }
    }
}
