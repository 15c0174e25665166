//! Themis (NSDI 2020): finish-time fairness by auction. Our version auctions GPUs to whole gangs
//! (`docs/policies/themis.md`).
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | rho | `Standing::rho` | (age + remaining time if the job runs alone) / time that the job would take on its fair share |
//! | T_id | `Fairness::rho` | isolated duration x max(1, d n / M) |
//! | n | `Fairness` | mean number of active jobs since the job's arrival |
//! | M | `Fairness::gpus` | GPUs of the cluster |
//! | f | `fairness` | share of the bidders that are left out of an auction |
//! | v | `Bid::value` | gain of a job from the offered place compared with waiting until the next auction |

mod auction;
mod bids;
mod exact;
mod fairness;
mod program;
mod rooms;

pub use auction::Leftover;
pub(crate) use auction::Winners;
pub use bids::{AuctionAsk, Award, Bid, Offer, Room};
pub use exact::award;

use crate::kit::Places;
use crate::kit::Seen;
use crate::kit::check_length;
use crate::kit::why::{NO_PLACE, has_enough, largest};
use crate::place::PlacementParams;
use auction::Auction;
use exact::Exact;
use fairness::{Fairness, Standing};
use gangline_allocation::Outside;
use gangline_engine::{
    Cause, Changes, ClusterView, Knowledge, Next, Plan, Policy, PolicyError, PolicyTraits, Reason,
    WakeOn,
};
use gangline_model::{JobId, SimSpan, SimTime, TimerTag};

/// The GPUs are leased to other jobs, either until a known instant or until one of these jobs ends.
pub(crate) static LEASED: Reason = Reason::new(
    "leased",
    "the GPUs are leased to other jobs until a later time",
    "the GPUs were leased to other jobs until {until}",
);

/// Entry in `spans` of a job that has not been considered in any auction since it began to wait.
const UNKNOWN: (SimSpan, SimSpan) = (SimSpan::ZERO, SimSpan::ZERO);
const BOUNDARY: TimerTag = TimerTag { kind: 0, id: 0 };

/// The policy `themis`. It auctions GPUs at the ends of leases, which are multiples of the lease length.
#[derive(Debug)]
pub struct Themis {
    lease: SimSpan,
    seen: Seen,
    places: Places,
    fairness: Fairness,
    auction: Auction,
    /// Number of waiting jobs of each class. One check per class shows whether any of its jobs might fit.
    waiting_by_class: Vec<u32>,
    /// Remaining time and isolated duration of each waiting job; both stay constant until the job starts.
    spans: Vec<(SimSpan, SimSpan)>,
    standings: Vec<Standing>,
}

impl Themis {
    /// Creates a policy that holds an auction every `lease`. Each auction invites the fraction `1 - fairness` of the
    /// bidders: those that are worst off. If `exact` contains a solver and its time limit, the auction maximises the
    /// product of the values v.
    pub fn new(
        lease: SimSpan,
        fairness: f64,
        leftover: Leftover,
        exact: Option<(Outside, f64)>,
        placement: PlacementParams,
        seen: Seen,
    ) -> Self {
        let exact = exact.map(|(outside, limit_s)| Exact::new(outside, limit_s, placement.clone()));
        Self {
            lease,
            seen,
            places: Places::new(placement),
            fairness: Fairness::default(),
            auction: Auction::new(fairness, leftover, exact),
            waiting_by_class: Vec::new(),
            spans: Vec::new(),
            standings: Vec::new(),
        }
    }

    /// Returns the instant at which the current leases end.
    fn boundary_after(&self, now: SimTime) -> SimTime {
        SimTime((now.0 / self.lease.0 + 1).saturating_mul(self.lease.0))
    }

    fn count(&mut self, job: JobId, change: i32) {
        let class = self.places.class_of(job);
        let count = &mut self.waiting_by_class[class];
        *count = count
            .checked_add_signed(change)
            .expect("a job leaves the queue only once");
    }

    /// Returns whether a waiting gang might fit on the free GPUs. The cost is O(classes).
    fn has_room(&self, plan: &mut Plan<'_>) -> bool {
        let waiting = self.waiting_by_class.iter().enumerate();
        waiting
            .filter(|&(_, &count)| count > 0)
            .any(|(class, _)| self.places.can(plan.free(), class))
    }

    /// Returns the remaining time and isolated duration of a job.
    fn spans_of(
        &self,
        view: &ClusterView<'_>,
        job: JobId,
    ) -> Result<(SimSpan, SimSpan), PolicyError> {
        // An estimate may be 0, but no time is shorter than the clock's resolution.
        let left = self.seen.remaining(view, job)?.max(SimSpan(1));
        Ok((left, self.seen.duration(view, job)?.max(SimSpan(1))))
    }

    fn standing(&self, view: &ClusterView<'_>, job: JobId, spans: (SimSpan, SimSpan)) -> Standing {
        let age = view.now() - view.jobs().arrival(job);
        Standing {
            job,
            class: self.places.class_of(job),
            age,
            left: spans.0,
            duration: spans.1,
            rho: self.fairness.rho(view, job, age, spans),
        }
    }

    /// Collects all jobs that may get GPUs now: waiting jobs and, at the end of a lease, running jobs.
    fn gather(&mut self, view: &ClusterView<'_>, is_boundary: bool) -> Result<(), PolicyError> {
        let mut standings = std::mem::take(&mut self.standings);
        standings.clear();
        for job in view.waiting() {
            if self.spans[job.index()] == UNKNOWN {
                self.spans[job.index()] = self.spans_of(view, job)?;
            }
            standings.push(self.standing(view, job, self.spans[job.index()]));
        }
        if is_boundary {
            for job in view.running() {
                standings.push(self.standing(view, job, self.spans_of(view, job)?));
            }
        }
        self.standings = standings;
        Ok(())
    }

    fn update(&mut self, view: &ClusterView<'_>, changes: &Changes) {
        self.fairness.update(view, changes);
        for &job in &changes.started {
            self.count(job, -1);
        }
        let stopped = changes.preempted.iter().chain(&changes.requeued);
        for &job in stopped.chain(&changes.arrived) {
            self.count(job, 1);
            self.spans[job.index()] = UNKNOWN;
        }
    }
}

impl Policy for Themis {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            wake_on: WakeOn::QUEUE | WakeOn::TIMER,
            knowledge: Knowledge::Remaining,
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        let unplaceable = self.places.start(view, plan)?;
        self.waiting_by_class = vec![0; self.places.classes().len()];
        self.spans = vec![UNKNOWN; view.jobs().len()];
        self.fairness.start(view);
        check_length(view, "themis", "lease_s", self.lease, &unplaceable)?;
        Ok(unplaceable)
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        self.update(view, changes);
        let mut waiting = view.waiting_count();
        let now = view.now();
        let is_boundary = now.0 % self.lease.0 == 0;
        let boundary = self.boundary_after(now);
        if waiting > 0 && (is_boundary || self.has_room(plan)) {
            self.gather(view, is_boundary)?;
            if is_boundary {
                for job in view.running() {
                    plan.release(job);
                }
            }
            let mut standings = std::mem::take(&mut self.standings);
            let lease_left = boundary - now;
            let ranked = (standings.as_mut_slice(), &self.fairness);
            self.auction
                .run(view, plan, &mut self.places, ranked, lease_left)?;
            let more = self.auction.carry_out(view, plan, &standings);
            self.standings = standings;
            waiting = waiting.saturating_add_signed(more);
        }
        // If no job waits, leases are renewed without an auction.
        if waiting > 0 {
            plan.wake_at(boundary, BOUNDARY);
        } else {
            plan.cancel(BOUNDARY);
        }
        Ok(Next::Ask)
    }

    fn reasons(&self) -> Vec<&'static Reason> {
        vec![&NO_PLACE, &LEASED]
    }

    fn why(&self, view: &ClusterView<'_>, job: JobId) -> Option<Cause> {
        let gang = view.jobs().gpus(job);
        let has_enough = has_enough(view, job, gang, false);
        let until = self.boundary_after(view.now());
        // If all usable servers are down, nothing is leased.
        Some(if has_enough || largest(view, job, |_| true).is_none() {
            Cause::new(&NO_PLACE)
        } else {
            Cause::new(&LEASED).until(until)
        })
    }
}
