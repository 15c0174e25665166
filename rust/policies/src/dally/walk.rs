//! The policy itself: it tracks the state of the cluster, makes the offers in each decision, and sets a timer for the
//! next decision.

use super::leases::Leases;
use super::offer::{Class, Decision, Extent, Start, Up, Verdict};
use super::params::{DallyParams, Renewal};
use super::queue::Rank;
use super::tuner::Tuner;
use crate::kit::why::NO_PLACE;
use crate::kit::{Alarm, Places, check_length};
use crate::place::{Level, PlacementParams};
use gangline_engine::{
    BitSet, Cause, Changes, ClusterView, Counted, FreeIndex, Next, Plan, Policy, PolicyError,
    PolicyTraits, Reason, WakeOn,
};
use gangline_model::{GpuTypeId, JobId, SimSpan, SimTime, Tier};

/// Enough GPUs are free, but the job still waits for a placement that is no wider than a certain tier.
pub(crate) static DELAYED: Reason = Reason::new(
    "delayed",
    "enough GPUs are free, but not close enough together; until its delay ends, it waits for free GPUs on one server or in one rack",
    "enough GPUs were free, but not close enough to each other; it had to wait until {until} for a placement on {number}",
)
.otherwise("enough GPUs were free, but not close enough to each other; it needs a placement on {number}")
.counts(Counted::Tier);

/// The policy `dally`: delay scheduling by topology level.
#[derive(Debug)]
pub(crate) struct Dally {
    params: DallyParams,
    places: Places,
    offer: Decision,
    leases: Option<Leases>,
    score: Vec<u64>,
    /// Instant at which each waiting job began to wait, in ns.
    since: Vec<i64>,
    waiting: usize,
    /// Timer for the next end of a lease or a delay.
    alarm: Alarm,
}

impl Dally {
    /// Creates the policy.
    pub(crate) fn new(params: DallyParams) -> Self {
        let placement = PlacementParams {
            fit: params.fit,
            ..PlacementParams::default()
        };
        Self {
            places: Places::new(placement.clone()),
            offer: Decision::new(placement),
            leases: None,
            score: Vec::new(),
            since: Vec::new(),
            waiting: 0,
            alarm: Alarm::OFF,
            params,
        }
    }

    fn leases(&mut self) -> &mut Leases {
        self.leases
            .as_mut()
            .expect("start comes before every decision")
    }

    fn class_of(&self, job: JobId) -> usize {
        self.places.class_of(job)
    }

    /// Returns a job's mean locality factor so far, in units of 10^-12. Time in overhead counts only if
    /// `counts_overhead` is set.
    fn score_now(&self, view: &ClusterView<'_>, job: JobId) -> u64 {
        let time = if self.params.counts_overhead {
            view.held(job)
        } else {
            view.executed(job)
        };
        mean_share(view.kept_ns(job), time)
    }

    fn rank(&self, job: JobId) -> Rank {
        Rank {
            score: self.score[job.index()],
            since: self.since[job.index()],
            job: job.0,
        }
    }

    fn wait(&mut self, job: JobId, since: SimTime) {
        self.since[job.index()] = since.0;
        let (class, rank) = (self.class_of(job), self.rank(job));
        self.offer.classes[class].waiting.insert(rank);
        self.offer.busy.insert(class);
        self.waiting += 1;
    }

    /// Records the events since the last decision and their effects.
    fn update(&mut self, view: &ClusterView<'_>, changes: &Changes, free: &FreeIndex) {
        for &job in &changes.finished {
            self.leases().end(job);
        }
        for &job in &changes.requeued {
            self.leases().end(job);
            self.score[job.index()] = self.score_now(view, job);
            self.wait(job, view.now());
        }
        for &job in &changes.arrived {
            self.wait(job, view.jobs().arrival(job));
        }
        if changes.has_servers() {
            self.measure(view, free);
        }
    }

    /// Updates the maximum sizes of servers and racks, and the set of jobs whose place is wider than necessary.
    fn measure(&mut self, view: &ClusterView<'_>, free: &FreeIndex) {
        let mut changed = false;
        for class in &mut self.offer.classes {
            let extent = Extent::of(free, &class.types);
            changed |= extent != class.extent;
            class.extent = extent;
        }
        if !changed {
            return;
        }
        let running: Vec<JobId> = self.leases().running().collect();
        for job in running {
            let tier = view.run(job).expect("a running job").only().tier;
            self.note_tier(job, tier);
        }
    }

    fn note_tier(&mut self, job: JobId, tier: Tier) {
        let class = &self.offer.classes[self.class_of(job)];
        let is_loose = tier > class.extent.narrowest(class.gpus);
        self.leases().set_loose(job, is_loose);
    }

    /// Finds the jobs whose leases end now, except those whose leases are renewed without a decision.
    fn raise(&mut self, view: &ClusterView<'_>) {
        let now = view.now();
        let all_leases = self.waiting > 0;
        if !all_leases && !self.may_upgrade() {
            self.offer.raise(Vec::new());
            return;
        }
        let jobs: Vec<JobId> = self.leases().ending(now, all_leases).collect();
        let mut ups = Vec::with_capacity(jobs.len());
        for job in jobs {
            self.score[job.index()] = self.score_now(view, job);
            self.since[job.index()] = now.0;
            let run = view.run(job).expect("a running job").only();
            let up = Up {
                job,
                class: self.class_of(job),
                tier: run.tier,
                gpus: run.gpus.clone(),
                verdict: Verdict::Nothing,
            };
            ups.push((self.rank(job), up));
        }
        self.offer.raise(ups);
    }

    fn may_upgrade(&self) -> bool {
        self.params.upgrades || self.params.renewal == Renewal::Redecide
    }

    /// Writes the plan, and updates the policy's own records.
    fn write(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) {
        let now = view.now();
        let starts = std::mem::take(&mut self.offer.starts);
        for start in &starts {
            let job = start.rank.job();
            self.waiting -= 1;
            let tier = plan.free().tier(&start.gpus);
            let is_aligned = self.params.is_aligned;
            self.leases().start(job, now, is_aligned);
            self.note_tier(job, tier);
            let gpus = start.gpus.clone();
            plan.start(job, gpus);
        }
        let ups = std::mem::take(&mut self.offer.ups);
        for Up {
            job, gpus, verdict, ..
        } in ups
        {
            match verdict {
                Verdict::Kept => debug_assert!(!gpus.is_empty(), "a kept job still has GPUs"),
                Verdict::Moved(gpus) => {
                    let tier = plan.free().tier(&gpus);
                    self.note_tier(job, tier);
                    plan.move_to(job, gpus);
                }
                Verdict::Nothing => {
                    self.leases().end(job);
                    self.wait(job, now);
                    plan.preempt(job);
                }
            }
        }
        self.arm(view, plan);
        for start in &starts {
            self.record(start, now);
        }
        self.offer.starts = starts;
    }

    /// Passes the waiting time of a started job to the tuner, if the job was placed on one server or in one rack.
    fn record(&mut self, start: &Start, now: SimTime) {
        if start.level == Level::Network {
            return;
        }
        let tuner = self.offer.classes[start.class].tuner;
        let wait = now.0 - start.rank.since;
        let on_server = start.level == Level::Server;
        self.offer.tuners[tuner].record(on_server, now, wait, self.params.lease.0);
    }

    /// Sets one timer for the earliest end of a lease or delay.
    fn arm(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) {
        let now = view.now();
        // While no job waits, leases are renewed without a decision.
        let all_leases = self.waiting > 0;
        let mut next = SimTime::NEVER;
        if all_leases || self.may_upgrade() {
            next = self.leases().next(now, all_leases).unwrap_or(next);
        }
        let mut class = self.offer.busy.next_from(0);
        while let Some(at) = class {
            class = self.offer.busy.next_from(at + 1);
            let end = self.offer.next_delay(plan.free(), at, &self.params, now);
            next = next.min(end.unwrap_or(SimTime::NEVER));
        }
        self.alarm.set(now, next, plan);
    }
}

impl Policy for Dally {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            wake_on: WakeOn::QUEUE | WakeOn::TIMER,
            restart_per_gpu: self.params.overhead_per_gpu,
            watches_locality: true,
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        let unplaceable = self.places.start(view, plan)?;
        check_length(view, "dally", "lease_s", self.params.lease, &unplaceable)?;
        let jobs = view.jobs();
        let mut sizes: Vec<u32> = Vec::new();
        for class in self.places.classes().iter() {
            let known = sizes.iter().position(|&gpus| gpus == class.gpus);
            let tuner = known.unwrap_or_else(|| {
                sizes.push(class.gpus);
                self.offer.tuners.push(Tuner::new(&self.params));
                sizes.len() - 1
            });
            let extent = Extent::of(plan.free(), &class.types);
            let types = class.types.clone();
            self.offer
                .classes
                .push(Class::new(class.gpus, types, extent, tuner));
        }
        self.offer.busy = BitSet::new(self.offer.classes.len().max(1));
        self.leases = Some(Leases::new(self.params.lease.0, jobs.len()));
        self.score = vec![0; jobs.len()];
        self.since = vec![0; jobs.len()];
        Ok(unplaceable)
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        self.update(view, changes, plan.free());
        self.raise(view);
        if self.waiting > 0 || !self.offer.ups.is_empty() {
            self.offer.walk(plan.free(), &self.params, view.now());
        }
        self.write(view, plan);
        Ok(Next::Ask)
    }

    fn reasons(&self) -> Vec<&'static Reason> {
        vec![&NO_PLACE, &DELAYED]
    }

    fn why(&self, view: &ClusterView<'_>, job: JobId) -> Option<Cause> {
        let class = &self.offer.classes[self.class_of(job)];
        let is_enough = |gpu_type: &GpuTypeId| view.gpus_free(*gpu_type) >= class.gpus;
        if !class.types.iter().any(is_enough) {
            return Some(Cause::new(&NO_PLACE));
        }
        let since = self.since[job.index()];
        let limit = self.offer.limit(class, view.now().0 - since);
        Some(limit.map_or(Cause::new(&NO_PLACE), |(tier, delay)| {
            let until = SimTime(since.saturating_add(delay));
            Cause::new(&DELAYED).number(tier as u32).until(until)
        }))
    }
}

/// Returns the mean locality factor in units of 10^-12, rounded down; 0 before any progress. `kept_ns` is the sum of
/// the factor over all nanoseconds of `time`.
fn mean_share(kept_ns: i128, time: SimSpan) -> u64 {
    if time.0 == 0 {
        return 0;
    }
    (kept_ns / i128::from(time.0)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: i128 = 1_000_000_000_000;
    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn the_published_example() {
        // The factor is 1 for 100 s and then 0.5 for 300 s, so the mean is 250 / 400.
        let kept = ONE * 100 * i128::from(SECOND) + ONE / 2 * 300 * i128::from(SECOND);
        let score = mean_share(kept, SimSpan(400 * SECOND));
        assert_eq!(score, 625_000_000_000);
        assert_eq!(mean_share(0, SimSpan(0)), 0);
    }

    /// A constant locality factor of 0.3 has the same mean as factors of 0.2 and 0.4 for equal times.
    #[test]
    fn means_that_are_equal_in_decimals_tie() {
        let unit = |share: f64| (share * 1e12).round() as i128;
        let time = 7 * i128::from(SECOND);
        let (even, mixed) = (2 * time * unit(0.3), time * (unit(0.2) + unit(0.4)));
        let score = |kept| mean_share(kept, SimSpan(14 * SECOND));
        assert_eq!(score(even), score(mixed));
        assert_eq!(score(even), 300_000_000_000);
    }
}
