//! Steps 2 to 4 of the pass ([`super::plain`]) under placement rules that may refuse a gang (yarn, skew, ...), in
//! incremental form.
//!
//! A job that the count admits may find no place: it is *promised* GPUs and waits. Meanwhile jobs that the count does
//! not admit run on GPUs that it cannot use: *guests*. At each decision the rule has all guests give up their GPUs,
//! tries the promised jobs, then walks guests and waiting jobs in key order; a guest keeps its GPUs if they are still
//! free. So at its turn a waiting job may take all GPUs that neither the admitted nor the guests before it hold.
//!
//! What is free at a place in the order is answered in three ways:
//! - `firm` is what is free if there were no guests: for the promised jobs.
//! - [`Seats`] tells which single server has room for a gang, and whether enough servers have enough room for a gang
//!   on several.
//! - A [`Picture`] holds all that is free at one place. A class whose gangs may get several servers has two: one stays
//!   where a job was refused last, the other serves jobs before that place, such as those stopped a moment ago. A
//!   picture is brought to a job's place only if `Seats` does not rule the job out.
//!
//! Along the order free capacity only shrinks. So if a job is refused, all others of its class behind it are, until a
//! GPU comes free before them. A new placement stops exactly the guests on the GPUs that it takes. Cost:
//! O((changes x classes) log n) and, where a picture goes to another place in the order, one step for each guest on
//! the way.

use super::Repack;
use super::ends::Ends;
use super::pictures::{Picture, index_without_jobs};
use super::seats::Seats;
use crate::class::Places;
use crate::order::{Key, Stand};
use gangline_engine::{ClusterView, FreeIndex, Plan};
use gangline_model::{GpuSet, GpuTypeId, JobId, ServerId};
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

const TYPE: GpuTypeId = GpuTypeId(0);
/// Before every job.
const LEAST: Key = Key {
    lead: 0,
    main: i64::MIN,
    job: 0,
};

/// Promised jobs, guests, and who holds what.
#[derive(Debug)]
pub(super) struct Guests {
    classes: Vec<Class>,
    /// Nobody is promised GPUs and nobody is a guest: what is free for all is what the plan has free.
    is_calm: bool,
    /// Number of promised jobs.
    promises: usize,
    /// Whether the placement rule was asked about the classes since the last failure or repair.
    are_classes_known: bool,
    has_fickle: bool,
    /// Number of decisions since a job was promised GPUs, waited or was a guest.
    quiet: usize,
    /// GPUs that no admitted job holds. Not kept while all is calm.
    firm: FreeIndex,
    /// How often `firm` has gained GPUs.
    rises: u64,
    seats: Seats,
    /// Classes whose waiting jobs from a key on are refused. Classes that get one server are not listed: [`Seats`] knows.
    refused: Vec<(usize, Key)>,
    /// First jobs of classes that may have room now. Reused.
    heads: Vec<(Key, usize)>,
    /// Running jobs by slot.
    held: Vec<Hold>,
    slot_of: Vec<u32>,
    unused_slots: Vec<u32>,
    /// While all is calm: what the present decision started. Of the others the view knows what they hold.
    fresh: Vec<(JobId, Hold)>,
    /// Guests stopped by the present decision.
    stopped: Vec<Key>,
    /// Classes that may have another first guest; the pass takes them out.
    pub(super) changed: Vec<usize>,
}

/// A running job: its class and GPUs.
#[derive(Debug)]
struct Hold {
    class: usize,
    gpus: GpuSet,
}

#[derive(Debug)]
struct Class {
    gpus: u32,
    /// A refusal says nothing about the other jobs of the class, nor about later: each job is asked at each decision.
    /// See [`Places::is_fickle`].
    is_fickle: bool,
    /// Its gangs get one server or none, so it needs no picture.
    is_on_one_server: bool,
    /// See [`Places::needs`].
    needs: Option<(u32, u32)>,
    /// Admitted by the count, without a place.
    promised: BTreeSet<Key>,
    /// `rises` when a promised job was last refused.
    refused_at: u64,
    /// Running without admission.
    guests: Ends,
    /// First the one where a job was refused last, then the other; made when first needed.
    pictures: Vec<Picture>,
}

/// For which places in the order GPUs come free or are taken. `firm` is at the place before every key.
#[derive(Clone, Copy)]
enum Reach {
    All,
    /// Places behind a key.
    Behind(Key),
    /// Places up to a key.
    UpTo(Key),
    /// Places behind the first key and up to the second.
    Between(Key, Key),
}

impl Reach {
    fn has_firm(self) -> bool {
        matches!(self, Self::All | Self::UpTo(_))
    }

    fn has(self, cursor: Key) -> bool {
        match self {
            Self::All => true,
            Self::Behind(key) => cursor > key,
            Self::UpTo(key) => cursor <= key,
            Self::Between(from, to) => cursor > from && cursor <= to,
        }
    }
}

/// Position of the least key.
fn first_of(heads: &[(Key, usize)]) -> Option<usize> {
    let heads = heads.iter().enumerate();
    heads.min_by_key(|(_, head)| **head).map(|(at, _)| at)
}

fn take(free: &mut FreeIndex, gpus: &GpuSet) {
    for part in gpus.by_server() {
        free.sync(part.server, free.free_mask(part.server) & !part.mask);
    }
}

fn give(free: &mut FreeIndex, gpus: &GpuSet) {
    for part in gpus.by_server() {
        free.sync(part.server, free.free_mask(part.server) | part.mask);
    }
}

impl Guests {
    pub(super) fn new(view: &ClusterView<'_>, places: &Places) -> Self {
        let class = |gpus| Class {
            gpus,
            is_fickle: false,
            is_on_one_server: false,
            needs: None,
            promised: BTreeSet::new(),
            refused_at: 0,
            guests: Ends::default(),
            pictures: Vec::new(),
        };
        let classes = places.classes().iter();
        let servers = view.cluster().servers().len();
        let sizes = view.cluster().servers().iter().map(|server| server.gpus);
        let most = sizes.max().unwrap_or(0);
        Self {
            classes: classes.map(|of| class(of.gpus)).collect(),
            is_calm: true,
            promises: 0,
            are_classes_known: false,
            has_fickle: false,
            quiet: 0,
            firm: FreeIndex::default(),
            rises: 1,
            seats: Seats::new(servers, most),
            refused: Vec::new(),
            heads: Vec::new(),
            held: Vec::new(),
            slot_of: vec![u32::MAX; view.jobs().len()],
            unused_slots: Vec::new(),
            fresh: Vec::new(),
            stopped: Vec::new(),
            changed: Vec::new(),
        }
    }

    /// Gang size of a class.
    pub(super) fn gpus(&self, class: usize) -> u32 {
        self.classes[class].gpus
    }

    /// The first guest of a class.
    #[inline]
    pub(super) fn first(&self, class: usize) -> Option<Key> {
        self.classes[class].guests.first()
    }

    /// Notes what a job holds.
    fn hold(&mut self, job: JobId, hold: Hold) {
        let slot = if let Some(slot) = self.unused_slots.pop() {
            self.held[slot as usize] = hold;
            slot
        } else {
            self.held.push(hold);
            (self.held.len() - 1) as u32
        };
        self.slot_of[job.index()] = slot;
    }

    fn held(&self, job: JobId) -> &Hold {
        &self.held[self.slot_of[job.index()] as usize]
    }

    /// A job is refused or becomes a guest, the first one since all was calm: from now on `firm` and the seats are kept.
    pub(super) fn wake(&mut self, view: &ClusterView<'_>, places: &Places) {
        if !std::mem::replace(&mut self.is_calm, false) {
            return;
        }
        for job in view.running() {
            let class = places.classes().of(job);
            let gpus = view.run(job).expect("a running job").gpus().clone();
            self.hold(job, Hold { class, gpus });
        }
        for (job, hold) in std::mem::take(&mut self.fresh) {
            self.hold(job, hold);
        }
        self.firm = index_without_jobs(view);
        for hold in &self.held {
            take(&mut self.firm, &hold.gpus);
        }
        self.seats.note_all();
        self.rises += 1;
        self.quiet = 0;
    }

    /// Goes back to calm when nobody needed more for as many decisions as jobs run, so that a load that comes and goes
    /// pays for building `firm` and the seats once in as many decisions.
    fn calm_down(&mut self, is_anyone_waiting: bool) {
        let mut classes = self.classes.iter();
        let is_needed = is_anyone_waiting
            || classes.any(|class| !(class.promised.is_empty() && class.guests.is_empty()));
        self.quiet = if is_needed { 0 } else { self.quiet + 1 };
        if self.quiet > self.held.len() {
            self.is_calm = true;
            self.held.clear();
            self.unused_slots.clear();
            self.refused.clear();
            for class in &mut self.classes {
                class.pictures.clear();
            }
        }
    }

    /// Forgets what a job holds.
    fn let_go(&mut self, job: JobId) -> GpuSet {
        let slot = self.slot_of[job.index()];
        self.unused_slots.push(slot);
        std::mem::take(&mut self.held[slot as usize].gpus)
    }

    fn change(&mut self, gpus: &GpuSet, is_gain: bool, reach: Reach) {
        if self.is_calm {
            return;
        }
        if reach.has_firm() {
            let apply = if is_gain { give } else { take };
            apply(&mut self.firm, gpus);
            self.seats.firm_changed(gpus);
            self.rises += u64::from(is_gain);
        }
        if is_gain {
            self.refused.retain(|&(_, from)| !reach.has(from));
        }
    }

    /// As [`Self::change`], for the GPUs of a running job.
    fn change_of(&mut self, job: JobId, is_gain: bool, reach: Reach) {
        let slot = self.slot_of[job.index()] as usize;
        let gpus = std::mem::take(&mut self.held[slot].gpus);
        self.change(&gpus, is_gain, reach);
        self.held[slot].gpus = gpus;
    }

    /// A running job becomes a guest.
    fn seat(&mut self, class: usize, key: Key) {
        if self.classes[class].guests.insert(key) {
            self.changed.push(class);
        }
        let slot = self.slot_of[key.job as usize] as usize;
        self.seats.add(key, &self.held[slot].gpus);
    }

    /// A guest is no guest any more. Returns its class.
    fn unseat(&mut self, key: Key) -> usize {
        let hold = &self.held[self.slot_of[key.job as usize] as usize];
        self.seats.remove(key, &hold.gpus);
        if self.classes[hold.class].guests.remove(key) {
            self.changed.push(hold.class);
        }
        hold.class
    }

    /// An admitted job has left its GPUs.
    pub(super) fn leave_admitted(&mut self, job: JobId) {
        if self.is_calm {
            return;
        }
        let gpus = self.let_go(job);
        self.change(&gpus, true, Reach::All);
    }

    /// A guest has left its GPUs.
    pub(super) fn leave_guest(&mut self, key: Key) {
        self.unseat(key);
        let gpus = self.let_go(key.job());
        self.change(&gpus, true, Reach::Behind(key));
    }

    /// A guest is stopped by a job that takes `taken`. Whether GPUs come free: those that that job leaves.
    fn stop_guest(&mut self, key: Key, taken: &GpuSet) -> bool {
        self.unseat(key);
        let gpus = self.let_go(key.job());
        let mut parts = gpus.by_server().iter();
        let is_gain = parts.any(|part| part.mask & !taken.mask_on(part.server) != 0);
        if is_gain {
            self.change(&gpus, true, Reach::Behind(key));
        }
        is_gain
    }

    /// A guest gets another key. Returns its class.
    pub(super) fn rekey_guest(&mut self, old: Key, key: Key) -> usize {
        let class = self.unseat(old);
        self.seat(class, key);
        // if it comes forward, jobs between have less room: no refusal of theirs is out of date
        if key > old {
            self.change_of(key.job(), true, Reach::Between(old, key));
        }
        class
    }

    /// The count admits a guest.
    pub(super) fn admit_guest(&mut self, key: Key) {
        self.unseat(key);
        self.change_of(key.job(), false, Reach::UpTo(key));
    }

    /// The count no longer admits a running job.
    pub(super) fn become_guest(&mut self, class: usize, key: Key) {
        self.seat(class, key);
        self.change_of(key.job(), true, Reach::UpTo(key));
    }

    /// The count admits a waiting job.
    pub(super) fn promise(&mut self, class: usize, key: Key) {
        self.classes[class].promised.insert(key);
        self.promises += 1;
    }

    /// A promised job is promised no more: it starts, has another key, or the count no longer admits it.
    pub(super) fn withdraw(&mut self, class: usize, key: Key) {
        self.classes[class].promised.remove(&key);
        self.promises -= 1;
    }

    /// Servers have failed or come back; their jobs have left.
    pub(super) fn servers_changed(&mut self, view: &ClusterView<'_>, servers: &[ServerId]) {
        if !self.is_calm {
            for &server in servers {
                self.firm.set_up(server, false);
                self.firm.set_up(server, view.is_up(server));
                self.seats.note(server.index());
            }
        }
        self.rises += 1;
        self.are_classes_known = false;
        for picture in self.classes.iter_mut().flat_map(|c| &mut c.pictures) {
            for &server in servers {
                picture.free.set_up(server, false);
                picture.free.set_up(server, view.is_up(server));
            }
        }
        self.refused.clear();
    }

    /// Asks the placement rule about each class.
    fn know_classes(&mut self, free: &FreeIndex, places: &Places) {
        for (class, of) in self.classes.iter_mut().enumerate() {
            of.is_fickle = places.is_fickle(free, class, TYPE);
            of.is_on_one_server = places.is_on_one_server(free, class, TYPE);
            of.needs = places.needs(free, class, TYPE);
            if of.is_on_one_server {
                of.pictures.clear();
            }
        }
        self.has_fickle = self.classes.iter().any(|of| of.is_fickle);
        self.are_classes_known = true;
    }

    /// The first promised job of each class that may have room now.
    fn list_promised(&mut self, places: &Places, into: &mut Vec<(Key, usize)>) {
        into.clear();
        if self.promises == 0 {
            return;
        }
        for (at, class) in self.classes.iter_mut().enumerate() {
            if class.refused_at == self.rises && !class.is_fickle {
                continue;
            }
            let Some(&first) = class.promised.first() else {
                continue;
            };
            if self.is_calm || places.can_on(&mut self.firm, at, TYPE) {
                into.push((first, at));
            } else {
                class.refused_at = self.rises;
            }
        }
    }

    /// Whether a waiting job may have room, after [`Seats::refresh`]. `false` is certain.
    #[inline]
    fn may_fit(&mut self, class: usize, key: Key) -> bool {
        let of = &self.classes[class];
        if of.is_on_one_server {
            self.seats.may_have_one(key, of.gpus)
        } else {
            self.may_fit_on_several(class, key)
        }
    }

    #[inline(never)]
    fn may_fit_on_several(&mut self, class: usize, key: Key) -> bool {
        let is_refused = |&(refused, from): &(usize, Key)| refused == class && key >= from;
        if self.refused.iter().any(is_refused) {
            return false;
        }
        let needs = self.classes[class].needs;
        needs.is_none_or(|needs| self.seats.may_have(self.firm.pool(TYPE), key, needs))
    }

    /// Notes that a waiting job has no place, and so none of its class behind it.
    fn refuse(&mut self, class: usize, key: Key) {
        if !self.classes[class].is_on_one_server {
            self.refused.retain(|&(refused, _)| refused != class);
            self.refused.push((class, key));
        }
    }

    /// GPUs for a waiting job, of those that nobody before it holds.
    fn place_waiting(
        &mut self,
        view: &ClusterView<'_>,
        places: &mut Places,
        class: usize,
        key: Key,
    ) -> Option<GpuSet> {
        if self.classes[class].is_on_one_server {
            return self.place_on_one(places, class, key);
        }
        if self.classes[class].pictures.is_empty() {
            let picture = |_| Picture::new(view, LEAST);
            self.classes[class].pictures = [0, 1].map(picture).into();
        }
        let mut pictures = std::mem::take(&mut self.classes[class].pictures);
        let is_before = key < pictures[0].cursor;
        if is_before {
            // every rule that may refuse takes one server if one has room
            let found = self.place_on_one(places, class, key);
            if found.is_some() {
                self.classes[class].pictures = pictures;
                return found;
            }
        }
        let at = usize::from(is_before);
        self.go_to(&mut pictures[at], key);
        let found = places.place_on(&mut pictures[at].free, class, key.job(), TYPE);
        if found.is_none() {
            pictures.swap(0, at);
        }
        self.classes[class].pictures = pictures;
        found
    }

    /// The same on one server.
    fn place_on_one(&mut self, places: &Places, class: usize, key: Key) -> Option<GpuSet> {
        let gpus = self.classes[class].gpus;
        let firm = self.firm.pool(TYPE);
        let (server, mask) = self.seats.find(firm, key, gpus, places.is_first_fit())?;
        Some(places.place_in_mask(server, mask, gpus))
    }

    /// Brings a picture to another place in the order, up to date.
    fn go_to(&mut self, picture: &mut Picture, key: Key) {
        self.seats.refresh(self.firm.pool(TYPE));
        let from = std::mem::replace(&mut picture.cursor, key);
        let between = from.min(key)..from.max(key);
        let classes = self.classes.iter();
        let passed = classes.flat_map(|class| class.guests.range(between.clone()));
        let gpus = passed.map(|guest| &self.held(guest.job()).gpus);
        picture.draw(&self.seats, &self.firm, gpus);
    }
}

impl Repack {
    /// Steps 3 and 4 after the count: places the promised, then the waiting, and stops the guests on their GPUs.
    pub(super) fn settle_guests(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        places: &mut Places,
    ) {
        let mut guests = self.guests.take().expect("this mode has guests");
        if !guests.are_classes_known {
            guests.know_classes(plan.free(), places);
        }
        self.place_promised(view, plan, places, &mut guests);
        if guests.promises > 0 || !self.ledger.classes().is_empty() {
            self.place_waiting(view, plan, places, &mut guests);
        }
        if guests.stopped.len() > 1 {
            guests.stopped.sort_unstable();
            plan.sort_preemptions(|job| self.ledger.key(job));
        }
        self.stopped.extend(guests.stopped.drain(..).map(Key::job));
        guests.fresh.clear();
        if !guests.is_calm {
            guests.calm_down(!self.ledger.classes().is_empty());
        }
        self.guests = Some(guests);
    }

    /// Step 3: the promised jobs in key order. Of a class the next one is asked if the one before it got a place, or if
    /// the class is fickle.
    fn place_promised(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        places: &mut Places,
        guests: &mut Guests,
    ) {
        let mut heads = std::mem::take(&mut guests.heads);
        guests.list_promised(places, &mut heads);
        while let Some(at) = first_of(&heads) {
            let (key, class) = heads[at];
            let free = if guests.is_calm {
                plan.free()
            } else {
                &mut guests.firm
            };
            let found = places.place_on(free, class, key.job(), TYPE);
            let is_placed = found.is_some();
            if let Some(gpus) = found {
                if !guests.is_calm {
                    self.stop_met(plan, guests, &gpus);
                }
                self.start_homeless(plan, places, guests, (key, class), gpus);
            } else {
                guests.wake(view, places);
                guests.classes[class].refused_at = guests.rises;
            }
            let of = &guests.classes[class];
            let mut behind = of.promised.range((Excluded(key), Unbounded));
            match behind.next().filter(|_| is_placed || of.is_fickle) {
                Some(&next) => heads[at].0 = next,
                None => _ = heads.swap_remove(at),
            }
        }
        guests.heads = heads;
    }

    /// Step 4: the first waiting job of each class that may have room, in key order.
    fn place_waiting(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        places: &mut Places,
        guests: &mut Guests,
    ) {
        let mut open = std::mem::take(&mut self.candidates);
        open.clear();
        open.extend_from_slice(self.ledger.classes());
        let mut is_anyone_waiting = false;
        // behind a promised job without a place no job of its class has one
        open.retain(|&class| {
            let of = &guests.classes[class];
            let is_waiting = self.ledger.head(class).is_some();
            is_anyone_waiting |= is_waiting;
            is_waiting && !of.is_fickle && of.promised.is_empty()
        });
        let is_any_fickle = |class: &Class| class.is_fickle && !class.promised.is_empty();
        if is_anyone_waiting || guests.has_fickle && guests.classes.iter().any(is_any_fickle) {
            guests.wake(view, places);
        }
        let mut fickle = self.fickle_jobs(view, places, guests);
        let mut heads = std::mem::take(&mut guests.heads);
        heads.clear();
        self.list_waiting(guests, &open, &mut heads);
        loop {
            let first = first_of(&heads);
            let head = first.map(|at| heads[at]).into_iter();
            let Some((key, class)) = head.chain(fickle.last().copied()).min() else {
                break;
            };
            let is_fickle = fickle.pop_if(|next| next.0 == key).is_some();
            if let Some(at) = first.filter(|_| !is_fickle) {
                heads.swap_remove(at);
            }
            let Some(gpus) = guests.place_waiting(view, places, class, key) else {
                if !is_fickle {
                    guests.refuse(class, key);
                }
                continue;
            };
            let has_gain = self.stop_met(plan, guests, &gpus);
            self.start_homeless(plan, places, guests, (key, class), gpus);
            if has_gain {
                heads.clear();
                self.list_waiting(guests, &open, &mut heads);
            } else if !is_fickle {
                // all others have less room than before
                self.list_waiting(guests, &[class], &mut heads);
            }
        }
        guests.heads = heads;
        self.candidates = open;
    }

    /// Adds the first waiting jobs of the classes that may have room.
    fn list_waiting(
        &mut self,
        guests: &mut Guests,
        classes: &[usize],
        into: &mut Vec<(Key, usize)>,
    ) {
        guests.seats.refresh(guests.firm.pool(TYPE));
        for &class in classes {
            let head = self.ledger.head(class);
            if let Some(key) = head.filter(|&key| guests.may_fit(class, key)) {
                into.push((key, class));
            }
        }
    }

    /// Starts a job: a promised one as admitted, a waiting one as a guest.
    fn start_homeless(
        &mut self,
        plan: &mut Plan<'_>,
        places: &mut Places,
        guests: &mut Guests,
        (key, class): (Key, usize),
        gpus: GpuSet,
    ) {
        if self.ledger.stand(key.job()) == Stand::Promised {
            guests.withdraw(class, key);
            self.ledger.set(key, Stand::Running);
            guests.change(&gpus, false, Reach::All);
            self.start_home(plan, places, guests, (key, class), gpus);
            return;
        }
        if guests.classes[class].is_fickle {
            self.ledger.leave_line(class);
        } else {
            self.ledger.pop(class);
        }
        self.ledger.set(key, Stand::Guest);
        self.start_home(plan, places, guests, (key, class), gpus);
        guests.seat(class, key);
    }

    /// All jobs without GPUs of fickle classes, last first. Nearly always none: such a gang is wider than every rack.
    fn fickle_jobs(
        &self,
        view: &ClusterView<'_>,
        places: &Places,
        guests: &Guests,
    ) -> Vec<(Key, usize)> {
        if !guests.has_fickle {
            return Vec::new();
        }
        let waiting = view.waiting().filter_map(|job| {
            let class = places.classes().of(job);
            let stand = self.ledger.stand(job);
            let is_asked = matches!(stand, Stand::Waiting | Stand::Promised);
            (guests.classes[class].is_fickle && is_asked).then(|| (self.ledger.key(job), class))
        });
        let mut found: Vec<(Key, usize)> = waiting.collect();
        found.sort_unstable_by(|a, b| b.cmp(a));
        found
    }

    /// Stops the guests that hold some of these GPUs; whether other GPUs come free by that.
    fn stop_met(&mut self, plan: &mut Plan<'_>, guests: &mut Guests, gpus: &GpuSet) -> bool {
        let mut has_gain = false;
        for part in gpus.by_server() {
            while let Some(key) = guests.seats.met(part.server, part.mask) {
                has_gain |= guests.stop_guest(key, gpus);
                self.ledger.set(key, Stand::Nowhere);
                plan.release(key.job());
                plan.preempt(key.job());
                guests.stopped.push(key);
            }
        }
        has_gain
    }

    fn start_home(
        &mut self,
        plan: &mut Plan<'_>,
        places: &mut Places,
        guests: &mut Guests,
        (key, class): (Key, usize),
        gpus: GpuSet,
    ) {
        let job = key.job();
        let hold = Hold {
            class,
            gpus: gpus.clone(),
        };
        if guests.is_calm {
            guests.fresh.push((job, hold));
        } else {
            guests.hold(job, hold);
        }
        places.note_start(job);
        plan.take(&gpus);
        plan.start(job, gpus);
        self.started.push(job);
    }
}
