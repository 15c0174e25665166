//! Steps 2 to 4 of the pass under rules that may refuse (yarn, skew, ...), in incremental form.
//!
//! A job that the count admits may find no place: it is *promised* GPUs and waits. Others run meanwhile on
//! GPUs that it cannot use: *guests*, whom the count does not admit. The text of the spec gives up all
//! guests at each decision, tries the promised, then walks guests and waiting jobs in key order, where a
//! guest keeps its GPUs if they are still free. What a waiting job may take at its turn is therefore all
//! that neither the admitted nor the guests before it hold. Each class keeps that *picture* for its first
//! waiting job (free capacity only shrinks along the order, so if that one is refused all others are), and
//! one more without any guest for the promised. A refusal stands until its picture gains a GPU; a new
//! placement stops exactly the guests it meets. Cost: O((changes x classes) log n) and, where the first
//! waiting job of a class changes, one step for each guest between the old and the new one.

use super::Repack;
use crate::class::Places;
use crate::order::{Key, Stand};
use gangline_engine::{ClusterView, FreeIndex, Plan};
use gangline_model::{Action, ClusterSpec, GpuSet, GpuTypeId, JobId, ServerId};
use std::collections::BTreeSet;

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
    /// GPUs that no admitted job holds.
    firm: FreeIndex,
    /// How often `firm` has gained GPUs.
    rises: u64,
    /// Running jobs by slot.
    held: Vec<Hold>,
    slot_of: Vec<u32>,
    unused_slots: Vec<u32>,
    /// Guests stopped by the present decision.
    stopped: Vec<Key>,
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
    /// Admitted by the count, without a place.
    promised: BTreeSet<Key>,
    /// `rises` when a promised job was last refused.
    refused_at: u64,
    /// Running without admission.
    guests: BTreeSet<Key>,
    /// For the first waiting job; made when there is the first one.
    picture: Option<Picture>,
}

/// GPUs that neither the admitted hold nor the guests before `cursor`.
#[derive(Debug)]
struct Picture {
    free: FreeIndex,
    cursor: Key,
    /// Whether it has gained GPUs since the class was last refused.
    has_risen: bool,
}

/// Whom a change concerns: `firm` has its cursor before every key.
#[derive(Clone, Copy)]
enum Reach {
    All,
    /// Cursors behind a key.
    Behind(Key),
    /// Cursors up to a key.
    UpTo(Key),
    /// Cursors behind the first key and up to the second.
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

fn take(free: &mut FreeIndex, gpus: &GpuSet) {
    for part in gpus.parts() {
        free.sync(part.server, free.free_mask(part.server) & !part.mask);
    }
}

fn give(free: &mut FreeIndex, gpus: &GpuSet) {
    for part in gpus.parts() {
        free.sync(part.server, free.free_mask(part.server) | part.mask);
    }
}

impl Guests {
    pub(super) fn new(view: &ClusterView<'_>, places: &Places) -> Self {
        let class = |gpus| Class {
            gpus,
            promised: BTreeSet::new(),
            refused_at: 0,
            guests: BTreeSet::new(),
            picture: None,
        };
        let classes = places.classes().iter();
        Self {
            classes: classes.map(|of| class(of.gpus)).collect(),
            firm: FreeIndex::new(view.cluster()),
            rises: 1,
            held: Vec::new(),
            slot_of: vec![u32::MAX; view.jobs().len()],
            unused_slots: Vec::new(),
            stopped: Vec::new(),
        }
    }

    /// Number of classes.
    pub(super) fn classes(&self) -> usize {
        self.classes.len()
    }

    /// Gang size of a class.
    pub(super) fn gpus(&self, class: usize) -> u32 {
        self.classes[class].gpus
    }

    /// The first guest of a class.
    #[inline]
    pub(super) fn first(&self, class: usize) -> Option<Key> {
        self.classes[class].guests.first().copied()
    }

    /// Puts down what a job holds.
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

    /// Forgets what a job holds.
    fn let_go(&mut self, job: JobId) -> GpuSet {
        let slot = self.slot_of[job.index()];
        self.unused_slots.push(slot);
        std::mem::take(&mut self.held[slot as usize].gpus)
    }

    fn change(&mut self, gpus: &GpuSet, is_gain: bool, reach: Reach) {
        let apply = if is_gain { give } else { take };
        if reach.has_firm() {
            apply(&mut self.firm, gpus);
            self.rises += u64::from(is_gain);
        }
        let pictures = self.classes.iter_mut().filter_map(|c| c.picture.as_mut());
        for picture in pictures.filter(|picture| reach.has(picture.cursor)) {
            apply(&mut picture.free, gpus);
            picture.has_risen |= is_gain;
        }
    }

    /// The same for the GPUs of a running job.
    fn change_of(&mut self, job: JobId, is_gain: bool, reach: Reach) {
        let slot = self.slot_of[job.index()] as usize;
        let gpus = std::mem::take(&mut self.held[slot].gpus);
        self.change(&gpus, is_gain, reach);
        self.held[slot].gpus = gpus;
    }

    /// An admitted job has left its GPUs.
    pub(super) fn leave_admitted(&mut self, job: JobId) {
        let gpus = self.let_go(job);
        self.change(&gpus, true, Reach::All);
    }

    /// A guest has left its GPUs.
    pub(super) fn leave_guest(&mut self, key: Key) {
        let class = self.held(key.job()).class;
        self.classes[class].guests.remove(&key);
        let gpus = self.let_go(key.job());
        self.change(&gpus, true, Reach::Behind(key));
    }

    /// A guest has another key; its class.
    pub(super) fn rekey_guest(&mut self, old: Key, key: Key) -> usize {
        let class = self.held(key.job()).class;
        self.classes[class].guests.remove(&old);
        self.classes[class].guests.insert(key);
        if key < old {
            self.change_of(key.job(), false, Reach::Between(key, old));
        } else {
            self.change_of(key.job(), true, Reach::Between(old, key));
        }
        class
    }

    /// The count admits a guest.
    pub(super) fn admit_guest(&mut self, class: usize, key: Key) {
        self.classes[class].guests.remove(&key);
        self.change_of(key.job(), false, Reach::UpTo(key));
    }

    /// The count no longer admits a running job.
    pub(super) fn become_guest(&mut self, class: usize, key: Key) {
        self.classes[class].guests.insert(key);
        self.change_of(key.job(), true, Reach::UpTo(key));
    }

    /// The count admits a waiting job.
    pub(super) fn promise(&mut self, class: usize, key: Key) {
        self.classes[class].promised.insert(key);
    }

    /// The count no longer admits a promised job, or it has another key.
    pub(super) fn withdraw(&mut self, class: usize, key: Key) {
        self.classes[class].promised.remove(&key);
    }

    /// Servers have failed or come back; their jobs have left.
    pub(super) fn servers_changed(&mut self, view: &ClusterView<'_>, servers: &[ServerId]) {
        for &server in servers {
            self.firm.set_up(server, false);
            self.firm.set_up(server, view.is_up(server));
        }
        self.rises += 1;
        for picture in self.classes.iter_mut().filter_map(|c| c.picture.as_mut()) {
            for &server in servers {
                picture.free.set_up(server, false);
                picture.free.set_up(server, view.is_up(server));
            }
            picture.has_risen = true;
        }
    }

    /// The first promised job, by key, of a class that may have room now.
    fn next_promised(&self) -> Option<(Key, usize)> {
        let classes = self.classes.iter().enumerate();
        let open = classes.filter(|(_, class)| class.refused_at != self.rises);
        open.filter_map(|(at, class)| Some((*class.promised.first()?, at)))
            .min()
    }

    /// Brings the picture of a class to its first waiting job.
    fn look_from(&mut self, view: &ClusterView<'_>, class: usize, key: Key) {
        let mut picture = if let Some(picture) = self.classes[class].picture.take() {
            picture
        } else {
            Picture {
                free: self.copy_firm(view.cluster()),
                cursor: LEAST,
                has_risen: true,
            }
        };
        let from = std::mem::replace(&mut picture.cursor, key);
        let is_ahead = from < key;
        let range = if is_ahead { from..key } else { key..from };
        for other in &self.classes {
            for guest in other.guests.range(range.clone()) {
                let gpus = &self.held(guest.job()).gpus;
                if is_ahead {
                    take(&mut picture.free, gpus);
                } else {
                    give(&mut picture.free, gpus);
                    picture.has_risen = true;
                }
            }
        }
        self.classes[class].picture = Some(picture);
    }

    fn copy_firm(&self, cluster: &ClusterSpec) -> FreeIndex {
        let mut copy = FreeIndex::new(cluster);
        for at in 0..cluster.servers().len() {
            let server = ServerId::new(at);
            let pool = self.firm.pool(TYPE);
            if pool.is_up(at) {
                copy.sync(server, self.firm.free_mask(server));
            } else {
                copy.set_up(server, false);
            }
        }
        copy
    }
}

impl Repack {
    /// Steps 3 and 4 after the count: places the promised, then whoever waits, stops the guests they meet.
    pub(super) fn settle_guests(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        places: &mut Places,
    ) {
        let mut guests = self.guests.take().expect("this mode has guests");
        while let Some((key, class)) = guests.next_promised() {
            match places.place_on(&mut guests.firm, class, key.job(), TYPE) {
                Some(gpus) => {
                    guests.withdraw(class, key);
                    self.ledger.set(key, Stand::Running);
                    self.stop_met(view, plan, &mut guests, &gpus);
                    guests.change(&gpus, false, Reach::All);
                    self.start_home(plan, places, &mut guests, (key, class), gpus);
                }
                None => guests.classes[class].refused_at = guests.rises,
            }
        }
        self.place_waiting(view, plan, places, &mut guests);
        guests.stopped.sort_unstable();
        for key in guests.stopped.drain(..) {
            plan.push(Action::Preempt { job: key.job() });
            self.stopped.push(key.job());
        }
        self.guests = Some(guests);
    }

    /// Step 4: the first waiting job of each class, in key order, where its picture has gained GPUs.
    fn place_waiting(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        places: &mut Places,
        guests: &mut Guests,
    ) {
        let mut open = std::mem::take(&mut self.candidates);
        open.clear();
        self.all_classes(&mut open);
        // behind a promised job without a place nobody of its class has one
        open.retain(|&class| guests.classes[class].promised.is_empty());
        for &class in &open {
            if let Some(key) = self.ledger.head(class) {
                guests.look_from(view, class, key);
            }
        }
        loop {
            let heads = open.iter().filter_map(|&class| {
                let picture = guests.classes[class].picture.as_ref()?;
                picture
                    .has_risen
                    .then_some((self.ledger.head(class)?, class))
            });
            let Some((key, class)) = heads.min() else {
                break;
            };
            let picture = guests.classes[class]
                .picture
                .as_mut()
                .expect("it has risen");
            let Some(gpus) = places.place_on(&mut picture.free, class, key.job(), TYPE) else {
                picture.has_risen = false;
                continue;
            };
            self.ledger.pop(class);
            self.ledger.set(key, Stand::Guest);
            self.stop_met(view, plan, guests, &gpus);
            guests.change(&gpus, false, Reach::Behind(key));
            guests.classes[class].guests.insert(key);
            self.start_home(plan, places, guests, (key, class), gpus);
            if let Some(next) = self.ledger.head(class) {
                guests.look_from(view, class, next);
            }
        }
        self.candidates = open;
    }

    /// Stops the guests that hold some of these GPUs.
    fn stop_met(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        guests: &mut Guests,
        gpus: &GpuSet,
    ) {
        for part in gpus.parts() {
            let mut rest = part.mask;
            while rest != 0 {
                let slot = rest.trailing_zeros();
                rest &= rest - 1;
                let Some(job) = view.residents(part.server, slot).next() else {
                    continue;
                };
                // one that was stopped a moment ago is nowhere
                if self.ledger.stand(job) == Stand::Guest {
                    let key = self.ledger.key(job);
                    guests.leave_guest(key);
                    self.ledger.set(key, Stand::Nowhere);
                    plan.release(job);
                    guests.stopped.push(key);
                }
            }
        }
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
        guests.hold(job, hold);
        places.note_start(job);
        plan.start(job, gpus);
        self.started.push(job);
    }
}
