//! Rack uplinks that jobs share (`docs/concepts/network.md`): the jobs that send through each uplink, and the
//! resulting locality factors. This module does not handle time: the caller re-times the jobs whose locality changed.
//!
//! First, suppose that each job sends as if it were alone. An uplink is *overloaded* if its jobs together would then
//! send more than its capacity. A job that uses no overloaded uplink sends as if it were alone. The rates of all other
//! jobs rise together, and the rate of a job stops rising when the first of its uplinks is full. The rate at which an
//! uplink becomes full depends on the rates at which its jobs stop at other uplinks. Exactly one set of stops is
//! consistent at every uplink ([`Stop`]).
//!
//! After a change, new stops are first computed only for the changed uplinks, while the stops of all others stay
//! fixed. If the new stops are inconsistent at a further uplink, this uplink is added and the stops are computed
//! again, until all stops are consistent. A start or stop costs O(racks of the job). If an uplink is overloaded before
//! or after the change, there is an additional cost of O(n log n), where n is the number of uplinks of the jobs that
//! become slower or faster. In the worst case, the cost is [`TURNS`] times the cost of solving for all jobs that are
//! connected through overloaded uplinks.

use crate::work::looked;
use gangline_model::{JobId, Load};
use gangline_network::{Filling, Flows, MaxMin, Stop};
use smallvec::SmallVec;

/// Capacity of an uplink in the units in which demands are counted. Each demand is rounded down to a whole unit, so
/// sums are exact and do not depend on the order of starts and stops.
const WHOLE: u128 = 1 << 40;

/// The shared uplinks of all racks, and the running jobs that send through them.
#[derive(Clone, Debug)]
pub(crate) struct UpLinks {
    /// Capacity of each uplink in bytes/s.
    capacity: f64,
    links: Vec<UpLink>,
    /// Senders, indexed by the record of the running job.
    senders: Vec<Option<Sender>>,
    /// Uplinks used by jobs that started or stopped since the last update.
    changed: Vec<u32>,
    scratch: Scratch,
}

#[derive(Clone, Debug)]
struct UpLink {
    /// Jobs that send through the uplink, with their records, in the order of job numbers.
    jobs: Vec<(JobId, u32)>,
    /// Sum of the jobs' demands; the capacity of the uplink is [`WHOLE`] units.
    sum: u128,
    was_overloaded: bool,
    is_changed: bool,
    /// Stop at which the uplink became full in the last update.
    fill: Stop,
    /// Index in the part of the network that is being solved; [`NO_PLACE`] if the uplink is not in this part.
    place: u32,
}

const NO_PLACE: u32 = u32::MAX;

/// After this many turns, all connected uplinks are added to the part being solved, and not only those at which the
/// stops are inconsistent.
const TURNS: u32 = 8;

impl UpLink {
    fn is_overloaded(&self) -> bool {
        self.sum > WHOLE
    }
}

#[derive(Clone, Debug)]
struct Sender {
    job: JobId,
    racks: SmallVec<[u32; 4]>,
    load: Load,
    /// Demand of the job, in the same units as the sums.
    units: u128,
    /// Locality factor that the job would have without other jobs.
    alone: f64,
    locality: f64,
    /// The stop at which the job's rate stopped rising.
    stop: Stop,
    is_seen: bool,
}

/// Buffers that the updates reuse.
#[derive(Debug, Default)]
struct Scratch {
    /// Records of the jobs in the part being solved, with their previous stops.
    part: Vec<(u32, Stop)>,
    /// Overloaded uplinks in the part being solved, in ascending order.
    links: Vec<u32>,
    /// Overloaded uplinks outside the part that a job in the part uses, if the stop of this job has changed.
    doubtful: Vec<u32>,
    below: Vec<Stop>,
    flows: Flows,
    solver: MaxMin,
}

impl Clone for Scratch {
    /// Creates empty buffers, because the contents have no meaning between two updates.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl UpLinks {
    /// Creates uplinks for this number of racks, each with a capacity in bytes/s.
    pub(crate) fn new(racks: u32, capacity: f64) -> Self {
        let link = UpLink {
            jobs: Vec::new(),
            sum: 0,
            was_overloaded: false,
            is_changed: false,
            fill: Stop::NEVER,
            place: NO_PLACE,
        };
        Self {
            capacity,
            links: vec![link; racks as usize],
            senders: Vec::new(),
            changed: Vec::new(),
            scratch: Scratch::default(),
        }
    }

    /// Returns whether any job has started or stopped since the last update.
    #[inline]
    pub(crate) fn is_out_of_date(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Returns the locality factor of the job that uses a record, if this job sends through uplinks.
    #[inline]
    pub(crate) fn locality(&self, record: u32) -> Option<f64> {
        let sender = self.senders.get(record as usize)?.as_ref()?;
        Some(sender.locality)
    }

    /// Adds a job that sends through the uplinks of `racks`; each rack occurs once.
    pub(crate) fn join(
        &mut self,
        record: u32,
        job: JobId,
        racks: SmallVec<[u32; 4]>,
        load: Load,
        alone: f64,
    ) {
        let units = (load.demand / self.capacity * WHOLE as f64) as u128;
        for &rack in &racks {
            let link = &mut self.links[rack as usize];
            let at = link.jobs.partition_point(|entry| entry.0 < job);
            link.jobs.insert(at, (job, record));
            link.sum += units;
            self.note(rack);
        }
        let at = record as usize;
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
            stop: Stop::demand(load.demand),
            is_seen: false,
        });
    }

    /// Removes the running job with the given record. Returns whether the job was sending.
    #[cold]
    #[inline(never)]
    pub(crate) fn leave(&mut self, record: u32) -> bool {
        let Some(sender) = self.senders.get_mut(record as usize).and_then(Option::take) else {
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

    /// Recomputes the locality factors after jobs have started or stopped. Jobs whose factor has changed are added to
    /// `moved`, in job order.
    pub(crate) fn share(&mut self, moved: &mut Vec<JobId>) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.part.clear();
        scratch.links.clear();
        for at in 0..self.changed.len() {
            let rack = self.changed[at];
            let link = &mut self.links[rack as usize];
            link.is_changed = false;
            let is_overloaded = link.is_overloaded();
            let was_overloaded = std::mem::replace(&mut link.was_overloaded, is_overloaded);
            if is_overloaded {
                self.admit(rack, &mut scratch);
            } else if was_overloaded {
                link.fill = Stop::NEVER;
                self.enlist(rack, &mut scratch);
            }
        }
        self.changed.clear();
        if !scratch.part.is_empty() {
            for turn in 0.. {
                self.solve(&mut scratch);
                if !self.widen(turn, &mut scratch) {
                    break;
                }
            }
            self.close(&scratch, moved);
        }
        self.scratch = scratch;
    }

    fn sender(&self, record: u32) -> &Sender {
        let sender = self.senders[record as usize].as_ref();
        sender.expect("uplinks list only senders")
    }

    fn sender_mut(&mut self, record: u32) -> &mut Sender {
        let sender = self.senders[record as usize].as_mut();
        sender.expect("uplinks list only senders")
    }

    /// Adds an uplink and its jobs to the part being solved.
    fn admit(&mut self, rack: u32, scratch: &mut Scratch) {
        self.links[rack as usize].place = 0;
        scratch.links.push(rack);
        self.enlist(rack, scratch);
    }

    /// Adds the jobs of an uplink to the part being solved.
    fn enlist(&mut self, rack: u32, scratch: &mut Scratch) {
        let Self { links, senders, .. } = self;
        for &(_, record) in &links[rack as usize].jobs {
            let sender = senders[record as usize].as_mut();
            let sender = sender.expect("uplinks list only senders");
            if !std::mem::replace(&mut sender.is_seen, true) {
                scratch.part.push((record, sender.stop));
            }
        }
    }

    /// Computes the stops of the jobs and uplinks in the part, while the stops of all other uplinks stay fixed.
    fn solve(&mut self, scratch: &mut Scratch) {
        let Scratch {
            part,
            links,
            flows,
            solver,
            ..
        } = scratch;
        links.sort_unstable();
        for (place, &rack) in links.iter().enumerate() {
            self.links[rack as usize].place = place as u32;
        }
        flows.clear();
        for &(record, _) in part.iter() {
            let sender = self.sender(record);
            let through = sender.racks.iter().map(|&rack| &self.links[rack as usize]);
            let outside = through.clone().filter(|link| link.place == NO_PLACE);
            let demand = Stop::demand(sender.load.demand);
            let limit = outside.map(|link| link.fill).fold(demand, Stop::min);
            let places = through.map(|link| link.place).filter(|&at| at != NO_PLACE);
            flows.push(limit, places);
        }
        looked(part.len());
        let stops = solver.solve(self.capacity, links, flows);
        for (&(record, _), &stop) in part.iter().zip(stops) {
            self.sender_mut(record).stop = stop;
        }
        for (&rack, &fill) in links.iter().zip(solver.fills()) {
            self.links[rack as usize].fill = fill;
        }
    }

    /// Adds the uplinks at which the new stops are inconsistent. Returns whether any uplink was added.
    fn widen(&mut self, turn: u32, scratch: &mut Scratch) -> bool {
        let before = scratch.links.len();
        scratch.doubtful.clear();
        for &(record, stop) in &scratch.part {
            let sender = self.sender(record);
            if sender.stop == stop {
                continue;
            }
            for &rack in &sender.racks {
                let link = &self.links[rack as usize];
                if link.place == NO_PLACE && link.is_overloaded() {
                    scratch.doubtful.push(rack);
                }
            }
        }
        scratch.doubtful.sort_unstable();
        scratch.doubtful.dedup();
        for at in 0..scratch.doubtful.len() {
            let rack = scratch.doubtful[at];
            if !self.fits(rack, &mut scratch.below) {
                self.admit(rack, scratch);
            }
        }
        let is_wider = scratch.links.len() > before;
        if is_wider && turn >= TURNS {
            self.admit_all(scratch);
        }
        is_wider
    }

    /// Returns whether an uplink still stops its jobs at the same rate, given the stops of the other uplinks.
    fn fits(&self, rack: u32, below: &mut Vec<Stop>) -> bool {
        let link = &self.links[rack as usize];
        let stops = link
            .jobs
            .iter()
            .map(|&(_, record)| self.sender(record).stop);
        below.clear();
        below.extend(stops.filter(|&stop| stop < link.fill));
        below.sort_unstable();
        looked(link.jobs.len());
        let mut filling = Filling::new(self.capacity, link.jobs.len() as u32);
        for &stop in below.iter() {
            if filling.next(rack) < stop {
                return false;
            }
            filling.give(stop);
        }
        filling.next(rack) == link.fill
    }

    /// Adds all overloaded uplinks that are connected to the part.
    fn admit_all(&mut self, scratch: &mut Scratch) {
        let mut next = 0;
        while let Some(&(record, _)) = scratch.part.get(next) {
            next += 1;
            for rack in self.sender(record).racks.clone() {
                let link = &self.links[rack as usize];
                if link.place == NO_PLACE && link.is_overloaded() {
                    self.admit(rack, scratch);
                }
            }
        }
    }

    /// Stores the solution of the part, and adds the jobs whose locality factor has changed to `moved`.
    fn close(&mut self, scratch: &Scratch, moved: &mut Vec<JobId>) {
        let first = moved.len();
        for &(record, before) in &scratch.part {
            let sender = self.sender_mut(record);
            sender.is_seen = false;
            if sender.stop == before {
                continue;
            }
            let locality = sender.load.locality(sender.alone, sender.stop.rate());
            if locality.to_bits() != sender.locality.to_bits() {
                sender.locality = locality;
                moved.push(sender.job);
            }
        }
        for &rack in &scratch.links {
            self.links[rack as usize].place = NO_PLACE;
        }
        moved[first..].sort_unstable();
    }

    /// Recomputes the state of the same jobs in one step, starting from empty uplinks, to check the step-by-step
    /// updates.
    pub(crate) fn afresh(&self) -> Self {
        let mut fresh = Self::new(self.links.len() as u32, self.capacity);
        for (record, sender) in self.senders.iter().enumerate() {
            if let Some(sender) = sender {
                let racks = sender.racks.clone();
                fresh.join(record as u32, sender.job, racks, sender.load, sender.alone);
            }
        }
        fresh.share(&mut Vec::new());
        fresh
    }

    /// Returns the jobs that send data through uplinks, together with their records.
    pub(crate) fn senders(&self) -> impl Iterator<Item = (u32, JobId)> + '_ {
        let known = self.senders.iter().enumerate();
        known.filter_map(|(record, sender)| Some((record as u32, sender.as_ref()?.job)))
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
        let locality = |record| uplinks.locality(record).map(f64::to_bits);
        let all = uplinks.senders();
        all.map(|(record, _)| (record, locality(record).expect("a sender")))
            .collect()
    }

    #[test]
    fn rates_match_the_example_of_the_documentation() {
        let mut uplinks = UpLinks::new(3, 10.0);
        let three: [(f64, [u32; 2]); 3] = [(8.0, [0, 1]), (6.0, [1, 2]), (3.0, [0, 2])];
        for (record, (demand, racks)) in three.into_iter().enumerate() {
            let job = JobId::new(record);
            let racks = racks.as_slice().into();
            uplinks.join(record as u32, job, racks, load(demand), 0.5);
        }
        let mut moved = Vec::new();
        uplinks.share(&mut moved);
        assert_eq!(moved, [JobId(0), JobId(1)]);
        let factor = |record| uplinks.locality(record).expect("a sender") / 0.5;
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
        uplinks.share(&mut moved);
        assert!(moved.is_empty());
        uplinks.join(2, JobId(2), [0, 2].as_slice().into(), load(1.0), 0.5);
        uplinks.share(&mut moved);
        assert!(moved.is_empty(), "9 + 1 is just enough");
        uplinks.join(3, JobId(3), [3].as_slice().into(), load(4.0), 0.5);
        uplinks.share(&mut moved);
        assert_eq!(
            moved,
            [JobId(1)],
            "the job gets 6 of 9, because the other job asks for less than half"
        );
        moved.clear();
        assert!(uplinks.leave(3));
        assert!(!uplinks.leave(3));
        assert!(uplinks.is_out_of_date());
        uplinks.share(&mut moved);
        assert_eq!(moved, [JobId(1)]);
        assert_eq!(kept(&uplinks), kept(&uplinks.afresh()));
    }

    /// A step of the test: record, job number, racks, demand in tenths, and whether the instant ends. If the demand is
    /// 100 tenths or more, no job starts.
    fn step() -> impl Strategy<Value = (u32, u32, BTreeSet<u32>, u32, bool)> {
        let racks = prop::collection::btree_set(0..RACKS, 1..4);
        (0..12_u32, any::<u32>(), racks, 1..120_u32, any::<bool>())
    }

    proptest! {
        /// Jobs start and stop in any order, several of them at one instant. The result is the same as if all jobs had
        /// started at once, and no job with an unchanged locality factor is reported.
        #[test]
        fn step_by_step_is_as_at_once(
            steps in prop::collection::vec(step(), 1..60),
        ) {
            let mut uplinks = UpLinks::new(RACKS, 10.0);
            let mut moved = Vec::new();
            for (record, job, racks, tenths, is_end) in steps {
                let before = kept(&uplinks);
                uplinks.leave(record);
                if tenths < 100 {
                    let racks = racks.into_iter().collect();
                    // Job numbers are distinct, and in a different order from the records.
                    let job = JobId(job << 4 | record);
                    let demand = f64::from(tenths) / 10.0;
                    uplinks.join(record, job, racks, load(demand), 0.5);
                }
                if !is_end {
                    continue;
                }
                moved.clear();
                uplinks.share(&mut moved);
                let after = kept(&uplinks);
                prop_assert_eq!(&after, &kept(&uplinks.afresh()));
                prop_assert!(moved.windows(2).all(|pair| pair[0] < pair[1]));
                let jobs: Vec<_> = uplinks.senders().collect();
                for &(other, bits) in &after {
                    let is_same = before.contains(&(other, bits));
                    let (_, job) = jobs[jobs.partition_point(|entry| entry.0 < other)];
                    // A job that has just started without a slowdown is not reported either.
                    prop_assert!(!(is_same && other != record && moved.contains(&job)));
                }
            }
        }
    }

    /// Creates a ring of racks with gangs that each span two racks. Half of the gangs span neighbouring racks, and the
    /// others span racks at distance 7. The demands vary.
    fn ring(racks: u32, demand: impl Fn(u32) -> f64) -> UpLinks {
        let mut uplinks = UpLinks::new(racks, 10.0);
        for record in 0..2 * racks {
            let rack = record / 2;
            let other = (rack + if record % 2 == 0 { 1 } else { 7 }) % racks;
            let ends: SmallVec<[u32; 4]> = [rack, other].as_slice().into();
            uplinks.join(record, JobId(record), ends, load(demand(record)), 0.5);
        }
        uplinks.share(&mut Vec::new());
        uplinks
    }

    fn scattered(record: u32) -> f64 {
        1.0 + f64::from(record.wrapping_mul(2_654_435_761) >> 20) / 512.0
    }

    /// Returns how many jobs are examined while every 13th of the first 600 jobs stops and restarts, one after the
    /// other.
    fn looks_for_changes(uplinks: &mut UpLinks) -> u64 {
        let before = crate::work::looks();
        for record in (0..600).step_by(13) {
            let Sender { racks, load, .. } = uplinks.sender(record).clone();
            uplinks.leave(record);
            uplinks.share(&mut Vec::new());
            uplinks.join(record, JobId(record), racks, load, 0.5);
            uplinks.share(&mut Vec::new());
        }
        crate::work::looks() - before
    }

    #[test]
    fn a_change_costs_what_it_touches_not_all_that_hangs_together() {
        let overloaded = |uplinks: &UpLinks| {
            let count = uplinks.links.iter().filter(|link| link.is_overloaded());
            count.count()
        };
        let (mut few, mut many) = (ring(400, scattered), ring(20_000, scattered));
        assert!(
            overloaded(&many) > 15_000,
            "nearly all uplinks are connected"
        );
        let looks = [&mut few, &mut many].map(looks_for_changes);
        assert!(looks[1] <= looks[0] * 2, "{looks:?}");
        assert_eq!(kept(&few), kept(&few.afresh()));
        assert_eq!(kept(&many), kept(&many.afresh()));
    }

    /// Creates a chain of gangs that each span two successive racks. Each gang gets the capacity that the previous gang
    /// and ten small jobs leave free; this is slightly more than the previous gang gets.
    fn chain(racks: u32) -> UpLinks {
        let mut uplinks = UpLinks::new(racks + 1, 10.0);
        let mut join = |record, racks: &[u32], demand| {
            uplinks.join(record, JobId(record), racks.into(), load(demand), 0.5);
        };
        join(0, &[0, 1], 1.0);
        for rack in 1..racks {
            join(rack, &[rack, rack + 1], 9.0);
            let before = 1.0 + 0.01 * f64::from(rack - 1);
            for small in 1..=10 {
                join(racks * small + rack, &[rack], (9.99 - 2.0 * before) / 10.0);
            }
        }
        uplinks.share(&mut Vec::new());
        uplinks
    }

    #[test]
    fn a_change_that_reaches_all_is_as_at_once() {
        let mut uplinks = chain(200);
        let all = uplinks.senders().count() as u64;
        let before = crate::work::looks();
        assert!(uplinks.leave(0));
        let racks = [0, 1].as_slice().into();
        uplinks.join(0, JobId(0), racks, load(1.004), 0.5);
        let mut moved = Vec::new();
        uplinks.share(&mut moved);
        assert_eq!(
            moved.len(),
            199,
            "all uplinks except the one to which all jobs yield"
        );
        assert!(crate::work::looks() - before < 3 * all);
        assert_eq!(kept(&uplinks), kept(&uplinks.afresh()));
    }
}
