//! Why a job waits: asked of the policy after each decision, for the few jobs that a run watches. A run that watches
//! none pays one comparison per decision.

use crate::policy::Policy;
use crate::run::Engine;
use crate::state::jobs::Phase;
use crate::state::running::Run;
use crate::view::ClusterView;
use gangline_model::{JobId, ServerId, SimSpan, SimTime, Tier};

/// Why a job waits after a decision, as its policy says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Another waiting job comes first, and while it has no place none behind it starts.
    Behind(JobId),
    /// When its turn came there was no place that the placement rule accepts.
    NoPlace,
    /// As [`Self::NoPlace`], and from `until` on GPUs are reserved for it; `NEVER` = by count there are never enough.
    Promised {
        /// When its reservation begins.
        until: SimTime,
    },
    /// It would hold GPUs beyond the instant at which they are reserved for another job.
    Reserved {
        /// The job with the reservation.
        job: JobId,
        /// When that begins.
        until: SimTime,
    },
    /// Running jobs that the policy ranks before it leave too few GPUs; one of these jobs.
    Outranked(JobId),
    /// There are enough GPUs, but until `until` it waits for a placement no wider than `tier`; `NEVER` = for good.
    Delayed {
        /// The widest that it accepts now.
        tier: Tier,
        /// When it accepts a wider one.
        until: SimTime,
    },
    /// It is the first of its queue, and there is no place; queues that hold less of their shares go first.
    Quota {
        /// GPUs that its queue holds.
        used: u32,
    },
    /// Enough GPUs are free, but it is worth less than their price.
    Price {
        /// Its utility as a share of the price, where that is known.
        percent: Option<u32>,
    },
    /// When its turn came it was worth less than the price of the GPUs, and this job, behind it, took some of them.
    Outbid(JobId),
    /// Enough GPUs may be free, but the policy looked at fewer jobs than those that come before it.
    NotSeen,
    /// A search for the best allocation of all jobs gave it nothing; a job to which it gave GPUs, if any are taken.
    Searched(Option<JobId>),
    /// When GPUs were counted out, job by job, those before it left too few; a job that holds some, if not enough are
    /// free in the end.
    CountedOut(Option<JobId>),
    /// Copies of other jobs hold every server that it can use: the job with most of them.
    Copied {
        /// That job.
        job: JobId,
        /// How many copies it has.
        copies: u32,
    },
    /// The policy starts jobs only at certain instants, and the next of them comes then at the earliest.
    NextDecision {
        /// When.
        until: SimTime,
    },
    /// A policy that is not ours, in its own words.
    Own {
        /// Number of the words, which the policy keeps.
        words: u32,
        /// The job that they are about.
        job: Option<JobId>,
        /// Until when, or `NEVER`.
        until: SimTime,
    },
    /// The allocation gives it no time on any GPU type.
    NoShare,
    /// There is room beside running jobs, but none beside which the policy lets it run.
    NoPartner,
    /// It takes turns on the same GPUs with a job that runs now.
    Turn(JobId),
    /// The GPUs are leased to others until then, or until one of these jobs ends.
    Leased {
        /// When the leases end.
        until: SimTime,
    },
}

impl Cause {
    /// Why a job waits in a queue whose first job, `head`, has no place.
    pub fn at_head(head: JobId, job: JobId) -> Self {
        if head == job {
            Self::NoPlace
        } else {
            Self::Behind(head)
        }
    }

    /// The other job that it names.
    pub fn other(&self) -> Option<JobId> {
        match *self {
            Self::Behind(job)
            | Self::Reserved { job, .. }
            | Self::Outranked(job)
            | Self::Outbid(job)
            | Self::Copied { job, .. }
            | Self::Turn(job) => Some(job),
            Self::Searched(job) | Self::CountedOut(job) | Self::Own { job, .. } => job,
            _ => None,
        }
    }
}

/// What a watched job waited for from an instant on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// From when on.
    pub since: SimTime,
    /// The job that is watched.
    pub job: JobId,
    /// Why; `None` = the policy does not say.
    pub cause: Option<Cause>,
    /// GPUs that the other job held then, if the cause names one that ran.
    pub held: Option<u32>,
}

/// What watched jobs waited for: a row per change, and one at each first decision of a wait. Sorted by time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Causes {
    /// Why jobs waited, by time.
    pub rows: Vec<Waited>,
    /// When a server failed (false) or came back.
    pub capacity: Vec<(SimTime, ServerId, bool)>,
    /// GPU types that each watched job can use, as a mask, and the fewest GPUs that it may get.
    pub usable: Vec<(JobId, u64, u32)>,
    /// Whether the policy builds gangs over several GPU types.
    pub mixes_types: bool,
    /// Length of a round of the policy.
    pub round: Option<SimSpan>,
}

/// A job that a run watches.
#[derive(Clone, Copy, Debug)]
struct Watched {
    job: JobId,
    /// Whether the policy was asked since it began to wait, and what it said last.
    is_asked: bool,
    cause: Option<Cause>,
}

/// The jobs that a run watches.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    jobs: Vec<Watched>,
    pub(crate) causes: Causes,
}

impl Watch {
    pub(crate) fn new(jobs: &[JobId]) -> Self {
        Self {
            jobs: jobs
                .iter()
                .map(|&job| Watched {
                    job,
                    is_asked: false,
                    cause: None,
                })
                .collect(),
            causes: Causes::default(),
        }
    }
}

impl Engine {
    /// What the run recorded of the jobs that it watches.
    pub(crate) fn take_causes(&mut self) -> Option<Causes> {
        let watch = self.watch.take()?;
        let types = &self.state.types;
        let view = ClusterView {
            state: &self.state,
            knowledge: self.traits.knowledge,
        };
        let fewest = |job| {
            if self.traits.forks {
                let servers = (0..view.cluster().servers().len()).map(ServerId::new);
                let of_use = servers.filter(|&server| {
                    let kind = view.cluster().server(server).gpu_type.index();
                    types.usable(job) >> kind & 1 == 1
                });
                let copies = of_use.map(|server| view.gang_on(job, server));
                return copies.min().unwrap_or_else(|| view.jobs().gpus(job));
            }
            let elastic = view.elastic(job).filter(|_| self.traits.resizes);
            elastic.map_or(view.jobs().gpus(job), |model| model.class().min_gpus)
        };
        let usable = watch
            .jobs
            .iter()
            .map(|one| (one.job, types.usable(one.job), fewest(one.job)));
        Some(Causes {
            usable: usable.collect(),
            mixes_types: self.traits.mixes_types,
            round: self.traits.round,
            ..watch.causes
        })
    }

    /// Asks why the watched jobs wait, now that a plan is carried out.
    #[cold]
    #[inline(never)]
    pub(crate) fn ask_why(&mut self, policy: &dyn Policy) {
        let Some(watch) = &mut self.watch else { return };
        let view = ClusterView {
            state: &self.state,
            knowledge: self.traits.knowledge,
        };
        for one in &mut watch.jobs {
            if self.state.lives.phase(one.job) != Some(Phase::Waiting) {
                one.is_asked = false;
                continue;
            }
            let cause = policy.why(&view, one.job);
            if !one.is_asked || one.cause != cause {
                let other = cause.and_then(|cause| cause.other());
                watch.causes.rows.push(Waited {
                    since: view.now(),
                    job: one.job,
                    cause,
                    held: other.and_then(|other| view.run(other)).map(gpus_of),
                });
            }
            (one.is_asked, one.cause) = (true, cause);
        }
    }

    /// Notes that a server failed or came back.
    #[cold]
    #[inline(never)]
    pub(crate) fn watch_capacity(&mut self, server: ServerId, up: bool) {
        if let Some(watch) = &mut self.watch {
            watch.causes.capacity.push((self.state.now, server, up));
        }
    }
}

/// GPUs of all parts of a running job.
fn gpus_of(run: &Run) -> u32 {
    run.parts().iter().map(|part| part.gpus.gpus()).sum()
}
