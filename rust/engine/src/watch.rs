//! Why a job waits: asked of the policy after each decision, for the few jobs that a run watches. A run that watches
//! none pays one comparison per decision.

use crate::state::State;
use crate::state::jobs::Phase;
use crate::state::running::Run;
use crate::traits::PolicyTraits;
use gangline_model::{JobId, ServerId, SimSpan, SimTime};

/// A reason for which jobs wait: declared beside the policy that gives it, and told by its sentence wherever one is
/// printed.
///
/// In a sentence, `{policy}` is the name of the policy, `{others}` and `{some}` the jobs that causes name, `{until}` the
/// instants, `{number}` the numbers, `{free}` what was free, `{meanwhile}` the same in brackets, `{rule}` the placement
/// rule, `{when}` when the policy decides.
#[derive(Debug, PartialEq, Eq)]
pub struct Reason {
    /// Its name, in tables: a word or two, at most 13 characters.
    pub name: &'static str,
    /// What it means, for the guide.
    pub meaning: &'static str,
    /// Its sentence.
    pub sentence: &'static str,
    /// Its sentence where the cause lacks the job, instant or number that the other names, or where too few GPUs were
    /// free; empty = the same.
    pub otherwise: &'static str,
    /// What the number of its causes counts.
    pub number: Counted,
    /// Whether the job no longer waits for it once enough GPUs are free.
    pub ends_when_free: bool,
}

/// What the number of a cause counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// There is none.
    Nothing,
    /// GPUs.
    Gpus,
    /// Parts of the other job.
    Copies,
    /// Percent.
    Percent,
    /// The widest placement, as a [`Tier`](gangline_model::Tier).
    Tier,
    /// Words of a policy that is not ours, which the policy keeps.
    Words,
}

impl Counted {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Gpus => "gpus",
            Self::Copies => "copies",
            Self::Percent => "percent",
            Self::Tier => "tier",
            Self::Words => "words",
        }
    }
}

impl Reason {
    /// A reason without a number, which lasts whatever is free.
    pub const fn new(name: &'static str, meaning: &'static str, sentence: &'static str) -> Self {
        Self {
            name,
            meaning,
            sentence,
            otherwise: "",
            number: Counted::Nothing,
            ends_when_free: false,
        }
    }

    /// With a sentence for causes that lack what the first one names.
    #[must_use]
    pub const fn otherwise(self, otherwise: &'static str) -> Self {
        Self { otherwise, ..self }
    }

    /// With a number.
    #[must_use]
    pub const fn counts(self, number: Counted) -> Self {
        Self { number, ..self }
    }

    /// No longer a reason once enough GPUs are free.
    #[must_use]
    pub const fn ends_when_free(self) -> Self {
        Self {
            ends_when_free: true,
            ..self
        }
    }
}

/// Why a job waits after a decision, as its policy says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The reason.
    pub reason: &'static Reason,
    /// The other job that it is about.
    pub job: Option<JobId>,
    /// A number, of what the reason says.
    pub number: Option<u32>,
    /// Until when; `NEVER` = no instant is known.
    pub until: SimTime,
}

impl Cause {
    /// A cause that names nothing.
    pub fn new(reason: &'static Reason) -> Self {
        Self {
            reason,
            job: None,
            number: None,
            until: SimTime::NEVER,
        }
    }

    /// A cause that is about another job.
    pub fn of(reason: &'static Reason, job: impl Into<Option<JobId>>) -> Self {
        Self {
            job: job.into(),
            ..Self::new(reason)
        }
    }

    /// With a number.
    #[must_use]
    pub fn number(self, number: u32) -> Self {
        Self {
            number: Some(number),
            ..self
        }
    }

    /// With an instant.
    #[must_use]
    pub fn until(self, until: SimTime) -> Self {
        Self { until, ..self }
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
    causes: Causes,
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

    /// What was recorded of the jobs.
    pub(crate) fn into_causes(self, state: &State, traits: &PolicyTraits) -> Causes {
        let fewest = |job| {
            if traits.forks {
                let servers = (0..state.cluster().servers().len()).map(ServerId::new);
                let of_use = servers.filter(|&server| {
                    let kind = state.cluster().server(server).gpu_type.index();
                    state.types().usable(job) >> kind & 1 == 1
                });
                let copies = of_use.map(|server| state.gang_on(job, server));
                return copies.min().unwrap_or_else(|| state.jobs().gpus(job));
            }
            let elastic = state.elastic_model(job).filter(|_| traits.resizes);
            elastic.map_or(state.jobs().gpus(job), |model| model.class().min_gpus)
        };
        let usable = |one: &Watched| (one.job, state.types().usable(one.job), fewest(one.job));
        Causes {
            usable: self.jobs.iter().map(usable).collect(),
            mixes_types: traits.mixes_types,
            round: traits.round,
            ..self.causes
        }
    }

    /// Asks why the jobs wait, now that a plan is carried out.
    #[cold]
    #[inline(never)]
    pub(crate) fn ask(&mut self, state: &State, why: impl Fn(JobId) -> Option<Cause>) {
        for one in &mut self.jobs {
            if state.lives().phase(one.job) != Some(Phase::Waiting) {
                one.is_asked = false;
                continue;
            }
            let cause = why(one.job);
            if !one.is_asked || one.cause != cause {
                let other = cause.and_then(|cause| cause.job);
                self.causes.rows.push(Waited {
                    since: state.now(),
                    job: one.job,
                    cause,
                    held: other.and_then(|other| state.run(other)).map(gpus_of),
                });
            }
            (one.is_asked, one.cause) = (true, cause);
        }
    }

    /// Notes that a server failed or came back.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_capacity(&mut self, now: SimTime, server: ServerId, up: bool) {
        self.causes.capacity.push((now, server, up));
    }
}

/// GPUs of all parts of a running job.
fn gpus_of(run: &Run) -> u32 {
    run.parts().iter().map(|part| part.gpus.gpus()).sum()
}
