//! Up-links of racks that jobs share (spec network section 6): who sends through which, and what
//! locality that leaves. Knows nothing of time: the caller re-times the jobs whose locality changed.
//!
//! An up-link is *full* when its jobs would alone send more than it can carry. Jobs on no full up-link
//! go as if alone. Jobs and full up-links form a graph; what changes at an instant concerns the parts
//! that hold a changed up-link and no other. Cost of a start or stop: O(racks of the job), plus, where
//! an up-link is full before or after, O(n log n) in the up-links of the jobs of its part.

use gangline_model::{Flows, JobId, Load, MaxMin};
use smallvec::SmallVec;

/// Demands are summed in this part of an up-link, rounded down, so that sums are exact and do not
/// depend on the order of starts and stops.
const WHOLE: f64 = (1_u64 << 40) as f64;

/// Shared up-links of all racks, with the running jobs that send through them.
#[derive(Clone, Debug)]
pub(crate) struct UpLinks {
    /// Bytes/s of each.
    capacity: f64,
    links: Vec<UpLink>,
    /// By record of the running job.
    senders: Vec<Option<Sender>>,
    /// Up-links of jobs that came or went since the last settlement.
    changed: Vec<u32>,
    scratch: Scratch,
}

#[derive(Clone, Debug, Default)]
struct UpLink {
    /// Its jobs with their records, in job order.
    jobs: Vec<(JobId, u32)>,
    /// Sum of their demands.
    sum: u128,
    was_full: bool,
    is_changed: bool,
    /// Place in the part that is being solved; [`NO_PLACE`] outside.
    place: u32,
}

const NO_PLACE: u32 = u32::MAX;

impl UpLink {
    fn is_full(&self) -> bool {
        self.sum > 1 << 40
    }
}

#[derive(Clone, Debug)]
struct Sender {
    job: JobId,
    racks: SmallVec<[u32; 4]>,
    load: Load,
    /// Demand in units of the sums.
    units: u128,
    /// Locality if nobody else were there.
    alone: f64,
    locality: f64,
    is_seen: bool,
}

/// Buffers of a settlement, reused.
#[derive(Debug, Default)]
struct Scratch {
    seeds: Vec<u32>,
    part: Vec<u32>,
    full: Vec<u32>,
    flows: Flows,
    solver: MaxMin,
}

impl Clone for Scratch {
    /// What is in the buffers means nothing between settlements.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl UpLinks {
    /// Up-links of so many racks with a capacity in bytes/s.
    pub(crate) fn new(racks: u32, capacity: f64) -> Self {
        let link = UpLink {
            place: NO_PLACE,
            ..UpLink::default()
        };
        Self {
            capacity,
            links: vec![link; racks as usize],
            senders: Vec::new(),
            changed: Vec::new(),
            scratch: Scratch::default(),
        }
    }

    /// Whether a job came or went since the last settlement.
    #[inline]
    pub(crate) fn is_unsettled(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Locality of the job of a record, if it sends through up-links.
    #[inline]
    pub(crate) fn locality(&self, slot: u32) -> Option<f64> {
        let sender = self.senders.get(slot as usize)?.as_ref()?;
        Some(sender.locality)
    }

    /// A job sends through the up-links of `racks` (each once) from now on.
    pub(crate) fn join(
        &mut self,
        slot: u32,
        job: JobId,
        racks: SmallVec<[u32; 4]>,
        load: Load,
        alone: f64,
    ) {
        let units = (load.demand / self.capacity * WHOLE) as u128;
        for &rack in &racks {
            let link = &mut self.links[rack as usize];
            let at = link.jobs.partition_point(|entry| entry.0 < job);
            link.jobs.insert(at, (job, slot));
            link.sum += units;
            self.note(rack);
        }
        let at = slot as usize;
        if self.senders.len() <= at {
            self.senders.resize_with(at + 1, || None);
        }
        self.senders[at] = Some(Sender {
            job,
            racks,
            load,
            units,
            alone,
            locality: alone,
            is_seen: false,
        });
    }

    /// The job of a record sends no more; whether it did.
    #[cold]
    #[inline(never)]
    pub(crate) fn leave(&mut self, slot: u32) -> bool {
        let Some(sender) = self.senders.get_mut(slot as usize).and_then(Option::take) else {
            return false;
        };
        for &rack in &sender.racks {
            let link = &mut self.links[rack as usize];
            let at = link.jobs.partition_point(|entry| entry.0 < sender.job);
            link.jobs.remove(at);
            link.sum -= sender.units;
            self.note(rack);
        }
        true
    }

    fn note(&mut self, rack: u32) {
        let link = &mut self.links[rack as usize];
        if !link.is_changed {
            link.is_changed = true;
            self.changed.push(rack);
        }
    }

    /// Works out the localities anew where something changed; adds the jobs whose own is another now,
    /// in job order.
    pub(crate) fn settle(&mut self, moved: &mut Vec<JobId>) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.seeds.clear();
        for rack in self.changed.drain(..) {
            let link = &mut self.links[rack as usize];
            let is_full = link.is_full();
            if is_full || link.was_full {
                let slots = link.jobs.iter().map(|entry| entry.1);
                scratch.seeds.extend(slots);
            }
            link.was_full = is_full;
            link.is_changed = false;
        }
        let first = moved.len();
        for at in 0..scratch.seeds.len() {
            let seed = scratch.seeds[at];
            if !self.sender(seed).is_seen {
                self.gather(seed, &mut scratch);
                self.solve(&mut scratch, moved);
            }
        }
        for &slot in &scratch.seeds {
            self.sender_mut(slot).is_seen = false;
        }
        moved[first..].sort_unstable();
        self.scratch = scratch;
    }

    fn sender(&self, slot: u32) -> &Sender {
        let sender = self.senders[slot as usize].as_ref();
        sender.expect("up-links list senders only")
    }

    fn sender_mut(&mut self, slot: u32) -> &mut Sender {
        let sender = self.senders[slot as usize].as_mut();
        sender.expect("up-links list senders only")
    }

    /// The part of the graph around a job: jobs in job order, full up-links ascending.
    fn gather(&mut self, seed: u32, scratch: &mut Scratch) {
        let Scratch { part, full, .. } = scratch;
        part.clear();
        full.clear();
        part.push(seed);
        self.sender_mut(seed).is_seen = true;
        let mut next = 0;
        while let Some(&slot) = part.get(next) {
            next += 1;
            let racks = self.sender(slot).racks.clone();
            let Self { links, senders, .. } = self;
            for rack in racks {
                let link = &mut links[rack as usize];
                if !link.is_full() || link.place != NO_PLACE {
                    continue;
                }
                link.place = 0;
                full.push(rack);
                for &(_, other) in &link.jobs {
                    let other_sender = senders[other as usize].as_mut();
                    let is_seen = &mut other_sender.expect("up-links list senders only").is_seen;
                    if !std::mem::replace(is_seen, true) {
                        part.push(other);
                    }
                }
            }
        }
        full.sort_unstable();
        for (place, &rack) in full.iter().enumerate() {
            self.links[rack as usize].place = place as u32;
        }
        part.sort_unstable_by_key(|&slot| self.sender(slot).job);
    }

    /// Solves the part that was gathered.
    fn solve(&mut self, scratch: &mut Scratch, moved: &mut Vec<JobId>) {
        let Scratch {
            part,
            full,
            flows,
            solver,
            seeds,
        } = scratch;
        flows.clear();
        for &slot in part.iter() {
            let sender = self.sender(slot);
            let places = sender.racks.iter().map(|&rack| &self.links[rack as usize]);
            let places = places.map(|link| link.place).filter(|&at| at != NO_PLACE);
            flows.push(sender.load.demand, places);
        }
        let rates = solver.solve(self.capacity, full.len(), flows);
        for (&slot, &rate) in part.iter().zip(rates) {
            let sender = self.senders[slot as usize].as_mut();
            let sender = sender.expect("up-links list senders only");
            let locality = sender.load.locality(sender.alone, rate);
            if locality.to_bits() != sender.locality.to_bits() {
                sender.locality = locality;
                moved.push(sender.job);
            }
        }
        for &rack in full.iter() {
            self.links[rack as usize].place = NO_PLACE;
        }
        seeds.extend_from_slice(part);
    }

    /// The same jobs on empty up-links, settled at once: what step by step must agree with.
    pub(crate) fn afresh(&self) -> Self {
        let mut fresh = Self::new(self.links.len() as u32, self.capacity);
        for (slot, sender) in self.senders.iter().enumerate() {
            if let Some(sender) = sender {
                let racks = sender.racks.clone();
                fresh.join(slot as u32, sender.job, racks, sender.load, sender.alone);
            }
        }
        fresh.settle(&mut Vec::new());
        fresh
    }

    /// Jobs that send, with their records.
    pub(crate) fn senders(&self) -> impl Iterator<Item = (u32, JobId)> + '_ {
        let known = self.senders.iter().enumerate();
        known.filter_map(|(slot, sender)| Some((slot as u32, sender.as_ref()?.job)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const RACKS: u32 = 9;

    fn load(demand: f64) -> Load {
        Load {
            bytes: demand * 2.0,
            compute_s: 1.0,
            demand,
        }
    }

    fn kept(uplinks: &UpLinks) -> Vec<(u32, u64)> {
        let locality = |slot| uplinks.locality(slot).map(f64::to_bits);
        let all = uplinks.senders();
        all.map(|(slot, _)| (slot, locality(slot).expect("a sender")))
            .collect()
    }

    #[test]
    fn golden_of_the_text() {
        let mut uplinks = UpLinks::new(3, 10.0);
        let three: [(f64, [u32; 2]); 3] = [(8.0, [0, 1]), (6.0, [1, 2]), (3.0, [0, 2])];
        for (slot, (demand, racks)) in three.into_iter().enumerate() {
            let job = JobId::new(slot);
            let racks = racks.as_slice().into();
            uplinks.join(slot as u32, job, racks, load(demand), 0.5);
        }
        let mut moved = Vec::new();
        uplinks.settle(&mut moved);
        assert_eq!(moved, [JobId(0), JobId(1)]);
        let factor = |slot| uplinks.locality(slot).expect("a sender") / 0.5;
        assert!((factor(0) - 0.625).abs() < 1e-15);
        assert!((factor(1) - 5.0 / 6.0).abs() < 1e-15);
        assert!((factor(2) - 1.0).abs() < 1e-15);
    }

    #[test]
    fn jobs_that_share_no_full_uplink_are_left_alone() {
        let mut uplinks = UpLinks::new(4, 10.0);
        let mut moved = Vec::new();
        uplinks.join(0, JobId(0), [0, 1].as_slice().into(), load(9.0), 0.5);
        uplinks.join(1, JobId(1), [2, 3].as_slice().into(), load(9.0), 0.5);
        uplinks.settle(&mut moved);
        assert!(moved.is_empty());
        uplinks.join(2, JobId(2), [0, 2].as_slice().into(), load(1.0), 0.5);
        uplinks.settle(&mut moved);
        assert!(moved.is_empty(), "9 + 1 is just enough");
        uplinks.join(3, JobId(3), [3].as_slice().into(), load(4.0), 0.5);
        uplinks.settle(&mut moved);
        assert_eq!(
            moved,
            [JobId(1)],
            "6 of 9; the other asks for less than half"
        );
        moved.clear();
        assert!(uplinks.leave(3));
        assert!(!uplinks.leave(3));
        assert!(uplinks.is_unsettled());
        uplinks.settle(&mut moved);
        assert_eq!(moved, [JobId(1)]);
        assert_eq!(kept(&uplinks), kept(&uplinks.afresh()));
    }

    /// Record, job number, racks, demand in tenths (from 100 on nobody comes), end of the instant.
    fn step() -> impl Strategy<Value = (u32, u32, BTreeSet<u32>, u32, bool)> {
        let racks = prop::collection::btree_set(0..RACKS, 1..4);
        (0..12_u32, any::<u32>(), racks, 1..120_u32, any::<bool>())
    }

    proptest! {
        /// Jobs come and go in any order, several in an instant: as if all had come at once, and no
        /// job whose locality is unchanged is named.
        #[test]
        fn step_by_step_is_as_at_once(
            steps in prop::collection::vec(step(), 1..60),
        ) {
            let mut uplinks = UpLinks::new(RACKS, 10.0);
            let mut moved = Vec::new();
            for (slot, job, racks, tenths, is_end) in steps {
                let before = kept(&uplinks);
                uplinks.leave(slot);
                if tenths < 100 {
                    let racks = racks.into_iter().collect();
                    // distinct job numbers, in no order of the records
                    let job = JobId(job << 4 | slot);
                    let demand = f64::from(tenths) / 10.0;
                    uplinks.join(slot, job, racks, load(demand), 0.5);
                }
                if !is_end {
                    continue;
                }
                moved.clear();
                uplinks.settle(&mut moved);
                let after = kept(&uplinks);
                prop_assert_eq!(&after, &kept(&uplinks.afresh()));
                prop_assert!(moved.windows(2).all(|pair| pair[0] < pair[1]));
                let jobs: Vec<_> = uplinks.senders().collect();
                for &(other, bits) in &after {
                    let is_same = before.contains(&(other, bits));
                    let (_, job) = jobs[jobs.partition_point(|entry| entry.0 < other)];
                    // a job that has just come and keeps all is not named either
                    prop_assert!(!(is_same && other != slot && moved.contains(&job)));
                }
            }
        }
    }
}
